//! NBD block devices, made and mended over netlink: what `nbd-client` would do, and giving a device new connections
//! when its server has been replaced, which it cannot.
//!
//! Invariants:
//! 1. Only a device that carries our word (its `backend` in sysfs) is reconnected or disconnected.
//! 2. A device is disconnected on drop unless it is kept.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use fs2d::frontend::nbd::codec::wire;

use super::netlink::{Attrs, Genl, find, word};
use super::told;
use crate::programs::command;

/// Of `linux/nbd-netlink.h`.
mod abi {
    pub(super) const FAMILY: &str = "nbd";
    pub(super) const GROUP: &str = "nbd_mc_group";
    pub(super) const CONNECT: u8 = 1;
    pub(super) const DISCONNECT: u8 = 2;
    pub(super) const RECONFIGURE: u8 = 3;
    pub(super) const LINK_DEAD: u8 = 4;
    pub(super) const INDEX: u16 = 1;
    pub(super) const SIZE_BYTES: u16 = 2;
    pub(super) const BLOCK_SIZE_BYTES: u16 = 3;
    pub(super) const TIMEOUT: u16 = 4;
    pub(super) const SERVER_FLAGS: u16 = 5;
    pub(super) const SOCKETS: u16 = 7;
    pub(super) const DEAD_CONN_TIMEOUT: u16 = 8;
    pub(super) const BACKEND_IDENTIFIER: u16 = 10;
    pub(super) const SOCK_ITEM: u16 = 1;
    pub(super) const SOCK_FD: u16 = 1;
}

/// How long the server may take with one step of the handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// How long the device may take to appear or to go. Guess.
const DEVICE_PATIENCE: Duration = Duration::from_secs(10);

/// How a socket becomes a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdOptions {
    /// Connections, 1 to 16. The engine takes a block's discard at its word only over the connection that wrote the
    /// block last, so with several fewer freed blocks come back; a drive that turns gains nothing by them.
    pub connections: u16,
    /// Seconds after which a request is sent again over another connection, and its own is given up. A request that was
    /// under way when the server died waits that long.
    pub timeout_s: u64,
    /// Seconds for which requests wait for a new connection when there is none; then they fail.
    pub dead_s: u64,
    /// Logical block size in bytes.
    pub block_size: u32,
    /// Whether the scheduler and the file system are to take it for a turning disk.
    pub rotational: bool,
    /// Read-ahead of the device's page cache, KiB.
    pub read_ahead_kb: u32,
    /// The block layer's scheduler.
    pub scheduler: String,
}

impl Default for NbdOptions {
    /// One connection. 30 seconds, as the kernel's own default, beyond what a drive takes to recover from a bad sector; 300 for a
    /// daemon to come back, which may have to wait for the last one's I/O and to read its table. The queue as of a loop device.
    fn default() -> NbdOptions {
        NbdOptions {
            connections: 1,
            timeout_s: 30,
            dead_s: 300,
            block_size: 512,
            rotational: true,
            read_ahead_kb: 128,
            scheduler: "none".into(),
        }
    }
}

/// Whether this kernel has NBD; its module is loaded where that is what it takes.
///
/// # Errors
/// Why not, and what to do.
pub fn nbd_available() -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("NBD devices need root".into());
    }
    match driver() {
        Ok(_) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

fn driver() -> io::Result<Genl> {
    match Genl::open(abi::FAMILY) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // It says no where there is no such module, and is not there where there are no modules at all.
            let _ = command("modprobe")
                .args(["-q", "nbd"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            Genl::open(abi::FAMILY).map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => {
                    io::Error::new(e.kind(), "this kernel has no NBD driver (modprobe nbd)")
                }
                _ => e,
            })
        }
        other => other,
    }
}

/// What the server says of its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Export {
    size_bytes: u64,
    flags: u16,
}

/// Connects and asks for the default export; the stream is in transmission then.
fn handshake(socket: &Path) -> io::Result<(UnixStream, Export)> {
    let mut stream = UnixStream::connect(socket).map_err(|e| told(socket, "cannot connect", e))?;
    stream.set_read_timeout(Some(HANDSHAKE_PATIENCE))?;
    stream.set_write_timeout(Some(HANDSHAKE_PATIENCE))?;
    let export = negotiate(&mut stream).map_err(|e| told(socket, "the NBD handshake failed", e))?;
    // The kernel waits on it in its own way.
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok((stream, export))
}

/// The oldest option of the newstyle handshake is the shortest; its one drawback, no words for a refusal, matters little between
/// two of our own.
fn negotiate(stream: &mut (impl Read + Write)) -> io::Result<Export> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    let expected = [wire::NBDMAGIC.to_be_bytes(), wire::IHAVEOPT.to_be_bytes()].concat();
    if greeting[..16] != expected {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not speak NBD"));
    }
    let theirs = u16::from_be_bytes([greeting[16], greeting[17]]);
    let ours = wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES;
    if theirs & ours != ours {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "it does not speak fixed newstyle NBD"));
    }
    let mut out = u32::from(ours).to_be_bytes().to_vec();
    out.extend(wire::IHAVEOPT.to_be_bytes());
    out.extend(wire::OPT_EXPORT_NAME.to_be_bytes());
    out.extend(0_u32.to_be_bytes());
    stream.write_all(&out)?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    let [size @ .., high, low] = answer;
    Ok(Export { size_bytes: u64::from_be_bytes(size), flags: u16::from_be_bytes([high, low]) })
}

fn connections(socket: &Path, number: u16) -> io::Result<(Vec<UnixStream>, Export)> {
    let (first, export) = handshake(socket)?;
    let mut streams = vec![first];
    for _ in 1..number {
        let (next, same) = handshake(socket)?;
        if same != export {
            return Err(told(socket, "its export changed", io::ErrorKind::InvalidData));
        }
        streams.push(next);
    }
    Ok((streams, export))
}

fn sockets(streams: &[UnixStream]) -> Attrs {
    streams.iter().fold(Attrs::default(), |all, stream| {
        all.nest(abi::SOCK_ITEM, &Attrs::default().u32(abi::SOCK_FD, stream.as_raw_fd() as u32))
    })
}

/// An NBD device of our own; disconnected on drop.
#[derive(Debug)]
pub struct NbdDevice {
    number: u32,
    backend: String,
    warnings: Vec<String>,
    kept: bool,
}

impl NbdDevice {
    /// Makes what is served on `socket` a block device under a free number. `backend` is the word by which it is known as ours.
    ///
    /// # Errors
    /// `NotFound` where the kernel has no NBD; what the server or the kernel says. Queue settings that could not be made are
    /// [`NbdDevice::warnings`].
    pub fn attach(socket: &Path, backend: &str, options: &NbdOptions) -> io::Result<NbdDevice> {
        let mut genl = driver()?;
        let (streams, export) = connections(socket, options.connections.clamp(1, 16))?;
        let attrs = Attrs::default()
            .u64(abi::SIZE_BYTES, export.size_bytes)
            .u64(abi::BLOCK_SIZE_BYTES, u64::from(options.block_size))
            .u64(abi::TIMEOUT, options.timeout_s)
            .u64(abi::DEAD_CONN_TIMEOUT, options.dead_s)
            .u64(abi::SERVER_FLAGS, u64::from(export.flags))
            .string(abi::BACKEND_IDENTIFIER, backend)
            .nest(abi::SOCKETS, &sockets(&streams));
        let failed = |e| told(socket, "the kernel makes no NBD device of it", e);
        let answers = genl.call(abi::CONNECT, &attrs).map_err(failed)?;
        let number = answers.iter().find_map(|a| word(find(a, abi::INDEX)?));
        let number = number.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        let mut this = NbdDevice { number, backend: backend.into(), warnings: Vec::new(), kept: false };
        let path = this.path();
        let until = Instant::now() + DEVICE_PATIENCE;
        while let Err(e) = File::open(&path) {
            if Instant::now() >= until {
                return Err(told(&path, "the new NBD device cannot be opened", e));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        this.set("queue/rotational", if options.rotational { "1" } else { "0" });
        this.set("queue/scheduler", &options.scheduler);
        this.set("queue/read_ahead_kb", &options.read_ahead_kb.to_string());
        Ok(this)
    }

    fn set(&mut self, name: &str, value: &str) {
        let path = sysfs(self.number).join(name);
        if let Err(e) = std::fs::write(&path, value) {
            self.warnings.push(format!("{} stays, not {value}: {e}", path.display()));
        }
    }

    /// Such as `/dev/nbd0`.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(format!("nbd{}", self.number))
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Settings that could not be made, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Leaves it connected.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        if !self.kept {
            let _ = nbd_disconnect(self.number, &self.backend);
        }
    }
}

fn sysfs(number: u32) -> PathBuf {
    Path::new("/sys/block").join(format!("nbd{number}"))
}

/// The number in `/dev/nbd7`.
pub fn nbd_number(device: &Path) -> Option<u32> {
    device.to_str()?.strip_prefix("/dev/nbd")?.parse().ok()
}

/// Whether the device is connected and carries this word.
fn is_ours(number: u32, backend: &str) -> bool {
    let said = std::fs::read_to_string(sysfs(number).join("backend"));
    said.is_ok_and(|s| s.trim_end_matches(['\n', '\0']) == backend) && sysfs(number).join("pid").exists()
}

/// Whether the device is connected, and carries another word or none: its number may be given again once it is not.
pub fn nbd_is_anothers(number: u32, backend: &str) -> bool {
    sysfs(number).join("pid").exists() && !is_ours(number, backend)
}

/// The devices that carry this word, which nobody has mounted or claimed: none, where all is as it should be.
pub fn nbd_unclaimed(backend: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|e| e.file_name().to_str()?.strip_prefix("nbd")?.parse().ok());
    let unclaimed = |number: &u32| {
        let device = format!("/dev/nbd{number}");
        is_ours(*number, backend)
            && std::fs::File::options().read(true).custom_flags(libc::O_EXCL).open(device).is_ok()
    };
    numbers.filter(unclaimed).collect()
}

/// Whether a device of so many sectors, as sysfs says, lies within an export. Of one that grew meanwhile it shows what it did.
fn fits(sectors: &str, export: Export) -> bool {
    sectors.trim().parse().is_ok_and(|is: u64| (1..=export.size_bytes / 512).contains(&is))
}

/// Gives a device whose server was replaced new connections to `socket`, in place of those that ended.
///
/// # Errors
/// `NotFound` where the device is not ours (any more); what the server or the kernel says.
pub fn nbd_reconnect(number: u32, socket: &Path, backend: &str, connections: u16) -> io::Result<()> {
    if !is_ours(number, backend) {
        return Err(told(&sysfs(number), "not a device of this volume", io::ErrorKind::NotFound));
    }
    let mut genl = driver()?;
    let (streams, export) = self::connections(socket, connections.clamp(1, 16))?;
    if !fits(&std::fs::read_to_string(sysfs(number).join("size"))?, export) {
        return Err(told(socket, "it serves a smaller volume", io::ErrorKind::InvalidData));
    }
    // What the kernel has no dead connection for, it leaves to us to close.
    let attrs = Attrs::default()
        .u32(abi::INDEX, number)
        .string(abi::BACKEND_IDENTIFIER, backend)
        .nest(abi::SOCKETS, &sockets(&streams));
    genl.call(abi::RECONFIGURE, &attrs).map_err(|e| told(&sysfs(number), "cannot be reconnected", e))?;
    Ok(())
}

/// Disconnects a device and waits until it is free; what is still asked of it fails. One that is not ours is left alone.
///
/// # Errors
/// What the kernel says; `ResourceBusy` where it does not go.
pub fn nbd_disconnect(number: u32, backend: &str) -> io::Result<()> {
    if !is_ours(number, backend) {
        return Ok(());
    }
    driver()?
        .call(abi::DISCONNECT, &Attrs::default().u32(abi::INDEX, number))
        .map_err(|e| told(&sysfs(number), "cannot be disconnected", e))?;
    let until = Instant::now() + DEVICE_PATIENCE;
    while is_ours(number, backend) {
        if Instant::now() >= until {
            return Err(told(&sysfs(number), "still connected", io::ErrorKind::ResourceBusy));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Hears of connections that the kernel has given up.
#[derive(Debug)]
pub struct NbdWatch(Genl);

impl NbdWatch {
    /// From now on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn start() -> io::Result<NbdWatch> {
        let mut genl = driver()?;
        genl.join(abi::GROUP)?;
        Ok(NbdWatch(genl))
    }

    /// Whether the device may have lost a connection since the last call; does not wait. Where the kernel told more than there was
    /// room for, it may: to give a device connections that it does not need changes nothing.
    ///
    /// # Errors
    /// What the socket says.
    pub fn lost(&self, device: u32) -> io::Result<bool> {
        let events = self.0.events()?;
        let mut dead = events.came.iter().filter(|(command, _)| *command == abi::LINK_DEAD);
        Ok(events.lost || dead.any(|(_, attrs)| find(attrs, abi::INDEX).and_then(word) == Some(device)))
    }
}

impl AsFd for NbdWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Script {
        says: io::Cursor<Vec<u8>>,
        hears: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.says.read(buf)
        }
    }

    impl Write for Script {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.hears.write(buf)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn with(says: &[u8]) -> (io::Result<Export>, Vec<u8>) {
        let mut script = Script { says: io::Cursor::new(says.to_vec()), hears: Vec::new() };
        (negotiate(&mut script), script.hears)
    }

    #[test]
    fn the_handshake_is_the_protocols() {
        let greeting = [b"NBDMAGICIHAVEOPT".as_slice(), &[0, 3]].concat();
        let export = [&0x1_2345_6000_u64.to_be_bytes()[..], &[0x05, 0x6d]].concat();
        let (got, sent) = with(&[greeting.as_slice(), &export].concat());
        assert_eq!(got.unwrap(), Export { size_bytes: 0x1_2345_6000, flags: 0x056d });
        assert_eq!(sent, [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 0]].concat());
        for cut in 0..28 {
            let (got, _) = with(&[greeting.as_slice(), &export].concat()[..cut]);
            assert_eq!(got.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        let (got, sent) = with(b"SSH-2.0-OpenSSH_9.2p1 Debian");
        assert_eq!((got.unwrap_err().kind(), sent.len()), (io::ErrorKind::InvalidData, 0));
        let (got, _) = with(&[b"NBDMAGICIHAVEOPT".as_slice(), &[0, 1], &export].concat());
        assert_eq!(got.unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    /// A volume that was made larger below its mount was not connected again, and the device was given up.
    #[test]
    fn a_device_is_given_an_export_in_which_it_lies() {
        let fits = |sectors| super::fits(sectors, Export { size_bytes: 1 << 20, flags: 0 });
        assert!(fits("2048\n") && fits("2047\n"));
        assert!(!["2049\n", "0\n", "", "x"].into_iter().any(fits));
    }

    #[test]
    fn numbers_of_devices() {
        assert_eq!(nbd_number(Path::new("/dev/nbd12")), Some(12));
        for other in ["/dev/nbd", "/dev/nbd1p1", "/dev/loop1", "nbd1"] {
            assert_eq!(nbd_number(Path::new(other)), None);
        }
    }
}
