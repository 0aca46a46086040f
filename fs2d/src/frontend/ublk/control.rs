//! Devices made, started, taken over and removed: the order of control commands.
//!
//! A device outlives its server where the kernel offers recovery. Which volume it carries is in its
//! `server_flags`, so that no daemon takes over a device whose mount belongs to another volume.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use super::protocol;
use super::uapi::{self, ControlCommand, DeviceInfo, NEW_DEVICE, NO_QUEUE, Params, cmd, feature, state};

/// How long a device whose server died may take until it can be taken over. The kernel notices a queue
/// with every request at the server only by its timeout, 30 s unless we could shorten it.
const QUIESCE_PATIENCE: Duration = Duration::from_secs(90);

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
    pub(super) fn begin_recovery(&mut self, device: u32, nap: Duration) -> io::Result<()> {
        let until = Instant::now() + QUIESCE_PATIENCE;
        loop {
            match self.command(cmd::START_USER_RECOVERY, device, 0, &mut []) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                    std::thread::sleep(nap);
                }
                other => return other.map(drop),
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

/// `info` is what the driver says of the device, `tag` the volume's.
pub(super) fn left(info: &DeviceInfo, tag: u64) -> Left {
    if info.server_flags != tag {
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

/// Whether the process of this number has told the driver that it serves the device. Of one that died the driver says so until it has noticed.
pub(super) fn is_served_by<D: Driver>(control: &mut Control<D>, device: u32, pid: u32) -> io::Result<bool> {
    let info = look(control, device, true)?;
    Ok(info.is_some_and(|info| info.state == state::LIVE && u32::try_from(info.server_pid) == Ok(pid)))
}

/// Whether requests may wait in one of `devices` for a daemon of the volume.
pub(super) fn is_awaited<D: Driver>(
    control: &mut Control<D>,
    devices: &[u32],
    tag: u64,
    ours: bool,
) -> io::Result<bool> {
    for &device in devices {
        if look(control, device, ours)?.is_some_and(|info| left(&info, tag) == Left::Recover) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a former daemon left among `devices`, if it can be taken over. Where `only` that one is wanted, it is that or an error:
/// a second device would serve a file that is not what is mounted, and the first would wait for ever.
pub(super) fn take<D: Driver>(
    control: &mut Control<D>,
    devices: &[u32],
    tag: u64,
    only: Option<u32>,
) -> io::Result<Option<DeviceInfo>> {
    let mut found = None;
    for &device in devices {
        let Some(info) = look(control, device, only.is_some())? else { continue };
        match left(&info, tag) {
            Left::Recover => found = Some(info),
            Left::Remove if only.is_none() => control.remove(device)?,
            Left::Remove | Left::Foreign => {}
            Left::Stuck => {
                return Err(io::Error::other(format!(
                    "/dev/ublkb{device} of a former daemon cannot be taken over (state {}); unmount it, and \
                     remove it with `ublk del -n {device}`",
                    info.state
                )));
            }
        }
    }
    match only {
        Some(device) if found.is_none() => Err(not_awaited(device)),
        _ => Ok(found),
    }
}

/// The device that a daemon was to take over is not to be had.
pub(super) fn not_awaited(device: u32) -> io::Error {
    let what = format!(
        "/dev/ublkb{device} waits for no daemon of this volume: it was stopped, or another file or device has the volume's name now"
    );
    io::Error::new(io::ErrorKind::NotFound, what)
}

/// Whether a device that exists, of so many sectors as sysfs says, is of the size the volume is now.
///
/// # Errors
/// Where it is not.
pub(super) fn fits(sectors: &str, params: &Params) -> io::Result<()> {
    let (is, now) = (sectors.trim(), params.basic.device_sectors);
    if is.parse() == Ok(now) {
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
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Answers from a list, and with what it knows of devices; remembers what was asked.
    #[derive(Default)]
    struct Script {
        answers: VecDeque<Result<i32, i32>>,
        devices: Vec<DeviceInfo>,
        asked: Vec<(u32, ControlCommand)>,
    }

    impl Driver for Script {
        fn run(&mut self, op: u32, command: &mut ControlCommand) -> io::Result<i32> {
            self.asked.push((op, *command));
            match self.answers.pop_front().unwrap_or(Ok(0)) {
                Ok(n) => {
                    let known = self.devices.iter().find(|d| d.device == command.device);
                    if let Some(info) = known.filter(|_| op == cmd::GET_DEV_INFO2) {
                        let addr = command.addr as usize + usize::from(command.dev_path_len);
                        let to = std::ptr::with_exposed_provenance_mut::<u8>(addr);
                        let bytes = zerocopy::IntoBytes::as_bytes(info);
                        // SAFETY: the caller's payload behind the path, of a description's length.
                        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                    }
                    Ok(n)
                }
                Err(errno) => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    fn control(privileged: bool, answers: &[Result<i32, i32>]) -> Control<Script> {
        Control::new(Script { answers: answers.iter().copied().collect(), ..Script::default() }, privileged)
    }

    #[test]
    fn unprivileged_devices_are_named_by_their_path() {
        let mut c = control(false, &[]);
        c.start(7, 4711).unwrap();
        let (op, command) = c.driver.asked[0];
        assert_eq!((op, command.device, command.queue, command.data), (cmd::START_DEV, 7, NO_QUEUE, 4711));
        assert_eq!((command.dev_path_len, command.len), (12, 12), "/dev/ublkc7 and a zero byte");
        assert_ne!(command.addr, 0);
        let mut c = control(true, &[]);
        c.start(7, 4711).unwrap();
        assert_eq!((c.driver.asked[0].1.dev_path_len, c.driver.asked[0].1.addr), (0, 0));
        // A payload follows the path.
        let mut c = control(false, &[]);
        let params = protocol::params(
            &crate::service::ExportInfo {
                size_bytes: 1 << 20,
                block_bytes: 4096,
                rotational: true,
                description: String::new(),
            },
            protocol::Shape { logical_bytes: 512, io_bytes_max: 4096 },
        );
        c.set_params(10, &params).unwrap();
        let command = c.driver.asked[0].1;
        assert_eq!(usize::from(command.len), 13 + size_of::<Params>());
    }

    /// Root could not remove what a user's daemon had left: the kernel wants the path of such a device from everybody.
    #[test]
    fn roots_commands_go_by_the_devices_own_flags() {
        let mut c = control(true, &[]);
        let of = |device, flags| DeviceInfo { device, flags, ..DeviceInfo::default() };
        c.driver.devices = vec![of(7, feature::UNPRIVILEGED_DEV), of(8, feature::USER_RECOVERY)];
        for (device, path_len) in [(7, 12), (8, 0)] {
            c.info(device).unwrap();
            c.remove(device).unwrap();
            let (op, command) = *c.driver.asked.last().unwrap();
            assert_eq!((op, command.device, command.dev_path_len), (cmd::DEL_DEV, device, path_len));
        }
        // Its number went to another's.
        c.driver.devices[0].flags = 0;
        c.info(7).unwrap();
        c.remove(7).unwrap();
        assert_eq!(c.driver.asked.last().unwrap().1.dev_path_len, 0);
    }

    /// Only the driver knows whose a device is: root's have an owner as well, and are not to be given away.
    #[test]
    fn a_devices_maker_is_who_made_it_without_privileges() {
        let mut c = control(true, &[]);
        let of = |device, flags| DeviceInfo {
            device,
            flags,
            owner_uid: 1000,
            owner_gid: 100,
            ..DeviceInfo::default()
        };
        c.driver.devices = vec![of(7, feature::UNPRIVILEGED_DEV), of(8, feature::USER_RECOVERY)];
        assert_eq!(maker(&mut c, 7).unwrap(), Some((1000, 100)));
        assert_eq!(maker(&mut c, 8).unwrap(), None);
        let gone = maker(&mut control(true, &[Err(libc::ENODEV)]), 9).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn a_take_over_waits_until_the_kernel_has_noticed() {
        let busy = Err(libc::EBUSY);
        let mut c = control(true, &[busy, busy, Ok(0)]);
        c.begin_recovery(3, Duration::ZERO).unwrap();
        assert_eq!(c.driver.asked.len(), 3);
        let mut c = control(true, &[busy, Err(libc::EINVAL)]);
        assert_eq!(c.begin_recovery(3, Duration::ZERO).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_device_that_is_gone_is_none() {
        for gone in [libc::ENODEV, libc::ENOENT] {
            assert_eq!(control(true, &[Err(gone)]).info(1).unwrap(), None);
        }
        assert!(control(true, &[Err(libc::EPERM)]).info(1).is_err());
        assert_eq!(control(true, &[Err(libc::EOPNOTSUPP)]).features(), None);
        assert_eq!(control(true, &[]).features(), Some(0));
    }

    #[test]
    fn what_a_former_server_left() {
        let info = |state, flags| DeviceInfo { state, flags, server_flags: 5, ..DeviceInfo::default() };
        let recoverable = feature::USER_RECOVERY;
        assert_eq!(left(&info(state::QUIESCED, recoverable), 5), Left::Recover);
        assert_eq!(left(&info(state::LIVE, recoverable), 5), Left::Recover);
        assert_eq!(left(&info(state::QUIESCED, recoverable), 6), Left::Foreign);
        assert_eq!(left(&info(state::DEAD, recoverable), 5), Left::Remove);
        assert_eq!(left(&info(state::LIVE, 0), 5), Left::Stuck);
        assert_eq!(left(&info(9, recoverable), 5), Left::Stuck);
    }

    /// A volume's image was replaced below its mount: the daemon after the next death made a second device, over the other file, and
    /// the mounted one waited for ever.
    #[test]
    fn a_daemon_that_is_to_take_a_device_over_takes_none_else() {
        let info = |device, tag, state| DeviceInfo {
            device,
            state,
            server_flags: tag,
            flags: feature::USER_RECOVERY,
            ..DeviceInfo::default()
        };
        let with = |devices: &[DeviceInfo]| {
            let mut c = control(true, &[]);
            c.driver.devices = devices.to_vec();
            c
        };
        let waits = info(0, 5, state::QUIESCED);
        assert_eq!(take(&mut with(&[waits]), &[0], 5, Some(0)).unwrap(), Some(waits));
        for unfit in [info(0, 6, state::QUIESCED), info(0, 5, state::DEAD)] {
            let mut c = with(&[unfit]);
            assert!(!is_awaited(&mut c, &[0], 5, true).unwrap());
            let refused = take(&mut c, &[0], 5, Some(0)).unwrap_err();
            assert!(
                refused.to_string().contains("/dev/ublkb0 waits for no daemon of this volume"),
                "{refused}"
            );
            assert!(c.driver.asked.iter().all(|(op, _)| *op == cmd::GET_DEV_INFO2), "it is left as it is");
        }
        // Who was told of none makes one, where none is left.
        let mut c = with(&[info(0, 6, state::QUIESCED), info(1, 5, state::DEAD)]);
        assert_eq!(take(&mut c, &[0, 1], 5, None).unwrap(), None);
        assert_eq!(c.driver.asked.last().unwrap().0, cmd::DEL_DEV);
    }

    #[test]
    fn who_serves_a_device_is_known_by_its_process() {
        let served = |state, server_pid, by| {
            let mut c = control(true, &[]);
            c.driver.devices = vec![DeviceInfo { device: 3, state, server_pid, ..DeviceInfo::default() }];
            is_served_by(&mut c, 3, by).unwrap()
        };
        assert!(served(state::LIVE, 4711, 4711));
        assert!(!served(state::LIVE, 4711, 4712), "a former daemon, whose end was not noticed yet");
        assert!(!served(state::QUIESCED, 4711, 4711) && !served(state::LIVE, -1, u32::MAX));
        assert!(!is_served_by(&mut control(true, &[Err(libc::ENODEV)]), 3, 4711).unwrap(), "there is none");
    }

    /// A driver that did not tell was taken for one with no such device.
    #[test]
    fn not_being_told_of_a_device_is_an_error() {
        let asked = |errno, ours| is_awaited(&mut control(true, &[Err(errno)]), &[3], 5, ours);
        for errno in [libc::EINTR, libc::ENOMEM, libc::EIO] {
            assert!(asked(errno, false).is_err() && asked(errno, true).is_err(), "{errno}");
            assert!(take(&mut control(true, &[Err(errno)]), &[3], 5, None).is_err());
        }
        // Others' devices need not concern us.
        assert!(!asked(libc::EACCES, false).unwrap());
        assert!(asked(libc::EACCES, true).is_err());
        assert!(!asked(libc::ENODEV, true).unwrap());
    }

    #[test]
    fn a_volume_of_another_size_is_not_put_below_a_device() {
        let volume = crate::service::ExportInfo {
            size_bytes: 1 << 20,
            block_bytes: 4096,
            rotational: true,
            description: String::new(),
        };
        let params = protocol::params(&volume, protocol::Shape { logical_bytes: 512, io_bytes_max: 4096 });
        assert!(fits("2048\n", &params).is_ok());
        for other in ["2047\n", "4096\n", "", "x"] {
            assert!(fits(other, &params).is_err(), "{other}");
        }
    }

    #[test]
    fn what_the_kernel_made_of_it() {
        let wanted = protocol::device_info(4, 128, 512 << 10, true, 1);
        let got = DeviceInfo { queues: 2, flags: wanted.flags & !feature::USER_RECOVERY_REISSUE, ..wanted };
        assert_eq!(difference(&wanted, &got).unwrap(), "2 queues instead of 4, without reissue");
        assert_eq!(difference(&wanted, &wanted), None);
        // What is not offered is not asked for, and was not missed either.
        let (made, difference) = control(true, &[]).add(&wanted, Some(!feature::USER_RECOVERY)).unwrap();
        assert_eq!(made.flags, wanted.flags & !feature::USER_RECOVERY);
        assert_eq!(difference.as_deref(), Some("without recovery"));
        assert_eq!(control(true, &[]).add(&wanted, None).unwrap(), (wanted, None));
        assert!(sane(&wanted));
        for insane in [
            DeviceInfo { queue_depth: 0, ..wanted },
            DeviceInfo { queues: 0, ..wanted },
            DeviceInfo { io_bytes_max: 5000, ..wanted },
            DeviceInfo { io_bytes_max: u32::MAX, ..wanted },
        ] {
            assert!(!sane(&insane), "{insane:?}");
        }
    }
}
