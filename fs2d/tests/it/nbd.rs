//! The NBD server over its socket: what a well-meaning client sees.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fs2_block::{ConnectionId, Extent, Op};
use fs2_store::Stretch;
use fs2d::frontend::nbd::codec::{RawRequest, wire};
use fs2d::frontend::nbd::{Listen, Options, Server};
use fs2d::service::{Answer as Done, ClientRequest, Completion, Errno, ExportInfo, Lane, Service, Sink, Tag};
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};

use crate::nbd_support::*;

const MIB: usize = 1 << 20;

#[test]
fn reads_what_was_written() {
    for structured in [false, true] {
        for service in [MemService::inline(64 * MIB), MemService::threaded(64 * MIB, 3)] {
            let bench = Bench::new(service);
            let mut client = Client::go(&bench.path, structured);
            assert_eq!(client.size, 64 << 20);
            assert_ne!(client.flags & wire::FLAG_ROTATIONAL, 0);
            assert_ne!(client.flags & wire::FLAG_CAN_MULTI_CONN, 0);
            assert_eq!(client.flags & wire::FLAG_SEND_DF != 0, structured);
            for (offset, len) in [(0, 1), (511, 2), (4095, 70_001), (3, 32 * MIB), (64 * MIB - 5, 5)] {
                let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + offset) as u8).collect();
                client.write(offset as u64, &bytes);
                assert!(client.read(offset as u64, len as u32) == bytes, "{len} bytes at {offset}");
            }
            assert_eq!(client.call(wire::CMD_FLUSH, 0, 0, 0, &[]).error, 0);
            assert_eq!(client.call(wire::CMD_CACHE, 0, 0, 4096, &[]).error, 0);
        }
    }
}

#[test]
fn many_requests_at_once_each_get_their_own_reply() {
    let service = MemService::threaded(4 * MIB, 4);
    let bench = Bench::new(service.clone());
    for (i, chunk) in service.bytes.write().unwrap().chunks_mut(4096).enumerate() {
        chunk.fill(i as u8);
    }
    let mut client = bench.client();
    let reader = UnixStream::try_clone(&client.stream).unwrap();
    // All requests in one piece, so that the server finds a batch.
    let mut out = vec![];
    for i in 0..5000u64 {
        let raw = fs2d::frontend::nbd::codec::RawRequest {
            flags: 0,
            command: wire::CMD_READ,
            cookie: i,
            offset: i * 37 % 1024 * 4096,
            length: 4096,
        };
        out.extend_from_slice(&raw.encode());
    }
    let sender = std::thread::spawn(move || (&reader).write_all(&out).unwrap());
    let mut seen = vec![false; 5000];
    for _ in 0..5000 {
        let answer = client.receive().unwrap();
        assert_eq!(answer.error, 0);
        let block = answer.cookie * 37 % 1024;
        assert!(answer.data.len() == 4096 && answer.data.iter().all(|&b| b == block as u8));
        assert!(!std::mem::replace(&mut seen[answer.cookie as usize], true));
    }
    sender.join().unwrap();
    assert!(service.in_flight_max.load(Ordering::SeqCst) <= 128);
}

#[test]
fn turns_are_told_of() {
    let service = MemService::told_of_turns(MIB);
    let bench = Bench::new(service.clone());
    let mut client = bench.client();
    let (before, _) = service.turns.told();
    for n in 0..100 {
        client.read(n * 4096, 4096);
    }
    // The last answer may be here before its thread waits.
    eventually("100 turns", || {
        let (sleeps, requests) = service.turns.told();
        sleeps - before >= 100 && requests == 100
    });
}

#[test]
fn errors_come_as_the_protocol_has_them() {
    for structured in [false, true] {
        let bench = Bench::new(MemService::with_faults(MIB, 8192, 16384));
        let mut c = Client::go(&bench.path, structured);
        let end = MIB as u64;
        assert_eq!(c.error(wire::CMD_READ, 0, 8192, 512), 5, "an unknown errno is an I/O error");
        assert_eq!(c.error(wire::CMD_READ, 0, 16384, 512), 5, "a lost request is answered");
        assert_eq!(c.error(wire::CMD_READ, 0, end, 1), 22);
        assert_eq!(c.error(wire::CMD_TRIM, 0, end - 1, 2), 22);
        assert_eq!(c.error(wire::CMD_WRITE_ZEROES, 0, end - 1, 2), 28);
        assert_eq!(c.error(wire::CMD_WRITE_ZEROES, wire::CMD_FLAG_FAST_ZERO, 0, 2), 95);
        assert_eq!(c.error(12345, 0, 0, 0), 22);
        assert_eq!(c.call(wire::CMD_WRITE, 0, end - 1, 2, &[1, 2]).error, 28);
        assert_eq!(c.call(wire::CMD_WRITE, 1 << 12, 0, 2, &[1, 2]).error, 22);
        let big = vec![7; 33 << 20];
        assert_eq!(c.call(wire::CMD_WRITE, 0, 0, 33 << 20, &big).error, 22);
        assert_eq!(c.read(0, 2), [0, 0], "and nothing was written");
        let refused = c.call(wire::CMD_READ, 0, 0, 33 << 20, &[]);
        assert_eq!((refused.error, refused.data.is_empty()), (22, !structured), "{refused:?}");
    }
}

#[test]
fn flags_reach_the_service() {
    let service = MemService::inline(MIB);
    let bench = Bench::new(service.clone());
    let mut c = bench.client();
    assert_eq!(c.call(wire::CMD_WRITE, wire::CMD_FLAG_FUA, 0, 1, &[1]).error, 0);
    assert_eq!(c.call(wire::CMD_TRIM, wire::CMD_FLAG_FUA, 0, 4096, &[]).error, 0);
    assert_eq!(c.call(wire::CMD_WRITE_ZEROES, wire::CMD_FLAG_NO_HOLE, 0, 4096, &[]).error, 0);
    assert_eq!(
        *service.flagged.lock().unwrap(),
        [(Op::Write, true, false), (Op::Discard, true, false), (Op::WriteZeroes, false, true)]
    );
}

#[test]
fn block_status_tells_holes() {
    let bench = Bench::new(MemService::inline(MIB));
    let mut c = bench.client();
    c.write(8192, &[1; 4096]);
    let status = |c: &mut Client, flags, offset, len| {
        let words = c.call(wire::CMD_BLOCK_STATUS, flags, offset, len, &[]).data;
        words.chunks(4).map(|w| u32::from_be_bytes(w.try_into().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(status(&mut c, 0, 0, MIB as u32), [8192, 3, 4096, 0, (MIB - 12288) as u32, 3]);
    assert_eq!(status(&mut c, wire::CMD_FLAG_REQ_ONE, 4096, 8192), [4096, 3]);
    assert_eq!(status(&mut c, 0, 8200, 10), [10, 0]);
    let mut plain = Client::go(&bench.path, false);
    assert_eq!(plain.error(wire::CMD_BLOCK_STATUS, 0, 0, 4096), 22, "not negotiated");
}

#[test]
fn options_are_answered() {
    let bench = Bench::new(MemService::inline(MIB));
    let mut s = Client::hello(&bench.path);
    assert_eq!(ask(&mut s, wire::OPT_STARTTLS, &[])[0].0, wire::REP_ERR_UNSUP);
    assert_eq!(ask(&mut s, 0xdead, &[1, 2, 3])[0].0, wire::REP_ERR_UNSUP);
    assert_eq!(ask(&mut s, wire::OPT_GO, b"\0\0\0\x05other\0\0")[0].0, wire::REP_ERR_UNKNOWN);
    assert_eq!(ask(&mut s, wire::OPT_INFO, &vec![0; 70_000])[0].0, wire::REP_ERR_TOO_BIG);
    let list = ask(&mut s, wire::OPT_LIST, &[]);
    assert_eq!(list, [(wire::REP_SERVER, b"\0\0\0\x03fs2memory".to_vec()), (wire::REP_ACK, vec![])]);
    assert_eq!(ask(&mut s, wire::OPT_ABORT, &[]), [(wire::REP_ACK, vec![])]);
    expect_end(&mut s);

    let mut s = Client::hello(&bench.path);
    send_option(&mut s, wire::OPT_EXPORT_NAME, b"fs2");
    let mut answer = [0; 10];
    s.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..8], (MIB as u64).to_be_bytes());
    let mut s = Client::hello(&bench.path);
    send_option(&mut s, wire::OPT_EXPORT_NAME, b"fs3");
    expect_end(&mut s);
}

/// A machine whose lanes end what was asked for last first, and a request for the first byte only when told to.
#[derive(Default)]
struct FirstIsSlow {
    may_end: Mutex<bool>,
    told: Condvar,
    pending: AtomicUsize,
}

struct SlowLane {
    service: Arc<FirstIsSlow>,
    sink: Arc<dyn Sink>,
    pushed: Vec<(ClientRequest, Tag)>,
    pending: Vec<(ClientRequest, Tag)>,
}

impl Lane for SlowLane {
    fn push(&mut self, request: ClientRequest, tag: Tag) {
        self.pushed.push((request, tag));
    }

    fn run(&mut self) {
        self.service.pending.fetch_add(self.pushed.len(), Ordering::SeqCst);
        self.pending.append(&mut self.pushed);
    }

    fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn wait(&mut self, _: Option<BorrowedFd<'_>>) -> bool {
        let Some((request, tag)) = self.pending.pop() else { return false };
        if request.extent.offset() == 0 {
            let may_end = self.service.may_end.lock().unwrap();
            drop(self.service.told.wait_while(may_end, |may_end| !*may_end).unwrap());
        }
        self.service.pending.fetch_sub(1, Ordering::SeqCst);
        self.sink.answers(&mut vec![Done { tag, buffer: request.buffer, result: Ok(()), lent: None }]);
        false
    }
}

impl Service for FirstIsSlow {
    fn info(&self) -> ExportInfo {
        ExportInfo {
            size_bytes: MIB as u64,
            block_bytes: 4096,
            rotational: false,
            description: String::new(),
        }
    }

    fn connect(&self) -> ConnectionId {
        ConnectionId(0)
    }

    fn disconnect(&self, _: ConnectionId) {}

    fn submit(&self, _: ClientRequest, _: Completion) {
        unreachable!("there is a lane");
    }

    fn stretches(&self, _: Extent, _: usize) -> Result<Vec<Stretch>, Errno> {
        // Others may wait for what is pending, and would have to wait for this as well.
        if self.pending.load(Ordering::SeqCst) > 0 { Err(Errno(libc::EBUSY)) } else { Ok(vec![]) }
    }

    fn lane(self: Arc<Self>, sink: Arc<dyn Sink>) -> Option<Box<dyn Lane>> {
        Some(Box::new(SlowLane { service: self, sink, pushed: vec![], pending: vec![] }))
    }
}

/// With as many requests in flight as there may be the thread waited until none was: all others for the slowest.
#[test]
fn a_request_that_ends_makes_room_for_another() {
    let service = Arc::new(FirstIsSlow::default());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let options = Options { requests_max: 2, ..Options::default() };
    let _server = Server::bind(Listen::Unix(path.clone()), service.clone(), options).unwrap();
    let mut c = Client::go(&path, true);
    // In one piece: the thread must not wait for the first alone.
    let reads: Vec<_> = (0..5).flat_map(|n| block_of(wire::CMD_READ, n)).collect();
    c.stream.write_all(&reads).unwrap();
    for n in 1..5 {
        assert_eq!(c.receive().unwrap().cookie, n);
    }
    *service.may_end.lock().unwrap() = true;
    service.told.notify_all();
    assert_eq!(c.receive().unwrap().cookie, 0);
}

fn block_of(command: u16, cookie: u64) -> [u8; 28] {
    RawRequest { flags: 0, command, cookie, offset: cookie * 4096, length: 4096 }.encode()
}

#[test]
fn holes_are_looked_for_when_nothing_is_pending() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let service = Arc::new(FirstIsSlow::default());
    let _server = Server::bind(Listen::Unix(path.clone()), service, Options::default()).unwrap();
    let mut c = Client::go(&path, true);
    let both = [block_of(wire::CMD_READ, 1), block_of(wire::CMD_BLOCK_STATUS, 2)].concat();
    c.stream.write_all(&both).unwrap();
    for n in 1..3 {
        let answer = c.receive().unwrap();
        assert_eq!((answer.cookie, answer.error), (n, 0));
    }
}

#[test]
fn a_good_bye_is_said_after_the_last_reply() {
    let service = MemService::inline(MIB);
    let bench = Bench::new(service.clone());
    let mut c = bench.client();
    service.hold();
    c.send(wire::CMD_READ, 0, 1, 0, 100_000);
    c.send(wire::CMD_FLUSH, 0, 2, 0, 0);
    c.send(wire::CMD_DISC, 0, 3, 0, 0);
    eventually("both arrive", || service.held() == 2);
    assert_eq!(bench.server.connections(), 1);
    service.release();
    assert_eq!(c.receive().unwrap().cookie, 2);
    assert_eq!(c.receive().unwrap().data.len(), 100_000);
    c.expect_end();
    eventually("it is gone", || bench.server.connections() == 0);
    assert_eq!(service.disconnected.lock().unwrap().len(), 1);
}

#[test]
fn shutdown_answers_what_is_in_flight() {
    let service = MemService::inline(MIB);
    let bench = Arc::new(Bench::new(service.clone()));
    let mut idle = bench.client();
    let mut halfway = bench.client();
    let mut shaking = Client::hello(&bench.path);
    let mut c = bench.client();
    service.hold();
    c.send(wire::CMD_READ, 0, 1, 0, 4096);
    halfway.send(wire::CMD_READ, 0, 8, 0, 4096);
    halfway.send(wire::CMD_WRITE, 0, 9, 0, 4096);
    halfway.stream.write_all(&[9; 100]).unwrap();
    eventually("both arrive", || service.held() == 2);
    let stopping = {
        let bench = bench.clone();
        std::thread::spawn(move || bench.server.shutdown(PATIENCE))
    };
    expect_end(&mut idle.stream);
    expect_end(&mut shaking);
    eventually("the socket goes", || !bench.path.exists());
    assert!(!stopping.is_finished());
    service.release();
    assert_eq!(c.receive().unwrap().data.len(), 4096);
    assert_eq!(halfway.receive().unwrap().cookie, 8);
    expect_end(&mut halfway.stream);
    assert_eq!(stopping.join().unwrap(), 0);
    assert_eq!(bench.server.connections(), 0);
    assert_eq!(bench.server.shutdown(PATIENCE), 0);
    assert_eq!(service.bytes.read().unwrap()[0], 0, "half a payload is not a write");
    assert!(UnixStream::connect(&bench.path).is_err());
}

#[test]
fn shutdown_cuts_what_does_not_end() {
    let service = MemService::inline(MIB);
    let bench = Bench::new(service.clone());
    let mut c = bench.client();
    service.hold();
    c.send(wire::CMD_READ, 0, 1, 0, 4096);
    eventually("it arrives", || service.held() == 1);
    assert_eq!(bench.server.shutdown(Duration::from_millis(10)), 1);
    c.expect_end();
    service.release();
    eventually("it is gone", || bench.server.connections() == 0);
}

#[test]
fn the_socket_file_is_private_and_replaced_only_when_stale() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let bind = || Server::bind(Listen::Unix(path.clone()), MemService::inline(MIB), Options::default());
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a stale socket");
    let server = bind().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let error = bind().map(drop).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
    Client::go(&path, true).read(0, 1);
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, "mine").unwrap();
    assert_eq!(bind().map(drop).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    std::fs::remove_file(&path).unwrap();
    // A file that has taken the place of the server's own is left alone.
    let server = bind().unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "other").unwrap();
    drop(server);
    assert_eq!(std::fs::read(&path).unwrap(), b"other");
}

#[test]
fn tcp_is_local_unless_told_otherwise() {
    let bind = |address: &str, allow_remote| {
        let options = Options { allow_remote, ..Options::default() };
        Server::bind(Listen::Tcp(address.parse().unwrap()), MemService::inline(MIB), options)
    };
    for remote in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
        assert_eq!(bind(remote, false).map(drop).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    }
    let server = bind("0.0.0.0:0", true).unwrap();
    assert_ne!(server.tcp_address().unwrap().port(), 0);
    let server = bind("127.0.0.1:0", false).unwrap();
    let mut greeting = [0; 18];
    let mut stream = std::net::TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(server.shutdown(PATIENCE), 0);
    assert_eq!(stream.read(&mut greeting).unwrap(), 0);
}

#[test]
fn a_passed_socket_is_used_and_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let bind = |fd: OwnedFd| Server::bind(Listen::Activated(fd), MemService::inline(MIB), Options::default());
    let server = bind(listener.try_clone().unwrap().into()).unwrap();
    Client::go(&path, true).read(0, 1);
    assert_eq!(server.shutdown(PATIENCE), 0);
    assert!(path.exists());
    // The next server gets what came in between.
    let waiting = UnixStream::connect(&path).unwrap();
    let _server = bind(listener.into()).unwrap();
    let mut greeting = [0; 18];
    (&waiting).read_exact(&mut greeting).unwrap();
    // What is not a listening socket is refused, and so is one for other machines.
    assert_eq!(bind(waiting.into()).map(drop).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let remote = TcpListener::bind("0.0.0.0:0").unwrap();
    assert_eq!(bind(remote.into()).map(drop).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    let packets =
        socket::socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let address = UnixAddr::new(&dir.path().join("packets")).unwrap();
    socket::bind(packets.as_raw_fd(), &address).unwrap();
    socket::listen(&packets, Backlog::new(1).unwrap()).unwrap();
    assert_eq!(bind(packets).map(drop).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}
