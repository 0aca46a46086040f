//! Real programs as workloads: git, CVS, PostMark, PostgreSQL and nginx, as they are installed on the machine.
//!
//! What they read and write is their own affair; a pass is what they are told to do, cold or warm like any other.
//! [`missing`] says what is not there. They run without the user's settings: no configuration, no home, a fixed date.

mod cvs;
mod git;
mod postgres;
mod postmark;
mod web;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::control::{Control, Recorder, signalled};
use super::workload::{Entry, Metric, OpClass, PassReport, Setup};
use super::{BenchError, Rng, Site};

const PRESETS: &[&str] = &["ci", "paper"];

/// Every workload of this module.
pub fn entries() -> Vec<Entry> {
    let entry = |name, summary, source, make| Entry { name, summary, source, presets: PRESETS, make };
    vec![
        entry(
            "real-git",
            "git: status, grep and a checkout there and back",
            "the installed git",
            git::make_git,
        ),
        entry("real-cvs", "cvs update of a whole working copy", "the installed cvs; FS2 4.4", cvs::make_cvs),
        entry(
            "real-postmark",
            "PostMark's own transactions",
            "the installed postmark; elastic quotas",
            postmark::make_postmark,
        ),
        entry(
            "real-postgres",
            "pgbench -S on a PostgreSQL of its own",
            "the installed postgres",
            postgres::make_postgres,
        ),
        entry(
            "real-postgres+nginx",
            "the same, while nginx serves files",
            "the installed postgres and nginx; FS2 4.3",
            web::make_web,
        ),
    ]
}

/// What a workload lacks on this machine, and how to get it.
pub fn missing(name: &str) -> Option<String> {
    const POSTGRES: [(&str, &str); 3] =
        [("postgres", "postgresql"), ("initdb", "postgresql"), ("pgbench", "postgresql-contrib")];
    let needs: Vec<(&str, &str)> = match name {
        "real-git" => vec![("git", "git")],
        "real-cvs" => vec![("cvs", "cvs")],
        "real-postmark" => vec![("postmark", "postmark")],
        "real-postgres" => POSTGRES.to_vec(),
        "real-postgres+nginx" => POSTGRES.into_iter().chain([("nginx", "nginx-light")]).collect(),
        _ => Vec::new(),
    };
    let lacking = needs.iter().find(|(program, _)| program_path(program).is_none());
    lacking.map(|(program, package)| format!("{program} (apt-get install {package})"))
}

/// Where a program is: in the search path, or where Debian keeps PostgreSQL's.
fn program_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Servers are often not on a user's path.
    dirs.push("/usr/sbin".into());
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        dirs.extend(versions.flatten().map(|v| v.path().join("bin")));
    }
    dirs.into_iter().map(|d| d.join(name)).find(|p| p.is_file())
}

/// The size of what is worked on.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Parameters {
    /// Files of a source tree, or of PostMark's pool.
    files: u64,
    /// Directories of a source tree.
    dirs: u64,
    /// PostMark's transactions.
    transactions: u64,
    /// PostgreSQL's scale: 100,000 rows each, about 15 MB.
    pg_scale: u64,
    /// Seconds of pgbench.
    pg_seconds: u64,
    /// pgbench's clients.
    pg_clients: u64,
    /// Files nginx serves.
    web_files: u64,
    /// Who asks nginx.
    web_clients: u64,
    /// A web client's mean pause, ms.
    web_think_ms: u64,
}

impl Parameters {
    fn of(setup: &Setup) -> Result<Parameters, BenchError> {
        let p = if setup.preset == "paper" {
            // The paper's Linux 2.6.7 tree; PostMark as in the quota paper; a database of TPC-W's size.
            Parameters {
                files: 16_500,
                dirs: 889,
                transactions: 5000,
                pg_scale: 28,
                pg_seconds: 600,
                pg_clients: 25,
                web_files: 2000,
                web_clients: 25,
                web_think_ms: 200,
            }
        } else {
            Parameters {
                files: 1500,
                dirs: 100,
                transactions: 1000,
                pg_scale: 3,
                pg_seconds: 20,
                pg_clients: 4,
                web_files: 500,
                web_clients: 4,
                web_think_ms: 20,
            }
        };
        let p = Parameters {
            files: setup.scaled(p.files, 4),
            dirs: setup.scaled(p.dirs, 2),
            transactions: setup.scaled(p.transactions, 10),
            pg_scale: setup.scaled(p.pg_scale, 1),
            web_files: setup.scaled(p.web_files, 1),
            ..p
        };
        let p = setup.apply(p)?;
        let numbers = [
            ("files", p.files, 1..=10_000_000),
            ("dirs", p.dirs, 1..=1_000_000),
            ("transactions", p.transactions, 0..=1_000_000_000),
            ("pg_scale", p.pg_scale, 1..=100_000),
            ("pg_seconds", p.pg_seconds, 1..=1_000_000),
            ("pg_clients", p.pg_clients, 1..=1000),
            ("web_files", p.web_files, 1..=10_000_000),
            ("web_clients", p.web_clients, 1..=1000),
            ("web_think_ms", p.web_think_ms, 0..=1_000_000_000),
        ];
        match numbers.iter().find(|(_, value, range)| !range.contains(value)) {
            Some((name, _, range)) => {
                Err(BenchError::Usage(format!("--set {name}: it is {} to {}", range.start(), range.end())))
            }
            None => Ok(p),
        }
    }

    fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// How soon a signal that ends fsbench is passed on.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Mean bytes of a source file: the tree measured for cvs-update has 14 KB.
const FILE_BYTES: u64 = 14_000;

/// A path in the site that means the same to a program started elsewhere.
fn whole(site: &Site, name: &str) -> PathBuf {
    let path = site.path(name);
    std::path::absolute(&path).unwrap_or(path)
}

/// A program of ours with nothing of the user's about it.
fn program(name: &str, site: &Site) -> Result<Command, BenchError> {
    let path = program_path(name).ok_or_else(|| BenchError::Refused(format!("{name} is not installed")))?;
    let mut command = Command::new(path);
    let keep: Vec<_> = ["PATH", "TMPDIR"].iter().filter_map(|k| Some((*k, std::env::var_os(k)?))).collect();
    command.env_clear().envs(keep).env("HOME", site.root()).env("LC_ALL", "C").current_dir(site.root());
    command.stdin(Stdio::null());
    Ok(command)
}

/// Runs it to its end; what it printed. A signal that ends fsbench ends the program too, also where the signal was sent
/// to fsbench alone.
fn run(command: &mut Command) -> Result<String, BenchError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let args: Vec<String> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    let what = format!("{} {}", name.rsplit('/').next().unwrap_or_default(), args.join(" "));
    let failed = |e: std::io::Error| BenchError::Failed(format!("{what}: {e}"));
    let not_stopped = || signalled().map_or(Ok(()), |signal| Err(BenchError::Interrupted(signal)));
    not_stopped()?;
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    // A handle of the process, so that no other one that has its number later is meant.
    let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                if let (Some(_), Ok(handle)) = (signalled(), &handle) {
                    let _ = pidfd_send_signal(handle, Signal::TERM);
                    return;
                }
                std::thread::park_timeout(LOOK_EVERY);
            }
        });
        let done = child.wait_with_output();
        over.store(true, Ordering::Release);
        watcher.thread().unpark();
        done
    })
    .map_err(failed)?;
    not_stopped()?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let tail: Vec<&str> = said.lines().rev().take(3).collect();
    Err(BenchError::Failed(format!(
        "{what}: {}: {}",
        done.status,
        tail.into_iter().rev().collect::<Vec<_>>().join("; ")
    )))
}

/// Where a file of a tree is.
fn name(file: u64, p: &Parameters) -> PathBuf {
    PathBuf::from(format!("dir{:03}/file{file:05}.c", file % p.dirs))
}

/// Writes a tree of text files: lines of words, so that a version control system has something to compare.
fn tree(dir: &Path, p: &Parameters, rng: &mut Rng, control: &Control) -> Result<(), BenchError> {
    for d in 0..p.dirs {
        let sub = dir.join(format!("dir{d:03}"));
        fs::create_dir_all(&sub).map_err(BenchError::at(&sub, "making it"))?;
    }
    for f in 0..p.files {
        if f % 64 == 0 {
            control.check()?;
        }
        let path = dir.join(name(f, p));
        let len = (rng.lognormal(8.459, 1.575) as u64).clamp(64, 20 * FILE_BYTES);
        let mut text = String::with_capacity(len as usize + 80);
        while (text.len() as u64) < len {
            text.push_str(&format!("word{:05} value{:07} line\n", rng.below(99_999), rng.below(9_999_999)));
        }
        fs::write(&path, text).map_err(BenchError::at(&path, "writing"))?;
    }
    Ok(())
}

/// Counts one step of a pass.
fn step(
    recorder: &mut Recorder<'_>,
    class: usize,
    act: impl FnOnce() -> Result<String, BenchError>,
) -> Result<String, BenchError> {
    let began = Instant::now();
    let said = act()?;
    recorder.done(class, began, 0, 0);
    Ok(said)
}

fn classes(names: &[&str]) -> Vec<OpClass> {
    names.iter().map(|n| OpClass::new(*n)).collect()
}

fn report(control: &Control, recorder: Recorder<'_>) -> PassReport {
    let mut report = control.report(recorder.into_classes());
    let s = report.elapsed.as_secs_f64();
    report.metrics = vec![Metric::less("run time", "s", s)];
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        for e in entries() {
            if let Some(missing) = missing(e.name) {
                assert!(missing.contains("apt-get install"), "{missing}");
            }
        }
        assert_eq!(missing("cvs-update"), None);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for entry in entries() {
            for wrong in
                [("dirs", "0"), ("pg_scale", "9223372036854775807"), ("web_clients", "0"), ("files", "0")]
            {
                let set = vec![(wrong.0.to_owned(), wrong.1.to_owned())];
                let setup = Setup { preset: "ci".into(), seed: 1, scale: 1.0, set, passes: 1 };
                let e = (entry.make)(&setup).err().expect("a refusal");
                assert!(matches!(&e, BenchError::Usage(said) if said.contains(wrong.0)), "{wrong:?}: {e}");
            }
        }
    }
}
