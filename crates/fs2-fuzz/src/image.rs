//! A small volume and what is changed of it, without copying it for every run.

use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

use fs2_block::{BlockNo, BlockRange, Permille, ReadAt, WriteAt};
use fs2_engine::offline::{CreateOptions, Devices, ReplicateOptions, create, replicate};
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::{Plan, Shape};

/// Bytes of a block, and of the pieces in which changes are kept.
pub(crate) const BLOCK: usize = 1024;
/// Bytes of the volume.
pub(crate) const BYTES: u64 = 3 << 20;
/// Blocks of the volume's one file, with what fills them; between the first and the last MiB.
pub(crate) const DATA: [(u32, u16); 6] =
    [(1100, 0x11), (1101, 0x12), (1102, 0x13), (1103, 0x14), (1500, 0x15), (1700, 0x16)];

/// Which volume to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// ext2 without a table.
    Plain,
    /// With an empty table on inode 5, marked.
    Table,
    /// With a table in pieces, on inode 5, marked.
    Pieces,
    /// With a table that names replicas, marked.
    Replicas,
}

impl Base {
    /// From a foreign byte.
    pub(crate) fn of(byte: u8) -> Base {
        [Base::Replicas, Base::Table, Base::Pieces, Base::Plain][usize::from(byte % 4)]
    }

    /// Its bytes; made once.
    pub(crate) fn bytes(self) -> &'static [u8] {
        static MADE: [OnceLock<Vec<u8>>; 4] = [const { OnceLock::new() }; 4];
        MADE[self as usize].get_or_init(|| self.make())
    }

    fn make(self) -> Vec<u8> {
        let shape = if self == Base::Pieces { Shape::Fragmented } else { Shape::Plain };
        let mut image = Plan { shape, grain: Grain::SMALL }.make(&DATA, &[1200, 1201, 1202]);
        assert_eq!(image.len() as u64, BYTES);
        if self == Base::Plain {
            return image;
        }
        let space = Permille::new(50).expect("below 1000");
        let options = CreateOptions { space, volume_id: 7, now_secs: 1, checked: true };
        create(&mut Devices::new(&mut image, None), &options, &mut |_| {}).expect("it can be converted");
        if self == Base::Replicas {
            let blocks = [BlockRange::new(1100, 1104), BlockRange::one(BlockNo(1500))];
            let options = ReplicateOptions { blocks: &blocks, near: BlockNo(1300), written_since: false };
            replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).expect("it can be copied");
        }
        image
    }
}

/// A device: a base, and the blocks that were changed.
#[derive(Clone, Debug)]
pub(crate) struct Patched {
    base: &'static [u8],
    changed: BTreeMap<u32, Box<[u8; BLOCK]>>,
}

impl Patched {
    pub(crate) fn new(base: Base) -> Patched {
        Patched { base: base.bytes(), changed: BTreeMap::new() }
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        let end = offset.checked_add(len as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        if end > BYTES { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Pieces of `len` bytes from `offset`: block, where in it, how many.
    fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u32, usize, usize)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let from = offset + at as u64;
            let inside = (from % BLOCK as u64) as usize;
            let n = (BLOCK - inside).min(len - at);
            at += n;
            (n > 0).then_some(((from / BLOCK as u64) as u32, inside, n))
        })
    }
}

impl ReadAt for Patched {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let mut at = 0;
        for (block, inside, n) in Patched::pieces(offset, buf.len()) {
            let bytes = match self.changed.get(&block) {
                Some(bytes) => &bytes[..],
                None => &self.base[block as usize * BLOCK..][..BLOCK],
            };
            buf[at..at + n].copy_from_slice(&bytes[inside..inside + n]);
            at += n;
        }
        Ok(())
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        Ok(BYTES)
    }
}

impl WriteAt for Patched {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let mut at = 0;
        for (block, inside, n) in Patched::pieces(offset, buf.len()) {
            let base = &self.base[block as usize * BLOCK..][..BLOCK];
            let bytes = self
                .changed
                .entry(block)
                .or_insert_with(|| Box::new(base.try_into().expect("a block's bytes")));
            bytes[inside..inside + n].copy_from_slice(&buf[at..at + n]);
            at += n;
        }
        Ok(())
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        self.check(offset, len)?;
        let mut at = offset;
        for (_, _, n) in Patched::pieces(offset, len) {
            self.write_at(at, &[0; BLOCK][..n])?;
            at += n as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs2_engine::Volume;

    #[test]
    fn every_base_is_what_it_says() {
        for (base, replicas) in [(Base::Table, 0), (Base::Pieces, 0), (Base::Replicas, 5)] {
            let mut device = Patched::new(base);
            let attached = Volume::attach(&mut device, None, Default::default(), &Default::default());
            let (volume, report) = attached.expect("it attaches");
            assert_eq!(*volume.standing(), fs2_engine::Standing::Active, "{base:?}");
            assert_eq!(report.verified, replicas, "{base:?}");
        }
    }

    #[test]
    fn a_patched_device_is_a_device() {
        let (mut ours, mut plain) = (Patched::new(Base::Plain), Base::Plain.bytes().to_vec());
        for (offset, len) in [(0, 10), (1020, 8), (5000, 3000), (BYTES - 5, 5), (BYTES - 5, 6), (u64::MAX, 2)]
        {
            let buf = vec![7; len];
            assert_eq!(ours.write_at(offset, &buf).is_ok(), plain.write_at(offset, &buf).is_ok());
            let (mut a, mut b) = (vec![0; len + 100], vec![0; len + 100]);
            let from = offset.saturating_sub(50);
            assert_eq!(ours.read_at(from, &mut a).is_ok(), plain.read_at(from, &mut b).is_ok());
            assert_eq!(a, b);
        }
        let mut all = vec![0; plain.len()];
        ours.read_at(0, &mut all).unwrap();
        assert!(all == plain);
    }
}
