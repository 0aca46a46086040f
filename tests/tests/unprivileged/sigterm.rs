//! SIGTERM in the middle of a load that would never end by itself: the daemon stops taking requests, ends what it
//! took, writes its table and the mark, and exits; every answered write is there, the replicas are usable at once.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fs2_tests::{
    Ask, BLOCK, Counters, NbdClient, Need, Rng, Scratch, Served, debugfs, e2fsck_clean, mke2fs, needs,
    stamped,
};

/// Blocks copied before the signal comes.
const WARM: u64 = 500;

/// Requests answered before.
const LOAD: u64 = 1000;

/// Connections that write, each with blocks of its own; as many read.
const CLIENTS: usize = 4;

/// Whether it is how a client sees its daemon go.
fn is_end(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
        || e.raw_os_error() == Some(libc::ESHUTDOWN)
}

#[test]
fn sigterm_under_load_ends_with_a_valid_mark() {
    if !needs(&["mke2fs", "debugfs", "e2fsck"].map(Need::Program)) {
        return;
    }
    let scratch = Scratch::new();
    let (image, files) = (scratch.path("image"), scratch.make_dir("files"));
    // A file of one pattern, so that its blocks are told from its indirect ones.
    fs::write(files.join("f"), stamped(1 << 40, 0).repeat(1200)).unwrap();
    mke2fs(&image, 64 << 20, &["-t", "ext2", "-b", "4096", "-d", files.to_str().unwrap()]);
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let mut bytes = vec![0; BLOCK];
    let listed = debugfs(&image, false, "blocks /f").out;
    let blocks: HashSet<u64> = listed.split_whitespace().map(|b| b.parse().unwrap()).collect();
    let mut blocks: Vec<u64> = blocks
        .into_iter()
        .filter(|b| {
            file.read_exact_at(&mut bytes, b * BLOCK as u64).unwrap();
            bytes == stamped(1 << 40, 0)
        })
        .collect();
    assert_eq!(blocks.len(), 1200);
    blocks.sort_unstable();
    for &b in &blocks {
        file.write_all_at(&stamped(b, 1), b * BLOCK as u64).unwrap();
    }
    scratch.run("mkfs2", [Path::new("--space"), Path::new("20%"), &image]).ended(0);
    let counters = Counters::new(blocks);

    let args = ["--policy", "torture", "--space", "20%", "--require-active", "--host-reserve", "0%"];
    let served = Served::new(&scratch, &image, &args);
    let (socket, answered) = (served.socket().to_owned(), AtomicU64::new(0));
    let done = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2 * CLIENTS)
            .map(|n| {
                let (counters, answered, socket) = (&counters, &answered, &socket);
                scope.spawn(move || client(n, counters, answered, socket))
            })
            .collect();
        let start = Instant::now();
        while served.status()["copies_written"].as_u64() < Some(WARM)
            || answered.load(Ordering::Relaxed) < LOAD
        {
            assert!(start.elapsed() < Duration::from_secs(120), "no copies, or no load: {}", served.status());
            std::thread::sleep(Duration::from_millis(20));
        }
        let done = served.stop();
        for client in clients {
            let e = client.join().unwrap();
            assert!(is_end(&e), "a client ended otherwise: {e}");
        }
        done
    });
    done.ended(0).says("detached cleanly with");

    for i in 0..counters.len() {
        file.read_exact_at(&mut bytes, counters.block(i) * BLOCK as u64).unwrap();
        counters.settle(i, &bytes).unwrap();
    }
    let served = Served::new(&scratch, &image, &args);
    let status = served.status();
    // How many stand is chance: the writers and the policy take them away as fast as they are made.
    assert!(status["replicas"].as_u64() > Some(0) && status["replicas_unverified"] == 0, "{status}");
    let mut client = NbdClient::connect(served.socket()).unwrap();
    for i in 0..counters.len() {
        let bytes = client.call(Ask::Read, counters.block(i) * BLOCK as u64, BLOCK, &[]).unwrap();
        counters.judge(i, counters.least(i), &bytes).unwrap();
    }
    assert!(served.status()["reads_from_replica"].as_u64() > Some(0));
    drop(client);
    served.stop().ended(0);
    e2fsck_clean(&image);
}

/// Half of them write, half of them read, until the daemon goes; how it went.
fn client(n: usize, counters: &Counters, answered: &AtomicU64, socket: &Path) -> io::Error {
    let mut rng = Rng::new(n as u64 + 1);
    let share = counters.len() / CLIENTS;
    let mut work = || -> io::Result<()> {
        let mut client = NbdClient::connect(socket)?;
        loop {
            let i = n % CLIENTS * share + rng.below(share as u64) as usize;
            let offset = counters.block(i) * BLOCK as u64;
            if n < CLIENTS {
                client.call(Ask::Write { fua: false }, offset, BLOCK, &counters.send(i))?;
                counters.answered(i);
            } else {
                let least = counters.least(i);
                let bytes = client.call(Ask::Read, offset, BLOCK, &[])?;
                counters.judge(i, least, &bytes).map_err(io::Error::other)?;
            }
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    work().expect_err("it ends with the daemon only")
}
