//! Sectors of the table that cannot be read or written.

use std::io;

use super::*;

/// Blocks that cannot be read, and whether they can be once they are written.
pub(super) struct Bad {
    image: Vec<u8>,
    blocks: Vec<u32>,
    heals: bool,
}

impl Bad {
    pub(super) fn of(image: &[u8], blocks: &[u32], heals: bool) -> Bad {
        Bad { image: image.to_vec(), blocks: blocks.to_vec(), heals }
    }
}

fn touched(offset: u64, len: usize) -> std::ops::Range<u32> {
    (offset / BLOCK as u64) as u32..(offset + len as u64).div_ceil(BLOCK as u64) as u32
}

impl ReadAt for Bad {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let touched = touched(offset, buf.len());
        if self.blocks.iter().any(|bad| touched.contains(bad)) {
            return Err(io::Error::from_raw_os_error(crate::EIO));
        }
        self.image.read_at(offset, buf)
    }
    fn size_bytes(&mut self) -> io::Result<u64> {
        self.image.size_bytes()
    }
}

impl WriteAt for Bad {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let touched = touched(offset, buf.len());
        self.blocks.retain(|bad| !(self.heals && touched.contains(bad)));
        self.image.write_at(offset, buf)
    }
    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; len as usize])
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The first block of this page of the table's file.
fn page_of(image: &mut Vec<u8>, page: u64) -> u32 {
    let place = fix(image).place;
    let at = place.extents.iter().find(|(from, e)| (*from..from + e.len()).contains(&(page * 4096))).unwrap();
    ((at.1.offset() + page * 4096 - at.0) / BLOCK as u64) as u32
}

#[test]
fn a_header_slot_that_cannot_be_read_is_written_anew() {
    for slot in [0, 1] {
        let mut image = made();
        copied(&mut image, &[(data(0), 9000), (data(0) + 1, 9001)]);
        let block = page_of(&mut image, slot);
        let generations = |image: &[u8]| {
            let at = |slot| page_of(&mut image.to_vec(), slot) as usize * BLOCK;
            let of = |at: usize| u64::from_le_bytes(image[at + 16..at + 24].try_into().unwrap());
            [of(at(0)), of(at(1))]
        };
        let before = generations(&image);
        let mut device = Bad::of(&image, &[block], true);
        // What is refused now may be believed when the sector can be read again: it goes before e2fsck comes.
        assert!(unmark(&mut Devices::new(&mut device, None)).unwrap().is_none());
        let header = Header::recover(
            &device.image[page_of(&mut image, 0) as usize * BLOCK..][..4096],
            &device.image[page_of(&mut image, 1) as usize * BLOCK..][..4096],
        );
        assert!(header.header.unwrap().mark.is_none());
        let mut device = Bad::of(&image, &[block], true);
        let report = check(&mut Devices::new(&mut device, None), &FULL, &mut |_| true, &mut |_| {}).unwrap();
        assert!(report.header_damage.as_ref().unwrap().contains("cannot be read"), "{report:?}");
        assert!(report.marked && report.written);
        // Newer than whatever the slot may have held.
        assert!(generations(&device.image).iter().all(|&g| g > before[0].max(before[1]) + 100));
        let volume = attach(&mut device.image);
        assert!(is_active(&volume));
        assert_eq!((volume.table().len(), volume.table().unverified_count()), (2, 0));
    }
}

#[test]
fn no_mark_is_told_of_beside_a_slot_that_stays_bad() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000)]);
    for slot in [0, 1] {
        let block = page_of(&mut image, slot);
        let mut device = Bad::of(&image, &[block], false);
        let failed = check(&mut Devices::new(&mut device, None), &FULL, &mut |_| true, &mut |_| {});
        let failed = failed.unwrap_err();
        let remedy = failed.remedy("/dev/sdb1", None).unwrap_or_default();
        assert!(matches!(failed, OfflineError::Io { .. }), "{failed:?}");
        assert!(remedy.ends_with("e2fsck -f -c -y /dev/sdb1, then: chkfs2 -f -p /dev/sdb1"), "{remedy}");
        // Undone it can be: nobody needs what is there.
        undo(&mut Devices::new(&mut device, None), &UNDO_CHECKED, &mut |_| {}).unwrap();
        let layout = Layout::read(&mut device.image).unwrap();
        assert!(fs2_ext2::TableFile::find(&layout, &mut device.image).unwrap().is_none());
    }
    // Both: there is nothing to go by.
    let both = [page_of(&mut image, 0), page_of(&mut image, 1)];
    let mut device = Bad::of(&image, &both, true);
    let failed = check(&mut Devices::new(&mut device, None), &FULL, &mut |_| true, &mut |_| {});
    assert!(matches!(failed, Err(OfflineError::Io { .. })), "{failed:?}");
    assert!(device.image == image);
}

#[test]
fn a_page_that_cannot_be_read_costs_a_session_its_own_entries() {
    let mut image = made();
    let pairs: Vec<(u32, u32)> = (0..400).map(|i| (data(i / 200) + i % 200, 9000 + i)).collect();
    copied(&mut image, &pairs);
    let all = attach(&mut image).table().len();
    let first = fix(&mut image).place.geometry.page_offset(0) / 4096;
    let lost = |page: u64| {
        let mut image = image.clone();
        let block = page_of(&mut image, page);
        let mut device = Bad::of(&image, &[block], false);
        let config = EngineConfig::default();
        let (volume, report) = Volume::attach(&mut device, None, config, &AttachOptions::default()).unwrap();
        assert!(is_active(&volume));
        // What the mark says is zero is not read.
        assert_eq!(report.table.unwrap().pages_unread, u32::from(page < first + 2));
        all - volume.table().len()
    };
    let lost = [0, 1, 2].map(|page| lost(first + page));
    assert_eq!((all, lost.iter().sum::<usize>()), (400, 400), "{lost:?}");
    assert!(lost[0] > 0 && lost[1] > 0 && lost[2] == 0, "{lost:?}");
}

#[test]
fn what_could_not_be_read_or_written_is_told_with_what_helps() {
    let of = |what: &str, errno| {
        let e = io::Error::from_raw_os_error(errno);
        below_remedy(what, &e, "/dev/sdb1", Some("/table")).unwrap_or_default()
    };
    // To who reads past the page cache a bad sector is ENODATA.
    for errno in [crate::EIO, 61] {
        let read = of("reading the replica table at byte 4096", errno);
        assert!(
            read.ends_with("e2fsck -f -c -y /dev/sdb1, then: chkfs2 -f -p --table /table /dev/sdb1"),
            "{read}"
        );
        assert!(of("writing block 7, block bitmap of group 0", errno).contains("e2fsck -f -c -c -y"));
        // e2fsck cannot open what has no superblock.
        assert!(!of("the superblock", errno).contains("e2fsck"));
    }
    assert!(of("writing the replica table at byte 4096", crate::ENOSPC).starts_with("make room"));
    assert_eq!(of("reading the replica table at byte 4096", 13), "");
}
