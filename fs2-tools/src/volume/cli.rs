//! `fs2 mount` and `fs2 umount` as they are typed, for the program and for mount(8)'s helpers.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use fs2_control::{Liveness, plain};
use fs2d::settings::{FrontendKind, Settings};

use super::{Plan, SERVED_INACTIVE, Unmounted, VolumeError, best_frontend, io_error, mount, umount_how};
use crate::{output, signals};

/// Exit code: not mounted, not unmounted.
pub const FAILED: u8 = 32;

/// Exit code: of several some were not unmounted, and some were.
pub const SOME_FAILED: u8 = 64;

/// Exit code: unmounted, but not as a clean FS2 volume.
pub const UNCLEAN: u8 = 4;

/// How the kernel reaches the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FrontendArg {
    /// The best this machine has.
    Auto,
    /// The kernel's NBD client on the daemon's socket (needs the nbd module); survives the daemon's death.
    Nbd,
    /// A FUSE file below a loop device.
    Fuse,
    /// A block device of the daemon's own (Linux 6.0 or later with ublk); survives the daemon's death.
    Ublk,
}

/// The arguments of `fs2 mount`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "EXAMPLES:
  fs2 mount /dev/sdb1 /srv
  fs2 mount --space 10% -o noatime disk.img /mnt
  fs2 mount --belief sdb1.toml /dev/sdb1 /srv       with the profile that fs2 calibrate wrote
  fs2 mount --drive wd800-repaired disk.img /mnt    as slow as that drive

A volume that is not FS2, is dirty or was changed elsewhere is mounted as a plain one, and \
the command that activates it is printed (--require-active refuses instead). A plain umount(8) ends the \
daemon too. In /etc/fstab (type fs2) the options are written without dashes: policy=fs2,space=10%.

EXIT CODES: 0 mounted, 1 wrong usage, 32 not mounted")]
pub struct MountArgs {
    /// The image file or block device.
    pub device: PathBuf,
    /// Where to mount it.
    pub dir: PathBuf,
    /// How the kernel reaches the daemon.
    #[arg(long, value_enum, default_value = "auto")]
    pub frontend: FrontendArg,
    /// Queues of a ublk device [default: 1 where the volume's device turns, else one a processor, at most 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queues: Option<u16>,
    /// Connections of an NBD device. With several, fewer of the blocks the file system frees come back.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub connections: u16,
    /// Options of the ext2 mount, such as noatime.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Settings of the volume.
    #[command(flatten)]
    pub settings: Box<Settings>,
    /// Print the status as JSON.
    #[arg(long)]
    pub json: bool,
}

/// How much is said of a mount that succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// What is mounted how.
    All,
    /// Only that it is mounted as a plain volume, and why.
    Odd,
}

/// Mounts; the exit code.
pub fn run_mount(args: MountArgs, say: Say) -> u8 {
    let (frontend, why) = match args.frontend {
        FrontendArg::Auto => best_frontend(),
        FrontendArg::Nbd => (FrontendKind::Nbd, None),
        FrontendArg::Fuse => (FrontendKind::Fuse, None),
        FrontendArg::Ublk => (FrontendKind::Ublk, None),
    };
    let MountArgs { device, dir, queues, connections, options, settings, json, .. } = args;
    let plan =
        Plan { device, dir, frontend: Some(frontend), settings: *settings, queues, connections, options };
    // Half a mount would hold the volume: what was set up on the way is undone first.
    let caught = signals::catch().map_err(io_error("catching signals"));
    let (record, mut status) = match caught.and_then(|()| mount(&plan)) {
        Ok(mounted) => mounted,
        Err(e) => return failed(&e, FAILED),
    };
    status.remedy = record.remedy(&status);
    if json {
        println!("{}", output::json(&status.to_json()));
        return 0;
    }
    let dir = record.dir.display();
    if say == Say::All {
        let by = format!("{} on {}", record.frontend, record.block_device.display());
        let (device, dir) = (record.device.display().to_string(), dir.to_string());
        println!("{} is mounted on {} ({by}, policy {})", plain(&device), plain(&dir), status.policy);
        if let Some(why) = why {
            println!("by {}: {why}", record.frontend);
        }
    }
    match (&status.liveness, say) {
        (Liveness::Active, Say::All) => println!("active: {} replicas", status.replicas),
        (Liveness::Active, Say::Odd) => {}
        (other, Say::All) => println!("{other}"),
        (other, Say::Odd) => eprintln!("mount.fs2: {dir}: {other}"),
    }
    if let Some(remedy) = &status.remedy {
        let what = format!("to activate it: {remedy}");
        match say {
            Say::All => println!("{what}"),
            Say::Odd => eprintln!("mount.fs2: {what}"),
        }
    }
    0
}

/// Unmounts one after another, whatever became of those before it; the exit code of all, as `umount -a` has it.
pub fn run_umounts(dirs: &[PathBuf]) -> u8 {
    let codes: Vec<u8> = dirs.iter().map(|dir| run_umount(dir, false)).collect();
    code_of_all(&codes)
}

fn code_of_all(codes: &[u8]) -> u8 {
    let failed = codes.iter().filter(|&&code| code == FAILED).count();
    match failed {
        0 => codes.iter().copied().max().unwrap_or(0),
        n if n == codes.len() => FAILED,
        _ => SOME_FAILED,
    }
}

/// Unmounts; the exit code.
pub fn run_umount(dir: &Path, lazy: bool) -> u8 {
    let unmounted = umount_how(dir, lazy);
    if let Ok(Unmounted { trace_failed: Some(why), .. }) = &unmounted {
        eprintln!("fs2: the trace ended early: {why}");
    }
    match unmounted {
        Ok(u) if u.in_use => {
            let still = match &u.elsewhere {
                Some(dir) => format!("{} is still mounted on {}", u.record.device.display(), dir.display()),
                None => format!("{} is used elsewhere", u.record.block_device.display()),
            };
            let dir = u.record.dir.display();
            eprintln!("fs2: {dir} is unmounted; {still}, and its daemon ends with its last user");
            0
        }
        Ok(u) => match u.why_not {
            None => 0,
            Some(why) if why.starts_with(SERVED_INACTIVE) => 0,
            Some(why) => {
                eprintln!(
                    "fs2: {} is unmounted, but not as a clean FS2 volume: {why}",
                    u.record.dir.display()
                );
                eprintln!("fs2: before the next mount: {}", u.record.check_command());
                UNCLEAN
            }
        },
        Err(e) => {
            // Of several it is to be known which.
            let (said, dir) = (e.to_string(), dir.display().to_string());
            let e = if said.contains(&dir) { said } else { format!("{dir}: {said}") };
            failed(&VolumeError::Other(e), FAILED)
        }
    }
}

fn failed(e: &VolumeError, code: u8) -> u8 {
    eprintln!("fs2: {e}");
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_several_unmounts() {
        for (codes, all) in [
            (&[0, 0][..], 0),
            (&[0, UNCLEAN, 0], UNCLEAN),
            (&[FAILED], FAILED),
            (&[FAILED, FAILED], FAILED),
            (&[FAILED, 0], SOME_FAILED),
            (&[UNCLEAN, FAILED], SOME_FAILED),
        ] {
            assert_eq!(code_of_all(codes), all, "{codes:?}");
        }
    }
}
