//! What was run: every option that figures depend on, and what was read.

use std::path::Path;

use clap::Parser;
use fs2_block::{Nanos, Permille};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Args, Failure, passes, policies, used};
use crate::output::quoted;
use crate::replay::digest::Digests;
use crate::replay::profile;

/// Options by their long names, with values as the command line takes them.
pub(in crate::replay) type Options = Map<String, Value>;

/// A file that was read.
#[derive(Clone, Debug, Serialize)]
pub(in crate::replay) struct Input {
    /// The option that names it, or `trace`.
    what: &'static str,
    path: String,
    bytes: u64,
    /// XXH3-128 of its bytes, as it lies there.
    xxh3: String,
}

/// This process; all else is the same in two runs of a command.
#[derive(Clone, Debug, Serialize)]
pub(in crate::replay) struct Process {
    /// The most memory it ever had resident, from the kernel's own count.
    pub(super) memory_mib: Option<f64>,
    /// From its begin to the figures.
    pub(super) wall_s: f64,
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn share(s: Permille) -> Value {
    format!("{}%", f64::from(s.get()) / 10.0).into()
}

fn time(t: Nanos) -> String {
    match t.0 % 1_000_000_000 {
        0 => format!("{}s", t.0 / 1_000_000_000),
        _ => format!("{}ms", t.as_millis_f64()),
    }
}

fn list(items: impl Iterator<Item = impl Into<Value>>) -> Value {
    Value::Array(items.map(Into::into).collect())
}

fn path(p: &Path) -> Value {
    p.display().to_string().into()
}

/// Those of a command line. What has no value is null, what is not set false.
pub(super) fn options(args: &Args) -> Options {
    let used = args.free_map.is_none().then(|| used(args));
    let read = &args.read;
    let all: [(&str, Value); 24] = [
        ("drive", path(&args.drive)),
        ("policy", list(policies(args).iter().map(ToString::to_string))),
        ("scheduler", args.scheduler.name().into()),
        ("depth", args.depth.into()),
        ("space", share(args.space)),
        ("runs", passes(args).into()),
        ("free-map", args.free_map.as_deref().map_or(Value::Null, path)),
        ("used", used.map_or(Value::Null, share)),
        ("closed-loop", args.closed_loop.into()),
        ("clients", args.clients.into()),
        ("think", format!("{},{}", time(args.think.0), time(args.think.1)).into()),
        ("idle-between", time(args.idle_between).into()),
        ("split", list(args.split.iter().map(|t| t.as_secs_f64()))),
        ("train", list(args.train.iter().map(|p| path(p)))),
        ("belief", args.belief.name().into()),
        ("without", list(args.without.iter().map(|p| p.name()))),
        ("stretch", args.stretch.map_or(Value::Null, |n| if n == 0 { true.into() } else { n.into() })),
        ("limit", args.limit.into()),
        ("seed", args.seed.into()),
        ("format", read.format.map(|f| f.name()).into()),
        ("event", read.event.map(|e| e.letter().to_string()).into()),
        ("skip-bad", read.skip_bad.into()),
        ("device", read.device.clone().into()),
        ("partition", read.partition.map(|p| p.to_string()).into()),
    ];
    let mut all: Options = all.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    all.insert("pack".to_owned(), read.pack.into());
    all.insert("align".to_owned(), args.align.into());
    all
}

fn word(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Array(all) => all.iter().map(word).collect::<Vec<_>>().join(","),
        Value::Number(n) if n.is_f64() => n.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}

/// Those that are not as they are by default, as a command line says them.
pub(super) fn unusual(options: &Options) -> String {
    let Ok(line) = Line::try_parse_from(["trace"]) else { return String::new() };
    let usual = self::options(&line.args);
    let differ = options.iter().filter(|(name, value)| !value.is_null() && usual.get(*name) != Some(value));
    let words = differ.map(|(name, value)| match value {
        Value::Bool(true) => format!("--{name}"),
        value => format!("--{name} {}", quoted(Path::new(&word(value)))),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The files that a command line names.
///
/// # Errors
/// One that cannot be read.
pub(super) fn inputs(args: &Args) -> Result<Vec<Input>, Failure> {
    let beside = profile::beside(&args.drive);
    let traces = args.traces.iter().map(|p| ("trace", p));
    let train = args.train.iter().map(|p| ("train", p));
    let others = args.free_map.iter().map(|p| ("free-map", p)).chain([("drive", &args.drive)]);
    let mut digests = Digests::default();
    let mut inputs = Vec::new();
    for (what, path) in traces.chain(train).chain(others).chain(beside.iter().map(|p| ("drive", p))) {
        // A built-in drive is no file, and a pipe can be read once only.
        let Some(about) = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file) else { continue };
        let built_in = path.to_str().is_some_and(|name| fs2_disk::DriveProfile::builtin(name).is_ok());
        if what == "drive" && built_in {
            continue;
        }
        let xxh3 = format!("{:032x}", digests.of(path)?);
        inputs.push(Input { what, path: path.display().to_string(), bytes: about.len(), xxh3 });
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unusual_is_a_command_line_again() {
        let said = |line: &str| {
            let args = Line::try_parse_from(line.split_whitespace()).expect("a command line").args;
            unusual(&options(&args))
        };
        assert_eq!(said("a"), "");
        assert_eq!(
            said(
                "a b --used 60% --runs 7 --policy none --policy fs2-2005,fs2 --think 5ms,0.1s --closed-loop"
            ),
            "--closed-loop"
        );
        let line = "--belief nothing --clients 8 --closed-loop --depth 4 --device 1 --drive exos-x24 --event D --format spc \
                    --idle-between 1.5ms --limit 9 --policy none,fs2 --runs 1 --scheduler sptf --seed 7 --skip-bad --space 0.5% \
                    --split 0,9.5 --stretch --think 1ms,2s --train c,d --used 40% --without gate";
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said(&format!("a {line}")), line);
        let odd = Line::try_parse_from(["a", "--free-map", "my map;x"]).expect("a command line");
        assert_eq!(unusual(&options(&odd.args)), "--free-map 'my map;x'");
        assert_eq!(said("a --stretch 3 --free-map f --pack"), "--free-map f --pack --stretch 3");
    }
}
