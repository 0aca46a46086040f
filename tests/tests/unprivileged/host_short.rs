//! An image whose file system is nearly full: no copies, and the daemon says why.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use fs2_tests::{Exposition, Need, Rng, Scratch, Served, mke2fs, needs};

#[test]
fn a_daemon_says_that_the_images_file_system_is_short_of_space() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, files) = (scratch.path("image"), scratch.make_dir("files"));
    fs::write(files.join("a"), Rng::new(7).bytes(1 << 20)).unwrap();
    mke2fs(&image, 16 << 20, &["-t", "ext2", "-d", files.to_str().unwrap()]);
    scratch.run("mkfs2", [&image]).ended(0);
    let socket = scratch.path("metrics");
    let metrics = format!("--metrics=unix:{}", socket.display());
    let control = scratch.path("image.ctl");
    let states = ["host-short", "copying"];
    // Nobody has all of a disk free, and everybody nothing.
    for ((reserve, text), state) in
        [("100%", "no copies: the"), ("0%", "copies are made")].into_iter().zip(states)
    {
        let served =
            Served::new(&scratch, &image, &["--require-active", "--host-reserve", reserve, &metrics]);
        // The daemon looks now and then, and once at the start.
        for _ in 0..600 {
            if served.status()["watermark_state"] == state {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(served.status()["watermark_state"], state, "{}", served.log());
        scratch.run("fs2", ["status", "--control", control.to_str().unwrap()]).ended(0).says(text);
        assert_eq!(
            served.log().contains("allow less: --host-reserve"),
            state == "host-short",
            "{}",
            served.log()
        );
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let page = Exposition::parse(page.split_once("\r\n\r\n").unwrap().1).unwrap();
        for other in states {
            let is = f64::from(u8::from(other == state));
            assert_eq!(page.value("fs2_watermark_state", &[("state", other)]), is, "{other}");
        }
        served.stop().ended(0);
    }
}
