//! A foreign writer between two sessions of one boot is noticed by every later one, until somebody checks. The only test of this
//! program: it sets its environment. Needs e2fsprogs, and root for loop devices, without which that part says that it is skipped.

#[path = "../../tests/src/loop_dev.rs"]
#[expect(unreachable_pub, reason = "a library has it, too")]
mod loop_dev;
#[path = "it/mkfs2_support/mod.rs"]
#[expect(dead_code, reason = "a part is used here")]
mod mkfs2_support;

use std::os::unix::fs::FileExt;
use std::path::Path;

use clap::Parser;
use fs2_engine::{Inactive, Standing};
use fs2d::runtime;
use fs2d::settings::Settings;
use loop_dev::LoopDev;
use mkfs2_support::{CHKFS2, MKFS2, image, ok};

#[derive(Parser)]
struct Only {
    #[command(flatten)]
    settings: Settings,
}

fn session(path: &Path, options: &[&str]) -> Standing {
    let settings = Only::parse_from(["x"].iter().chain(options)).settings;
    let served = fs2d::daemon::open(path, &settings).unwrap();
    let standing = served.server.with_volume(|v| v.standing().clone());
    served.end();
    standing
}

/// A session through a loop device made the image by itself inactive, and did not see who had written that.
fn by_a_loop_device(dir: &Path, image: &Path) -> Option<()> {
    let written = Standing::Inactive(Inactive::WrittenSince);
    let through = |options: &[&str]| {
        let attached = LoopDev::attach(image, &[]).ok()?;
        Some(session(attached.path(), options))
    };
    let foreign = || {
        let file = std::fs::File::options().write(true).open(image).unwrap();
        file.write_at(&[9], 23 << 20).unwrap();
    };
    assert_eq!(session(image, &[]), Standing::Active);
    for _ in 0..2 {
        assert_eq!(through(&[])?, Standing::Active);
        assert_eq!(session(image, &[]), Standing::Active);
    }
    // Who wrote the image is noticed by either way to it after a session by either, also after one that looked on.
    for last_by_itself in [true, false] {
        let last = if last_by_itself { session(image, &[]) } else { through(&[])? };
        assert_eq!(last, Standing::Active);
        foreign();
        assert_ne!(through(&["--passive"])?, Standing::Active);
        assert_eq!((through(&[])?, session(image, &[])), (written.clone(), written.clone()));
        let attached = LoopDev::attach(image, &[]).ok()?;
        let device = attached.path().to_str()?;
        let said = mkfs2_support::run(dir, CHKFS2, &["-f", "-p", device]);
        assert!(said.code <= 1, "{said:?}");
        assert_eq!(session(attached.path(), &[]), Standing::Active);
        // What the daemon left says that nobody wrote: so it does when chkfs2 has written the mark again.
        assert_eq!(mkfs2_support::run(dir, CHKFS2, &["-p", device]).code, 0);
        drop(attached);
        assert_eq!(session(image, &[]), Standing::Active);
    }
    // The same where only the image's own record is left.
    let attached = LoopDev::attach(image, &[]).ok()?;
    let record = runtime::runtime_dir().join(format!("{}.stamp", runtime::key_of(attached.path()).ok()?));
    let _ = std::fs::remove_file(record);
    assert_eq!(mkfs2_support::run(dir, CHKFS2, &["-p", attached.path().to_str()?]).code, 0);
    drop(attached);
    foreign();
    assert_eq!(session(image, &[]), written);
    Some(())
}

#[test]
fn what_was_written_since_is_not_forgotten_by_a_session_that_looked_on() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // SAFETY: this process has one thread yet.
    unsafe { std::env::set_var("FS2_RUNTIME_DIR", dir.join("run")) };
    let path = image(dir, "v", "-b 1024", "24M");
    ok(dir, MKFS2, &["v"]);
    assert_eq!(session(&path, &[]), Standing::Active);
    assert_eq!(session(&path, &[]), Standing::Active);
    // A block that nothing else would miss.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_at(&[7], 23 << 20).unwrap();
    drop(file);
    for options in [&[][..], &["--passive"], &[]] {
        let standing = session(&path, options);
        assert_ne!(standing, Standing::Active, "{options:?}");
        if options.is_empty() {
            assert_eq!(standing, Standing::Inactive(Inactive::WrittenSince));
        }
    }
    assert_eq!(mkfs2_support::run(dir, CHKFS2, &["-n", "-f", "v"]).code, 4, "there is something to write");
    assert_eq!(session(&path, &[]), Standing::Inactive(Inactive::WrittenSince), "nothing was mended");
    let said = mkfs2_support::run(dir, CHKFS2, &["-f", "-p", "v"]);
    assert!(said.code <= 1, "{said:?}");
    assert_eq!(session(&path, &[]), Standing::Active);
    // chkfs2 erases the mark and writes it again; what the daemon's record says of foreign writers goes on.
    assert_eq!(mkfs2_support::run(dir, CHKFS2, &["-p", "v"]).code, 0);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_at(&[8], 23 << 20).unwrap();
    drop(file);
    assert_eq!(session(&path, &[]), Standing::Inactive(Inactive::WrittenSince));

    // A mode is changed at the same time as a write would have changed, and no other time tells of both: the reason names it.
    let said = mkfs2_support::run(dir, CHKFS2, &["-f", "-p", "v"]);
    assert!(said.code <= 1, "{said:?}");
    assert_eq!((session(&path, &[]), session(&path, &[])), (Standing::Active, Standing::Active));
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let Standing::Inactive(why) = session(&path, &[]) else { panic!("its change time is another") };
    assert!(why.to_string().contains("renamed, linked, or its mode or times changed"), "{why}");
    let said = mkfs2_support::run(dir, CHKFS2, &["-f", "-p", "v"]);
    assert!(said.code <= 1 && said.out.contains("its mode or times changed"), "{said:?}");
    assert_eq!(session(&path, &[]), Standing::Active);

    // Nor by another boot, where a session or a refusal told of it.
    let foreign = |at: u64| {
        // A kernel's clock for files may stand still for 10 ms.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_at(&[at as u8], at << 20).unwrap();
    };
    let mended = || {
        let said = mkfs2_support::run(dir, CHKFS2, &["-f", "-p", "v"]);
        assert!(said.code <= 1, "{said:?}");
    };
    let large = mkfs2_support::data_blocks(&path)[0].first().0;
    let replicate = ["replicate", "v", "--blocks", &format!("{large}-{}", large + 9), "--near", "12000"];
    for told_by in [&["--require-active"][..], &["replicate"], &[]] {
        assert_eq!(session(&path, &[]), Standing::Active);
        foreign(21);
        match told_by {
            ["replicate"] => {
                let said = mkfs2_support::run(dir, MKFS2, &replicate);
                assert!(said.code == 1 && said.err.contains("the volume was written"), "{said:?}");
            }
            [] => assert_eq!(session(&path, &[]), Standing::Inactive(Inactive::WrittenSince)),
            options => {
                let settings = Only::parse_from(["x"].iter().chain(options)).settings;
                let refused = fs2d::daemon::open(&path, &settings).map(|_| ()).unwrap_err();
                assert!(refused.to_string().contains("the backing was written"), "{refused}");
            }
        }
        std::fs::remove_dir_all(dir.join("run")).unwrap();
        std::fs::create_dir(dir.join("run")).unwrap();
        assert_eq!(session(&path, &[]), Standing::Inactive(Inactive::NoMark));
        mended();
    }
    // From a check or copies made by hand on, before any session.
    foreign(20);
    assert_eq!(session(&path, &[]), Standing::Inactive(Inactive::WrittenSince));
    mended();
    ok(dir, MKFS2, &replicate);
    foreign(19);
    assert_eq!(session(&path, &[]), Standing::Inactive(Inactive::WrittenSince));
    mended();
    // While a session that changes nothing is there, and behind one that was killed.
    let idle = || {
        let settings = Only::parse_from(["x"]).settings;
        let served = fs2d::daemon::open(&path, &settings).unwrap();
        assert!(served.server.with_volume(|v| *v.standing() == Standing::Active));
        served
    };
    let served = idle();
    foreign(18);
    assert!(served.end().unwrap().untouched);
    drop(served);
    assert_eq!(session(&path, &[]), Standing::Inactive(Inactive::WrittenSince));
    mended();
    let stamp = dir.join(format!("run/{}.stamp", runtime::key_of(&path).unwrap()));
    // What a session that was killed leaves.
    let killed = || {
        idle().end();
        std::fs::rename(&stamp, stamp.with_extension("began.stamp")).unwrap();
    };
    killed();
    assert_eq!(session(&path, &[]), Standing::Active, "nobody wrote");
    killed();
    foreign(17);
    assert_eq!(session(&path, &[]), Standing::Inactive(Inactive::WrittenSince));
    mended();
    assert_eq!(session(&path, &[]), Standing::Active);

    // A mark that was written below a mount whose daemon had died knows nothing of what the kernel has allocated.
    assert_eq!(session(&path, &["--again"]), Standing::Inactive(Inactive::Orphaned));
    assert_eq!(session(&path, &[]), Standing::Active);
    // An image that is renamed while it is served keeps its record.
    let served = idle();
    std::fs::rename(&path, dir.join("renamed")).unwrap();
    served.end();
    drop(served);
    std::fs::rename(dir.join("renamed"), &path).unwrap();
    assert!(stamp.exists() && !stamp.with_extension("began.stamp").exists());
    mended();

    // No room for a stamp, as in a full /run: nobody could tell a foreign writer.
    std::fs::create_dir(stamp.with_extension("began.stamp.new")).unwrap();
    assert_eq!(session(&path, &[]), Standing::Active);
    std::fs::remove_dir(stamp.with_extension("began.stamp.new")).unwrap();
    assert_eq!(session(&path, &[]), Standing::Inactive(Inactive::WrittenSince));
    let said = mkfs2_support::run(dir, CHKFS2, &["-f", "-p", "v"]);
    assert!(said.code <= 1, "{said:?}");
    assert_eq!(session(&path, &[]), Standing::Active);

    // A flush that failed below a mount is the business of each daemon that goes on with it, and of nobody else's.
    runtime::LostFile::of(&path).unwrap().write().unwrap();
    let refuses = |options: &[&str]| {
        let settings = Only::parse_from(["x"].iter().chain(options)).settings;
        let served = fs2d::daemon::open(&path, &settings).unwrap();
        let lost = served.server.with_volume(|v| v.refuses_changes().is_some());
        served.end();
        lost
    };
    assert!(refuses(&["--again"]) && refuses(&["--again", "--passive"]));
    assert!(!refuses(&[]) && !refuses(&["--again"]));

    if by_a_loop_device(dir, &path).is_none() {
        eprintln!("skipped: sessions through a loop device (losetup needs root)");
    }
}
