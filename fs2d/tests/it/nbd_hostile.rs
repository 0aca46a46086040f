//! The NBD server and clients that do not mean well. Beside each of them another client works on: it must
//! neither see an error nor wait.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fs2d::frontend::nbd::codec::{RawRequest, wire};
use fs2d::frontend::nbd::{Listen, Options, Server};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::nbd_support::*;

const MIB: usize = 1 << 20;

/// A client that reads and writes its own half of the volume until told to stop, and the rounds it made.
struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u32>,
}

impl Neighbour {
    fn new(bench: &Bench) -> Neighbour {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut client, theirs) = (bench.client(), stop.clone());
        let thread = std::thread::spawn(move || {
            let half = client.size / 2;
            let mut rounds = 0;
            while !theirs.load(Ordering::SeqCst) || rounds == 0 {
                let bytes = [rounds as u8; 8192];
                let offset = half + u64::from(rounds) * 4096 % (half - 8192);
                client.write(offset, &bytes);
                assert_eq!(client.read(offset, 8192), bytes);
                rounds += 1;
            }
            rounds
        });
        Neighbour { stop, thread }
    }

    /// Its work so far was right, and it still works.
    fn assert_well(self) {
        self.stop.store(true, Ordering::SeqCst);
        assert!(self.thread.join().expect("the neighbour was disturbed") > 0);
    }
}

/// Sends, and does not mind when the server has had enough.
fn send_anyway(stream: &mut UnixStream, bytes: &[u8]) {
    if let Err(e) = stream.write_all(bytes) {
        assert!(matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{e}");
    }
}

fn header(command: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    RawRequest { flags, command, cookie: 1, offset, length }.encode().to_vec()
}

#[test]
fn random_bytes_in_every_phase() {
    let service = MemService::threaded(4 * MIB, 2);
    let bench = Bench::with(service, Options { connections_max: 1000, ..Options::default() });
    let neighbour = Neighbour::new(&bench);
    // Commands keep to the lower half: what a client may do to the volume it may do.
    let request = (0u16..9, 0u16..40, 0u64..1 << 20, prop_oneof![0u32..70_000, any::<u32>()]);
    let tame = move |(command, flags, offset, length): (u16, u16, u64, u32)| {
        let length = if command == wire::CMD_READ || command == wire::CMD_CACHE {
            length
        } else {
            length % MIB as u32
        };
        header(command, flags, offset, length)
    };
    let piece = prop_oneof![
        request.prop_map(tame),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|mut b| {
            // A random header that is a valid write elsewhere does not happen, but let it be certain.
            if let Some(first) = b.first_mut() {
                *first |= 0x80;
            }
            b
        }),
    ];
    let case = (0..4u8, prop::collection::vec(piece, 1..12), any::<bool>());
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    runner
        .run(&case, |(phase, pieces, polite)| {
            let mut stream = match phase {
                0 => Client::raw(&bench.path),
                1 => Client::hello(&bench.path),
                2 => Client::go(&bench.path, false).stream,
                _ => bench.client().stream,
            };
            send_anyway(&mut stream, &pieces.concat());
            if polite {
                let _ = stream.shutdown(Shutdown::Write);
                expect_end(&mut stream);
            }
            Ok(())
        })
        .unwrap();
    neighbour.assert_well();
    eventually("all are gone", || bench.server.connections() == 0);
}

#[test]
fn a_handshake_cut_anywhere() {
    let bench = Bench::new(MemService::inline(4 * MIB));
    let neighbour = Neighbour::new(&bench);
    let mut whole = vec![0, 0, 0, 3];
    whole.extend_from_slice(b"IHAVEOPT\0\0\0\x08\0\0\0\0IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0");
    whole.extend(header(wire::CMD_WRITE, 0, 0, 10));
    whole.extend_from_slice(&[1; 9]);
    for cut in 0..whole.len() {
        let mut stream = Client::raw(&bench.path);
        stream.write_all(&whole[..cut]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        expect_end(&mut stream);
    }
    neighbour.assert_well();
    assert_eq!(bench.client().read(0, 10), [0; 10], "a write cut short was not done");
    eventually("all are gone", || bench.server.connections() == 0);
}

#[test]
fn a_client_that_says_nothing_is_sent_away() {
    let options = Options { handshake_timeout: Duration::from_secs(1), ..Options::default() };
    let bench = Bench::with(MemService::inline(4 * MIB), options);
    let mut established = bench.client();
    let mut silent = Client::raw(&bench.path);
    let mut halfway = Client::hello(&bench.path);
    halfway.write_all(b"IHAVE").unwrap();
    expect_end(&mut silent);
    expect_end(&mut halfway);
    // Each byte by itself does not buy more time: an option of 60,000 of them, one a millisecond.
    let mut slow = Client::hello(&bench.path);
    slow.write_all(b"IHAVEOPT\0\0\0\x63\0\0\xea\x60").unwrap();
    let mut sent = 0;
    eventually("the slow one is cut", || {
        sent += 1;
        slow.write_all(&[0]).is_err()
    });
    assert!(sent < 60_000, "it was allowed to finish");
    assert_eq!(established.read(0, 1), [0], "the timeout ends with the handshake");
}

#[test]
fn handshakes_without_end() {
    let bench = Bench::new(MemService::inline(4 * MIB));
    let neighbour = Neighbour::new(&bench);
    // Options for ever, replies never read.
    let mut flood = Client::hello(&bench.path);
    let many = b"IHAVEOPT\0\0\0\x63\0\0\0\0".repeat(100_000);
    send_anyway(&mut flood, &many);
    expect_end(&mut flood);
    // Options too long to be skipped, and one that claims 4 GiB.
    for len in [(1u32 << 20) + 1, u32::MAX] {
        let mut long = Client::hello(&bench.path);
        let mut bytes = b"IHAVEOPT\0\0\0\x07".to_vec();
        bytes.extend_from_slice(&len.to_be_bytes());
        long.write_all(&bytes).unwrap();
        expect_end(&mut long);
    }
    let mut flags = Client::raw(&bench.path);
    flags.write_all(&[0, 0, 1, 3]).unwrap();
    expect_end(&mut flags);
    neighbour.assert_well();
}

#[test]
fn a_stream_gone_astray_ends_that_connection() {
    let service = MemService::inline(4 * MIB);
    let bench = Bench::new(service.clone());
    let neighbour = Neighbour::new(&bench);
    for wrong in [&[0u8; 4][..], b"IHAVEOPT", &[0x25, 0x60, 0x95, 0x14]] {
        let mut c = bench.client();
        c.write(0, &[1; 512]);
        c.stream.write_all(wrong).unwrap();
        c.expect_end();
    }
    // Lengths no client means.
    for length in [(64 << 20) + 1, u32::MAX] {
        let mut c = bench.client();
        c.send(wire::CMD_WRITE, 0, 1, 0, length);
        c.expect_end();
    }
    neighbour.assert_well();
    assert_eq!(service.bytes_in_flight.load(Ordering::SeqCst), 0);
}

#[test]
fn refused_payloads_are_read_and_dropped() {
    let bench = Bench::new(MemService::inline(4 * MIB));
    let neighbour = Neighbour::new(&bench);
    let mut c = bench.client();
    // Payloads that look like requests.
    let payload = header(wire::CMD_WRITE, 0, 0, 1).repeat(64 * MIB / 28 + 1);
    for length in [33 * MIB, 64 * MIB] {
        c.send(wire::CMD_WRITE, 0, 5, 0, length as u32);
        c.stream.write_all(&payload[..length]).unwrap();
        assert_eq!(c.receive().unwrap().error, 22);
    }
    assert_eq!(c.read(0, 64), [0; 64]);
    neighbour.assert_well();
}

#[test]
fn a_flood_of_nonsense_whose_answers_nobody_reads() {
    let service = MemService::threaded(4 * MIB, 2);
    let bench = Bench::new(service.clone());
    let neighbour = Neighbour::new(&bench);
    let flooder = bench.client();
    let mut sender = flooder.stream.try_clone().unwrap();
    sender.set_nonblocking(true).unwrap();
    // The server stops reading when its answers pile up: at some point nothing more can be sent.
    let nonsense = header(999, 0, 0, 0).repeat(100);
    let mut sent = 0;
    let mut stuck = 0;
    eventually("the server stops reading", || match sender.write(&nonsense) {
        Ok(n) => {
            (sent, stuck) = (sent + n, 0);
            assert!(sent < 64 * MIB, "unbounded: {sent} bytes taken");
            false
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => {
            stuck += 1;
            stuck == 200
        }
        Err(e) => panic!("{e}"),
    });
    neighbour.assert_well();
    // It gets its answers once it reads. (The mode is of the socket, not of the handle.)
    sender.set_nonblocking(false).unwrap();
    let mut flooder = flooder;
    for _ in 0..sent / 28 {
        assert_eq!(flooder.receive().unwrap().error, 22);
    }
}

#[test]
fn reads_whose_answers_nobody_reads_hold_bounded_memory() {
    let service = MemService::threaded(8 * MIB, 2);
    let bench = Bench::with(service.clone(), Options { bytes_max: 16 << 20, ..Options::default() });
    let neighbour = Neighbour::new(&bench);
    let mut greedy = bench.client();
    for i in 0..100 {
        greedy.send(wire::CMD_READ, 0, i, 0, 4 << 20);
    }
    // Four of 4 MiB are in work or wait for the client, no more, though 100 were asked for; the workers
    // are free for others all the while.
    let before = service.in_flight_max.load(Ordering::SeqCst);
    neighbour.assert_well();
    let neighbour = Neighbour::new(&bench);
    neighbour.assert_well();
    assert!(before <= 8, "{before} requests at a time");
    assert!(service.bytes_in_flight_max.load(Ordering::SeqCst) <= 17 << 20);
    let mut seen = 0u128;
    for _ in 0..100 {
        let answer = greedy.receive().unwrap();
        assert_eq!((answer.error, answer.data.len()), (0, 4 << 20));
        seen |= 1 << answer.cookie;
    }
    assert_eq!(seen, (1 << 100) - 1);
}

/// What such a client holds is other clients' memory: they get it back.
#[test]
fn who_takes_no_answers_does_not_keep_its_memory() {
    let service = MemService::threaded(8 * MIB, 2);
    let patience = Some(Duration::from_millis(200));
    // One of them holds all there is.
    let options = Options { memory_max: 8 << 20, patience, ..Options::default() };
    let bench = Bench::with(service.clone(), options);
    let mut idle = bench.client();
    let mut greedy = bench.client();
    let mut half_closed = bench.client();
    let mut waiting = bench.client();
    for i in 0..8 {
        greedy.send(wire::CMD_READ, 0, i, 0, 8 << 20);
    }
    eventually("it has its answers waiting", || service.submitted.load(Ordering::SeqCst) > 0);
    assert_eq!(waiting.read(4096, 8 << 19).len(), 8 << 19, "its turn comes");
    eventually("one was cut", || service.cut.load(Ordering::SeqCst) == 1);
    // Who sends no more is owed its answers, and as patiently waited for.
    let before = service.submitted.load(Ordering::SeqCst);
    for i in 0..4 {
        half_closed.send(wire::CMD_READ, 0, i, 0, 1 << 20);
    }
    eventually("all are asked for", || service.submitted.load(Ordering::SeqCst) == before + 4);
    half_closed.stream.shutdown(Shutdown::Write).unwrap();
    eventually("the other one too", || service.cut.load(Ordering::SeqCst) == 2);
    eventually("both are gone", || bench.server.connections() == 2);
    assert_eq!(service.bytes_in_flight.load(Ordering::SeqCst), 0);
    assert_eq!(idle.read(0, 1), [0], "who owes nothing may be silent");
}

#[test]
fn who_leaves_a_write_half_sent_does_not_keep_its_memory() {
    let service = MemService::inline(4 * MIB);
    let patience = Some(Duration::from_millis(200));
    let bench = Bench::with(service.clone(), Options { memory_max: 1, patience, ..Options::default() });
    let mut idle = bench.client();
    let mut half = bench.client();
    half.send(wire::CMD_WRITE, 0, 1, 0, 3 << 20);
    half.stream.write_all(&[7; 4096]).unwrap();
    eventually("its payload is waited for", || bench.server.connections() == 2);
    let mut waiting = bench.client();
    waiting.write(MIB as u64, &[9; 2 * MIB]);
    half.expect_end();
    eventually("it was counted", || service.cut.load(Ordering::SeqCst) == 1);
    assert_eq!(waiting.read(0, 4096), [0; 4096], "half a write was not done");
    // A part of a header holds nothing.
    let beginning = header(wire::CMD_READ, 0, 0, 1);
    idle.stream.write_all(&beginning[..20]).unwrap();
    let mut second = bench.client();
    second.send(wire::CMD_WRITE, 0, 1, 0, 3 << 20);
    second.expect_end();
    idle.stream.write_all(&beginning[20..]).unwrap();
    let mut reply = [0; 29];
    idle.stream.read_exact(&mut reply).unwrap();
    assert_eq!((&reply[..4], reply[28]), (&wire::STRUCTURED_REPLY_MAGIC.to_be_bytes()[..], 0));
}

/// A byte now and then is no silence: it kept its memory for as long as it liked.
#[test]
fn who_sends_a_write_byte_by_byte_does_not_keep_its_memory() {
    let service = MemService::inline(4 * MIB);
    let patience = Some(Duration::from_millis(500));
    let bench = Bench::with(service.clone(), Options { memory_max: 1, patience, ..Options::default() });
    let mut slow = bench.client();
    slow.send(wire::CMD_WRITE, 0, 1, 0, (1 << 20) + 4096);
    let ended = std::thread::scope(|scope| {
        let dripping = scope.spawn(|| {
            while slow.stream.write_all(&[7]).is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        eventually("it was counted", || service.cut.load(Ordering::SeqCst) == 1);
        dripping.join()
    });
    assert!(ended.is_ok());
    assert_eq!(bench.client().read(0, 4096), [0; 4096], "half a write was not done");
}

#[test]
fn the_bounds_hold_while_the_machine_is_slow() {
    let service = MemService::inline(8 * MIB);
    let options = Options { requests_max: 10, bytes_max: 1 << 20, ..Options::default() };
    let bench = Bench::with(service.clone(), options);
    let mut small = bench.client();
    let mut large = bench.client();
    service.hold();
    for i in 0..50 {
        small.send(wire::CMD_FLUSH, 0, i, 0, 0);
    }
    for i in 0..4 {
        large.send(wire::CMD_READ, 0, i, 0, 700_000);
    }
    eventually("ten and one arrive", || service.held() >= 11);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(service.held(), 11, "and no more");
    service.release();
    let mut cookies: Vec<u64> = (0..50).map(|_| small.receive().unwrap().cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..50).collect::<Vec<_>>());
    for _ in 0..4 {
        assert_eq!(large.receive().unwrap().data.len(), 700_000);
    }
}

#[test]
fn clients_that_vanish() {
    let service = MemService::inline(4 * MIB);
    let bench = Bench::new(service.clone());
    service.hold();
    // With requests in flight; with a payload half sent; idle.
    let mut asked = bench.client();
    asked.send(wire::CMD_READ, 0, 1, 0, 4096);
    asked.send(wire::CMD_WRITE, 0, 2, 4096, 4096);
    asked.stream.write_all(&[7; 4096]).unwrap();
    eventually("both arrive", || service.held() == 2);
    drop(asked);
    let mut half = bench.client();
    half.send(wire::CMD_WRITE, 0, 1, 0, 4096);
    half.stream.write_all(&[7; 4095]).unwrap();
    drop(half);
    drop(bench.client());
    eventually("the idle ones are gone", || bench.server.connections() == 1);
    assert_eq!(service.disconnected.lock().unwrap().len(), 2);
    service.release();
    eventually("all are gone", || bench.server.connections() == 0);
    let mut c = bench.client();
    assert_eq!(c.read(0, 8192), [vec![0; 4096], vec![7; 4096]].concat(), "what was asked whole was done");
}

#[test]
fn what_a_lost_client_left_is_not_done_later() {
    // Over TCP, where a reply to a client that has left does not fail at once.
    let service = MemService::inline(4 * MIB);
    let options = Options { requests_max: 1, ..Options::default() };
    let listen = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let server = Server::bind(listen, service.clone(), options).unwrap();
    let address = server.tcp_address().unwrap();
    service.hold();
    let mut old = Client::go_tcp(address);
    // The write waits: this client has one in flight.
    let write = header(wire::CMD_WRITE, 0, 0, 512);
    old.stream.write_all(&[header(wire::CMD_FLUSH, 0, 0, 0), write, vec![1; 512]].concat()).unwrap();
    eventually("the first arrives", || service.held() == 1);
    drop(old);
    // It comes back and goes on; then the old connection's turn would be.
    let mut new = Client::go_tcp(address);
    service.release();
    new.write(0, &[2; 512]);
    eventually("the old one is gone", || server.connections() == 1);
    assert_eq!(new.read(0, 512), [2; 512]);
    assert_eq!(service.submitted.load(Ordering::SeqCst), 3);
}

/// That something was received counted as a sign of the client's life, also where it had lain in the socket since.
#[test]
fn what_a_lost_client_left_unread_is_not_done_later() {
    let service = MemService::inline(4 * MIB);
    let listen = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let server = Server::bind(listen, service.clone(), Options::default()).unwrap();
    let address = server.tcp_address().unwrap();
    service.status_waits.store(true, Ordering::SeqCst);
    let mut old = Client::go_tcp(address);
    old.send(wire::CMD_BLOCK_STATUS, 0, 1, 0, 4096);
    eventually("its thread has something else to do", || service.status_asked.load(Ordering::SeqCst) == 1);
    old.stream.write_all(&[header(wire::CMD_WRITE, 0, 0, 512), vec![1; 512]].concat()).unwrap();
    drop(old);
    // It comes back and goes on, for longer than the server may believe that the old one is there.
    let mut new = Client::go_tcp(address);
    new.write(0, &[2; 512]);
    std::thread::sleep(Duration::from_millis(20));
    service.status_waits.store(false, Ordering::SeqCst);
    eventually("the old one is gone", || server.connections() == 1);
    assert!(new.read(0, 512) == [2; 512], "an older write was done after it");
}

/// That an answer could not be sent ended the connection as a stop of the server does: with what was gathered.
#[test]
fn what_a_lost_client_left_is_not_done_when_an_answer_fails() {
    let service = MemService::inline(4 * MIB);
    let bench = Bench::new(service.clone());
    service.status_waits.store(true, Ordering::SeqCst);
    let mut c = bench.client();
    let (status, write) = (header(wire::CMD_BLOCK_STATUS, 0, 0, 4096), header(wire::CMD_WRITE, 0, 0, 512));
    // All of it is received at once. So many answers do not wait for what comes behind them.
    let answers = header(wire::CMD_CACHE, 0, 0, 512).repeat(100);
    c.stream.write_all(&[status, write, vec![1; 512], answers].concat()).unwrap();
    eventually("its thread has something else to do", || service.status_asked.load(Ordering::SeqCst) == 1);
    drop(c);
    service.status_waits.store(false, Ordering::SeqCst);
    eventually("its connection ends", || bench.server.connections() == 0);
    assert_eq!(service.submitted.load(Ordering::SeqCst), 0);
}

/// What was asked when the client was found gone was neither answered nor given up: its connection never ended.
#[test]
fn who_leaves_while_holes_are_looked_for_leaves_nothing() {
    let service = MemService::slow_to_tell_holes(4 * MIB, Duration::from_millis(200));
    let bench = Bench::new(service);
    let mut c = bench.client();
    let status = header(wire::CMD_BLOCK_STATUS, 0, 0, 4096);
    let read = header(wire::CMD_READ, 0, 0, 4096);
    // The second looks whether the client is still there before it begins the read.
    c.stream.write_all(&[status.clone(), read, status].concat()).unwrap();
    drop(c);
    eventually("its connection ends", || bench.server.connections() == 0);
}

#[test]
fn too_many_connections() {
    let options = Options { connections_max: 2, ..Options::default() };
    let bench = Bench::with(MemService::inline(4 * MIB), options);
    let mut first = bench.client();
    let second = bench.client();
    let mut third = Client::raw(&bench.path);
    assert_eq!(third.read(&mut [0; 18]).unwrap(), 0);
    assert_eq!(first.read(0, 1), [0]);
    drop(second);
    eventually("there is room again", || bench.server.connections() == 1);
    bench.client().read(0, 1);
}

#[test]
fn a_volume_can_be_stopped_under_fire() {
    let service = MemService::threaded(8 * MIB, 2);
    let bench = Bench::new(service.clone());
    let mut greedy = bench.client();
    let mut sending = bench.client();
    for i in 0..50 {
        greedy.send(wire::CMD_READ, 0, i, 0, 4 << 20);
    }
    sending.send(wire::CMD_WRITE, 0, 1, 0, 4 << 20);
    let thread = std::thread::spawn(move || while sending.stream.write_all(&[1; 4096]).is_ok() {});
    eventually("greedy has its answers waiting", || service.submitted.load(Ordering::SeqCst) >= 16);
    // Greedy reads nothing: it must be cut, the other one ends by itself.
    assert!(bench.server.shutdown(Duration::from_millis(300)) >= 1);
    thread.join().unwrap();
    eventually("all are gone", || bench.server.connections() == 0);
}
