//! What cells came to: lines appended to a shard's file, and all shards put together.
//!
//! Invariants:
//!
//! - R1: a line is written whole, and is on the device, before its cell counts as done; what a kill leaves of
//!   a line is cut off by whoever writes the file next, and ignored by whoever reads it.
//! - R2: a shard's file has one writer, who holds its lock.
//! - R3: what is put together depends on the plan and the results, not on shards, order or machine.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::{Inputs, Name, Plan};
use crate::replay::Failure;

/// One cell's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Done {
    pub(super) cell: Name,
    pub(super) inputs: Inputs,
    /// What `run --json` prints, without what differs from time to time.
    pub(super) result: Value,
}

/// Lines of a file that end, parsed, and their bytes.
fn lines(path: &Path, text: &[u8]) -> Result<(Vec<Done>, usize), Failure> {
    let mut done = Vec::new();
    let mut whole = 0;
    while let Some(n) = text[whole..].iter().position(|b| *b == b'\n') {
        match serde_json::from_slice(&text[whole..whole + n]) {
            Ok(line) => done.push(line),
            // Bytes that never reached the disk before it lost power.
            Err(_) if whole + n + 1 == text.len() => break,
            Err(e) => {
                let (line, column, said) = (done.len() + 1, e.column(), e.to_string());
                let said = said.split(" at line ").next().unwrap_or_default();
                let what = format!(
                    "line {line}, column {column}: {said}; expected a cell's result, as a sweep writes it"
                );
                return Err(Failure::at(path, what));
            }
        }
        whole += n + 1;
    }
    Ok((done, whole))
}

/// A shard's file, being written.
pub(super) struct Shard {
    file: File,
    path: PathBuf,
}

/// Closing it is not enough: a program that another thread has just started has it open until it executes.
impl Drop for Shard {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Shard {
    /// Opens or creates it.
    ///
    /// # Errors
    /// Where someone else writes it, or it is no such file.
    pub(super) fn open(dir: &Path, number: u32, of: u32) -> Result<Shard, Failure> {
        std::fs::create_dir_all(dir).map_err(|e| Failure::at(dir, e))?;
        let path = dir.join(format!("shard-{number}-of-{of}.jsonl"));
        let at = |e: std::io::Error| Failure::at(&path, e);
        let mut file = File::options().read(true).append(true).create(true).open(&path).map_err(at)?;
        // Keeps R2.
        file.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => Failure::at(&path, "another sweep writes it now"),
            TryLockError::Error(e) => at(e),
        })?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(at)?;
        let whole = lines(&path, &text)?.1;
        // Keeps R1; the file's name must be on the device too.
        if whole < text.len() {
            file.set_len(whole as u64).map_err(at)?;
        }
        File::open(dir).and_then(|d| d.sync_all()).map_err(at)?;
        Ok(Shard { file, path })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// The file system's; the line may be there in part then.
    pub(super) fn push(&mut self, done: &Done) -> Result<(), Failure> {
        let at = |e: std::io::Error| Failure::at(&self.path, e);
        let mut line = serde_json::to_vec(done).map_err(|e| Failure(e.to_string()))?;
        line.push(b'\n');
        // Keeps R1.
        self.file.write_all(&line).map_err(at)?;
        self.file.sync_data().map_err(at)
    }
}

/// All results in a directory, by cell.
///
/// # Errors
/// Where two differ of the same cell.
pub(super) fn gather(dir: &Path) -> Result<HashMap<Name, Done>, Failure> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| Failure::at(dir, e))? {
        let path = entry.map_err(|e| Failure::at(dir, e))?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if name.starts_with("shard-") && name.ends_with(".jsonl") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut all: HashMap<Name, (Done, PathBuf)> = HashMap::new();
    for path in paths {
        let text = std::fs::read(&path).map_err(|e| Failure::at(&path, e))?;
        for done in lines(&path, &text)?.0 {
            match all.get(&done.cell) {
                Some((before, at)) if *before != done => {
                    let other =
                        format!("{} says something else of the same cell, {}", at.display(), done.cell);
                    return Err(Failure::at(&path, other));
                }
                Some(_) => {}
                None => {
                    all.insert(done.cell.clone(), (done, path.clone()));
                }
            }
        }
    }
    Ok(all.into_iter().map(|(name, (done, _))| (name, done)).collect())
}

/// What is said of a result as a whole, a column each.
const OF_A_RESULT: [&str; 7] = ["drive", "scheduler", "depth", "belief", "pace", "space_percent", "stretch"];

/// Figures of a run, a column each.
pub(super) const OF_A_RUN: [&str; 30] = [
    "run",
    "requests",
    "reads",
    "reads_from_copies",
    "failed",
    "elapsed_s",
    "behind_s",
    "queue_max",
    "wait_ms",
    "wait_behind_copies_ms",
    "response_ms",
    "response_reads_ms",
    "p99_response_ms",
    "t_a_ms",
    "t_a_reads_ms",
    "t_s_ms",
    "t_r_ms",
    "t_t_ms",
    "t_s_reads_ms",
    "t_r_reads_ms",
    "t_t_reads_ms",
    "p99_ms",
    "p99_reads_ms",
    "cache_hit_percent",
    "busy_percent",
    "energy_mj_per_access",
    "energy_total_j",
    "copy_percent",
    "own_read_percent",
    "replicas",
];

/// Bounds of a run, a column each.
const OF_A_BOUND: [&str; 7] =
    ["b0", "b1", "b2_reuse", "b2_reuse_strict", "b2_reuse_w", "b2_reuse_w_strict", "b2_order"];

/// What was put together.
pub(super) struct Merged {
    /// A line a cell, in the plan's order.
    pub(super) jsonl: String,
    /// A line a run.
    pub(super) csv: String,
    /// Cells of the plan that are not there, in its order.
    pub(super) missing: Vec<Name>,
    /// Results that are not the plan's.
    pub(super) foreign: usize,
}

/// A cell's name but for the options that change nothing of `none`.
fn of_none(cell: &Name) -> Name {
    let mut name = cell.clone();
    name.options.retain(|option, _| option != "policy" && option != "without");
    name
}

/// The figures of the policy `none` in each run and the single pass, by [`of_none`]: of whichever cell has it, alone or
/// among others.
fn figures_of_none<'a>(plan: &Plan, all: &'a HashMap<Name, Done>) -> HashMap<Name, (&'a Done, &'a Value)> {
    // Keeps R3: the plan's own first, the others by name.
    let mut others: Vec<&Done> = all.values().collect();
    others.sort_by(|a, b| a.cell.cmp(&b.cell));
    let mut found = HashMap::new();
    for done in plan.cells.iter().filter_map(|cell| all.get(&cell.name)).chain(others) {
        if let Some(none) = none_in(done) {
            found.entry(of_none(&done.cell)).or_insert((done, none));
        }
    }
    found
}

fn none_in(done: &Done) -> Option<&Value> {
    policies(&done.result).iter().find(|p| p["name"] == "none")
}

fn policies(result: &Value) -> &[Value] {
    result["policies"].as_array().map_or(&[], Vec::as_slice)
}

/// Share of the way from `none` to B2o, percent, as `run` gives it: of figures rounded to a thousandth.
fn share(run: &Value, none: &Value, bound: &Value) -> Option<f64> {
    let reads = |r: &Value| r["t_a_reads_ms"].as_f64();
    let (this, none) = (reads(run)?, reads(none)?);
    let room = none - bound["b2_order"].as_f64()?;
    (room > none / 100.0).then(|| (100_000.0 * (none - this) / room).round() / 1000.0)
}

/// One field of a table.
fn field(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Refuses results of the plan that were not made from the same: of one program, of one trace, and where an option names a file of the same
/// name, of one such file.
///
/// # Errors
/// Two that differ, and in what.
pub(super) fn refuse_mixed(plan: &Plan, all: &HashMap<Name, Done>) -> Result<(), Failure> {
    let mut first: HashMap<(&str, &str), (&Done, &[String])> = HashMap::new();
    for done in plan.cells.iter().filter_map(|cell| all.get(&cell.name)) {
        for (what, contents) in &done.inputs {
            let called = match what.as_str() {
                "version" | "sources" => "",
                "trace" => done.cell.trace.as_str(),
                option => done.cell.options.get(option).map_or("", String::as_str),
            };
            let (before, same) = *first.entry((what, called)).or_insert((done, contents));
            if same != contents {
                let cells = format!("'{}' and '{}'", before.cell, done.cell);
                let what = match what.as_str() {
                    "version" => "version of fs2-replay",
                    "sources" => "build of fs2-replay",
                    other => other,
                };
                let then = "remove the lines of those that are out of date, and run them again";
                return Err(Failure(format!("{cells} are not of the same {what}: {then}")));
            }
        }
    }
    Ok(())
}

/// Puts results together in the order of the plan.
pub(super) fn merge<'a>(plan: &Plan, all: &'a HashMap<Name, Done>) -> Merged {
    let axes: Vec<_> = plan.axes.iter().filter(|a| *a != "policy").collect();
    let constant: Vec<_> = OF_A_RESULT.iter().filter(|c| !axes.iter().any(|a| a == *c)).collect();
    let mut head = vec!["trace".to_owned()];
    head.extend(axes.iter().map(|a| (*a).clone()));
    head.extend(constant.iter().map(|c| (**c).to_owned()));
    head.extend(["policy", "pass"].map(str::to_owned));
    head.extend(OF_A_RUN.iter().skip(1).map(|c| (*c).to_owned()));
    head.push("share_percent".to_owned());
    head.extend(OF_A_BOUND.map(str::to_owned));
    let mut out = Merged { jsonl: String::new(), csv: String::new(), missing: Vec::new(), foreign: 0 };
    let heads: Vec<_> = head.into_iter().map(|h| field(&Value::String(h))).collect();
    out.csv = heads.join(",") + "\n";
    let mut found = 0;
    let nones = figures_of_none(plan, all);
    for cell in &plan.cells {
        let Some(done) = all.get(&cell.name) else {
            out.missing.push(cell.name.clone());
            continue;
        };
        found += 1;
        let alike = |none: &&(&Done, &'a Value)| none.0.inputs == done.inputs;
        let none = none_in(done).or_else(|| Some(nones.get(&of_none(&done.cell)).filter(alike)?.1));
        let mut whole = done.clone();
        let mut begin = vec![field(&Value::String(cell.name.trace.clone()))];
        let said = |axis: &String| cell.name.options.get(axis).map_or(Value::Null, |v| v.as_str().into());
        begin.extend(axes.iter().map(|axis| field(&said(axis))));
        begin.extend(constant.iter().map(|c| field(&done.result[**c])));
        for (i, policy) in policies(&done.result).iter().enumerate() {
            let runs = policy["runs"].as_array().map_or(&[][..], Vec::as_slice);
            let passes = runs
                .iter()
                .enumerate()
                .map(|(r, run)| {
                    let bound = &done.result["bounds"]["runs"][r];
                    (Some(r), run, none.map(|n| &n["runs"][r]), bound)
                })
                .chain([(
                    None,
                    &policy["single_pass"],
                    none.map(|n| &n["single_pass"]),
                    &done.result["bounds"]["single_pass"],
                )]);
            for (number, run, none, bound) in passes {
                let known = run["share_percent"].as_f64();
                let share = known.or_else(|| share(run, none?, bound)).map_or(Value::Null, Value::from);
                let mut row = begin.clone();
                row.push(field(&policy["name"]));
                row.push(number.map_or("single".to_owned(), |r| (r + 1).to_string()));
                row.extend(OF_A_RUN.iter().skip(1).map(|c| field(&run[*c])));
                row.push(field(&share));
                row.extend(OF_A_BOUND.iter().map(|c| field(&bound[*c])));
                out.csv += &(row.join(",") + "\n");
                let at = &mut whole.result["policies"][i];
                match number {
                    Some(r) => at["runs"][r]["share_percent"] = share,
                    None => at["single_pass"]["share_percent"] = share,
                }
            }
        }
        // A map with keys of text always is JSON.
        out.jsonl += &serde_json::to_string(&whole).unwrap_or_default();
        out.jsonl.push('\n');
    }
    out.foreign = all.len() - found;
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(seed: u64) -> Done {
        let options = [("seed".to_owned(), seed.to_string())].into();
        let cell = Name { trace: "a,\"b".to_owned(), options };
        Done { cell, inputs: Inputs::new(), result: serde_json::json!({ "x": seed }) }
    }

    /// As a program has it open that was started meanwhile.
    #[test]
    fn what_is_done_with_is_free_though_somebody_has_it_open() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let open = || Shard::open(dir.path(), 1, 1);
        let shard = open().expect("a shard");
        let _theirs = shard.file.try_clone().expect("a descriptor");
        assert!(open().is_err_and(|e| e.0.ends_with("another sweep writes it now")));
        drop(shard);
        open().expect("nobody writes it");
    }

    #[test]
    fn a_torn_line_is_cut_off_and_the_rest_kept() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("shard-1-of-1.jsonl");
        let open = || Shard::open(dir.path(), 1, 1);
        let seen = || {
            let all = gather(dir.path()).expect("results");
            let mut all: Vec<_> = all.into_values().collect();
            all.sort_by(|a, b| a.cell.cmp(&b.cell));
            all
        };
        let mut shard = open().expect("a shard");
        assert!(seen().is_empty());
        shard.push(&done(1)).expect("written");
        shard.push(&done(2)).expect("written");
        let busy = open().map(|_| ()).expect_err("locked");
        assert!(busy.0.contains("another sweep"), "{}", busy.0);
        drop(shard);
        let whole = std::fs::read(&path).expect("a file");
        for torn in [&b"{\"cell\":{\"tra"[..], b"{\"cell\"}\n", b"\0\0\0\0", b"\xff\n"] {
            std::fs::write(&path, [&whole[..], torn].concat()).expect("written");
            assert_eq!(seen(), [done(1), done(2)]);
            open().expect("a shard").push(&done(3)).expect("written");
            assert_eq!(seen(), [done(1), done(2), done(3)]);
            open().expect("nothing is wrong with it");
        }
        // Not at the end: no kill leaves that.
        std::fs::write(&path, [b"{\"cell\"}\n", &whole[..]].concat()).expect("written");
        let error = open().map(|_| ()).expect_err("no results");
        assert!(
            error.0.contains("line 1, column 8: ") && error.0.contains("expected a cell's result"),
            "{}",
            error.0
        );
    }

    #[test]
    fn results_that_differ_are_refused_and_equal_ones_are_one() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let put = |number, what: &Done| {
            Shard::open(dir.path(), number, 2).expect("a shard").push(what).expect("written");
        };
        put(1, &done(1));
        put(2, &done(1));
        put(2, &done(2));
        assert_eq!(gather(dir.path()).expect("results").len(), 2);
        put(2, &Done { result: serde_json::json!({ "x": 7 }), ..done(1) });
        let error = gather(dir.path()).expect_err("they differ");
        assert!(error.0.contains("shard-1-of-2") && error.0.contains("seed=1"), "{}", error.0);
    }

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        let text = |s: &str| field(&Value::String(s.to_owned()));
        assert_eq!(text("plain 5 %"), "plain 5 %");
        assert_eq!(text("a,\"b\n"), "\"a,\"\"b\n\"");
        assert_eq!(
            (field(&Value::Null), field(&1.25.into()), field(&true.into())),
            ("".into(), "1.25".into(), "true".into())
        );
    }

    #[test]
    fn the_share_is_of_the_way_to_the_bound() {
        let run = |ms: f64| serde_json::json!({ "t_a_reads_ms": ms });
        let bound = serde_json::json!({ "b2_order": 2.0 });
        assert_eq!(share(&run(4.0), &run(8.0), &bound), Some(66.667));
        assert_eq!(share(&run(9.0), &run(8.0), &bound), Some(-16.667));
        assert_eq!(share(&run(1.0), &run(2.01), &bound), None, "nothing to win");
        assert_eq!(share(&run(1.0), &Value::Null, &bound), None);
    }
}
