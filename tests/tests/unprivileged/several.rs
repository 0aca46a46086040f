//! Several daemons at a time, and what one leaves that was killed.

use std::path::{Path, PathBuf};

use fs2_tests::{Need, OnTerminal, Rng, Scratch, Served, mke2fs, needs};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

fn image(scratch: &Scratch, name: &str) -> PathBuf {
    let (image, files) = (scratch.path(name), scratch.make_dir("files"));
    std::fs::write(files.join("a"), Rng::new(7).bytes(100_000)).unwrap();
    mke2fs(&image, 16 << 20, &["-t", "ext2", "-b", "4096", "-d", files.to_str().unwrap()]);
    scratch.run("mkfs2", [&image]).ended(0);
    image
}

fn sockets(scratch: &Scratch) -> Vec<String> {
    let entries = std::fs::read_dir(scratch.runtime()).unwrap().flatten();
    let names = entries.map(|e| e.file_name().into_string().unwrap());
    let mut all: Vec<String> = names.filter(|n| n.ends_with(".ctl")).collect();
    all.sort();
    all
}

#[test]
fn each_is_listed_and_a_killed_one_is_cleared_away() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (a, b) = (image(&scratch, "a"), image(&scratch, "b"));
    let first = Served::found(&scratch, &a, &["--require-active"]);
    let status = || scratch.run("fs2", ["status"]).ended(0);
    let line = |image: &Path| format!("-  {}  active  0 replicas, 0 of 0 reads from them, ", image.display());
    status().says(&line(&a));
    // One is shown by itself.
    let once = || scratch.run("fs2", ["top", "--once", "--interval", "0.1"]).ended(0);
    once().says(" state     active; ");

    let metrics = format!("--metrics=unix:{}", scratch.path("metrics").display());
    let second = Served::found(&scratch, &b, &["--require-active", &metrics]);
    assert_eq!(status().out.lines().count(), 2);
    status().says(&line(&a)).says(&line(&b));
    let json = scratch.run("fs2", ["status", "--json"]).ended(0).json();
    let of = |n: usize, field: &str| json[n][field].clone();
    assert_eq!((json.as_array().unwrap().len(), of(0, "dir"), of(0, "error")), (2, Value::Null, Value::Null));
    assert_eq!([of(0, "volume"), of(1, "volume")], [a.to_str().unwrap(), b.to_str().unwrap()]);
    once().says("2 volumes").says("mounted on").says("/a ").says("/b ");
    scratch.run("fs2", ["report", "-o", "/dev/null"]).ended(2);

    let mut top = OnTerminal::start(scratch.command("fs2").args(["top", "--interval", "0.1"]), 100, 24);
    top.wait_for("2 volumes");
    top.press("j\r");
    top.wait_for("volume 2 of 2");
    top.wait_for("of the blocks");
    top.press("\t");
    top.wait_for("volume 1 of 2");
    second.kill();
    assert_eq!(sockets(&scratch), ["a.ctl", "b.ctl"], "it left its socket");
    // The one that lives is told of, and the other one's socket goes.
    let after = status();
    assert_eq!((after.out.lines().count(), after.err.as_str()), (1, ""), "{}", after.out);
    after.says(&line(&a));
    assert_eq!(sockets(&scratch), ["a.ctl"]);
    top.press("l");
    top.wait_for("1 volume ");
    top.press("q");
    assert_eq!(top.ended(), (0, true), "{:?}", top.shown());

    // Its metrics' socket is no hindrance either.
    let again = Served::found(&scratch, &b, &[&metrics]);
    assert_eq!(sockets(&scratch), ["a.ctl", "b.ctl"]);
    again.stop().ended(0);
    first.kill();
    status().says("no volume is mounted by FS2, and no daemon serves one");
    assert_eq!(sockets(&scratch), Vec::<String>::new());
}

/// Scripts saw a shorter list, and no volume that had anything wrong.
#[test]
fn who_answers_no_more_is_in_the_list_for_scripts() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch, "a");
    let served = Served::found(&scratch, &image, &[]);
    // What `fs2 mount` leaves of daemons that died: the mount is there, or not any more.
    // Mounted is what no device is there for, and yet a mount: any that has a word for a source.
    for (name, dir, block_device) in [("there", "/proc", "proc"), ("gone", "/gone", "/dev/loop-none")] {
        let path = scratch.runtime().join(format!("{name}.mount"));
        let record = json!({
            "dir": dir, "device": format!("/{name}.img"), "control": format!("/{name}.ctl"), "log": "/none",
            "pid": 999_999_999, "frontend": "fuse", "block_device": block_device, "carrier": "/none", "path": path,
        });
        std::fs::write(&path, record.to_string()).unwrap();
    }
    kill(served.pid(), Signal::SIGSTOP).unwrap();
    let told = scratch.run("fs2", ["status", "--json"]).ended(2);
    kill(served.pid(), Signal::SIGCONT).unwrap();
    let errors = [
        (json!("/gone"), json!("/gone.img"), "its daemon died, and it is unmounted; before the next mount: "),
        (
            json!("/proc"),
            json!("/there.img"),
            "its daemon is gone (process 999999999); fs2 umount /proc, then ",
        ),
        (Value::Null, Value::Null, "did not answer within 2 s"),
    ];
    let list = told.json();
    assert_eq!(list.as_array().unwrap().len(), errors.len(), "{list}");
    for (entry, (dir, volume, error)) in list.as_array().unwrap().iter().zip(errors) {
        assert_eq!((&entry["dir"], &entry["volume"]), (&dir, &volume), "{entry}");
        let said = entry["error"].as_str().unwrap();
        assert!(said.contains(error) && told.err.contains(said) && entry["pid"].is_null(), "{entry}");
    }
    served.stop().ended(0);
}

/// "No volume is mounted by FS2" was said of what could not be looked at.
#[test]
fn a_runtime_directory_that_cannot_be_read_is_told_of() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, file) = (image(&scratch, "a"), scratch.path("file"));
    std::fs::write(&file, "").unwrap();
    let dir = format!("the runtime directory {}: Not a directory", file.display());
    for (args, code) in [
        (&["status"][..], 2),
        (&["status", "--json"], 2),
        (&["status", "/srv"], 2),
        (&["trim"], 2),
        (&["umount", "/srv"], 32),
    ] {
        let mut fs2 = scratch.command("fs2");
        let said = fs2_tests::run(fs2.env("FS2_RUNTIME_DIR", &file).args(args)).ended(code).says(&dir);
        assert_eq!(said.out, "", "{args:?}");
    }
    let below = file.join("below");
    let mut fs2d = scratch.command("fs2d");
    fs2d.env("FS2_RUNTIME_DIR", &below).arg("serve").arg(&image);
    fs2_tests::run(&mut fs2d).says(&below.display().to_string());
}

/// Another user made the directory in /tmp first, and `fs2 status` removed what a record there named as its own files.
#[test]
fn a_record_in_a_directory_of_others_is_not_acted_on() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let scratch = Scratch::new();
    let (dir, kept) = (scratch.make_dir("others"), [scratch.path("kept"), scratch.path("kept too")]);
    let record = dir.join("x.mount");
    let forged = json!({
        "dir": "/x", "device": "/x.img", "control": "/x.ctl", "log": kept[1], "pid": 999_999_999, "frontend": "fuse",
        "block_device": "/dev/loop-none", "carrier": "/none", "path": kept[0],
    });
    let mode = |mode| std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
    let fs2 = |args: &[&str], code: i32, says: &str| {
        kept.iter().for_each(|kept| std::fs::write(kept, "").unwrap());
        std::fs::write(&record, forged.to_string()).unwrap();
        let mut fs2 = scratch.command("fs2");
        let done = fs2_tests::run(fs2.env("FS2_RUNTIME_DIR", &dir).args(args)).ended(code);
        assert!(kept.iter().all(|kept| kept.exists()), "{args:?}");
        done.says(&format!("the runtime directory {}: ", dir.display())).says(says);
        assert!(record.exists(), "{args:?}");
    };
    let all = |says: &str| {
        for (args, code) in [
            (&["status"][..], 2),
            (&["status", "--json"], 2),
            (&["status", "/x"], 2),
            (&["top", "--once"], 2),
            (&["trim"], 2),
            (&["upgrade", "/x"], 2),
            (&["umount", "/x"], 32),
        ] {
            fs2(args, code, says);
        }
    };
    mode(0o777);
    all("others may write to it (mode 0777)");
    mode(0o700);
    if nix::unistd::geteuid().is_root() {
        chown(&dir, Some(65534), None).unwrap();
        all("it belongs to user 65534");
        chown(&dir, Some(0), None).unwrap();
    }
    // In one's own it is, and the files are those beside it.
    std::fs::write(&record, forged.to_string()).unwrap();
    let mut fs2 = scratch.command("fs2");
    fs2_tests::run(fs2.env("FS2_RUNTIME_DIR", &dir).arg("status")).says("/x: its daemon died");
    assert!(kept.iter().all(|kept| kept.exists()) && !record.exists());
}
