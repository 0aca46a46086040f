//! Requests of a mount that no thread stays with: how many, who answers them, and what becomes of them when the
//! service or the mount ends. Needs root and /dev/fuse; without them each test says so and ends.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fs2_block::Op;
use fs2d::frontend::fuse::Control;

use crate::fuse_mem::{BLOCK, MemService, PANIC, Rig, fuse_is_here};

/// What [`fs2d::frontend::fuse::Server::mount`] says of them.
const BEGUN_MAX: usize = 12;

const READERS: usize = 40;

const PATIENCE: Duration = Duration::from_secs(20);

/// Cuts the connection off after some patience, so that a test that hangs fails: who waits for an answer cannot even
/// be killed.
struct Patience(Option<(Sender<()>, JoinHandle<()>)>);

impl Patience {
    fn new(rig: &Rig) -> Patience {
        let control = Control::open(rig.server.fuse_connection().unwrap()).unwrap();
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || {
            if ended.recv_timeout(2 * PATIENCE) == Err(RecvTimeoutError::Timeout) {
                println!("nothing goes on: the connection is cut off");
                control.abort().unwrap();
            }
        });
        Patience(Some((end, thread)))
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        let (end, thread) = self.0.take().unwrap();
        drop(end);
        thread.join().unwrap();
    }
}

fn rig(threads: usize) -> (Patience, Rig, Arc<MemService>) {
    let service = MemService::from_memory((READERS + 1) * BLOCK);
    let rig = Rig::of(service.clone(), threads);
    (Patience::new(&rig), rig, service)
}

/// A hang becomes a failure that says what was waited for.
fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn errno(result: std::io::Result<usize>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// Block `n` starts with its number.
fn number(file: &File, n: usize) {
    file.write_all_at(&(n as u32).to_le_bytes(), (n * BLOCK) as u64).unwrap();
}

fn numbered(file: &File, n: usize) -> bool {
    let mut room = [0; 4];
    file.read_exact_at(&mut room, (n * BLOCK) as u64).unwrap();
    u32::from_le_bytes(room) as usize == n
}

#[test]
fn one_thread_goes_on_while_requests_wait() {
    if !fuse_is_here() {
        return;
    }
    let (_patience, rig, service) = rig(1);
    let file = File::options().read(true).write(true).open(rig.file()).unwrap();
    number(&file, 7);
    number(&file, 8);
    service.holds.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| numbered(&file, 7));
        until("the read", || service.holding() == 1);
        // The only thread has a read that is not answered, and serves writes, flushes and other reads.
        number(&file, 9);
        file.sync_all().unwrap();
        let held = service.held();
        assert!(numbered(&file, 8) && numbered(&file, 9));
        assert!(!waits.is_finished());
        held.into_iter().for_each(|(request, done)| service.answer(request, done));
        assert!(waits.join().unwrap());
    });
    drop(file);
    rig.server.unmount().unwrap();
}

#[test]
fn so_many_are_begun_and_no_more() {
    if !fuse_is_here() {
        return;
    }
    for threads in [1, 4] {
        let (_patience, rig, service) = rig(threads);
        let file = File::options().read(true).write(true).open(rig.file()).unwrap();
        (0..READERS).for_each(|n| number(&file, n));
        let before = service.begun.load(Ordering::Relaxed);
        service.holds.store(true, Ordering::Relaxed);
        let control = Control::open(rig.server.fuse_connection().unwrap()).unwrap();
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|n| {
                    scope.spawn({
                        let file = &file;
                        move || numbered(file, n)
                    })
                })
                .collect();
            // Another test's child that has not begun its program yet has the file too, and its closing is a request.
            until("all readers", || control.waiting().unwrap() >= Some(READERS as u64));
            until("as many as may be", || service.holding() >= BEGUN_MAX + threads);
            // Time for one too many.
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(service.holding(), BEGUN_MAX + threads);
            assert_eq!(service.begun.load(Ordering::Relaxed) - before, BEGUN_MAX);
            // In another order than they came in.
            service.held().into_iter().rev().for_each(|(request, done)| service.answer(request, done));
            assert!(readers.into_iter().all(|r| r.join().unwrap()), "a reader got another's block");
        });
        assert_eq!(service.seen(Op::Read), READERS as u64);
        drop(file);
        rig.server.unmount().unwrap();
    }
}

/// A request that the service forgets ends with an error, and its place is free again.
#[test]
fn a_dropped_completion_is_an_answer() {
    if !fuse_is_here() {
        return;
    }
    let (_patience, rig, service) = rig(1);
    let file = File::options().read(true).write(true).open(rig.file()).unwrap();
    for n in 0..3 * BEGUN_MAX {
        service.holds.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| errno(file.read_at(&mut [0; 8], 0)));
            until("the read", || service.holding() == 1);
            drop(service.held());
            assert_eq!(waits.join().unwrap(), Some(libc::EIO));
        });
        assert_eq!(service.begun.load(Ordering::Relaxed), n + 1, "its place is not free");
    }
    number(&file, 1);
    assert!(numbered(&file, 1));
    drop(file);
    rig.server.unmount().unwrap();
}

/// The service's own threads may fail as well as the mount's.
#[test]
fn errors_and_panics_elsewhere_are_answers() {
    if !fuse_is_here() {
        return;
    }
    let (_patience, rig, service) = rig(1);
    let file = File::options().read(true).write(true).open(rig.file()).unwrap();
    service.holds.store(true, Ordering::Relaxed);
    for (fail, want) in [(libc::ENOSPC, libc::ENOSPC), (libc::ENOSYS, libc::EIO), (PANIC, libc::EIO)] {
        std::thread::scope(|scope| {
            service.holds.store(true, Ordering::Relaxed);
            let waits = scope.spawn(|| errno(file.read_at(&mut [0; 8], 0)));
            until("the read", || service.holding() == 1);
            service.fail.store(fail, Ordering::Relaxed);
            let held = service.held();
            let service = service.clone();
            let other = std::thread::spawn(move || {
                held.into_iter().for_each(|(request, done)| service.answer(request, done));
            });
            assert_eq!(waits.join().unwrap(), Some(want));
            assert_eq!(other.join().is_err(), fail == PANIC);
        });
        service.fail.store(0, Ordering::Relaxed);
    }
    number(&file, 1);
    assert!(numbered(&file, 1) && rig.server.is_alive());
    drop(file);
    rig.server.unmount().unwrap();
}

/// A mount whose connection was cut off has ended when its last request has, not before.
#[test]
fn the_end_waits_for_answers_under_way() {
    if !fuse_is_here() {
        return;
    }
    let (_patience, rig, service) = rig(2);
    let file = File::options().read(true).write(true).open(rig.file()).unwrap();
    service.holds.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| file.read_at(&mut [0; 8], 0));
        until("the read", || service.holding() == 1);
        rig.server.abort().unwrap();
        waits.join().unwrap().unwrap_err();
        let ends = scope.spawn(|| rig.server.wait());
        // Time for an end that comes too early.
        std::thread::sleep(Duration::from_millis(100));
        assert!(!ends.is_finished() && rig.server.is_alive());
        assert_eq!(service.disconnected.load(Ordering::Relaxed), 0);
        service.held().into_iter().for_each(|(request, done)| service.answer(request, done));
        ends.join().unwrap().unwrap();
    });
    assert!(!rig.server.is_alive());
    assert_eq!(service.disconnected.load(Ordering::Relaxed), 1);
    drop(file);
    rig.server.unmount().unwrap();
}

/// The file counts as unused only when its last request was answered.
#[test]
fn the_last_close_comes_after_the_last_answer() {
    if !fuse_is_here() {
        return;
    }
    let (_patience, rig, service) = rig(1);
    let file = File::options().read(true).write(true).open(rig.file()).unwrap();
    service.holds.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || file.read_at(&mut [0; 8], 0));
        until("the read", || service.holding() == 1);
        assert!(!rig.server.is_unused());
        service.held().into_iter().for_each(|(request, done)| service.answer(request, done));
        waits.join().unwrap().unwrap();
    });
    until("the last close", || rig.server.is_unused());
    rig.server.unmount().unwrap();
}
