//! Prometheus' text as it is served: taken apart strictly, and held against the conventions for names, as
//! `promtool check metrics` does where it is at hand.

use std::collections::{BTreeMap, BTreeSet};

/// A line with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name, suffixes of histograms included.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// A metric: what is said of it, and its samples.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// Its help.
    pub help: String,
    /// Its samples.
    pub samples: Vec<Sample>,
}

/// A page of metrics.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    /// By name.
    pub families: BTreeMap<String, Family>,
}

fn is_name(s: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    s.starts_with(letter) && s.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// `name{a="b"} 1`.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, behind) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut chars = behind.char_indices();
            let end = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next()?.1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        _ => return None,
                    }),
                    (_, c) => value.push(c),
                }
            };
            if !is_name(label) || labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            rest = &behind[end + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    is_name(name).then(|| Sample { name: name.to_owned(), labels, value })
}

impl Exposition {
    /// Takes a page apart.
    ///
    /// # Errors
    /// The first line that is not as it should be: HELP, TYPE and samples in this order, each metric once.
    pub fn parse(text: &str) -> Result<Exposition, String> {
        if !text.ends_with('\n') {
            return Err("the last line does not end".into());
        }
        let mut all = Exposition::default();
        let mut now = String::new();
        for line in text.lines() {
            let bad = |what: &str| Err(format!("{what}: {line}"));
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let Some((name, help)) = rest.split_once(' ') else { return bad("no help") };
                let family = Family { help: help.to_owned(), ..Family::default() };
                if !is_name(name) || all.families.insert(name.to_owned(), family).is_some() {
                    return bad("a second time, or no name");
                }
                now = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let family = all.families.get_mut(&now);
                match (rest.split_once(' '), family) {
                    (Some((name, kind)), Some(f)) if name == now && f.kind.is_empty() => f.kind = kind.into(),
                    _ => return bad("not behind its help"),
                }
            } else {
                let Some(sample) = sample(line) else { return bad("no sample") };
                let Some(family) = all.families.get_mut(&now).filter(|f| !f.kind.is_empty()) else {
                    return bad("a sample of no metric");
                };
                let suffix = sample.name.strip_prefix(&*now);
                let known: &[&str] =
                    if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                if !suffix.is_some_and(|s| known.contains(&s)) {
                    return bad("a sample of another metric");
                }
                family.samples.push(sample);
            }
        }
        Ok(all)
    }

    /// Every sample.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.families.values().flat_map(|f| &f.samples)
    }

    /// The value of the one sample of this name that has these labels.
    ///
    /// # Panics
    /// Where there is none, or several.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |s: &&Sample| {
            s.name == name && labels.iter().all(|(l, v)| s.labels.get(*l).is_some_and(|x| x == v))
        };
        let found: Vec<_> = self.samples().filter(fits).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0].value
    }

    /// What breaks the conventions; nothing where all is well.
    pub fn lint(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, f) in &self.families {
            let mut say = |what: &str| wrong.push(format!("{name}: {what}"));
            lint_name(name, &f.kind, &mut say);
            if f.help.trim().is_empty() || !f.help.ends_with('.') {
                say("help is a sentence");
            }
            let mut seen = BTreeSet::new();
            for s in &f.samples {
                if !seen.insert((&s.name, &s.labels)) {
                    say("the same labels twice");
                }
                if !s.value.is_finite() || (f.kind != "gauge" && s.value < 0.0) {
                    say("a value that cannot be");
                }
                if !["volume", "device"].iter().all(|l| s.labels.contains_key(*l)) {
                    say("no volume or device");
                }
            }
            if f.kind == "histogram" {
                lint_histogram(f, &mut say);
            }
        }
        wrong
    }
}

fn lint_name(name: &str, kind: &str, say: &mut impl FnMut(&str)) {
    if !name.starts_with("fs2_") || name.chars().any(|c| c.is_ascii_uppercase()) || name.contains("__") {
        say("names are fs2_ and words in lower case");
    }
    if !["counter", "gauge", "histogram"].contains(&kind) {
        say("no type of ours");
    }
    if (kind == "counter") != name.ends_with("_total") {
        say("counters and only counters end in _total");
    }
    let words: Vec<&str> = name.trim_end_matches("_total").split('_').collect();
    for word in &words {
        if ["ms", "us", "ns", "s", "sec", "secs", "b", "kb", "mb", "gb", "kib", "mib", "pct", "j"]
            .contains(word)
        {
            say("units are written out");
        }
        let no_base =
            ["milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "kilobytes", "bits"];
        if no_base.contains(word) || ["percent", "permille", "sectors", "kilojoules"].contains(word) {
            say("units are base units");
        }
        if ["counter", "gauge", "histogram", "bucket", "sum", "count"].contains(word) {
            say("the type is no part of a name");
        }
    }
    if words[..words.len() - 1].iter().any(|w| ["seconds", "bytes", "joules", "ratio"].contains(w)) {
        say("the unit is the last word");
    }
}

/// Labels, and the buckets that have them: bound and count.
type Buckets<'a> = BTreeMap<Vec<(&'a String, &'a String)>, Vec<(f64, f64)>>;

fn lint_histogram(f: &Family, say: &mut impl FnMut(&str)) {
    let mut by_labels = Buckets::new();
    for s in f.samples.iter().filter(|s| s.name.ends_with("_bucket")) {
        let rest = s.labels.iter().filter(|(l, _)| *l != "le").collect();
        let Some(le) = s.labels.get("le").and_then(|le| le.parse::<f64>().ok()) else {
            say("a bucket without a bound");
            continue;
        };
        by_labels.entry(rest).or_default().push((le, s.value));
    }
    for (labels, buckets) in by_labels {
        if buckets.windows(2).any(|w| w[0].0 >= w[1].0 || w[0].1 > w[1].1) {
            say("buckets are not cumulative");
        }
        let of = |suffix: &str| {
            let fits =
                |s: &&Sample| s.name.ends_with(suffix) && s.labels.iter().collect::<Vec<_>>() == labels;
            f.samples.iter().find(fits).map(|s| s.value)
        };
        if of("_count").is_none()
            || of("_sum").is_none()
            || buckets.last().map(|b| (b.0 == f64::INFINITY, Some(b.1))) != Some((true, of("_count")))
        {
            say("no whole histogram");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP fs2_a_total What it is.\n# TYPE fs2_a_total counter\n\
                        fs2_a_total{volume=\"x\\\"\\\\\\n\",device=\"d\"} 3\n";

    #[test]
    fn what_is_well_formed_is_read() {
        let all = Exposition::parse(GOOD).unwrap();
        assert_eq!(all.value("fs2_a_total", &[("volume", "x\"\\\n")]), 3.0);
        assert_eq!(all.lint(), Vec::<String>::new());
        for (from, to) in [
            (" 3\n", " 3"),
            (" 3\n", "3\n"),
            (" 3\n", " x\n"),
            ("\"d\"", "\"d"),
            ("\\n", "\\q"),
            ("device=", "volume="),
            ("fs2_a_total{", "fs2_b_total{"),
            ("# TYPE fs2_a_total", "# TYPE fs2_b_total"),
            ("# HELP fs2_a_total", "# HELP 2"),
        ] {
            assert!(Exposition::parse(&GOOD.replace(from, to)).is_err(), "{from} to {to}");
        }
        assert!(Exposition::parse(&GOOD.repeat(2)).is_err(), "a metric twice");
    }

    #[test]
    fn each_rule_can_be_broken() {
        let lint = |text: &str| Exposition::parse(text).unwrap().lint();
        for (name, kind) in [
            ("fs2_a", "counter"),
            ("fs2_a_total", "gauge"),
            ("fs2_a_ms", "gauge"),
            ("fs2_a_percent", "gauge"),
            ("fs2_A", "gauge"),
            ("a_seconds", "gauge"),
            ("fs2_seconds_a", "gauge"),
            ("fs2_a_count", "gauge"),
            ("fs2_a", "untyped"),
        ] {
            let text = GOOD.replace("fs2_a_total", name).replace("counter", kind);
            assert_eq!(lint(&text).len(), 1, "{name} as a {kind}: {:?}", lint(&text));
        }
        for (from, to) in [("What it is.", "What"), ("} 3", "} NaN"), ("} 3", "} -1"), ("device", "dev")] {
            assert_eq!(lint(&GOOD.replace(from, to)).len(), 1, "{to}");
        }
        let again = format!("{GOOD}{}", GOOD.lines().last().unwrap());
        assert_eq!(lint(&format!("{again}\n")).len(), 1);

        let line =
            |what: &str, more: &str, n: u32| format!("fs2_h_{what}{{volume=\"\",device=\"\"{more}}} {n}\n");
        let histogram = |buckets: [(&str, u32); 3], count: u32| {
            let le = buckets.map(|(le, n)| line("bucket", &format!(",le=\"{le}\""), n)).concat();
            format!(
                "# HELP fs2_h A.\n# TYPE fs2_h histogram\n{le}{}{}",
                line("sum", "", 9),
                line("count", "", count)
            )
        };
        assert_eq!(lint(&histogram([("0.5", 1), ("1", 1), ("+Inf", 4)], 4)), Vec::<String>::new());
        assert_eq!(lint(&histogram([("0.5", 2), ("1", 1), ("+Inf", 4)], 4)).len(), 1);
        assert_eq!(lint(&histogram([("1", 1), ("0.5", 1), ("+Inf", 4)], 4)).len(), 1);
        assert_eq!(lint(&histogram([("0.5", 1), ("1", 1), ("+Inf", 4)], 5)).len(), 1);
        assert_eq!(lint(&histogram([("0.5", 1), ("1", 1), ("x", 4)], 4)).len(), 2);
    }
}
