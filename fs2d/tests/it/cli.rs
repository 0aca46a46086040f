//! The program itself: help, version, and the exit codes of a command line that makes no sense.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::fuse_mem::fuse_is_here;

fn fs2d(args: &[&str]) -> (i32, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_fs2d")).args(args).output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

#[test]
fn help_and_version_go_to_standard_output() {
    for (args, says) in [
        (&["--help"][..], "serve"),
        (&["serve", "--help"], "EXIT CODES"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let (code, out, err) = fs2d(args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        assert!(out.contains(says), "{args:?}: {out}");
    }
}

/// They ended with 0, and said nothing.
#[test]
fn help_that_cannot_be_written_is_told_of() {
    for args in [&["--help"][..], &["serve", "--help"], &["--version"]] {
        let mut fs2d = Command::new(env!("CARGO_BIN_EXE_fs2d"));
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let done = fs2d.args(args).stdout(full).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.starts_with("fs2d: standard output: No space left"), "{args:?}: {said}");
    }
}

#[test]
fn bad_usage_is_1_and_says_what() {
    for (args, says) in [
        (&[][..], "Usage"),
        (&["serve"], "DEVICE"),
        (&["serve", "x", "--space", "200%"], "200%"),
        (&["serve", "x", "--watermarks", "5,10,15"], "the high mark must be above the low one"),
        (&["serve", "x", "--policy", "best"], "best"),
        (&["serve", "x", "--passive", "--require-active"], "cannot be used with"),
        (&["serve", "x", "--time-scale", "0.5"], "--drive"),
        // Before the volume is touched.
        (&["serve", "x", "--listen", "foo"], "neither unix:PATH nor tcp:ADDRESS:PORT"),
        (&["serve", "x", "--listen", "tcp:10809"], "neither unix:PATH nor tcp:ADDRESS:PORT"),
        // More than a clock can tell.
        (&["serve", "x", "--lock-wait", "18446744073709551615"], "0..=86400"),
    ] {
        let (code, out, err) = fs2d(args);
        assert_eq!((code, out.as_str()), (1, ""), "{args:?}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
}

#[test]
fn a_device_that_is_not_there_is_2_and_named() {
    let (code, _, err) = fs2d(&["serve", "/no/such/device"]);
    assert_eq!(code, 2);
    assert!(err.contains("/no/such/device"), "{err}");
}

#[test]
fn commands_that_are_shown_can_be_pasted() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("my image");
    std::fs::File::create(&image).unwrap().set_len(64 << 10).unwrap();
    let (code, _, err) = fs2d(&["serve", image.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(err.contains(&format!("mke2fs -t ext2 '{}';", image.display())), "{err}");
}

/// The volume was attached first.
#[test]
fn where_nobody_can_listen_is_told_before_the_volume_is_looked_for() {
    let long = format!("unix:/{}", "x".repeat(120));
    for (at, says) in [("tcp:192.0.2.1:10809", "can be reached from other machines"), (&*long, "xxx: ")] {
        let (code, _, err) = fs2d(&["serve", "/no/such/device", "--listen", at]);
        assert!(code == 2 && err.contains(says) && !err.contains("No such file"), "{code}: {err}");
    }
}

/// A daemon that is killed with the test, whatever becomes of that.
struct Daemon(Child);

impl Daemon {
    /// It serves zeros by NBD, all of it in `dir`.
    fn start(dir: &Path, args: &[&str]) -> Daemon {
        std::fs::File::create(dir.join("image")).unwrap().set_len(64 << 10).unwrap();
        Daemon::at(dir, args)
    }

    /// Of the image that is there.
    fn at(dir: &Path, args: &[&str]) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fs2d"));
        command.arg("serve").arg(dir.join("image")).args(["--passive", "--control"]).arg(dir.join("control"));
        command.arg("--listen").arg(format!("unix:{}", dir.join("nbd").display())).args(args);
        // As a log on a full file system.
        let log = std::fs::File::options().write(true).open("/dev/full").unwrap();
        Daemon(command.env("FS2_RUNTIME_DIR", dir).stderr(log).spawn().unwrap())
    }

    fn ended(&mut self) -> Option<i32> {
        within_reason("it does not end", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A guard against hangs.
fn within_reason<T>(otherwise: &str, mut what: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        match what() {
            Some(done) => return done,
            None => assert!(Instant::now() < until, "{otherwise}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The first word that could not be written ended it, under the programs that used the volume.
#[test]
fn a_log_that_cannot_be_written_costs_nobody_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(dir.path(), &[]);
    let mut client = within_reason("it does not answer", || {
        assert_eq!(daemon.0.try_wait().unwrap(), None, "it has ended");
        fs2_control::Client::connect(dir.path().join("control")).ok()
    });
    client.ask(&fs2_control::Command::Detach).unwrap();
    assert_eq!(daemon.ended(), Some(0));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let fs2d = || Command::new(env!("CARGO_BIN_EXE_fs2d"));
    let refused = fs2d().args(["serve", "/no/such/device"]).stderr(full).status().unwrap();
    assert_eq!(refused.code(), Some(2));
}

/// It ended where its socket could not be made, as on a full file system, though programs waited for the volume.
#[test]
fn who_takes_over_serves_also_where_it_cannot_be_spoken_to() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("control")).unwrap();
    assert_eq!(Daemon::start(dir.path(), &[]).ended(), Some(2), "nobody waits for it");
    let mut daemon = Daemon::start(dir.path(), &["--again"]);
    within_reason("nobody can connect", || {
        assert_eq!(daemon.0.try_wait().unwrap(), None, "it has ended");
        std::os::unix::net::UnixStream::connect(at("nbd")).ok()
    });
    std::fs::remove_dir(at("control")).unwrap();
    let mut client = within_reason("it does not answer", || fs2_control::Client::connect(at("control")).ok());
    client.ask(&fs2_control::Command::Detach).unwrap();
    assert_eq!(daemon.ended(), Some(0));
}

/// It held the volume for ever where `fs2 mount` was killed, or the record of a mount was removed.
#[test]
fn a_daemon_without_a_mount_ends_once_nobody_is_mounting() {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("volume.mount");
    let mounting = fs2d::runtime::begin_mounting(&record).unwrap().expect("nobody else has it");
    let mut daemon = Daemon::start(dir.path(), &["--until-unused", record.to_str().unwrap()]);
    let status = || {
        let mut client = fs2_control::Client::connect(dir.path().join("control")).ok()?;
        client.ask(&fs2_control::Command::Status).ok()
    };
    // It looks every two seconds, and has looked once by then.
    within_reason("it does not answer", || match status() {
        Some(fs2_control::Reply::Status(status)) => (status.uptime_s > 3.0).then_some(()),
        _ => {
            assert_eq!(daemon.0.try_wait().unwrap(), None, "it has ended");
            None
        }
    });
    drop(mounting);
    assert_eq!(daemon.ended(), Some(0));
}

/// They stayed, whether the volume was served or not.
#[test]
fn directories_made_for_a_fuse_mount_go_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (made, point) = (dir.path().join("made"), dir.path().join("made/here"));
    std::fs::create_dir(dir.path().join("control")).unwrap();
    let args = ["--frontend=fuse", "--fuse-dir", point.to_str().unwrap()];
    // Also where it cannot be mounted at all.
    assert_eq!(Daemon::start(dir.path(), &args).ended(), Some(2), "nobody could speak to it");
    assert!(!made.exists());
    if !fuse_is_here() {
        return;
    }
    std::fs::remove_dir(dir.path().join("control")).unwrap();
    let mut daemon = Daemon::start(dir.path(), &args);
    let mut client = within_reason("it does not answer", || {
        assert_eq!(daemon.0.try_wait().unwrap(), None, "it has ended");
        fs2_control::Client::connect(dir.path().join("control")).ok()
    });
    assert!(point.join(fs2d::frontend::fuse::FILE_NAME).exists());
    client.ask(&fs2_control::Command::Detach).unwrap();
    assert_eq!(daemon.ended(), Some(0));
    assert!(!made.exists());
}

/// What programs wait for is known by itself, not by its name.
#[test]
fn a_file_that_took_the_name_of_what_was_served_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let (image, other) = (dir.path().join("image"), dir.path().join("other"));
    for file in [&image, &other] {
        std::fs::File::create(file).unwrap().set_len(64 << 10).unwrap();
    }
    let served = fs2_store::FileStore::identity_at(&image).unwrap();
    let mut daemon = Daemon::at(dir.path(), &["--again", "--instead-of", &served]);
    let control = dir.path().join("control");
    let mut client = within_reason("it does not answer", || fs2_control::Client::connect(&control).ok());
    client.ask(&fs2_control::Command::Detach).unwrap();
    assert_eq!(daemon.ended(), Some(0));
    std::fs::rename(&other, &image).unwrap();
    // Which would serve for ever if it did not.
    assert_eq!(Daemon::at(dir.path(), &["--again", "--instead-of", &served]).ended(), Some(2));
    let at = image.to_str().unwrap();
    let (code, _, err) = fs2d(&["serve", at, "--passive", "--again", "--instead-of", &served]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("is not what was served: another file or disk has its name"), "{err}");
}
