//! `umount.fs2 DIR [-flnrv]`: what umount(8) calls for a directory where `fs2 mount` left its word (`helper=fs2`).

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::{Helper, USAGE};
use crate::kernel::{MountOptions, forget_helper, mount_at, remount, unmount};
use crate::volume::cli::{FAILED, UNCLEAN, run_umount};
use crate::volume::find_record;

pub(super) const HELP: &str = "\
usage: umount.fs2 DIR [-flnrv]; umount(8) calls it
  -l  take it out of the tree though it is in use
  -r  where it is in use, mount it read-only

EXAMPLES:
  umount /srv

EXIT CODES: 0 unmounted, 1 wrong usage, 32 not unmounted";

pub(super) fn run(args: Vec<OsString>) -> u8 {
    let helper = match Helper::parse(args).and_then(|h| h.odd("flnrv").map(|()| h)) {
        Ok(helper) => helper,
        Err(what) => {
            eprintln!("umount.fs2: {what}");
            return USAGE;
        }
    };
    let [dir] = helper.places.as_slice() else {
        eprintln!("usage: umount.fs2 DIR [-flnrv]; umount(8) calls it");
        return USAGE;
    };
    let dir = Path::new(dir);
    let code = match find_record(dir) {
        Some(_) => run_umount(dir, helper.has('l')),
        // The word was left by a mount that is gone.
        None => match unmount(dir, helper.has('l')) {
            Ok(()) => {
                forget_helper(dir);
                0
            }
            Err(e) => {
                eprintln!("umount.fs2: {e}");
                FAILED
            }
        },
    };
    match code {
        // It is unmounted, which is what was asked for; the next fsck mends the rest.
        UNCLEAN => 0,
        FAILED if helper.has('r') => match make_read_only(dir) {
            Ok(()) => 0,
            Err(e) => {
                eprintln!("umount.fs2: {e}");
                FAILED
            }
        },
        code => code,
    }
}

fn make_read_only(dir: &Path) -> io::Result<()> {
    // A flag that is not given again goes, nosuid among them.
    let extra = mount_at(dir)?.map(|m| m.options_again()).unwrap_or_default();
    remount(dir, &MountOptions { read_only: true, extra, ..MountOptions::default() })
}
