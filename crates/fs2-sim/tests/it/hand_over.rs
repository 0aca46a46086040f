//! A session that goes on in another process: what is kept, and what is refused.

use fs2_block::{ConnectionId, Op};
use fs2_engine::{AttachOptions, EIO, ENOSPC, HandOver, Standing, Volume};
use fs2_sim::model::swarm::Rng;
use fs2_table::Trust;
use roaring::RoaringBitmap;

use crate::session::{BLOCK, Session, config};

/// What the session's process leaves.
fn left(s: &mut Session) -> Result<Vec<u8>, String> {
    s.volume.begin_leaving(s.now);
    s.run();
    assert!(s.volume.has_left());
    s.volume.left(b"a note")
}

fn take(device: &mut Vec<u8>, bytes: &[u8]) -> Result<Volume, String> {
    let given = HandOver::decode(bytes)?;
    assert_eq!(given.note(), b"a note");
    Volume::take_over(device, None, config(), given).map(|(volume, _)| volume)
}

/// The session in its next process.
fn handed_over(mut s: Session) -> Session {
    let bytes = left(&mut s).expect("it is one to go on with");
    let before = s.volume;
    s.volume = take(&mut s.device, &bytes).expect("it fits");
    let (then, now) = (before.liveness().unwrap(), s.volume.liveness().unwrap());
    assert_eq!(then.parts(), now.parts());
    assert!(before.table().iter().eq(s.volume.table().iter()));
    let changes = |v: &Volume| v.table().pages_needing_flag_change(true).collect::<Vec<_>>();
    assert!(s.volume.table().dirty_pages() >= before.table().dirty_pages());
    assert!(changes(&before).iter().all(|p| changes(&s.volume).contains(p) || is_dirty(&s.volume, *p)));
    assert!(s.device.len() as u64 == s.volume.size_bytes());
    s
}

fn is_dirty(v: &Volume, page: u32) -> bool {
    v.table().next_dirty_page(page.checked_sub(1)) == Some(page)
}

#[test]
fn an_active_session_goes_on_active() {
    let mut s = Session::copied(config());
    s.superblock(false, 1);
    s.write(1500, 1, 9).unwrap();
    let mut s = handed_over(s);
    assert_eq!(*s.volume.standing(), Standing::Active);
    s.reading_copies();
    assert_eq!((s.value(1100), s.value(1103)), (0x11, 0x14));
    assert_eq!(s.volume.stats().reads_from_replica, 2);
    // Copying goes on, and what was written before the hand-over is known to be in use.
    s.load_bitmap().copying_to(1310).read(1104, 2).unwrap();
    s.idle(1000);
    assert_eq!(s.replicas().len(), 6);
    assert!(!s.volume.liveness().unwrap().is_free(fs2_block::BlockNo(1500)));
    // A discard over the connection that wrote it gives it back.
    s.other(Op::Discard, 1500, 1).unwrap();
    assert!(s.volume.liveness().unwrap().is_free(fs2_block::BlockNo(1500)));
    // Unmounted in order it leaves a mark, and the next session trusts what this one knew.
    s.superblock(true, 1);
    let (marked, device) = s.detach();
    assert!(marked);
    let s = Session::attach(device, config());
    assert_eq!((s.replicas().len(), s.volume.table().unverified_count()), (6, 0));
}

#[test]
fn a_discard_over_another_connection_gives_nothing_back() {
    let mut s = Session::copied(config());
    s.load_bitmap().write(1500, 1, 9).unwrap();
    let mut s = handed_over(s);
    let parts = s.volume.liveness().unwrap().parts().unwrap();
    assert!(parts.written.iter().any(|(c, set)| *c == ConnectionId(0) && set.contains(1500)));
    s.volume.connection_gone(ConnectionId(0));
    s.other(Op::Discard, 1500, 1).unwrap();
    assert!(!s.volume.liveness().unwrap().is_free(fs2_block::BlockNo(1500)));
}

/// A page may be flagged verified on disk and hold an entry that is not any more: the mark must not come
/// before it is rewritten, whichever process writes the mark.
#[test]
fn trust_is_of_entries_not_of_pages() {
    let mut s = Session::copied(config());
    s.write(1500, 1, 1).unwrap();
    let mut table = s.volume.table().clone();
    assert!(table.set_trust(fs2_block::BlockNo(1301), Trust::Unverified));
    let page = table.pages_in_memory(1, 7).find(|(_, p)| p.bytes.is_some()).expect("one page");
    assert!(page.1.differs, "on disk it is verified, in memory not all of it is");
    let page = s.volume.table().pages_in_memory(1, 7).find(|(_, p)| p.bytes.is_some()).expect("one page");
    assert!(!page.1.differs, "it is as it was read");
}

#[test]
fn what_must_begin_anew() {
    // A volume that is served plainly.
    let mut s = Session::plain(config());
    s.superblock(false, 1);
    let (_, device) = s.detach();
    let mut s = Session::attach(device, config());
    assert!(matches!(s.volume.standing(), Standing::Inactive(_)));
    assert!(left(&mut s).unwrap_err().contains("served inactive"));
    // A frozen one: mounted twice.
    let mut s = Session::copied(config());
    s.superblock(false, 1);
    s.superblock(false, 2);
    assert!(left(&mut s).unwrap_err().contains("frozen"));
    // One in which a flush failed.
    let mut s = Session::copied(config());
    s.fail = |io| (io.op == fs2_engine::IoOp::Flush).then_some(fs2_engine::EIO);
    s.submit(Op::Flush, 0, 0, None);
    s.run();
    assert!(left(&mut s).unwrap_err().contains("flush"));
    // One under way.
    let s = Session::copied(config());
    assert!(s.volume.left(b"").unwrap_err().contains("under way"));
}

/// A client's write that failed forbids the mark, whichever process heard of it.
#[test]
fn what_failed_before_is_known_after() {
    for fails in [false, true] {
        let mut s = Session::copied(config());
        s.write(1100, 1, 9).unwrap();
        if fails {
            s.fail = |io| (io.extent.offset() == 1101 * BLOCK as u64).then_some(EIO);
        }
        assert_eq!(s.write(1101, 1, 9).is_err(), fails);
        s.fail = |_| None;
        assert_eq!(handed_over(s).detach().0, !fails);
    }
}

/// Where a copy found no room below, none is made in this session, by whichever process.
#[test]
fn copies_that_found_no_room_stay_off() {
    for full in [false, true] {
        let mut s = Session::copied(config());
        s.load_bitmap().copying_to(1310);
        if full {
            s.fail = |io| (io.extent.offset() == 1310 * BLOCK as u64).then_some(ENOSPC);
        }
        s.read(1104, 2).unwrap();
        s.idle(1000);
        s.fail = |_| None;
        let before = s.replicas().len();
        let mut s = handed_over(s);
        s.copying_to(1320).read(1500, 2).unwrap();
        s.idle(1000);
        assert_eq!((before, s.replicas().len()), if full { (4, 4) } else { (6, 8) });
    }
}

#[test]
fn a_replica_in_a_block_that_is_not_free_is_refused() {
    let mut s = Session::copied(config());
    s.load_bitmap();
    let serialized = |set: &RoaringBitmap| {
        let mut bytes = (set.serialized_size() as u64).to_le_bytes().to_vec();
        set.serialize_into(&mut bytes).unwrap();
        bytes
    };
    let bytes = left(&mut s).unwrap();
    let free = s.volume.liveness().unwrap().parts().unwrap().free;
    let was = serialized(&free);
    let at = bytes.windows(was.len()).position(|w| w == was).expect("it is there");
    let without = |block: u32| {
        let mut free = free.clone();
        assert!(free.remove(block));
        resealed([&bytes[..at], &serialized(&free), &bytes[at + was.len()..]].concat())
    };
    assert!(take(&mut s.device.clone(), &without(1310)).is_ok(), "no replica is there");
    let why = take(&mut s.device, &without(1301)).err().unwrap();
    assert!(why.contains("1301") && why.contains("not free"), "{why}");
}

#[test]
fn a_volume_that_changed_is_refused() {
    let mut s = Session::copied(config());
    s.superblock(false, 1);
    let bytes = left(&mut s).unwrap();
    assert!(take(&mut s.device.clone(), &bytes).is_ok());
    let why = |change: fn(&mut Vec<u8>)| {
        let mut device = s.device.clone();
        change(&mut device);
        take(&mut device, &bytes).err().unwrap_or_default()
    };
    assert!(why(|d| d[1024 + 52] ^= 1).contains("superblock"));
    assert!(why(|d| d[2048 + 12] ^= 1).contains("descriptors"));
    // Another session began: its header is newer.
    let mut device = s.device.clone();
    device[1024 + 58] = 1;
    let mut other = Session::attach(device, config());
    other.write(1500, 1, 5).unwrap();
    other.device[1024 + 58] = 0;
    assert!(!take(&mut other.device, &bytes).is_ok_and(|v| v.table().is_empty()));
    // Once taken, and gone on with, it is not taken again.
    let mut s = handed_over(s);
    s.write(1500, 1, 5).unwrap();
    s.superblock(true, 1);
    let (_, mut device) = s.detach();
    assert!(take(&mut device, &bytes).is_err());
}

/// Bytes with their checksum made right again: only the content is wrong.
pub(crate) fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 24 {
        let len = bytes.len() as u64;
        bytes[16..24].copy_from_slice(&len.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// Nothing that is cut off or changed is taken; nothing that is forged makes the engine break.
#[test]
fn damaged_bytes() {
    let mut s = Session::copied(config());
    s.superblock(false, 1);
    s.load_bitmap();
    let bytes = left(&mut s).unwrap();
    for seed in 1..=400 {
        let mut rng = Rng(seed);
        let cut = rng.below(bytes.len() as u64) as usize;
        assert!(HandOver::decode(&bytes[..cut]).is_err(), "seed {seed}");
        // Where lengths and counts are, and anywhere.
        let at = rng.below(if seed % 2 == 0 { bytes.len() as u64 } else { 200 }) as usize;
        let mut changed = bytes.clone();
        changed[at] ^= 1 + rng.below(255) as u8;
        assert!(HandOver::decode(&changed).is_err(), "seed {seed}");
        for forged in [resealed(changed), resealed(bytes[..cut].to_vec())] {
            if let Ok(given) = HandOver::decode(&forged)
                && let Ok((volume, _)) = Volume::take_over(&mut s.device.clone(), None, config(), given)
            {
                // No entry is where none may be, whatever was forged.
                volume.check();
                assert!(volume.table().len() <= 4, "seed {seed}");
            }
        }
    }
}

#[test]
fn another_version_is_told_with_what_to_do() {
    let mut s = Session::copied(config());
    s.superblock(false, 1);
    s.load_bitmap();
    let bytes = left(&mut s).unwrap();
    assert_eq!(bytes[..12], *b"FS2HAND\0\x03\0\0\0");
    for version in [0, 1, 2, 200] {
        let mut other = bytes.clone();
        other[8] = version;
        // Its checksum does not cover the version, and is right.
        let said = HandOver::decode(&other).unwrap_err();
        assert!(said.contains("another format version") && said.contains("chkfs2"), "{said}");
    }
}

/// A plain attach of the same volume, for comparison: without the hand-over it is inactive.
#[test]
fn without_it_the_session_begins_inactive() {
    let mut s = Session::copied(config());
    s.superblock(false, 1);
    left(&mut s).unwrap();
    let (volume, _) = Volume::attach(&mut s.device, None, config(), &AttachOptions::default()).unwrap();
    assert!(matches!(volume.standing(), Standing::Inactive(_)));
    assert_eq!(s.device.len() % BLOCK, 0);
}
