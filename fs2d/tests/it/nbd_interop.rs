//! The NBD server and other people's clients: libnbd, qemu, fio. A tool that is not installed is named as
//! skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::nbd_support::*;

const MIB: usize = 1 << 20;

/// Whether the tool can be started; prints why the test is skipped where not.
fn have(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: {tool} is not installed");
    }
    found
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

fn json(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap().split_whitespace().collect()
}

/// Bytes with structure: data, zeros, data again; the same for every run.
fn image(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = vec![0; len];
    for (i, chunk) in bytes.chunks_mut(64 << 10).enumerate() {
        if i % 3 == 1 {
            continue;
        }
        for b in chunk {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            *b = x as u8;
        }
    }
    bytes
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn image(&self, bytes: &[u8]) -> PathBuf {
        let path = self.path("image");
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn assert_equal(service: &MemService, bytes: &[u8]) {
    assert!(*service.bytes.read().unwrap() == bytes, "the volume differs from the image");
}

fn assert_same(path: &Path, bytes: &[u8]) {
    assert!(std::fs::read(path).unwrap() == bytes, "{} differs", path.display());
}

#[test]
fn nbdinfo_understands_the_export() {
    if !have("nbdinfo") {
        return;
    }
    let bench = Bench::new(MemService::inline(7 * MIB));
    let info = json(&run(Command::new("nbdinfo").arg("--json").arg(bench.uri())));
    for expected in [
        "\"protocol\":\"newstyle-fixed\"",
        "\"structured\":true",
        "\"export-size\":7340032",
        "\"description\":\"memory\"",
        "\"is_rotational\":true",
        "\"is_read_only\":false",
        "\"can_cache\":true",
        "\"can_df\":true",
        "\"can_fast_zero\":true",
        "\"can_flush\":true",
        "\"can_fua\":true",
        "\"can_multi_conn\":true",
        "\"can_trim\":true",
        "\"can_zero\":true",
        "\"block_size_minimum\":1",
        "\"block_size_preferred\":4096",
        "\"block_size_maximum\":33554432",
        "\"base:allocation\"",
    ] {
        assert!(info.contains(expected), "{expected} is missing in {info}");
    }
    let list = json(&run(Command::new("nbdinfo").args(["--list", "--json"]).arg(bench.uri())));
    assert!(list.contains("\"export-name\":\"fs2\""), "{list}");
    let named = format!("nbd+unix:///fs2?socket={}", bench.path.display());
    run(Command::new("nbdinfo").arg(named));
    let other = format!("nbd+unix:///other?socket={}", bench.path.display());
    assert!(!Command::new("nbdinfo").arg(other).output().unwrap().status.success());
    // TLS asked for is TLS refused, not a connection in the clear.
    let tls = bench.uri().replace("nbd+unix", "nbds+unix");
    assert!(!Command::new("nbdinfo").arg(tls).output().unwrap().status.success());
    eventually("all are gone", || bench.server.connections() == 0);
}

#[test]
fn maps_show_holes() {
    if !have("nbdinfo") || !have("qemu-img") {
        return;
    }
    let bench = Bench::new(MemService::inline(MIB));
    bench.client().write(65536, &[1; 4096]);
    let map = json(&run(Command::new("nbdinfo").args(["--map", "--json"]).arg(bench.uri())));
    assert_eq!(map.matches("\"offset\"").count(), 3, "{map}");
    assert!(map.contains("\"offset\":65536,\"length\":4096,\"type\":0"), "{map}");
    assert!(map.contains("\"offset\":0,\"length\":65536,\"type\":3"), "{map}");
    let map =
        json(&run(Command::new("qemu-img").args(["map", "--output=json", "-f", "raw"]).arg(bench.uri())));
    assert!(map.contains("\"start\":65536,\"length\":4096"), "{map}");
    assert_eq!(map.matches("\"zero\":true").count(), 2, "{map}");
}

#[test]
fn nbdcopy_both_ways() {
    if !have("nbdcopy") {
        return;
    }
    let (files, bytes) = (Files::new(), image(24 * MIB));
    let image = files.image(&bytes);
    for service in [MemService::inline(24 * MIB), MemService::threaded(24 * MIB, 3)] {
        // What was there before must go.
        service.bytes.write().unwrap().fill(0xee);
        let bench = Bench::new(service.clone());
        run(Command::new("nbdcopy").args(["--flush", "--connections=4"]).arg(&image).arg(bench.uri()));
        assert_equal(&service, &bytes);
        let back = files.path("back");
        run(Command::new("nbdcopy").arg(bench.uri()).arg(&back));
        assert_same(&back, &bytes);
        std::fs::remove_file(back).unwrap();
    }
}

#[test]
fn qemu_img_both_ways() {
    if !have("qemu-img") {
        return;
    }
    let (files, bytes) = (Files::new(), image(24 * MIB));
    let image = files.image(&bytes);
    for service in [MemService::inline(24 * MIB), MemService::threaded(24 * MIB, 3)] {
        service.bytes.write().unwrap().fill(0xee);
        let bench = Bench::new(service.clone());
        let convert = |from: &str, to: &str| {
            let args = ["convert", "-n", "-W", "-m", "8", "-f", "raw", "-O", "raw"];
            run(Command::new("qemu-img").args(args).args([from, to]));
        };
        convert(image.to_str().unwrap(), &bench.uri());
        assert_equal(&service, &bytes);
        let back = files.path("back");
        std::fs::File::create(&back).unwrap().set_len(bytes.len() as u64).unwrap();
        convert(&bench.uri(), back.to_str().unwrap());
        assert_same(&back, &bytes);
        run(Command::new("qemu-img").args(["compare", "-f", "raw"]).arg(&image).arg(bench.uri()));
        std::fs::remove_file(back).unwrap();
    }
}

#[test]
fn qemu_io_commands() {
    if !have("qemu-io") {
        return;
    }
    let service = MemService::threaded(8 * MIB, 2);
    let bench = Bench::new(service.clone());
    let io = |commands: &[&str]| {
        let mut c = Command::new("qemu-io");
        c.args(["-f", "raw"]);
        for x in commands {
            c.args(["-c", x]);
        }
        let output = run(c.arg(bench.uri()));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!text.contains("failed") && !text.contains("rror"), "{text}");
    };
    io(&[
        "write -P 0x11 0 1M",
        "write -f -P 0x22 1M 64k",
        "write -z -u 4k 4k",
        "write -z 1M 8k",
        "discard 2M 1M",
    ]);
    io(&["read -P 0x11 0 4k", "read -P 0 4k 4k", "read -P 0x11 8k 1016k", "read -P 0 1M 8k", "flush"]);
    io(&[
        "aio_write -P 1 0 64k",
        "aio_write -P 2 64k 64k",
        "aio_read 2M 64k",
        "aio_flush",
        "read -P 2 64k 64k",
    ]);
    assert!(service.flagged.lock().unwrap().iter().any(|f| f.1), "FUA arrived");
    assert!(service.flagged.lock().unwrap().iter().any(|f| f.2), "NO_HOLE arrived");
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !have("fio") {
        return;
    }
    let engines = Command::new("fio").arg("--enghelp").output().unwrap();
    if !String::from_utf8_lossy(&engines.stdout).lines().any(|l| l.trim() == "nbd") {
        eprintln!("skipped: fio has no nbd engine");
        return;
    }
    let services: [Arc<MemService>; 2] = [MemService::inline(16 * MIB), MemService::threaded(16 * MIB, 3)];
    for service in services {
        let bench = Bench::new(service.clone());
        let dir = Files::new();
        let output = run(Command::new("fio")
            .current_dir(dir.0.path())
            .args(["--name=job", "--ioengine=nbd", "--rw=randwrite", "--bsrange=512-64k", "--bs_unaligned=1"])
            .args(["--size=16m", "--iodepth=32", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1"])
            .args(["--randseed=7", "--output-format=terse"])
            .arg(format!("--uri={}", bench.uri())));
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.split(';').nth(4), Some("0"), "fio's error field in {text}");
        assert!(service.in_flight_max.load(Ordering::SeqCst) >= 1);
    }
}
