//! Ctrl-C in the middle of `mkfs2`, `mkfs2 --undo`, `mkfs2 replicate` and `chkfs2`: they say so and what to do, and that does it.

use std::path::Path;
use std::process::Command;

use fs2_tests::{Done, Need, Scratch, e2fsck_clean, mke2fs, needs, program, run};

/// A program that gets SIGINT at its `nth` call of that name.
fn interrupted(scratch: &Scratch, call: &str, nth: u32, name: &str, args: &[&str], image: &Path) -> Done {
    let mut strace = Command::new("strace");
    strace.env("FS2_RUNTIME_DIR", scratch.runtime()).arg("-o").arg(scratch.path("trace"));
    strace.args(["-e", &format!("trace={call}"), "-e", &format!("inject={call}:signal=INT:when={nth}")]);
    run(strace.arg(program(name)).args(args).arg(image))
}

#[test]
fn what_is_half_done_is_said_and_the_command_that_is_named_does_it() {
    let programs = ["mke2fs", "e2fsck", "strace"].map(Need::Program);
    if !needs(&programs) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    let name = image.display();
    let words = format!("{name}: interrupted");
    let again = |done: Done, command: &str| {
        done.says(&words).says(command);
        let (ours, theirs) = (program("mkfs2"), std::env::var("PATH").unwrap());
        let path = format!("{}:{theirs}", ours.parent().unwrap().display());
        run(Command::new("sh")
            .env("FS2_RUNTIME_DIR", scratch.runtime())
            .env("PATH", path)
            .args(["-c", command]))
    };

    let made = interrupted(&scratch, "pwrite64", 2, "mkfs2", &[], &image).ended(1);
    again(made, &format!("e2fsck -f -p {name}; mkfs2 {name}")).ended(0).says("is an FS2 volume now");

    let copies = ["replicate", "--blocks=1-200", "--near=30000"];
    let copied = interrupted(&scratch, "pwrite64", 2, "mkfs2", &copies, &image).ended(1);
    again(copied, &format!("chkfs2 -f -p {name}")).ended(1);
    scratch.run("mkfs2", copies.map(Path::new).into_iter().chain([&*image])).ended(0);

    // Its first reads are the look, before e2fsck.
    let looked = interrupted(&scratch, "pwrite64", 2, "chkfs2", &["-f", "-p"], &image).ended(32);
    again(looked, &format!("chkfs2 -f -p {name}")).ended(1);

    let undone = interrupted(&scratch, "fallocate", 1, "mkfs2", &["--undo"], &image).ended(1);
    again(undone, &format!("e2fsck -f -p {name}; mkfs2 --undo {name}"))
        .ended(0)
        .says("is a plain ext2 volume again");
    e2fsck_clean(&image);
}

/// `nohup mkfs2`, which may take an hour, ended with its terminal, as did a benchmark.
#[test]
fn a_hangup_that_nohup_has_ignored_interrupts_nothing() {
    if !needs(&["mke2fs", "strace"].map(Need::Program)) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    let ignoring = |call: &str, nth: u32, name: &str| {
        let mut sh = Command::new("sh");
        sh.env("FS2_RUNTIME_DIR", scratch.runtime()).current_dir(scratch.dir());
        sh.args(["-c", "trap '' HUP; exec strace \"$@\"", "sh", "-o"]).arg(scratch.path("trace"));
        sh.args([
            "-f",
            "-e",
            &format!("trace={call}"),
            "-e",
            &format!("inject={call}:signal=HUP:when={nth}"),
        ]);
        sh.arg(program(name));
        sh
    };
    run(ignoring("pwrite64", 2, "mkfs2").arg(&image)).ended(0).says("is an FS2 volume now");
    let dir = scratch.make_dir("dir");
    let mut bench = ignoring("mkdir", 2, "fsbench");
    run(bench.args(["run", "zipf-1", "--ops", "10"]).arg(&dir)).ended(0);
}

/// The file that it had made stayed.
#[test]
fn a_file_that_mkfs_made_is_gone_where_it_is_interrupted() {
    if !needs(&["mke2fs", "strace"].map(Need::Program)) {
        return;
    }
    let scratch = Scratch::new();
    let (bin, image) = (scratch.make_dir("bin"), scratch.path("new.img"));
    let mkfs = bin.join("mkfs.fs2");
    std::os::unix::fs::symlink(program("fs2"), &mkfs).unwrap();
    let making = |mut command: Command| {
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        run(command
            .env("FS2_RUNTIME_DIR", scratch.runtime())
            .env("PATH", path)
            .arg("-q")
            .arg(&image)
            .arg("16M"))
    };
    let mut strace = Command::new("strace");
    strace.arg("-o").arg(scratch.path("trace")).args(["-e", "trace=pwrite64"]);
    strace.args(["-e", "inject=pwrite64:signal=INT:when=2"]).arg(&mkfs);
    making(strace)
        .ended(1)
        .says("new.img: interrupted; some of it may be done")
        .says("new.img: removed again");
    assert!(!image.exists());
    // As Ctrl-C comes to it and to mke2fs, and to the one alone.
    let mke2fs = fs2_tests::tool("mke2fs").unwrap();
    for ends in ["kill -INT $$".to_owned(), format!("exec {} \"$@\"", mke2fs.display())] {
        let script = bin.join("mke2fs");
        std::fs::write(&script, format!("#!/bin/sh\nkill -INT $PPID; {ends}\n")).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        making(Command::new(&mkfs)).ended(1).says("new.img: interrupted, and removed again");
        assert!(!image.exists());
    }
}
