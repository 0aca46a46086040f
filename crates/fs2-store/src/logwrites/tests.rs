use std::io::Cursor;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::{Fault, FaultKind, FaultStore, MemStore, RecordStore};

/// One entry as a reader finds it: first sector, sectors, flags, a mark's text, data.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    sector: u64,
    sectors: u64,
    flags: u64,
    text: String,
    data: Vec<u8>,
}

/// A reader written from the kernel's comment alone: [ 1 sector ][ entry->nr_sectors ].
fn parse(log: &[u8]) -> Vec<Entry> {
    let number = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
    assert_eq!(number(0), u64::from_be_bytes(*b"\0jsfwshr"));
    assert_eq!((number(8), number(24)), (1, 512));
    let mut at = 512;
    let mut all = Vec::new();
    for _ in 0..number(16) {
        let [sector, sectors, flags, len] = [0, 8, 16, 24].map(|i| number(at + i));
        let text = if flags == 8 { &log[at + 32..at + 32 + len as usize] } else { &[] };
        assert!(
            log[at + 32 + text.len()..at + 512].iter().all(|&b| b == 0),
            "the rest of the sector is empty"
        );
        at += 512;
        let n = if flags & 4 == 0 { sectors as usize * 512 } else { 0 };
        assert_eq!(len, if flags == 8 { text.len() } else { n } as u64);
        let text = String::from_utf8(text.to_vec()).unwrap();
        all.push(Entry { sector, sectors, flags, text, data: log[at..at + n].to_vec() });
        at += n;
    }
    assert_eq!(at, log.len(), "nothing behind the last entry");
    all
}

fn short(log: &[u8]) -> Vec<String> {
    parse(log)
        .iter()
        .map(|e| {
            let data = e.data.first().map_or(String::new(), |b| format!(" {b:x}"));
            format!("{}+{} {:x}{data}{}", e.sector, e.sectors, e.flags, e.text)
        })
        .collect()
}

/// A file that can be looked at while it is written.
#[derive(Clone, Default)]
struct Shared(std::sync::Arc<Mutex<Cursor<Vec<u8>>>>);

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().get_ref().clone()
    }
}

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Shared {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.lock().unwrap().seek(to)
    }
}

#[test]
fn every_kind_of_entry() {
    let file = Shared::default();
    let s = LogStore::new(MemStore::new(8192), file.clone()).unwrap();
    s.write_at(512, &[1; 1024], false).unwrap();
    s.write_at(2048, &[2; 512], true).unwrap();
    s.flush().unwrap();
    s.write_zeroes(1024, 512, false).unwrap();
    s.discard(4096, 1024).unwrap();
    s.mark("here");
    assert_eq!(s.sync().unwrap(), 6);
    let log = file.bytes();
    assert_eq!(short(&log), ["1+2 0 1", "4+1 2 2", "0+0 1", "2+1 0 0", "8+2 4", "0+0 8here"]);
    let again = MemStore::new(8192);
    let met = replay_log(&mut &log[..], &again, u64::MAX).unwrap();
    assert_eq!(met, Replayed { entries: 6, writes: 3, discards: 1, flushes: 2, marks: 1 });
    assert_eq!(again.to_vec(), s.inner.to_vec());
    let some = MemStore::new(8192);
    replay_log(&mut &log[..], &some, 1).unwrap();
    assert_eq!(some.to_vec()[..2049], [vec![0; 512], vec![1; 1024], vec![0; 513]].concat());
}

#[test]
fn parts_of_sectors_bring_the_rest() {
    let file = Shared::default();
    let s = LogStore::new(MemStore::from_bytes(&[7; 1300]), file.clone()).unwrap();
    s.write_at(500, &[1; 20], false).unwrap();
    s.write_zeroes(1290, 10, false).unwrap();
    s.discard(100, 1000).unwrap();
    s.sync().unwrap();
    assert_eq!(short(&file.bytes()), ["0+2 0 7", "2+1 0 7", "1+1 4"]);
    let again = MemStore::from_bytes(&[7; 1300]);
    replay_log(&mut &file.bytes()[..], &again, u64::MAX).unwrap();
    assert_eq!(again.to_vec()[..1100], s.inner.to_vec()[..1100]);
    assert_eq!(again.to_vec()[1290..], [0; 10]);
}

/// A store whose flush lets a write complete before it does itself.
struct Slow(MemStore);

impl Store for Slow {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        self.0.write_at(offset, buf, fua)
    }
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.0.write_zeroes(offset, len, no_hole)
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)
    }
    fn flush(&self) -> io::Result<()> {
        SLOW_BEGUN.store(true, Ordering::SeqCst);
        while !SLOW_GO.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(())
    }
}

static SLOW_BEGUN: AtomicBool = AtomicBool::new(false);
static SLOW_GO: AtomicBool = AtomicBool::new(false);

#[test]
fn a_flush_covers_what_was_complete_when_it_began() {
    let file = Shared::default();
    let s = LogStore::new(Slow(MemStore::new(4096)), file.clone()).unwrap();
    s.write_at(0, &[1; 512], false).unwrap();
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| s.flush());
        while !SLOW_BEGUN.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        s.write_at(512, &[2; 512], false).unwrap();
        s.sync().unwrap();
        assert_eq!(short(&file.bytes()), ["0+1 0 1", "0+0 8", "1+1 0 2"], "not done yet: a mark");
        SLOW_GO.store(true, Ordering::SeqCst);
        flush.join().unwrap().unwrap();
    });
    assert_eq!(short(&file.bytes()), ["0+1 0 1", "0+0 1", "1+1 0 2"]);
}

#[test]
fn what_fails_below_is_not_logged() {
    let file = Shared::default();
    let below = FaultStore::new(MemStore::new(4096));
    let s = LogStore::new(below, file.clone()).unwrap();
    s.inner.plan(Fault::on(&[fs2_block::Op::Write], FaultKind::Error(5)).times(1));
    s.write_at(0, &[1; 512], false).unwrap_err();
    s.inner.plan(Fault::on(&[fs2_block::Op::Flush], FaultKind::Error(5)).times(1));
    s.flush().unwrap_err();
    s.sync().unwrap();
    assert_eq!(short(&file.bytes()), ["0+0 8"], "the flush that failed stays a mark");
}

/// A log on a full disk.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(buf.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(buf.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Full {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn a_full_disk_ends_the_log_and_not_the_store() {
    let s = LogStore::new(MemStore::new(8192), Full(1024)).unwrap();
    s.write_at(0, &[3; 4096], false).unwrap();
    s.flush().unwrap();
    assert_eq!(s.sync().unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(s.inner.to_vec()[..4096], [3; 4096]);
    assert!(s.sync().is_err(), "and it does not come back");
}

#[test]
fn a_recording_as_a_log() {
    let s = RecordStore::new(MemStore::new(8192), 1 << 20).unwrap();
    s.write_at(0, &[1; 512], false).unwrap();
    s.flush().unwrap();
    s.write_at(512, &[2; 512], true).unwrap();
    s.discard(1024, 512).unwrap();
    s.mark("end");
    let mut log = Cursor::new(Vec::new());
    assert_eq!(s.recording().unwrap().write_log(&mut log).unwrap(), 5);
    assert_eq!(short(log.get_ref()), ["0+1 0 1", "0+0 1", "1+1 2 2", "2+1 4", "0+0 8end"]);
}

#[test]
fn foreign_bytes_are_refused() {
    let onto = MemStore::new(4096);
    let mut file = Cursor::new(Vec::new());
    let mut log = LogWriter::new(&mut file).unwrap();
    log.write(0, &[1; 1024], false).unwrap();
    log.sync().unwrap();
    let good = file.into_inner();
    let say = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        replay_log(&mut &bad[..], &onto, u64::MAX).unwrap_err().to_string()
    };
    assert!(say(0, &[9]).contains("no log"));
    assert!(say(24, &[1, 0]).contains("sectors of 1 bytes"));
    assert!(say(512, &[0xff; 8]).contains("sector"), "an offset that overflows");
    assert!(say(512, &[7]).contains("beyond the end"));
    assert!(say(528, &[0x40]).contains("flags"));
    assert_eq!(replay_log(&mut &good[..1024], &onto, 9).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    let mut cut = good.clone();
    cut[16] = 2;
    assert_eq!(replay_log(&mut &cut[..], &onto, 9).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

proptest! {
    /// Whatever is done, replaying all of the log gives what is below; replaying a part gives a prefix.
    #[test]
    fn a_replay_is_the_store(ops in proptest::collection::vec((0u8..5, 0u64..7000, 1u64..1500, any::<u8>()), 1..40)) {
        let file = Shared::default();
        let s = LogStore::new(MemStore::new(8704), file.clone()).unwrap();
        let mut states = vec![s.inner.to_vec()];
        for (op, at, len, byte) in ops {
            match op {
                0 | 1 => s.write_at(at, &vec![byte; len as usize], byte % 3 == 0).unwrap(),
                2 => s.write_zeroes(at, len, false).unwrap(),
                3 => s.mark("m"),
                _ => s.flush().unwrap(),
            }
            states.push(s.inner.to_vec());
        }
        let entries = s.sync().unwrap();
        prop_assert_eq!(entries, states.len() as u64 - 1, "one entry each");
        for (n, state) in states.iter().enumerate() {
            let again = MemStore::new(8704);
            replay_log(&mut &file.bytes()[..], &again, n as u64).unwrap();
            prop_assert!(again.to_vec() == *state, "after {} entries", n);
        }
    }
}
