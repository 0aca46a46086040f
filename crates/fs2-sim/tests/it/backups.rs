//! The copies of the superblock: a mount by one of them between two sessions (`mount -o sb=N`) changes that copy alone.

use std::io;

use fs2_block::{BlockRange, Op, Permille, ReadAt};
use fs2_engine::offline::{
    CheckOptions, CreateOptions, Devices, MarkFound, check, create, look, mark_again, unmark,
};
use fs2_engine::{AttachOptions, EIO, HandOver, Inactive, Io, IoOp, Standing, Volume};
use fs2_ext2::{Layout, TableFile};
use fs2_sim::glue::Scripted;
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::{Plan, Shape};
use fs2_table::{Header, Mark, PAGE_BYTES, Token, TokenDiffers};

use crate::hand_over::resealed;
use crate::session::{BLOCK, DATA, Session, config, image, image_of};

/// Groups of 1024 blocks; the first begins with block 1. Two have copies.
const COPIES: [u32; 2] = [1025, 3073];

fn at(block: u32) -> usize {
    block as usize * BLOCK
}

/// 1100 to 1103 have replicas from 1300 on.
fn copied() -> Vec<u8> {
    image_of(Shape::Groups, &DATA, &[BlockRange::new(1100, 1104)], 1300)
}

fn attach(mut device: Vec<u8>) -> Standing {
    let (volume, _) = Volume::attach(&mut device, None, config(), &AttachOptions::default()).unwrap();
    volume.standing().clone()
}

fn session(device: Vec<u8>) -> Session {
    let mut s = Session::attach(device, config());
    assert_eq!(*s.volume.standing(), Standing::Active);
    s.policy(Scripted::default());
    s
}

/// A mount elsewhere by this copy: counted there, and one block of a file is other than its replica.
fn mounted_by(device: &mut [u8], copy: u32) {
    device[at(copy) + 52] += 1;
    device[at(1100)..at(1101)].fill(0x77);
}

fn differs() -> Standing {
    Standing::Inactive(Inactive::Token(TokenDiffers::Groups))
}

/// A device whose copy in group 3 cannot be read.
struct Bad(Vec<u8>);

impl ReadAt for Bad {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (from, end) = (at(COPIES[1]) as u64, at(COPIES[1]) as u64 + 512);
        match offset < end && offset + buf.len() as u64 > from {
            true => Err(io::Error::from_raw_os_error(EIO)),
            false => self.0.read_at(offset, buf),
        }
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        self.0.size_bytes()
    }
}

impl fs2_block::WriteAt for Bad {
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

#[test]
fn a_copy_that_was_changed_between_two_sessions_is_seen() {
    let device = copied();
    assert_eq!(attach(device.clone()), Standing::Active);
    for copy in COPIES {
        let mut device = device.clone();
        mounted_by(&mut device, copy);
        assert_eq!(attach(device.clone()), differs(), "copy in block {copy}");
        // What is served is the file, also where its replica is the nearer.
        let mut s = Session::attach(device.clone(), config());
        s.reading_copies();
        assert_eq!(s.value(1100), 0x7777);
        // chkfs2 says the same, and leaves the mark to a full e2fsck.
        let found = look(&mut Devices::new(&mut device, None)).unwrap().mark.unwrap();
        assert_eq!(found, MarkFound::Token(TokenDiffers::Groups));
        let options = CheckOptions::default();
        let before = device.clone();
        let report =
            check(&mut Devices::new(&mut device, None), &options, &mut |_| true, &mut |_| {}).unwrap();
        assert!(report.needs_full_check && !report.marked && device == before);
        let options = CheckOptions { checked: true, ..options };
        let report =
            check(&mut Devices::new(&mut device, None), &options, &mut |_| true, &mut |_| {}).unwrap();
        assert_eq!((report.originals_differ, report.marked), (1, true));
        let mut s = session(device);
        s.reading_copies();
        assert_eq!((s.value(1100), s.value(1101)), (0x7777, 0x12));
    }
    // Each byte of a copy, and none beside it.
    for offset in [0, 1, 511, 512, 1023, 1024] {
        let mut device = device.clone();
        device[at(COPIES[0]) + offset] ^= 1;
        let want = if offset < 1024 { differs() } else { Standing::Active };
        assert_eq!(attach(device), want, "byte {offset}");
    }
}

#[test]
fn what_a_client_writes_to_a_copy_is_in_the_next_mark() {
    // Half a copy each.
    let writes = [(Op::Write, 0), (Op::WriteZeroes, 512)];
    for (op, from) in writes {
        for foreign in [false, true] {
            let mut s = session(copied());
            let payload = (op == Op::Write).then_some(&[9; 512][..]);
            s.submit(op, (at(COPIES[0]) + from) as u64, 512, payload);
            assert!(s.run()[0].1.is_ok(), "{op:?}");
            if foreign {
                // Meanwhile, by the other copy: nobody who wrote that one is known, and it is not made up for.
                mounted_by(&mut s.device, COPIES[1]);
            }
            let (marked, device) = s.detach();
            assert!(marked, "{op:?}");
            assert_eq!(attach(device), if foreign { differs() } else { Standing::Active }, "{op:?}");
        }
    }
}

#[test]
fn a_detach_reads_the_copies_that_were_written_and_no_others() {
    for (written, want) in [(1500, vec![]), (COPIES[1], vec![COPIES[1]])] {
        let mut s = session(copied());
        s.write(written, 1, 9).unwrap();
        s.done.clear();
        s.volume.begin_detach(s.now);
        s.run();
        assert!(s.volume.detached().unwrap().marked);
        let of = |copy: &u32| {
            let read = |d: &&(IoOp, fs2_block::Extent)| d.0 == IoOp::Read && d.1.offset() == at(*copy) as u64;
            s.done.iter().any(|d| read(&d))
        };
        assert_eq!(COPIES.into_iter().filter(of).collect::<Vec<_>>(), want);
    }
}

#[test]
fn a_copy_that_cannot_be_read_is_believed_by_nobody() {
    let mut bad = Bad(copied());
    let (volume, _) = Volume::attach(&mut bad, None, config(), &AttachOptions::default()).unwrap();
    let Standing::Inactive(why @ Inactive::Unread { what, .. }) = volume.standing() else {
        panic!("{:?}", volume.standing())
    };
    let words = "block 3073, copy of the superblock in group 3, cannot be read: Input/output error (os error 5); whether";
    assert!(what.starts_with(words), "{what}");
    let anew = "dd if=/dev/zero of=d bs=1024 seek=3073 count=1 oflag=direct conv=notrunc && tune2fs -C 0 d";
    assert_eq!(why.remedy("d", None).unwrap(), format!("{anew} && chkfs2 -f -p d"));
    let found = look(&mut Devices::new(&mut bad, None)).unwrap().mark.unwrap();
    assert_eq!(found, MarkFound::Unread(what.clone()));
    // No mark is written either, nor anything else before that is known, and no volume made FS2's.
    let checked = CheckOptions { checked: true, ..CheckOptions::default() };
    let failed = check(&mut Devices::new(&mut bad, None), &checked, &mut |_| true, &mut |_| {}).unwrap_err();
    assert!(failed.to_string().contains("block 3073, copy of the superblock"), "{failed}");
    let remedy = failed.remedy("d", None).unwrap();
    assert!(remedy.ends_with(anew), "{remedy}");
    assert!(bad.0 == copied(), "nothing was written");
    let plan = Plan { shape: Shape::Groups, grain: Grain::SMALL };
    let (mut bad, before) = (Bad(plan.make(&DATA, &[])), plan.make(&DATA, &[]));
    let space = Permille::new(400).unwrap();
    let options = CreateOptions { space, volume_id: 7, now_secs: 1, checked: true };
    let failed = create(&mut Devices::new(&mut bad, None), &options, &mut |_| {}).unwrap_err();
    assert!(failed.to_string().contains("block 3073, copy of the superblock"), "{failed}");
    assert!(bad.0 == before, "nothing was written");
}

#[test]
fn a_written_copy_that_cannot_be_read_back_forbids_the_mark() {
    let fails = |io: &Io| (io.op == IoOp::Read && io.extent.offset() == at(COPIES[0]) as u64).then_some(EIO);
    for fail in [None, Some(fails)] {
        let mut s = session(copied());
        s.write(COPIES[0], 1, 9).unwrap();
        s.fail = |_| None;
        if let Some(fail) = fail {
            s.fail = fail;
        }
        s.volume.begin_detach(s.now);
        s.run();
        let ended = s.volume.detached().unwrap();
        let why = fail.map(|_| "the copy of the superblock in group 1 cannot be read".to_owned());
        assert_eq!((ended.marked, ended.why_not), (fail.is_none(), why));
    }
}

/// Writes the marks that stand as an FS2 did that left the copies out.
fn of_an_earlier_fs2(device: &mut Vec<u8>) {
    let layout = Layout::read(device).unwrap();
    let file = TableFile::find(&layout, device).unwrap().unwrap();
    for slot in 0..2 {
        let from = file.extent_of(slot * PAGE_BYTES as u64, PAGE_BYTES as u64)[0].offset() as usize;
        let header = Header::parse(&device[from..][..PAGE_BYTES]).unwrap().unwrap();
        let mark = header.mark.clone().map(|mark| {
            let token = Token::new(mark.token.superblock, layout.descriptors_bytes(), &[]);
            Box::new(Mark { token, ..*mark })
        });
        device[from..][..PAGE_BYTES].copy_from_slice(&Header { mark, ..header }.encode());
    }
}

#[test]
fn a_mark_that_left_the_copies_out_is_not_believed() {
    let mut device = copied();
    of_an_earlier_fs2(&mut device);
    let left_out = TokenDiffers::CopiesLeftOut;
    assert_eq!(attach(device.clone()), Standing::Inactive(Inactive::Token(left_out)));
    let found = look(&mut Devices::new(&mut device, None)).unwrap().mark.unwrap();
    assert_eq!(found, MarkFound::Token(left_out));
    // It is erased before the first change all the same.
    let mut s = Session::attach(device.clone(), config());
    s.policy(Scripted::default()).write(1500, 1, 9).unwrap();
    assert_eq!(attach(s.device), Standing::Inactive(Inactive::NoMark));
    // After a check all of its copies are there.
    let options = CheckOptions { checked: true, ..CheckOptions::default() };
    let report = check(&mut Devices::new(&mut device, None), &options, &mut |_| true, &mut |_| {}).unwrap();
    assert_eq!((report.verified, report.marked), (4, true));
    assert_eq!(attach(device), Standing::Active);
    // There are none to leave out in a volume of one group.
    let mut device = image(&DATA, &[BlockRange::new(1100, 1104)], 1300);
    of_an_earlier_fs2(&mut device);
    assert_eq!(attach(device), Standing::Active);
}

#[test]
fn a_mark_erased_for_e2fsck_comes_back_only_over_the_same_copies() {
    for changed in [false, true] {
        let mut device = copied();
        let unmarked = unmark(&mut Devices::new(&mut device, None)).unwrap().unwrap();
        if changed {
            mounted_by(&mut device, COPIES[0]);
        }
        assert_eq!(mark_again(&mut Devices::new(&mut device, None), &unmarked).unwrap(), !changed);
    }
}

#[test]
fn the_copies_are_handed_over() {
    for foreign in [false, true] {
        let mut s = session(copied());
        s.write(COPIES[0], 1, 9).unwrap();
        if foreign {
            mounted_by(&mut s.device, COPIES[1]);
        }
        s.volume.begin_leaving(s.now);
        s.run();
        let given = HandOver::decode(&s.volume.left(b"").unwrap()).unwrap();
        s.volume = Volume::take_over(&mut s.device, None, config(), given).unwrap().0;
        s.policy(Scripted::default());
        // The next process knows which was written, and what the other was.
        let (marked, device) = s.detach();
        assert!(marked);
        assert_eq!(attach(device), if foreign { differs() } else { Standing::Active });
    }
}

#[test]
fn copies_that_the_volume_does_not_have_are_not_taken_over() {
    let mut s = session(copied());
    s.write(COPIES[0], 1, 9).unwrap();
    s.volume.begin_leaving(s.now);
    s.run();
    let bytes = s.volume.left(b"").unwrap();
    let hashes = COPIES.map(|copy| Token::hash_copy(&copied()[at(copy)..][..1024]).to_le_bytes()).concat();
    let from = bytes.windows(16).position(|w| w == hashes).unwrap();
    assert_eq!(bytes[from - 8..from], 16u64.to_le_bytes());
    let taken = |bytes: Vec<u8>| {
        let given = HandOver::decode(&resealed(bytes)).unwrap();
        Volume::take_over(&mut s.device.clone(), None, config(), given).err()
    };
    assert_eq!(taken(bytes.clone()), None);
    let other = Some("it is of a volume with other block groups".to_owned());
    // One hash too few.
    let mut fewer = bytes.clone();
    fewer[from - 8] = 8;
    fewer.drain(from..from + 8);
    assert_eq!(taken(fewer), other);
    // Group 2, which has no copy: the set's last 16 bits.
    let mut another = bytes;
    let len = another[from + 16] as usize;
    assert_eq!(another[from + 24 + len - 2..][..2], [1, 0]);
    another[from + 24 + len - 2] = 2;
    assert_eq!(taken(another), other);
}
