//! The daemon's program replaced while its volume stays mounted.
//!
//! The old program lets its device go (requests wait in the kernel), lets everything in flight end, writes
//! what it knows into a sealed memfd and becomes the new program by exec: process, supervisor, log and
//! arguments stay. The new one gets the backing's lock, sees by the backing's stamp that nobody has written
//! since, and goes on; where anything is odd it begins as after a crash, and the volume is served inactive.
//! docs/format.md has the bytes.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fs2_block::ConnectionId;
use fs2_engine::HandOver;
use fs2_store::{Stamp, Store};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{AccessFlags, execv, faccessat};

/// What a daemon becomes that could not become the program it was told to, and calls itself from then on: not its path, where a package may
/// have put another.
pub const ITSELF: &str = "/proc/self/exe";

/// The argument that names the memfd's descriptor.
const ARGUMENT: &str = "--hand-over=";

/// The argument that names the device to go on with.
const DEVICE_ARGUMENT: &str = "--take-over=";

/// No table is larger: 2^32 blocks have at most so many bytes of pages, and F and the like fit beside.
const BYTES_MAX: u64 = 64 << 30;

fn seals() -> SealFlag {
    SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL
}

/// What the engine's bytes do not say.
pub(crate) fn note(stamp: &Stamp, connection: ConnectionId) -> Vec<u8> {
    format!("{}\n{}\n", connection.0, stamp.to_line()).into_bytes()
}

fn parse_note(note: &[u8]) -> Option<(ConnectionId, Stamp)> {
    let text = std::str::from_utf8(note).ok()?;
    let (connection, rest) = text.split_once('\n')?;
    Some((ConnectionId(connection.parse().ok()?), Stamp::parse(rest.strip_suffix('\n')?)?))
}

/// What a former daemon has left, not yet held against the volume.
pub(crate) struct Given {
    hand_over: HandOver,
    connection: ConnectionId,
    stamp: Stamp,
}

impl Given {
    /// Takes it from the descriptor, which is closed: it is taken once.
    pub(crate) fn receive(fd: RawFd) -> Result<Given, String> {
        // SAFETY: the descriptor was left open by the exec for us alone; where it is none, every use of it
        // fails. Standard streams are not taken.
        let fd = (fd > 2).then(|| unsafe { OwnedFd::from_raw_fd(fd) }).ok_or("no such descriptor")?;
        let has = fcntl(&fd, FcntlArg::F_GET_SEALS).map_err(|e| format!("it is no memfd: {e}"))?;
        if !SealFlag::from_bits_truncate(has).contains(seals()) {
            return Err("it is not sealed".into());
        }
        let mut file = File::from(fd);
        let len = file.metadata().map_err(|e| e.to_string())?.len();
        if len > BYTES_MAX {
            return Err(format!("it has {len} bytes"));
        }
        let mut bytes = Vec::new();
        io::Seek::rewind(&mut file)
            .and_then(|()| file.take(len).read_to_end(&mut bytes))
            .map_err(|e| e.to_string())?;
        let hand_over = HandOver::decode(&bytes)?;
        let (connection, stamp) = parse_note(hand_over.note()).ok_or("its note cannot be read")?;
        Ok(Given { hand_over, connection, stamp })
    }

    /// With the lock on `store` held: what was left, and the number of the connection that goes on, if nobody
    /// has written since. A stamp is of one boot.
    pub(crate) fn for_store(self, store: &dyn Store) -> Option<(HandOver, ConnectionId)> {
        if store.stamp() == Some(self.stamp) {
            return Some((self.hand_over, self.connection));
        }
        tracing::warn!("the former daemon's session does not go on: the volume was written since");
        None
    }
}

/// Refuses a program that this process could not become. What it is good for is not known before it runs.
pub(crate) fn refuse_unrunnable(program: &Path) -> io::Result<()> {
    if !std::fs::metadata(program)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    // As exec looks at it: with the rights that are in force, and where the file system may be one without programs.
    Ok(faccessat(AT_FDCWD, program, AccessFlags::X_OK, AtFlags::AT_EACCESS)?)
}

/// Becomes `program` with this process's arguments, to go on with the ublk device of this number, and with `left` where there is
/// something to go on with. Returns only what kept it from that.
pub(crate) fn become_program(program: &Path, device: u32, left: Option<&[u8]>) -> io::Error {
    let memfd = match left.map(|left| sealed("fs2-hand-over", left)).transpose() {
        Ok(memfd) => memfd,
        Err(e) => {
            tracing::error!("the session cannot be handed over: {e}");
            None
        }
    };
    let mut args: Vec<OsString> = std::env::args_os().skip(1).filter(|a| !is_ours(a)).collect();
    // Behind the subcommand: options of it.
    let behind = 1.min(args.len());
    args.insert(behind, format!("{DEVICE_ARGUMENT}{device}").into());
    if let Some(memfd) = &memfd {
        args.insert(behind, format!("{ARGUMENT}{}", memfd.as_raw_fd()).into());
    }
    exec(program, &args)
}

/// As `Command::exec`, which would let blocked signals through: one that came meanwhile is for the next program.
pub(crate) fn exec(program: &Path, args: &[OsString]) -> io::Error {
    let text = |s: &OsStr| CString::new(s.as_bytes());
    let program = text(program.as_os_str());
    let args: Result<Vec<CString>, _> =
        std::iter::once(program.clone()).chain(args.iter().map(|a| text(a))).collect();
    match (program, args) {
        (Ok(program), Ok(args)) => match execv(&program, &args) {
            Err(e) => e.into(),
            Ok(never) => match never {},
        },
        (Err(e), _) | (_, Err(e)) => e.into(),
    }
}

fn is_ours(argument: &OsString) -> bool {
    argument.to_str().is_some_and(|a| a.starts_with(ARGUMENT) || a.starts_with(DEVICE_ARGUMENT))
}

/// MFD_NOEXEC_SEAL of linux/memfd.h, since Linux 6.3. A system may give no memfd without it (`vm.memfd_noexec` is 2).
const NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(8);

/// A memfd that nobody can change any more, and that outlives an exec.
pub(crate) fn sealed(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let sealable = MFdFlags::MFD_ALLOW_SEALING;
    let fd = match memfd_create(name, sealable | NOEXEC_SEAL) {
        Err(Errno::EINVAL) => memfd_create(name, sealable),
        made => made,
    }?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    let fd = OwnedFd::from(file);
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals()))?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::open_with;
    use crate::stop::Stop;
    use fs2_block::Permille;
    use fs2_engine::offline::{CreateOptions, Devices, create};
    use fs2_engine::{Inactive, Standing};
    use fs2_sim::model::content::Grain;
    use fs2_sim::model::image::{Plan, Shape};
    use fs2_store::MemStore;
    use std::os::fd::IntoRawFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn notes() {
        let stamp = || Stamp {
            boot_id: "b".into(),
            of: fs2_store::StampOf::Device {
                major: 8,
                minor: 1,
                diskseq: 2,
                sectors_written: 3,
                sectors_discarded: 4,
            },
        };
        assert_eq!(parse_note(&note(&stamp(), ConnectionId(7))), Some((ConnectionId(7), stamp())));
        for bad in ["", "1", "1\n", "x\nb\n", "1\nnonsense\n"] {
            assert_eq!(parse_note(bad.as_bytes()), None, "{bad:?}");
        }
    }

    /// Its hand-over was refused, and the attach behind it trusted the mark, which stood, for nothing had changed before.
    #[test]
    fn a_writer_between_two_programs_is_noticed_by_the_attach_too() {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            settings: crate::settings::Settings,
        }
        let settings = <Only as clap::Parser>::parse_from(["x", "--direct", "off"]).settings;
        let mut image = Plan { shape: Shape::Plain, grain: Grain::SMALL }.make(&[(1500, 1)], &[]);
        let options =
            CreateOptions { space: Permille::new(50).unwrap(), volume_id: 7, now_secs: 1, checked: true };
        create(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(&image, 0).unwrap();
        // Written or not; or nobody can tell, for what was left is of a version that this program does not know.
        // Before it left, for the third: that session had changed nothing.
        let again = || {
            file.as_file().write_all_at(&image, 0).unwrap();
            let options = fs2_store::OpenOptions { lock: fs2_store::Lock::None, ..Default::default() };
            crate::runtime::forget_stamp(&fs2_store::FileStore::open(file.path(), options).unwrap()).unwrap();
        };
        let write = || {
            // Longer than the clock that stamps files takes for a step.
            std::thread::sleep(std::time::Duration::from_millis(50));
            file.as_file().write_all_at(&[9], 1500 << 10).unwrap();
        };
        for (written, known, before) in
            [(false, true, false), (true, true, false), (true, true, true), (false, false, false)]
        {
            again();
            let served = open_with(file.path(), &settings, None, false, &Stop::default()).unwrap();
            assert!(served.server.with_volume(|v| *v.standing() == Standing::Active));
            if written && before {
                write();
            }
            let mut left = served.leave(ConnectionId(1)).unwrap();
            drop(served);
            if written && !before {
                write();
            }
            if !known {
                left.truncate(20);
            }
            let given = Given::receive(sealed("left", &left).unwrap().into_raw_fd());
            assert_eq!(given.is_ok(), known);
            let next = open_with(file.path(), &settings, Some(given), true, &Stop::default()).unwrap();
            let standing = next.server.with_volume(|v| v.standing().clone());
            let fits = known && !written;
            let want = if fits { Standing::Active } else { Standing::Inactive(Inactive::WrittenSince) };
            assert_eq!(standing, want);
            // Not its end: that would leave a record of the file behind.
            let _ = next.leave(ConnectionId(1));
        }
        again();
    }

    /// Where `vm.memfd_noexec` is 2 there was none, and each upgrade lost the session.
    #[test]
    fn what_is_handed_over_is_no_program_where_the_kernel_knows_of_that() {
        // F_SEAL_EXEC of linux/fcntl.h.
        const SEAL_EXEC: i32 = 0x20;
        let known = memfd_create("fs2-test", MFdFlags::MFD_ALLOW_SEALING | NOEXEC_SEAL).is_ok();
        let left = sealed("left", b"x").unwrap();
        assert_eq!(fcntl(&left, FcntlArg::F_GET_SEALS).unwrap() & SEAL_EXEC != 0, known);
    }

    #[test]
    fn only_what_is_sealed_is_taken() {
        let open = memfd_create("fs2-test", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        assert_eq!(Given::receive(open.into_raw_fd()).err().unwrap(), "it is not sealed");
        let file = tempfile::tempfile().unwrap();
        assert!(
            Given::receive(OwnedFd::from(file).into_raw_fd()).err().unwrap().starts_with("it is no memfd")
        );
        assert!(Given::receive(1).is_err());
        let sealed = sealed("left", b"nonsense").unwrap();
        assert!((&File::from(sealed.try_clone().unwrap())).write_all(b"x").is_err());
        assert_eq!(Given::receive(sealed.into_raw_fd()).err().unwrap(), "it is none");
        // A store without a stamp cannot tell.
        assert_eq!(MemStore::new(4096).stamp(), None);
    }
}
