use super::super::codec::WireError;
use super::*;
use std::io::Read;
use std::os::unix::net::UnixStream;

fn pair(requests_max: usize, bytes_max: u64) -> (Arc<Outbox>, UnixStream) {
    of_budget(requests_max, bytes_max, &Budget::new(u64::MAX))
}

fn of_budget(requests_max: usize, bytes_max: u64, budget: &Arc<Budget>) -> (Arc<Outbox>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let bounds = Bounds { requests_max, bytes_max };
    (
        Outbox::new(Socket::new(ours.into(), None), bounds, Arc::default(), Arc::default(), budget.clone()),
        theirs,
    )
}

fn reply(cookie: u64, data: usize) -> Reply {
    let tail = Tail::Data(AlignedBuf::copy_of(&vec![cookie as u8; data]));
    Reply { head: ReplyHead::simple(cookie, None), tail, cost_bytes: data as u64 }
}

#[test]
fn many_threads_one_stream() {
    // More data than a socket holds, so that the writer thread has its part.
    let (outbox, mut theirs) = pair(1000, 1 << 30);
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            let outbox = outbox.clone();
            std::thread::spawn(move || {
                for i in 0..200 {
                    assert!(outbox.admit(5000));
                    outbox.push(Reply { cost_bytes: 5000, ..reply(t * 200 + i, 5000) });
                }
            })
        })
        .collect();
    let mut seen = vec![false; 800];
    for _ in 0..800 {
        let mut bytes = [0; 5016];
        theirs.read_exact(&mut bytes).unwrap();
        let cookie = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
        assert_eq!(bytes[..16], *ReplyHead::simple(cookie, None).bytes());
        assert!(bytes[16..].iter().all(|&b| b == cookie as u8), "replies are not torn");
        assert!(!std::mem::replace(&mut seen[cookie as usize], true), "{cookie} twice");
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
    outbox.finish();
    assert_eq!(outbox.in_flight(), (0, 0));
    assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn pipes_keep_their_place_among_buffers() {
    const BYTES: usize = 100_000;
    let (outbox, mut theirs) = pair(1000, 1 << 30);
    for i in 0..60 {
        assert!(outbox.admit(BYTES as u64));
        let mut reply = reply(i, BYTES);
        if i % 3 > 0
            && let Some(mut pipe) = outbox.pipes.take()
        {
            pipe.put(reply.head.bytes()).unwrap();
            pipe.put(&[i as u8; BYTES]).unwrap();
            reply.tail = Tail::Lent(pipe);
        }
        // By nobody's reader: it is sent at once, as far as the socket takes it, the rest by the writer.
        outbox.push(reply);
    }
    assert!(outbox.in_flight().1 >= 3_000_000, "the sockets do not hold so much");
    for i in 0..60 {
        let mut bytes = [0; 16 + BYTES];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..16], *ReplyHead::simple(i, None).bytes());
        assert!(bytes[16..].iter().all(|&b| b == i as u8), "reply {i} is torn");
    }
    outbox.finish();
    assert_eq!(outbox.in_flight(), (0, 0));
    assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_client_that_does_not_read_holds_only_its_own() {
    let (outbox, theirs) = pair(8, 8 << 20);
    for i in 0..8 {
        assert!(outbox.admit(1 << 20));
        // Returns though nobody reads.
        outbox.push(reply(i, 1 << 20));
    }
    assert!(outbox.in_flight().0 >= 7, "a socket does not hold a MiB");
    let blocked = {
        let outbox = outbox.clone();
        std::thread::spawn(move || outbox.admit(1 << 20) && outbox.admit(8 << 20))
    };
    drop(theirs);
    assert!(!blocked.join().unwrap(), "the connection is dead");
    while outbox.in_flight().0 > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn a_large_request_is_admitted_alone() {
    let (outbox, _theirs) = pair(8, 100);
    assert!(outbox.admit(5000));
    outbox.push(Reply {
        head: ReplyHead::simple(1, Some(WireError::Io)),
        tail: Tail::None,
        cost_bytes: 5000,
    });
    assert!(outbox.admit(5000));
    assert_eq!(outbox.in_flight(), (1, 5000));
}

#[test]
fn connections_share_a_budget() {
    const MIB: u64 = 1 << 20;
    let budget = Budget::new(40 * MIB);
    let (one, _theirs) = of_budget(100, 64 * MIB, &budget);
    let (two, _others) = of_budget(100, 64 * MIB, &budget);
    let (three, thirds) = of_budget(100, 64 * MIB, &budget);
    assert_eq!(one.try_admit(32 * MIB), Some(true));
    assert_eq!(two.try_admit(32 * MIB), None);
    assert_eq!(two.try_admit(MIB), Some(true), "a little is everybody's own");
    assert_eq!(budget.used(), 31 * MIB);
    let waits = {
        let two = two.clone();
        std::thread::spawn(move || two.admit(31 * MIB))
    };
    while budget.waiting() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(three.try_admit(2 * MIB), None, "somebody was first");
    assert_eq!(three.try_admit(MIB), Some(true));
    one.withdraw(1, 32 * MIB);
    assert!(waits.join().unwrap());
    assert_eq!(budget.used(), 31 * MIB);
    // Who waits ends with its connection, and so does what it had.
    let waits = {
        let three = three.clone();
        std::thread::spawn(move || three.admit(32 * MIB))
    };
    drop(thirds);
    assert!(!waits.join().unwrap());
    two.kill();
    two.withdraw(2, 32 * MIB);
    assert_eq!((budget.used(), budget.waiting()), (0, 0));
}

#[test]
fn the_reader_gathers_its_own() {
    let (outbox, mut theirs) = pair(100, 1 << 20);
    theirs.set_nonblocking(true).unwrap();
    outbox.adopt_reader(false);
    assert!(outbox.admit(0));
    outbox.push(reply(1, 0));
    let early = theirs.read(&mut [0; 100]).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::WouldBlock);
    assert!(outbox.admit(0));
    outbox.push(reply(2, 0));
    outbox.flush();
    assert_eq!(theirs.read(&mut [0; 100]).unwrap(), 32);
    outbox.finish();
}
