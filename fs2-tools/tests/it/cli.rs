//! The programs themselves: help, version, and the exit codes of a command line that makes no sense.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn run(program: &str, args: &[&str]) -> (i32, String, String) {
    let done = Command::new(program).args(args).output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

const FS2: &str = env!("CARGO_BIN_EXE_fs2");
const MKFS2: &str = env!("CARGO_BIN_EXE_mkfs2");
const CHKFS2: &str = env!("CARGO_BIN_EXE_chkfs2");

#[test]
fn help_and_version_go_to_standard_output() {
    for (program, args, says) in [
        (FS2, &["--help"][..], "EXAMPLES"),
        (FS2, &["mount", "--help"], "EXIT CODES"),
        (FS2, &["umount", "--help"], "EXIT CODES"),
        (FS2, &["demo", "--help"], "EXAMPLES"),
        (MKFS2, &["--help"], "Exit codes"),
        (CHKFS2, &["--help"], "Exit codes"),
        (FS2, &["--version"], env!("CARGO_PKG_VERSION")),
        (MKFS2, &["--version"], env!("CARGO_PKG_VERSION")),
        (CHKFS2, &["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let (code, out, err) = run(program, args);
        assert_eq!((code, err.as_str()), (0, ""), "{program} {args:?}");
        assert!(out.contains(says), "{program} {args:?}: {out}");
    }
}

/// README promises it.
#[test]
fn every_command_has_examples() {
    for name in ["demo", "calibrate", "mount", "umount", "status", "top", "report", "upgrade", "trim"] {
        assert!(run(FS2, &[name, "--help"]).1.contains("EXAMPLES:\n"), "fs2 {name}");
    }
    for program in [fs2_tools::replay::command(), fs2_tools::fsbench::command()] {
        for command in program.get_subcommands() {
            let said = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(said.contains("Examples:\n"), "{} {}", program.get_name(), command.get_name());
        }
    }
    for name in ["mount.fs2", "umount.fs2", "fsck.fs2", "mkfs.fs2"] {
        let done = Command::new(FS2).arg0(name).arg("--help").output().unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        assert_eq!((done.status.code(), done.stderr.len()), (Some(0), 0), "{name}");
        assert!(said.starts_with(&format!("usage: {name} ")) && said.contains("EXAMPLES:\n"), "{said}");
    }
}

#[test]
fn bad_usage_has_the_documented_code() {
    for (program, code, args) in [
        (FS2, 1, &[][..]),
        (FS2, 1, &["mount", "only-a-device"]),
        (FS2, 1, &["mount", "device", "dir", "--frontend", "pigeon"]),
        (FS2, 1, &["frobnicate"]),
        (MKFS2, 2, &[]),
        (MKFS2, 2, &["--space", "101%", "image"]),
        // It was undone, by whoever wanted another size of the table.
        (MKFS2, 2, &["--undo", "--space", "20%", "image"]),
        (CHKFS2, 16, &[]),
        (CHKFS2, 16, &["-n", "-y", "image"]),
    ] {
        let (got, out, err) = run(program, args);
        assert_eq!((got, out.as_str()), (code, ""), "{program} {args:?}: {err}");
        assert!(!err.is_empty(), "{program} {args:?}");
    }
}

/// The code tells what was done, whoever listens; of what only tells, whether it could.
#[test]
fn words_that_nobody_takes_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for args in [&["status"][..], &["status", "--json"], &["status", "/no/such/volume"]] {
        let fs2 = || {
            let mut command = Command::new(FS2);
            command.args(args).env("FS2_RUNTIME_DIR", dir.path());
            command
        };
        let code = fs2().output().unwrap().status.code();
        assert_eq!(fs2().stdout(full()).stderr(full()).status().unwrap().code(), Some(2), "{args:?}");
        // A reader that has gone.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = fs2().stdout(writer).output().unwrap();
        assert_eq!(done.status.code(), code, "{args:?}");
        assert!(!String::from_utf8_lossy(&done.stderr).contains("panicked"), "{done:?}");
        let done = fs2().stdout(full()).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).contains("fs2: standard output: No space left");
        assert_eq!(told, code == Some(0), "{done:?}");
    }
}

/// What a script reads was lost, and the code said that all was well.
#[test]
fn what_mkfs2_and_chkfs2_cannot_write_they_tell_of() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    assert!(Command::new("mke2fs").args(["-q", "-t", "ext2"]).arg(&image).status().unwrap().success());
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for (program, args, code, told) in [
        (
            MKFS2,
            &["--json"][..],
            1,
            "mkfs2: standard output: No space left on device (os error 28); the work itself is done\n",
        ),
        (CHKFS2, &["-n", "--json"], 8, "chkfs2: standard output: No space left"),
        (CHKFS2, &["-n"], 8, "chkfs2: standard output: No space left"),
        (CHKFS2, &["--help"], 8, "chkfs2: standard output: No space left"),
        (FS2, &["mount", "--help"], 2, "fs2: standard output: No space left"),
        (FS2, &["--version"], 2, "fs2: standard output: No space left"),
        (MKFS2, &["--json"], 1, "mkfs2: standard output: No space left on device (os error 28)\n"),
        (MKFS2, &["--undo"], 1, "; the work itself is done\n"),
    ] {
        let done = Command::new(program).args(args).arg(&image).stdout(full()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        let count = said.matches("standard output: No space left").count();
        assert!(
            done.status.code() == Some(code) && count == 1 && said.contains(told),
            "{program} {args:?}: {done:?}"
        );
    }
    // A reader that has gone wants to hear nothing; nor is anything said with `--quiet`.
    let gone = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        std::process::Stdio::from(writer)
    };
    for (program, args, out) in [
        (MKFS2, &["--quiet"][..], std::process::Stdio::from(full())),
        (CHKFS2, &["-n", "--json"], gone()),
        (MKFS2, &["--json", "--undo"], gone()),
        (CHKFS2, &["--help"], gone()),
        (FS2, &["mount", "--help"], gone()),
    ] {
        let done = Command::new(program).args(args).arg(&image).stdout(out).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.code() == Some(0) && !said.contains("standard output"),
            "{program} {args:?}: {done:?}"
        );
    }
}

/// All that was said was "No such file or directory".
#[test]
fn mkfs_makes_a_file_that_is_not_there_and_leaves_none_where_it_fails() {
    let dir = tempfile::tempdir().unwrap();
    let mkfs = |args: &[&str], out: Option<std::fs::File>| {
        let mut mkfs = Command::new(FS2);
        mkfs.arg0("mkfs.fs2").args(args).current_dir(dir.path());
        if let Some(out) = out {
            mkfs.stdout(out);
        }
        let done = mkfs.output().unwrap();
        (done.status.code().unwrap(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let new = dir.path().join("new");
    for (args, says) in [
        (&["new"][..], "mkfs.fs2: new: not there; to make it: truncate -s SIZE new, or: mkfs.fs2 new SIZE\n"),
        (&["-q", "new", "3"], "is no FS2 volume"),
        (&["-q", "--space", "0.01%", "new", "16M"], "finer than 0.1%"),
        (&["-q", "--table", "none/t", "new", "16M"], "none/t: making the table"),
        (&["none/new", "16M"], "none/new: making it: No such file"),
        (&["/dev/no-such-disk", "16M"], "no such device"),
    ] {
        let (code, err) = mkfs(args, None);
        assert!(code == 1 && err.contains(says) && !new.exists(), "{args:?}: {err}");
    }
    assert_eq!((mkfs(&["-q", "-n", "new", "16M"], None).0, new.exists()), (0, false));
    let (code, err) = mkfs(&["-q", "-b", "1024", "new", "16M"], None);
    assert_eq!((code, err.as_str(), std::fs::metadata(&new).unwrap().len()), (0, "", 16 << 20));
    assert_eq!(run(CHKFS2, &["-n", new.to_str().unwrap()]).0, 0);
    // What is made and not told of is made.
    std::fs::remove_file(&new).unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let (code, err) = mkfs(&["new", "16M"], Some(full));
    assert!(code == 1 && err.contains("the work itself is done") && new.exists(), "{err}");
    // One that is there keeps what it holds.
    let (code, err) = mkfs(&["new", "8M"], None);
    assert!(code == 1 && err.contains("contains an ext2 file system") && new.exists(), "{err}");
}

/// With a user's path, as after `su`: e2fsck was found, and of blkid it was said that a new file "contains nobody knows what".
#[test]
fn programs_of_roots_are_found_where_they_are() {
    let usual = |name: &&str| {
        ["/usr/sbin", "/sbin", "/usr/local/sbin"].iter().any(|d| Path::new(d).join(name).exists())
    };
    if let Some(missing) = ["mke2fs", "blkid", "e2fsck"].iter().find(|name| !usual(name)) {
        println!("skipped: needs {missing} where root's programs are");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let called = |name: &str, args: &[&str]| {
        let mut fs2 = Command::new(FS2);
        let done =
            fs2.arg0(name).args(args).current_dir(dir.path()).env("PATH", "/nowhere").output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{name} {args:?}: {done:?}");
    };
    called("mkfs.fs2", &["-q", "new", "16M"]);
    called("fsck.fs2", &["-n", "new"]);
    let done = Command::new(MKFS2).args(["--undo", "new"]).current_dir(dir.path()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    // A plain one.
    called("fsck.fs2", &["-n", "new"]);
}

/// Found: the trace, or the image, was replaced by the page.
#[test]
fn a_report_does_not_replace_what_it_is_of() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.fs2trace");
    std::fs::write(&file, "kept").unwrap();
    let file = file.to_str().unwrap();
    for args in [&["report", "--trace", file, "-o", file][..], &["report", file, "-o", file]] {
        let (code, _, err) = run(FS2, args);
        assert!(code == 2 && err.contains("it is read") && err.contains("another name"), "{args:?}: {err}");
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "kept");
}

/// It trimmed whatever file system lay below the path.
#[test]
fn what_fs2_did_not_mount_is_not_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = run(FS2, &["trim", dir.path().to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("is not mounted by FS2"), "{err}");
}

#[test]
fn a_volume_that_is_not_there_is_named() {
    let gone = "/no/such/volume";
    for (program, code, args) in [
        (FS2, 2, &["status", gone][..]),
        (FS2, 32, &["umount", gone]),
        (FS2, 32, &["mount", gone, "/"]),
        (MKFS2, 1, &[gone]),
        (MKFS2, 1, &["--undo", gone]),
        (CHKFS2, 8, &["-n", gone]),
    ] {
        let (got, _, err) = run(program, args);
        assert_eq!(got, code, "{program} {args:?}: {err}");
        assert!(err.contains(gone) || !nix::unistd::geteuid().is_root(), "{program} {args:?}: {err}");
    }
}

/// The last was all that was told of, or the first.
#[test]
fn each_of_several_that_is_not_unmounted_is_named() {
    let (code, _, err) = run(FS2, &["umount", "/no/such/a", "/no/such/b"]);
    assert_eq!(code, 32);
    let root = nix::unistd::geteuid().is_root();
    assert!(["/no/such/a", "/no/such/b"].iter().all(|gone| err.contains(gone) || !root), "{err}");
    assert_eq!(run(FS2, &["umount"]).0, 1, "none at all");
}

/// As errors: what a volume is called coloured the terminal of whoever made it one. Documents have the name as it is.
#[test]
fn a_name_in_what_is_told_does_not_steer_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let name = "vol\u{1b}[31m\u{7f}\u{9b}2J";
    let image = dir.path().join(name);
    let made =
        Command::new("mke2fs").args(["-q", "-t", "ext2", "-b", "4096"]).arg(&image).arg("32M").output();
    if !made.is_ok_and(|made| made.status.success()) {
        println!("skipped: a_name_in_what_is_told_does_not_steer_the_terminal: needs mke2fs (e2fsprogs)");
        return;
    }
    let image = image.to_str().unwrap();
    let plain = |text: &str| text.matches(char::is_control).all(|c| c == "\n" || c == "\t");
    for (program, args, says) in [
        (MKFS2, &[image][..], "vol?[31m??2J"),
        (CHKFS2, &["-p", image], "vol?[31m??2J"),
        (CHKFS2, &["-p", "--table", image, image], "vol?[31m??2J"),
        (MKFS2, &["--undo", image], "vol?[31m??2J"),
        (MKFS2, &["--undo", image], "vol?[31m??2J"),
    ] {
        let (_, out, err) = run(program, args);
        // What e2fsck says of it, it says itself.
        let own = |text: String| -> String {
            text.lines()
                .filter(|line| !line.contains(" files, "))
                .fold(String::new(), |all, line| all + line + "\n")
        };
        let said = own(out) + &own(err);
        assert!(said.contains(says) && plain(&said), "{program} {args:?}: {said:?}");
    }
    for args in [&["--json", image][..], &["--json", "--undo", image]] {
        let (_, out, err) = run(MKFS2, args);
        assert!(plain(&out) && err.is_empty(), "{args:?}: {out:?} {err:?}");
        let said: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(said["device"], image);
    }
}

/// What a mount point is called coloured the terminal of whoever looked, and could have done more.
#[test]
fn a_name_in_an_error_does_not_steer_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page");
    for (args, told) in [
        (&["status", "/no/\u{1b}[31mred\u{7f}"][..], "fs2: /no/?[31mred? is not mounted"),
        (&["umount", "/no/\u{9b}31mred"], "fs2: /no/?31mred is not mounted"),
        (&["report", "--trace", "/no/\u{1b}c", "-o", page.to_str().unwrap()], "?c: No such file"),
    ] {
        let (_, _, err) = run(FS2, args);
        assert!(err.contains(told) && err.matches(char::is_control).all(|c| c == "\n"), "{args:?}: {err:?}");
    }
    // Of a volume whose daemon is gone; nor does it begin a line.
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("image"), "").unwrap();
    let key = fs2d::runtime::key_of(&at("image")).unwrap();
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let record = serde_json::json!({
        "dir": "/no/\u{1b}[31m\nsuch", "device": at("image"), "control": at(&format!("{key}.ctl")), "log": at(&format!("{key}.log")),
        "pid": ended.id(), "began": 1, "frontend": "ublk", "block_device": at("ublkb0"), "carrier": at(&format!("{key}.nbd")),
        "active": true, "path": at(&format!("{key}.mount")),
    });
    std::fs::write(at(&format!("{key}.mount")), record.to_string()).unwrap();
    let told = Command::new(FS2).arg("status").env("FS2_RUNTIME_DIR", dir.path()).output().unwrap();
    let err = String::from_utf8(told.stderr).unwrap();
    assert!(err.starts_with("fs2: /no/?[31m?such: ") && err.lines().count() == 1, "{err:?}");
}

/// Where `killall fs2` had ended the supervisor alone, the daemon ended with the unmount, set the mark and left its record: a full check was asked for.
#[test]
fn a_daemon_that_ended_in_order_is_not_told_of_as_dead() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let volume = |name: &str| {
        std::fs::write(at(name), "").unwrap();
        let key = fs2d::runtime::key_of(&at(name)).unwrap();
        let record = serde_json::json!({
            "dir": at(&format!("{name}-dir")), "device": at(name), "control": at(&format!("{key}.ctl")), "log": at(&format!("{key}.log")),
            "pid": ended.id(), "began": 1, "frontend": "ublk", "block_device": at("ublkb0"), "carrier": at(&format!("{key}.nbd")),
            "active": true, "path": at(&format!("{key}.mount")),
        });
        std::fs::write(at(&format!("{key}.mount")), record.to_string()).unwrap();
        key
    };
    let (ended_in_order, _) = (volume("ended"), volume("killed"));
    // What the mark leaves.
    std::fs::write(at(&format!("{ended_in_order}.stamp")), "").unwrap();
    let done =
        Command::new(FS2).args(["status", "--json"]).env("FS2_RUNTIME_DIR", dir.path()).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    let of = |name: &str| {
        format!("fs2: {}: its daemon died, and it is unmounted;", at(&format!("{name}-dir")).display())
    };
    assert!(said.contains(&of("killed")) && !said.contains(&of("ended")), "{said}");
    let list: Vec<serde_json::Value> = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(list.len(), 1, "{list:?}");
    // Without a mark, and without a supervisor who would have told: what it said of its end is in its log, and one that begins anew makes it void.
    let serves = "2026-11-29T02:41:16.123456Z  INFO fs2d::cli: serving /v by fuse /f; control socket /c\n";
    let detached = |why: &str| {
        format!("2026-11-29T02:41:17.123456Z  WARN fs2d::daemon: /v detached without a mark: {why}\n")
    };
    let inactive = detached("the volume was served inactive: there is no mark");
    for (name, log) in [
        ("inactive", format!("{serves}{inactive}")),
        ("frozen", format!("{serves}{}", detached("a write failed"))),
        ("later", format!("{serves}{inactive}{serves}")),
    ] {
        let key = volume(name);
        std::fs::write(at(&format!("{key}.log")), log).unwrap();
        let record = at(&format!("{key}.mount"));
        let text = std::fs::read_to_string(&record).unwrap();
        std::fs::write(&record, text.replace("\"active\":true", "\"active\":false")).unwrap();
    }
    let done =
        Command::new(FS2).args(["status", "--json"]).env("FS2_RUNTIME_DIR", dir.path()).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    let of = |name: &str, what: &str| format!("fs2: {}: {what}", at(&format!("{name}-dir")).display());
    for told in [
        of("inactive", "inactive, and unmounted: the volume was served inactive: there is no mark\n"),
        of(
            "frozen",
            "it is unmounted, but not as a clean FS2 volume: a write failed; before the next mount: chkfs2 -f -p ",
        ),
        of("later", "its daemon died, and it is unmounted;"),
    ] {
        assert!(said.contains(&told), "{told} in {said}");
    }
    let list: Vec<serde_json::Value> = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(list.len(), 2, "{list:?}");
    let left = std::fs::read_dir(dir.path())
        .unwrap()
        .flatten()
        .filter(|e| e.path().extension().is_some_and(|x| x == "mount"));
    assert_eq!(left.count(), 0);
}
