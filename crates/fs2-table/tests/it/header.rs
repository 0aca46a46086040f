//! Header slots: every torn write, every damage; a mark is never revived.

use fs2_block::BlockSize;
use fs2_table::{
    BitmapChecksums, ChecksumsDamage, Damage, Header, Mark, MarkRefused, PAGE_BYTES, Token, TokenDiffers,
};
use proptest::prelude::*;

const SECTOR: usize = 512;

fn mark(seed: u8) -> Option<Box<Mark>> {
    let superblock = std::array::from_fn(|i| seed.wrapping_mul(31).wrapping_add(i as u8));
    Some(Box::new(Mark {
        token: Token::new(superblock, &[seed; 64], &[seed.into(); 2]),
        bitmap_checksums_hash: seed.into(),
        pages_end: (!seed.is_multiple_of(3)).then_some(seed.into()),
    }))
}

/// Headers of a table's life: made, marked, erased, marked again...
fn history(n: u64) -> Vec<Header> {
    let mut all = vec![Header::new(42, BlockSize::B4096, 100)];
    for i in 1..n {
        let next = all[all.len() - 1].next(if i % 2 == 1 { mark(i as u8) } else { None });
        all.push(next);
    }
    all
}

fn torn(old: &[u8], new: &[u8], sectors: u8) -> Vec<u8> {
    let mut bytes = old.to_vec();
    for i in (0..8).filter(|i| sectors >> i & 1 == 1) {
        bytes[i * SECTOR..][..SECTOR].copy_from_slice(&new[i * SECTOR..][..SECTOR]);
    }
    bytes
}

#[test]
fn a_slot_says_what_was_written() {
    for header in history(6) {
        let bytes = header.encode();
        assert_eq!(Header::parse(&bytes), Ok(Some(header)));
    }
    assert_eq!(Header::parse(&[0; PAGE_BYTES]), Ok(None));
    assert_eq!(Header::parse(&[0; 100]), Err(Damage::NotAHeader));
    assert_eq!(Header::parse(&[7; PAGE_BYTES]), Err(Damage::NotAHeader));
}

#[test]
fn every_bit_counts() {
    let bytes = history(2)[1].encode();
    for bit in 0..PAGE_BYTES * 8 {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::parse(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn tokens_and_checksums_tell_volumes_apart() {
    let token = |descriptors: &[u8]| Token::new([3; 1024], descriptors, &[]);
    assert_eq!(token(&[1; 64]), token(&[1; 64]));
    assert_ne!(token(&[1; 64]), token(&[2; 64]));
    let hashes: std::collections::BTreeSet<u64> = (0..100).map(|n| token(&[n; 32]).groups_hash).collect();
    assert_eq!(hashes.len(), 100);
    for bitmap in [[0; 1024], [0xff; 1024], [5; 1024]] {
        assert_eq!(BitmapChecksums::of_bitmap(&bitmap), crc32c::crc32c(&bitmap));
    }
    assert!(format!("{:?}", token(&[1; 64])).contains("groups_hash"));
}

#[test]
fn a_token_says_in_what_a_volume_differs() {
    let copies = [Token::hash_copy(&[5; 1024]), Token::hash_copy(&[6; 1024])];
    let token = Token::new([3; 1024], &[1; 64], &copies);
    let differs = |copies: &[u64]| token.differs(&[3; 1024], &[1; 64], copies);
    assert_eq!(differs(&copies), None);
    assert_eq!(token.differs(&[4; 1024], &[1; 64], &copies), Some(TokenDiffers::Superblock));
    assert_eq!(token.differs(&[3; 1024], &[2; 64], &copies), Some(TokenDiffers::Groups));
    let [a, b] = copies;
    for other in [&[b, a][..], &[a], &[b], &[a, a], &[a, b, b], &[a, Token::hash_copy(&[7; 1024])]] {
        assert_eq!(differs(other), Some(TokenDiffers::Groups), "{other:x?}");
    }
    // As it was written before copies were compared, which a volume without copies cannot tell.
    let earlier = Token::new([3; 1024], &[1; 64], &[]);
    assert_eq!(earlier.groups_hash, xxhash_rust::xxh3::xxh3_64(&[1; 64]));
    assert_eq!(earlier.differs(&[3; 1024], &[1; 64], &copies), Some(TokenDiffers::CopiesLeftOut));
    assert_eq!(earlier.differs(&[3; 1024], &[2; 64], &copies), Some(TokenDiffers::Groups));
    assert_eq!(earlier.differs(&[3; 1024], &[1; 64], &[]), None);
    // Every byte of a copy counts.
    for at in 0..1024 {
        let mut copy = [5; 1024];
        copy[at] ^= 1;
        assert_eq!(differs(&[Token::hash_copy(&copy), b]), Some(TokenDiffers::Groups), "byte {at}");
    }
}

#[test]
fn a_report_says_which_slot() {
    let headers = history(3);
    let slots = [headers[2].encode(), headers[1].encode()];
    let report = |a: &[u8], b: &[u8]| Header::recover(a, b).report.to_string();
    let good = report(&slots[0], &slots[1]);
    assert!(good.starts_with("header slot 0: generation 3, header slot 1: generation 2"), "{good}");
    let mut damaged = slots[0];
    damaged[20] ^= 1;
    let bad = report(&damaged, &slots[1]);
    assert!(!good.is_empty() && !bad.is_empty() && good != bad, "{good} {bad}");
    assert_ne!(bad, report(&slots[1], &damaged), "the other slot");
    assert_ne!(report(&[0; PAGE_BYTES], &slots[1]), bad, "missing is not damaged");
}

#[test]
fn a_crash_at_any_write() {
    // Write n goes to slot n % 2. Any subset of its sectors arrives.
    let headers = history(7);
    let mut slots = [vec![0; PAGE_BYTES], vec![0; PAGE_BYTES]];
    let mut torn_seen = 0;
    for (n, header) in headers.iter().enumerate() {
        let new = header.encode();
        for sectors in 0..=255u8 {
            let mut crashed = slots.clone();
            crashed[n % 2] = torn(&slots[n % 2], &new, sectors);
            let found = Header::recover(&crashed[0], &crashed[1]);
            if crashed[n % 2] == new {
                assert_eq!((found.header.as_ref(), found.slot), (Some(header), n % 2));
            } else if n == 0 {
                assert_eq!(found.header, None);
            } else {
                let before = &headers[n - 1];
                let old_whole = crashed[n % 2] == slots[n % 2];
                let header = found.header.unwrap();
                assert_eq!((header.generation, found.slot), (before.generation, 1 - n % 2));
                if old_whole {
                    assert_eq!(header.mark, before.mark);
                } else {
                    torn_seen += 1;
                    assert_eq!(header.mark, None);
                    assert_eq!(found.report.mark_refused.is_some(), before.mark.is_some());
                }
            }
        }
        slots[n % 2] = new.to_vec();
    }
    assert!(torn_seen > 500, "{torn_seen}");
}

#[test]
fn the_first_writes_torn_byte_by_byte() {
    let headers = history(3);
    for n in 0..=PAGE_BYTES {
        let mut first = vec![0; PAGE_BYTES];
        first[..n].copy_from_slice(&headers[0].encode()[..n]);
        let found = Header::recover(&first, &[0; PAGE_BYTES]);
        // From byte 37 on all of the first header is zero.
        assert_eq!(found.header.is_some(), n >= 37, "{n} bytes");
        let mut second = vec![0; PAGE_BYTES];
        second[..n].copy_from_slice(&headers[1].encode()[..n]);
        let found = Header::recover(&headers[0].encode(), &second);
        let generation = found.header.unwrap().generation;
        assert_eq!(generation, if n >= 1088 { 2 } else { 1 }, "{n} bytes");
    }
}

#[test]
fn a_mark_is_not_revived_by_damage_to_what_erased_it() {
    let headers = history(3);
    let (marked, erased) = (headers[1].encode(), headers[2].encode());
    assert_eq!(Header::recover(&erased, &marked).header, Some(headers[2].clone()));
    for at in 0..PAGE_BYTES {
        let mut damaged = erased;
        damaged[at] ^= 0x40;
        let found = Header::recover(&damaged, &marked);
        assert_eq!(found.slot, 1);
        assert_eq!(found.header.unwrap().mark, None, "byte {at}");
        assert!(matches!(found.report.mark_refused, Some(MarkRefused::OtherDamaged(_))));
    }
    let found = Header::recover(&[0; PAGE_BYTES], &marked);
    assert_eq!(found.header.unwrap().mark, None);
    assert_eq!(found.report.mark_refused, Some(MarkRefused::OtherMissing));
}

#[test]
fn who_is_innocent_beside_a_mark() {
    let marked = Header { mark: mark(9), ..Header::new(42, BlockSize::B1024, 5) };
    let kept = |other: &[u8]| Header::recover(&marked.encode(), other).header.unwrap().mark.is_some();
    assert!(kept(&[0; PAGE_BYTES]), "a fresh table");
    let same = Header::new(42, BlockSize::B1024, 5).encode();
    assert!(!kept(&same), "same generation");
    assert_eq!(Header::recover(&same, &marked.encode()).slot, 0, "the first where generations are equal");
    let later = Header { generation: 5, ..marked.clone() };
    let kept =
        |other: &Header| Header::recover(&other.encode(), &later.encode()).header.unwrap().mark.is_some();
    let older = |volume_id| Header { generation: 4, ..Header::new(volume_id, BlockSize::B1024, 5) };
    assert!(kept(&older(42)));
    assert!(!kept(&older(43)), "another table's");
}

#[test]
fn unknown_versions_and_meaningless_bits() {
    let reseal = |bytes: &mut [u8; PAGE_BYTES]| {
        let crc = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    };
    let with = |at: usize, value: u8| {
        let mut bytes = history(1)[0].encode();
        bytes[at] = value;
        reseal(&mut bytes);
        Header::parse(&bytes)
    };
    assert_eq!(with(8, 2), Err(Damage::Version(2)));
    for at in [12, 40, 44, 48, 56, 64, 1087, 1088, 4095] {
        assert!(matches!(with(at, 2), Err(Damage::Malformed(_))), "byte {at}");
    }
    assert_eq!(with(16, 0), Err(Damage::Malformed("generation")));
    // Of 100 pages all may hold entries, and no more.
    let used = |pages_end: u32| {
        let mark = mark(3).map(|mark| Box::new(Mark { pages_end: Some(pages_end), ..*mark }));
        Header::parse(&history(1)[0].next(mark).encode()).map(|found| found.unwrap().mark.unwrap().pages_end)
    };
    assert_eq!((used(0), used(100)), (Ok(Some(0)), Ok(Some(100))));
    assert_eq!((used(101), used(u32::MAX - 1)), (Err(Damage::Malformed("pages in use")), used(101)));
    assert_eq!(used(u32::MAX), Ok(None), "what cannot be said is not said");
    // Who went on counting from there came to the end of its type.
    let generation = |generation: u64| {
        let header = Header { generation, ..history(1)[0].clone() };
        Header::parse(&header.encode()).map(|found| assert_eq!(found, Some(header)))
    };
    assert_eq!(generation(u64::MAX / 2), Ok(()));
    for forged in [u64::MAX / 2 + 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(generation(forged), Err(Damage::Malformed("generation")));
    }
    assert_eq!(with(32, 1), Err(Damage::Malformed("block size")));
}

proptest! {
    #[test]
    fn any_bytes(a in prop::collection::vec(any::<u8>(), 0..5000), b in prop::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert_eq!(Header::recover(&a, &b).header, None);
    }

    #[test]
    fn resealed_bytes_never_panic(
        at in prop::collection::vec((8usize..1200, any::<u8>()), 0..20), other in any::<bool>(),
    ) {
        let mut bytes = history(4)[3].encode();
        for (at, value) in at {
            bytes[at] = value;
        }
        let crc = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        let slot = if other { history(3)[2].encode() } else { [0; PAGE_BYTES] };
        let found = Header::recover(&bytes, &slot);
        if let Ok(Some(header)) = Header::parse(&bytes) {
            prop_assert_eq!(header.encode(), bytes, "what parses is what would be written");
        }
        prop_assert!(found.header.is_some() || !other);
    }

    #[test]
    fn checksums_are_those_of_the_mark(sums in prop::collection::vec(any::<u32>(), 0..3000), key: u64, at: usize) {
        let groups = sums.len() as u32;
        let sums = BitmapChecksums(sums);
        let hash = sums.hash(key);
        let mut bytes = sums.encode();
        prop_assert_eq!(bytes.len() % PAGE_BYTES, 0);
        prop_assert_eq!(BitmapChecksums::decode(&bytes, groups, key, hash), Ok(sums.clone()));
        prop_assert_eq!(
            BitmapChecksums::decode(&bytes, groups, key, hash ^ 1), Err(ChecksumsDamage::Hash)
        );
        let short = (groups as usize * 4).saturating_sub(1);
        prop_assert_eq!(BitmapChecksums::decode(&bytes[..short], groups, key, hash).is_ok(), groups == 0);
        if groups > 0 {
            bytes[at % (groups as usize * 4)] ^= 1;
            prop_assert_eq!(BitmapChecksums::decode(&bytes, groups, key, hash), Err(ChecksumsDamage::Hash));
        }
    }
}

/// The bytes of version 1, written by hand from docs/format.md; the checksums by another program.
#[test]
fn the_bytes_are_those_of_version_1() {
    let slot = |version: u8, crc: u32| {
        let mut bytes = vec![0; PAGE_BYTES];
        bytes[..4].copy_from_slice(b"FS2H");
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes[8] = version;
        bytes[16] = 7;
        bytes[24..32].copy_from_slice(&0x1122_3344_5566_7788u64.to_le_bytes());
        bytes[33] = 0x10;
        bytes[36] = 3;
        bytes
    };
    let one = slot(1, 0xbd5e_2b42);
    let header = Header {
        volume_id: 0x1122_3344_5566_7788,
        generation: 7,
        block_size: BlockSize::B4096,
        pages: 3,
        mark: None,
    };
    assert_eq!(Header::parse(&one), Ok(Some(header.clone())));
    assert_eq!(header.encode().as_slice(), one);
    // A later version is told from damage, in whichever slot and beside whatever it is.
    let two = slot(2, 0x3fbb_f92a);
    assert_eq!(Header::parse(&two), Err(Damage::Version(2)));
    let empty = vec![0; PAGE_BYTES];
    for pair in [[&one, &two], [&two, &one], [&two, &empty], [&two, &two]] {
        assert_eq!(Header::recover(pair[0], pair[1]).other_version(), Some(2));
    }
    assert_eq!(Header::recover(&one, &empty).other_version(), None);
    assert_eq!(Header::recover(&one, &slot(2, 1)).other_version(), None, "torn, not later");
}
