//! `fs2`: the front door.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use fs2_control::Liveness;
use fs2_tools::volume::{self, MountRecord, Plan, VolumeError};
use fs2d::settings::{FrontendKind, Settings};

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
  fs2 umount /srv                           unmount it cleanly"
)]
struct Cli {
    #[command(subcommand)]
    command: What,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FrontendArg {
    /// The best this machine has.
    Auto,
    /// The kernel's NBD client on the daemon's socket (needs the nbd module); survives the daemon's death.
    Nbd,
    /// A FUSE file below a loop device.
    Fuse,
    /// A block device of the daemon's own (Linux 6.0 or later with ublk); survives the daemon's death.
    Ublk,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Show plain ext2 and FS2 side by side on a modelled drive.
    Demo(fs2_tools::demo::Options),
    /// Mount a volume with its daemon.
    #[command(
        after_help = "A volume that is not FS2, is dirty or was changed elsewhere is mounted as a plain one, and
the command that activates it is printed (--require-active refuses instead).

EXIT CODES: 0 mounted, 1 wrong usage, 2 the system says no, 32 not mounted"
    )]
    Mount {
        /// The image file or block device.
        device: PathBuf,
        /// Where to mount it.
        dir: PathBuf,
        /// How the kernel reaches the daemon.
        #[arg(long, value_enum, default_value = "auto")]
        frontend: FrontendArg,
        /// Queues of a ublk device [default: one a processor, at most 4].
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
        queues: Option<u16>,
        /// Connections of an NBD device. With several, fewer of the blocks the file system frees come back.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
        connections: u16,
        /// Options of the ext2 mount, such as noatime.
        #[arg(short = 'o', value_name = "OPTIONS")]
        options: Vec<String>,
        #[command(flatten)]
        settings: Box<Settings>,
        /// Print the status as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Unmount a volume and end its daemon cleanly.
    #[command(
        after_help = "EXIT CODES: 0 unmounted, 4 unmounted but the volume needs chkfs2, 32 not unmounted"
    )]
    Umount {
        /// Where it is mounted, or the image or device.
        dir: PathBuf,
    },
    /// How a volume is doing; without a directory, all of them.
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
    /// Replace the daemon's program while the volume stays mounted (ublk only).
    #[command(
        after_help = "Programs that use the volume wait a moment. The next daemon goes on with the replicas as they are.

EXIT CODES: 0 replaced, 2 not replaced, 4 replaced, but it trusts no replica until chkfs2 was run"
    )]
    Upgrade {
        /// Where it is mounted, or the image or device.
        dir: PathBuf,
        /// The new program [default: this fs2].
        #[arg(long, value_name = "PATH")]
        program: Option<PathBuf>,
    },
    /// Tell the daemon of all free blocks of a mounted volume.
    Trim {
        /// Where it is mounted.
        dir: PathBuf,
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
    let cli = match Cli::try_parse_from(std::env::args_os().collect::<Vec<OsString>>()) {
        Ok(cli) => cli,
        Err(e) => {
            let code = u8::from(e.use_stderr());
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    match cli.command {
        What::Demo(options) => fs2_tools::demo::main(&options),
        What::Mount { device, dir, frontend, queues, connections, options, settings, json } => {
            let (frontend, why) = match frontend {
                FrontendArg::Auto => volume::best_frontend(),
                FrontendArg::Nbd => (FrontendKind::Nbd, None),
                FrontendArg::Fuse => (FrontendKind::Fuse, None),
                FrontendArg::Ublk => (FrontendKind::Ublk, None),
            };
            let (frontend, settings) = (Some(frontend), *settings);
            let plan = Plan { device, dir, frontend, settings, queues, connections, options };
            mount(&plan, why.as_deref(), json)
        }
        What::Umount { dir } => umount(&dir),
        What::Status { dir, json, control } => status(dir, control, json),
        What::Upgrade { dir, program } => upgrade(&dir, program),
        What::Trim { dir } => match volume::trim(&dir) {
            Ok(bytes) => {
                println!("{}: the file system discarded {bytes} bytes", dir.display());
                ExitCode::SUCCESS
            }
            Err(e) => failed(&e, 1),
        },
        What::Supervise { record } => match volume::supervise(&record) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => failed(&e, 1),
        },
        What::Daemon(serve) => fs2d::cli::run(&serve),
    }
}

fn failed(e: &VolumeError, code: u8) -> ExitCode {
    eprintln!("fs2: {e}");
    ExitCode::from(code)
}

/// `why`: why no better frontend.
fn mount(plan: &Plan, why: Option<&str>, json: bool) -> ExitCode {
    match volume::mount(plan) {
        Ok((_, status)) if json => {
            println!("{}", status.to_json());
            ExitCode::SUCCESS
        }
        Ok((record, status)) => {
            let by = format!("{} on {}", record.frontend, record.block_device.display());
            println!(
                "{} is mounted on {} ({by}, policy {})",
                record.device.display(),
                record.dir.display(),
                status.policy
            );
            if let Some(why) = why {
                println!("by {}: {why}", record.frontend);
            }
            match &status.liveness {
                Liveness::Active => println!("active: {} replicas", status.replicas),
                other => println!("{other}"),
            }
            if let Some(remedy) = &status.remedy {
                println!("to activate it: fs2 umount {} && {remedy}", record.dir.display());
            }
            ExitCode::SUCCESS
        }
        Err(e) => failed(&e, 32),
    }
}

fn upgrade(dir: &std::path::Path, program: Option<PathBuf>) -> ExitCode {
    let Some(record) = volume::find_record(dir) else {
        eprintln!("fs2: {} is not mounted by FS2; fs2 status lists what is", dir.display());
        return ExitCode::from(2);
    };
    let own = || std::env::current_exe().map_err(|e| VolumeError::Other(format!("this program's path: {e}")));
    let done = program.map_or_else(own, Ok).and_then(|program| volume::upgrade(&record, &program));
    match done {
        Ok(u) => {
            let (dir, from, to) = (record.dir.display(), &u.before.version, &u.after.version);
            println!("{dir}: the daemon of version {from} was replaced by one of version {to}");
            match (&u.before.liveness, &u.after.liveness) {
                (Liveness::Active, Liveness::Active) => {
                    println!("active: {} replicas", u.after.replicas);
                    ExitCode::SUCCESS
                }
                (Liveness::Active, other) => {
                    println!("{other}; the log is {}", record.log.display());
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

fn umount(dir: &std::path::Path) -> ExitCode {
    match volume::umount(dir) {
        Ok(u) => match u.why_not {
            None => ExitCode::SUCCESS,
            Some(why) if why.starts_with(volume::SERVED_INACTIVE) => ExitCode::SUCCESS,
            Some(why) => {
                eprintln!(
                    "fs2: {} is unmounted, but not as a clean FS2 volume: {why}",
                    u.record.dir.display()
                );
                eprintln!("fs2: before the next mount: chkfs2 -f -p {}", u.record.device.display());
                ExitCode::from(4)
            }
        },
        Err(e) => failed(&e, 32),
    }
}

fn status(dir: Option<PathBuf>, control: Option<PathBuf>, json: bool) -> ExitCode {
    let ask = |control: &std::path::Path| -> Result<fs2_control::Status, VolumeError> {
        match fs2_control::Client::connect(control)?.ask(&fs2_control::Command::Status)? {
            fs2_control::Reply::Status(status) => Ok(*status),
            other => Err(VolumeError::Other(format!("the daemon answered {other:?}"))),
        }
    };
    let one = |asked: Result<fs2_control::Status, VolumeError>| match asked {
        Ok(status) => {
            match json {
                true => println!("{}", status.to_json()),
                false => print!("{}", status.to_text()),
            }
            ExitCode::SUCCESS
        }
        Err(e) => failed(&e, 2),
    };
    if let Some(control) = control {
        return one(ask(&control));
    }
    if let Some(dir) = dir {
        return match volume::find_record(&dir) {
            Some(record) => one(volume::status(&record)),
            None => {
                eprintln!("fs2: {} is not mounted by FS2; fs2 status lists what is", dir.display());
                ExitCode::from(2)
            }
        };
    }
    all(&volume::all_records(), json)
}

fn all(records: &[MountRecord], json: bool) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let mut list = Vec::new();
    for record in records {
        match volume::status(record) {
            Ok(status) if json => {
                let mut value = status.to_json();
                value["dir"] = record.dir.display().to_string().into();
                list.push(value);
            }
            Ok(s) => {
                let (dir, device) = (record.dir.display(), record.device.display());
                println!(
                    "{dir}  {device}  {}  {} replicas, {} of {} reads from them",
                    s.liveness, s.replicas, s.reads_from_replica, s.reads
                );
            }
            Err(e) => {
                eprintln!("fs2: {}: {e}", record.dir.display());
                code = ExitCode::from(2);
            }
        }
    }
    if json {
        println!("{}", serde_json::Value::Array(list));
    } else if records.is_empty() {
        println!("no volume is mounted by FS2");
    }
    code
}
