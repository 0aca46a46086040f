//! A planned upgrade: another program goes on as the daemon of a volume that stays mounted.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fs2_control::{Client, Command, ControlError, Reply, Status};

use super::end::{is_silent, orphaned};
use super::{MountRecord, VolumeError, io_error, status, status_of};

/// How long the next daemon may take until it answers.
pub(super) const UPGRADE_PATIENCE: Duration = Duration::from_secs(60);

/// How a planned upgrade went.
#[derive(Clone, Debug)]
pub struct Upgraded {
    /// The daemon before; `None` where it was of another version, whose status nobody here reads.
    pub before: Option<Status>,
    /// The one that goes on.
    pub after: Status,
}

/// Lets `program` go on as the volume's daemon, while it stays mounted. Programs that use it wait meanwhile.
///
/// # Errors
/// Where the daemon refuses, the program does not run, or nothing answers afterwards.
pub fn upgrade(record: &MountRecord, program: &Path) -> Result<Upgraded, VolumeError> {
    if is_silent(&record.control)
        && let Some(why) = orphaned(record)
    {
        return Err(VolumeError::Other(why));
    }
    let ask = || status(record);
    replace(&record.control, program, ask, || record.failure().is_some(), &record.log.display().to_string())
}

/// The same for the daemon of a control socket, which somebody else starts again should it die.
///
/// # Errors
/// As [`upgrade`].
pub fn upgrade_served(control: &Path, program: &Path) -> Result<Upgraded, VolumeError> {
    replace(control, program, || status_of(control), || false, "its service manager's log")
}

fn replace(
    control: &Path,
    program: &Path,
    ask: impl Fn() -> Result<Status, VolumeError>,
    given_up: impl Fn() -> bool,
    log: &str,
) -> Result<Upgraded, VolumeError> {
    let program = program.canonicalize().map_err(io_error(program.display().to_string()))?;
    let socket = || std::fs::metadata(control).map(|m| (m.ino(), m.ctime(), m.ctime_nsec())).ok();
    // One of another version says nothing of itself, but goes.
    let other = |e: &VolumeError| matches!(e, VolumeError::Control(ControlError::Version { .. }));
    let asked = || match ask() {
        Ok(status) => Ok(Some(status)),
        Err(e) if other(&e) => Ok(None),
        Err(e) => Err(between_two(e, control)),
    };
    let of_any = || Client::connect_to_any(control).map_err(|e| between_two(e.into(), control));
    let pid = match asked()? {
        Some(status) => status.pid,
        None => of_any()?.pid(),
    };
    try_program(&program, pid)?;
    // Whoever asked for another upgrade meanwhile may have had it: it is the daemon asked here that is to be replaced, and it
    // has the socket that is there both before and after somebody answers by it.
    let connected = || {
        let former = socket();
        of_any().map(|client| (former == socket()).then_some((former, client)))
    };
    let (former, mut daemon) = loop {
        if let Some(found) = connected()? {
            break found;
        }
    };
    let before = match daemon.ask(&Command::Status) {
        Ok(Reply::Status(status)) => Some(*status),
        Ok(other) => return Err(VolumeError::Other(format!("the daemon answered {other:?}"))),
        Err(ControlError::Version { .. }) => None,
        Err(e) => return Err(between_two(e.into(), control)),
    };
    let was = running(daemon.pid());
    let makes_room = daemon.upgrade(&program).map_err(|e| between_two(e.into(), control))?;
    makes_room.map_err(VolumeError::Other)?;
    let until = Instant::now() + UPGRADE_PATIENCE;
    loop {
        // The next one makes a socket of its own. Its clock says nothing: it may take longer to begin than the
        // one before lived.
        let is_next = socket().is_some_and(|now| Some(now) != former);
        match ask() {
            Ok(after) if is_next => {
                // The process as it is here: what a status says is its number where the daemon lives.
                let pid = of_any().map_or(0, |client| client.pid());
                if goes_on_as_before(pid, was, &program) {
                    return Err(VolumeError::Other(format!(
                        "the volume is served by the program of before, and not by {}; see {log}",
                        program.display()
                    )));
                }
                return Ok(Upgraded { before, after });
            }
            Err(e) if Instant::now() > until || given_up() => return Err(e),
            Ok(_) if Instant::now() > until => {
                return Err(VolumeError::Other(format!("the daemon goes on as it was; see {log}")));
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A file, by its device and inode.
type FileId = (u64, u64);

fn id_of(path: &Path) -> Option<FileId> {
    std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// The program a process runs, be it deleted since; `None` where that may not be looked at.
fn running(pid: u32) -> Option<FileId> {
    id_of(Path::new(&format!("/proc/{pid}/exe")))
}

/// Whether the daemon that answers after an upgrade is not of `program`, but still of the one that ran before it (`was`): it could not run
/// `program`, or it died and was started again as it was. Where that cannot be told it is not so:
///
/// | | what runs | what tells |
/// |---|---|---|
/// | a script | its interpreter, or what it becomes, which may be what ran before | how the daemon calls itself, where the exec failed |
/// | another root or mounts | the file that the daemon has by that path | the same path, as the daemon sees it |
/// | a wrapper, an emulator | something else again | that it is not what ran before |
fn goes_on_as_before(pid: u32, was: Option<FileId>, program: &Path) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if line.split(|byte| *byte == 0).next() == Some(fs2d::ITSELF.as_bytes()) {
        return true;
    }
    let is = running(pid);
    let meant = [id_of(program), id_of(Path::new(&format!("/proc/{pid}/root{}", program.display())))];
    is.is_some() && is == was && !meant.contains(&is) && !is_script(program)
}

/// Whether the kernel has another program run it, or it cannot be read.
fn is_script(program: &Path) -> bool {
    let mut begin = [0; 2];
    let read =
        std::fs::File::open(program).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut begin));
    read.is_err() || begin == *b"#!"
}

/// A daemon that leaves its callers without an answer is being replaced for another caller's sake, or ends.
fn between_two(e: VolumeError, control: &Path) -> VolumeError {
    let gone = matches!(e, VolumeError::Control(ControlError::Closed { .. } | ControlError::NoDaemon { .. }));
    match gone {
        true => VolumeError::Other(format!(
            "the daemon at {} is being replaced, as by another fs2 upgrade, or ends: see fs2 status, then try again",
            control.display()
        )),
        false => e,
    }
}

/// One that cannot say its version, or does not take the arguments that the daemon of this process was started with, is not to be trusted
/// with a mounted volume: it would end with the device let go, and who starts a daemon again does not after every end.
fn try_program(program: &Path, daemon: u32) -> Result<(), VolumeError> {
    let run = |args: &[OsString]| {
        let done = std::process::Command::new(program).args(args).stdin(std::process::Stdio::null()).output();
        done.map_err(io_error(program.display().to_string()))
    };
    let version = run(&["--version".into()])?;
    if !version.status.success() {
        return Err(VolumeError::Other(format!(
            "{} --version failed: {}",
            program.display(),
            version.status
        )));
    }
    // Where they may not be looked at, it is not known.
    let Ok(line) = std::fs::read(format!("/proc/{daemon}/cmdline")) else { return Ok(()) };
    let mut args = arguments(&line);
    let what = args.first().map_or(String::new(), |what| what.display().to_string());
    // What comes before the request for help is looked at all the same.
    args.extend(["--hand-over=0", "--take-over=0", "--help"].map(OsString::from));
    let help = run(&args)?;
    if help.status.success() && String::from_utf8_lossy(&help.stdout).contains(&what) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&help.stderr).lines().next().unwrap_or("it knows none").to_owned();
    Err(VolumeError::Other(format!("{} does not take the daemon's arguments: {said}", program.display())))
}

/// Of a process as /proc has them, less its name and what one upgrade tells the next program.
fn arguments(line: &[u8]) -> Vec<OsString> {
    let of_upgrades = |arg: &&[u8]| arg.starts_with(b"--hand-over=") || arg.starts_with(b"--take-over=");
    let all = line.strip_suffix(&[0]).unwrap_or(line).split(|byte| *byte == 0).skip(1);
    all.filter(|arg| !of_upgrades(arg)).map(|arg| OsStr::from_bytes(arg).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Written by another process: what another test's thread starts meanwhile cannot hold it open for writing.
    fn script(path: &Path, text: &str) {
        let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#;
        let wrote = std::process::Command::new("sh").args(["-c", write]).arg(path).arg(text).status();
        assert!(wrote.unwrap().success());
    }

    /// Answers as a daemon of this age would, until it is told to go.
    fn daemon(control: &Path, uptime_s: f64, told: mpsc::Sender<()>) -> fs2_control::ControlServer {
        let answer = move |command| match command {
            Command::Upgrade { .. } => {
                told.send(()).expect("the test waits for it");
                Reply::Done
            }
            _ => Reply::Status(Box::new(Status { uptime_s, ..Status::default() })),
        };
        fs2_control::serve(control, answer).expect("a socket")
    }

    /// A mount whose daemon is this process.
    fn record_in(dir: &Path) -> MountRecord {
        let path = |name: &str| dir.join(name);
        MountRecord {
            dir: path("m"),
            device: path("image"),
            table: None,
            control: path("ctl"),
            log: path("log"),
            pid: std::process::id(),
            began: None,
            frontend: "ublk".into(),
            block_device: path("ublkb0"),
            carrier: path("ublkb0"),
            connections: 0,
            again: Vec::new(),
            active: true,
            path: path("mount"),
        }
    }

    /// Two upgrades close to one another: the second daemon took longer to begin than the first had lived,
    /// and was taken for the first for a minute.
    #[test]
    fn a_daemon_that_begins_slowly_is_the_next_one_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let record = record_in(dir.path());
        let (told, asked) = mpsc::channel();
        let first = daemon(&record.control, 0.5, told.clone());
        let control = record.control.clone();
        let next = std::thread::spawn(move || {
            asked.recv().unwrap();
            first.shutdown();
            daemon(&control, 7.0, told)
        });
        // A script may become whatever runs already.
        let program = dir.path().join("program");
        script(&program, ":");
        let done = upgrade(&record, &program).unwrap();
        assert_eq!((done.before.unwrap().uptime_s, done.after.uptime_s), (0.5, 7.0));
        next.join().unwrap().shutdown();
    }

    /// It was told of as being replaced, and to try again.
    #[test]
    fn a_daemon_that_died_is_told_of_as_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let (pid, mut record) = (child.id(), record_in(dir.path()));
        (record.pid, record.frontend) = (pid, "fuse".into());
        child.wait().unwrap();
        let said = upgrade(&record, Path::new("/bin/true")).unwrap_err().to_string();
        assert!(said.starts_with(&format!("its daemon is gone (process {pid}); fs2 umount ")), "{said}");
    }

    /// The daemon could not run the program where it lives, became what it had been, and was told of as replaced.
    #[test]
    fn a_daemon_that_goes_on_as_the_program_of_before_was_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let control = dir.path().join("ctl");
        let (told, asked) = mpsc::channel();
        let first = daemon(&control, 0.5, told.clone());
        let next = std::thread::spawn({
            let control = control.clone();
            move || {
                asked.recv().unwrap();
                first.shutdown();
                daemon(&control, 0.1, told)
            }
        });
        let said = upgrade_served(&control, Path::new("/bin/true")).unwrap_err().to_string();
        assert!(said.contains("by the program of before, and not by /"), "{said}");
        next.join().unwrap().shutdown();
    }

    #[test]
    fn what_runs_is_told_from_what_ran_before() {
        let own = std::env::current_exe().unwrap();
        let (pid, sh) = (std::process::id(), Path::new("/bin/sh"));
        let was = running(pid);
        assert!(was.is_some() && goes_on_as_before(pid, was, sh));
        assert!(!goes_on_as_before(pid, was, &own), "the same once more");
        assert!(!goes_on_as_before(pid, Some((0, 0)), sh), "it is another");
        assert!(!goes_on_as_before(pid, None, sh) && !goes_on_as_before(0, was, sh), "nobody may look");
        let dir = tempfile::tempdir().unwrap();
        let wrapper = dir.path().join("wrapper");
        script(&wrapper, "exec fs2d \"$@\"");
        assert!(!goes_on_as_before(pid, was, &wrapper));
        // As the daemon calls itself where the exec failed, whatever the program was.
        let mut sleeps = std::process::Command::new("sleep");
        std::os::unix::process::CommandExt::arg0(&mut sleeps, fs2d::ITSELF);
        let mut child = sleeps.arg("60").spawn().unwrap();
        // What it calls itself is there a moment after the exec began.
        while std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert!(goes_on_as_before(child.id(), None, &wrapper));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// It was refused, though to replace it is what a new version is for.
    #[test]
    fn a_daemon_of_another_version_is_replaced_too() {
        use std::io::{Read, Write};
        let dir = tempfile::tempdir().unwrap();
        let control = dir.path().join("ctl");
        let listening = std::os::unix::net::UnixListener::bind(&control).unwrap();
        let next = {
            let control = control.clone();
            std::thread::spawn(move || {
                loop {
                    let (mut stream, _) = listening.accept().unwrap();
                    stream.write_all(b"\x08\0\0\0FS2C\x63\0\0\0").unwrap();
                    stream.read_exact(&mut [0; 12]).unwrap();
                    let mut asked = [0; 8];
                    // Who finds another version asks for nothing else.
                    if stream.read_exact(&mut asked).is_err() {
                        continue;
                    }
                    assert_eq!(&asked[4..], b"FS2U");
                    let mut program = vec![0; usize::from(asked[0]) - 4];
                    stream.read_exact(&mut program).unwrap();
                    let end = program.ends_with(b"/next");
                    let why = if end { &b"\x05\0\0\0FS2U\0"[..] } else { b"\x07\0\0\0FS2U\x01no" };
                    stream.write_all(why).unwrap();
                    if end {
                        break;
                    }
                }
                std::fs::remove_file(&control).unwrap();
                let (told, _) = mpsc::channel();
                daemon(&control, 4.0, told)
            })
        };
        // Both take this process's arguments, as what answers is taken to be.
        let program = |name: &str| {
            let path = dir.path().join(name);
            script(&path, r#"echo "$@""#);
            path
        };
        let refused = upgrade_served(&control, &program("other")).unwrap_err().to_string();
        assert_eq!(refused, "no");
        let done = upgrade_served(&control, &program("next")).unwrap();
        assert!(done.before.is_none() && done.after.uptime_s == 4.0);
        next.join().unwrap().shutdown();
    }

    /// An upgrade that another caller's ran before was told of as done when that one was, and nobody waited for its own.
    #[test]
    fn who_asks_the_next_daemon_waits_for_the_one_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let control = dir.path().join("ctl");
        let (trying, replaced) = (dir.path().join("trying"), dir.path().join("replaced"));
        let program = dir.path().join("program");
        // While it is tried, the first daemon makes room for the second.
        let text =
            format!(": > {}; until [ -e {} ]; do sleep 0.01; done", trying.display(), replaced.display());
        script(&program, &text);
        let (told, asked) = mpsc::channel();
        let first = daemon(&control, 1.0, told.clone());
        let next = {
            let control = control.clone();
            std::thread::spawn(move || {
                while !trying.exists() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                first.shutdown();
                let second = daemon(&control, 2.0, told.clone());
                std::fs::write(&replaced, "").unwrap();
                asked.recv().unwrap();
                // It still answers, as one that is about to be replaced may.
                std::thread::sleep(Duration::from_millis(300));
                second.shutdown();
                daemon(&control, 3.0, told)
            })
        };
        let done = upgrade_served(&control, &program).unwrap();
        next.join().unwrap().shutdown();
        assert_eq!((done.before.unwrap().uptime_s, done.after.uptime_s), (2.0, 3.0));
    }

    /// Two upgrades at once: the second said that the daemon had closed the connection.
    #[test]
    fn who_comes_while_a_daemon_is_being_replaced_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let control = dir.path().join("ctl");
        let asked = || upgrade_served(&control, Path::new("/bin/true")).unwrap_err().to_string();
        assert!(asked().contains("is being replaced"), "{}", asked());
        // It takes the call, and is gone before it answers.
        let listening = std::os::unix::net::UnixListener::bind(&control).unwrap();
        let daemon = std::thread::spawn(move || drop(listening.accept()));
        let said = asked();
        daemon.join().unwrap();
        assert!(said.contains("is being replaced, as by another fs2 upgrade"), "{said}");
    }

    /// It let the device go for a program that ended with a usage error, after which a service manager starts none again.
    #[test]
    fn a_program_that_does_not_take_the_daemons_arguments_gets_no_volume() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = dir.path().join(name);
            script(&path, text);
            path
        };
        let mut daemon = std::process::Command::new("sleep").args(["60", "0"]).spawn().unwrap();
        let tried = |program: &Path| try_program(program, daemon.id()).map_err(|e| e.to_string());
        let older = script("older", "[ $1 = --version ] || { echo 'error: what is 60?' >&2; exit 1; }");
        assert!(
            tried(&older).unwrap_err().ends_with("does not take the daemon's arguments: error: what is 60?")
        );
        assert!(tried(Path::new("/bin/true")).is_err(), "it says yes to everything");
        let wants = "60 0 --hand-over=0 --take-over=0 --help";
        let other =
            script("other", &format!("[ $1 = --version ] || [ \"$*\" = '{wants}' ] && echo 'Usage: x 60'"));
        assert_eq!(tried(&other), Ok(()));
        assert!(tried(Path::new("/bin/false")).unwrap_err().contains("--version failed"));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert_eq!(
            try_program(Path::new("/bin/true"), daemon.id()).map_err(|e| e.to_string()),
            Ok(()),
            "nobody to ask"
        );
        assert_eq!(arguments(b"x\0serve\0\0--take-over=3\0--hand-over=4\0-v\0"), ["serve", "", "-v"]);
    }
}
