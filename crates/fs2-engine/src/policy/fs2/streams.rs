//! Sequential reading: what the drive reads ahead of by itself, alone or of several readers in turns.
//!
//! Who goes on where is told by reads as they come. They end in the order of the drive, or of who orders for it: to that a scan among small reads
//! looks like many short runs, and copies of these, torn apart, are read for a multiple of the time.

use fs2_block::{BlockRange, Nanos};

use super::RUN_BYTES_MAX;

/// A run of so many bytes and more that took less than a [`AHEAD`]th of a positioning a page of 4 KiB beyond its [`TRANSFER`] comes out of the
/// drive's own cache: it reads ahead of several streams at once, and copies, in the order in which they took turns once, bring that to an end.
/// Measured: 64 KiB mend more of made-up mixtures, but a cvs update on fast drives then takes up to half as long again.
const AHEAD_BYTES: u64 = 256 << 10;

/// Measured on made-up mixtures and real traces: with 100 and 60 the same is mended, and a database gains up to a tenth less.
const AHEAD: u64 = 200;

/// What passing the drive's heads takes of a run, in what it takes at the volume's beginning: tracks farther in are shorter, and between two
/// of them the heads are moved. Measured on files of 1 to 4 MiB read whole: with 1, or without it, what is copied of them is read later, up to
/// a twentieth, than where it was.
const TRANSFER: f64 = 1.5;

/// Readers that are followed, the last ones that read. Measured: 32 are alike.
const FOLLOWED: usize = 16;

/// A reader that went on where it had ended, behind reads elsewhere, so often... Measured: 4 and 16 are alike.
const TURNS: u32 = 2;

/// ...through so much is a stream among others: in which order they take turns comes once, and what is read between them would be copied far
/// apart. Measured: 256 KiB to 4 MiB are alike.
const STREAM_BYTES: u64 = 512 << 10;

/// While its reads take less than this part of a positioning: where each of them moves the arm, the drive does not read ahead, and a copy in
/// the order of that time is better than none. Measured on made-up mixtures: with 0.5 a quarter of what is gained is lost, 1 and no limit
/// are alike, but what comes in turns again as it came, with no cache to speak of, loses all of its gain.
const STREAM_COST: f64 = 0.8;

/// Whether the drive reads ahead of a run: see [`AHEAD_BYTES`].
pub(super) fn is_read_ahead(bytes: u64, took: Nanos, transfer: Nanos, positioning: Nanos) -> bool {
    let beyond = took.0.saturating_sub((transfer.0 as f64 * TRANSFER) as u64);
    bytes >= AHEAD_BYTES
        && u128::from(beyond) * u128::from(AHEAD) * 4096 < u128::from(positioning.0) * u128::from(bytes)
}

/// One that reads on and on.
#[derive(Clone, Copy, Debug)]
struct Reader {
    start: u32,
    /// Where its last read began.
    last: u32,
    end: u32,
    turns: u32,
    reads: u32,
    took: Nanos,
    left: bool,
}

impl Reader {
    fn is_stream(&self, block_bytes: u32, positioning: Nanos) -> bool {
        let bytes = u64::from(self.end - self.start) * u64::from(block_bytes);
        let is_among_others = self.turns >= TURNS
            && bytes >= STREAM_BYTES
            && self.took.0 as f64 <= STREAM_COST * positioning.0 as f64 * f64::from(self.reads);
        is_among_others || bytes > RUN_BYTES_MAX
    }
}

/// Whether a read belongs to a stream among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// It belongs to none.
    No,
    /// To what is one from now on: all of that.
    Begins(BlockRange),
    /// To one that it goes on.
    GoesOn,
}

/// Readers, the last one whose read came behind the others; at most [`FOLLOWED`].
#[derive(Clone, Debug, Default)]
pub(super) struct Streams(Vec<Reader>);

impl Streams {
    /// A read came.
    pub(super) fn came(&mut self, blocks: BlockRange) {
        let (start, end) = (blocks.start(), blocks.end());
        let Some(i) = self.0.iter().rposition(|r| (r.last..=r.end).contains(&start)) else {
            if self.0.len() == FOLLOWED {
                self.0.remove(0);
            }
            return self.0.push(Reader {
                start,
                last: start,
                end,
                turns: 0,
                reads: 0,
                took: Nanos(0),
                left: false,
            });
        };
        let turn = i + 1 < self.0.len();
        let reader = &mut self.0[i];
        reader.last = start;
        reader.end = reader.end.max(end);
        reader.turns = reader.turns.saturating_add(u32::from(turn));
        self.0[i..].rotate_left(1);
    }

    /// A read ended, and took so long.
    pub(super) fn ended(
        &mut self,
        blocks: BlockRange,
        took: Nanos,
        block_bytes: u32,
        positioning: Nanos,
    ) -> Stream {
        // Of those that read this the one that began last: who begins again within what a stream has read belongs to none.
        let read_it = |r: &&mut Reader| r.start <= blocks.start() && blocks.end() <= r.end;
        let Some(reader) = self.0.iter_mut().filter(read_it).max_by_key(|r| r.start) else {
            return Stream::No;
        };
        let before = reader.left;
        reader.reads = reader.reads.saturating_add(1);
        reader.took = Nanos(reader.took.0.saturating_add(took.0));
        reader.left = reader.is_stream(block_bytes, positioning);
        match (before, reader.left) {
            (_, false) => Stream::No,
            (false, true) => Stream::Begins(BlockRange::new(reader.start, reader.end)),
            (true, true) => Stream::GoesOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITIONING: Nanos = Nanos::from_millis(10);

    /// A read of 4 KiB blocks that comes and ends.
    fn read(streams: &mut Streams, blocks: BlockRange, took: Nanos) -> Stream {
        streams.came(blocks);
        streams.ended(blocks, took, 4096, POSITIONING)
    }

    /// What 40 reads each of these readers' in turns are, 64 KiB each of blocks of 4 KiB, which take so long.
    fn in_turns(readers: &[u32], took: Nanos) -> Vec<Stream> {
        let mut streams = Streams::default();
        let each =
            |i: u32| readers.iter().map(move |first| BlockRange::new(first + 16 * i, first + 16 * i + 16));
        (0..40).flat_map(each).map(|blocks| read(&mut streams, blocks, took)).collect()
    }

    #[test]
    fn who_reads_on_in_turns_with_others_is_a_stream_from_half_a_mib_on() {
        let parts = in_turns(&[1000, 50_000], Nanos::from_millis(5));
        assert_eq!(parts[..14], [Stream::No; 14]);
        assert_eq!(parts[14], Stream::Begins(BlockRange::new(1000, 1128)));
        assert_eq!(parts[15], Stream::Begins(BlockRange::new(50_000, 50_128)));
        assert_eq!(parts[16..], [Stream::GoesOn; 64]);
        assert_eq!(in_turns(&[1000], Nanos::from_millis(5))[..], [Stream::No; 40], "it takes no turns");
        let many: Vec<u32> = (0..FOLLOWED as u32).map(|i| 10_000 * i).collect();
        assert!(in_turns(&many, Nanos(0)).contains(&Stream::GoesOn));
        let many: Vec<u32> = (0..=FOLLOWED as u32).map(|i| 10_000 * i).collect();
        assert!(in_turns(&many, Nanos(0)).iter().all(|&p| p == Stream::No), "so many are not followed");
    }

    #[test]
    fn where_each_read_moves_the_arm_there_is_no_stream() {
        assert!(in_turns(&[1000, 50_000], Nanos::from_millis(9)).iter().all(|&p| p == Stream::No));
        assert!(in_turns(&[1000, 50_000], Nanos(u64::MAX)).iter().all(|&p| p == Stream::No));
    }

    #[test]
    fn what_is_read_behind_the_reader_belongs_to_no_stream() {
        let mut streams = Streams::default();
        let mut read = |first: u32| read(&mut streams, BlockRange::new(first, first + 16), Nanos(0));
        for i in 0..40 {
            read(1000 + 16 * i);
            read(500_000);
        }
        assert_eq!(read(1000 + 16 * 40), Stream::GoesOn);
        assert_eq!((read(1000), read(1100), read(u32::MAX - 16)), (Stream::No, Stream::No, Stream::No));
        assert_eq!(read(1000 + 16 * 40 + 8), Stream::GoesOn, "a part of it again");
    }

    /// Eight at a time come in order beside reads elsewhere, and end in any.
    #[test]
    fn in_which_order_reads_end_makes_no_difference() {
        let mut streams = Streams::default();
        let mut ends = Vec::new();
        for batch in 0..5 {
            let blocks = |i: u32| BlockRange::new(1000 + 16 * i, 1000 + 16 * i + 16);
            for i in 8 * batch..8 * batch + 8 {
                streams.came(blocks(i));
                streams.came(BlockRange::new(500_000 + 1000 * i, 500_001 + 1000 * i));
            }
            for i in [5, 0, 7, 2, 1, 6, 3, 4] {
                ends.push(streams.ended(blocks(8 * batch + i), Nanos(0), 4096, POSITIONING));
            }
        }
        assert_eq!(ends[0], Stream::Begins(BlockRange::new(1000, 1128)), "all that came of it");
        assert_eq!(ends[1..], [Stream::GoesOn; 39]);
        assert_eq!(streams.ended(BlockRange::new(539_000, 539_001), Nanos(0), 4096, POSITIONING), Stream::No);
        assert_eq!(
            streams.ended(BlockRange::new(1, 2), Nanos(0), 4096, POSITIONING),
            Stream::No,
            "it never came"
        );
    }

    #[test]
    fn who_reads_far_alone_is_a_stream_whatever_it_takes() {
        let mut streams = Streams::default();
        let far = (RUN_BYTES_MAX / (64 << 10)) as u32;
        let parts: Vec<_> = (0..far + 8)
            .map(|i| read(&mut streams, BlockRange::new(16 * i, 16 * i + 16), POSITIONING))
            .collect();
        assert_eq!(parts[..far as usize], vec![Stream::No; far as usize]);
        assert_eq!(parts[far as usize], Stream::Begins(BlockRange::new(0, 16 * far + 16)));
    }

    #[test]
    fn a_drive_reads_ahead_of_what_takes_next_to_no_time() {
        let ms = Nanos::from_millis;
        let nothing = Nanos(0);
        assert!(is_read_ahead(256 << 10, ms(1), nothing, ms(6)));
        assert!(!is_read_ahead(256 << 10, ms(2), nothing, ms(6)));
        assert!(!is_read_ahead(60 << 10, ms(0), nothing, ms(6)), "of so few nobody knows");
        // What the heads need for it is nobody's way.
        assert!(
            is_read_ahead(256 << 10, ms(10), ms(6), ms(6)) && !is_read_ahead(256 << 10, ms(11), ms(6), ms(6))
        );
    }
}
