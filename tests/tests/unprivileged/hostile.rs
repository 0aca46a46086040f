//! Sixty-four clients that mean no good, at a built daemon: its memory stays within what its bounds add up to, and a
//! client beside them is served, rightly, all the while. What each kind of client gets to see is in
//! `fs2d/tests/it/nbd_hostile.rs`.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fs2_tests::{Ask, NbdClient, Need, Scratch, Served, mke2fs, needs, peak_of};

const MIB: usize = 1 << 20;

/// Of `fs2d::frontend::nbd::Options`: connections, and bytes in flight of each.
const CONNECTIONS: usize = 32;
const BYTES_EACH: u64 = 64 << 20;

/// Buffers kept for use again, of all connections.
const SPARE: u64 = 64 << 20;

/// What a connection has beside its requests' data: 256 KiB read ahead, up to 128 answers without data, two threads' stacks.
const REST_EACH: u64 = 1 << 20;

/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clients of each kind that hold data: bounded by bytes, they are what costs.
const GREEDY: usize = 5;
const STALLED: usize = 3;
const SLOW: usize = 2;
const HALF_OPEN: usize = 6;
const FLOODERS: usize = 8;

/// Writes and reads blocks of its own until told to stop.
struct Neighbour {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Neighbour {
    fn new(socket: &Path) -> Neighbour {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (mut client, stopped, count) =
            (NbdClient::connect(socket).unwrap(), stop.clone(), rounds.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let round = count.load(Ordering::SeqCst);
                let bytes = vec![round as u8 | 1; 8192];
                let offset = 60 * MIB as u64 + round % 100 * 8192;
                client.call(Ask::Write { fua: false }, offset, 8192, &bytes).expect("a write beside them");
                assert!(client.call(Ask::Read, offset, 8192, &[]).expect("a read beside them") == bytes);
                count.store(round + 1, Ordering::SeqCst);
            }
        });
        Neighbour { stop, rounds, thread }
    }

    /// It gets on.
    #[track_caller]
    fn works(&self) {
        let before = self.rounds.load(Ordering::SeqCst);
        let until = Instant::now() + PATIENCE;
        while self.rounds.load(Ordering::SeqCst) < before + 20 {
            assert!(!self.thread.is_finished() && Instant::now() < until, "the neighbour does not get on");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("the neighbour was disturbed");
        self.rounds.load(Ordering::SeqCst)
    }
}

/// Asks for nonsense until the server reads no more; the bytes it took.
fn flood(socket: &Path) -> (UnixStream, usize) {
    let mut stream = in_transmission(socket);
    stream.set_nonblocking(true).unwrap();
    let mut nonsense = Vec::new();
    for command in 900_u16..1000 {
        nonsense.extend(0x2560_9513_u32.to_be_bytes());
        nonsense.extend(0_u16.to_be_bytes());
        nonsense.extend(command.to_be_bytes());
        nonsense.extend([7; 20]);
    }
    let (mut sent, mut stuck) = (0, 0);
    let until = Instant::now() + PATIENCE;
    while stuck < 100 {
        // Always at a request's beginning: a torn one would be another test.
        match stream.write(&nonsense[sent % 28..]) {
            Ok(n) => (sent, stuck) = (sent + n, 0),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                stuck += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => panic!("{e}"),
        }
        assert!(sent < 64 * MIB && Instant::now() < until, "it takes nonsense without bound: {sent} bytes");
    }
    (stream, sent)
}

fn greeted(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream
}

fn in_transmission(socket: &Path) -> UnixStream {
    let mut stream = greeted(socket);
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

#[test]
fn sixty_four_of_them_are_bounded_and_harm_nobody() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 64 * MIB as u64, &["-t", "ext2"]);
    // Greedy ones among them are looked at to the end, however long that takes.
    let served = Served::new(&scratch, &image, &["--nbd-patience", "600"]);
    let socket = served.socket();
    let neighbour = Neighbour::new(socket);
    neighbour.works();
    let base = peak_of(served.pid());

    // Half a handshake.
    let mut half_open: Vec<UnixStream> = (0..HALF_OPEN).map(|_| greeted(socket)).collect();
    half_open.iter_mut().for_each(|s| s.write_all(&[0, 0]).unwrap());
    // Six of the largest reads each, 192 MiB, whose answers nobody takes: two of them may be in work.
    let greedy: Vec<NbdClient> = (0..GREEDY)
        .map(|_| {
            let mut client = NbdClient::connect(socket).unwrap();
            for _ in 0..6 {
                client.send(Ask::Read, 0, 32 * MIB, &[]).unwrap();
            }
            client
        })
        .collect();
    // The largest write, of which little ever comes.
    let stalled: Vec<UnixStream> = (0..STALLED)
        .map(|_| {
            let mut stream = in_transmission(socket);
            let mut bytes = [0x2560_9513_u32.to_be_bytes(), 1_u32.to_be_bytes()].concat();
            bytes.extend([9; 8]);
            bytes.extend(0_u64.to_be_bytes());
            bytes.extend((32 * MIB as u32).to_be_bytes());
            bytes.extend(vec![0xff; 64 << 10]);
            stream.write_all(&bytes).unwrap();
            stream
        })
        .collect();
    // Slow ones, who take their answers in the end.
    let mut slow: Vec<(NbdClient, usize)> = (0..SLOW)
        .map(|_| {
            let mut client = NbdClient::connect(socket).unwrap();
            for _ in 0..40 {
                client.send(Ask::Read, 4 * MIB as u64, MIB, &[]).unwrap();
            }
            (client, 40)
        })
        .collect();
    let mut flooders: Vec<(UnixStream, usize)> = (0..FLOODERS).map(|_| flood(socket)).collect();
    // The rest: as many as are let in.
    let mut idle = Vec::new();
    let mut refused = 0;
    for _ in 1 + HALF_OPEN + GREEDY + STALLED + SLOW + FLOODERS..64 {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match stream.read(&mut [0; 18]) {
            Ok(18) => idle.push(stream),
            Ok(0) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused >= 64 - CONNECTIONS, "{refused} refused");

    for _ in 0..10 {
        neighbour.works();
        for (client, left) in &mut slow {
            let (_, bytes) = client.receive().unwrap();
            assert_eq!(bytes.len(), MIB);
            *left -= 1;
        }
    }
    let peak = peak_of(served.pid());
    let bound = base + (GREEDY + STALLED + SLOW) as u64 * BYTES_EACH + SPARE + CONNECTIONS as u64 * REST_EACH;
    let asked = (GREEDY * 6 + STALLED) as u64 * (32 << 20);
    println!("{} MiB before, {} MiB at most, {} MiB the bounds' sum", base >> 20, peak >> 20, bound >> 20);
    assert!(peak <= bound, "{peak} bytes, {bound} are allowed");
    assert!(base + asked > bound, "without bounds it would have been more");
    // They did hold what they may: else the peak shows nothing.
    assert!(peak > base + GREEDY as u64 * (32 << 20), "{peak} bytes, of {base}");

    // Half a handshake is cut after ten seconds, and so is room made.
    for stream in &mut half_open {
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    }
    neighbour.works();
    // Who reads at last has every answer.
    let (flooder, sent) = &mut flooders[0];
    flooder.set_nonblocking(false).unwrap();
    let mut answers = vec![0; *sent / 28 * 16];
    flooder.read_exact(&mut answers).unwrap();
    assert!(answers.chunks(16).all(|a| a[..4] == [0x67, 0x44, 0x66, 0x98] && a[7] == 22));
    for (client, left) in &mut slow {
        for _ in 0..*left {
            assert_eq!(client.receive().unwrap().1.len(), MIB);
        }
    }
    drop((half_open, greedy, stalled, slow, flooders, idle));
    neighbour.works();
    assert!(neighbour.end() > 200);
    // What was half written was not.
    let mut client = NbdClient::connect(socket).unwrap();
    assert!(client.call(Ask::Read, 512, 512, &[]).unwrap().iter().all(|&b| b != 0xff));
    served.stop().ended(0);
}

/// Of `fs2d serve --nbd-memory`, and its default bound for each connection beside.
const MEMORY_MIB: u64 = 96;

#[test]
fn many_large_requests_share_the_servers_memory() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    const CLIENTS: usize = 16;
    const EACH: usize = 2;
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 64 * MIB as u64, &["-t", "ext2"]);
    let served = Served::new(&scratch, &image, &["--nbd-memory", &MEMORY_MIB.to_string()]);
    let socket = served.socket();
    let neighbour = Neighbour::new(socket);
    neighbour.works();
    let base = peak_of(served.pid());
    // All ask for a GiB before anyone takes an answer; each of them alone may hold 64 MiB.
    let mut clients: Vec<NbdClient> = (0..CLIENTS).map(|_| NbdClient::connect(socket).unwrap()).collect();
    for client in &mut clients {
        for _ in 0..EACH {
            client.send(Ask::Read, 0, 32 * MIB, &[]).unwrap();
        }
    }
    // Small requests wait for none of it.
    (0..10).for_each(|_| neighbour.works());
    // On a busy machine the server comes to it later.
    let patience = Instant::now() + Duration::from_secs(60);
    let mut held = peak_of(served.pid());
    while held <= base + (48 << 20) && Instant::now() < patience {
        neighbour.works();
        held = peak_of(served.pid());
    }
    assert!(held > base + (48 << 20), "they hold what they may, or this shows nothing: {held} of {base}");
    // Then all take theirs, and one in four writes as much as well: who waits has its turn.
    std::thread::scope(|s| {
        let threads: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(n, client)| {
                s.spawn(move || {
                    for _ in 0..EACH {
                        assert_eq!(client.receive().expect("an answer in the end").1.len(), 32 * MIB);
                    }
                    if n % 4 == 0 {
                        let offset = 8 * MIB as u64;
                        let bytes = vec![n as u8 + 1; 32 * MIB];
                        client.call(Ask::Write { fua: false }, offset, 32 * MIB, &bytes).expect("a write");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("a client got all of its answers"));
    });
    let peak = peak_of(served.pid());
    let bound = base + (MEMORY_MIB << 20) + SPARE + CONNECTIONS as u64 * ((1 << 20) + REST_EACH);
    let asked = (CLIENTS * EACH * 32) as u64 >> 10;
    println!(
        "{} MiB before, {} MiB at most, {} MiB allowed, {asked} GiB asked for",
        base >> 20,
        peak >> 20,
        bound >> 20
    );
    assert!(peak <= bound, "{peak} bytes, {bound} are allowed");
    let data = clients[1].call(Ask::Read, 8 * MIB as u64, 32 * MIB, &[]).unwrap();
    assert!(data.iter().all(|&b| [1, 5, 9, 13].contains(&b)), "what was written, by one of them or another");
    neighbour.works();
    drop(clients);
    assert!(neighbour.end() > 200);
    served.stop().ended(0);
}
