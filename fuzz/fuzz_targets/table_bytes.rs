//! Header slots and entry pages: whatever they hold, the table that comes out keeps its invariants.
#![no_main]

use fs2_block::{BlockNo, BlockSize};
use fs2_table::{BitmapChecksums, Geometry, Header, Limits, PAGE_BYTES, Recovery};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let page = |n: usize| {
        let mut bytes = vec![0u8; PAGE_BYTES];
        let from = (n * PAGE_BYTES).min(data.len());
        let part = &data[from..data.len().min(from + PAGE_BYTES)];
        bytes[..part.len()].copy_from_slice(part);
        bytes
    };
    let found = Header::recover(&page(0), &page(1));
    let _ = found.report.to_string();
    let _ = BitmapChecksums::decode(data, 3, 7, 9);
    // Pages with their checksum mended, so that what is behind it is reached.
    let header = found.header.unwrap_or(Header::new(7, BlockSize::B1024, 8));
    let geometry = Geometry::new(64 << 10, 3, BlockSize::B1024);
    let limits = Limits {
        first_block: BlockNo(1),
        blocks: 3072,
        degree: 2,
        forbidden: &|b: BlockNo| b.0 % 97 == 0,
        forbidden_original: &|b: BlockNo| b.0 % 89 == 0,
        trust_verified: true,
    };
    let mut recovery = Recovery::new(geometry, &header, limits);
    for n in 0..recovery.pages() {
        let mut bytes = page(n as usize);
        if data.first().is_some_and(|b| b & 1 == 1) {
            let crc = crc32c(&bytes[8..]);
            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        }
        recovery.feed(n, &bytes);
    }
    let (table, report) = recovery.finish();
    table.check();
    let _ = report.to_string();
});

/// Bit by bit; shares no code with the crate under test.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &b| {
        (0..8).fold(crc ^ u32::from(b), |c, _| if c & 1 == 1 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 })
    })
}
