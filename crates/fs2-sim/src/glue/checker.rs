//! What follows `e2fsck -f`: the product's checker over the model's device, and the weakest that the rules
//! allow.

use std::io;

use fs2_block::{BlockNo, Extent, ReadAt, WriteAt};
use fs2_engine::Plant;
use fs2_engine::offline::{CheckOptions, CheckReport, Devices, OfflineError, check};

use fs2_ext2::Layout;
use fs2_table::{BitmapChecksums, Geometry, Header, Limits, Mark, PAGE_BYTES, Recovery, Token};

use super::Ground;
use crate::model::device::{Device, Reader};

/// A device as a program without a daemon writes it: into the cache, until it flushes.
pub struct Writer<'a>(pub &'a mut Device);

impl ReadAt for Writer<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        Reader(self.0).read_at(offset, buf)
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        Reader(self.0).size_bytes()
    }
}

impl WriteAt for Writer<'_> {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.write(offset, buf);
        Ok(())
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; len as usize])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flushed(self.0.flush_covers());
        Ok(())
    }
}

/// Checks the table of a clean, unmounted volume whose bitmaps are right, and writes the mark. `quick`
/// leaves entries unverified; else both blocks of each are read.
///
/// # Errors
/// As [`check`].
pub fn check_table(
    ground: &Ground,
    devices: &mut [Device; 2],
    quick: bool,
    plants: &[Plant],
) -> Result<CheckReport, OfflineError> {
    let [volume, table] = devices;
    let (mut volume, mut table) = (Writer(volume), Writer(table));
    let table: Option<&mut dyn WriteAt> = if ground.apart { Some(&mut table) } else { None };
    let options = CheckOptions { checked: true, quick, plants, ..CheckOptions::default() };
    check(&mut Devices::new(&mut volume, table), &options, &mut |_| true, &mut |_| {})
}

/// The least that the rules ask of a checker: every page rewritten as unverified, whatever is in it, then the
/// mark, each durable before the next. The engine must not lean on more.
///
/// # Panics
/// Where the volume is not ext2 or has no table: an error of the model.
pub fn check_weakly(ground: &Ground, devices: &mut [Device; 2]) {
    let layout = Layout::read(&mut Reader(&devices[0])).expect("the volume is ext2");
    let bytes = (ground.table_blocks.len() * ground.plan.grain.block()) as u64;
    let geometry = Geometry::new(bytes, layout.group_count(), layout.block_size());
    let home = usize::from(ground.apart);
    let slot = |s| read(ground, &devices[home], geometry.header_slot_offset(s), PAGE_BYTES);
    let found = Header::recover(&slot(0), &slot(1));
    let header = found.header.expect("there is a table");
    // Nothing is dropped here that the next attach would not drop too.
    let limits = Limits {
        first_block: BlockNo(layout.first_data_block()),
        blocks: layout.blocks(),
        degree: 1,
        forbidden: &|_| false,
        forbidden_original: &|_| false,
        trust_verified: false,
    };
    let mut recovery = Recovery::new(geometry, &header, limits);
    for page in 0..geometry.pages() {
        recovery.feed(page, &read(ground, &devices[home], geometry.page_offset(page), PAGE_BYTES));
    }
    let (table, _) = recovery.finish();
    for page in 0..geometry.pages() {
        let encoded = table.encode_page(page, header.generation, header.volume_id, false);
        write(ground, &mut devices[home], geometry.page_offset(page), &encoded.bytes[..]);
    }
    let sums = checksums(&layout, &mut Reader(&devices[0]));
    let token = token(&layout, &mut Reader(&devices[0]));
    let pages_end = Some(table.pages_end());
    let mark = Mark { token, bitmap_checksums_hash: sums.hash(header.volume_id), pages_end };
    let next = 1 - found.slot;
    write(ground, &mut devices[home], geometry.checksums_offset(next), &sums.encode());
    let header = header.next(Some(Box::new(mark)));
    write(ground, &mut devices[home], geometry.header_slot_offset(next), &header.encode());
    // A slot that is damaged would make the mark void.
    let old = Header { mark: None, generation: header.generation - 1, ..header };
    write(ground, &mut devices[home], geometry.header_slot_offset(found.slot), &old.encode());
}

/// What the volume looks like, as a mark has it.
pub(super) fn token(layout: &Layout, dev: &mut dyn ReadAt) -> Token {
    let mut copies = Vec::new();
    layout.for_each_copy(dev, |copy| copies.push(Token::hash_copy(copy))).expect("the copies are read");
    Token::new(*layout.superblock().raw(), layout.descriptors_bytes(), &copies)
}

/// The bitmaps' checksums, as a mark has them.
pub(super) fn checksums(layout: &Layout, dev: &mut dyn ReadAt) -> BitmapChecksums {
    let of = |g| {
        let bitmap = layout.read_bitmap(dev, g).expect("the volume has a bitmap for each group");
        BitmapChecksums::of_bitmap(&bitmap)
    };
    BitmapChecksums((0..layout.group_count()).map(of).collect())
}

fn read(ground: &Ground, device: &Device, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    let size = ground.plan.grain.block();
    for block in &ground.table_blocks[offset as usize / size..][..len / size] {
        bytes.extend(device.read(Extent::new(u64::from(*block) * size as u64, size as u64)));
    }
    bytes
}

fn write(ground: &Ground, device: &mut Device, offset: u64, bytes: &[u8]) {
    let size = ground.plan.grain.block();
    for (block, part) in ground.table_blocks[offset as usize / size..].iter().zip(bytes.chunks(size)) {
        device.write_through(u64::from(*block) * size as u64, part);
    }
}
