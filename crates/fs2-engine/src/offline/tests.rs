//! On an image made by hand, in memory. What e2fsck says of it all is asked in fs2-tools' tests.

mod bad_sectors;
mod checked;
mod others;
mod power;

use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, Permille, ReadAt, WriteAt};
use fs2_ext2::{Layout, Liveness, Problem, TableFile};
use fs2_table::{Header, Replica, Trust, content_hash};

use super::check::Fix;
use super::place::{Place, Stands};
use super::undo::load;
use super::*;
use crate::{AttachOptions, EngineConfig, Standing, Volume};

const BLOCK: usize = 1024;
const GROUP: u32 = 8192;
const ID: u64 = 0x1234_5678;

/// The first of 200 blocks in use in each group, behind its metadata.
fn data(group: u32) -> u32 {
    1 + group * GROUP + 20
}

/// Two groups of 8192 blocks of 1 KiB; in each 20 blocks of metadata and 200 with content.
fn image() -> Vec<u8> {
    let blocks = 1 + 2 * GROUP;
    let mut image = vec![0; blocks as usize * BLOCK];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let free = GROUP - 220;
    for copy in 0..2 {
        let sb = (1 + copy * GROUP) as usize * BLOCK;
        let words: [(usize, u32); 11] = [
            (0, 256),
            (4, blocks),
            (12, 2 * free),
            (16, 245),
            (20, 1),
            (32, GROUP),
            (36, GROUP),
            (40, 128),
            (76, 1),
            (84, 11),
            (88, 128),
        ];
        for (at, value) in words {
            put(sb + at, &value.to_le_bytes());
        }
        put(sb + 56, &0xEF53u16.to_le_bytes());
        put(sb + 58, &1u16.to_le_bytes());
        put(sb + 104, b"0123456789abcdef");
        for group in 0..2 {
            let first = 1 + group * GROUP;
            let at = sb + BLOCK + group as usize * 32;
            for (i, value) in [first + 2, first + 3, first + 4].into_iter().enumerate() {
                put(at + 4 * i, &value.to_le_bytes());
            }
            put(at + 12, &(free as u16).to_le_bytes());
        }
    }
    for group in 0..2 {
        let bitmap = (1 + group * GROUP + 2) as usize * BLOCK;
        for bit in 0..220usize {
            image[bitmap + bit / 8] |= 1 << (bit % 8);
        }
        for block in data(group)..data(group) + 200 {
            let at = block as usize * BLOCK;
            for (i, byte) in image[at..at + BLOCK].iter_mut().enumerate() {
                *byte = (block as usize * 31 + i * (1 + block as usize % 7)) as u8;
            }
        }
    }
    image
}

fn options() -> CreateOptions {
    CreateOptions {
        space: Permille::new(50).unwrap(),
        volume_id: ID,
        now_secs: 1_700_000_000,
        checked: false,
    }
}

fn made() -> Vec<u8> {
    let mut image = image();
    create(&mut Devices::new(&mut image, None), &options(), &mut |_| {}).unwrap();
    image
}

/// The block's bytes.
fn block(image: &[u8], block: u32) -> &[u8] {
    &image[block as usize * BLOCK..][..BLOCK]
}

fn attach(image: &mut Vec<u8>) -> Volume {
    Volume::attach(image, None, EngineConfig::default(), &AttachOptions::default()).unwrap().0
}

fn is_active(volume: &Volume) -> bool {
    *volume.standing() == Standing::Active
}

/// Opens the table for the tests' own changes.
fn fix(image: &mut Vec<u8>) -> Fix {
    let layout = Layout::read(image).unwrap();
    let file = TableFile::find(&layout, image).unwrap().unwrap();
    let place = Place::of_file(&file, &layout);
    let found = place.slots(image).unwrap();
    let stands = Stands::of(&found, &place).unwrap();
    let live = Liveness::new(Arc::new(layout.clone()), &place.blocks);
    let (table, _) = load(&mut Devices::new(image, None), &place, &stands, &live, true).unwrap();
    Fix { stands, place, table, layout }
}

/// A session that copies some blocks and ends cleanly.
fn copied(image: &mut Vec<u8>, pairs: &[(u32, u32)]) {
    let mut fix = fix(image);
    let devices = &mut Devices::new(image, None);
    fix.stands.erase_mark(&fix.place, devices).unwrap();
    for &(original, replica) in pairs {
        let mut content = vec![0; BLOCK];
        devices.volume.read_at(u64::from(original) * BLOCK as u64, &mut content).unwrap();
        devices.volume.write_at(u64::from(replica) * BLOCK as u64, &content).unwrap();
        let hash = content_hash(ID, &content);
        let entry =
            Replica { original: BlockNo(original), replica: BlockNo(replica), hash, trust: Trust::Verified };
        fix.table.insert(entry).unwrap();
    }
    fix.write_pages(devices, &mut |_| {}).unwrap();
    let sums = super::place::read_bitmaps(&fix.layout, devices.volume, &mut |_| {}, |_, _| {}).unwrap();
    fix.stands.write_mark(&fix.place, devices, &fix.layout, &sums, Some(fix.table.pages_end())).unwrap();
}

/// A session that writes a block and is killed: all that is left of it is the mark's erasure.
fn written_and_killed(image: &mut Vec<u8>, block: u32) {
    let mut fix = fix(image);
    fix.stands.erase_mark(&fix.place, &mut Devices::new(image, None)).unwrap();
    image[block as usize * BLOCK..][..BLOCK].fill(0xA5);
}

const FULL: CheckOptions<'static> = CheckOptions {
    checked: true,
    written_since: false,
    scrub: false,
    quick: false,
    bitmaps: true,
    new_volume_id: ID + 1,
    unmarked: None,
    plants: &[],
};

const UNDO: UndoOptions = UndoOptions { checked: false, written_since: false };
const UNDO_CHECKED: UndoOptions = UndoOptions { checked: true, written_since: false };

fn check_all(image: &mut Vec<u8>, options: &CheckOptions<'_>) -> CheckReport {
    check(&mut Devices::new(image, None), options, &mut |_| true, &mut |_| {}).unwrap()
}

/// Entries that an attach trusts although one of their blocks holds something else.
fn lies(image: &mut Vec<u8>) -> Vec<(u32, u32)> {
    let volume = attach(image);
    if !is_active(&volume) {
        return Vec::new();
    }
    let wrong = |e: &Replica| {
        let hash = |b: BlockNo| content_hash(ID, block(image, b.0));
        e.trust == Trust::Verified && (hash(e.original) != e.hash || hash(e.replica) != e.hash)
    };
    volume.table().iter().filter(wrong).map(|e| (e.original.0, e.replica.0)).collect()
}

#[test]
fn made_is_active_and_undone_is_as_before() {
    let before = image();
    let mut image = made();
    let volume = attach(&mut image);
    assert!(is_active(&volume), "{:?}", volume.standing());
    let replicas: Vec<(u32, u32)> = (0..50).map(|i| (data(0) + i, 12_000 + 2 * i)).collect();
    copied(&mut image, &replicas);
    let volume = attach(&mut image);
    assert!(is_active(&volume));
    assert_eq!((volume.table().len(), volume.table().unverified_count()), (50, 0));
    let undone = undo(&mut Devices::new(&mut image, None), &UNDO, &mut |_| {}).unwrap();
    assert_eq!((undone.scrubbed, undone.in_use), (50, 0));
    assert!(image == before, "every byte, free blocks included");
}

/// The table's own blocks change with each entry: a copy of one is none.
#[test]
fn an_entry_of_a_block_of_the_table_is_none() {
    let mut image = made();
    let place = fix(&mut image).place;
    let own: Vec<u32> = place.blocks.iter().flat_map(|r| r.iter()).map(|b| b.0).collect();
    let (first, last) = (own[0], own[own.len() - 1]);
    copied(&mut image, &[(first, 12_000), (last, 12_001), (data(0), 12_002), (data(1), 12_003)]);
    let kept: Vec<u32> = fix(&mut image).table.iter().map(|e| e.original.0).collect();
    assert_eq!(kept, [data(0), data(1)]);
}

#[test]
fn undo_leaves_what_is_in_use() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000), (data(0) + 1, 9001)]);
    // Somebody allocated a block that holds a replica, elsewhere.
    with_bit(&mut image, 9000, true);
    image[9000 * BLOCK..9001 * BLOCK].fill(0x77);
    let undone = undo(&mut Devices::new(&mut image, None), &UNDO_CHECKED, &mut |_| {}).unwrap();
    assert_eq!((undone.scrubbed, undone.in_use), (1, 1));
    assert_eq!(block(&image, 9000), [0x77; BLOCK]);
    assert_eq!(block(&image, 9001), [0; BLOCK]);
}

/// A write of a bitmap that was lost below a session that died calls a file's block free: what the file had there became zeroes.
#[test]
fn undo_scrubs_nothing_where_bitmaps_may_be_wrong() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000), (data(0) + 1, 9001)]);
    let as_it_was = image.clone();
    let bitmap = (1 + GROUP + 2) as usize * BLOCK;
    type Change = fn(&mut Vec<u8>, usize);
    let changes: [(&str, Change, bool); 5] = [
        ("the mark is erased", |image, _| written_and_killed(image, data(1)), false),
        ("written since", |_, _| {}, true),
        (
            "mounted by the copy of the superblock",
            |image, _| image[(1 + GROUP) as usize * BLOCK + 52] = 1,
            false,
        ),
        ("mounted", |image, _| image[1024 + 52] = 1, false),
        // As many are free as before.
        ("another bitmap", |image, at| (image[at + 50], image[at + 5]) = (0x80, image[at + 5] ^ 0x80), false),
    ];
    for (what, change, written_since) in changes {
        image = as_it_was.clone();
        change(&mut image, bitmap);
        let before = image.clone();
        let options = UndoOptions { checked: false, written_since };
        let refused = undo(&mut Devices::new(&mut image, None), &options, &mut |_| {});
        assert!(matches!(refused, Err(OfflineError::Unchecked)), "{what}: {refused:?}");
        assert!(image == before, "{what}");
        let options = UndoOptions { checked: true, written_since };
        let undone = undo(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
        assert_eq!(undone.scrubbed, 2, "{what}");
    }
    // Where there is nothing to scrub nothing has to be known.
    let mut image = made();
    written_and_killed(&mut image, data(1));
    assert_eq!(undo(&mut Devices::new(&mut image, None), &UNDO, &mut |_| {}).unwrap().scrubbed, 0);
}

/// What damaged inode 5 may have damaged the bitmaps: a mark that is right says nothing of them.
#[test]
fn undo_of_remains_scrubs_nothing_without_a_check() {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000), (data(0) + 1, 9001)]);
    // Two links.
    image[5 * BLOCK + 4 * 128 + 26] = 2;
    let before = image.clone();
    let refused = undo(&mut Devices::new(&mut image, None), &UNDO, &mut |_| {});
    assert!(matches!(refused, Err(OfflineError::Unchecked)), "{refused:?}");
    assert!(image == before);
    let undone = undo(&mut Devices::new(&mut image, None), &UNDO_CHECKED, &mut |_| {}).unwrap();
    assert_eq!((undone.scrubbed, undone.damaged.is_some()), (2, true));
}

#[test]
fn a_table_apart() {
    let mut image = image();
    let before = image.clone();
    let bytes = table_bytes(&mut image, options().space).unwrap();
    let mut table = vec![0; bytes as usize - 1];
    let refused = create(&mut Devices::new(&mut image, Some(&mut table)), &options(), &mut |_| {});
    assert!(matches!(refused, Err(OfflineError::TableTooSmall { .. })), "{refused:?}");
    table.push(0);
    table[5000] = 1;
    let refused = create(&mut Devices::new(&mut image, Some(&mut table)), &options(), &mut |_| {});
    assert!(matches!(refused, Err(OfflineError::NotEmpty)), "{refused:?}");
    table[5000] = 0;
    create(&mut Devices::new(&mut image, Some(&mut table)), &options(), &mut |_| {}).unwrap();
    assert!(image == before, "the volume is not written");
    let config = EngineConfig::default();
    let (volume, _) =
        Volume::attach(&mut image, Some(&mut table), config, &AttachOptions::default()).unwrap();
    assert!(is_active(&volume), "{:?}", volume.standing());
    let again = create(&mut Devices::new(&mut image, Some(&mut table)), &options(), &mut |_| {});
    assert!(matches!(again, Err(OfflineError::TableThere)), "{again:?}");
    undo(&mut Devices::new(&mut image, Some(&mut table)), &UNDO, &mut |_| {}).unwrap();
    assert!(image == before && table.iter().all(|&b| b == 0));
}

/// A gibibyte, of which nothing is kept but what is written.
struct Sparse(Vec<u8>, u64);

impl ReadAt for Sparse {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        // Behind what was written nothing is zero: it is another's.
        buf.fill(if offset < 128 << 10 { 0 } else { 0xA5 });
        let from = (offset as usize).min(self.0.len());
        let kept = &self.0[from..(offset as usize + buf.len()).min(self.0.len())];
        buf[..kept.len()].copy_from_slice(kept);
        Ok(())
    }
    fn size_bytes(&mut self) -> std::io::Result<u64> {
        Ok(1 << 30)
    }
}

impl WriteAt for Sparse {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
        let end = offset + buf.len() as u64;
        self.1 = self.1.max(end);
        if self.0.len() < end as usize {
            self.0.resize(end as usize, 0);
        }
        self.0.write_at(offset, buf)
    }
    fn write_zeroes(&mut self, offset: u64, len: u64) -> std::io::Result<()> {
        self.write_at(offset, &vec![0; len as usize])
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The table took all of a place, whatever was asked for: 8 GiB for a volume of 32 MiB, read at every start.
#[test]
fn a_larger_place_is_used_as_far_as_space_asks() {
    let mut image = image();
    let bytes = table_bytes(&mut image, options().space).unwrap();
    let mut place = Sparse(Vec::new(), 0);
    let made = create(&mut Devices::new(&mut image, Some(&mut place)), &options(), &mut |_| {}).unwrap();
    assert_eq!(made.table_bytes, bytes);
    assert_eq!(made.replicas_max, attach_apart(&mut image, &mut place).table().capacity() as u64);
    let devices = &mut Devices::new(&mut image, Some(&mut place));
    let blocks = [BlockRange::one(BlockNo(data(0)))];
    let asked = ReplicateOptions { blocks: &blocks, near: BlockNo(9000), written_since: false };
    replicate(devices, &asked, &mut |_| {}).unwrap();
    let report = check(devices, &FULL, &mut |_| true, &mut |_| {}).unwrap();
    assert_eq!((report.mark.clone(), report.verified), (MarkFound::Valid, 1));
    let undone = undo(devices, &UNDO, &mut |_| {}).unwrap();
    assert_eq!((undone.table_bytes, undone.scrubbed), (bytes, 1));
    assert_eq!(place.1, bytes, "nothing behind the table was ever written");
    assert!(place.0.iter().all(|&b| b == 0));
}

/// A table with two copies whose volume had 1,025 block groups or more when it was written, or is to have that many pages before it.
fn divided_for_more_groups() -> (Vec<u8>, Vec<u8>, Vec<(u32, u32)>) {
    let mut image = image();
    let mut table = vec![0; table_bytes(&mut image, options().space).unwrap() as usize];
    create(&mut Devices::new(&mut image, Some(&mut table)), &options(), &mut |_| {}).unwrap();
    let devices = &mut Devices::new(&mut image, Some(&mut table));
    let blocks = [BlockRange::at(BlockNo(data(0)), 2)];
    let asked = ReplicateOptions { blocks: &blocks, near: BlockNo(9000), written_since: false };
    let replica = replicate(devices, &asked, &mut |_| {}).unwrap().places[0].start();
    // Two slots, and one page of checksums for each where now two are.
    table.splice(4 * 4096..4 * 4096, [0; 2 * 4096]);
    (image, table, vec![(data(0), replica), (data(0) + 1, replica + 1)])
}

fn entries(image: &mut Vec<u8>, table: &mut Vec<u8>) -> Vec<(u32, u32)> {
    let volume = attach_apart(image, table);
    volume.table().iter().map(|r| (r.original.0, r.replica.0)).collect()
}

#[test]
fn pages_move_where_the_volume_has_other_groups() {
    let (mut image, mut table, copies) = divided_for_more_groups();
    let (before, pages) = (table.clone(), table.len() / 4096 - 6);
    let devices = &mut Devices::new(&mut image, Some(&mut table));
    let asked = check(devices, &CheckOptions { checked: false, ..FULL }, &mut |_| true, &mut |_| {}).unwrap();
    assert!(asked.redivided && asked.needs_full_check, "{asked:?}");
    let refused = check(devices, &FULL, &mut |_| false, &mut |_| {}).unwrap();
    assert_eq!((refused.redivided, refused.verified, refused.marked), (true, 2, false));
    assert!(table == before, "nothing was written");
    let devices = &mut Devices::new(&mut image, Some(&mut table));
    let report = check(devices, &FULL, &mut |_| true, &mut |_| {}).unwrap();
    assert_eq!((report.verified, report.written, report.marked), (2, true, true));
    // The place has what it had.
    let report = check(devices, &FULL, &mut |_| true, &mut |_| {}).unwrap();
    assert_eq!((report.mark.clone(), report.to_write), (MarkFound::Valid, false));
    assert_eq!(report.table.pages as usize, pages + 2);
    assert_eq!(entries(&mut image, &mut table), copies);
    // Undo finds them where they are.
    let (mut image, mut table, copies) = divided_for_more_groups();
    let undone = undo(&mut Devices::new(&mut image, Some(&mut table)), &UNDO_CHECKED, &mut |_| {}).unwrap();
    assert_eq!((undone.scrubbed, undone.damaged), (2, None));
    assert_eq!(block(&image, copies[0].1), [0; BLOCK]);
    // A header slot that is damaged is told of as ever.
    let (mut image, mut table, _) = divided_for_more_groups();
    let newest = Header::recover(&table[..4096], &table[4096..8192]).slot;
    table[(1 - newest) * 4096 + 100] ^= 1;
    let report =
        check(&mut Devices::new(&mut image, Some(&mut table)), &FULL, &mut |_| true, &mut |_| {}).unwrap();
    assert!(report.redivided && report.header_damage.is_some() && report.verified == 2, "{report:?}");
    // A page that cannot be read costs its own entries only.
    for (page, verified) in [(2, 2), (6, 0), (7, 2)] {
        let (mut image, table, _) = divided_for_more_groups();
        let mut table = bad_sectors::Bad::of(&table, &[page * 4096 / BLOCK as u32], true);
        let checked =
            check(&mut Devices::new(&mut image, Some(&mut table)), &FULL, &mut |_| true, &mut |_| {});
        assert_eq!(checked.map(|report| report.verified).unwrap(), verified, "page {page}");
    }
}

/// What is overwritten is known only while the table stands.
#[test]
fn replicas_are_scrubbed_before_pages_move() {
    let (mut image, mut table, copies) = divided_for_more_groups();
    let asked = CheckOptions { scrub: true, ..FULL };
    let report =
        check(&mut Devices::new(&mut image, Some(&mut table)), &asked, &mut |_| true, &mut |_| {}).unwrap();
    assert_eq!((report.scrubbed, report.verified, report.marked), (2, 0, true));
    assert!(copies.iter().all(|&(_, replica)| block(&image, replica) == [0; BLOCK]));
    assert_eq!(entries(&mut image, &mut table), []);
}

/// Wherever it stops, what is found is a table, and what it names is a copy.
#[test]
fn power_may_go_while_pages_move() {
    struct Cut {
        table: Vec<u8>,
        writes: usize,
    }
    impl ReadAt for Cut {
        fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
            self.table.read_at(offset, buf)
        }
        fn size_bytes(&mut self) -> std::io::Result<u64> {
            self.table.size_bytes()
        }
    }
    impl WriteAt for Cut {
        fn write_at(&mut self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
            self.writes = self.writes.checked_sub(1).ok_or(std::io::Error::from_raw_os_error(crate::EIO))?;
            self.table.write_at(offset, buf)
        }
        fn write_zeroes(&mut self, offset: u64, len: u64) -> std::io::Result<()> {
            self.write_at(offset, &vec![0; len as usize])
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut kept = Vec::new();
    for writes in 0.. {
        let (mut image, table, copies) = divided_for_more_groups();
        let mut cut = Cut { table, writes };
        let done = check(&mut Devices::new(&mut image, Some(&mut cut)), &FULL, &mut |_| true, &mut |_| {});
        let mut table = cut.table;
        let config = EngineConfig::default();
        let (volume, _) =
            Volume::attach(&mut image, Some(&mut table), config, &AttachOptions::default()).unwrap();
        assert!(is_active(&volume) == done.is_ok() || writes == 0, "{writes} writes");
        let report =
            check(&mut Devices::new(&mut image, Some(&mut table)), &FULL, &mut |_| true, &mut |_| {})
                .unwrap();
        assert!(report.marked, "{writes} writes: {report:?}");
        let found = entries(&mut image, &mut table);
        assert!(found.iter().all(|entry| copies.contains(entry)), "{writes} writes: {found:?}");
        kept.push(found.len());
        if done.is_ok() {
            break;
        }
    }
    assert!(kept.len() > 5 && kept.first() == Some(&2) && kept.last() == Some(&2), "{kept:?}");
}

fn attach_apart(image: &mut Vec<u8>, table: &mut dyn WriteAt) -> Volume {
    let config = EngineConfig::default();
    let (volume, _) = Volume::attach(image, Some(table), config, &AttachOptions::default()).unwrap();
    assert!(is_active(&volume), "{:?}", volume.standing());
    volume
}

/// A file longer than its header's pages was served, but not checked, and undone without its replicas.
#[test]
fn a_table_apart_that_grew_is_one_of_as_many_pages_as_before() {
    let mut image = image();
    let mut table = vec![0; table_bytes(&mut image, options().space).unwrap() as usize];
    create(&mut Devices::new(&mut image, Some(&mut table)), &options(), &mut |_| {}).unwrap();
    let before = table.len() / 4096;
    // What was there before is no page.
    table.resize(table.len() + 2 * 4096, 0xA5);
    let devices = &mut Devices::new(&mut image, Some(&mut table));
    let blocks = [BlockRange::one(BlockNo(data(0)))];
    let asked = ReplicateOptions { blocks: &blocks, near: BlockNo(9000), written_since: false };
    let replicated = replicate(devices, &asked, &mut |_| {}).unwrap();
    let replica = replicated.places[0].start();
    let report = check(devices, &FULL, &mut |_| true, &mut |_| {}).unwrap();
    assert_eq!((report.mark.clone(), report.verified, report.to_write), (MarkFound::Valid, 1, false));
    assert_eq!((report.table.pages as usize, report.table.is_clean()), (before - 4, true));
    let (volume, _) =
        Volume::attach(&mut image, Some(&mut table), EngineConfig::default(), &AttachOptions::default())
            .unwrap();
    assert_eq!((is_active(&volume), volume.table().len()), (true, 1));
    let mut shorter = table[..(before - 1) * 4096].to_vec();
    let checked = check(&mut Devices::new(&mut image, Some(&mut shorter)), &FULL, &mut |_| true, &mut |_| {});
    assert!(matches!(checked, Err(OfflineError::Damaged(_))), "{checked:?}");
    let undone = undo(&mut Devices::new(&mut image, Some(&mut table)), &UNDO, &mut |_| {}).unwrap();
    assert_eq!((undone.scrubbed, undone.damaged), (1, None));
    assert_eq!(block(&image, replica), [0; BLOCK]);
    assert!(table[..before * 4096].iter().all(|&b| b == 0));
    assert!(table[before * 4096..].iter().all(|&b| b == 0xA5), "what it grew by is not the table's");
}

#[test]
fn replicas_by_hand() {
    let mut image = made();
    copied(&mut image, &[(data(0) + 5, 12_000)]);
    let blocks = [(data(1) + 10, 20), (data(0), 8), (data(0) + 4, 4)]
        .map(|(first, n)| BlockRange::at(BlockNo(first), n));
    let options = ReplicateOptions { blocks: &blocks, near: BlockNo(9000), written_since: false };
    let done = replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
    assert_eq!(done.places, [BlockRange::new(9000, 9028)]);
    assert_eq!((done.copied, done.free, done.dropped), (28, 0, 1));
    let mut volume = attach(&mut image);
    assert!(is_active(&volume));
    assert_eq!((volume.table().len(), volume.table().unverified_count()), (28, 0));
    volume.check();
    for (original, replica) in (data(1) + 10..data(1) + 30).chain(data(0)..data(0) + 8).zip(9000..) {
        assert_eq!(block(&image, original), block(&image, replica), "{original}");
        let entry = volume.table().by_replica(BlockNo(replica)).unwrap();
        assert_eq!(entry.original, BlockNo(original), "in the order given");
    }
    assert_eq!(lies(&mut image), []);
    // Again elsewhere: the copies move.
    let options = ReplicateOptions { near: BlockNo(11_000), ..options };
    let done = replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
    assert_eq!((done.places[0].start(), done.dropped), (11_000, 28));
    volume = attach(&mut image);
    assert!(is_active(&volume) && volume.table().len() == 28);
}

#[test]
fn replicas_by_hand_refused() {
    let mut image = made();
    let before = image.clone();
    let range = BlockRange::new;
    let mut refused = |blocks: &[BlockRange]| {
        let options = ReplicateOptions { blocks, near: BlockNo(9000), written_since: false };
        let e = replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap_err();
        assert!(image == before, "{e}");
        e.to_string()
    };
    let table = fix(&mut before.clone()).place.blocks[0];
    assert!(refused(&[range(0, 1)]).contains("block 0 cannot be copied: it is outside the volume"));
    assert!(refused(&[range(16_380, 16_390)]).contains("block 16385 cannot be copied"));
    assert!(refused(&[range(1, u32::MAX)]).contains("outside the volume"));
    assert!(refused(&[range(table.start() - 1, table.end())]).contains("holds the replica table"));
    assert!(refused(&[range(9000, 9010)]).contains("nothing to copy"));
    assert!(refused(&[]).contains("nothing to copy"));
    let many = range(table.end(), table.end() + 6000);
    assert!(refused(&[many]).contains("the table has room for"));
    let mut image = made();
    written_and_killed(&mut image, data(0));
    let options =
        ReplicateOptions { blocks: &[range(data(0), data(0) + 1)], near: BlockNo(0), written_since: false };
    let e = replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap_err();
    assert!(matches!(e, OfflineError::NotMarked(MarkFound::None)), "{e}");
}

/// Of the volume with this block's bit as `set` says, and its descriptor's count with it.
fn with_bit(image: &mut [u8], block: u32, set: bool) {
    let group = (block - 1) / GROUP;
    let (bitmap, bit) = ((1 + group * GROUP + 2) as usize * BLOCK, ((block - 1) % GROUP) as usize);
    let mask = 1 << (bit % 8);
    assert_eq!(image[bitmap + bit / 8] & mask != 0, !set);
    image[bitmap + bit / 8] ^= mask;
    let descriptor = 2 * BLOCK + 32 * group as usize + 12;
    let free = u16::from_le_bytes([image[descriptor], image[descriptor + 1]]);
    let free = if set { free - 1 } else { free + 1 };
    image[descriptor..descriptor + 2].copy_from_slice(&free.to_le_bytes());
}

/// A bitmap that differs from the mark's calls free what may be a file's: nothing is copied there, as where something else wrote the
/// volume. That one's mark is no other session's either, which would not know.
#[test]
fn replicas_by_hand_of_a_volume_that_changed() {
    let blocks = [BlockRange::at(BlockNo(data(0)), 1)];
    let options = ReplicateOptions { blocks: &blocks, near: BlockNo(9000), written_since: false };
    let mut image = made();
    let bitmap = (1 + GROUP + 2) as usize * BLOCK;
    // As many are free as before.
    image[bitmap + 50] ^= 0x80;
    image[bitmap + 5] ^= 0x80;
    let before = image.clone();
    let refused = replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, OfflineError::NotMarked(MarkFound::Differs(_))), "{refused}");
    assert!(image == before);
    let mut image = made();
    let options = ReplicateOptions { written_since: true, ..options };
    let refused = replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, OfflineError::NotMarked(MarkFound::WrittenSince)), "{refused}");
    assert!(!is_active(&attach(&mut image)));
}

#[test]
fn replicas_by_hand_lie_over_nothing() {
    let mut image = made();
    let mut near = |first: u32, near: u32| {
        let blocks = [BlockRange::at(BlockNo(first), 4)];
        let options = ReplicateOptions { blocks: &blocks, near: BlockNo(near), written_since: false };
        replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap().places
    };
    assert_eq!(near(data(0), 9000), [BlockRange::new(9000, 9004)]);
    let beside = near(data(0) + 4, 9001)[0];
    assert!(!beside.overlaps(BlockRange::new(9000, 9004)), "others' replicas stay: {beside}");
    // Free, and in the first MiB.
    assert!(near(data(0) + 8, 500)[0].start() >= 1 << 10);
    let volume = attach(&mut image);
    assert_eq!((is_active(&volume), volume.table().len()), (true, 12));
    volume.check();
}

/// A device that loses a write and says nothing: what does not read back is vouched for by nobody.
#[test]
fn replicas_by_hand_are_read_back() {
    struct Loses(Vec<u8>, u64);
    impl ReadAt for Loses {
        fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
            self.0.read_at(offset, buf)
        }
        fn size_bytes(&mut self) -> std::io::Result<u64> {
            self.0.size_bytes()
        }
    }
    impl WriteAt for Loses {
        fn write_at(&mut self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
            if offset == self.1 { Ok(()) } else { self.0.write_at(offset, buf) }
        }
        fn write_zeroes(&mut self, offset: u64, len: u64) -> std::io::Result<()> {
            self.0.write_zeroes(offset, len)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let blocks = [BlockRange::at(BlockNo(data(0)), 1)];
    let options = ReplicateOptions { blocks: &blocks, near: BlockNo(9000), written_since: false };
    let mut device = Loses(made(), 9000 * BLOCK as u64);
    let failed = replicate(&mut Devices::new(&mut device, None), &options, &mut |_| {}).unwrap_err();
    assert!(
        failed.to_string().contains("block 9000") && format!("{failed:?}").contains("read back"),
        "{failed:?}"
    );
    assert!(!is_active(&attach(&mut device.0)));
    assert_eq!(lies(&mut device.0), []);
}

/// Bitmaps may call free what files have, and ext2 does not notice before it gives that away. Copies would be made there at once.
#[test]
fn what_was_mounted_since_its_last_check_is_not_marked() {
    // Mounts; when it was last mounted, written, checked; and the last by its copy.
    for (mounts, mounted, written, checked, copy, taken) in [
        (0u16, 0u32, 0u32, 0u32, 0u32, true),
        // mke2fs asks for the time twice.
        (0, 0, 5, 3, 3, true),
        (1, 0, 3, 3, 3, false),
        (0, 5, 5, 5, 3, true),
        (0, 5, 9, 9, 3, true),
        (0, 6, 5, 5, 3, false),
        (1, 5, 9, 9, 3, false),
        // `tune2fs -C 0 -T now` below a mount that goes on: for a while, to the same second, and by a clock that is ahead.
        (0, 5, 9, 8, 8, false),
        (0, 5, 8, 8, 8, false),
        (0, 5, 8, 9, 9, false),
        // Each of the two tells.
        (0, 5, 9, 8, 3, false),
        (0, 5, 8, 9, 3, false),
    ] {
        for apart in [false, true] {
            let mut image = image();
            image[1024 + 52..1024 + 54].copy_from_slice(&mounts.to_le_bytes());
            image[1024 + 44..1024 + 48].copy_from_slice(&mounted.to_le_bytes());
            image[1024 + 48..1024 + 52].copy_from_slice(&written.to_le_bytes());
            image[1024 + 64..1024 + 68].copy_from_slice(&checked.to_le_bytes());
            let copy_at = (1 + GROUP as usize) * BLOCK;
            image[copy_at + 64..copy_at + 68].copy_from_slice(&copy.to_le_bytes());
            let mut table = vec![0u8; if apart { 1 << 20 } else { 0 }];
            let before = (image.clone(), table.clone());
            let mut make = |options: &CreateOptions| {
                let place = apart.then_some(&mut table as &mut dyn WriteAt);
                create(&mut Devices::new(&mut image, place), options, &mut |_| {})
            };
            let made = make(&options());
            let refused = matches!(made, Err(OfflineError::Unchecked));
            assert_eq!(
                (made.is_ok(), refused),
                (taken, !taken),
                "{mounts} {mounted} {written} {checked} {copy}"
            );
            if !taken {
                make(&CreateOptions { checked: true, ..options() }).unwrap();
            }
            assert!((image, table) != before);
        }
    }
    let mut image = image();
    image[1024 + 52] = 1;
    let before = image.clone();
    assert!(create(&mut Devices::new(&mut image, None), &options(), &mut |_| {}).is_err());
    assert!(image == before, "before anything is written");
}

/// `mount -o sb=` writes the copy that it is given, and none else: the volume was taken for one that nobody had mounted.
#[test]
fn what_was_mounted_by_a_copy_of_the_superblock_is_not_marked() {
    let (mount_time, write_time, mounts, last_check) = (44, 48, 52, 64);
    // Of the superblock: last mounted, written, checked; of its copy: mounts, last mounted, written.
    for (first, copy, taken) in [
        ([0u8, 3, 3], [0u8, 0, 3], true),
        ([0, 3, 3], [1, 0, 3], false),
        ([0, 3, 3], [0, 4, 3], false),
        ([0, 3, 3], [0, 0, 4], false),
        // Checked since the last mount, with a copy that tune2fs wrote below one before.
        ([5, 9, 9], [2, 5, 6], true),
        ([5, 9, 9], [3, 5, 10], false),
    ] {
        let mut image = image();
        let at = (1 + GROUP as usize) * BLOCK;
        (image[1024 + mount_time], image[1024 + write_time], image[1024 + last_check]) = first.into();
        (image[at + mounts], image[at + mount_time], image[at + write_time]) = copy.into();
        let made = create(&mut Devices::new(&mut image, None), &options(), &mut |_| {});
        let refused = matches!(made, Err(OfflineError::Unchecked));
        assert_eq!((made.is_ok(), refused), (taken, !taken), "{first:?} {copy:?}");
        let options = CreateOptions { checked: true, ..options() };
        assert!(taken || create(&mut Devices::new(&mut image, None), &options, &mut |_| {}).is_ok());
    }
}
