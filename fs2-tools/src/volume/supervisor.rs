//! The process that `mount` leaves beside a daemon whose death the kernel's block device survives (NBD, ublk): it starts the
//! daemon anew and connects it with the device, whose requests wait meanwhile. A ublk device its daemon finds by itself.
//!
//! The new daemon attaches as any does. The volume is mounted, so its superblock is not clean and its mark erased: it is
//! served as a plain device, nothing is copied and no replica read, until the next clean attach.
//!
//! Invariants:
//! 1. While the flag (a file beside the record) exists, the volume is to be served; `umount` removes it before it ends
//!    the daemon, so no daemon is started for a volume that is being unmounted.
//! 2. The supervisor holds a lock on the flag until its end, so `umount` can wait for that.
//! 3. The volume's last user gone, by whatever unmount, the supervisor ends the daemon as `umount` would. A mount leaves this
//!    process's mount namespace with an event (POLLPRI of its mountinfo). What uses the device beyond that, in other
//!    namespaces or without a mount, is asked for every second, since no event tells of it.
//! 4. What a daemon may do only once (write a record, refuse an inactive volume) is not among what a later one is told.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs2_store::FileStore;
use fs2d::frontend::ublk;
use fs2d::runtime::{Ending, begin_ending};
use fs2d::settings::Settings;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::daemon::{Daemon, apart, is_known_alive, is_shortage};
use super::end::{finish, has_open, is_in_place, is_mounted, is_used};
use super::{MountRecord, VolumeError, device_served, io_error};
use crate::kernel::{NbdWatch, nbd_disconnect, nbd_number, nbd_reconnect};

/// Daemons started in a row before the device is given up.
const TRIES: u32 = 5;

/// A daemon that served so long did not die of what the one before died of. Guess.
const GOOD_LIFE: Duration = Duration::from_secs(60);

/// How long `umount` waits for the supervisor's end, once the daemon has ended. Guess.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// How often a process is asked for again where there is no room to watch it. Guess.
const SHORTAGE_NAP: Duration = Duration::from_secs(1);

fn flag_of(record: &MountRecord) -> PathBuf {
    record.path.with_extension("supervised")
}

/// PR_SET_IO_FLUSHER of linux/prctl.h.
const SET_IO_FLUSHER: i32 = 57;

/// What a later daemon is told, of what the first was, which serves what the path names now.
///
/// # Errors
/// What the system says of the path.
pub(super) fn again(settings: &Settings, device: &Path) -> io::Result<Settings> {
    let instead_of = Some(FileStore::identity_at(device)?);
    let (record, trace) = (None, None);
    Ok(Settings { record, trace, require_active: false, again: true, instead_of, ..settings.clone() })
}

/// How long a supervisor tries to have its lock: who asks whether there is one has it for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Whether a volume has a supervisor that starts daemons.
pub(super) fn is_there(record: &MountRecord) -> bool {
    let file = File::open(flag_of(record)).ok();
    // Beside others who ask.
    file.is_some_and(|file| Flock::lock(file, FlockArg::LockSharedNonblock).is_err())
}

/// Takes a supervisor's lock; an error where another has it.
fn be_there(mut file: File) -> nix::Result<Flock<File>> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((_, e)) if Instant::now() > until => return Err(e),
            Err((back, _)) => file = back,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Leaves a supervisor beside the daemon of a volume whose record is written. What is not mounted yet it lets alone as long as
/// another has the right to end it ([`begin_ending`]).
pub(super) fn start(record: &MountRecord) -> Result<(), VolumeError> {
    let flag = flag_of(record);
    File::create(&flag).map_err(io_error(flag.display().to_string()))?;
    let started = apart(record, &[OsString::from("supervise"), record.path.clone().into()]);
    if started.is_err() {
        let _ = std::fs::remove_file(&flag);
    }
    started.map(drop)
}

/// A supervisor that starts no daemon any more.
pub(super) struct Dismissed(Option<File>);

/// Tells the supervisor, if there is one, that the volume's end has begun.
pub(super) fn dismiss(record: &MountRecord) -> Dismissed {
    let flag = flag_of(record);
    let file = File::open(&flag).ok();
    let _ = std::fs::remove_file(&flag);
    Dismissed(file)
}

impl Dismissed {
    /// Waits for its end, the daemon's end being past.
    pub(super) fn wait(self) {
        let Some(mut file) = self.0 else { return };
        let until = Instant::now() + END_PATIENCE;
        while let Err((back, _)) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            if Instant::now() > until {
                return;
            }
            file = back;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Supervises the volume of a record until it is unmounted; what `fs2 supervise` does.
///
/// # Errors
/// What the system says; that the daemon could not be kept alive, after which the device fails every request.
pub fn supervise(path: &Path) -> Result<(), VolumeError> {
    let mut record = MountRecord::read(path).map_err(io_error(path.display().to_string()))?;
    let flag = flag_of(&record);
    let file = match File::open(&flag) {
        // It was unmounted at once.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file.map_err(io_error(flag.display().to_string()))?,
    };
    let lock = be_there(file).map_err(|e| io_error(flag.display().to_string())(e.into()))?;
    dont_wait_for_own_writes();
    let watch = match record.frontend.as_str() {
        "nbd" => Some(NbdWatch::start().map_err(io_error("netlink"))?),
        _ => None,
    };
    let tag = match record.frontend.as_str() {
        "ublk" => Some(record.ublk_tag()?),
        _ => None,
    };
    // Without it nobody notices an unmount by hand, and everything else goes on.
    let table = File::open("/proc/self/mountinfo").ok();
    let mut tries = Tries::of_one_that_serves(Instant::now());
    // Not by its number each time: that of one which ended may be another's now.
    let mut daemon = Process::of_daemon(&record)?;
    let mut owed = false;
    loop {
        let seen =
            daemon.as_ref().map(|daemon| watched(&record, daemon, watch.as_ref(), table.as_ref(), &mut owed));
        match seen {
            Some(Seen::Unused(_ending)) => {
                eprintln!("fs2 supervise: {} was unmounted by its last user", record.block_device.display());
                // Nobody waits for this process then.
                drop(lock);
                let pid = Pid::from_raw(record.pid as i32);
                let ended = finish(record);
                let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
                return ended.map(drop);
            }
            Some(Seen::Alive) => continue,
            Some(Seen::Ended) | None => owed = false,
        }
        // Those that this process started would stay zombies, also one that took its time to end.
        while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|seen| seen != WaitStatus::StillAlive) {}
        // Keeps 1.
        if !flag.exists() {
            return Ok(());
        }
        // Unmounted by hand and told to end: nobody waits.
        let device = ublk::device_of(&record.block_device);
        if tag.is_some_and(|tag| ublk::is_awaited(tag, device).is_ok_and(|awaited| !awaited)) {
            let _ = std::fs::remove_file(&flag);
            if is_mounted(&record) || is_in_place(&record) {
                let what = "the daemon ended and its device with it: it was stopped, or this kernel's ublk keeps none \
                            for another daemon";
                return Err(tell_of_the_end(&record, what));
            }
            if is_used(&record) {
                return Ok(());
            }
            return match begin_ending(&record.path) {
                Ok(Some(_ending)) => {
                    drop(lock);
                    finish(record).map(drop)
                }
                _ => Ok(()),
            };
        }
        if let Some(another) = another_serves(&mut record)? {
            eprintln!("fs2 supervise: {} is served by process {} now", record.device.display(), record.pid);
            tries.serves(Instant::now());
            daemon = Some(another);
            continue;
        }
        let Some(n) = tries.next(Instant::now()) else {
            let why = tell_of_the_end(&record, &format!("the daemon ended {TRIES} times in a row"));
            give_up(&record, tag);
            return Err(why);
        };
        eprintln!(
            "fs2 supervise: daemon {} of {} ended; starting another",
            record.pid,
            record.device.display()
        );
        std::thread::sleep(pause(n));
        daemon = match restart(&mut record, &flag) {
            Ok(true) => {
                tries.serves(Instant::now());
                Process::of_daemon(&record)?
            }
            Ok(false) => return Ok(()),
            Err(e) => {
                eprintln!("fs2 supervise: try {n} of {TRIES}: {e}");
                None
            }
        };
    }
}

/// The daemons started since one served for a good while. How long a start took says nothing of how the daemon lived: one may wait
/// for its lock, in vain, for longer than that.
struct Tries {
    made: u32,
    /// When the daemon that serves, if one does, began to.
    serves_since: Option<Instant>,
}

impl Tries {
    fn of_one_that_serves(now: Instant) -> Tries {
        Tries { made: 0, serves_since: Some(now) }
    }

    /// The last one started serves from now on.
    fn serves(&mut self, now: Instant) {
        self.serves_since = Some(now);
    }

    /// None serves any more: the number of the next try, from 1, or `None` where there were [`TRIES`].
    fn next(&mut self, now: Instant) -> Option<u32> {
        if self.serves_since.take().is_some_and(|since| now.duration_since(since) > GOOD_LIFE) {
            self.made = 0;
        }
        self.made += 1;
        (self.made <= TRIES).then_some(self.made)
    }
}

/// Before a try: none, then 1, 2, 4, 8 seconds.
fn pause(n: u32) -> Duration {
    Duration::from_secs(if n <= 1 { 0 } else { 1 << (n - 2).min(3) })
}

/// What became of a daemon that was watched for a while.
enum Seen {
    Alive,
    Ended,
    /// Nobody uses its device any more, and it is this process that ends it.
    Unused(Ending),
}

/// Waits for the daemon's end, a connection's, or a change of the mount table. `owed`: the device lost a connection, and the
/// daemon, which lives, gave it none in its place yet: it stands still, and is asked again.
fn watched(
    record: &MountRecord,
    daemon: &Process,
    watch: Option<&NbdWatch>,
    table: Option<&File>,
    owed: &mut bool,
) -> Seen {
    // Looked at after each event; where something uses the device unmounted, every second.
    let gone = table.is_some() && !is_mounted(record);
    // The right first: to look whether it is used claims the device for a moment, in which a mount(2) under way would fail.
    if gone
        && let Ok(Some(ending)) = begin_ending(&record.path)
        && !is_used(record)
    {
        return Seen::Unused(ending);
    }
    let others =
        [watch.map(|w| (w.as_fd().as_raw_fd(), libc::POLLIN)), table.map(|t| (t.as_raw_fd(), libc::POLLPRI))];
    if daemon.poll(&others.map(|o| o.unwrap_or((-1, 0))), if gone || *owed { 1000 } else { -1 }) {
        return Seen::Ended;
    }
    let lost = watch.zip(nbd_number(&record.block_device)).map(|(watch, number)| watch.lost(number));
    match lost {
        Some(Ok(lost)) if lost || *owed => {
            // The death of all connections is mostly the daemon's: a moment later that is known.
            if daemon.ended_within(Duration::from_millis(200)) {
                return Seen::Ended;
            }
            if !*owed {
                eprintln!("fs2 supervise: {} lost a connection", record.block_device.display());
            }
            match reconnect(record) {
                Ok(()) if *owed => {
                    eprintln!("fs2 supervise: {} has its connections again", record.block_device.display());
                    *owed = false;
                }
                Ok(()) => {}
                Err(e) if !*owed => {
                    eprintln!("fs2 supervise: {e}; trying again");
                    *owed = true;
                }
                Err(_) => {}
            }
        }
        Some(Err(e)) => {
            eprintln!("fs2 supervise: netlink: {e}");
            std::thread::sleep(Duration::from_secs(1));
        }
        Some(Ok(_)) | None => {}
    }
    Seen::Alive
}

/// A daemon that got the ublk device of one which ended, and is none of this process's, as one that was started by hand: it is watched from now on. A
/// daemon more would wait for its lock, in vain, and after five the device would be given up that it serves.
fn another_serves(record: &mut MountRecord) -> Result<Option<Process>, VolumeError> {
    let Some(device) = ublk::device_of(&record.block_device) else { return Ok(None) };
    let Some(pid) = ublk::served_by(device).ok().flatten() else { return Ok(None) };
    // In this order: what has the device open is then no later one.
    let process = Process::once_known(pid, || Process::of(pid))?;
    if process.is_none() || !has_open(&Path::new("/proc").join(pid.to_string()), &ublk::char_path(device)) {
        return Ok(None);
    }
    record.is_served_by(pid);
    write_down(record);
    Ok(process)
}

/// Whose daemon it is by now.
fn write_down(record: &MountRecord) {
    if let Err(e) = record.write() {
        // Programs wait for that daemon, and whoever ends it asks at its socket.
        eprintln!("fs2 supervise: {} names a former daemon: {e}", record.path.display());
    }
}

/// Starts another daemon; false where none is wanted any more.
fn restart(record: &mut MountRecord, flag: &Path) -> Result<bool, VolumeError> {
    // Keeps 1: there was a rest before this try.
    if !flag.exists() {
        return Ok(false);
    }
    let mut args: Vec<OsString> = record.again.iter().map(OsString::from).collect();
    let ublk = ublk::device_of(&record.block_device);
    args.extend(ublk.map(|n| format!("--take-over={n}").into()));
    let mut daemon = Daemon::start(record, &args)?;
    let pid = daemon.pid();
    let serves = || match ublk {
        Some(device) => ublk::served_by(device).is_ok_and(|served| served == Some(pid)),
        None => reconnect(record).is_ok(),
    };
    let status = daemon.wait_serving(record, serves)?;
    if let Some(status) = status.as_ref().filter(|_| ublk.is_some())
        && device_served(status).as_deref() != Some(&*record.block_device)
    {
        let (served, wanted) = (&status.frontend, record.block_device.display());
        return Err(VolumeError::Other(format!("the new daemon serves '{served}' and not {wanted}")));
    }
    // Keeps 1. Dropping it ends it.
    if !flag.exists() {
        return Ok(false);
    }
    record.is_served_by(pid);
    write_down(record);
    reconnect(record).map_err(io_error("connecting the new daemon"))?;
    let how = status.map_or("and does not answer".into(), |status| status.liveness.to_string());
    eprintln!("fs2 supervise: daemon {pid} serves {}: {how}", record.device.display());
    daemon.keep();
    Ok(true)
}

fn reconnect(record: &MountRecord) -> io::Result<()> {
    match nbd_number(&record.block_device) {
        Some(number) => nbd_reconnect(number, &record.carrier, &record.backend(), record.connections),
        None => Ok(()),
    }
}

/// Where the device fails from now on: says so in `fs2 status` and in the system's log.
fn tell_of_the_end(record: &MountRecord, what: &str) -> VolumeError {
    let (device, block_device) = (record.device.display(), record.block_device.display());
    let why = format!(
        "{device}: {what}; {block_device} fails every request from now on: unmount it, then {}",
        record.check_command()
    );
    let _ = std::fs::write(record.failure_file(), &why);
    tell_the_system(&why);
    VolumeError::Other(why)
}

/// What waits for the device fails now rather than later.
fn give_up(record: &MountRecord, tag: Option<ublk::Tag>) {
    if let Some(tag) = tag
        && let Err(e) = ublk::give_up(tag, ublk::device_of(&record.block_device))
    {
        eprintln!("fs2 supervise: programs may wait for ever: {e}");
    }
    if let Some(number) = nbd_number(&record.block_device)
        && let Err(e) = nbd_disconnect(number, &record.backend())
    {
        eprintln!("fs2 supervise: {e}");
    }
}

/// An error in the system's log, or in the kernel's where there is none, as in an initramfs.
fn tell_the_system(what: &str) {
    // Facility daemon is 3, severity error 3.
    let line = format!("<27>fs2[{}]: {what}", std::process::id());
    let sent = send_at_once(line.as_bytes(), Path::new("/dev/log"));
    if sent.is_err()
        && let Ok(mut kernel) = File::options().write(true).open("/dev/kmsg")
    {
        let _ = io::Write::write_all(&mut kernel, line.as_bytes());
    }
}

/// Waits for no room there: who reads it may wait for the very volume that is about to be given up.
fn send_at_once(line: &[u8], to: &Path) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(line, to).map(drop)
}

/// A supervisor that waits for memory which the kernel can free only by writing to its volume waits for ever. Where the right is
/// missing it remains so.
fn dont_wait_for_own_writes() {
    // SAFETY: the call takes numbers only.
    unsafe { libc::prctl(SET_IO_FLUSHER, 1_u64, 0_u64, 0_u64, 0_u64) };
}

/// A process, known by more than its number.
struct Process(OwnedFd);

impl Process {
    /// `None` where it has ended, or its number is a thread's by now.
    fn of(pid: u32) -> io::Result<Option<Process>> {
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
        if fd < 0 {
            return match Errno::last() {
                // Of a thread that is no process the latter two, by the kernel's version.
                Errno::ESRCH | Errno::EINVAL | Errno::ENOENT => Ok(None),
                e => Err(e.into()),
            };
        }
        // SAFETY: the kernel has just opened it for us, and nobody else knows it.
        Ok(Some(Process(unsafe { OwnedFd::from_raw_fd(fd as i32) })))
    }

    /// What `look` finds of a process, asked again as long as there is no room for another open file. Who took that for its end would start
    /// others beside it, in vain, and then give up the device that it serves.
    fn once_known(
        pid: u32,
        mut look: impl FnMut() -> io::Result<Option<Process>>,
    ) -> Result<Option<Process>, VolumeError> {
        let mut told = false;
        loop {
            match look() {
                Err(e) if is_shortage(&e) => {
                    if !told {
                        eprintln!("fs2 supervise: process {pid} cannot be watched: {e}; trying again");
                    }
                    told = true;
                    std::thread::sleep(SHORTAGE_NAP);
                }
                found => return found.map_err(io_error(format!("watching process {pid}"))),
            }
        }
    }

    /// The daemon as it was written down; `None` also where its number is a later process's.
    fn of_daemon(record: &MountRecord) -> Result<Option<Process>, VolumeError> {
        let MountRecord { pid, began, .. } = *record;
        Process::once_known(pid, || {
            // In this order: what is asked for is then no later one.
            let Some(process) = Process::of(pid)? else { return Ok(None) };
            Ok(is_known_alive(pid, began)?.then_some(process))
        })
    }

    fn ended_within(&self, time: Duration) -> bool {
        self.poll(&[], time.as_millis() as i32)
    }

    /// Waits until it has ended, one of `others` (descriptors, with the events waited for) has something to tell, or
    /// `millis` passed, -1 for ever; true where it has ended.
    fn poll(&self, others: &[(i32, i16)], millis: i32) -> bool {
        let watched = |(fd, events)| libc::pollfd { fd, events, revents: 0 };
        // A negative descriptor is passed over.
        let mut fds: Vec<_> = std::iter::once((self.0.as_raw_fd(), libc::POLLIN))
            .chain(others.iter().copied())
            .map(watched)
            .collect();
        loop {
            // SAFETY: the pointer and the count are those of the vector, which outlives the call.
            let n = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
            if n >= 0 || Errno::last() != Errno::EINTR {
                return fds[0].revents != 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_watched_to_its_end() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap().unwrap();
        assert!(!process.ended_within(Duration::from_millis(1)));
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        io::Write::write_all(&mut &writer, b"x").unwrap();
        assert!(!process.poll(&[(reader.as_raw_fd(), libc::POLLIN)], -1));
        child.kill().unwrap();
        assert!(process.poll(&[], -1));
        child.wait().unwrap();
        assert!(Process::of(child.id()).unwrap().is_none());
    }

    /// A daemon that lives was taken for dead where the system had no room for another open file: the supervisor started others, which waited for
    /// its lock, and gave up the device that it serves.
    #[test]
    fn a_process_that_cannot_be_watched_for_now_has_not_ended() {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        let own = std::process::id();
        assert!(Process::of(own).unwrap().is_some());
        // Its limit is a process's own.
        // SAFETY: the child allocates little, which glibc lets it, and takes no lock of another thread's.
        let child = match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Child => {
                let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
                setrlimit(Resource::RLIMIT_NOFILE, 0, most).unwrap();
                let of = Process::of(own);
                let told = of.is_err_and(|e| is_shortage(&e)) && is_known_alive(own, None).is_err();
                let alive = super::super::daemon::is_alive(own, Some(1));
                // SAFETY: nothing is to be done behind it.
                unsafe { libc::_exit(i32::from(!(told && alive))) }
            }
            nix::unistd::ForkResult::Parent { child } => child,
        };
        assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        // What has room again is found.
        let mut asked = 0;
        let found = Process::once_known(own, || {
            asked += 1;
            if asked == 1 { Err(Errno::EMFILE.into()) } else { Process::of(own) }
        });
        assert!(found.unwrap().is_some() && asked == 2);
        let denied = Process::once_known(own, || Err(Errno::EPERM.into()));
        assert!(denied.err().expect("it says why").to_string().starts_with("watching process "));
        // A thread's number is no process's.
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = tell.send(nix::unistd::gettid());
            let _ = ended.recv();
        });
        let id = told.recv().unwrap().as_raw() as u32;
        assert!(Process::of(id).unwrap().is_none());
        drop(end);
        thread.join().unwrap();
    }

    /// Where the system's log lay on the volume, whoever takes it waited for that, its socket was full, and this process waited for room there:
    /// the device was never given up.
    #[test]
    fn who_does_not_take_the_log_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("log");
        let reader = UnixDatagram::bind(&at).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut sent = 0;
            let full = loop {
                match send_at_once(b"a line", &at) {
                    Ok(()) => sent += 1,
                    Err(e) => break e,
                }
            };
            let _ = tell.send((sent, full));
        });
        // Far longer than it takes.
        let (sent, full) = told.recv_timeout(Duration::from_secs(20)).expect("it goes on");
        assert_eq!((sent > 0, full.kind()), (true, io::ErrorKind::WouldBlock));
        reader.recv(&mut [0; 9]).unwrap();
    }

    #[test]
    fn tries_are_spaced() {
        let pauses: Vec<u64> = (1..=TRIES).map(|n| pause(n).as_secs()).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8]);
    }

    fn record_in(dir: &Path) -> MountRecord {
        let at = |name: &str| dir.join(name);
        MountRecord {
            dir: at("mnt"),
            device: at("image"),
            table: None,
            control: at("control"),
            log: at("log"),
            pid: 1,
            began: None,
            frontend: "nbd".into(),
            block_device: "/dev/nbd0".into(),
            carrier: at("socket"),
            connections: 1,
            again: vec!["--no-such-option".into()],
            active: false,
            path: at("record"),
        }
    }

    /// While it rested before a try the volume was unmounted, and it started a daemon all the same.
    #[test]
    fn no_process_is_started_for_a_volume_that_is_being_unmounted() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = record_in(dir.path());
        assert!(!restart(&mut record, &dir.path().join("flag")).unwrap());
        assert!(!record.log.exists(), "somebody was started");
    }

    /// A supervisor that is started after its daemon died would have watched whoever had its number by then.
    #[test]
    fn a_later_process_of_the_daemons_number_is_not_watched() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = record_in(dir.path());
        record.is_served_by(std::process::id());
        assert!(record.began.is_some() && Process::of_daemon(&record).unwrap().is_some());
        record.began = record.began.map(|ticks| ticks - 1);
        assert!(Process::of_daemon(&record).unwrap().is_none());
    }

    #[test]
    fn a_supervisor_is_known_by_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let record = record_in(dir.path());
        assert!(!is_there(&record), "there is no flag");
        let flag = File::create(flag_of(&record)).unwrap();
        assert!(!is_there(&record));
        // Who asks is waited for, another supervisor is not.
        let asks = Flock::lock(File::open(flag_of(&record)).unwrap(), FlockArg::LockSharedNonblock).unwrap();
        let asked = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(asks);
        });
        let lock = be_there(flag).unwrap();
        asked.join().unwrap();
        assert!(is_there(&record) && be_there(File::open(flag_of(&record)).unwrap()).is_err());
        drop(lock);
        assert!(!is_there(&record));
    }

    /// While another held the volume's lock each start took longer than a good life, so the count began anew each time, and the
    /// device was never given up.
    #[test]
    fn a_start_that_takes_long_and_fails_is_a_try() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut tries = Tries::of_one_that_serves(start);
        let made: Vec<_> = (0..6).map(|n| tries.next(at(1000 + 70 * n))).collect();
        assert_eq!(made, [Some(1), Some(2), Some(3), Some(4), Some(5), None]);
    }

    #[test]
    fn who_served_for_a_while_begins_the_count_anew() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut tries = Tries::of_one_that_serves(start);
        assert_eq!((tries.next(at(1)), tries.next(at(2))), (Some(1), Some(2)));
        tries.serves(at(3));
        assert_eq!(tries.next(at(4)), Some(3), "it died young");
        tries.serves(at(5));
        assert_eq!(tries.next(at(66)), Some(1));
    }
}
