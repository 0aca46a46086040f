//! Characters to tokens. No word is reserved: what a word means is decided where it stands, so a flowop may be
//! named `delay` and a fileset `logfile`.

use super::error::{Pos, ScriptError, shown};

/// Longest script that is read, in bytes. The longest stock file has 14 KB.
pub(super) const SOURCE_BYTES_MAX: usize = 1 << 20;
/// Longest bare word.
const WORD_BYTES_MAX: usize = 1024;

/// A part of a quoted text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Plain(String),
    Var(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A bare string, by the language's own rule: starts with a letter, `/` or `-`.
    Word(String),
    /// A variable without its `$`.
    Var(String),
    Int(u64),
    /// A number with a minus sign written to it.
    NegInt(u64),
    Text(Vec<Piece>),
    Sym(char),
    End,
}

impl Token {
    /// As it is named in "expected ..., found ...".
    pub(super) fn name(&self) -> String {
        match self {
            Token::Word(w) => format!("`{}`", shown(w)),
            Token::Var(v) => format!("`${}`", shown(v)),
            Token::Int(n) => format!("`{n}`"),
            Token::NegInt(n) => format!("`-{n}`"),
            Token::Text(_) => "a quoted text".into(),
            Token::Sym(c) => format!("`{c}`"),
            Token::End => "the end of the file".into(),
        }
    }
}

pub(super) fn tokens(source: &str) -> Result<Vec<(Token, Pos)>, ScriptError> {
    if source.len() > SOURCE_BYTES_MAX {
        let why = format!("{} bytes are more than a script may have ({SOURCE_BYTES_MAX})", source.len());
        return Err(ScriptError::new(Pos::START, why));
    }
    let mut lexer = Lexer { rest: source.chars().peekable(), pos: Pos::START };
    let mut out = Vec::new();
    loop {
        lexer.skip_blank();
        let pos = lexer.pos;
        let token = lexer.token()?;
        let end = token == Token::End;
        out.push((token, pos));
        if end {
            return Ok(out);
        }
    }
}

struct Lexer<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    pos: Pos,
}

fn continues_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/._:;-".contains(c)
}

fn continues_var(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        self.pos.advance(c);
        Some(c)
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let mut out = String::new();
        while let Some(c) = self.peek().filter(|c| wanted(*c)) {
            self.next();
            out.push(c);
        }
        out
    }

    fn skip_blank(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                self.take_while(|c| c != '\n');
            } else if c.is_whitespace() || c == '\u{feff}' {
                self.next();
            } else {
                break;
            }
        }
    }

    fn token(&mut self) -> Result<Token, ScriptError> {
        let pos = self.pos;
        let Some(c) = self.peek() else { return Ok(Token::End) };
        match c {
            '{' | '}' | '=' | ',' | '(' | ')' | '+' | '*' => {
                self.next();
                Ok(Token::Sym(c))
            }
            '"' => self.text(),
            '$' => self.variable().map(Token::Var),
            '0'..='9' => {
                let digits = self.take_while(|c| c.is_ascii_alphanumeric());
                number(&digits).map(Token::Int).map_err(|why| ScriptError::new(pos, why))
            }
            '/' | '-' | '_' | 'A'..='Z' | 'a'..='z' => {
                let word = self.take_while(|c| continues_word(c) || c == '_');
                if word.len() > WORD_BYTES_MAX {
                    return Err(ScriptError::new(pos, format!("a word of more than {WORD_BYTES_MAX} bytes")));
                }
                if let "-" | "/" = word.as_str() {
                    return Ok(Token::Sym(c));
                }
                if let Some(digits) = word.strip_prefix('-')
                    && digits.starts_with(|c: char| c.is_ascii_digit())
                {
                    return number(digits).map(Token::NegInt).map_err(|why| ScriptError::new(pos, why));
                }
                Ok(Token::Word(word))
            }
            c => Err(ScriptError::new(pos, format!("`{}` is no part of this language", c.escape_default()))),
        }
    }

    /// After `$`: a name, also in braces or parentheses.
    fn variable(&mut self) -> Result<String, ScriptError> {
        let pos = self.pos;
        self.next();
        let close = match self.peek() {
            Some('{') => Some('}'),
            Some('(') => Some(')'),
            _ => None,
        };
        if close.is_some() {
            self.next();
        }
        let name = self.take_while(continues_var);
        if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return Err(ScriptError::new(pos, "expected a variable's name after `$`"));
        }
        if let Some(close) = close {
            if self.peek() != Some(close) {
                return Err(ScriptError::new(
                    self.pos,
                    format!("expected `{close}` after `{}`", shown(&name)),
                ));
            }
            self.next();
        }
        Ok(name)
    }

    fn text(&mut self) -> Result<Token, ScriptError> {
        let start = self.pos;
        self.next();
        let (mut pieces, mut plain) = (Vec::new(), String::new());
        loop {
            match self.peek() {
                None => return Err(ScriptError::new(start, "this quoted text has no end: expected `\"`")),
                Some('"') => {
                    self.next();
                    break;
                }
                Some('\\') => {
                    self.next();
                    match self.next() {
                        Some('n') => plain.push('\n'),
                        Some('t') => plain.push('\t'),
                        Some(c) => plain.push(c),
                        None => {}
                    }
                }
                Some('$') => {
                    let name = self.variable()?;
                    pieces.push(Piece::Plain(std::mem::take(&mut plain)));
                    pieces.push(Piece::Var(name));
                }
                Some(c) => {
                    self.next();
                    plain.push(c);
                }
            }
        }
        pieces.push(Piece::Plain(plain));
        pieces.retain(|p| *p != Piece::Plain(String::new()));
        Ok(Token::Text(pieces))
    }
}

/// A number with its suffix: `k`, `m`, `g`, `t` are powers of 1024.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(not_a_number(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(not_a_number(text));
    }
    let value: Option<u64> = digits.parse().ok();
    // Half the range: sums and products stay checked, and offsets are signed in the end.
    value
        .and_then(|v| v.checked_mul(1 << shift))
        .filter(|v| *v <= i64::MAX as u64)
        .ok_or_else(|| format!("`{}` is too large a number", shown(text)))
}

fn not_a_number(text: &str) -> String {
    format!("`{}` is not a number: expected digits and at most one of k, m, g, t", shown(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<Token> {
        tokens(source).unwrap().into_iter().map(|(t, _)| t).collect()
    }

    #[test]
    fn words_numbers_and_variables() {
        use Token::*;
        assert_eq!(
            kinds("set $a=08 # rest\n x.y-z /tmp -10 16k ${b_1} -"),
            [
                Word("set".into()),
                Var("a".into()),
                Sym('='),
                Int(8),
                Word("x.y-z".into()),
                Word("/tmp".into()),
                NegInt(10),
                Int(16 << 10),
                Var("b_1".into()),
                Sym('-'),
                End
            ]
        );
    }

    #[test]
    fn quoted_text_has_variables_and_escapes() {
        let [Token::Text(pieces), Token::End] = &kinds(r#""a $b\$c\n""#)[..] else { panic!() };
        assert_eq!(pieces, &[Piece::Plain("a ".into()), Piece::Var("b".into()), Piece::Plain("$c\n".into())]);
    }

    #[test]
    fn errors_have_places() {
        for (source, place, part) in [
            ("set $a=10q", (1, 8), "not a number"),
            ("echo \"x", (1, 6), "no end"),
            ("set\n  @", (2, 3), "no part"),
            ("set $", (1, 5), "variable"),
            ("set $a=99999999999g", (1, 8), "too large"),
            ("set $a=${b", (1, 11), "`}`"),
        ] {
            let e = tokens(source).unwrap_err();
            assert_eq!((e.pos.line, e.pos.column), place, "{e}");
            assert!(e.to_string().contains(part), "{e}");
        }
    }
}
