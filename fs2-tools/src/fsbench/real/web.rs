//! nginx beside PostgreSQL: one serves files while the other is asked, as on the paper's machine with its web server and
//! database. Both are spoken to over Unix sockets; what nginx sends is compared with what was written.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::control::{Control, merged};
use super::super::workload::{Metric, Needs, OpClass, PassReport, Setup, Verified, Workload};
use super::super::{BenchError, Content, Rng, Site, Zipf};
use super::postgres::{Postgres, SERVER_PATIENCE, as_user, own};
use super::{Parameters, whole};

/// Files of a directory.
const DIR_FILES: u64 = 100;
/// The longest head of an answer that is read.
const HEAD_BYTES_MAX: usize = 16 << 10;

pub(super) struct Web {
    postgres: Postgres,
    seed: u64,
    passes: u64,
    /// Bytes of each file.
    sizes: Vec<u64>,
}

pub(super) fn make_web(setup: &Setup) -> Result<Box<dyn Workload>, BenchError> {
    let parameters = Parameters::of(setup)?;
    if !(1..=1_000_000).contains(&parameters.web_files) || !(1..=1000).contains(&parameters.web_clients) {
        return Err(BenchError::Usage("web_files must be 1 to 1000000, web_clients 1 to 1000".into()));
    }
    let mut rng = Rng::stream(setup.seed, "web sizes");
    // SURGE's body of sizes; its tail is left out, so that a few files are not all of the traffic.
    let size = |_| (rng.lognormal(9.357, 1.318) as u64).clamp(100, 4 << 20);
    let sizes = (0..parameters.web_files).map(size).collect();
    Ok(Box::new(Web { postgres: Postgres(parameters, setup.seed, 0), seed: setup.seed, passes: 0, sizes }))
}

fn name(file: u64) -> String {
    format!("{:04}/{file:07}", file / DIR_FILES)
}

/// A running nginx; ended on drop.
struct Nginx {
    child: std::process::Child,
    /// Its socket, its log of errors, its temporary files: outside of what is measured.
    dir: tempfile::TempDir,
}

/// As nginx reads a path between quotes.
fn quoted(path: &Path) -> Result<String, BenchError> {
    match path.to_str() {
        // A dollar sign would be a variable of its.
        Some(text) if !text.contains(['"', '\\', '$', '\n']) => Ok(format!("\"{text}\"")),
        _ => Err(BenchError::Refused(format!("{}: nginx's configuration cannot name this", path.display()))),
    }
}

impl Nginx {
    fn start(site: &Site) -> Result<Nginx, BenchError> {
        let failed = |e: std::io::Error| BenchError::Failed(format!("nginx: {e}"));
        let dir = tempfile::Builder::new().prefix("fsbench-web-").tempdir().map_err(failed)?;
        own(dir.path())?;
        let at = |name: &str| quoted(&dir.path().join(name));
        let socket = format!("\"unix:{}\"", dir.path().join("http").display());
        let mut config = format!(
            "daemon off;\npid {};\nworker_processes 1;\nevents {{ worker_connections 1200; }}\nhttp {{\n  access_log {};\n  \
             sendfile on;\n  keepalive_requests 100000000;\n  default_type text/plain;\n",
            at("pid")?,
            quoted(&whole(site, "weblog").join("access"))?,
        );
        for what in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            config += &format!("  {what}_temp_path {};\n", at(what)?);
        }
        config += &format!("  server {{ listen {socket}; root {}; }}\n}}\n", quoted(&whole(site, "www"))?);
        let path = dir.path().join("config");
        fs::write(&path, config).map_err(BenchError::at(&path, "writing"))?;
        let log = File::create(dir.path().join("log")).map_err(failed)?;
        let child = as_user("nginx", site)?
            .args(["-e", "stderr", "-c"])
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let mut nginx = Nginx { child, dir };
        let until = Instant::now() + SERVER_PATIENCE;
        while UnixStream::connect(nginx.socket()).is_err() {
            let ended = nginx.child.try_wait().map_err(failed)?;
            if ended.is_some() || Instant::now() > until {
                let log = fs::read_to_string(nginx.dir.path().join("log")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(2).collect();
                return Err(BenchError::Failed(format!("nginx does not start: {}", tail.join("; "))));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(nginx)
    }

    fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("http")
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _ = nix::sys::signal::kill(pid, signal);
    }

    /// Ends it in order: what it logged is written, and nothing is open.
    fn end(mut self) -> Result<(), BenchError> {
        self.signal(nix::sys::signal::Signal::SIGQUIT);
        let status = self.child.wait().map_err(|e| BenchError::Failed(format!("nginx: {e}")))?;
        if status.success() { Ok(()) } else { Err(BenchError::Failed(format!("nginx ended with {status}"))) }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Not by SIGKILL: its workers would stay.
            self.signal(nix::sys::signal::Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

/// Asks for `path`; what comes is in `body`.
fn get(stream: &mut UnixStream, path: &str, body: &mut Vec<u8>) -> std::io::Result<()> {
    let odd = |what: String| std::io::Error::other(format!("{path}: {what}"));
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: fsbench\r\n\r\n")?;
    body.clear();
    let mut piece = [0; 16 << 10];
    let head = loop {
        if let Some(at) = body.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut piece)? {
            0 => return Err(odd("nginx hung up".into())),
            _ if body.len() > HEAD_BYTES_MAX => {
                return Err(odd("nginx's answer has no end of its head".into()));
            }
            n => body.extend_from_slice(&piece[..n]),
        }
    };
    let len = {
        let head = String::from_utf8_lossy(&body[..head]);
        let first = head.lines().next().unwrap_or_default();
        if first.split(' ').nth(1) != Some("200") {
            return Err(odd(format!("nginx says {first}")));
        }
        let len = head.lines().find_map(|l| {
            let (name, value) = l.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        len.ok_or_else(|| odd("nginx does not say how long it is".into()))?
    };
    body.drain(..head);
    let have = body.len();
    if len < have || len > 64 << 20 {
        return Err(odd(format!("nginx says {len} bytes")));
    }
    body.resize(len, 0);
    stream.read_exact(&mut body[have..])
}

impl Web {
    fn content(&self, file: u64) -> Content {
        Content::new(self.seed, file)
    }

    /// One client, until `over`.
    fn client(
        &self,
        nginx: &Nginx,
        number: u64,
        control: &Control,
        over: &AtomicBool,
    ) -> Result<Vec<OpClass>, BenchError> {
        let failed = |e: std::io::Error| BenchError::Failed(format!("web client: {e}"));
        let mut recorder = control.recorder(vec![OpClass::new("get")]);
        let mut rng = Rng::stream(self.seed, &format!("web client {number} pass {}", self.passes));
        let popular = Zipf::new(self.sizes.len(), 1.0);
        let mut stream = UnixStream::connect(nginx.socket()).map_err(failed)?;
        stream.set_read_timeout(Some(SERVER_PATIENCE)).map_err(failed)?;
        let (mut body, mut want) = (Vec::new(), Vec::new());
        while !over.load(Ordering::Acquire) && !control.stopped() {
            let file = popular.draw(&mut rng) as u64;
            let began = Instant::now();
            get(&mut stream, &name(file), &mut body).map_err(failed)?;
            recorder.done(0, began, body.len() as u64, 0);
            want.resize(self.sizes[file as usize] as usize, 0);
            self.content(file).fill(0, &mut want);
            if body != want {
                return Err(BenchError::Failed(format!("nginx sent {} with other content", name(file))));
            }
            let think = rng.exponential(self.postgres.0.web_think_ms as f64 / 1000.0).min(10.0);
            // Not beyond the run's end, and not without a pause until the other side has ended.
            if !control.sleep(Duration::from_secs_f64(think)) {
                break;
            }
        }
        Ok(recorder.into_classes())
    }
}

impl Workload for Web {
    fn parameters(&self) -> serde_json::Value {
        self.postgres.parameters()
    }

    fn needs(&self) -> Needs {
        let mut needs = self.postgres.needs();
        needs.bytes += self.sizes.iter().sum::<u64>() + (16 << 20);
        needs.inodes += self.sizes.len() as u64 + self.sizes.len() as u64 / DIR_FILES + 10;
        needs.descriptors += self.postgres.0.web_clients;
        needs.memory += self.postgres.0.web_clients * (8 << 20);
        needs
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        let www = site.path("www");
        for (file, size) in self.sizes.iter().enumerate() {
            control.check()?;
            let path = www.join(name(file as u64));
            if (file as u64).is_multiple_of(DIR_FILES)
                && let Some(dir) = path.parent()
            {
                fs::create_dir_all(dir).map_err(BenchError::at(dir, "making it"))?;
            }
            let made = File::create(&path).and_then(|f| self.content(file as u64).write(&f, 0, *size));
            made.map_err(BenchError::at(&path, "writing"))?;
        }
        let log = site.path("weblog");
        fs::create_dir(&log).map_err(BenchError::at(&log, "making it"))?;
        own(&log)?;
        self.postgres.prepare(site, control)
    }

    fn reopen(&mut self, site: &Site) -> Result<(), BenchError> {
        self.postgres.reopen(site)
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let nginx = Nginx::start(site)?;
        let over = AtomicBool::new(false);
        let (mut postgres, clients) =
            (Postgres(self.postgres.0.clone(), self.postgres.1, self.passes), self.postgres.0.web_clients);
        let (report, web) = std::thread::scope(|scope| {
            let this = &*self;
            let (nginx, over) = (&nginx, &over);
            let clients: Vec<_> =
                (0..clients).map(|i| scope.spawn(move || this.client(nginx, i, control, over))).collect();
            let report = postgres.pass(site, control);
            over.store(true, Ordering::Release);
            let panicked = || Err(BenchError::Failed("a web client panicked".into()));
            let web: Result<Vec<_>, _> =
                clients.into_iter().map(|c| c.join().unwrap_or_else(|_| panicked())).collect();
            (report, web)
        });
        self.passes += 1;
        let (mut report, web) = (report?, merged(web?));
        nginx.end()?;
        let gets = web.iter().map(|c| c.ops).sum::<u64>() as f64;
        report.metrics.push(Metric::more(
            "web requests",
            "1/s",
            gets / report.elapsed.as_secs_f64().max(1e-9),
        ));
        report
            .metrics
            .extend(web.iter().find_map(OpClass::mean_ms).map(|ms| Metric::less("web response", "ms", ms)));
        report.classes.extend(web);
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = self.postgres.verify(site, control)?;
        for (file, size) in self.sizes.iter().enumerate() {
            verified.compare(&site.path("www").join(name(file as u64)), self.content(file as u64), *size);
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `answer` whatever is asked.
    fn answered(answer: &[u8]) -> std::io::Result<Vec<u8>> {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answer).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let mut body = Vec::new();
        get(&mut ours, "0000/0000001", &mut body).map(|()| body)
    }

    #[test]
    fn an_answer_is_taken_apart_or_named() {
        let whole = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 5\r\n\r\nhello";
        assert_eq!(answered(whole).unwrap(), b"hello");
        for (answer, says) in [
            (&whole[..whole.len() - 1], "whole buffer"),
            (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "how long"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "99999999999"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", "1 bytes"),
            (b"", "hung up"),
        ] {
            let said = answered(answer).unwrap_err().to_string();
            assert!(said.contains(says), "{says}: {said}");
        }
    }

    #[test]
    fn paths_that_its_configuration_cannot_name_are_refused() {
        assert_eq!(quoted(Path::new("/a b")).unwrap(), "\"/a b\"");
        for odd in ["/a\"b", "/$a", "/a\nb"] {
            assert!(quoted(Path::new(odd)).is_err());
        }
    }
}
