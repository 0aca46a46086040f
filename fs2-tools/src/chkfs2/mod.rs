//! `chkfs2`: fsck of an FS2 volume: e2fsck first, then the replica table.
//!
//! [`run`] is the whole program but for the process around it. What is compared and written is
//! [`fs2_engine::offline`]'s; here are e2fsck, the lock around it, and the talking.

mod e2fsck;

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use fs2_block::WriteAt;
use fs2_engine::offline::{
    self, CheckOptions, CheckReport, Devices, MarkFound, OfflineError, UndoOptions, Unmarked,
};
use fs2_ext2::{Layout, Problem, Superblock, clear_clean_flag};
use fs2_store::{FileStore, Stamp, Store, StoreIo};

use crate::mkfs2::{Bar, Refusal, catch_signals, open, random, usage};
use crate::output::{self, quoted};
use crate::signals::{self, UntilAsked};
use e2fsck::{E2fsck, Words};

/// Exit code: something was wrong and is right now.
const CORRECTED: i32 = 1;
/// Exit code: something is wrong still.
const UNCORRECTED: i32 = 4;
/// Exit code: it could not be looked at.
const OPERATIONAL: i32 = 8;
/// Exit code: the command line makes no sense.
const USAGE: i32 = 16;

/// Longer than a tick of the clock that files' times come from, 10 ms at most (CONFIG_HZ=100).
const TICK: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  chkfs2 -p /dev/sdb1          check and mend without questions, as at boot
  chkfs2 -f -p /dev/sdb1       check everything even if all seems well
  chkfs2 -n volume.img         look only
  chkfs2 -p --scrub /dev/sdb1  also overwrite every replica

Runs e2fsck with the same options (with -f where the last session did not end cleanly), then compares \
the replica table with the volume, reads both blocks of every entry, and marks the volume as good: the \
next session trusts what was verified at once. Replicas that went out of use before are in free blocks \
like deleted files; --scrub overwrites only those the table still names.

Exit codes, as fsck's and OR-ed with e2fsck's: 0 good, 1 corrected, 4 not corrected, 8 could not look, \
16 usage, 32 interrupted. What cannot be written to standard output adds 8.";

/// Check an FS2 volume: e2fsck, then the replica table.
#[derive(Parser, Debug)]
#[command(name = "chkfs2", version, after_help = EXAMPLES)]
struct Args {
    /// Change nothing
    #[arg(short = 'n', conflicts_with_all = ["preen", "yes", "scrub"], overrides_with = "no")]
    no: bool,

    /// Correct what can be corrected safely, without questions
    #[arg(short = 'p', visible_short_alias = 'a', conflicts_with = "yes", overrides_with = "preen")]
    preen: bool,

    /// Answer every question with yes
    #[arg(short = 'y', overrides_with = "yes")]
    yes: bool,

    /// Check everything even if the volume seems good
    #[arg(short = 'f', overrides_with = "force")]
    force: bool,

    /// Overwrite every replica and leave an empty table
    #[arg(long)]
    scrub: bool,

    /// Hash nothing: replicas become usable one by one as their originals are read
    #[arg(long)]
    quick: bool,

    /// Where the replica table is, if not on inode 5
    #[arg(long, value_name = "PATH")]
    table: Option<PathBuf>,

    /// Print one JSON object instead of sentences; what e2fsck says goes to standard error
    #[arg(long)]
    json: bool,

    /// For fsck(8): where e2fsck shows its progress
    #[arg(short = 'C', value_name = "FD", hide = true, allow_negative_numbers = true)]
    progress: Option<i32>,

    /// An FS2 volume: a block device or an image file
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
}

/// What went wrong, and what it adds to the exit code.
struct Stop(Refusal, i32);

/// The definition of its arguments, for man pages and completions.
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Runs the program: `args` with its own name first. Returns its exit code.
pub fn run(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write, err: &mut dyn Write) -> i32 {
    run_with(args, Words::Through, out, err)
}

/// As [`run`], but what e2fsck says is written to `out` too, and nothing to this process's own output.
pub fn run_within(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write, err: &mut dyn Write) -> i32 {
    run_with(args, Words::Kept, out, err)
}

fn run_with(
    args: impl IntoIterator<Item = OsString>,
    words: Words,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> i32 {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(e) => return usage(&e, out, err, USAGE, OPERATIONAL),
    };
    let words = if args.json && words == Words::Through { Words::Apart } else { words };
    let code = match Session::new(&args, words).and_then(|session| session.run(out)) {
        Ok(code) => code,
        Err(Stop(refusal, code)) => {
            refusal.tell("chkfs2", args.json, out, err);
            code
        }
    };
    match out.flush() {
        Ok(()) => code,
        Err(e) => {
            let _ = writeln!(err, "chkfs2: standard output: {e}");
            code | OPERATIONAL
        }
    }
}

struct Session<'a> {
    args: &'a Args,
    e2fsck: E2fsck,
    /// Where the table lives apart; held all the time.
    table: Option<FileStore>,
    /// The volume, where it is a file: e2fsck asks for no lock there, so that ours keeps daemons out
    /// while it runs. A block device it has to claim itself.
    held: Option<FileStore>,
    /// The exit code so far.
    code: i32,
}

/// What is known of the volume before e2fsck ran.
struct Before {
    /// A valid mark stands.
    marked: bool,
    /// What the mark is worth, as far as that can be told without its bitmaps; e2fsck's own changes make it worth nothing.
    found: Option<MarkFound>,
    written_since: bool,
    /// The mark that stood: erased, where e2fsck may write.
    unmarked: Option<Unmarked>,
    /// What a write of e2fsck's would move.
    stamps: Option<Vec<Stamp>>,
    /// Its superblock, where that and the descriptors could be read.
    superblock: Option<Superblock>,
}

impl<'a> Session<'a> {
    fn new(args: &'a Args, words: Words) -> Result<Session<'a>, Stop> {
        let mut options: Vec<OsString> = Vec::new();
        for (wanted, option) in [(args.no, "-n"), (args.preen, "-p"), (args.yes, "-y")] {
            options.extend(wanted.then(|| option.into()));
        }
        options.extend(args.progress.map(|fd| format!("-C{fd}").into()));
        let e2fsck = E2fsck::new(options, words).ok_or_else(|| {
            let what = "e2fsck was not found".to_string();
            Stop(
                Refusal { what, next: Some("install e2fsprogs, or put e2fsck on the PATH".into()) },
                OPERATIONAL,
            )
        })?;
        let table = args.table.as_deref().map(|path| open(path, !args.no)).transpose();
        let table = table.map_err(|e| Stop(e.into(), OPERATIONAL))?;
        Ok(Session { args, e2fsck, table, held: None, code: 0 })
    }

    fn take_volume(&mut self) -> Result<FileStore, Stop> {
        if let Some(volume) = self.held.take() {
            return Ok(volume);
        }
        open(&self.args.device, !self.args.no).map_err(|e| Stop(e.into(), self.code | OPERATIONAL))
    }

    /// Lets go of the volume as far as e2fsck needs it.
    fn leave_to_e2fsck(&mut self, volume: FileStore) {
        self.held = (!volume.is_device()).then_some(volume);
    }

    /// Does something with the volume and its table.
    fn with<T>(&self, volume: &FileStore, work: impl FnOnce(&mut Devices<'_>) -> T) -> T {
        let mut volume = StoreIo::new(volume);
        let mut table = self.table.as_ref().map(|t| StoreIo::new(t));
        let table = table.as_mut().map(|t| t as &mut dyn WriteAt);
        work(&mut Devices::new(&mut volume, table))
    }

    /// The same, and fails where a signal came meanwhile: what could not be read for that reason says nothing of the volume. Where
    /// questions are asked, a signal ends the program at once.
    fn until_asked<T>(
        &self,
        volume: &FileStore,
        work: impl FnOnce(&mut Devices<'_>) -> T,
    ) -> Result<T, Stop> {
        if !(self.args.no || self.args.preen || self.args.yes) {
            return Ok(self.with(volume, work));
        }
        let _caught = catch_signals().map_err(|e| Stop(e, self.code | OPERATIONAL))?;
        let mut volume = UntilAsked(StoreIo::new(volume));
        let mut table = self.table.as_ref().map(|t| UntilAsked(StoreIo::new(t)));
        let table = table.as_mut().map(|t| t as &mut dyn WriteAt);
        let done = work(&mut Devices::new(&mut volume, table));
        if !signals::asked() {
            return Ok(done);
        }
        let what = format!("{}: interrupted", self.args.device.display());
        let next = (!self.args.no)
            .then(|| format!("its replicas may not be used until it is checked: {}", self.again("-f -p")));
        Err(Stop(Refusal { what, next }, self.code | e2fsck::CANCELLED))
    }

    /// The command for the same volume and table, with these options.
    fn again(&self, options: &str) -> String {
        let table = self.args.table.as_deref().map_or(String::new(), |t| format!(" --table {}", quoted(t)));
        format!("chkfs2 {options}{table} {}", quoted(&self.args.device))
    }

    fn stop(&self, e: OfflineError) -> Stop {
        let code = match &e {
            OfflineError::Io { .. } | OfflineError::Volume(Problem::Io { .. } | Problem::UnreadCopy(_)) => {
                OPERATIONAL
            }
            // Not a volume of ours: nothing was looked at.
            OfflineError::Volume(
                Problem::NotExt2
                | Problem::NoSuperblock { .. }
                | Problem::TooShort { .. }
                | Problem::Truncated { .. }
                | Problem::Unsupported { .. }
                | Problem::TooManyCopies { .. },
            )
            | OfflineError::OtherVolume(_)
            | OfflineError::TableOnInode
            | OfflineError::Newer(_) => OPERATIONAL,
            _ => UNCORRECTED,
        };
        let mut refusal = Refusal::of(e, &self.args.device, self.args.table.as_deref());
        if self.args.no && refusal.next.is_none() {
            refusal.next = Some(format!("to correct it: {}", self.again("-p")));
        }
        Stop(refusal, self.code | code)
    }

    /// e2fsck does nothing where it can ask nobody: that is told before the mark is erased for it.
    fn refuse_unasked(&self) -> Result<(), Stop> {
        let answered = self.args.no || self.args.preen || self.args.yes;
        if answered || io::stdin().is_terminal() && io::stdout().is_terminal() {
            return Ok(());
        }
        let what = format!("{}: there is no terminal to ask at", self.args.device.display());
        let next = format!("answer beforehand: {} (-y for every repair, -n to look only)", self.again("-p"));
        Err(Stop(Refusal { what, next: Some(next) }, OPERATIONAL))
    }

    fn run(mut self, out: &mut dyn Write) -> Result<i32, Stop> {
        // What cannot be opened is told of first.
        self.held = Some(self.take_volume()?);
        self.refuse_unasked()?;
        let mut before = self.look()?;
        let mut full = self.args.force || !before.marked;
        let new_volume_id = random().map_err(|e| Stop(e, OPERATIONAL))?;
        let mut report = loop {
            if let Err(stop) = self.run_e2fsck(full, out) {
                self.put_back(&before);
                return Err(stop);
            }
            let volume = self.take_volume()?;
            full |= self.was_full(&volume, &before)?;
            self.refuse_changed(&volume, &before, full)?;
            let mut bar = Bar::new(self.args.json);
            let options = CheckOptions {
                checked: full,
                written_since: before.written_since,
                scrub: self.args.scrub,
                quick: self.args.quick,
                // A clean volume keeps no machine from starting: a TiB has 8,192 bitmaps.
                bitmaps: !self.args.preen,
                new_volume_id,
                unmarked: before.unmarked.as_ref(),
                plants: &[],
            };
            let checked = self.until_asked(&volume, |devices| {
                offline::check(devices, &options, &mut |r| self.confirm(r), &mut |p| bar.update(p))
            })?;
            bar.clear();
            match checked {
                Ok(report) if report.needs_full_check && !full => {
                    (full, before.marked, before.found) = (true, false, Some(report.mark));
                }
                Err(
                    OfflineError::Volume(Problem::Corrupt { .. } | Problem::Dirty | Problem::Errors)
                    | OfflineError::Remains(_),
                ) if !full => full = true,
                Err(OfflineError::Remains(why)) if full && self.args.yes => {
                    let options = UndoOptions { checked: true, ..UndoOptions::default() };
                    let undone = self.with(&volume, |devices| offline::undo(devices, &options, &mut |_| {}));
                    self.tell_taken_away(&why, undone.map_err(|e| self.stop(e))?.scrubbed, out);
                    self.code |= CORRECTED;
                    let _ = fs2d::runtime::forget_stamp(&volume);
                    return Err(self.stop(Problem::NoTable.into()));
                }
                Ok(report) => {
                    self.keep_stamp(&volume, &report);
                    break report;
                }
                Err(e) => return Err(self.stop(e)),
            }
            self.leave_to_e2fsck(volume);
        };
        let by_e2fsck =
            full && matches!(report.mark, MarkFound::Differs(_) | MarkFound::Token(_) | MarkFound::Valid);
        // It was e2fsck -f that changed the superblock, or mended what differed; a daemon erases the mark of what others wrote.
        let erased = report.mark == MarkFound::None && before.found == Some(MarkFound::WrittenSince);
        if (by_e2fsck || erased)
            && let Some(found) = before.found
        {
            report.mark = found;
        }
        let wrong = report.has_damage() || !before.marked;
        let mended = report.marked && (report.written || !report.to_write);
        self.code |= match (wrong, mended) {
            (_, false) => UNCORRECTED,
            (true, true) => CORRECTED,
            (false, true) => 0,
        };
        self.tell(&report, out);
        Ok(self.code)
    }

    /// The first look, under the lock, before anything is run.
    fn look(&mut self) -> Result<Before, Stop> {
        let volume = self.take_volume()?;
        let written_since = fs2d::runtime::written_since(&volume);
        let left = fs2d::runtime::has_any_stamp(&self.args.device, &volume);
        let before = match self.with(&volume, offline::look) {
            Ok(look) => {
                look.layout.unsupported().map_err(|e| self.stop(e.into()))?;
                let sound = look.layout.is_clean() && !look.layout.has_errors();
                let found = match look.mark {
                    Ok(MarkFound::Valid) if written_since => Some(MarkFound::WrittenSince),
                    // A daemon that saw it has erased the mark.
                    Ok(MarkFound::None) if written_since && left => Some(MarkFound::WrittenSince),
                    found => found.ok(),
                };
                let unmarked = self.unmark(&volume)?;
                if unmarked.is_some() && !volume.is_device() {
                    // What is written from here on has another time.
                    std::thread::sleep(TICK);
                }
                Before {
                    marked: found == Some(MarkFound::Valid) && sound,
                    found,
                    written_since,
                    stamps: unmarked.as_ref().and_then(|_| stamps(&volume)),
                    unmarked,
                    superblock: Some(look.layout.superblock().clone()),
                }
            }
            // What e2fsck may mend.
            Err(OfflineError::Volume(Problem::Corrupt { .. })) => {
                self.unclean(&volume)?;
                let (marked, found, unmarked, stamps, superblock) = (false, None, None, None, None);
                Before { marked, found, written_since, unmarked, stamps, superblock }
            }
            Err(e) => return Err(self.stop(e)),
        };
        self.leave_to_e2fsck(volume);
        Ok(before)
    }

    /// Erases the mark before e2fsck may write: what it mends is on the disk before the superblock that tells of it, and copies of
    /// what was there before would be trusted if power went in between.
    fn unmark(&self, volume: &FileStore) -> Result<Option<Unmarked>, Stop> {
        if self.args.no {
            return Ok(None);
        }
        match self.with(volume, offline::unmark) {
            Ok(unmarked) => Ok(unmarked),
            Err(
                e @ (OfflineError::Io { .. } | OfflineError::OtherVolume(_) | OfflineError::TableOnInode),
            ) => Err(self.stop(e)),
            // A plain volume, as far as anybody knows.
            Err(OfflineError::Volume(Problem::NoTable)) => Ok(None),
            // No table to use: e2fsck comes first, the check behind it says so.
            Err(_) => self.unclean(volume).map(|()| None),
        }
    }

    /// The same where the mark cannot be had at: what e2fsck mends, be it inode 5 itself, may make it one that stands. It is for a volume
    /// that is clean, and the next check is of all of it, whatever becomes of this one.
    fn unclean(&self, volume: &FileStore) -> Result<(), Stop> {
        if self.args.no {
            return Ok(());
        }
        clear_clean_flag(&mut StoreIo::new(volume)).map_err(|e| self.stop(e.into()))
    }

    /// e2fsck failed: where it has written nothing and found nothing that it left as it is, the mark that was erased for it stands
    /// again. Superblock and bitmaps tell nothing of that: they are what it writes last.
    fn put_back(&mut self, before: &Before) {
        let Some((unmarked, then)) = before.unmarked.as_ref().zip(before.stamps.as_ref()) else { return };
        // Of a volume that others wrote it is void, and the next boot would not know.
        if self.code & UNCORRECTED != 0 || before.written_since {
            return;
        }
        let Ok(volume) = self.take_volume() else { return };
        // What it wrote may still be in the kernel's memory, where no device has counted it.
        if StoreIo::new(&volume).flush().is_err() || stamps(&volume).as_ref() != Some(then) {
            return;
        }
        let again = self.with(&volume, |devices| offline::mark_again(devices, unmarked));
        if matches!(again, Ok(true)) {
            let _ = fs2d::runtime::remember_stamp(&volume);
        }
    }

    /// Runs e2fsck. After a full one the bitmaps are right.
    fn run_e2fsck(&mut self, full: bool, out: &mut dyn Write) -> Result<(), Stop> {
        let _ = out.flush();
        let ran = self.e2fsck.run(full, &self.args.device, out);
        let code = ran.map_err(|e| {
            let what = format!("running e2fsck on {}: {e}", self.args.device.display());
            Stop(Refusal { what, next: None }, self.code | OPERATIONAL)
        })?;
        self.code |= code;
        if code & !e2fsck::CORRECTED != 0 {
            let device = self.args.device.display();
            let what = format!("{device}: e2fsck ended with {code}; the replica table was not checked");
            let next = (code & UNCORRECTED != 0).then(|| format!("correct the volume: {}", self.again("-f")));
            return Err(Stop(Refusal { what, next }, self.code));
        }
        Ok(())
    }

    /// Whether e2fsck looked at all of the volume unasked, for that was due by the count of mounts or the time.
    fn was_full(&self, volume: &FileStore, before: &Before) -> Result<bool, Stop> {
        let Some(before) = before.superblock.as_ref().filter(|_| !self.args.no) else { return Ok(false) };
        let layout = Layout::read(&mut StoreIo::new(volume)).map_err(|e| self.stop(e.into()))?;
        let now = layout.superblock();
        // A count that went back tells of one in the second of the last, too.
        let is_new = !now.shares_check_with(before.raw()) || now.mnt_count() < before.mnt_count();
        Ok(now.tells_of_check() && is_new)
    }

    /// Whether somebody mounted the volume between e2fsck's end and our lock: then the bitmaps may be
    /// wrong again.
    fn refuse_changed(&self, volume: &FileStore, before: &Before, full: bool) -> Result<(), Stop> {
        if self.args.no {
            return Ok(());
        }
        let layout = Layout::read(&mut StoreIo::new(volume)).map_err(|e| self.stop(e.into()))?;
        let mounted =
            before.superblock.as_ref().is_some_and(|sb| mounted_at(sb) < mounted_at(layout.superblock()));
        // e2fsck -f sets the count of mounts to zero.
        let counted = full && layout.superblock().mnt_count() != 0;
        if mounted || counted {
            let device = self.args.device.display();
            let what = format!("{device}: was mounted while it was being checked");
            return Err(Stop(
                Refusal { what, next: Some(format!("unmount it, then: {}", self.again("-f -p"))) },
                self.code | OPERATIONAL,
            ));
        }
        Ok(())
    }

    fn confirm(&self, report: &CheckReport) -> bool {
        if self.args.no {
            return false;
        }
        if self.args.yes {
            return true;
        }
        // Nobody was asked: a file that may be another's stays as it is.
        if self.args.preen {
            return !report.foreign;
        }
        let mut err = io::stderr();
        let device = self.args.device.display();
        for line in report.to_string().lines() {
            let _ = writeln!(err, "{device}: {line}");
        }
        let _ = match report.foreign {
            true => write!(err, "{device}: overwrite it with an empty replica table<n>? "),
            false => write!(err, "{device}: write the replica table and mark it good<y>? "),
        };
        let _ = err.flush();
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        let answer = answer.trim();
        read.is_ok_and(|n| n > 0)
            && (matches!(answer, "y" | "Y" | "yes") || answer.is_empty() && !report.foreign)
    }

    /// Where a mark was written, whoever writes from here on is noticed.
    fn keep_stamp(&self, volume: &FileStore, report: &CheckReport) {
        if (report.written || report.restored)
            && let Err(e) = fs2d::runtime::remember_stamp(volume)
        {
            eprintln!(
                "chkfs2: {}: the daemon's record of it cannot be renewed: {e}",
                self.args.device.display()
            );
        }
    }

    /// What was left of a table whose file is damaged is gone. Programs are told by the refusal that follows.
    fn tell_taken_away(&self, why: &str, scrubbed: u64, out: &mut dyn Write) {
        if !self.args.json {
            let device = self.args.device.display();
            let _ = writeln!(
                out,
                "{device}: the replica table's file was damaged ({why}) and is taken away, its blocks are free; {scrubbed} replicas \
                 overwritten, others may be left in free space"
            );
        }
    }

    fn tell(&self, report: &CheckReport, out: &mut dyn Write) {
        let device = self.args.device.display();
        let findings = report.to_string();
        if self.args.json {
            let said = serde_json::json!({
                "device": device.to_string(),
                "exit_code": self.code,
                "marked": report.marked,
                "written": report.written,
                "mark_found": report.mark.to_string(),
                "findings": findings.lines().collect::<Vec<_>>(),
                "pages": report.table.pages,
                "pages_damaged": report.table.pages_damaged,
                "entries_found": report.table.entries,
                "entries_dropped": report.table.dropped() + report.stale() + report.no_room,
                "unread": report.unread,
                "replicas_verified": report.verified,
                "replicas_unverified": report.unverified,
                "scrubbed_blocks": report.scrubbed,
            });
            let _ = writeln!(out, "{}", output::json(&said));
            return;
        }
        for line in findings.lines() {
            let _ = writeln!(out, "{device}: {line}");
        }
        if report.scrubbed > 0 {
            let _ = writeln!(out, "{device}: {} replicas overwritten", report.scrubbed);
        }
        let count = report.verified + report.unverified;
        let _ = match (report.marked, report.written) {
            (true, true) => writeln!(
                out,
                "{device}: replica table written and marked: {count} replicas, {} of them verified",
                report.verified
            ),
            (true, false) => writeln!(
                out,
                "{device}: replica table clean: {count} replicas, {} of them verified{}",
                report.verified,
                if self.args.preen && !self.args.force { " by the mark" } else { "" }
            ),
            (false, _) if report.restored || self.args.no && report.mark == MarkFound::Valid => writeln!(
                out,
                "{device}: replica table NOT corrected, its mark stands and replicas will be used; to correct it first: {}",
                self.again("-f -p")
            ),
            (false, _) if report.foreign => writeln!(
                out,
                "{device}: inode 5 left as it is, no replica will be used; to overwrite it with an empty replica table: {}",
                self.again("-f -y")
            ),
            (false, _) => writeln!(
                out,
                "{device}: replica table NOT corrected, no replica will be used; to correct it: {}",
                self.again("-f -p")
            ),
        };
    }
}

/// What a write moves, of the volume and of what is below it; `None` where the kernel does not count.
fn stamps(volume: &FileStore) -> Option<Vec<Stamp>> {
    Some(std::iter::once(volume.stamp()?).chain(volume.stamps_below()).collect())
}

/// When the volume was last mounted (`s_mtime`), seconds since 1970.
fn mounted_at(superblock: &Superblock) -> u32 {
    let raw = superblock.raw();
    u32::from_le_bytes([raw[44], raw[45], raw[46], raw[47]])
}
