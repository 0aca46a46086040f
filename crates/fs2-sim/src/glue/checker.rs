//! What `chkfs2` does to the table after `e2fsck -f` ended 0: every page unverified, flush, mark, flush.

use fs2_block::{BlockNo, BlockSize, Extent};
use fs2_ext2::Layout;
use fs2_table::{BitmapChecksums, Geometry, Header, Limits, Mark, PAGE_BYTES, Recovery, Token};

use super::Ground;
use crate::model::content::BLOCK;
use crate::model::device::{Device, Reader};

/// Rewrites the table of a clean, unmounted volume and writes the mark; each step is durable before the
/// next. With `launder` the pages stay as they are: a planted bug.
///
/// # Panics
/// Where the volume is not ext2 or has no table: an error of the model.
pub fn check_table(ground: &Ground, devices: &mut [Device; 2], launder: bool) {
    let layout = Layout::read(&mut Reader(&devices[0])).expect("the volume is ext2");
    let bytes = ground.table_blocks.len() as u64 * BLOCK as u64;
    let geometry = Geometry::new(bytes, layout.group_count(), BlockSize::B1024);
    let home = usize::from(ground.apart);
    let slot = |s| read(ground, &devices[home], geometry.header_slot_offset(s), PAGE_BYTES);
    let found = Header::recover(&slot(0), &slot(1));
    let header = found.header.expect("there is a table");
    if !launder {
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
    }
    let bitmap = layout.read_bitmap(&mut Reader(&devices[0]), 0).expect("the volume has a bitmap");
    let sums = BitmapChecksums(vec![BitmapChecksums::of_bitmap(&bitmap)]);
    let token = Token::new(*layout.superblock().raw(), layout.descriptors_bytes());
    let mark = Mark { token, bitmap_checksums_hash: sums.hash(header.volume_id) };
    let next = 1 - found.slot;
    write(ground, &mut devices[home], geometry.checksums_offset(next), &sums.encode());
    let header = header.next(Some(Box::new(mark)));
    write(ground, &mut devices[home], geometry.header_slot_offset(next), &header.encode());
    // A slot that is damaged would make the mark void.
    let old = Header { mark: None, generation: header.generation - 1, ..header };
    write(ground, &mut devices[home], geometry.header_slot_offset(found.slot), &old.encode());
}

fn read(ground: &Ground, device: &Device, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    for block in &ground.table_blocks[offset as usize / BLOCK..][..len / BLOCK] {
        bytes.extend(device.read(Extent::new(u64::from(*block) * BLOCK as u64, BLOCK as u64)));
    }
    bytes
}

fn write(ground: &Ground, device: &mut Device, offset: u64, bytes: &[u8]) {
    for (block, part) in ground.table_blocks[offset as usize / BLOCK..].iter().zip(bytes.chunks(BLOCK)) {
        device.write_through(u64::from(*block) * BLOCK as u64, part);
    }
}
