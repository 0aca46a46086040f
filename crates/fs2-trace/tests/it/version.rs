//! The container's version 1, byte by byte, and what is said of another.

use fs2_block::BlockSize;
use fs2_trace::{Header, Reader, TraceError};

/// Written by hand from docs/trace-format.md; the checksum by another program.
fn header() -> Vec<u8> {
    let mut bytes = b"FS2TRACE".to_vec();
    for number in [1u16, 64, 32, 0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&(1u64 << 30).to_le_bytes());
    bytes.extend_from_slice(&4096u32.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&1_000_000_000u64.to_le_bytes());
    bytes.extend_from_slice(&[0; 20]);
    bytes.extend_from_slice(&0x7b52_3f37u32.to_le_bytes());
    bytes
}

#[test]
fn the_bytes_are_those_of_version_1() {
    let bytes = header();
    let said = Reader::new(&bytes[..]).unwrap().header();
    assert_eq!((said.volume_bytes, said.start_unix_ns), (1 << 30, 1_000_000_000));
    assert_eq!(said.block_size, BlockSize::new(4096));
    assert_eq!(Header::to_bytes(said).as_slice(), bytes);
}

#[test]
fn another_version_is_told_with_what_to_do() {
    for version in [0u16, 2, 999] {
        let mut bytes = header();
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        // Before the checksum, which a later version may keep elsewhere.
        let Err(e) = Reader::new(&bytes[..]) else { panic!("version {version} was read") };
        assert!(matches!(e, TraceError::Version { found, supported: 1 } if found == version), "{e}");
        let said = e.to_string();
        assert!(said.contains(&format!("version {version}")) && said.contains("convert it"), "{said}");
    }
}
