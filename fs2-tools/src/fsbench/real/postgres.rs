//! PostgreSQL, asked by pgbench.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use super::super::control::Control;
use super::super::workload::{Metric, Needs, OpClass, PassReport, Setup, Verified, Workload};
use super::super::{BenchError, Site};
use super::{Parameters, program, program_path, run, whole};

/// PostgreSQL with a cluster of its own, asked by pgbench over a Unix socket: parameters, seed, and passes so far, each of which asks for
/// other rows.
pub(super) struct Postgres(pub(super) Parameters, pub(super) u64, pub(super) u64);

pub(super) fn make_postgres(setup: &Setup) -> Result<Box<dyn Workload>, BenchError> {
    Ok(Box::new(Postgres(Parameters::of(setup)?, setup.seed, 0)))
}

/// How long a server may take to start or end.
pub(super) const SERVER_PATIENCE: Duration = Duration::from_secs(60);

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
pub(super) fn as_user(name: &str, site: &Site) -> Result<Command, BenchError> {
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
        loop {
            match server.pgbench(site, &["-n", "-S", "-t", "1", "template1"]) {
                Ok(_) => break,
                Err(e @ BenchError::Interrupted(_)) => return Err(e),
                // pgbench without tables: the server is up.
                Err(e) if e.to_string().contains("pgbench_") => break,
                Err(_) => {}
            }
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
pub(super) fn own(path: &Path) -> Result<(), BenchError> {
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
        let limits = control.limits();
        let lasts = limits.duration.unwrap_or(Duration::from_secs(self.0.pg_seconds));
        let warm_up = limits.warmup.saturating_sub(control.elapsed());
        // pgbench counts in whole seconds.
        let all_s = (warm_up + lasts).as_secs_f64().ceil().max(1.0) as u64;
        let (clients, seconds) = (self.0.pg_clients.to_string(), all_s.to_string());
        let seed = (self.1.wrapping_add(self.2) % 0x7fff_ffff).to_string();
        self.2 += 1;
        // Each transaction's time, written outside of the volume that is measured.
        let log = format!("--log-prefix={}", server.sockets.path().join("tx").display());
        let args =
            ["-n", "-S", "-l", &log, "-c", &clients, "-T", &seconds, "--random-seed", &seed, "postgres"];
        let counts_from = SystemTime::now() + warm_up;
        let said = server.pgbench(site, &args)?;
        let logged = transactions(server.sockets.path())?;
        server.end()?;
        let (count, latency_ms, tps) = pgbench_said(&said)
            .ok_or_else(|| BenchError::Failed(format!("pgbench said something else: {}", said.trim())))?;
        if logged.len() as u64 != count {
            return Err(BenchError::Failed(format!(
                "pgbench logged {} of {count} transactions",
                logged.len()
            )));
        }
        for (_, time) in logged.iter().filter(|(ended, _)| warm_up.is_zero() || *ended >= counts_from) {
            recorder.add(1, *time, 0, 0);
        }
        let mut report = control.report(recorder.into_classes());
        report.elapsed = Duration::from_secs(all_s).saturating_sub(warm_up);
        // Its own figures are of all of its time.
        let (tps, latency_ms) = match warm_up.is_zero() {
            true => (tps, latency_ms),
            false => (report.ops_per_second(), report.classes[1].mean_ms().unwrap_or_default()),
        };
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

/// What `pgbench -l` logged in `dir`: when each transaction ended, and how long it took.
fn transactions(dir: &Path) -> Result<Vec<(SystemTime, Duration)>, BenchError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(BenchError::at(dir, "reading it"))?.flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(b"tx.") {
            continue;
        }
        let path = entry.path();
        let text = fs::read_to_string(&path).map_err(BenchError::at(&path, "reading"))?;
        all.extend(text.lines().filter_map(transaction));
    }
    Ok(all)
}

/// A line of it: client, number, µs, script, and the end in seconds since 1970 and µs.
fn transaction(line: &str) -> Option<(SystemTime, Duration)> {
    let mut fields = line.split(' ').map(str::parse::<u64>);
    let took = fields.nth(2)?.ok()?;
    let ended = Duration::from_secs(fields.nth(1)?.ok()?) + Duration::from_micros(fields.next()?.ok()?);
    Some((SystemTime::UNIX_EPOCH + ended, Duration::from_micros(took)))
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
    fn a_line_of_pgbench_s_log() {
        let (ended, took) = transaction("3 199 2241 0 1175850568 995598").unwrap();
        assert_eq!(took, Duration::from_micros(2241));
        let since = ended.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since, Duration::from_micros(1_175_850_568_995_598));
        assert_eq!(transaction("3 199 2241 0 1175850568"), None);
        assert_eq!(transaction("3 199 failed 0 1175850568 995598"), None);
    }
}
