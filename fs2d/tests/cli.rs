//! The program itself: help, version, and the exit codes of a command line that makes no sense.

use std::process::Command;

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
