//! Several daemons at a time, and what one leaves that was killed.

use std::path::{Path, PathBuf};

use fs2_tests::{Need, OnTerminal, Rng, Scratch, Served, mke2fs, needs};

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
    assert_eq!((json.as_array().unwrap().len(), of(0, "dir")), (2, serde_json::Value::Null));
    assert_eq!([of(0, "volume"), of(1, "volume")], [a.to_str().unwrap(), b.to_str().unwrap()]);
    once().says("2 volumes").says("mounted on").says("/a ").says("/b ");
    scratch.run("fs2", ["report", "-o", "/dev/null"]).ended(2);

    let mut top = OnTerminal::start(scratch.command("fs2").args(["top", "--interval", "0.1"]), 100, 24);
    top.wait_for("2 volumes");
    top.press("j\r");
    top.wait_for("volume 2 of 2");
    top.wait_for("of the volume");
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
