//! How far the arm has to go next, by where a read leaves it.
//!
//! What is read in no order goes on nowhere, and the place that is reached soonest may be one from which all else is far. What comes next
//! mostly lies where accesses lately went: at copies or originals, wherever they were read, and at what is written. But who reads what has
//! no copy mostly goes on nearby, and there the arm has to come back to from a copy that lies elsewhere.

use fs2_block::BlockNo;

use crate::head::Head;
use crate::policy::Shape;

/// Parts of the volume told apart at the most, and half as many at the least. As of its heat: not measured here.
const PARTS: u32 = 128;

/// The ways are reckoned anew every so many accesses, which takes 15 µs, and each time what was seen before counts for less. Measured on
/// made-up servers: halved after 500 to 10,000 accesses, alike.
const ANEW_EVERY: u32 = 512;
const FADES: f64 = 0.85;

/// How far one read moves the share of those that stay in its part. Not measured.
const STAYS_RATE: f64 = 1.0 / 64.0;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Onward {
    /// A part is two to the power of this many blocks.
    shift: u32,
    part_sectors: u64,
    /// Accesses that moved the arm, by part of the volume, of so many.
    moved: Vec<f64>,
    of: f64,
    seen: u32,
    due: bool,
    /// The mean seek to the next access from each part, in ms; one that moves nothing takes none.
    seeks: Vec<f64>,
    /// What seeks take between parts so many apart, in ms: kept for its memory, which nobody is to wait for.
    apart: Vec<f64>,
    /// By part, of what was read there lately, wherever it came from, the share that was followed by what moves the arm to the same part and has no copy.
    stays: Vec<f64>,
    /// The part that was read last, unless something was written since.
    last: Option<usize>,
}

impl Onward {
    /// For a volume of this shape.
    pub(super) fn new(shape: &Shape) -> Onward {
        let last = shape.blocks.saturating_sub(1);
        let shift = (last / PARTS).checked_ilog2().map_or(0, |n| n + 1);
        let none = || vec![0.0; (last >> shift) as usize + 1];
        let part_sectors = shape.block_sectors() << shift;
        Onward {
            shift,
            part_sectors,
            moved: none(),
            of: 0.0,
            seen: 0,
            due: false,
            seeks: none(),
            apart: none(),
            stays: none(),
            last: None,
        }
    }

    fn part(&self, block: BlockNo) -> usize {
        ((block.0 >> self.shift) as usize).min(self.moved.len() - 1)
    }

    /// What was asked for begins at `first`, came from `place`, for which the arm had to move or not, and has a copy or not.
    pub(super) fn read(&mut self, first: BlockNo, place: BlockNo, moved: bool, has_copy: bool) {
        self.followed(first, moved && !has_copy);
        self.last = Some(self.part(first));
        self.accessed(place, moved);
    }

    /// Something was written from `first` on.
    pub(super) fn written(&mut self, first: BlockNo) {
        self.followed(first, true);
        self.last = None;
        self.accessed(first, true);
    }

    /// Behind the last read came this, which brings the arm to where it is asked for or not.
    fn followed(&mut self, first: BlockNo, brings: bool) {
        if let Some(last) = self.last {
            let stays = brings && self.part(first) == last;
            self.stays[last] += (f64::from(u8::from(stays)) - self.stays[last]) * STAYS_RATE;
        }
    }

    /// There was an access at `block`, for which the arm had to move or not.
    fn accessed(&mut self, block: BlockNo, moved: bool) {
        let part = self.part(block);
        self.moved[part] += f64::from(u8::from(moved));
        self.of += 1.0;
        self.seen += 1;
        if self.seen == ANEW_EVERY {
            self.moved.iter_mut().for_each(|n| *n *= FADES);
            self.of *= FADES;
            (self.seen, self.due) = (0, true);
        }
    }

    /// Reckons the ways anew, if that is due.
    pub(super) fn reckon(&mut self, head: &Head) {
        if std::mem::take(&mut self.due) {
            let Onward { part_sectors, moved, of, seeks, apart, .. } = self;
            for (n, ms) in apart.iter_mut().enumerate() {
                *ms = head.seek_ms(*part_sectors * n as u64);
            }
            for (from, seek) in seeks.iter_mut().enumerate() {
                let ways = moved.iter().enumerate().filter(|&(to, _)| to != from);
                *seek = ways.map(|(to, n)| n * apart[to.abs_diff(from)]).sum::<f64>() / *of;
            }
        }
    }

    /// The mean seek to the next access, in ms, from where a read of what begins at `first` leaves the arm that was served at `place`; 0
    /// before anything is known.
    pub(super) fn seek_ms(&self, first: BlockNo, place: BlockNo) -> f64 {
        let (home, from) = (self.part(first), self.part(place));
        let stays = self.stays[home];
        let back = if from == home { 0.0 } else { self.apart[from.abs_diff(home)] };
        stays * back + (1.0 - stays) * self.seeks[from]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn onward() -> (Onward, Head) {
        let shape =
            Shape { blocks: 12_800_000, group_blocks: 32_768, first_block: 0, block_bytes: 4096, seed: 0 };
        (Onward::new(&shape), Head::new(fs2_disk::DriveProfile::builtin("wd800-repaired").ok()))
    }

    /// From each of these blocks.
    fn seeks<const N: usize>(o: &mut Onward, head: &Head, blocks: [u32; N]) -> [f64; N] {
        o.reckon(head);
        blocks.map(|b| o.seek_ms(BlockNo(b), BlockNo(b)))
    }

    /// So many accesses at this block.
    fn at(o: &mut Onward, block: u32, accesses: u32, moved: bool) {
        (0..accesses).for_each(|_| o.accessed(BlockNo(block), moved));
    }

    #[test]
    fn nearest_to_all_else_is_where_most_of_it_is() {
        let (mut o, head) = onward();
        assert_eq!(seeks(&mut o, &head, [0]), [0.0]);
        for _ in 0..ANEW_EVERY {
            at(&mut o, 1_000_000, 3, true);
            at(&mut o, 9_000_000, 1, true);
        }
        let [here, between, there] = seeks(&mut o, &head, [1_000_000, 5_000_000, 9_000_000]);
        assert!(here < between && between < there, "{here} {between} {there}");
        // Of four accesses one is as far as the places lie apart.
        let way = head.seek_ms(8_000_000 * 8);
        assert!(
            (here / way - 0.25).abs() < 0.02 && (there / way - 0.75).abs() < 0.02,
            "{here} {there} of {way}"
        );
    }

    #[test]
    fn what_the_drive_has_cached_moves_nothing() {
        let (mut o, head) = onward();
        at(&mut o, 9_000_000, ANEW_EVERY, true);
        let [all] = seeks(&mut o, &head, [1_000_000]);
        at(&mut o, 9_000_000, 2 * ANEW_EVERY, false);
        let [some] = seeks(&mut o, &head, [1_000_000]);
        assert!(some < 0.4 * all, "{some} of {all}");
    }

    #[test]
    fn what_was_is_forgotten() {
        let (mut o, head) = onward();
        at(&mut o, 1_000_000, 1_000_000, true);
        at(&mut o, 9_000_000, 10_000, true);
        let [there, here] = seeks(&mut o, &head, [1_000_000, 9_000_000]);
        assert!(here < 0.1 * there, "{here} {there}");
    }

    #[test]
    fn from_a_copy_the_arm_comes_back_to_what_has_none() {
        let (mut o, head) = onward();
        let (home, copy) = (BlockNo(1_000_000), BlockNo(9_000_000));
        let way = head.seek_ms(8_000_000 * 8);
        // Read as often at home as at copies, all over.
        for n in 0..u64::from(ANEW_EVERY) {
            let at = if n % 2 == 0 { home } else { copy };
            o.read(BlockNo(5_000_000), at, true, true);
        }
        o.reckon(&head);
        let both = |o: &Onward| (o.seek_ms(home, home), o.seek_ms(home, copy));
        let before = both(&o);
        assert!(
            (before.0 / way - 0.5).abs() < 0.02 && (before.1 / way - 0.5).abs() < 0.02,
            "{before:?} of {way}"
        );
        // Of what has a copy too, or comes from the drive's cache, or is elsewhere, nothing is learnt.
        (0..500).for_each(|_| o.read(home, home, true, true));
        (0..500).for_each(|_| o.read(home, home, false, false));
        (0..500).for_each(|n| o.read([copy, home][n % 2], home, true, false));
        assert_eq!(o.stays[o.part(home)], 0.0);
        (0..500).for_each(|_| o.read(home, home, true, false));
        let (stayed, left) = both(&o);
        assert!(stayed < 0.01 * way && (left / way - 1.0).abs() < 0.02, "{stayed} {left} of {way}");
        // What is written behind each read brings the arm elsewhere, or back.
        for _ in 0..500 {
            o.read(home, home, true, true);
            o.written(copy);
        }
        assert!(o.stays[o.part(home)] < 0.01);
        for _ in 0..500 {
            o.read(home, home, true, true);
            o.written(home);
        }
        assert!(o.stays[o.part(home)] > 0.99);
    }

    #[test]
    fn every_volume_has_parts() {
        let head = Head::new(None);
        for (blocks, parts) in [
            (0, 1),
            (1, 1),
            (127, 127),
            (128, 128),
            (129, 65),
            (256, 128),
            (257, 65),
            (1 << 31, 128),
            (u32::MAX, 128),
        ] {
            let shape = Shape { blocks, group_blocks: 8192, first_block: 0, block_bytes: 1024, seed: 0 };
            let mut o = Onward::new(&shape);
            assert_eq!(o.moved.len(), parts, "{blocks}");
            at(&mut o, u32::MAX, ANEW_EVERY, true);
            assert_eq!(seeks(&mut o, &head, [u32::MAX]), [0.0], "{blocks}");
        }
    }
}
