//! A device in memory that records writes and flushes, and the states a power loss may leave.

use super::Rng;
use fs2_block::{ReadAt, WriteAt};
use std::io;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// Records what happens to `image`.
pub(crate) struct Recorder {
    pub(crate) image: Vec<u8>,
    pub(crate) events: Vec<Event>,
}

impl Recorder {
    pub(crate) fn new(image: Vec<u8>) -> Recorder {
        Recorder { image, events: Vec::new() }
    }
}

impl ReadAt for Recorder {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, buf)
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        self.image.size_bytes()
    }
}

impl WriteAt for Recorder {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.events.push(Event::Write(offset, buf.to_vec()));
        self.image.write_at(offset, buf)
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; len as usize])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.events.push(Event::Flush);
        Ok(())
    }
}

const SECTOR: usize = 512;

fn apply(image: &mut [u8], offset: u64, bytes: &[u8], mut keep: impl FnMut() -> bool) {
    for (i, sector) in bytes.chunks(SECTOR).enumerate() {
        if keep() {
            let at = offset as usize + i * SECTOR;
            image[at..at + sector.len()].copy_from_slice(sector);
        }
    }
}

/// Crash states of `events` over `before`, each with a name to find it by: every prefix; for every
/// stretch between two flushes, each write alone and each write missing, and `subsets` random
/// subsets of its writes, half of them torn at sectors.
pub(crate) fn states(before: &[u8], events: &[Event], subsets: u64, seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut rng = Rng(seed);
    let mut out = Vec::new();
    let mut durable = before.to_vec();
    for (n, stretch) in events.split_inclusive(|e| matches!(e, Event::Flush)).enumerate() {
        let writes: Vec<(u64, &[u8])> = stretch
            .iter()
            .filter_map(|e| match e {
                Event::Write(at, bytes) => Some((*at, &bytes[..])),
                Event::Flush => None,
            })
            .collect();
        let mut push = |name: String, keep: &mut dyn FnMut(usize) -> bool| {
            let mut image = durable.clone();
            for (i, (at, bytes)) in writes.iter().enumerate() {
                apply(&mut image, *at, bytes, || keep(i));
            }
            out.push((format!("stretch {n}: {name}"), image));
        };
        for i in 0..=writes.len() {
            push(format!("prefix {i}"), &mut |w| w < i);
        }
        for i in 0..writes.len() {
            push(format!("only {i}"), &mut |w| w == i);
            push(format!("all but {i}"), &mut |w| w != i);
        }
        for s in 0..subsets {
            if s % 2 == 0 {
                let mask = rng.next();
                push(format!("subset {mask:x}"), &mut |w| mask >> (w % 64) & 1 == 1);
            } else {
                let seed = rng.next();
                let mut torn = Rng(seed);
                push(format!("torn {seed:x}"), &mut |_| torn.below(2) == 0);
            }
        }
        for (at, bytes) in &writes {
            apply(&mut durable, *at, bytes, || true);
        }
    }
    out
}
