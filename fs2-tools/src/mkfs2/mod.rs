//! `mkfs2`: an ext2 volume becomes an FS2 volume, and an ext2 volume again.
//!
//! [`run`] is the whole program but for the process around it; what it does to a volume is
//! [`fs2_engine::offline`]'s. Opening, locking and talking are done here.

mod bar;
mod checked;
mod percent;
mod replicate;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use fs2_block::Permille;
use fs2_engine::Watermarks;
use fs2_engine::offline::{self, CreateOptions, Created, Devices, OfflineError, UndoOptions, Undone};
use fs2_ext2::Problem;
use fs2_store::{FileStore, Lock, OpenError, OpenOptions, Store, StoreIo};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc::off_t;

use crate::output::{self, quoted};
use crate::signals::{self, UntilAsked};
use crate::volume::{MountRecord, all_records, find_record};
pub(crate) use bar::Bar;
pub(crate) use percent::bytes;
pub use percent::{parse_percent, parse_share};

/// Exit code: done.
const DONE: i32 = 0;
/// Exit code: something was refused or failed.
const FAILED: i32 = 1;
/// Exit code: the command line makes no sense.
const USAGE: i32 = 2;

const EXAMPLES: &str = "\
Examples:
  mkfs2 /dev/sdb1                      keep replicas in up to 5 % of the volume
  mkfs2 --space 12.5% volume.img       in up to 12.5 %
  mkfs2 --table /ssd/sdb1.fs2 /dev/sdb1   keep the table elsewhere; the volume is not written
  mkfs2 --undo /dev/sdb1               make it a plain ext2 volume again
  mkfs2 replicate --help               copy some blocks or files by hand

The volume must be ext2, unmounted and clean. If it was mounted since it was made or last checked, or its \
superblock written since that check, e2fsck -f -n looks at it first, changing nothing: as long as any full \
check takes, minutes to an hour for a TiB on a disk; so it does before --undo where the last session did not end \
cleanly or others wrote since, and there are replicas to overwrite. No file is touched, nothing is moved; it stays an ext2 volume that any kernel mounts. Copies made later lie in free blocks, where a raw reader of the device \
sees them as it sees deleted files; --undo overwrites them.

Exit codes: 0 done, 1 refused or failed, or done and not told of (standard output), 2 usage.";

/// Turn an ext2 volume into an FS2 volume, or back.
#[derive(Parser, Debug)]
#[command(name = "mkfs2", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    args: Option<Args>,
}

#[derive(Subcommand, Debug)]
enum What {
    Replicate(replicate::ReplicateArgs),
}

#[derive(clap::Args, Debug)]
struct Args {
    /// Share of all of the volume's blocks that replicas may take, static metadata among them; the table is made for as many
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_percent)]
    space: Permille,

    /// Keep the replica table in this file or device instead of on inode 5; of a larger one, at its beginning
    #[arg(long, value_name = "PATH")]
    table: Option<PathBuf>,

    /// Take the table away and overwrite the replicas
    // A default that nobody gave is in nobody's way.
    #[arg(long, conflicts_with = "space")]
    undo: bool,

    /// Print one JSON object instead of sentences
    #[arg(long)]
    json: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// An ext2 volume: a block device or an image file
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
}

impl Args {
    /// What makes good what is half done, and does it again.
    fn again(&self) -> String {
        format!("e2fsck -f -p {}; {}", quoted(&self.device), self.command())
    }

    /// This command, for a shell.
    fn command(&self) -> String {
        let device = quoted(&self.device);
        let table = self.table.as_ref().map_or(String::new(), |t| format!(" --table {}", quoted(t)));
        let what = if self.undo { " --undo".to_owned() } else { self.space_option() };
        format!("mkfs2{what}{table} {device}")
    }

    /// The option by which the table is as large as this one, where that has to be said.
    fn space_option(&self) -> String {
        match self.space {
            space if space == CreateOptions::default().space => String::new(),
            space => format!(" --space {}%", space.to_string().trim_end_matches(" %")),
        }
    }
}

/// Why nothing was made: what, and what to do next.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) what: String,
    pub(crate) next: Option<String>,
}

impl From<OpenError> for Refusal {
    fn from(e: OpenError) -> Refusal {
        // Whose daemon is ended, as is advised of others, loses the volume below a mount that goes on.
        if let OpenError::Busy { path, holder } = &e
            && let Some(record) = mounted_with(path, holder)
        {
            let (dir, path, pid) = (record.dir.display(), path.display(), record.pid);
            let what = format!("{path} is in use by process {pid}, mounted by FS2 on {dir}");
            return Refusal {
                what,
                next: Some(format!("unmount it first: fs2 umount {}", quoted(&record.dir))),
            };
        }
        // These messages name the path and the next step themselves.
        Refusal { what: e.to_string(), next: None }
    }
}

/// The mount by `fs2 mount` that has what is in use: it is named, or what lies below or above it is and the holder is its daemon.
fn mounted_with(path: &Path, holder: &str) -> Option<MountRecord> {
    find_record(path).or_else(|| {
        all_records().into_iter().find(|record| holder.starts_with(&format!("process {} (", record.pid)))
    })
}

/// What went wrong, and what the system said to it.
fn with_causes(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let causes = std::iter::successors(e.source(), |cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

impl Refusal {
    pub(crate) fn of(e: OfflineError, device: &Path, table: Option<&Path>) -> Refusal {
        let name = device.display().to_string();
        let next = e.remedy(&quoted(device), table.map(quoted).as_deref());
        Refusal { what: format!("{name}: {}", with_causes(&e)), next }
    }

    fn io(path: &Path, doing: &str, e: std::io::Error) -> Refusal {
        Refusal { what: format!("{}: {doing}: {e}", path.display()), next: None }
    }

    /// Tells people on `err`, or programs on `out`.
    pub(crate) fn tell(&self, program: &str, json: bool, out: &mut dyn Write, err: &mut dyn Write) {
        if json {
            let said = serde_json::json!({ "error": self.what, "next": self.next });
            let _ = writeln!(out, "{}", output::json(&said));
            return;
        }
        let _ = match &self.next {
            Some(next) => writeln!(err, "{program}: {}\n{program}: {next}", self.what),
            None => writeln!(err, "{program}: {}", self.what),
        };
    }
}

/// The definition of its arguments, for man pages and completions.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Runs the program: `args` with its own name first. Returns its exit code.
pub fn run(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write, err: &mut dyn Write) -> i32 {
    run_told(args, out, err).1
}

/// As [`run`]; whether the work is done, too, which may be so where it could not be told of.
pub(crate) fn run_told(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> (bool, i32) {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => return (false, usage(&e, out, err, USAGE, FAILED)),
    };
    let (done, json) = match (&cli.what, &cli.args) {
        (Some(What::Replicate(args)), _) => (replicate::run(args, out), args.json),
        (None, Some(args)) if args.undo => (undo(args, out), args.json),
        (None, Some(args)) => (create(args, out), args.json),
        (None, None) => {
            let e = Cli::command().error(ErrorKind::MissingRequiredArgument, "a DEVICE is needed");
            return (false, usage(&e, out, err, USAGE, FAILED));
        }
    };
    let is_done = done.is_ok();
    if let Err(refusal) = done {
        refusal.tell("mkfs2", json, out, err);
    }
    let code = match out.flush() {
        Ok(()) if is_done => DONE,
        Ok(()) => FAILED,
        Err(e) => {
            // Who tries again what is done is refused.
            let what = if is_done { "; the work itself is done" } else { "" };
            let _ = writeln!(err, "mkfs2: standard output: {e}{what}");
            FAILED
        }
    };
    (is_done, code)
}

/// Zeros at the start of a table's place, as [`offline::create`] wants them.
const ZEROS_BYTES: u64 = 128 << 10;

/// What can be known of a command line before there is a volume: why [`run`] would refuse it.
pub(crate) fn check(args: &[OsString]) -> Result<(), String> {
    let cli = Cli::try_parse_from(args).map_err(|e| {
        let said = e.to_string();
        let first = said.lines().next().unwrap_or_default();
        first.strip_prefix("error: ").unwrap_or(first).to_owned()
    })?;
    let Some(path) = cli.args.as_ref().and_then(|args| args.table.as_deref()) else { return Ok(()) };
    let table = TablePlace::open(path, ZEROS_BYTES).map_err(|refusal| refusal.what)?;
    let mut start = vec![0; ZEROS_BYTES.min(table.store.size_bytes()) as usize];
    table.store.read_at(0, &mut start).map_err(|e| format!("{}: {e}", path.display()))?;
    match start.iter().all(|&byte| byte == 0) {
        true => Ok(()),
        false => Err(format!("{}: not empty; give a new file or an empty device", path.display())),
    }
}

/// Prints what clap says: help and version are no errors. What it ends with, `wrong` usage or `lost` words.
pub(crate) fn usage(e: &clap::Error, out: &mut dyn Write, err: &mut dyn Write, wrong: i32, lost: i32) -> i32 {
    if e.use_stderr() {
        let _ = write!(err, "{}", e.render());
        wrong
    } else {
        let written = write!(out, "{}", e.render()).and_then(|()| out.flush());
        match written {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                let _ = writeln!(err, "{}: standard output: {e}", crate::output::program());
                lost
            }
            _ => DONE,
        }
    }
}

/// How long another holder may take to let go: a daemon that just ended may have I/O in the kernel
/// still, and udev looks into devices for a moment. A guess.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Opens a volume or a table's place for itself alone.
pub(crate) fn open(path: &Path, write: bool) -> Result<FileStore, OpenError> {
    let (lock, lock_wait) = (Lock::Exclusive, Some(LOCK_PATIENCE));
    let store = FileStore::open(path, OpenOptions { write, lock, lock_wait, ..OpenOptions::default() })?;
    store.refuse_served()?;
    crate::volume::refuse_awaited(path, &store).map(|()| store)
}

fn create(args: &Args, out: &mut dyn Write) -> Result<(), Refusal> {
    let volume = open(&args.device, true)?;
    let refused = |e| Refusal::of(e, &args.device, args.table.as_deref());
    let mut options =
        CreateOptions { space: args.space, volume_id: random()?, now_secs: now_secs(), checked: false };
    let bytes = offline::table_bytes(&mut StoreIo::new(&volume), args.space).map_err(refused)?;
    let table = args.table.as_deref().map(|path| TablePlace::open(path, bytes)).transpose()?;
    let mut bar = Bar::new(args.quiet || args.json);
    let made = loop {
        let made = {
            let _caught = catch_signals()?;
            let mut volume_io = UntilAsked(StoreIo::new(&volume));
            let mut table_io = table.as_ref().map(|t| UntilAsked(StoreIo::without_holes(&t.store)));
            let table_io = table_io.as_mut().map(|t| t as &mut dyn fs2_block::WriteAt);
            let mut devices = Devices::new(&mut volume_io, table_io);
            offline::create(&mut devices, &options, &mut |p| bar.update(p))
        };
        match made {
            // Everything else is as it should be: what takes long comes last.
            Err(OfflineError::Unchecked) if !options.checked => {
                checked::by_e2fsck(&args.device, &volume, &args.command(), &mut bar)?;
                options.checked = true;
            }
            made => break made,
        }
    };
    bar.clear();
    let made = made.map_err(|e| half_done(e, &args.device, args.table.as_deref(), &args.again()))?;
    if let Some(table) = table {
        table.keep();
    }
    forget_stamp(&args.device, &volume)?;
    say_created(args, &made, volume.size_bytes(), out);
    Ok(())
}

/// What is left where a device failed, or a signal came; `check` makes good what is half done.
pub(crate) fn half_done(e: OfflineError, device: &Path, table: Option<&Path>, check: &str) -> Refusal {
    if signals::asked() {
        // What could not be read for that reason says nothing of the volume.
        let what = format!("{}: interrupted; some of it may be done", device.display());
        return Refusal { what, next: Some(format!("to go on: {check}")) };
    }
    let half = matches!(e, OfflineError::Io { .. } | OfflineError::Volume(Problem::Io { .. }));
    let leaves_out = e.leaves_out(&quoted(device));
    let is_full = e.is_no_room();
    let mut refusal = Refusal::of(e, device, table);
    if is_full {
        refusal.next = Some(format!("make room in the file system that holds it, then: {check}"));
    } else if half {
        let how =
            leaves_out.map_or(String::new(), |command| format!(" (bad sectors are left out by: {command})"));
        refusal.next = Some(format!("once it can be read and written{how}: {check}"));
    }
    refusal
}

/// As long as the volume is written, Ctrl-C is told and not obeyed: [`UntilAsked`] heeds it.
pub(crate) fn catch_signals() -> Result<signals::Caught, Refusal> {
    signals::catch_for_now().map_err(|e| Refusal { what: format!("catching signals: {e}"), next: None })
}

fn say_created(args: &Args, made: &Created, volume_bytes: u64, out: &mut dyn Write) {
    let device = args.device.display();
    if args.json {
        let said = serde_json::json!({
            "device": args.device.display().to_string(),
            "table": args.table.as_ref().map(|table| table.display().to_string()),
            "table_bytes": made.table_bytes,
            "volume_bytes_taken": made.volume_bytes_taken,
            "table_blocks": made.blocks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "replicas_max": made.replicas_max,
            "replicas_bytes_max": made.replicas_bytes_max,
            "free_blocks": made.free_blocks,
            "replicas_now": made.replicas_now(Watermarks::paper()),
        });
        let _ = writeln!(out, "{}", output::json(&said));
        return;
    }
    if args.quiet {
        return;
    }
    let place = match &args.table {
        Some(path) => path.display().to_string(),
        None => format!(
            "inode 5 ({:.3} % of the volume)",
            made.volume_bytes_taken as f64 * 100.0 / volume_bytes.max(1) as f64
        ),
    };
    let table_option = args.table.as_ref().map_or(String::new(), |t| format!(" --table {}", quoted(t)));
    let _ = writeln!(
        out,
        "{device}: is an FS2 volume now\n\
         table: {} on {place}, for {} replicas ({})\n\
         {}next:  fs2 mount{table_option} {} DIR",
        bytes(made.table_bytes),
        made.replicas_max,
        bytes(made.replicas_bytes_max),
        little_room(made, Watermarks::paper()),
        quoted(&args.device),
    );
}

/// A line where the volume is too full for as many replicas as its table has room for, or for any; without `fs2 mount
/// --watermarks` the marks are as here.
fn little_room(made: &Created, marks: Watermarks) -> String {
    let now = made.replicas_now(marks);
    if now >= made.replicas_max {
        return String::new();
    }
    let share = |blocks: u64| 100.0 * blocks as f64 / made.blocks_to_use.max(1) as f64;
    let low = f64::from(marks.low().get()) / 10.0;
    let (free, all) = (made.free_blocks, made.blocks_to_use);
    let held = match now {
        0 => {
            let high = f64::from(marks.high().get()) / 10.0;
            format!(
                "none holds a replica until more than {low} % are free at a mount, or {high} % while it is mounted"
            )
        }
        _ => format!("{now} of these may hold replicas ({:.1} %), {low} % stay free beside them", share(now)),
    };
    format!(
        "room:  {free} of {all} blocks are free ({:.1} %); {held} (fs2 mount --watermarks)\n",
        share(free)
    )
}

fn undo(args: &Args, out: &mut dyn Write) -> Result<(), Refusal> {
    let volume = open(&args.device, true)?;
    let table = args.table.as_deref().map(|path| open(path, true)).transpose()?;
    let mut bar = Bar::new(args.quiet || args.json);
    let mut options = UndoOptions { checked: false, written_since: fs2d::runtime::written_since(&volume) };
    let undone = loop {
        let undone = {
            let _caught = catch_signals()?;
            let mut volume_io = UntilAsked(StoreIo::new(&volume));
            let mut table_io = table.as_ref().map(|t| UntilAsked(StoreIo::new(t)));
            let table_io = table_io.as_mut().map(|t| t as &mut dyn fs2_block::WriteAt);
            let mut devices = Devices::new(&mut volume_io, table_io);
            offline::undo(&mut devices, &options, &mut |p| bar.update(p))
        };
        match undone {
            // What it is to overwrite may be a file's.
            Err(OfflineError::Unchecked) if !options.checked => {
                checked::by_e2fsck(&args.device, &volume, &args.command(), &mut bar)?;
                options.checked = true;
            }
            undone => break undone,
        }
    };
    bar.clear();
    let undone = undone.map_err(|e| half_done(e, &args.device, args.table.as_deref(), &args.again()))?;
    if let (Some(path), Some(store)) = (&args.table, &table)
        && !store.is_device()
    {
        remove_table(path).map_err(|e| Refusal::io(path, "removing the empty table", e))?;
    }
    forget_stamp(&args.device, &volume)?;
    say_undone(args, &undone, out);
    Ok(())
}

/// Removes a table's file. A link to it is somebody's, who made what it leads to, empty: so both are left.
fn remove_table(path: &Path) -> std::io::Result<()> {
    match path.is_symlink() {
        true => File::options().write(true).open(path)?.set_len(0),
        false => fs::remove_file(path),
    }
}

fn say_undone(args: &Args, undone: &Undone, out: &mut dyn Write) {
    if args.json {
        let said = serde_json::json!({
            "device": args.device.display().to_string(),
            "table_bytes": undone.table_bytes,
            "scrubbed_blocks": undone.scrubbed,
            "left_in_use": undone.in_use,
            "damaged": undone.damaged,
        });
        let _ = writeln!(out, "{}", output::json(&said));
        return;
    }
    if args.quiet {
        return;
    }
    let device = args.device.display();
    let _ = writeln!(
        out,
        "{device}: is a plain ext2 volume again\n\
         overwritten: a table of {}, {} replicas",
        bytes(undone.table_bytes),
        undone.scrubbed
    );
    if undone.in_use > 0 {
        let _ = writeln!(out, "left alone:  {} replicas whose blocks are in use since", undone.in_use);
    }
    if let Some(why) = &undone.damaged {
        let _ = writeln!(out, "the table was damaged ({why}): copies of blocks may be left in free space");
    }
}

/// The place given with `--table`; what was done to a file for it is undone unless it is kept.
struct TablePlace {
    /// Before the store: undone under its lock.
    prepared: Option<Prepared>,
    store: FileStore,
}

/// A file that was given a table's size: on drop it is as it was.
enum Prepared {
    /// There was none.
    New(PathBuf),
    /// It was empty, and is somebody's.
    Empty(PathBuf),
}

impl Prepared {
    /// Sizes what is empty, or makes a file.
    fn size(path: &Path, exists: bool, bytes: u64) -> Result<Prepared, Refusal> {
        let making = |e| Refusal::io(path, "making the table", e);
        let file = File::options().write(true).create_new(!exists).open(path).map_err(making)?;
        let prepared = if exists { Prepared::Empty(path.to_owned()) } else { Prepared::New(path.to_owned()) };
        allocate(&file, bytes).and_then(|()| file.sync_all()).map_err(making)?;
        Ok(prepared)
    }
}

/// Makes a file as long, with room for all of it where its file system can: a daemon's table must not fail for want of that.
fn allocate(file: &File, bytes: u64) -> std::io::Result<()> {
    let len = off_t::try_from(bytes).map_err(|_| std::io::ErrorKind::FileTooLarge)?;
    // Not posix_fallocate: where it finds no such thing it may write to each block.
    loop {
        return match fallocate(file, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            Err(Errno::EINTR) => continue,
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => file.set_len(bytes),
            Err(e) => Err(e.into()),
        };
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let _ = match self {
            Prepared::New(path) => fs::remove_file(path),
            Prepared::Empty(path) => File::options().write(true).open(path).and_then(|f| f.set_len(0)),
        };
    }
}

impl TablePlace {
    /// Opens a device or a file, or makes a file of `bytes`.
    fn open(path: &Path, bytes: u64) -> Result<TablePlace, Refusal> {
        let (exists, empty) = match fs::metadata(path) {
            Ok(meta) => (true, meta.is_file() && meta.len() == 0),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                if path.is_symlink() {
                    let what = format!("{}: a link to what is not there", path.display());
                    return Err(Refusal {
                        what,
                        next: Some("make what it leads to, empty, or give that".into()),
                    });
                }
                (false, true)
            }
            Err(e) => return Err(Refusal::io(path, "looking at it", e)),
        };
        if exists && empty {
            // Whose it is is told before it is touched.
            open(path, true)?;
        }
        let prepared = if empty { Some(Prepared::size(path, exists, bytes)?) } else { None };
        match open(path, true) {
            Ok(store) => Ok(TablePlace { store, prepared }),
            Err(e) => {
                if e.is_transient() {
                    // Somebody else took it for a table meanwhile.
                    std::mem::forget(prepared);
                }
                Err(e.into())
            }
        }
    }

    fn keep(mut self) {
        std::mem::forget(self.prepared.take());
    }
}

/// What a daemon of this boot knew of the volume is no longer so, and there is no copy that could be old.
fn forget_stamp(device: &Path, volume: &FileStore) -> Result<(), Refusal> {
    fs2d::runtime::forget_stamp(volume)
        .map_err(|e| Refusal::io(device, "done, but the daemon's record of it cannot be removed", e))
}

/// A number nobody can guess.
pub(crate) fn random() -> Result<u64, Refusal> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 8];
    File::open(path)
        .and_then(|mut f| f.read_exact(&mut bytes))
        .map_err(|e| Refusal::io(path, "drawing the table's key", e))?;
    Ok(u64::from_le_bytes(bytes))
}

fn now_secs() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_said_is_told_once() {
        let full = || std::io::Error::from_raw_os_error(nix::libc::ENOSPC);
        let said = "v: writing the replica table failed: No space left on device (os error 28)";
        let failed = OfflineError::Volume(Problem::io("writing the replica table", full()));
        assert_eq!(Refusal::of(failed, Path::new("v"), None).what, said);
        assert_eq!(with_causes(&OfflineError::NotEmpty), OfflineError::NotEmpty.to_string());
    }

    /// It was "once it can be read and written", of a file system that only had no room left.
    #[test]
    fn who_has_no_room_is_told_to_make_some() {
        let source = || std::io::Error::from_raw_os_error(nix::libc::ENOSPC);
        let what = || "writing copies to blocks 3000-3031".to_owned();
        for e in [
            OfflineError::Io { what: what(), source: source() },
            OfflineError::Volume(Problem::io(what(), source())),
        ] {
            let next = half_done(e, Path::new("v"), None, "chkfs2 -f -p v").next;
            assert_eq!(
                next.as_deref(),
                Some("make room in the file system that holds it, then: chkfs2 -f -p v")
            );
        }
        let e = OfflineError::Io { what: what(), source: std::io::Error::from_raw_os_error(nix::libc::EIO) };
        let next = half_done(e, Path::new("v"), None, "chkfs2 -f -p v").next.unwrap();
        assert!(next.starts_with("once it can be read and written (bad sectors"), "{next}");
    }

    /// The link was removed, and what it led to kept its size, so that no larger table could be made there.
    #[test]
    fn a_link_to_the_place_of_a_table_outlives_it() {
        let dir = tempfile::tempdir().unwrap();
        let [volume, place, link] = ["v", "place", "link"].map(|name| dir.path().join(name));
        File::create(&volume).unwrap().set_len(8 << 20).unwrap();
        let made =
            std::process::Command::new("mke2fs").args(["-q", "-F", "-t", "ext2"]).arg(&volume).status();
        assert!(made.unwrap().success());
        File::create(&place).unwrap();
        std::os::unix::fs::symlink("place", &link).unwrap();
        let mkfs2 = |options: &[&str]| {
            let mut args: Vec<OsString> = vec!["mkfs2".into(), "--table".into(), link.clone().into()];
            args.extend(options.iter().map(Into::into));
            args.push(volume.clone().into());
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let code = run(args, &mut out, &mut err);
            assert_eq!((code, String::from_utf8(err).unwrap()), (0, String::new()), "{options:?}");
        };
        for share in ["5%", "50%"] {
            mkfs2(&["--space", share]);
            assert!(fs::metadata(&place).unwrap().len() > 0);
            mkfs2(&["--undo"]);
            assert!(link.is_symlink());
            assert_eq!(fs::metadata(&place).unwrap().len(), 0);
        }
    }

    /// The table was made anew by the default's size.
    #[test]
    fn what_was_interrupted_goes_on_with_the_same_space() {
        let again =
            |args: &[&str]| Cli::try_parse_from([&["mkfs2"], args].concat()).unwrap().args.unwrap().again();
        assert_eq!(again(&["v"]), "e2fsck -f -p v; mkfs2 v");
        assert_eq!(again(&["--space", "5%", "v"]), "e2fsck -f -p v; mkfs2 v");
        assert_eq!(
            again(&["--space", "12.5%", "--table", "t", "v"]),
            "e2fsck -f -p v; mkfs2 --space 12.5% --table t v"
        );
        assert_eq!(again(&["--space", "40", "v"]), "e2fsck -f -p v; mkfs2 --space 40% v");
        assert_eq!(again(&["--undo", "v"]), "e2fsck -f -p v; mkfs2 --undo v");
    }
}
