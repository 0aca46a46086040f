//! `mount.fs2 SOURCE DIR [-sfnv] [-o OPTIONS]`: what `mount -t fs2` calls.

use fs2d::trace_file::next_trace;
use std::ffi::OsString;

use super::options::{Sorted, sort};
use super::{Helper, USAGE};
use crate::kernel::{MountOptions, mount_at, remount};
use crate::output::quoted;
use crate::volume::cli::{FAILED, MountArgs, Say, run_mount};
use crate::volume::{MountRecord, find_record, is_mounted, status};

pub(super) const HELP: &str = "\
usage: mount.fs2 SOURCE DIR [-sfnv] [-o OPTIONS]; mount -t fs2 calls it
OPTIONS are those of fs2 mount without dashes, and any of mount(8) and ext2.

EXAMPLES:
  mount -t fs2 -o policy=fs2,noatime /dev/sdb1 /srv
  /dev/sdb1  /srv  fs2  noatime,nofail,space=10%  0  2      a line of /etc/fstab
  mount -o remount,ro /srv

EXIT CODES: 0 mounted, 1 wrong usage, 32 not mounted";

pub(super) fn run(args: Vec<OsString>) -> u8 {
    match mount(args) {
        Ok(code) => code,
        Err((what, code)) => {
            eprintln!("mount.fs2: {what}");
            code
        }
    }
}

fn mount(args: Vec<OsString>) -> Result<u8, (String, u8)> {
    let usage = |what| (what, USAGE);
    let helper = Helper::parse(args).map_err(usage)?;
    helper.odd("sfnv").map_err(usage)?;
    let [source, dir] = helper.places.as_slice() else {
        return Err(usage("usage: mount.fs2 SOURCE DIR [-sfnv] [-o OPTIONS]; mount -t fs2 calls it".into()));
    };
    let options = sort(&helper.options, helper.has('s')).map_err(usage)?;
    let mut args = options.args(source.clone(), dir.clone()).map_err(usage)?;
    if options.remount {
        return change_options(&args, options);
    }
    if options.nofail && !args.device.exists() {
        return Ok(0);
    }
    if mounted_already(&args, &options)? || helper.has('f') {
        return Ok(0);
    }
    // The next boot mounts it by the same line.
    args.settings.trace = args.settings.trace.map(|trace| next_trace(&trace));
    let say = if helper.has('v') { Say::All } else { Say::Odd };
    Ok(run_mount(args, say))
}

fn change_options(args: &MountArgs, options: Sorted) -> Result<u8, (String, u8)> {
    let dir = &args.dir;
    // mount(8) gives those of the line in fstab, too.
    let changed = find_record(dir).map(|record| options.changed(args, &record)).unwrap_or_default();
    if !changed.is_empty() {
        let what = format!(
            "{}: cannot be changed while {} is mounted; umount {} first",
            changed.join(", "),
            dir.display(),
            quoted(dir)
        );
        return Err((what, FAILED));
    }
    let options = MountOptions { extra: options.kernel, ..MountOptions::default() };
    remount(dir, &options).map(|()| 0).map_err(|e| (e.to_string(), FAILED))
}

/// `mount -a` cannot tell, since the kernel shows another source than the table has, and passes by what is mounted, however it was remounted
/// since. Else it is an error where other options are asked for than the volume has.
fn mounted_already(args: &MountArgs, options: &Sorted) -> Result<bool, (String, u8)> {
    let (Ok(device), Ok(dir)) = (args.device.canonicalize(), args.dir.canonicalize()) else {
        return Ok(false);
    };
    let Some(record) = find_record(&dir).filter(|r| r.device == device && r.dir == dir) else {
        return Ok(false);
    };
    if !is_mounted(&record) {
        return Ok(false);
    }
    match status(&record) {
        Ok(_) => {
            let already = format!("{} is mounted on {} already", device.display(), dir.display());
            match differences(args, options, &record, all_are_mounted()) {
                None => {
                    eprintln!("mount.fs2: {already}");
                    Ok(true)
                }
                Some(what) => Err((format!("{already}, with other options: {what}"), FAILED)),
            }
        }
        Err(e) => {
            let dir_shown = dir.display();
            let what = match record.silence(&e) {
                Some(silence) => format!("{dir_shown} is mounted already, and {silence}"),
                None => format!(
                    "{dir_shown} is mounted, but its daemon is gone ({e}); umount {} first",
                    quoted(&dir)
                ),
            };
            Err((what, FAILED))
        }
    }
}

/// What a mounted volume has not of the options, and which command makes it so; `remounted`: it may be read-only or not.
fn differences(args: &MountArgs, options: &Sorted, record: &MountRecord, remounted: bool) -> Option<String> {
    let dir = quoted(&record.dir);
    let mut all = Vec::new();
    let changed = options.changed(args, record);
    if !changed.is_empty() {
        let changed = changed.join(", ");
        all.push(format!("{changed} is not what its daemon was started with; umount {dir} first"));
    }
    let read_only = mount_at(&record.dir).ok().flatten().map(|m| m.has_option("ro"));
    if let (Some(wanted), Some(is)) = (options.read_only(), read_only)
        && wanted != is
        && !remounted
    {
        let (wanted, is) = if wanted { ("ro", "for writing") } else { ("rw", "read-only") };
        all.push(format!("{wanted}, and it is mounted {is}; mount -o remount,{wanted} {dir} changes that"));
    }
    (!all.is_empty()).then(|| all.join("; "))
}

/// Whether `mount -a` calls: it says `rw` of each line that says nothing, as every mount(8) does, and tells nobody of the difference.
fn all_are_mounted() -> bool {
    let of = format!("/proc/{}/cmdline", nix::unistd::getppid());
    std::fs::read(of).is_ok_and(|line| has_all(&line))
}

/// Whether a command line, its arguments ended by a zero each, is mount(8)'s with `-a`.
fn has_all(line: &[u8]) -> bool {
    let mut args = line.split(|&b| b == 0);
    let is_mount = args.next().is_some_and(|name| name == b"mount" || name.ends_with(b"/mount"));
    let options = args.take_while(|arg| *arg != b"--");
    // The letters before one that takes a value, which may stand in the same word.
    let mut letters = options
        .filter_map(|arg| arg.strip_prefix(b"-"))
        .filter(|arg| !arg.starts_with(b"-") || *arg == b"-all");
    is_mount
        && letters.any(|word| {
            word == b"-all"
                || word.split(|b| WITH_VALUE.contains(b)).next().is_some_and(|l| l.contains(&b'a'))
        })
}

/// Options of mount(8) that take a value.
const WITH_VALUE: &[u8] = b"LNOTUot";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_mounts_all_is_told_by_the_command_line() {
        let has = |line: &str| has_all(line.replace(' ', "\0").as_bytes());
        for all in [
            "mount -a",
            "/bin/mount -T fstab -av",
            "mount -t fs2 -Fa",
            "mount --all ",
            "mount -O _netdev -a ",
        ] {
            assert!(has(all), "{all}");
        }
        for one in [
            "mount /srv",
            "mount -t fs2 -onoatime a b",
            "mount -T fstab m",
            "mount -- -a",
            "sh -a",
            "mount --bind a b",
            "mount -Ldata m",
            "",
        ] {
            assert!(!has(one), "{one}");
        }
    }
}
