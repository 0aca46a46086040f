//! `fs2d serve --frontend nbd` with other people's clients, on an active and on an inactive volume. There is
//! no file system above: an active volume's free blocks hold whatever they hold, so only the others are
//! compared; an inactive one is a plain device and equal in every byte.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fs2_tests::{
    Ask, NbdClient, Need, Rng, Scratch, Served, debugfs, dump, e2fsck_clean, file_digest, mke2fs, needs, run,
    run_within,
};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};

const BYTES: u64 = 96 << 20;

/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// An ext2 image with files in it.
fn image(scratch: &Scratch) -> PathBuf {
    let (image, files) = (scratch.path("image"), scratch.make_dir("files"));
    let mut rng = Rng::new(5);
    for i in 0..200 {
        let len = rng.below(200_000) as usize;
        fs::write(files.join(format!("{i}")), rng.bytes(len)).unwrap();
    }
    mke2fs(&image, BYTES, &["-t", "ext2", "-b", "4096", "-d", files.to_str().unwrap()]);
    image
}

fn ready(programs: &[&'static str]) -> bool {
    let all = ["mke2fs", "dumpe2fs", "debugfs", "e2fsck"].iter().chain(programs);
    needs(&all.map(|p| Need::Program(p)).collect::<Vec<_>>())
}

/// The blocks of the table, which is the daemon's own to write, as `debugfs` has them.
fn table_blocks(image: &Path) -> HashSet<u64> {
    let blocks = debugfs(image, false, "blocks <5>").out;
    blocks.split_whitespace().map(|b| b.parse().expect("a block's number")).collect()
}

/// Whether every block that is neither free nor the table's is equal; how many were compared.
#[track_caller]
fn compare_live(image: &Path, copy: &Path) -> u64 {
    let (dump, table) = (dump(image), table_blocks(image));
    assert!(!table.is_empty());
    let (a, b) = (File::open(image).unwrap(), File::open(copy).unwrap());
    let (mut x, mut y) = (vec![0; 4096], vec![0; 4096]);
    let mut compared = 0;
    for block in (0..dump.blocks).filter(|b| !dump.is_free(*b) && !table.contains(b)) {
        a.read_exact_at(&mut x, block * 4096).unwrap();
        b.read_exact_at(&mut y, block * 4096).unwrap();
        assert!(x == y, "block {block} differs");
        compared += 1;
    }
    compared
}

fn nbdcopy(from: &str, to: &str) {
    run(Command::new("nbdcopy").args([from, to])).ended(0);
}

fn qemu_img(from: (&str, &str), to: (&str, &str)) {
    // The target is there already, and of this size.
    run(Command::new("qemu-img").args(["convert", "-n", "-f", from.0, "-O", to.0, from.1, to.1])).ended(0);
}

fn empty(scratch: &Scratch, name: &str) -> PathBuf {
    let path = scratch.path(name);
    File::create(&path).unwrap().set_len(BYTES).unwrap();
    path
}

#[test]
fn an_inactive_volume_is_a_plain_device_to_every_client() {
    if !ready(&["nbdinfo", "nbdcopy", "qemu-img"]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, before) = (image(&scratch), scratch.path("before"));
    fs::copy(&image, &before).unwrap();
    let served = Served::new(&scratch, &image, &[]);
    let uri = served.uri();
    let size = run(Command::new("nbdinfo").args(["--size", &uri])).ended(0).out;
    assert_eq!(size.trim(), BYTES.to_string());

    let out = empty(&scratch, "out");
    nbdcopy(&uri, out.to_str().unwrap());
    assert_eq!(file_digest(&out), file_digest(&before), "nbdcopy out");
    let out = empty(&scratch, "out");
    qemu_img(("raw", &uri), ("raw", out.to_str().unwrap()));
    assert_eq!(file_digest(&out), file_digest(&before), "qemu-img out");

    // Other bytes everywhere, in both ways, read back by the other program.
    for (seed, writer) in [(6, "nbdcopy"), (7, "qemu-img")] {
        let new = scratch.path("new");
        fs::write(&new, Rng::new(seed).bytes(BYTES as usize)).unwrap();
        let out = empty(&scratch, "out");
        let (new, out) = (new.to_str().unwrap(), out.to_str().unwrap());
        if writer == "nbdcopy" {
            nbdcopy(new, &uri);
            qemu_img(("raw", &uri), ("raw", out));
        } else {
            qemu_img(("raw", new), ("raw", &uri));
            nbdcopy(&uri, out);
        }
        assert_eq!(file_digest(Path::new(out)), file_digest(Path::new(new)), "{writer} in");
    }
    let status = served.status();
    assert_eq!((&status["copies_written"], &status["reads_from_replica"]), (&0.into(), &0.into()));
    served.stop().ended(0);
    assert_eq!(file_digest(&image), file_digest(&scratch.path("new")), "the backing holds what was written");
}

#[test]
fn an_active_volume_gives_every_block_that_is_not_free() {
    gives_every_block_that_is_not_free(&[], "page cache, ");
}

/// What the page cache hides: I/O is waited for, here by threads, as where there is no io_uring.
#[test]
fn an_active_volume_by_threads_gives_every_block_that_is_not_free() {
    gives_every_block_that_is_not_free(BY_THREADS, "direct, threads, depth 128");
}

const BY_THREADS: &[&str] = &["--direct", "on", "--rotational", "no", "--io", "threads"];

fn gives_every_block_that_is_not_free(options: &[&str], data_path: &str) {
    if !ready(&["nbdinfo", "nbdcopy", "qemu-img"]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    // Room for copies of all that is read: with less they are gone before the next round comes to them.
    scratch.run("mkfs2", ["--space", "40%", image.to_str().unwrap()]).ended(0);
    let before = scratch.path("before");
    fs::copy(&image, &before).unwrap();
    let torture = ["--policy", "torture", "--paranoid", "--require-active", "--space", "40%"];
    let options = [&torture, options].concat();
    let served = Served::new(&scratch, &image, &options);
    let said = served.status()["data_path"].to_string();
    assert!(said.contains(data_path), "{said}");
    let uri = served.uri();
    let info = run(Command::new("nbdinfo").args(["--json", &uri])).ended(0).json();
    assert_eq!(info["exports"][0]["export-size"], BYTES);
    // Several times, the later ones from copies; large requests seldom find all their blocks in one place.
    let mut status = served.status();
    for round in 0..24 {
        let out = empty(&scratch, "out");
        match round % 3 {
            0 => nbdcopy(&uri, out.to_str().unwrap()),
            1 => qemu_img(("raw", &uri), ("raw", out.to_str().unwrap())),
            _ => {
                let small = ["--request-size=4096", "--connections=1", "--requests=4", &uri];
                run(Command::new("nbdcopy").args(small).arg(&out)).ended(0);
            }
        }
        assert!(compare_live(&before, &out) > 4000);
        status = served.status();
        if round > 3 && status["reads_from_replica"].as_u64() > Some(100) {
            break;
        }
    }
    assert!(status["copies_written"].as_u64() > Some(100), "{status}");
    assert!(status["reads_from_replica"].as_u64() > Some(100), "{status}");
    assert_eq!((&status["hash_mismatches"], &status["replica_errors"]), (&0.into(), &0.into()));
    served.stop().ended(0).says("detached cleanly");
    assert!(compare_live(&before, &image) > 4000);
    e2fsck_clean(&image);
}

/// A raw client that writes all of the volume writes the table and the superblock too: from then on nothing
/// of FS2's is written, and what the client wrote is what is there.
#[test]
fn an_active_volume_that_is_overwritten_whole_holds_what_was_written() {
    if !ready(&["nbdcopy"]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    scratch.run("mkfs2", [&image]).ended(0);
    for writer in ["nbdcopy", "qemu-img"] {
        if writer == "qemu-img" && !ready(&["qemu-img"]) {
            return;
        }
        let served = Served::new(&scratch, &image, &["--policy", "torture", "--paranoid"]);
        let out = empty(&scratch, "out");
        nbdcopy(&served.uri(), out.to_str().unwrap());
        let new = scratch.path("new");
        fs::write(&new, Rng::new(9).bytes(BYTES as usize)).unwrap();
        match writer {
            "nbdcopy" => nbdcopy(new.to_str().unwrap(), &served.uri()),
            _ => qemu_img(("raw", new.to_str().unwrap()), ("raw", &served.uri())),
        }
        nbdcopy(&served.uri(), out.to_str().unwrap());
        assert_eq!(file_digest(&out), file_digest(&new), "{writer}");
        let done = served.stop();
        assert!(matches!(done.code, 0 | 4), "{}", done.err);
        assert_eq!(file_digest(&image), file_digest(&new), "{writer}: the backing");
        // For the second writer, an active volume again.
        fs::remove_file(&image).unwrap();
        self::image(&scratch);
        scratch.run("mkfs2", [&image]).ended(0);
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    fio_verifies(&[]);
}

#[test]
fn fio_verifies_what_threads_wrote() {
    fio_verifies(BY_THREADS);
}

fn fio_verifies(options: &[&str]) {
    if !ready(&["fio"]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let served = Served::new(&scratch, &image, options);
    let mut fio = Command::new("fio");
    fio.current_dir(scratch.dir()).args([
        "--name=nbd",
        "--ioengine=nbd",
        "--thread",
        "--rw=randwrite",
        "--bs=4k-64k",
    ]);
    fio.args([
        "--bs_unaligned=1",
        "--iodepth=16",
        "--size=64m",
        "--io_size=48m",
        "--randseed=3",
        "--fsync=64",
    ]);
    fio.args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--output-format=json"]);
    fio.arg(format!("--uri={}", served.uri()));
    let done = run_within(&mut fio, Duration::from_secs(600)).ended(0);
    assert!(done.out.contains("\"error\" : 0"), "{}{}", done.out, done.err);
    served.stop().ended(0);
}

/// Writes that share blocks with their neighbours, all at once: each reads the edges of its blocks first.
#[test]
fn neighbours_in_a_block_lose_nothing() {
    if !ready(&[]) {
        return;
    }
    let seed = 17;
    println!("seed {seed}");
    let scratch = Scratch::new();
    let image = image(&scratch);
    for options in [BY_THREADS, &["--direct", "on", "--rotational", "no"]] {
        let served = Served::new(&scratch, &image, options);
        let mut clients = [(); 2].map(|()| NbdClient::connect(served.socket()).unwrap());
        let mut mirror = fs::read(&image).unwrap();
        let mut rng = Rng::new(seed);
        for _ in 0..60 {
            let mut sent = [0, 0];
            let mut at = rng.below(BYTES - (1 << 20)) as usize;
            for piece in 0..40 {
                let len = 1 + rng.below(if piece % 4 == 0 { 20_000 } else { 700 }) as usize;
                let bytes = rng.bytes(len);
                mirror[at..at + len].copy_from_slice(&bytes);
                clients[piece % 2].send(Ask::Write { fua: piece % 8 == 0 }, at as u64, len, &bytes).unwrap();
                sent[piece % 2] += 1;
                at += len;
            }
            for (client, sent) in clients.iter_mut().zip(sent) {
                (0..sent).for_each(|_| drop(client.receive().unwrap()));
            }
        }
        for at in (0..mirror.len()).step_by(1 << 20) {
            let read = clients[0].call(Ask::Read, at as u64, 1 << 20, &[]).unwrap();
            assert!(read == mirror[at..at + (1 << 20)], "{options:?}: in the MiB at {at}");
        }
        drop(clients);
        served.stop().ended(0);
    }
}

/// What the device cannot do is that request's error, and nobody else's.
#[test]
fn a_device_that_fails_fails_the_request() {
    if !ready(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let bytes = fs::read(&image).unwrap();
    for (options, data_path) in [
        (BY_THREADS, "direct, threads, "),
        (&["--direct", "on", "--rotational", "no"], "direct, "),
        (&["--direct", "off"], "page cache, "),
    ] {
        let served = Served::new(&scratch, &image, options);
        let said = served.status()["data_path"].to_string();
        assert!(said.contains(data_path), "{said}");
        let mut client = NbdClient::connect(served.socket()).unwrap();
        // Cut below the daemon: what was there ends in the middle of a request, or before it.
        let backing = File::options().write(true).open(&image).unwrap();
        backing.set_len(BYTES / 2 + 4096).unwrap();
        for len in [4096, 128 << 10] {
            // Many at once, so that several threads have one; every other fails.
            for i in 0..64_u64 {
                client.send(Ask::Read, BYTES / 2 * (i % 2) + 8192 * i - 4096 * (i % 2), len, &[]).unwrap();
            }
            let mut failed = 0;
            for _ in 0..64 {
                match client.receive() {
                    Ok((cookie, data)) => {
                        let i = (cookie - 1) % 64;
                        assert_eq!(i % 2, 0, "{options:?}: read beyond the end");
                        assert!(data == bytes[8192 * i as usize..][..len]);
                    }
                    Err(e) if e.raw_os_error() == Some(libc::EIO) => failed += 1,
                    Err(e) => panic!("{e}"),
                }
            }
            assert_eq!(failed, 32, "{options:?}");
        }
        backing.set_len(BYTES).unwrap();
        backing.write_all_at(&bytes[BYTES as usize / 2..], BYTES / 2).unwrap();
        backing.sync_all().unwrap();
        let at = BYTES / 2 + 65_536;
        assert!(client.call(Ask::Read, at, 65_536, &[]).unwrap() == bytes[at as usize..][..65_536]);
        drop(client);
        served.stop().ended(0);
    }
}

/// What must not become of a server: bytes of nobody's protocol end their own connection and nothing else.
#[test]
fn hostile_bytes_end_their_own_connection_only() {
    if !ready(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let seed = 13;
    println!("seed {seed}");
    let scratch = Scratch::new();
    let image = image(&scratch);
    let served = Served::new(&scratch, &image, &[]);
    let before = file_digest(&image);
    let mut rng = Rng::new(seed);
    for round in 0..200 {
        let mut socket = UnixStream::connect(served.socket()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Flags the client knows, then: noise, an option of a wild length, a wild option.
        let mut bytes = 3_u32.to_be_bytes().to_vec();
        match round % 4 {
            0 => bytes = rng.bytes(1 + round),
            1 => {
                bytes.extend(b"IHAVEOPT");
                bytes.extend(7_u32.to_be_bytes());
                bytes.extend(u32::MAX.to_be_bytes());
            }
            2 => {
                bytes.extend(b"IHAVEOPT");
                bytes.extend(rng.bytes(4));
                bytes.extend(64_u32.to_be_bytes());
                bytes.extend(rng.bytes(64));
            }
            // In transmission: exported by name, then noise where a request should be.
            _ => {
                bytes.extend(b"IHAVEOPT");
                bytes.extend(1_u32.to_be_bytes());
                bytes.extend(0_u32.to_be_bytes());
                bytes.extend([0xff; 4]);
                bytes.extend(rng.bytes(28 + round));
            }
        }
        // The server may have hung up before it read all.
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.take(1 << 20).read_to_end(&mut answer);
        assert!(answer.len() < 1 << 20, "round {round}: it talks for ever");
    }
    let out = empty(&scratch, "out");
    nbdcopy(&served.uri(), out.to_str().unwrap());
    assert_eq!(file_digest(&out), before);
    assert_eq!(served.status()["liveness"].as_str().map(|l| l.starts_with("inactive: ")), Some(true));
    served.stop().ended(0);
    assert_eq!(file_digest(&image), before, "nothing was written");
}

/// A daemon that had stood still did what a client had left in its socket, after what that had sent again meanwhile.
#[test]
fn what_a_client_left_while_the_daemon_stood_still_is_not_done() {
    if !ready(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let served = Served::new(&scratch, &image, &[]);
    let mut other = NbdClient::connect(served.socket()).unwrap();
    for round in 1..=5 {
        let mut client = NbdClient::connect(served.socket()).unwrap();
        client.call(Ask::Read, 0, 4096, &[]).unwrap();
        kill(served.pid(), Signal::SIGSTOP).unwrap();
        // Each of its threads.
        waitpid(served.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        client.send(Ask::Write { fua: false }, 0, 1024, &[7; 1024]).unwrap();
        drop(client);
        // For longer than the daemon may believe that its client is there.
        std::thread::sleep(Duration::from_millis(20));
        kill(served.pid(), Signal::SIGCONT).unwrap();
        let start = Instant::now();
        while served.log().matches(" ended: ").count() < round {
            assert!(start.elapsed() < PATIENCE, "its connection does not end: {}", served.log());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(served.status()["writes"], 0, "in round {round}");
    }
    other.call(Ask::Write { fua: false }, 0, 1024, &[8; 1024]).unwrap();
    assert_eq!(served.status()["writes"], 1);
    drop(other);
    served.stop().ended(0);
}

/// With clients connected, one of them idle in the middle of nothing.
#[test]
fn sigterm_ends_in_order() {
    if !ready(&["nbdcopy"]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    scratch.run("mkfs2", [&image]).ended(0);
    let served = Served::new(&scratch, &image, &["--policy", "torture"]);
    let idle = UnixStream::connect(served.socket()).unwrap();
    let out = empty(&scratch, "out");
    nbdcopy(&served.uri(), out.to_str().unwrap());
    let replicas = served.status()["replicas"].as_u64().unwrap();
    assert!(replicas > 100);
    let socket = served.socket().to_owned();
    served.stop().ended(0).says("detached cleanly with");
    assert!(UnixStream::connect(socket).is_err(), "nobody listens any more");
    drop(idle);
    // What was copied is usable at once.
    let served = Served::new(&scratch, &image, &["--require-active", "--policy", "torture"]);
    let status = served.status();
    assert!(status["replicas"].as_u64() > Some(100) && status["replicas_unverified"] == 0, "{status}");
    served.stop().ended(0);
}
