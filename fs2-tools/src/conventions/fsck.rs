//! `fsck.fs2 [-apynfrv] [-C FD] DEVICE`: what fsck(8) calls. It is `chkfs2`; a plain ext2 volume is checked as one.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use fs2_ext2::{Layout, TableFile};
use fs2_store::StoreIo;

/// Exit code of fsck: it could not be looked at.
const OPERATIONAL: u8 = 8;

pub(super) fn run(args: Vec<OsString>) -> u8 {
    // -r asks questions, as is done without; -v would have e2fsck say more.
    let args: Vec<OsString> = args.into_iter().filter(|a| a != "-r" && a != "-v").collect();
    let elsewhere = args.iter().any(|a| a.as_encoded_bytes().starts_with(b"--table"));
    if let Some(device) = args.last().filter(|_| !elsewhere).map(Path::new)
        && is_plain(device)
    {
        println!("{}: a plain ext2 volume", device.display());
        let _ = std::io::stdout().flush();
        return match Command::new("e2fsck").args(&args).status() {
            Ok(status) => status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(OPERATIONAL),
            Err(e) => {
                eprintln!("fsck.fs2: e2fsck: {e}; install e2fsprogs");
                OPERATIONAL
            }
        };
    }
    let args = std::iter::once(OsString::from("fsck.fs2")).chain(args);
    let code = crate::chkfs2::run(args, &mut std::io::stdout(), &mut std::io::stderr());
    u8::try_from(code).unwrap_or(OPERATIONAL)
}

/// Whether there is an ext2 volume without a replica table on inode 5.
fn is_plain(device: &Path) -> bool {
    let Ok(volume) = crate::mkfs2::open(device, false) else { return false };
    let mut io = StoreIo::new(&volume);
    let Ok(layout) = Layout::read(&mut io) else { return false };
    matches!(TableFile::find(&layout, &mut io), Ok(None))
}
