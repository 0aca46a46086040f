//! What a check drops, verifies and marks, and where it writes nothing.

use std::io;

use super::*;

#[test]
fn counterexample_3_the_checker_does_not_launder() {
    let mut image = made();
    let pairs = [(data(0), 9000), (data(0) + 1, 9001), (data(0) + 2, 9002)];
    copied(&mut image, &pairs);
    written_and_killed(&mut image, data(0) + 1);
    assert!(!is_active(&attach(&mut image)));
    // What has changed is in the replica too for the last pair: both blocks are looked at.
    image[9002 * BLOCK] ^= 1;
    let report = check_all(&mut image, &FULL);
    assert_eq!((report.originals_differ, report.replicas_differ, report.verified), (1, 1, 1));
    assert!(report.marked && report.written);
    assert!(is_active(&attach(&mut image)));
    assert_eq!(lies(&mut image), []);

    let mut image = made();
    copied(&mut image, &pairs);
    written_and_killed(&mut image, data(0) + 1);
    let report = check_all(&mut image, &CheckOptions { quick: true, ..FULL });
    assert_eq!((report.verified, report.unverified), (0, 3));
    let volume = attach(&mut image);
    assert!(is_active(&volume));
    assert_eq!(volume.table().unverified_count(), 3);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_checker_that_launders_is_caught() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000), (data(0) + 1, 9001)]);
    written_and_killed(&mut image, data(0) + 1);
    let plants = [crate::Plant::CheckerLaunders];
    check_all(&mut image, &CheckOptions { plants: &plants, ..FULL });
    assert_eq!(lies(&mut image), [(data(0) + 1, 9001)]);
}

#[test]
fn without_a_full_e2fsck_no_mark_is_written() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000)]);
    written_and_killed(&mut image, data(1));
    let before = image.clone();
    let report = check_all(&mut image, &CheckOptions { checked: false, ..FULL });
    assert!(report.needs_full_check && !report.marked && !report.written);
    assert!(image == before);
    // Nor where a bitmap is not what the mark was written for.
    let mut image = made();
    let bitmap = (1 + GROUP + 2) as usize * BLOCK;
    image[bitmap + 300] = 0;
    image[bitmap + 40] ^= 0x80;
    let before = image.clone();
    let options = CheckOptions { checked: false, scrub: true, ..FULL };
    let refused = check(&mut Devices::new(&mut image, None), &options, &mut |_| true, &mut |_| {});
    assert!(matches!(refused, Err(OfflineError::Volume(Problem::Corrupt { .. }))), "{refused:?}");
    assert!(image == before);
}

/// The bitmap has as many free blocks as its descriptor says, and its superblock is the mark's: the table was called clean.
#[test]
fn a_bitmap_written_beside_the_mark_is_seen_by_a_look() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000)]);
    let options = CheckOptions { checked: false, ..FULL };
    assert!(check_all(&mut image, &options).marked);
    let bitmap = (1 + GROUP + 2) as usize * BLOCK;
    image[bitmap + 50] ^= 0x80;
    image[bitmap + 5] ^= 0x80;
    let before = image.clone();
    for unmarked in [false, true] {
        let mut image = before.clone();
        let unmarked = unmarked.then(|| unmark(&mut Devices::new(&mut image, None)).unwrap().unwrap());
        let looked = image.clone();
        let report = check_all(&mut image, &CheckOptions { unmarked: unmarked.as_ref(), ..options });
        assert_eq!(report.mark, MarkFound::Differs("the blocks in use of group 1".into()));
        assert!(report.needs_full_check && !report.marked && report.verified == 0, "{report:?}");
        assert!(image == looked);
    }
    // A machine that starts leaves that to the session.
    let options = CheckOptions { bitmaps: false, ..options };
    assert!(check_all(&mut image, &options).marked && image == before);
}

#[test]
fn a_valid_mark_needs_no_work_and_a_written_backing_voids_it() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000)]);
    let before = image.clone();
    for quick in [false, true] {
        let options = CheckOptions { checked: false, quick, ..FULL };
        let report = check_all(&mut image, &options);
        assert!(report.marked && !report.to_write && report.verified == 1, "{report:?}");
        let report = check_all(&mut image, &CheckOptions { checked: true, ..options });
        assert!(report.marked && !report.to_write && report.verified == 1, "{report:?}");
    }
    assert!(image == before);
    let options = CheckOptions { checked: false, written_since: true, ..FULL };
    assert!(check_all(&mut image, &options).needs_full_check);
    let report = check_all(&mut image, &CheckOptions { written_since: true, quick: true, ..FULL });
    assert_eq!((report.verified, report.unverified, report.written), (0, 1, true));
}

#[test]
fn declined_is_not_written() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000)]);
    written_and_killed(&mut image, data(0));
    let before = image.clone();
    let mut asked = 0;
    let report = check(
        &mut Devices::new(&mut image, None),
        &FULL,
        &mut |report| {
            asked += 1;
            assert_eq!(report.originals_differ, 1);
            false
        },
        &mut |_| {},
    );
    let report = report.unwrap();
    assert!(asked == 1 && report.to_write && !report.written && !report.marked);
    assert!(image == before);
}

/// Of what e2fsck found in use, or of no file, nothing is left in the table, though the blocks hold the same.
#[test]
fn what_the_bitmaps_contradict_is_dropped() {
    for quick in [false, true] {
        let mut image = made();
        copied(&mut image, &[(data(0), 9000), (data(0) + 1, 9001), (data(0) + 2, 9002)]);
        written_and_killed(&mut image, data(1));
        with_bit(&mut image, 9001, true);
        with_bit(&mut image, data(0) + 2, false);
        let report = check_all(&mut image, &CheckOptions { quick, ..FULL });
        assert_eq!((report.replica_in_use, report.original_free), (1, 1));
        assert_eq!((report.verified, report.unverified), if quick { (0, 1) } else { (1, 0) });
        let left: Vec<u32> = attach(&mut image).table().iter().map(|e| e.replica.0).collect();
        assert_eq!(left, [9000]);
    }
}

/// Pages were believed for the sake of a mark that a bitmap then contradicts: their entries are not, where nobody hashes them.
#[test]
fn a_mark_that_a_bitmap_contradicts_vouches_for_no_entry() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000)]);
    let bitmap = (1 + GROUP + 2) as usize * BLOCK;
    image[bitmap + 50] ^= 0x80;
    image[bitmap + 5] ^= 0x80;
    image[data(0) as usize * BLOCK] ^= 1;
    let report = check_all(&mut image, &CheckOptions { quick: true, ..FULL });
    assert_eq!((report.verified, report.unverified, report.written), (0, 1, true));
    assert_eq!(lies(&mut image), []);
}

/// What cannot be read was not seen, whatever the mark said of it.
#[test]
fn what_cannot_be_read_is_unverified_though_the_mark_was_valid() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000), (data(0) + 1, 9001)]);
    let mut device = bad_sectors::Bad::of(&image, &[data(0)], false);
    let report = check(&mut Devices::new(&mut device, None), &FULL, &mut |_| true, &mut |_| {}).unwrap();
    assert_eq!((report.mark.clone(), report.unread), (MarkFound::Valid, 1));
    assert_eq!((report.verified, report.unverified), (1, 1));
}

/// The mark was erased for e2fsck's sake, and nothing was written: it comes back where it says what is so, or copies that were found
/// wrong would be read.
#[test]
fn an_erased_mark_comes_back_only_where_nothing_is_wrong() {
    for wrong in [false, true] {
        let mut image = made();
        copied(&mut image, &[(data(0), 9000), (data(0) + 1, 9001)]);
        if wrong {
            image[9001 * BLOCK] ^= 1;
        }
        let devices = &mut Devices::new(&mut image, None);
        let unmarked = unmark(devices).unwrap();
        let options = CheckOptions { unmarked: unmarked.as_ref(), ..FULL };
        let report = check(devices, &options, &mut |_| false, &mut |_| {}).unwrap();
        assert_eq!((report.mark.clone(), report.written), (MarkFound::Valid, false));
        assert_eq!(
            (report.replicas_differ, report.restored, report.marked),
            (u64::from(wrong), !wrong, !wrong)
        );
        assert_eq!(lies(&mut image), []);
        assert_eq!(is_active(&attach(&mut image)), !wrong);
    }
}

/// A header whose next one would have no number: the check panicked, or went on with 0.
#[test]
fn a_generation_that_nobody_counted_to_makes_no_table() {
    for generation in [u64::MAX - 1, u64::MAX - 1024, u64::MAX / 2 + 1] {
        let mut image = made();
        copied(&mut image, &[(data(0), 9000)]);
        let Fix { stands, place, .. } = fix(&mut image);
        let header = Header { generation, ..stands.header };
        place.write(&mut Devices::new(&mut image, None), 0, &header.encode()).unwrap();
        place.write(&mut Devices::new(&mut image, None), 4096, &header.encode()).unwrap();
        assert!(!is_active(&attach(&mut image)));
        let report = check_all(&mut image, &FULL);
        assert!(report.unusable.as_ref().is_some_and(|why| why.contains("generation")), "{report:?}");
        assert!(report.written && report.marked && !report.foreign, "{report:?}");
        let volume = attach(&mut image);
        assert_eq!((is_active(&volume), volume.table().len()), (true, 0));
    }
}

#[test]
fn an_unreadable_block_costs_its_own_entry() {
    struct Holes(Vec<u8>, [u32; 2]);
    impl ReadAt for Holes {
        fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            let (from, to) = (offset / BLOCK as u64, (offset + buf.len() as u64).div_ceil(BLOCK as u64));
            if self.1.iter().any(|&hole| (from..to).contains(&u64::from(hole))) {
                return Err(io::Error::other("a bad sector"));
            }
            self.0.read_at(offset, buf)
        }
        fn size_bytes(&mut self) -> io::Result<u64> {
            self.0.size_bytes()
        }
    }
    impl WriteAt for Holes {
        fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, buf)
        }
        fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
            self.0.write_zeroes(offset, len)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut image = made();
    let pairs: Vec<(u32, u32)> = (0..10).map(|i| (data(0) + i, 9000 + i)).collect();
    copied(&mut image, &pairs);
    written_and_killed(&mut image, data(1));
    let mut device = Holes(image, [data(0) + 3, 9007]);
    let report = check(&mut Devices::new(&mut device, None), &FULL, &mut |_| true, &mut |_| {}).unwrap();
    assert_eq!((report.unread, report.replicas_differ), (1, 1));
    assert_eq!((report.verified, report.unverified), (8, 1));
    let volume = attach(&mut device.0);
    // Flags are a page's: one entry that could not be verified takes its neighbours with it.
    assert!(is_active(&volume));
    assert_eq!((volume.table().len(), volume.table().unverified_count()), (9, 9));
}
