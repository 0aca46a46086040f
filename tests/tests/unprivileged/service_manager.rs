//! The daemon below a service manager: readiness, watchdog and end by `NOTIFY_SOCKET`, a socket passed by `LISTEN_FDS`, and the units
//! of packaging/systemd: that systemd takes them, how exposed they are, and that their list of system calls has what the daemon uses.

use std::collections::HashSet;
use std::fs::File;
use std::io::{IoSliceMut, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fs2_tests::{Ask, NbdClient, Need, Scratch, mke2fs, needs, program, run, tool};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::{Pid, close};

fn volume(scratch: &Scratch) -> PathBuf {
    let image = scratch.path("image");
    mke2fs(&image, 32 << 20, &["-t", "ext2", "-b", "4096"]);
    scratch.run("mkfs2", [&image]).ended(0);
    image
}

/// Killed on drop where it has not ended.
struct Running(Child);

impl Running {
    fn end(mut self) -> i32 {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM).expect("it runs");
        self.0.wait().expect("a child of ours").code().unwrap_or(-1)
    }

    /// Its exit code, where it ends by itself.
    fn ended(&mut self) -> i32 {
        for _ in 0..600 {
            if let Some(status) = self.0.try_wait().expect("a child of ours") {
                return status.code().unwrap_or(-1);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("it serves what it should refuse");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_manager_is_told_of_its_start_its_life_and_its_end() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let place = scratch.path("notify");
    let manager = UnixDatagram::bind(&place).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let hear = || {
        let mut bytes = [0; 4096];
        let n = manager.recv(&mut bytes).expect("the daemon says something");
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    };
    let mut daemon = scratch.command("fs2d");
    daemon.arg("serve").arg(&image).arg("--listen").arg(format!("unix:{}", scratch.path("nbd").display()));
    // It would not come up again beside the trace of before.
    std::fs::write(scratch.path("trace"), "earlier").unwrap();
    daemon.arg("--trace").arg(scratch.path("trace"));
    daemon.env("NOTIFY_SOCKET", &place).env("WATCHDOG_USEC", "200000").stderr(Stdio::null());
    let daemon = Running(daemon.spawn().unwrap());
    assert_eq!(hear(), "FDSTORE=1\nFDNAME=fs2-served\n");
    let first = hear();
    assert!(first.starts_with("READY=1\nSTATUS=") && first.contains("image"), "{first}");
    // It serves when it says so.
    assert!(NbdClient::connect(&scratch.path("nbd")).is_ok());
    for _ in 0..3 {
        assert_eq!(hear(), "WATCHDOG=1\n");
    }
    assert_eq!(daemon.end(), 0);
    let mut last = hear();
    while last == "WATCHDOG=1\n" {
        last = hear();
    }
    assert!(last.starts_with("STOPPING=1"), "{last}");
    assert_eq!(std::fs::read(scratch.path("trace")).unwrap(), b"earlier");
    assert!(std::fs::metadata(scratch.path("trace.1")).is_ok_and(|trace| trace.len() > 0));
    // Nothing hurries the end.
    assert_eq!(hear(), "WATCHDOG_USEC=18446744073709551615\n");
}

/// The word that it lives was said under the engine's lock, and waited for room: with a systemd that had crashed, and stays frozen, all
/// that used the volume stood still some minutes later, and SIGTERM did not end it.
#[test]
fn a_manager_that_hears_nothing_any_more_holds_up_nobody() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let (place, socket) = (scratch.path("notify"), scratch.path("nbd"));
    let manager = UnixDatagram::bind(&place).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut daemon = scratch.command("fs2d");
    daemon.arg("serve").arg(&image).arg("--listen").arg(format!("unix:{}", socket.display()));
    daemon.env("NOTIFY_SOCKET", &place).env("WATCHDOG_USEC", "2000").stderr(Stdio::null());
    let mut daemon = Running(daemon.spawn().unwrap());
    let mut bytes = [0; 4096];
    while !bytes.starts_with(b"WATCHDOG=1") {
        manager.recv(&mut bytes).expect("the daemon says something");
    }
    // Each has room of its own, and all of them the manager's.
    let says_it = || {
        let other = UnixDatagram::unbound().unwrap();
        other.set_nonblocking(true).unwrap();
        other.send_to(b"STATUS=x", &place).is_ok()
    };
    while says_it() {}
    // It says so every millisecond.
    std::thread::sleep(Duration::from_millis(200));
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut client = NbdClient::connect(&socket).unwrap();
        tell.send(client.call(Ask::Read, 0, 4096, &[]).map(|read| read.len()).unwrap()).unwrap();
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(4096), "programs wait for the manager");
    reader.join().unwrap();
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGTERM).unwrap();
    for _ in 0..1200 {
        if let Some(status) = daemon.0.try_wait().unwrap() {
            assert_eq!(status.code(), Some(0));
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("it does not end");
}

#[test]
fn a_socket_is_taken_from_the_manager_and_left_to_it() {
    if !needs(&[Need::Program("mke2fs"), Need::Program("systemd-socket-activate")]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, socket) = (volume(&scratch), scratch.path("socket"));
    let mut manager = Command::new(tool("systemd-socket-activate").expect("it was found before"));
    manager
        .arg("--listen")
        .arg(&socket)
        .arg(format!("--setenv=FS2_RUNTIME_DIR={}", scratch.runtime().display()));
    manager.arg(program("fs2d")).arg("serve").arg(&image).stderr(Stdio::null());
    let manager = Running(manager.spawn().unwrap());
    // The daemon starts with the first connection.
    let mut client = (0..600)
        .find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            NbdClient::connect(&socket).ok()
        })
        .expect("a connection");
    client.call(Ask::Write { fua: true }, 20 << 20, 4, b"kept").unwrap();
    assert_eq!(client.call(Ask::Read, 20 << 20, 4, &[]).unwrap(), b"kept");
    // What nothing says is in use would cost the mark.
    client.call(Ask::Trim, 20 << 20, 4096, &[]).unwrap();
    drop(client);
    assert_eq!(manager.end(), 0);
    assert!(socket.exists(), "the socket is the manager's");
    scratch.run("chkfs2", [Path::new("-n"), &image]).ended(0).says("replica table clean");
}

/// What systemd does for `fs2d-nbd@.service`: it keeps a descriptor for the service, and passes it on behind the socket.
struct StandIn {
    words: UnixDatagram,
    place: PathBuf,
    listener: UnixListener,
}

impl StandIn {
    fn new(scratch: &Scratch) -> StandIn {
        let (words, listener) =
            (UnixDatagram::bind(scratch.path("notify")), UnixListener::bind(scratch.path("nbd")));
        let words = words.unwrap();
        words.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        StandIn { words, place: scratch.path("notify"), listener: listener.unwrap() }
    }

    /// The daemon of `image`, given the socket and what was kept.
    fn start(&self, scratch: &Scratch, image: &Path, kept: Option<&OwnedFd>) -> Running {
        let mut daemon = Command::new("sh");
        // The shell becomes it, with its process number.
        let names =
            if kept.is_some() { "LISTEN_FDS=2 LISTEN_FDNAMES=x.socket:fs2-served" } else { "LISTEN_FDS=1" };
        daemon.arg("-c").arg(format!("LISTEN_PID=$$ {names} exec \"$@\" 3<&0 4<&1 0</dev/null 1>&2"));
        daemon.arg("sh").arg(program("fs2d")).arg("serve").arg(image).arg("--require-active");
        daemon.env("FS2_RUNTIME_DIR", scratch.runtime()).env("NOTIFY_SOCKET", &self.place);
        daemon.stdin(OwnedFd::from(self.listener.try_clone().unwrap()));
        if let Some(kept) = kept {
            daemon.stdout(kept.try_clone().unwrap());
        }
        Running(daemon.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Its next words, and the descriptor with them.
    fn hear(&self) -> (String, Option<OwnedFd>) {
        let (mut bytes, mut space) = ([0; 4096], nix::cmsg_space!(RawFd));
        let mut into = [IoSliceMut::new(&mut bytes)];
        let heard = recvmsg::<()>(self.words.as_raw_fd(), &mut into, Some(&mut space), MsgFlags::empty())
            .expect("words");
        let fds = heard.cmsgs().unwrap().find_map(|c| match c {
            ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
            _ => None,
        });
        let n = heard.bytes;
        let fd = fds.map(|fd| {
            let file = File::open(format!("/proc/self/fd/{fd}")).unwrap();
            close(fd).unwrap();
            file.into()
        });
        (String::from_utf8_lossy(&bytes[..n]).into_owned(), fd)
    }
}

/// A flush that failed below clients that go on must not be forgotten with the daemon that saw it.
#[test]
fn a_daemon_started_in_the_place_of_another_remembers_a_lost_flush() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let manager = StandIn::new(&scratch);
    let write = || {
        let mut client = NbdClient::connect(&scratch.path("nbd")).unwrap();
        client.call(Ask::Write { fua: true }, 20 << 20, 4, b"kept")
    };
    let daemon = manager.start(&scratch, &image, None);
    let (word, kept) = manager.hear();
    assert_eq!(word, "FDSTORE=1\nFDNAME=fs2-served\n");
    let kept = kept.expect("a descriptor");
    assert!(manager.hear().0.starts_with("READY=1\n"));
    write().expect("it takes writes");
    let lost = control(&scratch).with_extension("lost");
    drop(daemon);
    std::fs::write(&lost, "a flush failed\n").unwrap();
    // Unmarked, so a fresh start would be refused.
    let daemon = manager.start(&scratch, &image, Some(&kept));
    let (word, another) = manager.hear();
    assert!(word.starts_with("READY=1\n") && another.is_none(), "it is kept already: {word}");
    assert!(write().is_err(), "what was lost is called durable");
    assert_eq!(daemon.end(), 0);
    assert!(lost.exists());
    // Stopped meanwhile: nobody goes on.
    let mut again = manager.start(&scratch, &image, None);
    assert_eq!(again.ended(), 2, "not active, as asked");
    assert!(!lost.exists());
    // Another file has the name.
    std::fs::rename(&image, scratch.path("former")).unwrap();
    std::fs::copy(scratch.path("former"), &image).unwrap();
    let mut other = manager.start(&scratch, &image, Some(&kept));
    assert_ne!(other.ended(), 0);
    let mut said = String::new();
    other.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("is not what was served"), "{said}");
}

/// The units as they are, but for where the programs are; and with an instance.
fn units(scratch: &Scratch) -> PathBuf {
    let dir = scratch.make_dir("units");
    let binaries = format!("{}/", program("fs2").parent().expect("its directory").display());
    for unit in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd")).unwrap()
    {
        let unit = unit.unwrap();
        let text = std::fs::read_to_string(unit.path()).unwrap().replace("/usr/sbin/", &binaries);
        let name = unit.file_name().into_string().unwrap().replace('@', "@dev-null");
        std::fs::write(dir.join(name), text).unwrap();
    }
    dir
}

/// After five starts in vain within ten seconds there was none any more, and programs waited for ever.
#[test]
fn a_daemon_that_programs_wait_for_is_started_until_it_can_be() {
    let unit = include_str!("../../../packaging/systemd/fs2d@.service");
    let (head, service) = unit.split_once("[Service]").unwrap();
    assert!(head.lines().any(|line| line == "StartLimitIntervalSec=0"));
    assert!(service.lines().any(|line| line == "Restart=on-failure"));
}

#[test]
fn systemd_takes_the_units_and_finds_them_guarded() {
    if !needs(&[Need::Program("systemd-analyze")]) {
        return;
    }
    let scratch = Scratch::new();
    let dir = units(&scratch);
    let mut seen = 0;
    for unit in std::fs::read_dir(&dir).unwrap().flatten().map(|u| u.path()) {
        let done = run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit)).ended(0);
        let ours: Vec<&str> = done.err.lines().filter(|l| l.contains("fs2")).collect();
        assert!(ours.is_empty(), "{}: {}", unit.display(), done.err);
        if unit.extension().is_some_and(|x| x == "service") {
            // In tenths: of 10, "OK" ends at 4.9.
            run(Command::new("systemd-analyze")
                .args(["security", "--offline=yes", "--no-pager", "--threshold=20"])
                .arg(&unit))
            .ended(0);
        }
        seen += 1;
    }
    assert_eq!(seen, 5);
}

/// System calls of a group, groups in it included.
fn group(name: &str, into: &mut HashSet<String>) {
    let said = run(Command::new("systemd-analyze").args(["syscall-filter", "--no-pager", name])).ended(0);
    for word in said.out.lines().skip(1).map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if word.starts_with('@') {
            group(word, into);
        } else {
            into.insert(word.to_owned());
        }
    }
}

#[test]
fn the_daemon_makes_no_system_call_that_its_unit_forbids() {
    if !needs(&[Need::Program("mke2fs"), Need::Program("systemd-analyze"), Need::Program("strace")]) {
        return;
    }
    let (mut allowed, mut forbidden) = (HashSet::new(), HashSet::new());
    group("@system-service", &mut allowed);
    group("@privileged", &mut forbidden);
    group("@resources", &mut forbidden);
    // Younger than some systemds and some straces. Where it is answered with EPERM, reads are copied.
    allowed.extend(["cachestat", "syscall_0x1c3"].map(String::from));
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let (socket, trace) = (scratch.path("nbd"), scratch.path("trace"));
    let mut daemon = Command::new("strace");
    daemon.args(["-f", "-qq", "-o"]).arg(&trace).arg(program("fs2d")).arg("serve").arg(&image);
    daemon
        .arg("--listen")
        .arg(format!("unix:{}", socket.display()))
        .env("FS2_RUNTIME_DIR", scratch.runtime())
        .env("NOTIFY_SOCKET", scratch.path("notify"));
    let _manager = UnixDatagram::bind(scratch.path("notify")).unwrap();
    let mut strace = Running(daemon.stderr(Stdio::piped()).spawn().unwrap());
    let mut said = strace.0.stderr.take().unwrap();
    let mut client = (0..600)
        .find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            NbdClient::connect(&socket).ok()
        })
        .expect("a connection");
    for n in 0..200 {
        client.call(Ask::Write { fua: n % 20 == 0 }, (8 << 20) + n * 8192, 4096, &[n as u8; 4096]).unwrap();
        client.call(Ask::Read, (8 << 20) + n * 8192, 4096, &[]).unwrap();
    }
    // All of it: what nothing says is in use would cost the mark.
    client.call(Ask::Trim, 8 << 20, 2 << 20, &[]).unwrap();
    client.call(Ask::Flush, 0, 0, &[]).unwrap();
    drop(client);
    run(scratch.command("fs2").arg("status").arg("--control").arg(control(&scratch))).ended(0);
    // strace passes no signal on; its child is named in the first line.
    let first = std::fs::read_to_string(&trace).unwrap();
    let pid: i32 = first.split_whitespace().next().unwrap().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    assert_eq!(strace.0.wait().unwrap().code(), Some(0));
    let mut err = String::new();
    let _ = said.read_to_string(&mut err);
    let trace = std::fs::read_to_string(&trace).unwrap();
    let calls: HashSet<&str> = trace
        .lines()
        .filter_map(|l| l.split_whitespace().nth(1)?.split_once('('))
        .map(|(name, _)| name)
        .filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        .collect();
    assert!(calls.contains("accept4") && calls.contains("memfd_create") && calls.len() > 40, "{calls:?}");
    let odd: Vec<_> = calls.iter().filter(|c| !allowed.contains(**c) || forbidden.contains(**c)).collect();
    assert!(odd.is_empty(), "{odd:?}: forbidden by the unit; {err}");
}

fn control(scratch: &Scratch) -> PathBuf {
    let all = std::fs::read_dir(scratch.runtime()).unwrap().flatten().map(|e| e.path());
    all.into_iter().find(|p| p.extension().is_some_and(|x| x == "ctl")).expect("a control socket")
}
