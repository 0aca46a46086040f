//! What descriptors mean, and what the kernel is told of the volume. No system call here.

use fs2_block::{Extent, Flags, Op};

use super::uapi::{
    self, DeviceInfo, IoDescriptor, PARAM_BASIC, PARAM_DISCARD, ParamBasic, ParamDiscard, Params, attr,
    feature, flag, op,
};
use crate::service::{Errno, ExportInfo};

const SECTOR: u64 = 512;

/// A request, or what the kernel is answered instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) op: Op,
    pub(super) extent: Extent,
    pub(super) flags: Flags,
}

impl Decoded {
    /// Bytes that go through the tag's buffer.
    pub(super) fn payload_bytes(&self) -> usize {
        match self.op {
            // At most the buffer's size: checked in `decode`.
            Op::Read | Op::Write => self.extent.len() as usize,
            _ => 0,
        }
    }
}

/// What a descriptor asks for. The kernel's own word is checked all the same: a buffer is at stake.
pub(super) fn decode(d: &IoDescriptor, io_bytes_max: u32) -> Result<Decoded, Errno> {
    let op = match (d.op_flags & 0xff) as u8 {
        op::READ => Op::Read,
        op::WRITE => Op::Write,
        op::FLUSH => Op::Flush,
        op::DISCARD => Op::Discard,
        op::WRITE_ZEROES => Op::WriteZeroes,
        _ => return Err(Errno(libc::EOPNOTSUPP)),
    };
    if op == Op::Flush {
        return Ok(Decoded { op, extent: Extent::default(), flags: Flags::default() });
    }
    let invalid = Errno(libc::EINVAL);
    let len = u64::from(d.sectors) * SECTOR;
    let offset = d.start_sector.checked_mul(SECTOR).ok_or(invalid)?;
    let extent = Extent::checked(offset, len).filter(|e| !e.is_empty()).ok_or(invalid)?;
    if matches!(op, Op::Read | Op::Write) && len > u64::from(io_bytes_max) {
        return Err(invalid);
    }
    let changes = matches!(op, Op::Write | Op::WriteZeroes);
    let flags = Flags {
        fua: changes && d.op_flags & flag::FUA != 0,
        no_hole: op == Op::WriteZeroes && d.op_flags & flag::NOUNMAP != 0,
    };
    Ok(Decoded { op, extent, flags })
}

/// What the kernel is told of a request's end: bytes of a read or write, 0 of others, or an errno below 0.
pub(super) fn encode(payload_bytes: usize, result: Result<(), Errno>) -> i32 {
    match result {
        Ok(()) => i32::try_from(payload_bytes).unwrap_or(-libc::EIO),
        // The kernel knows no others; a positive one would be taken for bytes.
        Err(Errno(n @ 1..4096)) => -n,
        Err(_) => -libc::EIO,
    }
}

/// How a volume is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) logical_bytes: u32,
    pub(super) io_bytes_max: u32,
}

/// The largest discard and write-zeroes, 1 GiB: what is longer the kernel splits.
const RANGE_SECTORS_MAX: u32 = 1 << 21;

/// The kernel's description of the volume.
pub(super) fn params(info: &ExportInfo, shape: Shape) -> Params {
    let logical = shape.logical_bytes.clamp(512, 4096).next_power_of_two();
    let physical = info.block_bytes.clamp(logical, 4096).next_power_of_two();
    let mut attrs = attr::VOLATILE_CACHE | attr::FUA;
    if info.rotational {
        attrs |= attr::ROTATIONAL;
    }
    Params {
        len: size_of::<Params>() as u32,
        types: PARAM_BASIC | PARAM_DISCARD,
        basic: ParamBasic {
            attrs,
            logical_shift: logical.trailing_zeros() as u8,
            physical_shift: physical.trailing_zeros() as u8,
            io_opt_shift: physical.trailing_zeros() as u8,
            io_min_shift: physical.trailing_zeros() as u8,
            sectors_max: shape.io_bytes_max / SECTOR as u32,
            chunk_sectors: 0,
            // What is beyond the last whole logical block nobody can address.
            device_sectors: info.size_bytes / u64::from(logical) * (u64::from(logical) / SECTOR),
            virt_boundary_mask: 0,
        },
        discard: ParamDiscard {
            alignment: 0,
            granularity: physical,
            discard_sectors_max: RANGE_SECTORS_MAX,
            write_zeroes_sectors_max: RANGE_SECTORS_MAX,
            segments_max: 1,
            reserved: 0,
        },
        pad: 0,
    }
}

/// What a new device is asked to be. `tag` is the volume's, by which a restarted daemon knows the device.
pub(super) fn device_info(
    queues: u16,
    queue_depth: u16,
    io_bytes_max: u32,
    privileged: bool,
    tag: u64,
) -> DeviceInfo {
    let wanted = if privileged {
        feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE
    } else {
        feature::UNPRIVILEGED_DEV
    };
    DeviceInfo {
        queues,
        queue_depth,
        io_bytes_max,
        device: uapi::NEW_DEVICE,
        flags: wanted | feature::CMD_IOCTL_ENCODE,
        server_flags: tag,
        ..DeviceInfo::default()
    }
}

/// Feature bits in words.
pub(super) fn names(flags: u64) -> String {
    let mut out: Vec<String> =
        feature::NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, n)| (*n).into()).collect();
    let known: u64 = feature::NAMES.iter().map(|(bit, _)| bit).sum();
    out.extend((0..64).filter(|n| (flags & !known) >> n & 1 == 1).map(|n| format!("bit {n}")));
    if out.is_empty() { "none".into() } else { out.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn descriptor(op_flags: u32, start_sector: u64, sectors: u32) -> IoDescriptor {
        IoDescriptor { op_flags, sectors, start_sector, addr: 0 }
    }

    #[test]
    fn requests() {
        let max = 512 << 10;
        let of = |d| decode(&d, max).map(|r| (r.op, r.extent, r.flags.fua, r.flags.no_hole));
        assert_eq!(of(descriptor(0, 8, 2)), Ok((Op::Read, Extent::new(4096, 1024), false, false)));
        assert_eq!(
            of(descriptor(1 | flag::FUA, 0, 1024)),
            Ok((Op::Write, Extent::new(0, max.into()), true, false))
        );
        assert_eq!(of(descriptor(2, u64::MAX, u32::MAX)), Ok((Op::Flush, Extent::default(), false, false)));
        // Of any length: the kernel's limits, not a buffer, bound it.
        assert_eq!(of(descriptor(3, 1, 1 << 21)), Ok((Op::Discard, Extent::new(512, 1 << 30), false, false)));
        assert_eq!(
            of(descriptor(5 | flag::NOUNMAP | flag::FUA, 0, 8)),
            Ok((Op::WriteZeroes, Extent::new(0, 4096), true, true))
        );
        // A read knows neither.
        assert_eq!(
            of(descriptor(flag::FUA | flag::NOUNMAP, 0, 1)),
            Ok((Op::Read, Extent::new(0, 512), false, false))
        );
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        let of = |d| decode(&d, 4096).unwrap_err().0;
        assert_eq!(of(descriptor(0, 0, 0)), libc::EINVAL, "nothing to read");
        assert_eq!(of(descriptor(0, 0, 9)), libc::EINVAL, "more than the buffer holds");
        assert_eq!(of(descriptor(1, u64::MAX / 512 + 1, 1)), libc::EINVAL, "past what can be addressed");
        for op in [4, 10, 18, 255] {
            assert_eq!(of(descriptor(op, 0, 8)), libc::EOPNOTSUPP, "{op}");
        }
    }

    #[test]
    fn results() {
        assert_eq!(encode(4096, Ok(())), 4096);
        assert_eq!(encode(0, Ok(())), 0);
        assert_eq!(encode(4096, Err(Errno(libc::ENOSPC))), -libc::ENOSPC);
        for strange in [0, -1, i32::MIN, i32::MAX, 4096] {
            assert_eq!(encode(4096, Err(Errno(strange))), -libc::EIO, "{strange}");
        }
    }

    proptest! {
        /// Whatever stands in a descriptor: no request reaches beyond the buffer or wraps around.
        #[test]
        fn odd_descriptors(op_flags: u32, sectors: u32, start_sector: u64, addr: u64, max in 1u32..=4096) {
            let max = max * 512;
            let d = IoDescriptor { op_flags, sectors, start_sector, addr };
            if let Ok(r) = decode(&d, max) {
                prop_assert!(r.payload_bytes() <= max as usize);
                prop_assert!(r.extent.offset().checked_add(r.extent.len()).is_some());
                prop_assert!((r.op == Op::Flush) == r.extent.is_empty());
                prop_assert!(!r.flags.no_hole || r.op == Op::WriteZeroes);
                let changes = matches!(r.op, Op::Write | Op::WriteZeroes);
                prop_assert!(!r.flags.fua || changes);
                if r.op != Op::Flush {
                    prop_assert_eq!(r.extent.offset(), start_sector * 512);
                    prop_assert_eq!(r.extent.len(), u64::from(sectors) * 512);
                }
            }
        }

        /// What the kernel checks in ublk_validate_params, for every volume.
        #[test]
        fn params_are_such_as_the_kernel_takes(size in 0u64..1 << 50, block in prop_oneof![Just(512u32), Just(1024), Just(2048), Just(4096), Just(65536)],
                                               logical in prop_oneof![Just(0u32), Just(512), Just(4096), Just(1 << 20)], rotational: bool) {
            let info = ExportInfo { size_bytes: size, block_bytes: block, rotational, description: String::new() };
            let p = params(&info, Shape { logical_bytes: logical, io_bytes_max: 512 << 10 });
            prop_assert!((9..=12).contains(&p.basic.logical_shift));
            prop_assert!((p.basic.logical_shift..=12).contains(&p.basic.physical_shift));
            prop_assert_eq!(p.basic.sectors_max, 1024);
            prop_assert_eq!(p.discard.segments_max, 1);
            prop_assert!(p.discard.granularity >= 512);
            prop_assert!(p.basic.device_sectors * 512 <= size);
            prop_assert!(p.basic.device_sectors * 512 + 4096 > size);
            prop_assert_eq!(p.basic.device_sectors * 512 % (1 << p.basic.logical_shift), 0);
            prop_assert_eq!(p.basic.attrs & attr::ROTATIONAL != 0, rotational);
            prop_assert_eq!(p.len as usize, size_of::<Params>());
        }
    }

    #[test]
    fn features_in_words() {
        assert_eq!(names(0), "none");
        assert_eq!(names(feature::USER_RECOVERY | 1 << 60), "recovery, bit 60");
        let privileged = device_info(1, 1, 4096, true, 7);
        assert_eq!(names(privileged.flags), "recovery, reissue, ioctl encoding");
        assert_eq!(privileged.server_flags, 7);
        assert_eq!(names(device_info(1, 1, 4096, false, 0).flags), "unprivileged, ioctl encoding");
    }
}
