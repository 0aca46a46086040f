//! `fs2`: the front door.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fs2_control::{Liveness, plain};
use fs2_tools::volume::{self, Found, SERVED_INACTIVE, Trimmed, VolumeError};
use fs2_tools::{eprintln, print, println};
use fs2d::runtime::{unreadable, whose_are_seen};

/// Accelerated ext2 volumes for spinning disks.
#[derive(Parser, Debug)]
#[command(
    name = "fs2",
    version,
    about = "Accelerated ext2 volumes for spinning disks",
    after_help = "EXAMPLES:
  fs2 demo                                  what it does, in under two minutes
  mkfs2 /dev/sdb1                           make an ext2 volume an FS2 volume, in place
  fs2 mount /dev/sdb1 /srv                  mount it with its daemon
  fs2 status /srv                           how it is doing
  fs2 top /srv                              the same as it happens
  fs2 report /srv -o srv.html               its next minute as a page with pictures
  fs2 umount /srv                           unmount it cleanly"
)]
struct Cli {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Show plain ext2 and FS2 side by side on a modelled drive.
    Demo(fs2_tools::demo::Options),
    /// Measure a drive by reads and write its profile.
    Calibrate(fs2_tools::calibrate::Args),
    /// Mount a volume with its daemon.
    Mount(volume::cli::MountArgs),
    /// Unmount volumes and end their daemons cleanly.
    #[command(after_help = "EXAMPLES:
  fs2 umount /srv
  fs2 umount /dev/sdb1      by its device
  fs2 umount /srv /home     one after another

Where something else uses the volume's device, such as a second mount, the daemon ends with the last user. \
Of several the others are unmounted though one is not.

EXIT CODES: 0 unmounted, 1 wrong usage, 4 unmounted but a volume needs chkfs2, 32 not unmounted, 64 of several some are not")]
    Umount {
        /// Where each is mounted, or its image or device.
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
    },
    /// How a volume is doing; without a directory, all of them, a line each.
    #[command(after_help = "EXAMPLES:
  fs2 status                a line for each volume: where it is mounted (- where it is only served), device, state
  fs2 status /srv           all there is to tell of one
  fs2 status --json /srv    the same for scripts

EXIT CODES: 0 told, 1 wrong usage, 2 no such volume, a daemon does not answer, or it cannot be written")]
    Status {
        /// Where it is mounted, or the image or device.
        dir: Option<PathBuf>,
        /// One JSON object (a list of them without a directory).
        #[arg(long)]
        json: bool,
        /// Ask this control socket instead.
        #[arg(long, value_name = "SOCKET", conflicts_with = "dir")]
        control: Option<PathBuf>,
    },
    /// A volume as it lives, on a terminal.
    Top(fs2_tools::top::Options),
    /// A running volume as one page of HTML.
    Report(fs2_tools::live_report::Options),
    /// Replace the daemon's program while the volume stays mounted (ublk only).
    #[command(after_help = "EXAMPLES:
  fs2 upgrade /srv                              after a newer package was installed
  fs2 upgrade /srv --program /opt/fs2/bin/fs2

Programs that use the volume wait a moment. The next daemon goes on with the replicas as they are.

EXIT CODES: 0 replaced, 2 not replaced, 4 replaced, but it trusts no replica until chkfs2 was run")]
    Upgrade {
        /// Where it is mounted, or the image or device.
        dir: PathBuf,
        /// The new program [default: this fs2].
        #[arg(long, value_name = "PATH")]
        program: Option<PathBuf>,
    },
    /// Tell the daemon of all free blocks of a mounted volume; without a directory, of all of them.
    #[command(after_help = "EXAMPLES:
  fs2 trim /srv             one volume, mounted without `discard`
  fs2 trim                  all of them

A volume that is not active is not trimmed, for no copies are made in what is free; nor is one that \
is mounted read-only, where it could be overwritten with zeroes. Without a directory they are passed \
by.

EXIT CODES: 0 done, or passed by, 1 wrong usage, or the kernel says no, 2 no such volume, its daemon \
does not answer, or it is not trimmed")]
    Trim {
        /// Where it is mounted.
        dir: Option<PathBuf>,
    },
    /// Man pages and completions, for packages.
    #[command(hide = true)]
    Generate(fs2_tools::generate::Options),
    /// Whose a ublk device is, for udev: user and group of who made it without privileges, or `privileged`.
    #[command(hide = true)]
    UblkOwner {
        /// Either of its nodes: ublkcN or ublkbN.
        node: PathBuf,
    },
    /// What `fs2 mount` leaves beside a daemon whose device survives it.
    #[command(hide = true)]
    Supervise {
        /// The mount's record.
        record: PathBuf,
    },
    /// The daemon itself, as `fs2 mount` starts it.
    #[command(hide = true)]
    Daemon(Box<fs2d::cli::Serve>),
}

fn main() -> ExitCode {
    // As mount.fs2 and the like, when called by such a name.
    if let Some(code) = fs2_tools::conventions::run_by_name(std::env::args_os()) {
        return ExitCode::from(code);
    }
    let cli = match Cli::try_parse_from(std::env::args_os().collect::<Vec<OsString>>()) {
        Ok(cli) => cli,
        Err(e) => return fs2d::cli::told("fs2", &e),
    };
    match cli.command {
        What::Demo(options) => fs2_tools::demo::main(&options),
        What::Calibrate(args) => fs2_tools::calibrate::main(&args),
        What::Mount(args) => ExitCode::from(volume::cli::run_mount(args, volume::cli::Say::All)),
        What::Umount { dirs } => ExitCode::from(volume::cli::run_umounts(&dirs)),
        What::Status { dir, json, control } => match status(dir, control, json) {
            ExitCode::SUCCESS if fs2_tools::output::is_lost() => ExitCode::from(2),
            code => code,
        },
        What::Top(options) => fs2_tools::top::main(&options),
        What::Report(options) => fs2_tools::live_report::main(&options),
        What::Upgrade { dir, program } => upgrade(&dir, program),
        What::Trim { dir: Some(place) } => match volume::mounted_at(&place) {
            Some((dir, found)) => trim(&dir, &found, true),
            None => {
                eprintln!("{}", not_served(&place));
                ExitCode::from(2)
            }
        },
        What::Trim { dir: None } => {
            if let Some(why) = unreadable() {
                return failed(&VolumeError::Other(why), 2);
            }
            let codes = volume::all_mounted().into_iter().map(|(dir, found)| trim(&dir, &found, false));
            codes.fold(ExitCode::SUCCESS, |all, one| if one == ExitCode::SUCCESS { all } else { one })
        }
        What::Generate(options) => {
            match fs2_tools::generate::run(&options, <Cli as clap::CommandFactory>::command()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(e) => failed(&VolumeError::Other(format!("{}: {e}", options.dir.display())), 1),
            }
        }
        What::UblkOwner { node } => ublk_owner(&node),
        What::Supervise { record } => match volume::supervise(&record) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => failed(&e, 1),
        },
        What::Daemon(serve) => fs2d::cli::run(&serve),
    }
}

fn ublk_owner(node: &std::path::Path) -> ExitCode {
    let asked = match fs2d::frontend::ublk::device_of_node(node) {
        Some(device) => fs2d::frontend::ublk::maker(device).map_err(|e| e.to_string()),
        None => Err("not a ublk device".into()),
    };
    match asked {
        Ok(Some((user, group))) => println!("{user} {group}"),
        Ok(None) => println!("privileged"),
        Err(e) => return failed(&VolumeError::Other(format!("{}: {e}", node.display())), 2),
    }
    ExitCode::SUCCESS
}

/// A volume that is not trimmed is an error where it was `named`.
fn trim(dir: &std::path::Path, found: &Found, named: bool) -> ExitCode {
    // The kernel would say that it is done.
    let status = match found.status() {
        Ok(status) => status,
        Err(e) => return failed(&VolumeError::Other(format!("{}: {e}", dir.display())), 2),
    };
    match volume::trim(dir, &status, found.record.as_ref()) {
        Ok(Trimmed::Bytes(bytes)) => {
            let dir = dir.display().to_string();
            println!("{}: the file system discarded {bytes} bytes", plain(&dir));
            ExitCode::SUCCESS
        }
        Ok(Trimmed::Not { why, next }) => {
            let next = next.map_or(String::new(), |next| format!("; next: {next}"));
            eprintln!("fs2: {}: not trimmed: {why}{next}", dir.display());
            if named { ExitCode::from(2) } else { ExitCode::SUCCESS }
        }
        Err(e) => failed(&e, 1),
    }
}

fn failed(e: &VolumeError, code: u8) -> ExitCode {
    eprintln!("fs2: {e}");
    ExitCode::from(code)
}

fn upgrade(dir: &std::path::Path, program: Option<PathBuf>) -> ExitCode {
    let own = || std::env::current_exe().map_err(|e| VolumeError::Other(format!("this program's path: {e}")));
    let (done, log) = match (volume::find_record(dir), volume::served_control(dir)) {
        (Some(record), _) => {
            let done = program.map_or_else(own, Ok).and_then(|program| volume::upgrade(&record, &program));
            (done, record.log.display().to_string())
        }
        // `fs2d serve` is another program's command line.
        (None, Some(control)) => {
            let beside = || own().map(|own| own.with_file_name("fs2d"));
            let done = program.map_or_else(beside, Ok);
            (
                done.and_then(|program| volume::upgrade_served(&control, &program)),
                "its service manager's".into(),
            )
        }
        (None, None) => {
            eprintln!("{}", not_served(dir));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(u) => {
            let (dir, to) = (plain(&dir.display().to_string()), &u.after.version);
            let from = u
                .before
                .as_ref()
                .map_or("of another version".into(), |b| format!("of version {}", b.version));
            println!("{dir}: the daemon {from} was replaced by one of version {to}");
            // What one of another version was is taken to have been well.
            let was = u.before.map_or(Liveness::Active, |before| before.liveness);
            match (was, &u.after.liveness) {
                (Liveness::Active, Liveness::Active) => {
                    println!("active: {} replicas", u.after.replicas);
                    ExitCode::SUCCESS
                }
                (Liveness::Active, other) => {
                    println!("{other}; the log is {log}");
                    ExitCode::from(4)
                }
                (_, other) => {
                    println!("{other}");
                    ExitCode::SUCCESS
                }
            }
        }
        Err(e) => failed(&e, 2),
    }
}

fn not_served(dir: &std::path::Path) -> String {
    let dir = dir.display();
    format!(
        "fs2: {dir} is not mounted by FS2; fs2 status lists what is, and of a daemon that a service manager runs the device is named{}",
        whose_are_seen()
    )
}

fn status(dir: Option<PathBuf>, control: Option<PathBuf>, json: bool) -> ExitCode {
    let found = match (&dir, control) {
        (_, Some(control)) => Found::at(control),
        (Some(dir), None) => match volume::daemon_of(dir) {
            Some(found) => found,
            None => {
                eprintln!("{}", not_served(dir));
                return ExitCode::from(2);
            }
        },
        (None, None) => return all(json),
    };
    match found.status() {
        Ok(status) => {
            match json {
                true => println!("{}", fs2_tools::output::json(&status.to_json())),
                false => print!("{}", status.to_text()),
            }
            ExitCode::SUCCESS
        }
        Err(e) => failed(&e, 2),
    }
}

fn all(json: bool) -> ExitCode {
    if let Some(why) = unreadable() {
        return failed(&VolumeError::Other(why), 2);
    }
    let mut code = ExitCode::SUCCESS;
    let mut list = Vec::new();
    // An entry that has an error has no more than this.
    let without = |record: Option<&volume::MountRecord>, error: String| {
        let (dir, volume) =
            record.map(|r| (r.dir.display().to_string(), r.device.display().to_string())).unzip();
        serde_json::json!({ "dir": dir, "volume": volume, "error": error })
    };
    for gone in volume::clear_dead() {
        let (check, dir) = (gone.record.check_command(), plain(&gone.record.dir.display().to_string()));
        let why = match gone.why_not {
            // Nothing is wrong: it was told when it was mounted.
            Some(why) if why.starts_with(SERVED_INACTIVE) && !gone.died => {
                eprintln!("fs2: {dir}: inactive, and unmounted: {}", plain(&why));
                continue;
            }
            Some(why) if !gone.died => {
                format!(
                    "it is unmounted, but not as a clean FS2 volume: {why}; before the next mount: {check}"
                )
            }
            _ => format!("its daemon died, and it is unmounted; before the next mount: {check}"),
        };
        eprintln!("fs2: {dir}: {why}");
        list.push(without(Some(&gone.record), why));
    }
    let daemons = volume::daemons();
    for found in &daemons {
        match found.status() {
            Ok(status) if json => {
                let mut value = status.to_json();
                value["dir"] = found.dir().map(|d| d.display().to_string()).into();
                value["error"] = serde_json::Value::Null;
                list.push(value);
            }
            Ok(s) => {
                let dir = found.dir().map_or("-".into(), |d| d.display().to_string());
                println!("{}  {}  {}", plain(&dir), plain(&s.volume), s.to_line());
            }
            Err(e) => {
                eprintln!("fs2: {}: {e}", plain(&found.name()));
                list.push(without(found.record.as_ref(), e.to_string()));
                code = ExitCode::from(2);
            }
        }
    }
    if json {
        println!("{}", fs2_tools::output::json(&serde_json::Value::Array(list)));
    } else if daemons.is_empty() {
        println!("no volume is mounted by FS2, and no daemon serves one{}", whose_are_seen());
    }
    code
}
