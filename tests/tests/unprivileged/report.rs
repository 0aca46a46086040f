//! `fs2 report` over a daemon that serves a volume: the page it makes, and what it leaves behind.

use std::fs;
use std::path::{Path, PathBuf};

use fs2_tests::{Ask, NbdClient, Need, OnTerminal, Rng, Scratch, Served, dump, mke2fs, needs};

const BYTES: u64 = 32 << 20;

fn image(scratch: &Scratch) -> PathBuf {
    let (image, files) = (scratch.path("image"), scratch.make_dir("files"));
    fs::write(files.join("a"), Rng::new(7).bytes(4 << 20)).unwrap();
    mke2fs(&image, BYTES, &["-t", "ext2", "-b", "4096", "-d", files.to_str().unwrap()]);
    scratch.run("mkfs2", [&image]).ended(0);
    image
}

/// What is in the runtime directory but the daemon's own.
fn left(scratch: &Scratch) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.runtime()).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(|p| p.is_dir()).collect()
}

#[test]
fn a_page_of_a_running_volume_and_of_a_trace() {
    if !needs(&[Need::Program("mke2fs"), Need::Program("dumpe2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let used: Vec<u64> = {
        let dump = dump(&image);
        (0..dump.blocks).filter(|b| !dump.is_free(*b)).take(400).collect()
    };
    let trace = scratch.path("own.fs2trace");
    let args = ["--require-active", "--policy", "torture"];
    let served = Served::new(&scratch, &image, &args);
    let (control, html) = (scratch.path("image.ctl"), scratch.path("page.html"));
    let (html_text, control_text) = (html.to_str().unwrap(), control.to_str().unwrap());
    let read_all = || {
        let mut client = NbdClient::connect(served.socket()).unwrap();
        for block in &used {
            client.call(Ask::Read, block * 4096, 4096, &[]).unwrap();
        }
    };
    // Until replicas were read.
    for _ in 0..200 {
        read_all();
        if served.status()["reads_from_replica"].as_u64() > Some(0) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(served.status()["reads_from_replica"].as_u64() > Some(0), "{}", served.status());

    let mut report = OnTerminal::start(
        scratch.command("fs2").args([
            "report",
            "-o",
            html_text,
            "--seconds",
            "600",
            "--control",
            control_text,
        ]),
        80,
        24,
    );
    report.wait_for("looking [");
    let reads = || served.status()["reads_from_replica"].as_u64().unwrap();
    let before = reads();
    for _ in 0..200 {
        read_all();
        if reads() > before + 10 {
            break;
        }
    }
    // As Control-C does.
    report.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(report.ended(), (0, true), "{}", report.shown());
    report.wait_for("page.html: ");
    let page = fs::read_to_string(&html).unwrap();
    for part in
        ["<figure id=\"addresses\">", "<figure id=\"distances\">", "<figure id=\"times\">", "id=\"estimate\""]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        page.contains("came from replicas") && !page.contains("drawn at their originals"),
        "each place is known"
    );
    for asks in ["<script", "http:", "https:", "src=", "url("] {
        assert!(!page.contains(asks), "{asks}");
    }
    assert_eq!((left(&scratch), served.status()["trace"].as_str()), (vec![], None), "the trace is gone");
    served.stop().ended(0);

    // The same from a trace recorded earlier; while it is recorded, no other is.
    let args = [&args[..], &["--trace", trace.to_str().unwrap()]].concat();
    let served = Served::new(&scratch, &image, &args);
    let mut client = NbdClient::connect(served.socket()).unwrap();
    used.iter().for_each(|b| drop(client.call(Ask::Read, b * 4096, 4096, &[]).unwrap()));
    drop(client);
    let report = |more: &[&str]| scratch.run("fs2", [&["report", "-o", html_text], more].concat());
    let refused = report(&["--control", control_text]).ended(2).says("records a trace in");
    served.stop().ended(0);
    // As it is printed: it lacked the page's name.
    let (_, next) = refused.err.trim_end().split_once("when that has ended: fs2 ").unwrap();
    scratch.run("fs2", next.split(' ')).ended(0).says("page.html: 400 requests");
    let page = fs::read_to_string(&html).unwrap();
    assert!(
        page.contains("<figure id=\"times\">") && !page.contains("id=\"estimate\""),
        "only the daemon knows"
    );
    refusals(&scratch, &trace);
}

fn refusals(scratch: &Scratch, trace: &Path) {
    let report = |args: &[&str]| scratch.run("fs2", [&["report"], args].concat());
    let page = scratch.path("no.html");
    let page = page.to_str().unwrap();
    report(&[]).ended(1).says("--output");
    report(&["-o", page]).ended(2).says("no volume is mounted by FS2");
    report(&["-o", page, "/"]).ended(2).says("not mounted by FS2");
    report(&["-o", page, "--seconds", "0", "/"]).ended(1);
    report(&["-o", "/nowhere/at/all.html", "--trace", trace.to_str().unwrap()])
        .ended(2)
        .says("/nowhere/at/all.html");
    let whole = fs::read(trace).unwrap();
    let other = scratch.path("other");
    fs::write(&other, &whole[..whole.len() - 10]).unwrap();
    // Who looks at the page alone was told; a script was not.
    let cut = report(&["-o", page, "--trace", other.to_str().unwrap()]).ended(2);
    let at = format!("other: trace ends at byte {}", whole.len() - 10);
    cut.says("no.html: ").says("the trace is cut off").says(&at);
    assert!(fs::read_to_string(page).unwrap().contains("without its end mark"));
    fs::write(&other, b"no trace at all").unwrap();
    report(&["-o", page, "--trace", other.to_str().unwrap()]).ended(2).says("other: ");
}
