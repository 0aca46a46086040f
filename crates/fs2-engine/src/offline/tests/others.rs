//! What is not ours is left alone: another volume's table, another version's, another file on inode 5.

use fs2_block::{ConnectionId, Extent, Flags, Nanos, Op, Request, RequestId};

use super::*;
use crate::{Inactive, Outcome};

/// Where the block size differed too, undo erased it, and the volume was served beside it.
#[test]
fn another_volumes_table_is_left_alone_whether_or_not_it_fits() {
    let mut image = image();
    let mut table = vec![0; table_bytes(&mut image, options().space).unwrap() as usize];
    create(&mut Devices::new(&mut image, Some(&mut table)), &options(), &mut |_| {}).unwrap();
    let layout = Layout::read(&mut image).unwrap();
    let place = Place::apart(table.len() as u64, &layout);
    let Stands { header, slot, .. } = Stands::of(&place.slots(&mut table).unwrap(), &place).unwrap();
    for (size, marked, uuid) in [(4096, true, 0xFF), (1024, true, 0xFF), (4096, false, 0)] {
        let (mut table, mut header) = (table.clone(), header.clone());
        header.block_size = fs2_block::BlockSize::new(size).unwrap();
        match &mut header.mark {
            Some(mark) if marked => mark.token.superblock[104] ^= uuid,
            mark => *mark = None,
        }
        let at = place.geometry.header_slot_offset(slot) as usize;
        table[at..at + 4096].copy_from_slice(&header.encode());
        let before = (image.clone(), table.clone());
        let is_other = |e: OfflineError| match e {
            OfflineError::OtherVolume(uuid) => marked && uuid.starts_with("cf31"),
            OfflineError::Damaged(_) => !marked,
            _ => false,
        };
        let devices = &mut Devices::new(&mut image, Some(&mut table));
        assert!(undo(devices, &UNDO, &mut |_| {}).is_err_and(is_other), "{size} {marked}");
        assert!(check(devices, &FULL, &mut |_| true, &mut |_| {}).is_err_and(is_other), "{size} {marked}");
        let attached =
            Volume::attach(&mut image, Some(&mut table), EngineConfig::default(), &AttachOptions::default());
        match attached {
            Err(crate::AttachError::OtherVolume(uuid)) => assert!(marked && uuid.starts_with("cf31")),
            Err(e) => panic!("{e}"),
            Ok((volume, _)) => assert!(!marked && matches!(volume.standing(), Standing::Inactive(_))),
        }
        assert!((&image, &table) == (&before.0, &before.1), "{size} {marked}: written");
    }
}

#[test]
fn another_format_version_is_not_touched() {
    let mut image = made();
    let place = fix(&mut image).place;
    let at = place.extents[0].1.offset() as usize;
    image[at + 8] = 2;
    let sum = crc32(&image[at + 8..at + 4096]);
    image[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
    let before = image.clone();
    let checked = check(&mut Devices::new(&mut image, None), &FULL, &mut |_| true, &mut |_| {});
    assert!(matches!(checked, Err(OfflineError::Newer(2))), "{checked:?}");
    let undone = undo(&mut Devices::new(&mut image, None), &UNDO, &mut |_| {});
    assert!(matches!(undone, Err(OfflineError::Newer(2))), "{undone:?}");
    assert!(image == before);
}

/// Found: with the other slot readable, its header counted, and the first change erased the mark over the later
/// version's slot.
#[test]
fn a_table_of_another_version_is_served_plain_and_stays_as_it_is() {
    for later in [vec![0], vec![1], vec![0, 1]] {
        let mut image = made();
        let place = fix(&mut image).place;
        let at = place.extents[0].1.offset() as usize;
        // What an older version left beside it.
        let old = image[at..at + 4096].to_vec();
        for slot in 0..2 {
            let header = &mut image[at + slot * 4096..at + (slot + 1) * 4096];
            header.copy_from_slice(&old);
            if later.contains(&slot) {
                header[8] = 2;
            }
            let sum = crc32(&header[8..]);
            header[4..8].copy_from_slice(&sum.to_le_bytes());
        }
        let config = EngineConfig::default();
        let (mut volume, _) = Volume::attach(&mut image, None, config, &AttachOptions::default()).unwrap();
        let Standing::Inactive(why @ Inactive::OtherVersion(2)) = volume.standing().clone() else {
            panic!("{later:?}: {:?}", volume.standing());
        };
        assert!(why.to_string().contains("serve it with the FS2 that wrote it"), "{why}");
        assert_eq!(why.remedy("d", None), None);
        // A client's write is passed on, and nothing else is done.
        let write = Request {
            id: RequestId(1),
            connection: ConnectionId(1),
            op: Op::Write,
            extent: Extent::new(u64::from(data(0)) * BLOCK as u64, BLOCK as u64),
            flags: Flags::default(),
        };
        volume.submit(Nanos(0), write, Some(&[7; BLOCK]));
        let mut writes = Vec::new();
        for n in 1..50 {
            let now = Nanos(n * 1_000_000_000);
            while let Some(io) = volume.poll_dispatch(now) {
                writes.push(format!("{io:?}"));
                volume.complete(now, io.id, Outcome::done());
            }
            volume.handle_timeout(now);
        }
        assert_eq!(writes.len(), 1, "{writes:?}");
    }
}

/// CRC-32C, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    !crc
}

/// The table's file with `content` in its place: another's, which the kernel's exchange of inode 5 leaves in the table's mode.
fn another_file(content: &[u8]) -> Vec<u8> {
    let mut image = made();
    let layout = Layout::read(&mut image).unwrap();
    let file = TableFile::find(&layout, &mut image).unwrap().unwrap();
    for (at, e) in &file.extents {
        for i in 0..e.len() {
            image[(e.offset() + i) as usize] = content[(at + i) as usize % content.len()];
        }
    }
    image
}

#[test]
fn another_file_on_inode_5_stays_unless_its_owner_agrees() {
    let mut image = another_file(b"a boot loader ");
    let before = image.clone();
    assert!(!is_active(&attach(&mut image)));
    let mut asked = 0;
    let agree = &mut |report: &CheckReport| {
        asked += usize::from(report.foreign);
        false
    };
    let report = check(&mut Devices::new(&mut image, None), &FULL, agree, &mut |_| {}).unwrap();
    assert!(asked == 1 && report.foreign && !report.written && !report.marked, "{report:?}");
    let refused = undo(&mut Devices::new(&mut image, None), &UNDO, &mut |_| {});
    assert!(matches!(refused, Err(OfflineError::Volume(Problem::NotTable { .. }))), "{refused:?}");
    let refused = create(&mut Devices::new(&mut image, None), &options(), &mut |_| {});
    assert!(matches!(refused, Err(OfflineError::Volume(Problem::NotTable { .. }))), "{refused:?}");
    assert!(image == before);
    // Beside it a table lives apart.
    let mut table = vec![0; 1 << 20];
    create(&mut Devices::new(&mut image, Some(&mut table)), &options(), &mut |_| {}).unwrap();
    let (config, attach_options) = (EngineConfig::default(), AttachOptions::default());
    let (volume, _) = Volume::attach(&mut image, Some(&mut table), config, &attach_options).unwrap();
    assert!(is_active(&volume), "{:?}", volume.standing());
    undo(&mut Devices::new(&mut image, Some(&mut table)), &UNDO, &mut |_| {}).unwrap();
    assert!(image == before);
    let report = check_all(&mut image, &FULL);
    assert!(report.foreign && report.written, "who is asked may agree: {report:?}");
    assert!(is_active(&attach(&mut image)));

    // One that begins as ours do, wherever, is ours: whatever else is in it.
    for at in [0, 4096, 8192, 16384] {
        let mut image = another_file(b"what was torn ");
        let layout = Layout::read(&mut image).unwrap();
        let file = TableFile::find(&layout, &mut image).unwrap().unwrap();
        let to = file.extent_of(at, 4)[0].offset() as usize;
        image[to..to + 4].copy_from_slice(if at < 8192 { b"FS2H" } else { b"FS2P" });
        let mut other = image.clone();
        let report = check_all(&mut image, &FULL);
        assert!(!report.foreign && report.written, "{at}: {report:?}");
        undo(&mut Devices::new(&mut other, None), &UNDO, &mut |_| {}).unwrap();
    }
    // What an undo leaves that was cut off before it emptied inode 5.
    let mut zeroes = another_file(&[0]);
    undo(&mut Devices::new(&mut zeroes, None), &UNDO, &mut |_| {}).unwrap();
    let report =
        check(&mut Devices::new(&mut another_file(&[0]), None), &FULL, &mut |r| !r.foreign, &mut |_| {});
    assert!(!report.unwrap().written);
}
