//! Variables and attributes: what a term is worth where it stands.

use std::collections::HashMap;
use std::sync::Arc;

use super::ast::{Attr, Placed, Term};
use super::dist::{Dist, Law, Row, rows_least, rows_mean};
use super::error::{Pos, ScriptError, shown};
use super::lex::{Piece, number};
use super::model::Amount;

pub(super) type Result<T> = std::result::Result<T, ScriptError>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Int(u64),
    Bool(bool),
    /// Shared: a short script may name a long text often.
    Str(Arc<str>),
    Dist(Arc<Dist>),
}

impl Value {
    /// As the language would read it behind `set $v=`.
    pub(super) fn from_text(text: &str) -> Self {
        match (number(text), text) {
            (Ok(n), _) => Value::Int(n),
            (_, "true") => Value::Bool(true),
            (_, "false") => Value::Bool(false),
            _ => Value::Str(text.into()),
        }
    }

    pub(super) fn show(&self) -> String {
        match self {
            Value::Int(n) => n.to_string(),
            Value::Bool(b) => b.to_string(),
            Value::Str(s) => s.as_ref().into(),
            Value::Dist(_) => "a random variable".into(),
        }
    }
}

/// Longest text with variables in it: texts are put together from others, and each use is a copy.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Longest name or path: as of a path in Linux.
const NAME_BYTES_MAX: usize = 4096;

/// Variables, a composite's own before the script's.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) globals: &'a HashMap<String, Value>,
    /// A local without a value is known, and may not be used.
    pub(super) locals: Option<&'a HashMap<String, Option<Value>>>,
}

impl Scope<'_> {
    fn var(&self, name: &str, at: Pos) -> Result<Value> {
        if let Some(local) = self.locals.and_then(|l| l.get(name)) {
            let missing = || ScriptError::new(at, format!("`${}` was given no value", shown(name)));
            return local.clone().ok_or_else(missing);
        }
        self.globals.get(name).cloned().ok_or_else(|| {
            let locals = self.locals.into_iter().flat_map(|l| l.keys());
            ScriptError::unknown(at, "variable", name, self.globals.keys().chain(locals).map(String::as_str))
        })
    }

    pub(super) fn value(&self, term: &Placed<Term>) -> Result<Value> {
        Ok(match &term.it {
            Term::Int(n) => Value::Int(*n),
            Term::Bool(b) => Value::Bool(*b),
            Term::Word(w) => Value::Str(w.as_str().into()),
            Term::Text(pieces) => Value::Str(self.text(pieces, term.at)?.into()),
            Term::Var(v) => self.var(v, term.at)?,
            Term::Table(_) => return Err(ScriptError::new(term.at, "a table may only stand at `randtable`")),
        })
    }

    pub(super) fn text(&self, pieces: &[Piece], at: Pos) -> Result<String> {
        let mut out = String::new();
        for piece in pieces {
            match piece {
                Piece::Plain(text) => out.push_str(text),
                Piece::Var(v) => out.push_str(&self.var(v, at)?.show()),
            }
            if out.len() > TEXT_BYTES_MAX && pieces.iter().any(|p| matches!(p, Piece::Var(_))) {
                return Err(ScriptError::new(at, format!("a text of more than {TEXT_BYTES_MAX} bytes")));
            }
        }
        Ok(out)
    }

    pub(super) fn int(&self, term: &Placed<Term>, what: &str) -> Result<u64> {
        match self.value(term)? {
            Value::Int(n) => Ok(n),
            Value::Bool(b) => Ok(u64::from(b)),
            Value::Dist(_) => Err(ScriptError::new(term.at, format!("{what} cannot be random"))),
            Value::Str(s) => Err(not(term.at, what, "a number", &s)),
        }
    }

    /// `a + b * c`: products first, whole numbers, nothing below zero.
    pub(super) fn sum(&self, first: &Placed<Term>, rest: &[(char, Placed<Term>)]) -> Result<Value> {
        if rest.is_empty() {
            return self.value(first);
        }
        let bad = |at: Pos, why: &str| ScriptError::new(at, format!("this calculation {why}"));
        let (mut sum, mut sign, mut product) = (0i128, 1i128, i128::from(self.int(first, "a factor")?));
        for (op, term) in rest {
            let n = i128::from(self.int(term, "a factor")?);
            match op {
                '*' => product = product.checked_mul(n).ok_or_else(|| bad(term.at, "is too large"))?,
                '/' => product = product.checked_div(n).ok_or_else(|| bad(term.at, "divides by zero"))?,
                _ => {
                    sum += sign * product;
                    (sign, product) = (if *op == '-' { -1 } else { 1 }, n);
                }
            }
            if product > i128::from(i64::MAX) || sum.abs() > i128::from(i64::MAX) {
                return Err(bad(term.at, "is too large"));
            }
        }
        let sum = sum + sign * product;
        if sum > i128::from(i64::MAX) {
            return Err(bad(first.at, "is too large"));
        }
        u64::try_from(sum).map(Value::Int).map_err(|_| bad(first.at, "is below zero"))
    }
}

fn not(at: Pos, what: &str, expected: &str, found: &str) -> ScriptError {
    ScriptError::new(at, format!("{what}: expected {expected}, found `{}`", shown(found)))
}

/// The attributes of one statement, by name.
#[derive(Clone, Copy)]
pub(super) struct Attrs<'a> {
    pub(super) scope: Scope<'a>,
    pub(super) list: &'a [Attr],
    /// Where an attribute that is missing would stand.
    pub(super) at: Pos,
}

impl Attrs<'_> {
    pub(super) fn find(&self, names: &[&str]) -> Option<&Attr> {
        self.list.iter().find(|a| !a.local && names.contains(&a.name.as_str()))
    }

    pub(super) fn missing<T>(&self, of: &str, name: &str) -> Result<T> {
        Err(ScriptError::new(self.at, format!("{of} needs `{name}`")))
    }

    /// The place and value of an attribute; one that stands alone is true.
    pub(super) fn value(&self, names: &[&str]) -> Result<Option<(Pos, Value)>> {
        self.find(names)
            .map(|attr| match &attr.value {
                Some(term) => Ok((term.at, self.scope.value(term)?)),
                None => Ok((attr.at, Value::Bool(true))),
            })
            .transpose()
    }

    pub(super) fn text(&self, names: &[&str]) -> Result<Option<String>> {
        Ok(match self.value(names)? {
            None => None,
            Some((at, Value::Str(s))) if s.len() > NAME_BYTES_MAX => {
                let why = format!("`{}`: a name of more than {NAME_BYTES_MAX} bytes", names[0]);
                return Err(ScriptError::new(at, why));
            }
            Some((_, Value::Str(s))) => Some(s.as_ref().into()),
            Some((_, Value::Int(n))) => Some(n.to_string()),
            Some((at, Value::Bool(_) | Value::Dist(_))) => {
                return Err(ScriptError::new(at, format!("`{}`: expected a name", names[0])));
            }
        })
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        match self.value(&[name])? {
            None => Ok(false),
            Some((_, Value::Bool(b))) => Ok(b),
            Some((_, Value::Int(n))) => Ok(n != 0),
            Some((at, other)) => Err(not(at, &format!("`{name}`"), "true or false", &other.show())),
        }
    }

    pub(super) fn amount(&self, names: &[&str]) -> Result<Option<Amount>> {
        Ok(match self.value(names)? {
            None => None,
            Some((_, Value::Int(n))) => Some(Amount::Fixed(n)),
            Some((_, Value::Dist(d))) => Some(Amount::Drawn(d)),
            Some((_, Value::Bool(b))) if self.find(names).is_some_and(|a| a.value.is_some()) => {
                Some(Amount::Fixed(u64::from(b)))
            }
            Some((at, other)) => return Err(not(at, &format!("`{}`", names[0]), "a number", &other.show())),
        })
    }

    /// A number that is the same whenever it is asked for, and at most `largest`.
    pub(super) fn number(&self, name: &str, largest: u64) -> Result<Option<u64>> {
        let Some(amount) = self.amount(&[name])? else { return Ok(None) };
        let at = self.find(&[name]).map_or(self.at, |a| a.value.as_ref().map_or(a.at, |v| v.at));
        match amount {
            Amount::Fixed(n) if n <= largest => Ok(Some(n)),
            Amount::Fixed(n) => {
                Err(ScriptError::new(at, format!("`{name}`: {n} is more than can be ({largest})")))
            }
            Amount::Drawn(_) => Err(ScriptError::new(at, format!("`{name}` cannot be random"))),
        }
    }
}

/// `randvar(...)`.
pub(super) fn randvar(attrs: Attrs) -> Result<Dist> {
    let Some((at, kind)) = attrs.value(&["type"])? else {
        return attrs.missing("a random variable", "type");
    };
    let real = |name: &str| Ok(attrs.number(name, i64::MAX as u64)?.map(|n| n as f64));
    if let Some((at, Value::Str(source))) = attrs.value(&["randsrc"])?
        && !["urandom", "rand48"].contains(&source.as_ref())
    {
        return Err(ScriptError::unknown(at, "source of random numbers", &source, ["urandom", "rand48"]));
    }
    let (min, mean, round) = (real("min")?, real("mean")?, real("round")?.unwrap_or(0.0));
    let shape = attrs.number("gamma", 1 << 30)?.unwrap_or(1500) as f64 / 1000.0;
    let check = |min: f64, mean: f64| match attrs.find(&["mean"]) {
        Some(attr) if mean < min => Err(ScriptError::new(attr.at, "the mean is below `min`")),
        _ if mean < min => Err(ScriptError::new(attrs.at, "without `mean` it is gamma/1000, below `min`")),
        _ => Ok((min, mean)),
    };
    if attrs.find(&["randtable"]).is_some() && kind != Value::Str("tabular".into()) {
        return Err(ScriptError::new(at, "`randtable` belongs to `type=tabular`"));
    }
    let law = match &kind {
        Value::Str(s) if s.as_ref() == "uniform" => {
            let Some(mean) = mean else { return attrs.missing("a uniform variable", "mean") };
            let (min, mean) = check(min.unwrap_or(0.0), mean)?;
            Law::Uniform { min, mean }
        }
        Value::Str(s) if s.as_ref() == "gamma" => {
            if shape == 0.0 {
                return Err(ScriptError::new(at, "`gamma` must be above zero"));
            }
            let (min, mean) = check(min.unwrap_or(0.0), mean.unwrap_or(shape))?;
            Law::Gamma { min, mean, shape }
        }
        Value::Str(s) if s.as_ref() == "tabular" => {
            let rows = rows(attrs)?;
            let (table_least, table_mean) = (rows_least(&rows), rows_mean(&rows));
            // As the original: the table's own least value comes to lie at `min`, its mean at `mean`.
            let scale = if (min.is_none() && mean.is_none()) || table_mean <= table_least {
                None
            } else {
                let (min, mean) = check(min.unwrap_or(0.0), mean.unwrap_or(table_mean))?;
                Some(((mean - min) / (table_mean - table_least), min))
            };
            Law::Table { rows, scale }
        }
        other => {
            let known = ["uniform", "gamma", "tabular"];
            return Err(ScriptError::unknown(at, "type of random variable", &other.show(), known));
        }
    };
    Ok(Dist { law, round, bounds: None })
}

fn rows(attrs: Attrs) -> Result<Vec<Row>> {
    let Some(Attr { at, value: Some(Placed { it: Term::Table(table), .. }), .. }) =
        attrs.find(&["randtable"])
    else {
        return attrs.missing("a tabular variable", "randtable");
    };
    let mut out = Vec::new();
    for [percent, least, largest] in table {
        let row = Row {
            percent: attrs.scope.int(percent, "a percentage")? as f64,
            least: attrs.scope.int(least, "a row's least value")? as f64,
            largest: attrs.scope.int(largest, "a row's largest value")? as f64,
        };
        if row.least > row.largest {
            return Err(ScriptError::new(least.at, "the least value of this row is above its largest"));
        }
        out.push(row);
    }
    let sum: f64 = out.iter().map(|r| r.percent).sum();
    if sum != 100.0 {
        return Err(ScriptError::new(*at, format!("the rows' percentages add up to {sum}, not to 100")));
    }
    Ok(out)
}

/// The custom variables with their parameters and the values these have when not given.
const CUSTOM: &[(&str, &[(&str, f64)])] = &[
    ("erlang", &[("shape", 1.0), ("rate", 1.0)]),
    ("exponential", &[("mean", 1.0)]),
    ("gamma", &[("mean", 4096.0), ("gamma", 1.5)]),
    ("lognormal", &[("shape", 1.0), ("scale", 1.0)]),
    ("normal", &[("mean", 0.0), ("sigma", 1.0)]),
    ("triangular", &[("lower", 0.0), ("upper", 1.0), ("mode", 0.5)]),
    ("uniform", &[("lower", 0.0), ("upper", 1.0)]),
    ("weibull", &[("shape", 1.0), ("scale", 1.0)]),
];

/// `cvar(...)`.
pub(super) fn cvar(attrs: Attrs) -> Result<Dist> {
    let Some((at, kind)) = attrs.value(&["type"])? else {
        return attrs.missing("a custom variable", "type");
    };
    let kind = kind.show();
    let short = kind.strip_prefix("cvar-").or(kind.strip_prefix("rand-")).unwrap_or(&kind);
    let Some((_, known)) = CUSTOM.iter().find(|(name, _)| *name == short) else {
        let names = CUSTOM.iter().map(|(name, _)| *name);
        return Err(ScriptError::unknown(at, "type of custom variable", short, names));
    };
    let mut given: Vec<f64> = known.iter().map(|(_, default)| *default).collect();
    let at = match attrs.value(&["parameters"])? {
        None => at,
        Some((at, parameters)) => {
            for parameter in parameters.show().split(';').filter(|p| !p.is_empty()) {
                let (key, value) = parameter.split_once(':').unwrap_or((parameter, ""));
                let Some(i) = known.iter().position(|(name, _)| *name == key) else {
                    let names = known.iter().map(|(name, _)| *name);
                    return Err(ScriptError::unknown(at, "parameter", key, names));
                };
                given[i] = match value.parse::<f64>() {
                    Ok(x) if x.is_finite() => x,
                    _ => match number(value) {
                        Ok(n) => n as f64,
                        Err(_) => return Err(not(at, key, "a number after `:`", value)),
                    },
                };
            }
            at
        }
    };
    let wrong = |why: &str| Err(ScriptError::new(at, format!("custom variable {short}: {why}")));
    let (a, b) = (given[0], given.get(1).copied().unwrap_or(0.0));
    let positive = ["erlang", "gamma", "lognormal", "weibull"].contains(&short);
    if positive && (a <= 0.0 || b <= 0.0) {
        return wrong("its parameters must be above zero");
    }
    let law = match short {
        "erlang" if a > 1000.0 => return wrong("its shape must be at most 1000"),
        "erlang" => Law::Erlang { shape: (a as u32).max(1), mean: b },
        "exponential" => Law::Exponential { mean: a.max(0.0) },
        "gamma" => Law::CustomGamma { mean: a, shape: b },
        "lognormal" => Law::LogNormal { shape: a, scale: b },
        "normal" if b < 0.0 => return wrong("its sigma is below zero"),
        "normal" => Law::Normal { mean: a, sigma: b },
        "uniform" | "triangular" if b < a => return wrong("its upper bound is below the lower"),
        "uniform" => Law::CustomUniform { lower: a, upper: b },
        "weibull" => Law::Weibull { shape: a, scale: b },
        _ if !(a..=b).contains(&given[2]) => return wrong("its mode is outside its bounds"),
        _ => Law::Triangular { lower: a, upper: b, mode: given[2] },
    };
    let real = |name: &str| Ok(attrs.number(name, i64::MAX as u64)?.map(|n| n as f64));
    let (min, max, round) = (real("min")?, real("max")?, real("round")?.unwrap_or(0.0));
    if let (Some(min), Some(max)) = (min, max)
        && max < min
    {
        return wrong("`max` is below `min`");
    }
    Ok(Dist { law, round, bounds: Some((min.unwrap_or(0.0), max.unwrap_or(f64::MAX))) })
}
