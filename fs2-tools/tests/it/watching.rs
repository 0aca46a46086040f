//! `fs2 top` and `fs2 report` of a daemon that is played: what it says, and when it is another one, is the test's.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use fs2_block::{Extent, Nanos, Op};
use fs2_control::{Command as Asked, ControlServer, Reply, Status, TotalS, serve};
use fs2_trace::{Header, Record, Writer};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tempfile::TempDir;

/// What a played daemon was asked, and what it says.
#[derive(Default)]
struct Played {
    status: Status,
    /// Every trace that was begun or ended.
    orders: Vec<&'static str>,
}

type Shared = Arc<Mutex<Played>>;

/// A runtime directory with a daemon's socket; `then` may change what is said, with the number of the status that is asked for.
fn play(
    status: Status,
    then: impl Fn(&mut Played, usize) + Send + Sync + 'static,
) -> (TempDir, ControlServer, Shared) {
    let dir = tempfile::tempdir().unwrap();
    let played = Shared::new(Mutex::new(Played { status, orders: Vec::new() }));
    let (shared, asked) = (played.clone(), Mutex::new(0));
    let answer = move |command| {
        let mut played = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match command {
            Asked::Status => {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                *asked += 1;
                then(&mut played, *asked);
                Reply::Status(Box::new(played.status.clone()))
            }
            Asked::TraceStart { path } => {
                record_one(&path);
                played.status.trace = Some(path.display().to_string());
                played.orders.push("begin");
                Reply::Done
            }
            Asked::TraceStop => {
                played.status.trace = None;
                played.orders.push("end");
                Reply::Done
            }
            _ => Reply::error("not played", "here", ""),
        }
    };
    let server = serve(dir.path().join("played.ctl"), answer).unwrap();
    (dir, server, played)
}

fn record_one(path: &Path) {
    let header = Header { volume_bytes: 1 << 30, block_size: None, start_unix_ns: 0 };
    let mut trace = Writer::new(File::create(path).unwrap(), header).unwrap();
    let mut read = Record::new(Nanos::from_millis(1), Op::Read, Extent::new(4096, 4096));
    read.service = Some(Nanos::from_millis(5));
    trace.push(&read).unwrap();
    trace.finish().unwrap();
}

/// `fs2 report` of the played daemon for so many seconds: its code, what it said, and its page.
fn report(dir: &TempDir, seconds: u32) -> (Option<i32>, String, PathBuf) {
    let page = dir.path().join("page.html");
    let done = Command::new(env!("CARGO_BIN_EXE_fs2"))
        .env("FS2_RUNTIME_DIR", dir.path())
        .args(["report", "--seconds", &seconds.to_string(), "--control"])
        .arg(dir.path().join("played.ctl"))
        .arg("-o")
        .arg(&page)
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].map(|b| String::from_utf8(b).unwrap()).concat();
    (done.status.code(), said, page)
}

fn session(pid: u32, uptime_s: f64, reads: u64, read_s: f64) -> Status {
    let total_s = TotalS { reads, read: read_s, ..TotalS::default() };
    Status { pid, uptime_s, reads, total_s, volume_bytes: 1 << 30, block_bytes: 4096, ..Status::default() }
}

/// Found: counters of two daemons were taken for those of one, and a trace that the first had ended for one of all of the time.
#[test]
fn a_report_ends_with_the_daemon_that_it_is_of() {
    // As `fs2 upgrade` replaces it, whose process stays, and as a supervisor does.
    for pid in [7, 8] {
        let (dir, server, played) = play(session(7, 100.0, 10, 0.05), move |played, asked| {
            if asked == 2 {
                played.status = session(pid, 0.5, 1010, 100.0);
            }
        });
        let (code, said, page) = report(&dir, 4);
        assert!(
            code == Some(2) && said.contains("1 requests, until another daemon took"),
            "{code:?}: {said}"
        );
        let page = std::fs::read_to_string(page).unwrap();
        assert!(!page.contains("A read took"), "means over two daemons: {page}");
        // A trace there is another's.
        assert_eq!(played.lock().unwrap().orders, ["begin"]);
        drop(server);
    }
}

/// Found: that the trace ended early was told by neither the words nor the code, and the rest of the time was waited for.
#[test]
fn a_report_tells_that_its_trace_ended_early() {
    let (dir, _server, _) = play(session(7, 100.0, 10, 0.05), |played, asked| {
        if asked == 2 {
            let trace = played.status.trace.take().unwrap();
            played.status.trace_failed = Some(format!("{trace}: No space left on device"));
        }
    });
    let (code, said, page) = report(&dir, 4);
    assert!(code == Some(2) && said.contains("No space left on device"), "{code:?}: {said}");
    assert!(std::fs::read_to_string(page).unwrap().contains("1 reads from originals"));
}

/// Found: after `kill -9` of a report the daemon went on with its trace, in memory as a rule, and every further report was refused; no
/// command ended it.
#[test]
fn the_trace_of_a_report_that_was_killed_is_ended_by_the_next() {
    let (dir, _server, played) = play(session(7, 100.0, 10, 0.05), |_, _| {});
    let left = dir.path().canonicalize().unwrap().join("report-killed");
    let begin = |trace: &Path| {
        let mut played = played.lock().unwrap();
        played.orders.clear();
        played.status.trace = Some(trace.display().to_string());
    };
    for is_there in [true, false] {
        if is_there {
            std::fs::create_dir(&left).unwrap();
            std::fs::write(left.join("trace"), "").unwrap();
        }
        begin(&left.join("trace"));
        let (code, said, _) = report(&dir, 1);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(played.lock().unwrap().orders, ["end", "begin", "end"]);
        assert!(!left.exists());
    }
    // One that lives, and what is no report's, are let go on.
    std::fs::create_dir(&left).unwrap();
    let lives = File::open(&left).unwrap();
    lives.lock().unwrap();
    for trace in [left.join("trace"), dir.path().join("own.fs2trace"), "/elsewhere/report-x/trace".into()] {
        begin(&trace);
        let (code, said, _) = report(&dir, 1);
        assert!(code == Some(2) && said.contains("records a trace"), "{code:?}: {said}");
        assert!(played.lock().unwrap().orders.is_empty());
    }
}

/// `fs2 top` of a played daemon on a terminal of its own. Its process group is another than the test's, whose session it is in: so it can be
/// stopped. Ended with the test.
struct OnTerminal {
    terminal: File,
    top: Child,
}

impl OnTerminal {
    fn begin(dir: &TempDir, rows: u16, columns: u16) -> OnTerminal {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let other = || Stdio::from(pty.slave.try_clone().unwrap());
        let top = Command::new(env!("CARGO_BIN_EXE_fs2"))
            .env("FS2_RUNTIME_DIR", dir.path())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .args(["top", "--control"])
            .arg(dir.path().join("played.ctl"))
            .stdin(other())
            .stdout(other())
            .stderr(other())
            .process_group(0)
            .spawn()
            .unwrap();
        OnTerminal { terminal: File::from(pty.master), top }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.top.id().cast_signed())
    }

    fn type_in(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// What it writes up to `word`, or up to its end.
    fn read_until(&mut self, word: &str) -> String {
        let (mut said, mut some) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = self.terminal.read(&mut some) {
            said.extend_from_slice(&some[..n]);
            if String::from_utf8_lossy(&said).contains(word) {
                break;
            }
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Whether what is typed goes to its program line by line, as a shell wants it.
    fn is_as_before(&self) -> bool {
        let set = tcgetattr(&self.terminal).unwrap().local_flags;
        set.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.top.kill();
        let _ = self.top.wait();
    }
}

/// Found: Ctrl-Z did nothing, and after `kill -TSTP` and `fg` keys were echoed into the picture and did nothing.
#[test]
fn a_screen_that_is_stopped_gives_the_terminal_back_and_goes_on() {
    const BEGIN: &str = "\x1b[?1049h";
    const END: &str = "\x1b[?1049l";
    let (dir, _server, _) = play(session(7, 100.0, 10, 0.05), |_, _| {});
    for by_key in [true, false] {
        let mut screen = OnTerminal::begin(&dir, 24, 80);
        let shown = screen.read_until("help");
        assert!(shown.contains(BEGIN) && !screen.is_as_before(), "{shown}");
        match by_key {
            // Where it does not stop, it ends.
            true => screen.type_in("\x1aq"),
            false => kill(screen.pid(), Signal::SIGTSTP).unwrap(),
        }
        let stopped = waitpid(screen.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(stopped, WaitStatus::Stopped(_, Signal::SIGTSTP)), "{stopped:?}");
        assert!(screen.is_as_before(), "by key: {by_key}");
        let left = screen.read_until(END);
        assert!(left.contains(END), "{left}");
        kill(screen.pid(), Signal::SIGCONT).unwrap();
        if !by_key {
            let again = screen.read_until("help");
            assert!(again.contains(BEGIN) && again.contains("fs2 top") && !screen.is_as_before(), "{again}");
        }
        screen.type_in("q");
        // The other side closes with it.
        let rest = screen.read_until("never");
        assert!(rest.contains(END), "{rest}");
        assert_eq!(screen.top.wait().unwrap().code(), Some(0), "{rest}");
    }
}

/// Found: on a serial line, which says that it is 0 x 0 large, nothing was drawn and nothing said.
#[test]
fn a_terminal_without_a_size_is_told_of() {
    let (dir, _server, _) = play(session(7, 100.0, 10, 0.05), |_, _| {});
    let mut screen = OnTerminal::begin(&dir, 0, 0);
    // Where it begins anyway, it ends.
    screen.type_in("q");
    let said = screen.read_until("never");
    assert!(said.contains("does not say how large it is; stty rows 24 cols 80"), "{said}");
    assert_eq!(screen.top.wait().unwrap().code(), Some(1));
}
