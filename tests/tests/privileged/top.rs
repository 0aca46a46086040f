//! `fs2 top` on a terminal, over a volume mounted by `fs2 mount`.

use std::fs;

use fs2_tests::{KERNEL, Mounted, OnTerminal, Rng, Scratch, mke2fs, needs};

#[test]
fn it_shows_a_mounted_volume() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 64 << 20, &["-t", "ext2", "-b", "4096"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let socket = scratch.path("metrics");
    let metrics = format!("--metrics=unix:{}", socket.display());
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &["--require-active", &metrics]);
    assert!(socket.exists(), "fs2 mount passes --metrics through");
    for i in 0..20 {
        fs::write(mounted.dir().join(format!("{i}")), Rng::new(i).bytes(50_000)).unwrap();
    }
    mounted.cold();
    let mut top = OnTerminal::start(
        scratch.command("fs2").args(["top", "--interval", "0.1"]).arg(mounted.dir()),
        80,
        24,
    );
    top.wait_for("active; copies are made");
    let read: usize = (0..20).map(|i| fs::read(mounted.dir().join(format!("{i}"))).unwrap().len()).sum();
    assert_eq!(read, 1_000_000);
    top.wait_for("99 % within");
    top.press("q");
    assert_eq!(top.ended(), (0, true), "{:?}", top.shown());
    assert!(top.shown().contains("\x1b[?1049l"), "{:?}", top.shown());
    let once = scratch.run("fs2", ["top".as_ref(), "--once".as_ref(), mounted.dir().as_os_str()]).ended(0);
    once.says(&format!("fs2 top  {}", mounted.dir().display())).says(" fuse      a second: read ");
    mounted.umount().ended(0);
    assert!(!socket.exists(), "it goes with the daemon");
}
