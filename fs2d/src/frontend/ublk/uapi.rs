//! The kernel's numbers and structures, as in include/uapi/linux/ublk_cmd.h.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Where control commands go.
pub(super) const CONTROL: &str = "/dev/ublk-control";

/// A number that no device has: the kernel chooses one.
pub(super) const NEW_DEVICE: u32 = u32::MAX;

/// For commands that are not about one queue.
pub(super) const NO_QUEUE: u16 = u16::MAX;

const fn ioctl(direction: u32, bytes: usize, number: u32) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

/// `_IOR`: the kernel writes.
const fn ior(number: u32) -> u32 {
    ioctl(2, size_of::<ControlCommand>(), number)
}

/// `_IOWR`: both ways.
const fn iowr(number: u32) -> u32 {
    ioctl(3, size_of::<ControlCommand>(), number)
}

/// Control commands, `UBLK_U_CMD_*`.
pub(super) mod cmd {
    use super::{ior, iowr};
    pub(in super::super) const ADD_DEV: u32 = iowr(0x04);
    pub(in super::super) const DEL_DEV: u32 = iowr(0x05);
    pub(in super::super) const START_DEV: u32 = iowr(0x06);
    pub(in super::super) const STOP_DEV: u32 = iowr(0x07);
    pub(in super::super) const SET_PARAMS: u32 = iowr(0x08);
    pub(in super::super) const START_USER_RECOVERY: u32 = iowr(0x10);
    pub(in super::super) const END_USER_RECOVERY: u32 = iowr(0x11);
    pub(in super::super) const GET_DEV_INFO2: u32 = ior(0x12);
    pub(in super::super) const GET_FEATURES: u32 = ior(0x13);
    pub(in super::super) const DEL_DEV_ASYNC: u32 = ior(0x14);
}

/// Commands on a queue, `UBLK_U_IO_*`.
pub(super) mod io {
    use super::{IoCommand, ioctl};
    pub(in super::super) const FETCH_REQ: u32 = ioctl(3, size_of::<IoCommand>(), 0x20);
    pub(in super::super) const COMMIT_AND_FETCH_REQ: u32 = ioctl(3, size_of::<IoCommand>(), 0x21);
}

/// What a driver offers, `UBLK_F_*`.
pub(super) mod feature {
    pub(in super::super) const SUPPORT_ZERO_COPY: u64 = 1 << 0;
    pub(in super::super) const USER_RECOVERY: u64 = 1 << 3;
    pub(in super::super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    pub(in super::super) const UNPRIVILEGED_DEV: u64 = 1 << 5;
    pub(in super::super) const CMD_IOCTL_ENCODE: u64 = 1 << 6;

    /// In the order of their bits; what is not here is shown by number.
    pub(in super::super) const NAMES: [(u64, &str); 16] = [
        (SUPPORT_ZERO_COPY, "zero copy"),
        (1 << 1, "completion in task"),
        (1 << 2, "get data"),
        (USER_RECOVERY, "recovery"),
        (USER_RECOVERY_REISSUE, "reissue"),
        (UNPRIVILEGED_DEV, "unprivileged"),
        (CMD_IOCTL_ENCODE, "ioctl encoding"),
        (1 << 7, "user copy"),
        (1 << 8, "zoned"),
        (1 << 9, "recovery with errors"),
        (1 << 10, "new size"),
        (1 << 11, "automatic buffers"),
        (1 << 12, "quiesce"),
        (1 << 13, "daemon per request"),
        (1 << 14, "buffers off the daemon"),
        (1 << 15, "batches"),
    ];
}

/// `UBLK_S_DEV_*`: a device's state.
pub(super) mod state {
    pub(in super::super) const DEAD: u16 = 0;
    pub(in super::super) const LIVE: u16 = 1;
    pub(in super::super) const QUIESCED: u16 = 2;
    pub(in super::super) const FAIL_IO: u16 = 3;
}

/// `UBLK_ATTR_*`.
pub(super) mod attr {
    pub(in super::super) const ROTATIONAL: u32 = 1 << 1;
    pub(in super::super) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(in super::super) const FUA: u32 = 1 << 3;
}

/// `UBLK_PARAM_TYPE_*`.
pub(super) const PARAM_BASIC: u32 = 1;
pub(super) const PARAM_DISCARD: u32 = 2;

/// `UBLK_IO_OP_*`.
pub(super) mod op {
    pub(in super::super) const READ: u8 = 0;
    pub(in super::super) const WRITE: u8 = 1;
    pub(in super::super) const FLUSH: u8 = 2;
    pub(in super::super) const DISCARD: u8 = 3;
    pub(in super::super) const WRITE_ZEROES: u8 = 5;
}

/// `UBLK_IO_F_*`, as bits of a descriptor's first word.
pub(super) mod flag {
    pub(in super::super) const FUA: u32 = 1 << 13;
    pub(in super::super) const NOUNMAP: u32 = 1 << 15;
}

/// `UBLK_IO_RES_ABORT`: the command comes back without a request, and is not to be given again.
pub(super) const RESULT_ABORT: i32 = -libc::ENODEV;

/// `UBLK_MAX_QUEUE_DEPTH`.
pub(super) const QUEUE_DEPTH_MAX: u16 = 4096;

/// `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    pub(super) queue: u16,
    pub(super) len: u16,
    pub(super) addr: u64,
    pub(super) data: u64,
    pub(super) dev_path_len: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) queue_depth: u16,
    pub(super) state: u16,
    pub(super) pad0: u16,
    pub(super) io_bytes_max: u32,
    pub(super) device: u32,
    pub(super) server_pid: i32,
    pub(super) pad1: u32,
    pub(super) flags: u64,
    /// The server's own; the kernel only keeps it.
    pub(super) server_flags: u64,
    pub(super) owner_uid: u32,
    pub(super) owner_gid: u32,
    pub(super) reserved1: u64,
    pub(super) reserved2: u64,
}

/// `struct ublk_params` with the first two of its parts; the kernel goes by `len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Params {
    pub(super) len: u32,
    pub(super) types: u32,
    pub(super) basic: ParamBasic,
    pub(super) discard: ParamDiscard,
    /// The C structure's alignment is that of a u64.
    pub(super) pad: u32,
}

/// `struct ublk_param_basic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ParamBasic {
    pub(super) attrs: u32,
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) io_opt_shift: u8,
    pub(super) io_min_shift: u8,
    pub(super) sectors_max: u32,
    pub(super) chunk_sectors: u32,
    pub(super) device_sectors: u64,
    pub(super) virt_boundary_mask: u64,
}

/// `struct ublk_param_discard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ParamDiscard {
    pub(super) alignment: u32,
    pub(super) granularity: u32,
    pub(super) discard_sectors_max: u32,
    pub(super) write_zeroes_sectors_max: u32,
    pub(super) segments_max: u16,
    pub(super) reserved: u16,
}

/// `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct IoCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    pub(super) addr: u64,
}

/// `struct ublksrv_io_desc`: a request, in memory that the kernel writes and we read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct IoDescriptor {
    pub(super) op_flags: u32,
    pub(super) sectors: u32,
    pub(super) start_sector: u64,
    pub(super) addr: u64,
}

const _: () = assert!(size_of::<ControlCommand>() == 32);
const _: () = assert!(size_of::<DeviceInfo>() == 64);
const _: () = assert!(size_of::<ParamBasic>() == 32);
const _: () = assert!(size_of::<ParamDiscard>() == 20);
const _: () = assert!(size_of::<Params>() == 64 && align_of::<Params>() == 8);
const _: () = assert!(size_of::<IoCommand>() == 16);
const _: () = assert!(size_of::<IoDescriptor>() == 24);
// As the C compiler has them (Linux 6.12).
const _: () = assert!(cmd::ADD_DEV == 0xc020_7504 && cmd::GET_FEATURES == 0x8020_7513);
const _: () = assert!(io::FETCH_REQ == 0xc010_7520 && io::COMMIT_AND_FETCH_REQ == 0xc010_7521);
