//! `fs2 top` on a real terminal, over a daemon that serves a volume. What a screen holds is in the library's tests.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fs2_tests::{Need, OnTerminal, Rng, Scratch, Served, mke2fs, needs, program};
use nix::sys::signal::Signal;

const ALTERNATE: &str = "\x1b[?1049h";
const NORMAL: &str = "\x1b[?1049l";
const CURSOR: &str = "\x1b[?25h";

fn image(scratch: &Scratch) -> PathBuf {
    let (image, files) = (scratch.path("image"), scratch.make_dir("files"));
    std::fs::write(files.join("a"), Rng::new(7).bytes(1 << 20)).unwrap();
    mke2fs(&image, 32 << 20, &["-t", "ext2", "-b", "4096", "-d", files.to_str().unwrap()]);
    scratch.run("mkfs2", [&image]).ended(0);
    image
}

/// It got escape sequences that it shows as they are.
#[test]
fn a_terminal_without_a_cursor_is_not_drawn_on() {
    let scratch = Scratch::new();
    let mut command = std::process::Command::new("env");
    command.env("FS2_RUNTIME_DIR", scratch.runtime()).arg("TERM=dumb").arg(program("fs2")).arg("top");
    let mut top = OnTerminal::start(&mut command, 80, 24);
    top.wait_for("fs2 top --once");
    assert_eq!(top.ended().0, 1);
    assert!(!top.shown().contains('\x1b'), "{:?}", top.shown());
}

#[test]
fn it_draws_and_leaves_the_terminal_as_it_was() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let served = Served::new(&scratch, &image, &["--require-active"]);
    let control = scratch.path("image.ctl");
    let top = |columns, rows| {
        // A hangup is heeded also where these tests run under nohup.
        let mut command = std::process::Command::new("env");
        command.arg("--default-signal=HUP").arg(program("fs2")).env("NO_COLOR", "1");
        command.env("FS2_RUNTIME_DIR", scratch.runtime());
        command.args(["top", "--interval", "0.1", "--control"]).arg(&control);
        OnTerminal::start(&mut command, columns, rows)
    };
    let back = |top: &OnTerminal| {
        // What it wrote last may be read after its end was seen, and not all at once.
        let patience = Instant::now() + Duration::from_secs(30);
        loop {
            let shown = top.shown();
            let (left, last) = (shown.rfind(NORMAL), shown.rfind(ALTERNATE));
            let back = left.is_some() && left > last && shown.rfind(CURSOR) > last;
            if back || Instant::now() > patience {
                return back;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };

    let mut full = top(80, 24);
    full.wait_for(ALTERNATE);
    full.wait_for("active");
    full.wait_for("of the blocks");
    full.press("h");
    full.wait_for("list of volumes");
    full.press("hp");
    full.wait_for("PAUSED");
    full.press("q");
    assert_eq!((full.ended(), back(&full)), ((0, true), true), "{:?}", full.shown());

    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let mut ended = top(80, 24);
        ended.wait_for("active");
        ended.signal(signal);
        assert_eq!((ended.ended(), back(&ended)), ((0, true), true), "{signal}: {:?}", ended.shown());
    }

    let mut small = top(20, 5);
    small.wait_for("too small");
    // Control-C, as a key.
    small.press("\x03");
    assert_eq!((small.ended(), back(&small)), ((0, true), true));

    // The daemon goes; what was known stays, with the reason.
    let mut alone = top(80, 24);
    alone.wait_for("active");
    served.stop().ended(0);
    alone.wait_for("no FS2 daemon answers");
    alone.press("q");
    assert_eq!((alone.ended(), back(&alone)), ((0, true), true));
}

#[test]
fn without_a_terminal_it_prints_once_or_says_what_does() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    scratch.run("fs2", ["top", "/"]).ended(1).says("this is no terminal; fs2 status");
    scratch.run("fs2", ["top", "--once", "/"]).ended(2).says("not mounted by FS2");
    scratch.run("fs2", ["top", "--once"]).ended(2).says("no volume is mounted by FS2");
    scratch.run("fs2", ["top", "--once", "--interval", "0"]).ended(1).says("is not between");
    let image = image(&scratch);
    let served = Served::new(&scratch, &image, &["--require-active"]);
    let control = scratch.path("image.ctl");
    let args = ["top", "--once", "--interval", "0.1", "--control", control.to_str().unwrap()];
    let done = scratch.run("fs2", args).ended(0);
    assert_eq!(done.out.lines().count(), 24, "{}", done.out);
    assert!(done.out.lines().all(|l| l.chars().count() <= 80), "{}", done.out);
    // What cannot be told is no success.
    let mut full = std::process::Command::new("sh");
    full.args(["-c", r#""$0" "$@" > /dev/full"#]).arg(fs2_tests::program("fs2")).args(args);
    fs2_tests::run(&mut full).ended(2).says("No space left");
    done.says(" state     active; ").says("q quit  p pause").says(" nbd       a second: read 0 ");
    served.stop().ended(0);
    scratch.run("fs2", args).ended(2).says("no FS2 daemon answers");
}
