//! `fs2d serve`: arguments, frontends, signals, the end.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use fs2_control::{Command, ControlServer, Reply};
use fs2_engine::DetachReport;
use fs2_store::FileStore;

use crate::daemon::{Served, open_as};
use crate::error::DaemonError;
use crate::frontend::{Frontend, LOOK_EVERY, MountPoint, fuse, nbd, ublk};
use crate::host::HostLooks;
use crate::limits;
use crate::memory;
use crate::metrics::{Bound, Place};
use crate::notify::Manager;
use crate::passed::Passed;
use crate::runtime;
use crate::service::Service;
use crate::settings::{FrontendKind, Settings};
use crate::signals::Signals;
use crate::status::status_of;
use crate::stop::Stop;
use crate::trace_file::next_trace;
use crate::upgrade::{Given, ITSELF, become_program, refuse_unrunnable};
use crate::write_out::{write_as_told, write_out};

/// The FS2 daemon.
#[derive(Parser, Debug)]
#[command(name = "fs2d", version, about = "Serves an ext2 volume with its replicas as a block device")]
pub struct Cli {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Serve a volume until SIGTERM.
    Serve(Box<Serve>),
}

/// Arguments of `fs2d serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "EXAMPLES:
  fs2d serve /dev/sdb1 --frontend nbd --listen unix:/run/fs2/sdb1.sock
  fs2d serve disk.img --frontend fuse --fuse-dir /run/fs2/disk --drive wd800-repaired
  fs2d serve /dev/sdb1 --frontend ublk     a block device, /dev/ublkbN; started again after it was killed,
                                           it goes on with the same one

EXIT CODES: 0 clean end with the mark set, or of a volume that was served as a plain device, 1 wrong usage, \
2 the system or the volume says no, 4 served, but ended without a mark (the next session begins after chkfs2)")]
pub struct Serve {
    /// The volume: an image file or a block device that holds ext2.
    pub device: PathBuf,

    /// Which protocol carries it.
    #[arg(long, value_enum, default_value_t = FrontendKind::Nbd)]
    pub frontend: FrontendKind,

    /// Where the NBD frontend listens: unix:PATH, its owner's alone, or tcp:ADDRESS:PORT on loopback, where every user of
    /// this machine may read and write the volume [default: unix:RUNTIME/KEY.nbd].
    #[arg(long, value_name = "ADDRESS", value_parser = |at: &str| nbd_listen(at).map(|_| at.to_owned()))]
    pub listen: Option<String>,

    /// Let the NBD frontend listen where other machines reach it; there is neither password nor
    /// encryption.
    #[arg(long)]
    pub allow_remote: bool,

    /// MiB that requests of all clients of the NBD frontend may hold, beside 1 MiB of each: who would exceed it
    /// waits.
    #[arg(long, default_value_t = 512, value_name = "MIB", value_parser = clap::value_parser!(u32).range(32..=1 << 20))]
    pub nbd_memory: u32,

    /// Seconds after which a client of the NBD frontend loses its connection that takes none of the answers it asked
    /// for, or sends no more of a write it began; 0: never. Who owes nothing may be silent for ever, but for a
    /// client by TCP that is gone without a word, as one switched off: it loses its connection after three minutes, or after
    /// this time if that is longer, with 0 when the system finds out.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub nbd_patience: u32,

    /// Directory on which the FUSE frontend is mounted, made if missing and then removed in the end; the volume is the file
    /// `volume` in it [default: RUNTIME/KEY.fuse].
    #[arg(long, value_name = "DIR")]
    pub fuse_dir: Option<PathBuf>,

    /// Queues of the ublk frontend [default: 1 where the device turns, else one a processor, at most 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queues: Option<u16>,

    /// Requests in each queue of the ublk frontend; each keeps 512 KiB of memory.
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub queue_depth: u16,

    /// Control socket [default: RUNTIME/KEY.ctl].
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// The descriptor of what a former daemon left, as `fs2 upgrade` has it.
    #[arg(long, value_name = "FD", hide = true)]
    pub hand_over: Option<i32>,

    /// The number of the ublk device that programs wait for: it is taken over, or nothing is served.
    #[arg(long, value_name = "N", hide = true)]
    pub take_over: Option<u32>,

    /// End once the FUSE file was open and nobody has it open any more, and clear away this mount's record. End also where there is none
    /// and nobody is mounting: whoever was is no more.
    #[arg(long, value_name = "RECORD", hide = true)]
    pub until_unused: Option<PathBuf>,

    /// Serve nothing: DEVICE is the record of a mount, and what that holds is written.
    #[arg(long, hide = true)]
    pub write_out: bool,

    /// Everything about the volume itself.
    #[command(flatten)]
    pub settings: Settings,
}

/// Threads of the FUSE frontend. Each serves one request at a time: so many may queue for the drive.
const FUSE_THREADS: usize = 16;

/// Where memory answers: more would sleep and wake one another (docs/performance.md).
const FUSE_THREADS_MEMORY: usize = 4;

/// The definition of its arguments, for man pages and completions.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Prints what clap says: 1 of wrong usage; help and version are no errors, but where they cannot be written, which is 2.
pub fn told(program: &str, what: &clap::Error) -> ExitCode {
    match what.print() {
        _ if what.use_stderr() => ExitCode::from(1),
        // Who stops reading hears nothing of it.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "{program}: standard output: {e}");
            ExitCode::from(2)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Runs the daemon with these arguments; what `main` returns.
pub fn main_with(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => return told("fs2d", &e),
    };
    let What::Serve(serve) = cli.command;
    run(&serve)
}

/// Serves until asked to stop; what `main` returns.
pub fn run(serve: &Serve) -> ExitCode {
    log();
    if serve.write_out {
        return if write_as_told(&serve.device) { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    limits::take_all();
    match serve_volume(serve) {
        Ok(report) if report.as_ref().is_none_or(|r| r.marked) => ExitCode::SUCCESS,
        Ok(report)
            if report.as_ref().is_some_and(|r| {
                r.replicas == 0
                    && r.why_not.as_deref().is_some_and(|w| w.starts_with("the volume was served inactive"))
            }) =>
        {
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::from(4),
        Err(e) => {
            // Not by a macro that panics where it cannot.
            let _ = writeln!(std::io::stderr(), "fs2d: {e}");
            ExitCode::from(2)
        }
    }
}

fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FS2_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // A second call, from a test in one process, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        // A log on a full file system is no reason to end: that would be told of by a macro that panics.
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .try_init();
}

/// How long a daemon that takes a device over waits at least for its former daemon's last I/O, seconds.
const LOCK_WAIT: u64 = 60;

/// How long a daemon with these arguments may wait at the most until it serves: for who has the volume, then for who has its table where that
/// lies apart, and for the device of a former daemon. What it does itself comes on top.
pub fn longest_wait(args: &[OsString]) -> Duration {
    let args = ["fs2d", "serve"].map(OsString::from).into_iter().chain(args.iter().cloned());
    // One whose arguments make no sense ends at once.
    let Ok(Cli { command: What::Serve(mut serve) }) = Cli::try_parse_from(args) else {
        return Duration::ZERO;
    };
    let mut of_device = Duration::ZERO;
    if serve.frontend == FrontendKind::Ublk {
        // It may find one by itself.
        programs_wait(&mut serve.settings);
        of_device = ublk::TAKE_OVER_PATIENCE;
    }
    let locks = 1 + u32::from(serve.settings.table.is_some());
    Duration::from_secs(serve.settings.lock_wait).saturating_mul(locks).saturating_add(of_device)
}

fn io_error(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> DaemonError {
    let what = what.into();
    move |source| DaemonError::Io { what, source }
}

fn serve_volume(serve: &Serve) -> Result<Option<DetachReport>, DaemonError> {
    let stop = Arc::new(Stop::default());
    let mut settings = serve.settings.clone();
    // Threads inherit it.
    let not_permitted = memory::become_io_flusher();
    // Not before they are caught does anything begin that must be ended in order.
    let signals = Signals::catch(&stop).map_err(io_error("signals"))?;
    let resumed = serve.frontend == FrontendKind::Ublk && resume(serve, &mut settings)?;
    let manager = Manager::find();
    let passed = match serve.frontend {
        FrontendKind::Nbd => Passed::take().map_err(io_error("what the service manager passed"))?,
        _ => Passed::default(),
    };
    let kept = passed.served.is_some();
    if let Some(served) = passed.served {
        tracing::warn!("the former daemon of this service ended; its clients may go on");
        programs_wait(&mut settings);
        if let Some(record) = settings.record.take() {
            tracing::warn!("{} ended with the former daemon", record.display());
        }
        settings.instead_of = Some(served);
    }
    if manager.is_there() {
        settings.trace = settings.trace.map(|trace| next_trace(&trace));
    }
    let given = serve.hand_over.map(Given::receive);
    if let (FrontendKind::Nbd, Some(at)) = (serve.frontend, &serve.listen) {
        // Before the volume is touched.
        let listen = nbd_listen(at).map_err(DaemonError::Setting)?;
        listen.check(serve.allow_remote).map_err(io_error(format!("NBD on {at}")))?;
    }
    let mut metrics = bind_metrics(&settings, serve.hand_over.is_some())?;
    // Of a device that programs wait for, the lock is waited for also by who is asked to end meanwhile: it serves until they are done. Where
    // nobody supervises, no other would come.
    let never = Stop::default();
    let alone = settings.again && !kept && !serve.settings.again;
    // A daemon that lives looks like one that was just killed, until it lets its volume go: it may have ended in order by then.
    let claimed = |settings: &mut Settings| {
        if !resumed || serve.take_over.is_some() || is_awaited(serve)? {
            return Ok(());
        }
        tracing::info!("the former daemon of {} ended in order", serve.device.display());
        *settings = serve.settings.clone();
        if manager.is_there() {
            settings.trace = settings.trace.take().map(|trace| next_trace(&trace));
        }
        if metrics.is_none() {
            metrics = bind_metrics(settings, false)?;
        }
        Ok(())
    };
    let takes_over = settings.again || serve.frontend == FrontendKind::Ublk;
    let stop_waiting = if alone { &never } else { &stop };
    let served = Arc::new(open_as(&serve.device, &mut settings, given, takes_over, stop_waiting, claimed)?);
    // A kernel's mount may stand on any frontend, if root serves it.
    if serve.frontend == FrontendKind::Ublk || nix::unistd::geteuid().is_root() {
        not_permitted.iter().for_each(|what| tracing::warn!("{what}"));
    }
    let end = |e| {
        served.end();
        e
    };
    if serve.frontend == FrontendKind::Nbd && !kept {
        // Before any client can write.
        manager.keep(&served.identity);
    }
    let host = HostLooks::at(&served.server)
        .map_err(io_error("starting a thread (are memory or processes limited? see ulimit -a)"))
        .map_err(end)?;
    let (frontend, place) = start_frontend(serve, &served, passed.socket).map_err(end)?;
    let last: Arc<Mutex<Option<DetachReport>>> = Arc::default();
    let next: Arc<Mutex<Option<PathBuf>>> = Arc::default();
    let outlives = frontend.outlives_its_daemon();
    let handler = {
        let (served, stop, place, last) = (served.clone(), stop.clone(), place.clone(), last.clone());
        let next = next.clone();
        Arc::new(move |command| match command {
            Command::Upgrade { program } if outlives && program.is_absolute() => match served.moved() {
                Some(what) => Reply::error(what, &place, "move it back, or fs2 umount and mount again"),
                None => go_on_as(program, || served.flush(), &next, &stop, &place),
            },
            command => answer(command, &served, &stop, &place, &last),
        })
    };
    let listen = || {
        let handler = handler.clone();
        let at = control_path(serve)?;
        fs2_control::serve(&at, move |command| handler(command))
            .map_err(|e| DaemonError::Setting(e.to_string()))
    };
    let mut listening = match listen() {
        Ok(listening) => Some(listening),
        // Programs wait for the volume, and not for words about it.
        Err(e) if settings.again => {
            tracing::error!("{e}; the volume is served without it, and it is tried again");
            None
        }
        Err(e) => {
            let stopped = frontend.stop(|| host.look());
            let e = end(e);
            stopped.remove();
            return Err(e);
        }
    };
    let metrics = metrics.map(|(at, bound)| {
        let (served, place) = (served.clone(), place.clone());
        let serving = bound.serve(move || served.metrics(&place));
        match &serving {
            Ok(server) => tracing::info!("metrics on {}", server.address()),
            // Programs may be using the volume by now.
            Err(e) => tracing::error!("no metrics on {at}: {e}"),
        }
        serving
    });
    tracing::info!("serving {} by {place}{}", serve.device.display(), told_at(listening.as_ref()));
    if let (Some(_), Frontend::Fuse(fuse, _)) = (&serve.until_unused, &frontend) {
        let stop = stop.clone();
        fuse.when_unused(move || stop.look());
    }
    manager.ready(&format!("{} by {place}", serve.device.display()));
    let every = manager.watchdog.map_or(LOOK_EVERY, |w| w.min(LOOK_EVERY));
    // Held to the end: whoever unmounts or mounts the volume waits for it.
    let mut ending = None;
    stop.wait(every, || {
        host.look();
        if listening.is_none() {
            listening = listen().inspect(|l| tracing::info!("answering again{}", told_at(Some(l)))).ok();
        }
        // The look needs the engine: one that is stuck is silent.
        served.server.with_volume(|_| ());
        manager.alive();
        if let Some(record) = &serve.until_unused {
            if frontend.is_unused() {
                // Where `fs2 umount` is at it, it asks for the end itself.
                ending = runtime::begin_ending(record).unwrap_or_default();
            }
            if ending.is_none() {
                ending = runtime::begin_ending_unmounted(record).filter(|_| !frontend.is_in_use());
            }
        }
        ending.is_none() && frontend.is_alive()
    });
    // The next daemon may want the same address.
    drop(metrics);
    if ending.is_some() {
        tracing::info!("unmounted by its last user");
    }
    let program = next.lock().unwrap_or_else(PoisonError::into_inner).take();
    let frontend = match (program, frontend) {
        (Some(program), Frontend::Ublk(device)) => {
            manager.replaced();
            drop(listening);
            return Err(upgrade(&program, *device, &served, signals));
        }
        (_, frontend) => frontend,
    };
    manager.stopping();
    if let (None, Some(record)) = (&ending, &serve.until_unused) {
        write_out(record, || host.look());
    }
    let stopped = frontend.stop(|| host.look());
    if let (true, None, Some(record)) = (stopped.unused, &ending, &serve.until_unused) {
        // Asked to end below a mount that has ended since. Not before: `fs2 umount` has to have this right to unmount.
        ending = runtime::begin_ending(record).unwrap_or_default();
    }
    let report = served.end();
    *last.lock().unwrap_or_else(PoisonError::into_inner) = report.clone();
    drop(listening);
    if let (Some(_), Some(record)) = (&ending, &serve.until_unused) {
        runtime::forget_mount(record, report.as_ref().is_none_or(|r| r.marked));
    }
    stopped.remove();
    Ok(report)
}

/// Where commands are taken, for the log.
fn told_at(listening: Option<&ControlServer>) -> String {
    listening.map_or_else(String::new, |l| format!("; control socket {}", l.path().display()))
}

/// The socket for metrics. Where programs wait for the volume already, one that cannot be had is only told of.
fn bind_metrics(settings: &Settings, handed_over: bool) -> Result<Option<(Place, Bound)>, DaemonError> {
    let Some(place) = &settings.metrics else { return Ok(None) };
    match Bound::new(place, settings.metrics_remote) {
        Ok(bound) => Ok(Some((place.clone(), bound))),
        Err(e) if settings.again || handed_over => {
            tracing::error!("no metrics on {place}: {e}");
            Ok(None)
        }
        Err(e) => Err(DaemonError::Setting(format!(
            "no metrics on {place}: {e}{}",
            match e.kind() {
                std::io::ErrorKind::PermissionDenied if matches!(place, Place::Tcp(_)) =>
                    "; --metrics-remote allows it",
                std::io::ErrorKind::AddrInUse => "; each volume needs an address of its own",
                _ => "",
            }
        ))),
    }
}

/// Asks for the end for `program`'s sake, which is to be found in `next` then. Who is ending already ends.
fn go_on_as(
    program: PathBuf,
    flush: impl FnOnce() -> Result<(), String>,
    next: &Mutex<Option<PathBuf>>,
    stop: &Stop,
    place: &str,
) -> Reply {
    // While the device is served: whoever asks has tried the program in another environment, as outside a service's `ProtectHome=`.
    if let Err(e) = refuse_unrunnable(&program) {
        let what = format!("its daemon cannot run {}: {e}", program.display());
        return Reply::error(what, place, "put the program where the daemon sees it, as into /usr");
    }
    // What the host has in its cache goes while programs need not wait for that; the one of `Served::leave` has little left.
    if let Err(what) = flush() {
        return Reply::error(what, place, "see fs2 status");
    }
    // Held until it is there: whoever ends looks for it behind this.
    let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
    if !stop.ask() {
        return Reply::error("its daemon was asked to end, or is being replaced", place, "see fs2 status");
    }
    *next = Some(program);
    Reply::Done
}

/// Becomes another program that goes on with the device. Returns only where that failed: the device then
/// waits for a daemon that is started again.
fn upgrade(program: &Path, device: ublk::Server, served: &Served, signals: Signals) -> DaemonError {
    tracing::info!("{} goes on as {}", device.path().display(), program.display());
    let number = device.device();
    // As long as nobody waits for the device.
    if let Err(e) = served.stop_trace() {
        tracing::error!("{e}");
    }
    let connection = device.let_go();
    let left = served.leave(connection).inspect_err(|why| {
        tracing::warn!("the next daemon cannot go on with this session: {why}");
    });
    signals.leave();
    let failed = become_program(program, number, left.as_deref().ok());
    tracing::error!("{}: {failed}; going on as before", program.display());
    let source = become_program(Path::new(ITSELF), number, left.as_deref().ok());
    DaemonError::Io { what: "starting this program again".into(), source }
}

/// Whether the volume has a device in which requests may wait for its next daemon.
fn is_awaited(serve: &Serve) -> Result<bool, DaemonError> {
    ublk::is_awaited(ublk_tag(&serve.device)?, serve.take_over).map_err(io_error("ublk"))
}

/// What a former daemon's device asks of a session that takes it over; whether there is one.
fn resume(serve: &Serve, settings: &mut Settings) -> Result<bool, DaemonError> {
    if !is_awaited(serve)? {
        // Without one, the volume is served by a new device.
        return serve.take_over.map_or(Ok(false), |n| Err(io_error("ublk")(ublk::not_awaited(n))));
    }
    // Its daemon may live: the driver does not tell that from one which was just killed.
    tracing::warn!(
        "{} has a device of a former daemon: taking it over once that has ended",
        serve.device.display()
    );
    programs_wait(settings);
    for path in [settings.trace.take(), settings.record.take()].into_iter().flatten() {
        tracing::warn!("{} ended with the former daemon", path.display());
    }
    Ok(true)
}

/// A former daemon served them: nothing that was meant for a fresh start may keep the volume from being served.
fn programs_wait(settings: &mut Settings) {
    settings.require_active = false;
    settings.again = true;
    settings.lock_wait = settings.lock_wait.max(LOCK_WAIT);
}

/// By which a daemon of `device` knows the ublk device of a former one.
///
/// # Errors
/// Where the device is missing.
pub fn ublk_tag(device: &Path) -> Result<ublk::Tag, DaemonError> {
    let identity = FileStore::identity_at(device).map_err(io_error(device.display().to_string()))?;
    Ok(ublk::Tag::of(&identity))
}

fn default_place(device: &Path, ending: &str) -> Result<PathBuf, DaemonError> {
    let dir = runtime::make_runtime_dir().map_err(io_error("runtime directory"))?;
    let key = runtime::key_of(device).map_err(io_error(device.display().to_string()))?;
    Ok(dir.join(format!("{key}.{ending}")))
}

/// Where the daemon of `device` has its control socket, unless it was told otherwise.
///
/// # Errors
/// Where the device is missing or there is no runtime directory.
pub fn default_control(device: &Path) -> Result<PathBuf, DaemonError> {
    default_place(device, "ctl")
}

fn control_path(serve: &Serve) -> Result<PathBuf, DaemonError> {
    match &serve.control {
        Some(path) => Ok(path.clone()),
        None => default_control(&serve.device),
    }
}

fn start_frontend(
    serve: &Serve,
    served: &Arc<Served>,
    socket: Option<OwnedFd>,
) -> Result<(Frontend, String), DaemonError> {
    let service: Arc<dyn Service> = served.server.clone();
    match serve.frontend {
        FrontendKind::Nbd => {
            let (listen, place) = nbd_address(serve, socket)?;
            let options = nbd::Options {
                allow_remote: serve.allow_remote,
                memory_max: u64::from(serve.nbd_memory) << 20,
                patience: (serve.nbd_patience > 0).then(|| Duration::from_secs(serve.nbd_patience.into())),
                ..nbd::Options::default()
            };
            let server =
                nbd::Server::bind(listen, service, options).map_err(io_error(format!("NBD on {place}")))?;
            let place = server.tcp_address().map_or(place, |a| format!("tcp:{a}"));
            Ok((Frontend::Nbd(server), format!("nbd {place}")))
        }
        FrontendKind::Fuse => {
            let dir = match &serve.fuse_dir {
                Some(dir) => dir.clone(),
                None => default_place(&serve.device, "fuse")?,
            };
            let point = MountPoint::new(&dir).map_err(io_error(dir.display().to_string()))?;
            let threads = if service.answers_from_memory() { FUSE_THREADS_MEMORY } else { FUSE_THREADS };
            let volume =
                std::path::absolute(&serve.device).map_err(io_error(serve.device.display().to_string()))?;
            let server = fuse::Server::mount_with(&dir, &volume, service, threads, serve.settings.fuse_ring)
                .map_err(io_error(format!("FUSE mount on {}", dir.display())))?;
            let ring = if server.is_by_ring() { ", by io_uring" } else { "" };
            let place = format!("fuse {}{ring}", server.file().display());
            Ok((Frontend::Fuse(server, point), place))
        }
        FrontendKind::Ublk => {
            let usual = ublk::Options::default();
            let options = ublk::Options {
                queues: serve.queues,
                queue_depth: serve.queue_depth,
                // Of what is served, which its name may be no more.
                tag: ublk::Tag::of(&served.identity),
                device: serve.take_over,
                ..usual
            };
            let server = ublk::Server::start(service, &options).map_err(io_error("ublk"))?;
            let place = format!("ublk {}", server.describe());
            Ok((Frontend::Ublk(Box::new(server)), place))
        }
    }
}

fn nbd_address(serve: &Serve, passed: Option<OwnedFd>) -> Result<(nbd::Listen, String), DaemonError> {
    if let Some(socket) = passed {
        return Ok((nbd::Listen::Activated(socket), "the socket passed by the service manager".into()));
    }
    let Some(listen) = &serve.listen else {
        let path = default_place(&serve.device, "nbd")?;
        let place = format!("unix:{}", path.display());
        return Ok((nbd::Listen::Unix(path), place));
    };
    let at = nbd_listen(listen).map_err(|e| DaemonError::Setting(format!("--listen {e}")))?;
    Ok((at, listen.clone()))
}

fn nbd_listen(at: &str) -> Result<nbd::Listen, String> {
    if let Some(path) = at.strip_prefix("unix:").filter(|p| !p.is_empty()) {
        return Ok(nbd::Listen::Unix(path.into()));
    }
    let tcp = at.strip_prefix("tcp:").and_then(|address| address.parse().ok());
    tcp.map(nbd::Listen::Tcp)
        .ok_or_else(|| format!("{at}: neither unix:PATH nor tcp:ADDRESS:PORT such as tcp:127.0.0.1:10809"))
}

fn answer(
    command: Command,
    served: &Served,
    stop: &Stop,
    place: &str,
    last: &Mutex<Option<DetachReport>>,
) -> Reply {
    let said = |e: DaemonError| Reply::error(e.to_string(), served.device.display().to_string(), "");
    match command {
        Command::Ping => Reply::Done,
        Command::Status => {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Reply::Status(Box::new(status_of(served, place, last.as_ref())))
        }
        Command::Detach => {
            // Frontends stop first; the report comes with the end, which shutdown waits for.
            stop.ask();
            for _ in 0..600 {
                if let Some(report) = last.lock().unwrap_or_else(PoisonError::into_inner).clone() {
                    return Reply::Status(Box::new(status_of(served, place, Some(&report))));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            Reply::error(
                "the detach is taking long; it goes on",
                served.device.display().to_string(),
                "wait for the daemon to end",
            )
        }
        Command::TraceStart { path } => served.start_trace(&path).map_or_else(said, |()| Reply::Done),
        Command::TraceStop => match served.stop_trace() {
            Ok(Some(_)) => Reply::Done,
            Ok(None) => Reply::error("no trace is being written", served.device.display().to_string(), ""),
            Err(e) => said(e),
        },
        Command::Upgrade { program } if program.is_absolute() => Reply::error(
            "this volume's device does not outlive its daemon",
            place,
            "fs2 umount, then mount again; with --frontend ublk a daemon can be replaced",
        ),
        Command::Upgrade { program } => {
            Reply::error("not an absolute path", program.display().to_string(), "")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon that took a device over was killed after 120 s, when it may have waited for the lock for 60, and for the kernel for 90 and more; a
    /// longer `--lock-wait` did not count.
    #[test]
    fn who_starts_a_daemon_waits_as_long_as_that_may() {
        let wait =
            |args: &str| longest_wait(&args.split(' ').map(OsString::from).collect::<Vec<_>>()).as_secs();
        let device = ublk::TAKE_OVER_PATIENCE.as_secs();
        assert_eq!(wait("image --frontend fuse --lock-wait 7"), 7);
        assert_eq!(wait("image --frontend nbd --lock-wait=7 --table t"), 14);
        assert_eq!(wait("image --frontend ublk --lock-wait=7 --again --take-over=3"), LOCK_WAIT + device);
        assert_eq!(wait("image --frontend ublk --lock-wait=3600 --table t"), 7200 + device);
        assert_eq!(wait("image --no-such-option"), 0);
    }

    /// It said yes and ended all the same, or went on for good where it had been asked to end.
    #[test]
    fn who_was_asked_to_end_does_not_go_on_as_another_program() {
        let (next, stop) = (Mutex::default(), Stop::default());
        let asked = |program: &str| go_on_as(program.into(), || Ok(()), &next, &stop, "ublk /dev/ublkb0");
        assert!(matches!(asked("/bin/true"), Reply::Done));
        assert!(matches!(asked("/bin/false"), Reply::Error { .. }), "the first is being started");
        assert_eq!(next.lock().unwrap().take(), Some("/bin/true".into()));
        let stop = Stop::default();
        assert!(stop.ask() && !stop.ask());
        assert!(matches!(go_on_as("/bin/true".into(), || Ok(()), &next, &stop, ""), Reply::Error { .. }));
        assert_eq!(*next.lock().unwrap(), None);
    }

    /// It said yes, let the device go, could not run the program, as one in /root below `ProtectHome=yes`, and went on as it was.
    #[test]
    fn a_program_that_the_daemon_cannot_run_is_refused_before_the_device_is_let_go() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("plain"), "").unwrap();
        std::fs::set_permissions(at("plain"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let (next, stop) = (Mutex::default(), Stop::default());
        for (program, why) in [
            (at("absent"), "No such file or directory"),
            (dir.path().to_owned(), "not a regular file"),
            (at("plain"), "Permission denied"),
        ] {
            let flush = || panic!("it is not for nothing");
            let reply = go_on_as(program, flush, &next, &stop, "ublk /dev/ublkb0");
            let Reply::Error { what, .. } = reply else { panic!("{reply:?}") };
            assert!(what.starts_with("its daemon cannot run /") && what.contains(why), "{what}");
        }
        assert_eq!(*next.lock().unwrap(), None);
        assert!(stop.ask(), "nobody asked for the end");
    }

    /// Programs stood still for all that the host had in its cache, and where that could not be written the device was let go all the same.
    #[test]
    fn the_device_is_not_let_go_before_what_is_cached_is_written() {
        let (next, stop) = (Mutex::default(), Stop::default());
        let failed = || Err("a flush failed".into());
        let reply = go_on_as("/bin/true".into(), failed, &next, &stop, "ublk /dev/ublkb0");
        assert!(matches!(reply, Reply::Error { what, .. } if what == "a flush failed"));
        assert_eq!(*next.lock().unwrap(), None);
        let flushed = || {
            assert!(!stop.is_asked_within(Duration::ZERO), "the device is served meanwhile");
            Ok(())
        };
        assert!(matches!(go_on_as("/bin/true".into(), flushed, &next, &stop, ""), Reply::Done));
    }
}
