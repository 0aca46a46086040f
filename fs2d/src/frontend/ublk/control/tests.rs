use super::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A volume's.
const TAG: Tag = Tag { made: 5, former: 4 };

/// Answers from a list, and with what it knows of devices; remembers what was asked.
#[derive(Default)]
struct Script {
    answers: VecDeque<Result<i32, i32>>,
    /// What a command is answered at first.
    by_op: VecDeque<(u32, i32)>,
    devices: Vec<DeviceInfo>,
    /// What is told of a device before that, once each.
    states: VecDeque<DeviceInfo>,
    features: u64,
    asked: Vec<(u32, ControlCommand)>,
    /// The commands, for whoever watches.
    seen: Rc<RefCell<Vec<u32>>>,
}

impl Driver for Script {
    fn run(&mut self, op: u32, command: &mut ControlCommand) -> io::Result<i32> {
        self.asked.push((op, *command));
        self.seen.borrow_mut().push(op);
        if let Some(n) = self.by_op.iter().position(|(wanted, _)| *wanted == op)
            && let Some((_, errno)) = self.by_op.remove(n)
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        match self.answers.pop_front().unwrap_or(Ok(0)) {
            Ok(n) => {
                let tell = |bytes: &[u8]| {
                    let addr = command.addr as usize + usize::from(command.dev_path_len);
                    let to = std::ptr::with_exposed_provenance_mut::<u8>(addr);
                    // SAFETY: the caller's payload behind the path, of this length.
                    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                };
                let known = || self.devices.iter().find(|d| d.device == command.device).copied();
                match op {
                    cmd::GET_DEV_INFO2 => {
                        let info = self.states.pop_front().or_else(known);
                        info.iter().for_each(|info| tell(zerocopy::IntoBytes::as_bytes(info)));
                    }
                    cmd::GET_FEATURES => tell(&self.features.to_ne_bytes()),
                    _ => {}
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

/// A device without a server, or one that the driver has as served for `served` looks, and a driver that offers `features`; what
/// became of its recovery, the commands in order, and where among them all tags asked.
fn recovery(served: usize, features: u64, answers: &[(u32, i32)]) -> (io::Result<()>, Vec<u32>, Vec<usize>) {
    let info = |state| DeviceInfo { device: 3, state, queues: 2, ..DeviceInfo::default() };
    let mut c = control(true, &[]);
    c.driver.states = std::iter::repeat_n(info(state::LIVE), served).collect();
    c.driver.devices = vec![info(state::QUIESCED)];
    c.driver.features = features;
    c.driver.by_op = answers.iter().copied().collect();
    let (seen, mut asked) = (c.driver.seen.clone(), Vec::new());
    let result = c.begin_recovery(3, Duration::ZERO, |info| {
        assert_eq!((info.state, info.queues), (state::QUIESCED, 2));
        asked.push(seen.borrow().len());
        Ok(0)
    });
    (result, c.driver.asked.iter().map(|(op, _)| *op).collect(), asked)
}

#[test]
fn a_take_over_waits_until_the_kernel_has_noticed() {
    let (result, ops, _) = recovery(2, 0, &[(cmd::START_USER_RECOVERY, libc::EBUSY)]);
    result.unwrap();
    let of = |op| ops.iter().filter(|o| **o == op).count();
    assert_eq!((of(cmd::GET_DEV_INFO2), of(cmd::START_USER_RECOVERY)), (3, 2));
    let (result, ..) = recovery(0, 0, &[(cmd::START_USER_RECOVERY, libc::EINVAL)]);
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
}

/// The device was lost, or the kernel, where a daemon had been killed between the begin of its take-over and its first request for work.
#[test]
fn every_queue_has_had_a_server_before_the_driver_resets_it() {
    let start = cmd::START_USER_RECOVERY;
    let (result, ops, asked) = recovery(1, feature::USER_RECOVERY, &[]);
    result.unwrap();
    assert_eq!(asked, [ops.iter().position(|op| *op == start).unwrap()], "once, just before it");
    // The driver resets by itself, and is not troubled but where it says no.
    let (result, _, asked) = recovery(1, feature::SUPPORT_ZERO_COPY, &[]);
    assert!(result.is_ok() && asked.is_empty());
    let (result, ops, asked) = recovery(0, feature::SUPPORT_ZERO_COPY, &[(start, libc::EINVAL)]);
    result.unwrap();
    assert_eq!(ops.iter().filter(|op| **op == start).count(), 2);
    assert_eq!(asked, [ops.len() - 1], "between the two");
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
    assert_eq!(left(&info(state::QUIESCED, recoverable), TAG, None), Left::Recover);
    assert_eq!(left(&info(state::LIVE, recoverable), TAG, None), Left::Recover);
    let (foreign, former) = (Tag { made: 6, former: 7 }, Tag { made: 6, former: 5 });
    assert_eq!(left(&info(state::QUIESCED, recoverable), foreign, None), Left::Foreign);
    assert_eq!(left(&info(state::QUIESCED, recoverable), former, None), Left::Recover, "a former daemon's");
    assert_eq!(left(&info(state::DEAD, recoverable), TAG, None), Left::Remove);
    assert_eq!(left(&info(state::LIVE, 0), TAG, None), Left::Stuck);
    assert_eq!(left(&info(9, recoverable), TAG, None), Left::Stuck);
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
    assert_eq!(take(&mut with(&[waits]), &[0], TAG, Some(0)).unwrap(), Some(waits));
    for unfit in [info(0, 6, state::QUIESCED), info(0, 5, state::DEAD)] {
        let mut c = with(&[unfit]);
        assert!(!is_awaited(&mut c, &[0], TAG, true).unwrap());
        let refused = take(&mut c, &[0], TAG, Some(0)).unwrap_err();
        assert!(refused.to_string().contains("/dev/ublkb0 waits for no daemon of this volume"), "{refused}");
        assert!(c.driver.asked.iter().all(|(op, _)| *op == cmd::GET_DEV_INFO2), "it is left as it is");
    }
    let mut c = with(&[waits, info(1, 6, state::QUIESCED), info(2, 5, state::DEAD), info(3, 4, state::LIVE)]);
    assert_eq!(awaited(&mut c, &[0, 1, 2, 3], TAG).unwrap(), [0, 3]);
    // A mount that was killed with its supervisor left its record, and another volume's device has its number.
    let others = |c: &mut Control<Script>| [0, 1, 2, 3].map(|n| is_anothers(c, n, TAG).unwrap());
    assert_eq!(others(&mut c), [false, true, false, false]);
    let gone = &mut control(true, &[Err(libc::ENODEV)]);
    assert!(!is_anothers(gone, 4, TAG).unwrap(), "there is none");
    // Who was told of none makes one, where none is left.
    let mut c = with(&[info(0, 6, state::QUIESCED), info(1, 5, state::DEAD)]);
    assert_eq!(take(&mut c, &[0, 1], TAG, None).unwrap(), None);
    assert_eq!(c.driver.asked.last().unwrap().0, cmd::DEL_DEV_ASYNC, "whoever has it open is not waited for");
    // Before Linux 6.9, and for users' own devices, there is no such command.
    let mut c = with(&[info(1, 5, state::DEAD)]);
    c.driver.by_op = [(cmd::DEL_DEV_ASYNC, libc::EINVAL)].into();
    assert_eq!(take(&mut c, &[1], TAG, None).unwrap(), None);
    assert_eq!(c.driver.asked.last().unwrap().0, cmd::DEL_DEV);
}

/// Any user's device with the volume's tag kept root's daemon from serving, or had it wait for whom that user let keep it open.
#[test]
fn no_users_device_is_taken_for_roots_or_anothers() {
    let of = |device, state, flags, owner_uid| DeviceInfo {
        device,
        state,
        flags,
        owner_uid,
        server_flags: 5,
        ..DeviceInfo::default()
    };
    let waits = of(0, state::QUIESCED, feature::USER_RECOVERY, 0);
    let users = feature::UNPRIVILEGED_DEV;
    let theirs = [of(1, state::LIVE, users, 1000), of(2, state::DEAD, users, 1000)];
    let with = |privileged, devices: &[DeviceInfo]| {
        let mut c = control(privileged, &[]);
        c.driver.devices = devices.to_vec();
        c
    };
    let only_looked_at = |c: &Control<Script>| c.driver.asked.iter().all(|(op, _)| *op == cmd::GET_DEV_INFO2);
    let mut c = with(true, &[waits, theirs[0], theirs[1]]);
    assert_eq!(take(&mut c, &[0, 1, 2], TAG, None).unwrap(), Some(waits));
    assert!(only_looked_at(&c), "{:?}", c.driver.asked);
    let mut c = with(true, &theirs);
    assert_eq!(take(&mut c, &[1, 2], TAG, None).unwrap(), None);
    assert!(only_looked_at(&c), "{:?}", c.driver.asked);
    // Users have devices of their own, and no others.
    let me = nix::unistd::geteuid().as_raw();
    let (mine, another) = (of(1, state::DEAD, users, me), of(2, state::DEAD, users, me + 1));
    let mut c = with(false, &[mine, another]);
    assert_eq!(take(&mut c, &[1, 2], TAG, None).unwrap(), None);
    let removed: Vec<u32> =
        c.driver.asked.iter().filter(|(op, _)| *op == cmd::DEL_DEV_ASYNC).map(|(_, c)| c.device).collect();
    assert_eq!(removed, [1]);
}

/// The device in which programs waited was found, and given up for another.
#[test]
fn a_device_that_waits_is_taken_over_beside_one_that_is_stuck() {
    let of =
        |device, state, flags| DeviceInfo { device, state, flags, server_flags: 5, ..DeviceInfo::default() };
    let (waits, stuck) = (of(0, state::QUIESCED, feature::USER_RECOVERY), of(1, state::LIVE, 0));
    for devices in [&[0, 1][..], &[1, 0]] {
        let mut c = control(true, &[]);
        c.driver.devices = vec![waits, stuck];
        assert_eq!(take(&mut c, devices, TAG, None).unwrap(), Some(waits));
        assert!(take(&mut c, &[1], TAG, None).unwrap_err().to_string().contains("/dev/ublkb1"));
    }
}

#[test]
fn who_serves_a_device_is_known_by_its_process() {
    let served = |state, server_pid| {
        let mut c = control(true, &[]);
        c.driver.devices = vec![DeviceInfo { device: 3, state, server_pid, ..DeviceInfo::default() }];
        served_by(&mut c, 3).unwrap()
    };
    assert_eq!(served(state::LIVE, 4711), Some(4711));
    assert_eq!([served(state::QUIESCED, 4711), served(state::LIVE, -1)], [None; 2]);
    assert_eq!(served_by(&mut control(true, &[Err(libc::ENODEV)]), 3).unwrap(), None, "there is none");
}

/// A driver that did not tell was taken for one with no such device.
#[test]
fn not_being_told_of_a_device_is_an_error() {
    let asked = |errno, ours| is_awaited(&mut control(true, &[Err(errno)]), &[3], TAG, ours);
    for errno in [libc::EINTR, libc::ENOMEM, libc::EIO] {
        assert!(asked(errno, false).is_err() && asked(errno, true).is_err(), "{errno}");
        assert!(take(&mut control(true, &[Err(errno)]), &[3], TAG, None).is_err());
    }
    // Others' devices need not concern us.
    assert!(!asked(libc::EACCES, false).unwrap());
    assert!(asked(libc::EACCES, true).is_err());
    assert!(!asked(libc::ENODEV, true).unwrap());
}

/// Below a mount a volume was made larger; the daemon after the next death or upgrade refused it, and in the end the device was given up.
#[test]
fn a_smaller_volume_is_not_put_below_a_device() {
    let volume = crate::service::ExportInfo {
        size_bytes: 1 << 20,
        block_bytes: 4096,
        rotational: true,
        description: String::new(),
    };
    let params = protocol::params(&volume, protocol::Shape { logical_bytes: 512, io_bytes_max: 4096 });
    for within in ["2048\n", "2047\n"] {
        assert!(fits(within, &params).is_ok(), "{within}");
    }
    for other in ["2049\n", "0\n", "", "-1", "x"] {
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
