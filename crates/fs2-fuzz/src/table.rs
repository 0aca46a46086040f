//! Header slots and entry pages: whatever they hold, the table that comes out keeps its invariants.
//!
//! Byte 0: whether checksums are mended (bit 0), pages' magic and numbers too (bit 1), degree (bit 2),
//! what the mark says (bit 3). After it the bytes of pages of 4096, from the first header slot on; what is
//! missing is zero.

use std::collections::BTreeMap;

use fs2_block::{BlockNo, BlockSize};
use fs2_table::{BitmapChecksums, Geometry, Header, Limits, PAGE_BYTES, Recovery};

use crate::crc32c;

/// Most pages, so that what a run costs depends on its bytes.
const PAGES: u64 = 16;

pub(crate) fn run(data: &[u8]) {
    let Some((&head, data)) = data.split_first() else { return };
    let (mended, placed, degree) = (head & 1 != 0, head & 2 != 0, 1 + (head >> 2 & 1));
    let page = |n: usize, entry: bool| {
        let mut bytes = vec![0u8; PAGE_BYTES];
        let part = data.get(n * PAGE_BYTES..).unwrap_or_default();
        let part = &part[..part.len().min(PAGE_BYTES)];
        bytes[..part.len()].copy_from_slice(part);
        if entry && placed && !part.is_empty() {
            bytes[..4].copy_from_slice(b"FS2P");
            bytes[16..24].copy_from_slice(&7u64.to_le_bytes());
            bytes[24..28].copy_from_slice(&(n as u32 - 2).to_le_bytes());
        }
        if mended && !part.is_empty() {
            let crc = crc32c(&bytes[8..]);
            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        }
        bytes
    };
    let (a, b) = (page(0, false), page(1, false));
    let found = Header::recover(&a, &b);
    let _ = found.report.to_string();
    if let Some(header) = &found.header {
        // Its mark may have been refused; all else is as it was written.
        let slot = [&a, &b][found.slot];
        let parsed = Header::parse(slot).expect("the slot in force is good").expect("and not empty");
        assert_eq!(parsed.encode()[..], slot[..], "what parses is what would be written");
        assert!(header.mark.is_none() || header.mark == parsed.mark);
    }
    let _ = BitmapChecksums::decode(data, 3, 7, 9).map_err(|e| e.to_string());
    let header = match found.header {
        Some(header) if !placed => header,
        _ => Header::new(7, BlockSize::B1024, PAGES as u32),
    };
    let first = Geometry::new(0, 3, BlockSize::B1024).first_page_offset();
    let geometry = Geometry::new(first + PAGES * PAGE_BYTES as u64, 3, BlockSize::B1024);
    let limits = Limits {
        first_block: BlockNo(1),
        blocks: 3072,
        degree,
        forbidden: &|b: BlockNo| b.0.is_multiple_of(97),
        forbidden_original: &|b: BlockNo| b.0.is_multiple_of(89),
        trust_verified: head & 8 != 0,
    };
    // As who attaches does, for whom the mark stands, and as who checks.
    let mut recovery = match head & 8 != 0 {
        true => Recovery::marked(geometry, &header, limits),
        false => Recovery::new(geometry, &header, limits),
    };
    for n in 0..recovery.pages() {
        recovery.feed(n, &page(2 + n as usize, true));
    }
    let (mut table, report) = recovery.finish();
    table.check();
    let _ = report.to_string();
    assert_eq!(report.kept_verified + report.kept_unverified + report.dropped(), report.entries);
    assert_eq!(table.len() as u64, report.kept_verified + report.kept_unverified);
    let mut degrees = BTreeMap::<u32, u8>::new();
    for entry in table.iter() {
        let (o, r) = (entry.original.0, entry.replica.0);
        assert!((1..3072).contains(&o) && (1..3072).contains(&r) && o != r, "{entry:?}");
        assert!(r % 97 != 0 && o % 89 != 0, "{entry:?} where none may be");
        *degrees.entry(o).or_default() += 1;
        assert!(!table.has_replica(entry.replica), "{entry:?}: a replica that is an original");
        assert!(head & 8 != 0 || entry.trust == fs2_table::Trust::Unverified);
    }
    assert!(degrees.values().all(|&n| n <= degree));
    // Written again, the same table comes back.
    let key = header.volume_id;
    let mut again = Recovery::new(
        geometry,
        &header,
        Limits {
            first_block: BlockNo(1),
            blocks: 3072,
            degree,
            forbidden: &|_| false,
            forbidden_original: &|_| false,
            trust_verified: true,
        },
    );
    let mut next = None;
    for n in 0..again.pages() {
        let encoded = table.encode_page(n, header.generation, key, true);
        again.feed(n, &encoded.bytes[..]);
        next = Some(n);
    }
    let (copy, report) = again.finish();
    assert!(next.is_none() || report.is_clean(), "{report}");
    let content = |t: &fs2_table::ReplicaTable| -> Vec<_> {
        t.iter().map(|r| (r.original, r.replica, r.hash)).collect()
    };
    assert_eq!(content(&copy), content(&table));
    // And it can be taken apart.
    table.remove_by_original(fs2_block::BlockRange::new(0, 1500));
    table.check();
    table.remove_by_replica(fs2_block::BlockRange::new(0, 3072));
    table.check();
    assert!(table.is_empty());
}
