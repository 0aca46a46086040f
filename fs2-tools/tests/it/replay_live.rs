//! `fs2-replay live` on files, and on a loop device where there is one.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::loop_dev::LoopDev;

/// Exit code, standard output, standard error.
fn live(args: &[&str]) -> (i32, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = ["fs2-replay", "live"].iter().chain(args).map(|a| (*a).into());
    let code = fs2_tools::replay::run(all, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (code, text(out), text(err))
}

const MIB: u64 = 1 << 20;

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        // Where the build is: what is in memory has no O_DIRECT.
        Bench { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory") }
    }

    /// A file of 0xa5.
    fn disk(&self) -> PathBuf {
        let path = self.dir.path().join("disk");
        std::fs::write(&path, vec![0xa5; 4 * MIB as usize]).expect("written");
        path
    }

    /// Twenty reads and ten writes, a millisecond apart: sectors from 0 on, 8 each; then a discard.
    fn trace(&self) -> PathBuf {
        let mut text = String::new();
        for i in 0..30 {
            let op = if i % 3 == 2 { "W" } else { "R" };
            text += &format!("{:.6} D {op} {} 8 7 reader\n", 5.0 + f64::from(i) * 0.001, i * 8);
        }
        text += "5.030000 D D 0 8 7 reader\n";
        let path = self.dir.path().join("trace.txt");
        std::fs::write(&path, text).expect("written");
        path
    }

    fn far(&self) -> PathBuf {
        let path = self.dir.path().join("far.txt");
        std::fs::write(&path, "0.0 D R 0 8 7 r\n0.001 D R 99999 8 7 r\n0.002 D R 8192 8 7 r\n")
            .expect("written");
        path
    }
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a name in text")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn reads_are_made_in_time_and_writes_left_out() {
    let bench = Bench::new();
    let (trace, disk) = (bench.trace(), bench.disk());
    let before = std::fs::read(&disk).expect("read");
    let (code, out, err) = live(&[name(&trace), name(&disk), "--buffered", "--json", "--depth", "4"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("page cache"), "{err}");
    let j = json(&out);
    assert_eq!((&j["reads"], &j["writes"], &j["left_out"]), (&20.into(), &0.into(), &10.into()));
    assert_eq!((&j["discards_left_out"], &j["failed"]), (&1.into(), &0.into()));
    assert_eq!(j["planned_s"], 0.03);
    // The last read is due 28 ms after the first, however fast the device is.
    assert!(j["elapsed_s"].as_f64().expect("a number") >= 0.027, "{out}");
    let steps = j["latency_histogram"].as_array().expect("steps");
    let sum: u64 = steps.iter().filter_map(|s| s["requests"].as_u64()).sum();
    assert_eq!(sum, 20);
    for what in ["lateness_ms", "latency_ms"] {
        let at = |q: &str| j[what][q].as_f64().expect("a number");
        assert!(at("p50") <= at("p99") && at("p99") <= at("max") && at("mean") <= at("max"), "{out}");
    }
    // Ten times as fast it is planned to take a tenth.
    let (code, out, _) = live(&[name(&trace), name(&disk), "--buffered", "--json", "--speed", "10"]);
    assert_eq!((code, &json(&out)["planned_s"]), (0, &0.003.into()));
    let (code, out, _) = live(&[name(&trace), name(&disk), "--buffered", "--read-only", "--limit", "3"]);
    assert!(code == 0 && out.contains("2 reads, 0 writes") && out.contains("latency  mean"), "{out}");
    assert_eq!(std::fs::read(&disk).expect("read"), before, "nothing was written");
}

/// Found: the clock ran while thousands of requests were read to be put in order, and the first of them began late.
#[test]
fn nothing_is_due_before_the_first_request_is_there() {
    let bench = Bench::new();
    let (disk, pipe) = (bench.disk(), bench.dir.path().join("pipe"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    // More than the first 64 KiB, which are read before anything else, and all within a quarter of a second.
    let text: String =
        (0..3600).map(|i| format!("0,{},512,r,{:.6}\n", i % 64, f64::from(i) * 0.25 / 3599.0)).collect();
    let (begin, rest) = text.split_at(66_000);
    let there = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            use std::io::Write;
            let mut pipe = std::fs::File::create(&pipe).expect("a pipe");
            pipe.write_all(begin.as_bytes()).expect("written");
            std::thread::sleep(std::time::Duration::from_millis(300));
            let there = std::time::Instant::now();
            pipe.write_all(rest.as_bytes()).expect("written");
            there
        });
        let (code, _, err) = live(&[name(&pipe), name(&disk), "--buffered", "--beyond", "wrap"]);
        assert_eq!(code, 0, "{err}");
        writer.join().expect("a writer")
    });
    // However fast or slow the machine is: the last read is due a quarter of a second after the first.
    let took = there.elapsed();
    assert!(took.as_secs_f64() >= 0.249, "{took:?}");
}

#[test]
fn writes_need_words() {
    let bench = Bench::new();
    let (trace, disk) = (bench.trace(), bench.disk());
    let (t, d) = (name(&trace), name(&disk));
    let before = std::fs::read(&disk).expect("read");
    assert_eq!(live(&[t, d, "--allow-writes"]).0, 2);
    let (code, _, err) = live(&[t, d, "--buffered", "--allow-writes", "--consent", "yes"]);
    assert!(code == 1 && err.contains(&format!("--consent 'overwrite {d}'")), "{err}");
    assert_eq!(std::fs::read(&disk).expect("read"), before, "nothing was written");
    let words = format!("overwrite {d}");
    let (code, out, err) =
        live(&[t, d, "--buffered", "--json", "--depth", "1", "--allow-writes", "--consent", &words]);
    assert_eq!(code, 0, "{err}");
    assert_eq!((&json(&out)["reads"], &json(&out)["writes"]), (&20.into(), &10.into()));
    let after = std::fs::read(&disk).expect("read");
    for (i, block) in after.chunks(4096).enumerate() {
        let written = i < 30 && i % 3 == 2;
        assert!(block.iter().all(|b| *b == if written { 0 } else { 0xa5 }), "block {i}");
    }
}

#[test]
fn what_is_beyond_the_end_is_refused_or_folded_back() {
    let bench = Bench::new();
    let (far, disk) = (bench.far(), bench.disk());
    let (code, out, err) = live(&[name(&far), name(&disk), "--buffered", "--json"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("2 requests reach beyond") && err.contains("--beyond wrap"), "{err}");
    let (code, out, _) = live(&[name(&far), name(&disk), "--buffered", "--json", "--beyond", "wrap"]);
    assert_eq!(code, 0);
    assert_eq!((&json(&out)["reads"], &json(&out)["wrapped"]), (&3.into(), &2.into()));
    // Folded back or not, a request larger than the device fails, and the rest is made.
    let small = bench.dir.path().join("small");
    std::fs::write(&small, [0; 2048]).expect("written");
    let (code, out, err) = live(&[name(&far), name(&small), "--buffered", "--json", "--beyond", "wrap"]);
    assert!(code == 1 && err.contains("3 requests failed") && err.contains("larger than"), "{err}");
    assert_eq!(json(&out)["failed"], 3);
}

#[test]
fn without_the_page_cache_where_the_file_system_can() {
    let bench = Bench::new();
    let (trace, disk) = (bench.trace(), bench.disk());
    let (code, out, err) = live(&[name(&trace), name(&disk), "--json"]);
    if err.contains("cannot bypass the page cache") {
        eprintln!("skipped: {err}");
        return;
    }
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!((&json(&out)["direct"], &json(&out)["reads"]), (&true.into(), &20.into()));
}

/// Needs root and a free loop device; skipped without them.
#[test]
fn a_mounted_device_is_refused_and_a_loop_device_replayed() {
    let bench = Bench::new();
    let (trace, disk) = (bench.trace(), bench.disk());
    // The root file system's device is mounted, and nobody's trace is for it.
    let mounts = fs2_tools::kernel::mounts().expect("mountinfo");
    match mounts.iter().find(|m| m.source.starts_with("/dev") && m.source.exists() && m.device.0 != 0) {
        Some(m) => {
            let (code, out, err) = live(&[name(&trace), name(&m.source), "--json"]);
            assert_eq!((code, out.as_str()), (1, ""), "{err}");
        }
        None => eprintln!("skipped: no device is mounted here"),
    }
    let Ok(device) = LoopDev::attach(&disk, &[]) else {
        return eprintln!("skipped: no loop device (losetup needs root)");
    };
    let (code, out, err) = live(&[name(&trace), name(device.path()), "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!((&json(&out)["direct"], &json(&out)["reads"]), (&true.into(), &20.into()));
    // The file below it is refused while the device stands on it.
    let (code, _, err) = live(&[name(&trace), name(&disk)]);
    assert!(code == 1 && err.contains("backing of"), "{err}");
}

#[test]
fn a_trace_of_which_nothing_is_replayed_is_refused() {
    let bench = Bench::new();
    let disk = bench.disk();
    let empty = bench.dir.path().join("empty.fs2trace");
    let made = fs2_tools::replay::run(
        ["fs2-replay", "generate", "cvs", "--requests", "0", name(&empty)].map(Into::into),
        &mut Vec::new(),
        &mut Vec::new(),
    );
    assert_eq!(made, 0);
    let writes = bench.dir.path().join("writes.txt");
    std::fs::write(&writes, "0.0 D W 0 8 7 w\n9.0 D W 8 8 7 w\n9.5 D D 8 8 7 w\n").expect("written");
    for (trace, says) in [
        (&empty, "no request in it"),
        (&writes, "nothing was replayed: its 3 requests would change the device"),
    ] {
        for beyond in ["wrap", "refuse"] {
            let (code, out, err) = live(&[name(trace), name(&disk), "--buffered", "--beyond", beyond]);
            assert_eq!((code, out.as_str()), (1, ""), "{err}");
            assert!(err.contains(&format!("{}: {says}", trace.display())), "{err}");
        }
    }
    // Found: it was played to its end, and every request failed.
    let nothing = bench.dir.path().join("nothing");
    std::fs::write(&nothing, "").expect("written");
    for beyond in ["wrap", "refuse"] {
        let (code, _, err) = live(&[name(&writes), name(&nothing), "--buffered", "--beyond", beyond]);
        assert!(code == 1 && err.contains("nothing: no bytes in it"), "{err}");
    }
}
