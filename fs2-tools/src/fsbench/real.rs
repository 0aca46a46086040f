//! Real programs as workloads: git, CVS, PostMark and PostgreSQL, as they are installed on the machine.
//!
//! What they read and write is their own affair; a pass is what they are told to do, cold or warm like any other.
//! [`missing`] says what is not there. They run without the user's settings: no configuration, no home, a fixed date.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::control::{Control, Recorder};
use super::workload::{Entry, Metric, Needs, OpClass, PassReport, Setup, Verified, Workload};
use super::{BenchError, Rng, Site};

const PRESETS: &[&str] = &["ci", "paper"];

/// Every workload of this module.
pub fn entries() -> Vec<Entry> {
    let entry = |name, summary, source, make| Entry { name, summary, source, presets: PRESETS, make };
    vec![
        entry("real-git", "git: status, grep and a checkout there and back", "the installed git", make_git),
        entry("real-cvs", "cvs update of a whole working copy", "the installed cvs; FS2 4.4", make_cvs),
        entry(
            "real-postmark",
            "PostMark's own transactions",
            "the installed postmark; elastic quotas",
            make_postmark,
        ),
        entry(
            "real-postgres",
            "pgbench -S on a PostgreSQL of its own",
            "the installed postgres",
            make_postgres,
        ),
    ]
}

/// What a workload lacks on this machine, and how to get it.
pub fn missing(name: &str) -> Option<String> {
    let needs: &[(&str, &str)] = match name {
        "real-git" => &[("git", "git")],
        "real-cvs" => &[("cvs", "cvs")],
        "real-postmark" => &[("postmark", "postmark")],
        "real-postgres" => {
            &[("postgres", "postgresql"), ("initdb", "postgresql"), ("pgbench", "postgresql-contrib")]
        }
        _ => &[],
    };
    let lacking = needs.iter().find(|(program, _)| program_path(program).is_none());
    lacking.map(|(program, package)| format!("{program} (apt-get install {package})"))
}

/// Where a program is: in the search path, or where Debian keeps PostgreSQL's.
fn program_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
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
            }
        } else {
            Parameters {
                files: 1500,
                dirs: 100,
                transactions: 1000,
                pg_scale: 3,
                pg_seconds: 20,
                pg_clients: 4,
            }
        };
        let p = Parameters {
            files: setup.scaled(p.files, 4),
            dirs: setup.scaled(p.dirs, 2),
            transactions: setup.scaled(p.transactions, 10),
            pg_scale: setup.scaled(p.pg_scale, 1),
            ..p
        };
        setup.apply(p)
    }

    fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

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

/// Runs it to its end; what it printed.
fn run(command: &mut Command) -> Result<String, BenchError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let args: Vec<String> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    let what = format!("{} {}", name.rsplit('/').next().unwrap_or_default(), args.join(" "));
    let done = command.output().map_err(|e| BenchError::Failed(format!("{what}: {e}")))?;
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
        let path = dir.join(format!("dir{:03}/file{f:05}.c", f % p.dirs));
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

/// git in a repository of its own.
struct Git(Parameters);

fn make_git(setup: &Setup) -> Result<Box<dyn Workload>, BenchError> {
    Ok(Box::new(Git(Parameters::of(setup)?)))
}

fn git(site: &Site, args: &[&str]) -> Result<String, BenchError> {
    let mut command = program("git", site)?;
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{who}_NAME"), "fsbench")
            .env(format!("GIT_{who}_EMAIL"), "fsbench@localhost");
        command.env(format!("GIT_{who}_DATE"), "1128988800 +0000");
    }
    run(command.args(["-C", "work"]).args(args))
}

impl Workload for Git {
    fn parameters(&self) -> serde_json::Value {
        self.0.json()
    }

    fn needs(&self) -> Needs {
        Needs {
            bytes: 3 * self.0.files * FILE_BYTES,
            inodes: 3 * self.0.files + 2 * self.0.dirs + 500,
            descriptors: 64,
            memory: 64 << 20,
        }
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        let work = site.path("work");
        tree(&work, &self.0, &mut site.stream("tree"), control)?;
        git(site, &["init", "-q", "-b", "main"])?;
        // Nothing of its own accord in the background.
        git(site, &["config", "gc.auto", "0"])?;
        git(site, &["add", "-A"])?;
        git(site, &["commit", "-q", "-m", "one"])?;
        git(site, &["checkout", "-q", "-b", "other"])?;
        let mut rng = site.stream("changes");
        for _ in 0..self.0.files.div_ceil(5) {
            let f = rng.below(self.0.files);
            let path = work.join(format!("dir{:03}/file{f:05}.c", f % self.0.dirs));
            fs::write(&path, format!("changed {f}\n")).map_err(BenchError::at(&path, "writing"))?;
        }
        git(site, &["commit", "-q", "-a", "-m", "two"])?;
        git(site, &["checkout", "-q", "main"]).map(drop)
    }

    fn reopen(&mut self, site: &Site) -> Result<(), BenchError> {
        git(site, &["rev-parse", "main"]).map(drop)
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let mut recorder = control.recorder(classes(&["status", "grep", "checkout"]));
        let said = step(&mut recorder, 0, || git(site, &["status", "--porcelain"]))?;
        if !said.is_empty() {
            return Err(BenchError::Failed(format!(
                "git found changes nobody made: {}",
                said.lines().next().unwrap_or("")
            )));
        }
        step(&mut recorder, 1, || git(site, &["grep", "-c", "word0"]))?;
        step(&mut recorder, 2, || git(site, &["checkout", "-q", "other"]))?;
        step(&mut recorder, 2, || git(site, &["checkout", "-q", "main"]))?;
        Ok(report(control, recorder))
    }

    fn verify(&mut self, site: &Site, _: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        // Reads every object, and every file of the work tree again.
        let wrong = git(site, &["fsck", "--full", "--strict"]).err().map(|e| e.to_string());
        verified.note(&site.path("work/.git"), self.0.files * FILE_BYTES, wrong);
        let again = site.path("work/.git/index");
        fs::remove_file(&again).map_err(BenchError::at(&again, "removing it"))?;
        git(site, &["reset", "-q"])?;
        let said = git(site, &["status", "--porcelain"])?;
        let wrong = said.lines().next().map(str::to_owned);
        verified.note(&site.path("work"), self.0.files * FILE_BYTES, wrong);
        Ok(verified)
    }
}

/// cvs with a repository of its own.
struct Cvs(Parameters);

fn make_cvs(setup: &Setup) -> Result<Box<dyn Workload>, BenchError> {
    Ok(Box::new(Cvs(Parameters::of(setup)?)))
}

fn cvs(site: &Site, dir: &str, args: &[&str]) -> Result<String, BenchError> {
    let mut command = program("cvs", site)?;
    command.current_dir(site.path(dir)).env("LOGNAME", "fsbench").env("CVS_RSH", "/bin/false");
    run(command.arg("-f").arg("-d").arg(whole(site, "repo")).args(args))
}

impl Workload for Cvs {
    fn parameters(&self) -> serde_json::Value {
        self.0.json()
    }

    fn needs(&self) -> Needs {
        let n = self.0.files;
        Needs {
            bytes: 3 * n * FILE_BYTES,
            inodes: 3 * n + 8 * self.0.dirs + 200,
            descriptors: 32,
            memory: 32 << 20,
        }
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        let import = site.path("import");
        tree(&import, &self.0, &mut site.stream("tree"), control)?;
        cvs(site, "", &["init"])?;
        cvs(site, "import", &["-Q", "import", "-m", "one", "tree", "vendor", "start"])?;
        fs::remove_dir_all(&import).map_err(BenchError::at(&import, "removing it"))?;
        cvs(site, "", &["-Q", "checkout", "-d", "work", "tree"]).map(drop)
    }

    fn reopen(&mut self, _: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let mut recorder = control.recorder(classes(&["update"]));
        let said = step(&mut recorder, 0, || cvs(site, "work", &["-q", "update"]))?;
        if let Some(line) = said.lines().next() {
            return Err(BenchError::Failed(format!("cvs found changes nobody made: {line}")));
        }
        Ok(report(control, recorder))
    }

    fn verify(&mut self, site: &Site, _: &Control) -> Result<Verified, BenchError> {
        // With -C every file is fetched anew and compared with what it replaces.
        let said = cvs(site, "work", &["-q", "diff", "--brief"]).err().map(|e| e.to_string());
        let mut verified = Verified::default();
        verified.note(&site.path("work"), self.0.files * FILE_BYTES, said);
        Ok(verified)
    }
}

/// PostMark in a directory of its own.
struct Postmark(Parameters, u64);

fn make_postmark(setup: &Setup) -> Result<Box<dyn Workload>, BenchError> {
    Ok(Box::new(Postmark(Parameters::of(setup)?, setup.seed)))
}

impl Workload for Postmark {
    fn parameters(&self) -> serde_json::Value {
        self.0.json()
    }

    fn needs(&self) -> Needs {
        let n = self.0.files + self.0.transactions;
        Needs { bytes: n * 40_000, inodes: n + 10, descriptors: 32, memory: 16 << 20 }
    }

    fn prepare(&mut self, site: &Site, _: &Control) -> Result<(), BenchError> {
        let dir = whole(site, "pool");
        fs::create_dir(&dir).map_err(BenchError::at(&dir, "making it"))?;
        let config = format!(
            "set location {}\nset number {}\nset transactions {}\nset size 8192 65536\nset seed {}\nset report terse\nrun\nquit\n",
            dir.display(),
            self.0.files,
            self.0.transactions,
            self.1 % 0x7fff_ffff
        );
        let path = site.path("config");
        fs::write(&path, config).map_err(BenchError::at(&path, "writing"))
    }

    fn reopen(&mut self, _: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let mut recorder = control.recorder(classes(&["run"]));
        step(&mut recorder, 0, || run(program("postmark", site)?.arg("config")))?;
        Ok(report(control, recorder))
    }

    fn verify(&mut self, site: &Site, _: &Control) -> Result<Verified, BenchError> {
        // It deletes what it made; what is left is what it could not.
        let dir = whole(site, "pool");
        let left = fs::read_dir(&dir).map_err(BenchError::at(&dir, "reading it"))?.count();
        let mut verified = Verified::default();
        verified.note(&dir, 0, (left > 0).then(|| format!("{left} files are left")));
        Ok(verified)
    }
}

/// PostgreSQL with a cluster of its own, asked by pgbench over a Unix socket.
struct Postgres(Parameters, u64);

fn make_postgres(setup: &Setup) -> Result<Box<dyn Workload>, BenchError> {
    Ok(Box::new(Postgres(Parameters::of(setup)?, setup.seed)))
}

/// How long a server may take to start or end.
const SERVER_PATIENCE: Duration = Duration::from_secs(60);

/// Whom the server runs as: it refuses to be root.
fn unprivileged() -> Result<Option<(u32, u32)>, BenchError> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Ok(Some(user)) = nix::unistd::User::from_name(name) {
            return Ok(Some((user.uid.as_raw(), user.gid.as_raw())));
        }
    }
    Err(BenchError::Refused(
        "postgres refuses to run as root, and there is no user postgres or nobody".into(),
    ))
}

/// A program as that user.
fn as_user(name: &str, site: &Site) -> Result<Command, BenchError> {
    use std::os::unix::process::CommandExt;
    let mut command = program(name, site)?;
    if let Some((uid, gid)) = unprivileged()? {
        command.uid(uid).gid(gid);
    }
    command.current_dir("/");
    Ok(command)
}

/// A running server; ended on drop.
struct Server {
    child: std::process::Child,
    /// A Unix socket's path is short, the site's may not be.
    sockets: tempfile::TempDir,
}

impl Server {
    fn start(site: &Site) -> Result<Server, BenchError> {
        let failed = |e: std::io::Error| BenchError::Failed(format!("postgres: {e}"));
        let sockets = tempfile::Builder::new().prefix("fsbench-pg-").tempdir().map_err(failed)?;
        own(sockets.path())?;
        let log = File::create(sockets.path().join("log")).map_err(failed)?;
        let child = as_user("postgres", site)?
            .arg("-D")
            .arg(whole(site, "cluster"))
            .arg("-k")
            .arg(sockets.path())
            .args(["-c", "listen_addresses=", "-c", "shared_buffers=8MB"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let mut server = Server { child, sockets };
        let until = Instant::now() + SERVER_PATIENCE;
        while server.pgbench(site, &["-n", "-S", "-t", "1", "template1"]).is_err_and(|e| {
            // pgbench without tables: the server is up.
            !e.to_string().contains("pgbench_")
        }) {
            let ended = server.child.try_wait().map_err(failed)?;
            if ended.is_some() || Instant::now() > until {
                let log = fs::read_to_string(server.sockets.path().join("log")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(2).collect();
                return Err(BenchError::Failed(format!("postgres does not start: {}", tail.join("; "))));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn pgbench(&self, site: &Site, args: &[&str]) -> Result<String, BenchError> {
        run(as_user("pgbench", site)?.arg("-h").arg(self.sockets.path()).args(["-U", "fsbench"]).args(args))
    }

    /// Ends it in order: everything is on disk, and nothing is open.
    fn end(mut self) -> Result<(), BenchError> {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
        let status = self.child.wait().map_err(|e| BenchError::Failed(format!("postgres: {e}")))?;
        if status.success() {
            Ok(())
        } else {
            Err(BenchError::Failed(format!("postgres ended with {status}")))
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGQUIT);
            let _ = self.child.wait();
        }
    }
}

/// Gives a directory to the server's user.
fn own(path: &Path) -> Result<(), BenchError> {
    if let Some((uid, gid)) = unprivileged()? {
        std::os::unix::fs::chown(path, Some(uid), Some(gid))
            .map_err(BenchError::at(path, "giving it away"))?;
    }
    Ok(())
}

impl Workload for Postgres {
    fn parameters(&self) -> serde_json::Value {
        self.0.json()
    }

    fn needs(&self) -> Needs {
        // A fresh cluster has about 40 MB, its log 64 MB and more.
        Needs { bytes: (120 + 16 * self.0.pg_scale) << 20, inodes: 2500, descriptors: 64, memory: 64 << 20 }
    }

    fn prepare(&mut self, site: &Site, _: &Control) -> Result<(), BenchError> {
        let cluster = whole(site, "cluster");
        fs::create_dir(&cluster).map_err(BenchError::at(&cluster, "making it"))?;
        own(&cluster)?;
        run(as_user("initdb", site)?
            .args(["-A", "trust", "-U", "fsbench", "-E", "UTF8", "--locale=C", "--data-checksums", "-D"])
            .arg(&cluster))?;
        let server = Server::start(site)?;
        let scale = self.0.pg_scale.to_string();
        server.pgbench(site, &["-i", "-q", "-s", &scale, "postgres"])?;
        server.end()
    }

    fn reopen(&mut self, _: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let mut recorder = control.recorder(vec![OpClass::uncounted("start"), OpClass::new("select")]);
        let began = Instant::now();
        let server = Server::start(site)?;
        recorder.done(0, began, 0, 0);
        let (clients, seconds) = (self.0.pg_clients.to_string(), self.0.pg_seconds.to_string());
        let seed = (self.1 % 0x7fff_ffff).to_string();
        // Each transaction's time, written outside of the volume that is measured.
        let log = format!("--log-prefix={}", server.sockets.path().join("tx").display());
        let args =
            ["-n", "-S", "-l", &log, "-c", &clients, "-T", &seconds, "--random-seed", &seed, "postgres"];
        let said = server.pgbench(site, &args)?;
        let times = transaction_times(server.sockets.path())?;
        server.end()?;
        let (count, latency_ms, tps) = pgbench_said(&said)
            .ok_or_else(|| BenchError::Failed(format!("pgbench said something else: {}", said.trim())))?;
        if times.len() as u64 != count {
            return Err(BenchError::Failed(format!(
                "pgbench logged {} of {count} transactions",
                times.len()
            )));
        }
        for time in times {
            recorder.add(1, time, 0, 0);
        }
        let mut report = control.report(recorder.into_classes());
        report.elapsed = Duration::from_secs(self.0.pg_seconds);
        report.metrics =
            vec![Metric::more("throughput", "tx/s", tps), Metric::less("response time", "ms", latency_ms)];
        Ok(report)
    }

    fn verify(&mut self, site: &Site, _: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        let cluster = whole(site, "cluster");
        let wrong = match program_path("pg_checksums") {
            Some(_) => run(as_user("pg_checksums", site)?.args(["--check", "-D"]).arg(&cluster))
                .err()
                .map(|e| e.to_string()),
            None => None,
        };
        verified.note(&cluster, self.0.pg_scale * (15 << 20), wrong);
        Ok(verified)
    }
}

/// What `pgbench -l` logged in `dir`: the third field of a line is a transaction's time in µs.
fn transaction_times(dir: &Path) -> Result<Vec<Duration>, BenchError> {
    let mut times = Vec::new();
    for entry in fs::read_dir(dir).map_err(BenchError::at(dir, "reading it"))?.flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(b"tx.") {
            continue;
        }
        let path = entry.path();
        let text = fs::read_to_string(&path).map_err(BenchError::at(&path, "reading"))?;
        let us = text.lines().filter_map(|l| l.split(' ').nth(2)?.parse().ok());
        times.extend(us.map(Duration::from_micros));
    }
    Ok(times)
}

/// Transactions, mean latency in ms and transactions a second of pgbench's report.
fn pgbench_said(text: &str) -> Option<(u64, f64, f64)> {
    let after = |key: &str| text.lines().find_map(|l| l.strip_prefix(key));
    let first = |s: &str| s.split_whitespace().next().map(str::to_owned);
    let count =
        first(after("number of transactions actually processed: ")?)?.split('/').next()?.parse().ok()?;
    let latency = first(after("latency average = ")?)?.parse().ok()?;
    let tps = first(after("tps = ")?)?.parse().ok()?;
    Some((count, latency, tps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgbench_s_report() {
        let text = "transaction type: <builtin: select only>\nnumber of transactions actually processed: 4321\n\
                    latency average = 0.925 ms\ninitial connection time = 5.1 ms\ntps = 4321.5 (without initial connection time)\n";
        assert_eq!(pgbench_said(text), Some((4321, 0.925, 4321.5)));
        assert_eq!(pgbench_said(&text.replace("4321\n", "4321/4321\n")), Some((4321, 0.925, 4321.5)));
        assert_eq!(pgbench_said("nothing"), None);
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        for e in entries() {
            if let Some(missing) = missing(e.name) {
                assert!(missing.contains("apt-get install"), "{missing}");
            }
        }
        assert_eq!(missing("cvs-update"), None);
    }
}
