//! The control sample of a daemon: in its status, its metrics and a report.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use fs2_tests::{Ask, Exposition, NbdClient, Need, Rng, Scratch, Served, dump, mke2fs, needs};

#[test]
fn what_copies_gain_is_measured() {
    if !needs(&[Need::Program("mke2fs"), Need::Program("dumpe2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, files) = (scratch.path("image"), scratch.make_dir("files"));
    fs::write(files.join("a"), Rng::new(7).bytes(4 << 20)).unwrap();
    mke2fs(&image, 32 << 20, &["-t", "ext2", "-b", "4096", "-d", files.to_str().unwrap()]);
    scratch.run("mkfs2", [&image]).ended(0);
    let used: Vec<u64> = {
        let dump = dump(&image);
        (0..dump.blocks).filter(|b| !dump.is_free(*b)).take(400).collect()
    };
    let content = fs::read(&image).unwrap();
    let socket = scratch.path("metrics");
    let metrics = format!("--metrics=unix:{}", socket.display());
    let args = ["--require-active", "--policy", "torture", "--control-sample", "1/2", &metrics];
    let served = Served::new(&scratch, &image, &args);
    let control = scratch.path("image.ctl");
    let control = control.to_str().unwrap();
    let text = || scratch.run("fs2", ["status", "--control", control]).ended(0);
    text().says("  control     too few reads yet: 0 were sent to their originals (measured, one");
    let sent = || served.status()["control"]["originals"]["reads"].as_u64().unwrap();
    let mut client = NbdClient::connect(served.socket()).unwrap();
    // What the daemon itself keeps on the volume may differ meanwhile: its mark and its table.
    let theirs = &used[used.len() - 200..];
    for _ in 0..500 {
        for block in &used {
            let bytes = client.call(Ask::Read, block * 4096, 4096, &[]).unwrap();
            let at = *block as usize * 4096;
            assert!(!theirs.contains(block) || bytes == content[at..at + 4096], "block {block}");
        }
        if sent() >= 100 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(sent() >= 100, "{}", served.status());
    let said = text();
    said.says("  control     with copies ").says("from originals").says("one run in 2)");

    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let page = Exposition::parse(page.split_once("\r\n\r\n").unwrap().1).unwrap();
    let value = |name, sent| page.value(name, &[("sent", sent)]);
    assert!(value("fs2_control_reads_total", "originals") >= 100.0);
    for sent in ["copies", "originals"] {
        let (mean, error) =
            (value("fs2_control_read_seconds", sent), value("fs2_control_error_seconds", sent));
        assert!(mean > 0.0 && mean < 60.0 && error > 0.0, "{sent}: {mean} {error}");
    }

    let html = scratch.path("page.html");
    let report = ["report", "-o", html.to_str().unwrap(), "--seconds", "1", "--control", control];
    scratch.run("fs2", report).ended(0);
    let html = fs::read_to_string(&html).unwrap();
    assert!(html.contains("95 % intervals") && html.contains("sent to their originals"), "measured");
    assert!(!html.contains("a prediction"));
    served.stop().ended(0);

    scratch
        .run("fs2d", ["serve", "--control-sample", "1/1", "x"])
        .ended(1)
        .says("neither off nor a share such as 1/256");
}
