//! What may be wrong with a script, with its place, and the nearest name to one that is not known.

use std::fmt;

/// A place in a script: both count from one, columns in characters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Pos {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl Pos {
    pub(super) const START: Pos = Pos { line: 1, column: 1 };

    pub(super) fn advance(&mut self, c: char) {
        if c == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
    }
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// What is wrong with a script, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScriptError {
    /// The script's name, as the caller gave it; empty until it is known.
    pub file: String,
    /// Where.
    pub pos: Pos,
    /// What, and what was expected.
    pub what: String,
}

impl ScriptError {
    pub(super) fn new(pos: Pos, what: impl Into<String>) -> Self {
        Self { file: String::new(), pos, what: what.into() }
    }

    pub(super) fn of_file(self, file: &str) -> Self {
        Self { file: file.into(), ..self }
    }

    /// `what` of this name is not known; the nearest of those that are is offered.
    pub(super) fn unknown<'a>(
        pos: Pos,
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut known: Vec<&str> = known.into_iter().collect();
        known.sort_unstable();
        known.dedup();
        let hint = match nearest(name, &known) {
            Some(near) => format!(": did you mean `{}`?", shown(near)),
            None if known.is_empty() => String::new(),
            None if known.len() <= 24 => format!(": expected one of {}", list(&known)),
            None => String::new(),
        };
        Self::new(pos, format!("unknown {what} `{}`{hint}", shown(name)))
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|n| shown(n)).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
        }
        write!(f, "{}: {}", self.pos, self.what)
    }
}

impl std::error::Error for ScriptError {}

/// A foreign name as it may stand in a message: printable, and not long.
pub(super) fn shown(name: &str) -> String {
    let mut out: String = name.chars().take(60).flat_map(char::escape_default).collect();
    if name.chars().nth(60).is_some() {
        out.push_str("...");
    }
    out
}

/// The known name fewest changes away, if those are few.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name: Vec<char> = name.chars().take(64).collect();
    known
        .iter()
        .map(|k| (distance(&name, &k.chars().take(64).collect::<Vec<_>>()), *k))
        .filter(|(d, k)| *d <= (name.len().min(k.len()) / 3).clamp(1, 3) && *d < name.len().max(k.len()))
        .min()
        .map(|(_, k)| k)
}

/// Levenshtein's.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(ca != cb)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_when_it_is_near() {
        assert_eq!(nearest("opnefile", &["closefile", "openfile"]), Some("openfile"));
        assert_eq!(nearest("zzz", &["closefile", "openfile"]), None);
        let e = ScriptError::unknown(Pos { line: 3, column: 9 }, "flowop", "reed", ["read", "write"]);
        assert_eq!(e.of_file("x.f").to_string(), "x.f:3:9: unknown flowop `reed`: did you mean `read`?");
    }
}
