//! From settings to a served volume and back.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fs2_block::{Extent, Flags, Op};
use fs2_control::quoted;
use fs2_disk::{Disk, DriveProfile, Scheduler};
use fs2_engine::offline::{self, Devices};
use fs2_engine::{AttachOptions, AttachReport, EngineConfig, Inactive, PolicyKind, Standing, Volume};
use fs2_store::{
    AlignedBuf, DelayStore, Direct, FileStore, Lock, LogStore, OpenError, OpenOptions, Store, StoreIo,
    UringStore,
};

use crate::awaited;
use crate::error::DaemonError;
use crate::limits;
use crate::lost::LostWrites;
use crate::runtime;
use crate::server::{Drive, Server, WORKERS_MAX};
use crate::service::{ClientRequest, Service};
use crate::settings::{DirectKind, DiscardKind, IoKind, Settings, TrustKind, TurnsKind};
use crate::stop::Stop;
use crate::trace_file::{Cut, NewFile, Traces, refuse_over};
use crate::upgrade::{self, Given};
use crate::wakeups::{AwakeKind, Wakeups};

/// A volume being served, before any frontend.
pub struct Served {
    /// The machine.
    pub server: Arc<Server>,
    /// What the attach found.
    pub report: AttachReport,
    /// The backing's path.
    pub device: PathBuf,
    /// What has that path, by its [identity](fs2_store::FileStore::identity).
    pub identity: String,
    /// The table's path, where it lives apart.
    pub table: Option<PathBuf>,
    /// The modelled or believed drive's name.
    pub drive: Option<String>,
    /// Whether the drive is modelled in real time.
    pub modelled: bool,
    /// How bytes reach the backing, for people: page cache or direct, io_uring or threads, how many at a time.
    pub data_path: String,
    pub(crate) traces: Traces,
    record: Option<Recorder>,
    lost: Arc<LostWrites>,
    ended: AtomicBool,
}

/// The log of `--record`, and where it is.
struct Recorder {
    log: Arc<LogStore<FileStore, BufWriter<File>>>,
    path: PathBuf,
}

impl Recorder {
    /// With the file, to be kept where the volume is served.
    fn begin(store: FileStore, path: &Path) -> Result<(Recorder, NewFile), DaemonError> {
        let new = NewFile::create("--record", path)?;
        let io = |source| DaemonError::Io { what: format!("--record {}", path.display()), source };
        let to = new.file.try_clone().map_err(io)?;
        let log = LogStore::new(store, BufWriter::new(to)).map_err(io)?;
        Ok((Recorder { log: Arc::new(log), path: path.to_owned() }, new))
    }

    fn end(&self) {
        match self.log.sync() {
            Ok(entries) => tracing::info!("{} has {entries} entries", self.path.display()),
            Err(e) => tracing::error!("--record {}: {e}", self.path.display()),
        }
    }
}

/// How often a backing that another has is tried again. A guess: short against a daemon's end, long against the try.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// A profile by name or from a TOML file, a regular one of 1 MiB at most.
///
/// # Errors
/// What is wrong with it, or which names there are.
pub fn profile(name: &str) -> Result<DriveProfile, DaemonError> {
    let setting = |e: String| DaemonError::Setting(e);
    if let Ok(p) = DriveProfile::builtin(name) {
        return Ok(p);
    }
    if !Path::new(name).exists() {
        let names: Vec<_> = DriveProfile::names().collect();
        return Err(setting(format!(
            "no drive profile '{name}': neither a file nor one of {}",
            names.join(", ")
        )));
    }
    let text = crate::text::read_file(Path::new(name)).map_err(|e| setting(format!("{name}: {e}")))?;
    DriveProfile::parse(&text, name).map_err(|e| setting(e.to_string()))
}

/// An image file goes through the page cache, as it does below nbdkit, qemu-nbd and a loop device: what is read
/// again costs no access. A device's cache is the file system above, and a turning disk is to be seen as it is.
fn how_direct(device: &Path, settings: &Settings) -> Direct {
    match (settings.direct, settings.rotational) {
        (DirectKind::On, _) => Direct::On,
        (DirectKind::Off, _) => Direct::Off,
        (DirectKind::Auto, TurnsKind::Yes) => Direct::Auto,
        (DirectKind::Auto, _) if device.is_file() => Direct::Off,
        (DirectKind::Auto, _) => Direct::Auto,
    }
}

/// Whether what the system says of the device's turning is true of it: loop devices and memory disks say that they do not,
/// whatever they stand for, and an image file may be meant for any disk.
fn speaks_for_itself(device: &Path) -> bool {
    const RAM_AND_LOOP: [u64; 2] = [1, 7];
    std::fs::metadata(device).is_ok_and(|meta| {
        meta.file_type().is_block_device() && !RAM_AND_LOOP.contains(&nix::sys::stat::major(meta.rdev()))
    })
}

/// The policy for what nobody has described: `none` on a device of which the system says that nothing turns in it. There
/// copies save nothing and wear it.
fn policy_for(device: &Path, settings: &Settings, told: bool, turns: bool) -> PolicyKind {
    if turns || !copies_for_nothing(settings, told) || !speaks_for_itself(device) {
        return settings.policy;
    }
    tracing::warn!(
        "{} says that nothing turns in it (/sys/.../queue/rotational is 0): copies would save nothing, so none are made or read. \
         --rotational yes makes them all the same",
        device.display()
    );
    PolicyKind::None
}

/// Whether the policy would copy on any device, though nobody said that this one turns.
fn copies_for_nothing(settings: &Settings, told: bool) -> bool {
    let copies = matches!(settings.policy, PolicyKind::Fs2 | PolicyKind::Fs2Of2005 | PolicyKind::Static);
    copies && !told && settings.rotational == TurnsKind::Auto
}

/// Puts a file's I/O on rings where it may.
fn on_rings(file: FileStore, how: IoKind) -> Result<Arc<dyn Store>, DaemonError> {
    if how == IoKind::Threads {
        return Ok(Arc::new(file));
    }
    match UringStore::new(file) {
        Ok(store) => Ok(Arc::new(store)),
        Err((_, e)) if how == IoKind::Uring => {
            Err(DaemonError::Setting(format!("--io uring: this system has no io_uring for us: {e}")))
        }
        Err((file, e)) => {
            tracing::info!("no io_uring ({e}): I/O by threads");
            Ok(Arc::new(*file))
        }
    }
}

/// Opens `device`, attaches and starts to serve it.
///
/// # Errors
/// Why not.
pub fn open(device: &Path, settings: &Settings) -> Result<Served, DaemonError> {
    open_with(device, settings, None, false, &Stop::default())
}

/// Opens a backing for itself alone; for `wait` another may have it still, unless `stop` is asked for meanwhile.
fn claim(path: &Path, direct: Direct, wait: Duration, stop: &Stop) -> Result<FileStore, OpenError> {
    let options = OpenOptions { write: true, direct, lock: Lock::Exclusive, lock_wait: None };
    let until = Instant::now() + wait;
    loop {
        match FileStore::open(path, options) {
            Err(e) if e.is_transient() && Instant::now() < until && !stop.is_asked_within(LOCK_POLL) => {}
            opened => return opened.and_then(|file| file.refuse_served().map(|()| file)),
        }
    }
}

/// Programs wait for what was served; what the path names by now would get their writes.
fn another(device: &Path) -> String {
    let path = device.display();
    format!("{path} is not what was served: another file or disk has its name; bring back the former")
}

/// What a limit of memory (`ulimit -v`) or of processes kept from being started.
fn no_threads(device: &str) -> String {
    format!(
        "starting the threads that do the I/O of {device} (are memory or processes limited? see ulimit -a)"
    )
}

/// Whether a flush failed in a session that this one goes on with.
fn lost_before(device: &Path, settings: &Settings) -> bool {
    let lost = settings.again && runtime::is_lost(device);
    let named = device.display();
    if lost {
        tracing::error!(
            "a flush of {named} failed in the former daemon: every write is refused until it is unmounted"
        );
    } else if let Err(e) = runtime::forget_lost(device) {
        tracing::warn!("that a flush of {named} failed once cannot be forgotten: {e}");
    }
    lost
}

/// How it is remembered that a flush of the device failed: by what its path leads to now, for it may have another name by then.
fn lost_writes(device: &Path) -> LostWrites {
    let file = runtime::LostFile::of(device);
    LostWrites::new(device.display().to_string(), move || match &file {
        Ok(file) => file.write(),
        Err(e) => Err(std::io::Error::new(e.kind(), e.to_string())),
    })
}

/// Erases the mark of a volume that was written since; whether one stood, or may stand still.
fn erase_mark(store: &Arc<dyn Store>, table: Option<&Arc<dyn Store>>, device: &Path) -> bool {
    let mut volume = StoreIo::new(&**store);
    let mut apart = table.map(|t| StoreIo::new(&**t));
    let apart = apart.as_mut().map(|t| -> &mut dyn fs2_block::WriteAt { t });
    match offline::unmark(&mut Devices::new(&mut volume, apart)) {
        Ok(unmarked) => unmarked.is_some(),
        // Whatever it is, the attach finds it, too.
        Err(e) => {
            tracing::warn!(
                "the mark of {} is not erased, though the volume was written: {e}",
                device.display()
            );
            true
        }
    }
}

/// As [`open`], or goes on with what a former daemon has left, where that can be read and fits; `takes_over` where the caller goes on with
/// the device that waits for the volume's next daemon, too.
pub(crate) fn open_with(
    device: &Path,
    settings: &Settings,
    given: Option<Result<Given, String>>,
    takes_over: bool,
    stop: &Stop,
) -> Result<Served, DaemonError> {
    open_as(device, &mut settings.clone(), given, takes_over, stop, |_| Ok(()))
}

/// As [`open_with`]; `claimed` is called when nobody else has the volume any more, and may say what is to be done with it otherwise than
/// when it was waited for.
pub(crate) fn open_as(
    device: &Path,
    settings: &mut Settings,
    given: Option<Result<Given, String>>,
    takes_over: bool,
    stop: &Stop,
    claimed: impl FnOnce(&mut Settings) -> Result<(), DaemonError>,
) -> Result<Served, DaemonError> {
    let new_trace = |settings: &Settings| match &settings.trace {
        Some(trace) => {
            refuse_over(trace, device, settings.table.as_deref())?;
            NewFile::create("trace", trace).map(Some)
        }
        None => Ok(None),
    };
    settings.check().map_err(DaemonError::Setting)?;
    // What cannot be had is told of before anything begins.
    let begun = new_trace(settings)?;
    if let Some(table) = &settings.table
        && runtime::key_of(table).is_ok_and(|key| runtime::key_of(device).is_ok_and(|of| key == of))
    {
        // Its own lock would be waited for.
        return Err(DaemonError::Setting(format!(
            "--table {}: that is the volume itself, expected the table's own file or device",
            table.display()
        )));
    }
    let wait = Duration::from_secs(settings.lock_wait);
    let file = claim(device, how_direct(device, settings), wait, stop).map_err(|e| match e {
        OpenError::ReadOnly { .. } => DaemonError::ReadOnly { device: device.to_owned(), source: e },
        other => other.into(),
    })?;
    claimed(settings)?;
    let settings = &*settings;
    let new_trace = if begun.is_some() { begun } else { new_trace(settings)? };
    let identity =
        file.identity().map_err(|source| DaemonError::Io { what: device.display().to_string(), source })?;
    if settings.instead_of.as_ref().is_some_and(|served| *served != identity) {
        return Err(DaemonError::Setting(another(device)));
    }
    if !takes_over {
        // The claim tells of no daemon that died.
        awaited::refuse(device, &file)?;
    }
    limits::refuse_beyond(device, &file, settings.again)?;
    let cached = !file.is_direct() && !file.is_device();
    let settle = file.is_direct();
    let was_given = given.is_some();
    // Under the lock: nobody has written since, or it says so.
    let given = given.and_then(|given| match given {
        Ok(given) => given.for_store(&file),
        Err(why) => {
            tracing::warn!("the former daemon's session does not go on: {why}");
            None
        }
    });
    // What a session wrote moves the stamp of its beginning, but not while the mark stands.
    let (began, since) = (runtime::stamps(&file), runtime::written_since(&file));
    let given = given.filter(|(left, _)| !since || !left.mark_stands());
    // A hand-over has a stamp of its own; if that cannot be read, nobody knows.
    let written = given.is_none() && (since || was_given);
    let left = runtime::has_any_stamp(device, &file);
    let flush_failed = lost_before(device, settings);
    let lost = Arc::new(lost_writes(device));
    let named = settings.drive.as_deref().or(settings.belief.as_deref());
    let mut belief = match named.map(profile).transpose() {
        // Programs wait for the volume, and not for what is believed of its drive.
        Err(e) if settings.again => {
            tracing::error!("{e}; served as if nobody had described the drive");
            None
        }
        belief => belief?,
    };
    if let Some(p) = &mut belief
        && let Some(extended) = p.fit(file.size_bytes().div_ceil(512))
    {
        tracing::warn!("{extended}");
    }
    let modelled = settings.drive.is_some();
    let drive_name = belief.as_ref().map(|p| p.name().to_owned());
    let (file, record, new_record): (Arc<dyn Store>, _, _) = match &settings.record {
        Some(path) => {
            let (recorder, new) = Recorder::begin(file, path)?;
            (recorder.log.clone(), Some(recorder), Some(new))
        }
        None => (on_rings(file, settings.io)?, None, None),
    };
    let store: Arc<dyn Store> = match (&belief, modelled) {
        (Some(p), true) => Arc::new(DelayStore::new(file, Disk::new(p.clone()), settings.time_scale)),
        _ => file,
    };
    let table: Option<Arc<dyn Store>> = match &settings.table {
        Some(path) => {
            let file = claim(path, OpenOptions::default().direct, wait, stop)?;
            limits::refuse_beyond(path, &file, settings.again)?;
            Some(Arc::new(file))
        }
        None => None,
    };
    // Nobody behind the page cache sees where a head is, unless the drive is modelled.
    let rotational = match settings.rotational {
        TurnsKind::Yes => true,
        TurnsKind::No => false,
        TurnsKind::Auto => store.rotational() && (modelled || !cached),
    };
    let scheduler = match (rotational, &belief) {
        (true, Some(_)) => Scheduler::Sptf,
        (true, None) => Scheduler::CLook,
        (false, _) => Scheduler::Fcfs,
    };
    // A drive's own queue serves a crowd sooner than one that is given one request after the other (docs/policy.md). Who does not say how
    // long it is, as a virtual disk, has a machine behind it that orders, too.
    let queue = store.queue_depth().map_or(WORKERS_MAX, |n| (n as usize).clamp(1, WORKERS_MAX));
    let depth = settings.depth.map_or(if rotational { queue } else { 128 }, usize::from);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let policy = policy_for(device, settings, belief.is_some(), store.rotational());
    let guessed = rotational && belief.is_none() && policy == PolicyKind::Fs2;
    let config = EngineConfig {
        policy,
        scheduler,
        drive: belief,
        turns: rotational,
        drive_orders: rotational && !modelled && depth > 1,
        watermarks: settings.watermarks,
        space: settings.space,
        degree: settings.degree.unwrap_or_else(|| settings.policy.degree()),
        discard: settings.discard.mode(),
        punch: settings.discard == DiscardKind::Pass,
        settle: settle || modelled,
        distrust: settings.trust == TrustKind::Verify,
        control: settings.control_sample,
        paranoid: settings.paranoid,
        seed,
        ..EngineConfig::default()
    };
    let attach = AttachOptions {
        written_since: written,
        mark_void: written && left,
        passive: settings.passive,
        orphaned: false,
        flush_failed,
    };
    let next_connection = given.as_ref().map(|(_, next)| *next);
    let taken = given.and_then(|(hand_over, _)| {
        let mut io = StoreIo::new(&*store);
        let mut apart = table.as_ref().map(|t| StoreIo::new(&**t));
        let apart = apart.as_mut().map(|t| -> &mut dyn fs2_block::ReadAt { t });
        Volume::take_over(&mut io, apart, config.clone(), hand_over)
            .inspect_err(|why| tracing::warn!("the former daemon's session does not go on: {why}"))
            .ok()
    });
    let goes_on = taken.is_some();
    // Programs may use it: what their kernel has allocated is in its memory, and a mark that somebody wrote meanwhile knows nothing of it.
    let attach = AttachOptions { orphaned: settings.again && !goes_on, ..attach };
    let named = device.display().to_string();
    let attach_as = |options: &AttachOptions| {
        let mut io = StoreIo::new(&*store);
        let attached = match &table {
            Some(t) => Volume::attach(&mut io, Some(&mut StoreIo::new(&**t)), config.clone(), options),
            None => Volume::attach(&mut io, None, config.clone(), options),
        };
        attached.map_err(|source| DaemonError::Attach { device: named.clone(), source })
    };
    let (mut volume, mut report) = match taken {
        Some(taken) => taken,
        None => attach_as(&attach)?,
    };
    // Void for good: this boot knows who wrote, the next would not, unless the superblock tells.
    let told = matches!(volume.standing(), Standing::Active | Standing::Inactive(Inactive::Token(_)));
    if written && !told && erase_mark(&store, table.as_ref(), device) {
        (volume, report) = attach_as(&AttachOptions { mark_void: true, ..attach })?;
    }
    if let Standing::Inactive(why) = volume.standing() {
        if let (Inactive::NotExt2(what), false) = (why, settings.passive || settings.again) {
            return Err(DaemonError::NotExt2 { device: named, what: what.clone() });
        }
        let remedy = why.remedy(&quoted(device), settings.table.as_deref().map(quoted).as_deref());
        if settings.require_active {
            return Err(DaemonError::NotActive { device: named, why: why.to_string(), remedy });
        }
        let next = remedy.map(|r| format!("; to activate it: {r}")).unwrap_or_default();
        tracing::warn!("{named} is served as a plain device: {why}{next}");
    } else {
        tracing::info!(
            "{named} is active: {} replicas trusted, {} to be verified",
            report.verified,
            report.unverified
        );
        if guessed {
            tracing::info!(
                "nobody described the drive below {named}: a seek is taken to cost what it does on one of today; `fs2 calibrate` measures it, --belief takes that"
            );
        }
        // A plain device keeps the one of before: what that said of a foreign writer is to be said again. So does a session that goes on.
        if !goes_on && let Err(e) = runtime::begin_stamp(&began) {
            tracing::warn!("no stamp of {named} can be kept: {e}");
        }
    }
    let data_path = format!(
        "{}, {}, depth {depth}{}",
        if cached { "page cache" } else { "direct" },
        if !rotational && store.ring().is_some() { "io_uring" } else { "threads" },
        if rotational { ", rotational" } else { "" },
    );
    let drive = Drive {
        depth,
        time_scale: settings.time_scale,
        host_reserve: settings.host_reserve.get(),
        rotational,
    };
    let description = format!("ext2 volume on {named}");
    let server = Server::start(volume, store, table, drive, description)
        .map_err(|source| DaemonError::Io { what: no_threads(&named), source })?;
    // Before the first request, and so before the first copy.
    server.look_at_host();
    let tell = lost.clone();
    server.tell_of_lost_writes(move || tell.remember());
    if rotational && settings.keep_cpus_awake == AwakeKind::On {
        tracing::warn!(
            "--keep-cpus-awake on: no processor is kept awake for a device that turns (--rotational no)"
        );
    }
    server.tell_of_turns(Wakeups::new(settings.keep_cpus_awake));
    if let Some(next) = next_connection {
        server.number_connections_from(next);
    }
    let served = Served {
        server,
        report,
        device: device.to_owned(),
        identity,
        table: settings.table.clone(),
        drive: drive_name,
        modelled,
        data_path,
        traces: Traces::new(),
        record,
        lost,
        ended: AtomicBool::new(false),
    };
    if let (Some(path), Some(new)) = (&settings.trace, new_trace) {
        served.traces.begin(&served.server, new, path)?;
    }
    if let Some(new) = new_record {
        new.keep();
    }
    Ok(served)
}

impl Served {
    /// Begins to write a trace.
    ///
    /// # Errors
    /// Where one is being written, the file is there or cannot be made, or is what is served.
    pub fn start_trace(&self, path: &Path) -> Result<(), DaemonError> {
        refuse_over(path, &self.device, self.table.as_deref())?;
        if let Some(t) = self.trace_path() {
            return Err(DaemonError::Setting(format!("a trace is being written to {t}")));
        }
        let new = NewFile::create("trace", path)?;
        if self.trace_failed().is_some() {
            let _ = self.stop_trace();
        }
        self.traces.begin(&self.server, new, path)
    }

    /// Ends the trace; how many records it holds, `None` where none was written.
    ///
    /// # Errors
    /// What went wrong in writing it.
    pub fn stop_trace(&self) -> Result<Option<u64>, DaemonError> {
        self.traces.cut(&self.server).map(Cut::end).transpose()
    }

    /// The file a trace is being written to.
    pub fn trace_path(&self) -> Option<String> {
        self.traces.path()
    }

    /// Which trace could not be written, and why; until another begins.
    pub fn trace_failed(&self) -> Option<String> {
        self.traces.failed()
    }

    fn end_records(&self, trace: Option<Cut>) {
        if let Some(Err(e)) = trace.map(Cut::end) {
            tracing::error!("{e}");
        }
        if let Some(record) = &self.record {
            record.end();
        }
    }

    /// How the volume is doing, as the control socket tells it; `frontend` is its name and place.
    pub fn status(&self, frontend: &str) -> fs2_control::Status {
        crate::status::status_of(self, frontend, None)
    }

    /// The metrics' text; `frontend` as for [`Served::status`].
    pub fn metrics(&self, frontend: &str) -> String {
        let status = self.status(frontend);
        let (reads, writes) =
            self.server.with_volume(|v| (v.stats().read_access.clone(), v.stats().write_access.clone()));
        crate::metrics::page(&crate::metrics::Measured { status: &status, reads: &reads, writes: &writes })
    }

    /// What another program would look for in vain where this one has it open; `None` where all is there.
    pub(crate) fn moved(&self) -> Option<String> {
        if FileStore::identity_at(&self.device).ok().as_ref() != Some(&self.identity) {
            return Some(format!("{} is no longer what is served", self.device.display()));
        }
        let table = self.table.as_ref().filter(|path| !path.exists());
        table.map(|path| format!("{} is not there any more", path.display()))
    }

    /// As a client's flush: one that fails is remembered, and every write is refused from then on.
    pub(crate) fn flush(&self) -> Result<(), String> {
        let server = &self.server;
        let (connection, buffer) = (server.connect(), AlignedBuf::zeroed(0));
        let (op, extent, flags) = (Op::Flush, Extent::default(), Flags::default());
        let (_, done) = server.call(ClientRequest { connection, op, extent, flags, buffer });
        server.disconnect(connection);
        done.map_err(|e| format!("a flush failed: {}", std::io::Error::from_raw_os_error(e.0)))
    }

    /// The end for a successor's sake: what it needs to go on, or why it cannot. Nothing is written any more.
    pub(crate) fn leave(&self, connection: fs2_block::ConnectionId) -> Result<Vec<u8>, String> {
        self.ended.store(true, Ordering::SeqCst);
        let trace = self.traces.cut(&self.server);
        self.server.suspend();
        let left = self.left(connection);
        self.end_records(trace);
        left
    }

    fn left(&self, connection: fs2_block::ConnectionId) -> Result<Vec<u8>, String> {
        let store = self.server.store();
        // What the stamp is to speak of must have reached the device.
        store.flush().map_err(|e| {
            self.lost.remember();
            format!("a flush failed: {e}")
        })?;
        let stamp = store.stamp().ok_or("nobody would notice a foreign writer")?;
        let note = upgrade::note(&stamp, connection);
        self.server.with_volume(|v| v.left(&note))
    }

    /// The clean end: drains, writes the table, sets the mark where that is allowed.
    pub fn end(&self) -> Option<fs2_engine::DetachReport> {
        if self.ended.swap(true, Ordering::SeqCst) {
            return None;
        }
        let trace = self.traces.cut(&self.server);
        let report = self.server.detach();
        match &report.why_not {
            None => {
                tracing::info!(
                    "{} detached cleanly with {} replicas",
                    self.device.display(),
                    report.replicas
                );
                let store = &**self.server.store();
                let kept = match report.untouched {
                    true => runtime::begun_stamp_stands(store),
                    false => runtime::remember_stamp(store),
                };
                if let Err(e) = kept {
                    tracing::warn!(
                        "no stamp of {} can be kept, so that it counts as written: {e}",
                        self.device.display()
                    );
                }
            }
            Some(why) => tracing::warn!("{} detached without a mark: {why}", self.device.display()),
        }
        self.end_records(trace);
        Some(report)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn settings(args: &str) -> Settings {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            settings: Settings,
        }
        let args = std::iter::once("x").chain(args.split_whitespace());
        <Only as clap::Parser>::try_parse_from(args).unwrap().settings
    }

    #[test]
    fn nothing_is_copied_where_nothing_turns_unless_somebody_says_so() {
        for policy in ["fs2", "fs2-2005", "static"] {
            let of =
                |more: &str, told| copies_for_nothing(&settings(&format!("--policy {policy} {more}")), told);
            assert!(of("", false));
            assert!(!of("", true), "the drive was described");
            assert!(!of("--rotational yes", false) && !of("--rotational no", false));
        }
        assert!(!copies_for_nothing(&settings("--policy none"), false));
        assert!(!copies_for_nothing(&settings("--policy torture"), false), "whoever tests wants it");
    }

    #[test]
    fn who_is_asked_to_end_does_not_wait_for_a_lock() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let long = Duration::from_secs(3600);
        let held = claim(image.path(), Direct::Off, long, &Stop::default()).unwrap();
        let stop = Stop::default();
        stop.ask();
        assert!(matches!(claim(image.path(), Direct::Off, long, &stop), Err(OpenError::Busy { .. })));
        drop(held);
        assert!(claim(image.path(), Direct::Off, long, &stop).is_ok());
    }

    #[test]
    fn what_makes_no_sense_together_is_refused_before_the_volume_is_looked_at() {
        let e = open(Path::new("/none/there"), &settings("--space 0")).err().expect("a refusal").to_string();
        assert!(e.starts_with("--space 0%: nothing could be copied"), "{e}");
    }

    /// It waited for its own lock for as long as it would for another's.
    #[test]
    fn a_volume_is_not_its_own_tables_place() {
        let dir = tempfile::tempdir().unwrap();
        let (image, link) = (dir.path().join("image"), dir.path().join("link"));
        std::fs::write(&image, [0; 4096]).unwrap();
        std::os::unix::fs::symlink(&image, &link).unwrap();
        let given = settings(&format!("--passive --lock-wait 3600 --table {}", link.display()));
        let e = open(&image, &given).err().expect("a refusal").to_string();
        assert!(e.contains("that is the volume itself"), "{e}");
    }

    /// Who waited for a daemon that ended in order was served as after one that had died.
    #[test]
    fn what_is_to_be_done_with_a_volume_is_said_once_it_is_claimed() {
        let dir = tempfile::tempdir().unwrap();
        let (image, trace) = (dir.path().join("image"), dir.path().join("trace"));
        std::fs::write(&image, [0; 64 << 10]).unwrap();
        let mut given = settings("--passive");
        let claimed = |settings: &mut Settings| {
            let again = claim(&image, Direct::Off, Duration::ZERO, &Stop::default());
            assert!(matches!(again, Err(OpenError::Busy { .. })) && !trace.exists());
            settings.trace = Some(trace.clone());
            Ok(())
        };
        let served = open_as(&image, &mut given, None, true, &Stop::default(), claimed).unwrap();
        assert!(trace.exists(), "as a trace that was asked for at first");
        // Not its end: that would leave a record of the file behind.
        let _ = served.leave(fs2_block::ConnectionId(1));
        drop(served);
        let refuses = |_: &mut Settings| Err(DaemonError::Setting("it is another's".into()));
        let refused = open_as(&image, &mut settings("--passive"), None, true, &Stop::default(), refuses);
        assert_eq!(refused.err().expect("a refusal").to_string(), "it is another's");
    }

    /// All that the host had in its cache was written with the device let go.
    #[test]
    fn what_is_flushed_before_an_upgrade_is_flushed_as_by_a_client() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(64 << 10).unwrap();
        let served = open(image.path(), &settings("--passive")).unwrap();
        served.flush().unwrap();
        assert_eq!(served.server.with_volume(|v| v.stats().flushes), 1);
        let _ = served.leave(fs2_block::ConnectionId(1));
    }

    /// The first look came two seconds after the start, and copies before it.
    #[test]
    fn a_host_short_of_space_is_known_before_the_first_request() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(64 << 10).unwrap();
        for (reserve, short) in [("100%", true), ("0%", false)] {
            let given = settings(&format!("--passive --host-reserve {reserve}"));
            let served = open(image.path(), &given).unwrap();
            assert_eq!(served.server.with_volume(Volume::is_host_short), short, "{reserve}");
            // Not its end: that would leave a record of the file behind.
            let _ = served.leave(fs2_block::ConnectionId(1));
        }
    }

    #[test]
    fn an_image_file_says_nothing_of_what_it_is_meant_for() {
        let image = tempfile::NamedTempFile::new().unwrap();
        assert!(!speaks_for_itself(image.path()) && !speaks_for_itself(Path::new("/dev/null")));
        for turns in [false, true] {
            assert_eq!(policy_for(image.path(), &settings(""), false, turns), PolicyKind::Fs2);
        }
        for loop_device in (0..8).map(|n| PathBuf::from(format!("/dev/loop{n}"))).filter(|path| path.exists())
        {
            assert!(!speaks_for_itself(&loop_device), "{}", loop_device.display());
        }
    }
}
