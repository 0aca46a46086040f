//! Devices made, started, taken over and removed: the order of control commands.
//!
//! A device outlives its server where the kernel offers recovery. Which volume it carries is in its
//! `server_flags`, so that no daemon takes over a device whose mount belongs to another volume.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use super::Tag;
use super::protocol;
use super::uapi::{self, ControlCommand, DeviceInfo, NEW_DEVICE, NO_QUEUE, Params, cmd, feature, state};

/// How long a device whose server died may take until it can be taken over. The kernel notices a queue
/// with every request at the server only by its timeout, 30 s unless we could shorten it.
pub(super) const QUIESCE_PATIENCE: Duration = Duration::from_secs(90);

/// The way to the driver.
pub(super) trait Driver {
    /// Runs `op` to its end. Whoever calls keeps what `command.addr` points to alive and of the length told.
    fn run(&mut self, op: u32, command: &mut ControlCommand) -> io::Result<i32>;
}

/// A buffer that a command's `addr` points to, behind the device's path where the kernel wants one.
struct Payload {
    bytes: Vec<u8>,
    path_len: u16,
}

/// The commands, for one process.
pub(super) struct Control<D> {
    driver: D,
    /// Whether devices are made under the privileges of root.
    pub(super) privileged: bool,
    /// Devices seen that were made without them.
    unprivileged: BTreeSet<u32>,
}

fn char_path(device: u32) -> String {
    format!("/dev/ublkc{device}")
}

impl<D: Driver> Control<D> {
    pub(super) fn new(driver: D, privileged: bool) -> Control<D> {
        Control { driver, privileged, unprivileged: BTreeSet::new() }
    }

    /// The user whose devices without privileges are this process's own; root has none of that kind.
    fn user(&self) -> Option<u32> {
        (!self.privileged).then(|| nix::unistd::geteuid().as_raw())
    }

    /// What to do with a device, for a daemon of the volume in this process.
    pub(super) fn left(&self, info: &DeviceInfo, tag: Tag) -> Left {
        left(info, tag, self.user())
    }

    /// Runs `op` with `bytes` as payload both ways, and `data` inline. Unprivileged devices want their path
    /// in front of each payload, from root too, and GET_DEV_INFO2 wants it always.
    fn command(&mut self, op: u32, device: u32, data: u64, bytes: &mut [u8]) -> io::Result<i32> {
        let by_path = !self.privileged || self.unprivileged.contains(&device);
        let with_path =
            op == cmd::GET_DEV_INFO2 || (by_path && op != cmd::ADD_DEV && op != cmd::GET_FEATURES);
        let path = if with_path { char_path(device).into_bytes() } else { Vec::new() };
        let path_len = if path.is_empty() { 0 } else { path.len() as u16 + 1 };
        let mut payload = Payload { bytes: path, path_len };
        payload.bytes.resize(path_len.into(), 0);
        payload.bytes.extend_from_slice(bytes);
        let mut command = ControlCommand {
            device,
            queue: NO_QUEUE,
            len: payload.bytes.len() as u16,
            addr: if payload.bytes.is_empty() {
                0
            } else {
                payload.bytes.as_mut_ptr().expose_provenance() as u64
            },
            data,
            dev_path_len: payload.path_len,
            pad: 0,
            reserved: 0,
        };
        let result = self.driver.run(op, &mut command);
        bytes.copy_from_slice(&payload.bytes[path_len.into()..]);
        result
    }

    /// What the driver offers; `None` from one that does not tell (before Linux 6.5).
    pub(super) fn features(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.command(cmd::GET_FEATURES, NEW_DEVICE, 0, &mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// Makes a device and tells what became of `wanted`: fewer queues, other flags, its number; and in words what it is without, be it
    /// that the driver granted it not, or that it was not among what it `offered` and so not asked for.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn add(
        &mut self,
        wanted: &DeviceInfo,
        offered: Option<u64>,
    ) -> io::Result<(DeviceInfo, Option<String>)> {
        let asked = DeviceInfo { flags: wanted.flags & offered.unwrap_or(u64::MAX), ..*wanted };
        let mut bytes = zerocopy::IntoBytes::as_bytes(&asked).to_vec();
        self.command(cmd::ADD_DEV, NEW_DEVICE, 0, &mut bytes)?;
        let made = parse(&bytes)?;
        Ok((made, difference(wanted, &made)))
    }

    /// A device's state; `None` where there is none of this number.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn info(&mut self, device: u32) -> io::Result<Option<DeviceInfo>> {
        let mut bytes = [0; size_of::<DeviceInfo>()];
        match self.command(cmd::GET_DEV_INFO2, device, 0, &mut bytes) {
            Ok(_) => {
                let info = parse(&bytes)?;
                if info.flags & feature::UNPRIVILEGED_DEV != 0 {
                    self.unprivileged.insert(device);
                } else {
                    self.unprivileged.remove(&device);
                }
                Ok(Some(info))
            }
            // ENOENT: its path is gone already.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ENOENT)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(super) fn set_params(&mut self, device: u32, params: &Params) -> io::Result<()> {
        let mut bytes = zerocopy::IntoBytes::as_bytes(params).to_vec();
        self.command(cmd::SET_PARAMS, device, 0, &mut bytes).map(drop)
    }

    /// The block device appears. Every queue has given all its commands before, or this waits for them.
    pub(super) fn start(&mut self, device: u32, pid: u32) -> io::Result<()> {
        self.command(cmd::START_DEV, device, pid.into(), &mut []).map(drop)
    }

    /// The block device goes; requests that wait get an error.
    pub(super) fn stop(&mut self, device: u32) -> io::Result<()> {
        self.command(cmd::STOP_DEV, device, 0, &mut []).map(drop)
    }

    /// The device goes altogether.
    pub(super) fn remove(&mut self, device: u32) -> io::Result<()> {
        self.command(cmd::DEL_DEV, device, 0, &mut []).map(drop)
    }

    /// The device goes once nobody has it open any more; before Linux 6.9 it stays, dead.
    pub(super) fn remove_later(&mut self, device: u32) -> io::Result<()> {
        self.command(cmd::DEL_DEV_ASYNC, device, 0, &mut []).map(drop)
    }

    /// A device whose server is gone is ready for new queues. Waits until the kernel has noticed.
    ///
    /// Up to Linux 6.14 the driver resets its queues in this command, and wants each to have had a server since the last reset. One that
    /// had none, since a server was killed between this command and its first request for work, makes the command fail for good with
    /// EINVAL (from 6.11 on, and in 6.1.110, 6.6.51 and 6.10.10), or follows a null pointer where another queue had one, or the kernel
    /// is older. So each queue gets a server that serves nothing and ends, by `ask_by_all_tags`, before it is reset: queues that had one
    /// refuse another, and none is harmed. From 6.15 on the reset is done when a server has closed the device, and needs no care.
    pub(super) fn begin_recovery(
        &mut self,
        device: u32,
        nap: Duration,
        mut ask_by_all_tags: impl FnMut(&DeviceInfo) -> io::Result<usize>,
    ) -> io::Result<()> {
        let until = Instant::now() + QUIESCE_PATIENCE;
        let mut ask = |info: &DeviceInfo| {
            let taken = ask_by_all_tags(info)?;
            if taken > 0 {
                tracing::warn!(
                    "{taken} tags of /dev/ublkb{device} had no server, as where a daemon ended while it took the device over"
                );
            }
            io::Result::Ok(())
        };
        let info = self.wait_without_server(device, nap, until)?;
        // Offered from 6.15 on. A distributor's 6.14 without it may reset as 6.15 does: a queue gets a server the more then, and loses it.
        let resets_at_close = self.features().is_some_and(|flags| flags & feature::SUPPORT_ZERO_COPY != 0);
        if !resets_at_close {
            ask(&info)?;
        }
        let mut asked = !resets_at_close;
        loop {
            match self.command(cmd::START_USER_RECOVERY, device, 0, &mut []) {
                // A server's last I/O is going.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                    std::thread::sleep(nap);
                }
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) && !asked => {
                    ask(&info)?;
                    asked = true;
                }
                other => return other.map(drop),
            }
        }
    }

    /// Waits until the driver has noticed that a device's server ended.
    fn wait_without_server(&mut self, device: u32, nap: Duration, until: Instant) -> io::Result<DeviceInfo> {
        loop {
            match look(self, device, true)?.ok_or_else(|| not_awaited(device))? {
                info if matches!(info.state, state::QUIESCED | state::FAIL_IO) => return Ok(info),
                info if info.state != state::LIVE => return Err(not_awaited(device)),
                _ if Instant::now() > until => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the driver has it served still"));
                }
                _ => std::thread::sleep(nap),
            }
        }
    }

    /// Requests that waited are given to the new queues.
    pub(super) fn end_recovery(&mut self, device: u32, pid: u32) -> io::Result<()> {
        self.command(cmd::END_USER_RECOVERY, device, pid.into(), &mut []).map(drop)
    }
}

fn parse(bytes: &[u8]) -> io::Result<DeviceInfo> {
    zerocopy::FromBytes::read_from_bytes(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a device's description of another length"))
}

/// What to do with a device that a former server of the same volume left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Requests wait in it for a server: take it over.
    Recover,
    /// It never came to life, or was stopped: remove it.
    Remove,
    /// It is not this volume's: hands off.
    Foreign,
    /// It cannot be taken over, and may be in use.
    Stuck,
}

/// `info` is what the driver says of the device, `tag` the volume's, `user` who asks, where that is not root.
fn left(info: &DeviceInfo, tag: Tag, user: Option<u32>) -> Left {
    // Anybody can read what a tag is made of, and give it to a device of theirs. Who made that the driver knows.
    let theirs = info.flags & feature::UNPRIVILEGED_DEV != 0 && user != Some(info.owner_uid);
    if theirs || !tag.is(info.server_flags) {
        return Left::Foreign;
    }
    match info.state {
        state::DEAD => Left::Remove,
        // A server that was just killed: the driver says LIVE until it has noticed.
        state::LIVE | state::QUIESCED | state::FAIL_IO if info.flags & feature::USER_RECOVERY != 0 => {
            Left::Recover
        }
        _ => Left::Stuck,
    }
}

/// What the driver says of a device; `None` where there is none, or it is somebody else's who lets nobody look. Where it is `ours`,
/// as another told us, that is an error as any other: not to be told of a device is no sign that nobody waits in it.
pub(super) fn look<D: Driver>(
    control: &mut Control<D>,
    device: u32,
    ours: bool,
) -> io::Result<Option<DeviceInfo>> {
    match control.info(device) {
        Err(e) if !ours && matches!(e.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => Ok(None),
        Err(e) => Err(io::Error::new(e.kind(), format!("asking for ublk device {device}: {e}"))),
        told => told,
    }
}

/// Who made a device without privileges, user and group; `None` of one that was made with them.
pub(super) fn maker<D: Driver>(control: &mut Control<D>, device: u32) -> io::Result<Option<(u32, u32)>> {
    let info = control.info(device)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    let theirs = info.flags & feature::UNPRIVILEGED_DEV != 0;
    Ok(theirs.then_some((info.owner_uid, info.owner_gid)))
}

/// Which process has told the driver that it serves the device. Of one that died the driver says so until it has noticed.
pub(super) fn served_by<D: Driver>(control: &mut Control<D>, device: u32) -> io::Result<Option<u32>> {
    let info = look(control, device, true)?.filter(|info| info.state == state::LIVE);
    Ok(info.and_then(|info| info.server_pid.try_into().ok()))
}

/// Whether there is a device of this number and it is not the volume's.
pub(super) fn is_anothers<D: Driver>(control: &mut Control<D>, device: u32, tag: Tag) -> io::Result<bool> {
    Ok(look(control, device, true)?.is_some_and(|info| control.left(&info, tag) == Left::Foreign))
}

/// Whether requests may wait in one of `devices` for a daemon of the volume.
pub(super) fn is_awaited<D: Driver>(
    control: &mut Control<D>,
    devices: &[u32],
    tag: Tag,
    ours: bool,
) -> io::Result<bool> {
    for &device in devices {
        if look(control, device, ours)?.is_some_and(|info| control.left(&info, tag) == Left::Recover) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Those of `devices` in which requests may wait for a daemon of the volume.
pub(super) fn awaited<D: Driver>(
    control: &mut Control<D>,
    devices: &[u32],
    tag: Tag,
) -> io::Result<Vec<u32>> {
    let mut all = Vec::new();
    for &device in devices {
        if is_awaited(control, &[device], tag, false)? {
            all.push(device);
        }
    }
    Ok(all)
}

/// What a former daemon left among `devices`, if it can be taken over. Where `only` that one is wanted, it is that or an error:
/// a second device would serve a file that is not what is mounted, and the first would wait for ever.
pub(super) fn take<D: Driver>(
    control: &mut Control<D>,
    devices: &[u32],
    tag: Tag,
    only: Option<u32>,
) -> io::Result<Option<DeviceInfo>> {
    let (mut found, mut stuck) = (None, None);
    for &device in devices {
        let Some(info) = look(control, device, only.is_some())? else { continue };
        match control.left(&info, tag) {
            Left::Recover => found = Some(info),
            // Whoever has it open still is not waited for, unless the kernel has no such command: before Linux 6.9, and for users' own devices.
            Left::Remove if only.is_none() => {
                control.remove_later(device).or_else(|_| control.remove(device))?;
            }
            Left::Remove | Left::Foreign => {}
            Left::Stuck => stuck = Some(info),
        }
    }
    match (found, stuck, only) {
        // Programs wait in it, whatever else there is.
        (Some(found), ..) => Ok(Some(found)),
        (None, Some(DeviceInfo { device, state, .. }), _) => Err(io::Error::other(format!(
            "/dev/ublkb{device} of a former daemon cannot be taken over (state {state}); unmount it, and \
             remove it with `ublk del -n {device}`"
        ))),
        (None, None, Some(device)) => Err(not_awaited(device)),
        (None, None, None) => Ok(None),
    }
}

/// The device that a daemon was to take over is not to be had.
pub(super) fn not_awaited(device: u32) -> io::Error {
    let what = format!(
        "/dev/ublkb{device} waits for no daemon of this volume: it was stopped, or another file or device has the volume's name now"
    );
    io::Error::new(io::ErrorKind::NotFound, what)
}

/// Whether a device that exists, of so many sectors as sysfs says, lies within the volume as it is now. Of one that grew meanwhile, as by `lvextend`,
/// it shows what it did.
///
/// # Errors
/// Where it does not.
pub(super) fn fits(sectors: &str, params: &Params) -> io::Result<()> {
    let (is, now) = (sectors.trim(), params.basic.device_sectors);
    if is.parse().is_ok_and(|is| (1..=now).contains(&is)) {
        return Ok(());
    }
    let what = format!("it has {is} sectors, and the volume {now} now");
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// A line on what the kernel made of what was wanted.
fn difference(wanted: &DeviceInfo, got: &DeviceInfo) -> Option<String> {
    let mut parts = Vec::new();
    if got.queues != wanted.queues {
        parts.push(format!("{} queues instead of {}", got.queues, wanted.queues));
    }
    let missing = wanted.flags & !got.flags;
    if missing != 0 {
        parts.push(format!("without {}", protocol::names(missing)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Whether the largest request of a device that exists fits our buffers, and its queues our tables.
pub(super) fn sane(info: &DeviceInfo) -> bool {
    (1..=uapi::QUEUE_DEPTH_MAX).contains(&info.queue_depth)
        && (1..=4096).contains(&info.queues)
        && (4096..=32 << 20).contains(&info.io_bytes_max)
        && info.io_bytes_max.is_multiple_of(4096)
}

#[cfg(test)]
mod tests;
