//! Where copies go: large free runs near the heat.

use fs2_block::{BlockNo, BlockRange, Nanos, Sector};

use super::frontiers::Frontiers;
use crate::head::Head;
use crate::policy::{Place, Shape, Space};

/// Smallest free run to copy into while there are such: so many tracks, in whole MiB, and one at the least. Measured: 64 KiB to 1 MiB
/// halves a cvs update's second run again; of drives with tracks of half a MiB most win up to a tenth more with 2 MiB, but starts of programs
/// on the slowest a twentieth less; on drives with tracks of more than 2 MiB 4 to 16 MiB are alike and win up to a third more than 1.
const FREE_RUN_TRACKS: f64 = 2.0;

/// What is longer than this is looked for in so many of the groups nearest to the heat, not in all: each has a bitmap to be read first. Guess.
const FAR_RUN_BYTES: u32 = 1 << 20;
const NEAR_GROUPS: usize = 64;

/// Heat is halved after so many reads. Measured.
const HALVE_EVERY: u64 = 5_000;

/// Bins of heat over the volume: choosing a window compares each with each. Measured on real traces: 32 cost
/// servers 2 to 10 %, 512 are as good.
const BINS: u32 = 128;

/// Blocks of the window that copies fill before another place is looked for: 2 % of the volume. Measured on real traces: from
/// 0.5 to 50 % alike.
const WINDOW_SHARE: u32 = 50;

/// In this group no `least` blocks in a row were vacant when [`Space::vacated`] said so.
#[derive(Clone, Copy, Debug, Default)]
struct Poor {
    group: u32,
    /// 0: nothing is known.
    least: u32,
    vacated: u64,
}

/// Groups of which is remembered that they are poor: all of the largest volume, 16 bytes each.
const POOR_MAX: usize = 1 << 17;

/// What one call may cost that looks for a window, others waiting meanwhile: a group that is known to be poor costs 1 of it, one whose blocks
/// are looked at so many. Guess: some ms where a group has hundreds of free runs.
const SEARCH_COST: u32 = 1 << 15;
const LOOK_COST: u32 = 1 << 6;

/// A search for a new window, as far as it has come.
#[derive(Clone, Debug)]
struct Search {
    /// Groups, those nearest to the heat first, and how many of them were looked at for runs as long as now.
    order: Vec<u32>,
    seen: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    shape: Shape,
    /// At least 1.
    groups: u32,
    /// Time that reads took, by part of the volume, in ms.
    heat: Vec<f64>,
    /// Copies are placed from the volume's beginning on, wherever the heat is.
    heat_ignored: bool,
    reads: u64,
    /// The next block to copy into, and where its window ends.
    cursor: Option<(u32, u32)>,
    free_run: u32,
    /// Where the file system is about to allocate, and whether that is left free: while there is room elsewhere.
    frontiers: Frontiers,
    avoiding: bool,
    /// By group, modulo their number: where no long run was vacant.
    poor: Vec<Poor>,
    /// One that goes on at the next call.
    search: Option<Search>,
}

impl Placement {
    /// For a volume of this shape.
    pub(super) fn new(shape: &Shape) -> Placement {
        Placement {
            heat: vec![0.0; BINS.min(shape.groups()).max(1) as usize],
            heat_ignored: false,
            reads: 0,
            cursor: None,
            free_run: 1,
            frontiers: Frontiers::new(shape.block_bytes),
            avoiding: true,
            poor: vec![Poor::default(); (shape.groups() as usize).clamp(1, POOR_MAX)],
            search: None,
            groups: shape.groups().max(1),
            shape: shape.clone(),
        }
    }

    /// The file system took these blocks, which were free.
    pub(super) fn allocated(&mut self, blocks: BlockRange) {
        self.frontiers.taken(blocks);
    }

    /// Places copies from the volume's beginning on.
    pub(super) fn ignore_heat(&mut self) {
        self.heat_ignored = true;
    }

    /// A read at `block` took so long.
    pub(super) fn read(&mut self, block: BlockNo, took: Nanos) {
        self.reads += 1;
        if self.reads.is_multiple_of(HALVE_EVERY) {
            self.heat.iter_mut().for_each(|h| *h /= 2.0);
            self.frontiers.halve();
        }
        let bin = self.bin_of_group(self.shape.group_of(block));
        let bins = self.heat.len();
        self.heat[bin.min(bins - 1)] += took.as_millis_f64();
    }

    fn bin_of_group(&self, group: u32) -> usize {
        (u64::from(group) * self.heat.len() as u64 / u64::from(self.groups)) as usize
    }

    fn bin_middle(&self, bin: usize) -> Sector {
        let span = u64::from(self.shape.blocks) * self.shape.block_sectors();
        Sector(span * (2 * bin as u64 + 1) / (2 * self.heat.len() as u64))
    }

    /// Groups in the order of their mean seek from the heat.
    fn groups_by_cost(&self, head: &Head) -> Vec<u32> {
        let total: f64 = self.heat.iter().sum();
        let bins = self.heat.len();
        let cost: Vec<f64> = (0..bins)
            .map(|b| {
                let here = self.bin_middle(b).0;
                let seek = |h: usize| head.seek_ms(self.bin_middle(h).0.abs_diff(here));
                (0..bins).filter(|&h| self.heat[h] > 0.0).map(|h| self.heat[h] * seek(h)).sum::<f64>()
                    / total.max(1e-9)
            })
            .collect();
        let groups: Vec<u32> = (0..self.shape.groups()).collect();
        if self.heat_ignored {
            return groups;
        }
        // Bins are ordered, not groups: a large volume has a hundred thousand of these.
        let mut by_bin: Vec<&[u32]> =
            groups.chunk_by(|&a, &b| self.bin_of_group(a) == self.bin_of_group(b)).collect();
        by_bin.sort_by(|a, b| cost[self.bin_of_group(a[0])].total_cmp(&cost[self.bin_of_group(b[0])]));
        by_bin.concat()
    }

    /// The first `free_run` vacant blocks in a row in `part` of a group; groups without are not gone through
    /// again until something was vacated.
    fn long_run(&mut self, group: u32, part: BlockRange, space: &dyn Space) -> Option<BlockRange> {
        let (blocks, least) = (self.shape.group_range(group), self.free_run);
        let vacated = space.vacated(blocks);
        let at = group as usize % self.poor.len();
        if self.is_poor(group, vacated) {
            return None;
        }
        let mut left = part;
        loop {
            let found = space.first_vacant(left, least, least);
            if let Some(beyond) = found.and_then(|run| self.taken_soon(run)) {
                left = BlockRange::new(beyond.min(part.end()), part.end());
                continue;
            }
            if found.is_none() && left == blocks {
                self.poor[at] = Poor { group, least, vacated };
            }
            return found;
        }
    }

    /// Whether a group has no run that is long enough, as was seen when [`Space::vacated`] said so.
    fn is_poor(&self, group: u32, vacated: u64) -> bool {
        let known = self.poor[group as usize % self.poor.len()];
        known.group == group && known.vacated == vacated && (1..=self.free_run).contains(&known.least)
    }

    /// Whether a group cannot have a run that is long enough, so that its bitmap need not be read: on a large volume those of all that are
    /// full would be, before the first copy.
    fn is_too_full(&self, group: u32, space: &dyn Space) -> bool {
        space.vacant_at_most(group) < u64::from(self.free_run)
    }

    /// Where what is about to be taken ends, if that is in `run` and to be left free.
    fn taken_soon(&self, run: BlockRange) -> Option<u32> {
        if self.avoiding { self.frontiers.beyond(run) } else { None }
    }

    /// The next vacant stretch from the cursor, in ascending order, of runs that are large enough.
    fn after_cursor(&mut self, want: u32, space: &dyn Space) -> Option<Place> {
        let (at, end) = self.cursor?;
        let mut group = self.shape.group_of(BlockNo(at));
        while group < self.shape.groups() && self.shape.first_block + group * self.shape.group_blocks < end {
            if !space.is_known(group) {
                if self.is_too_full(group, space) {
                    group += 1;
                    continue;
                }
                return Some(Place::NeedsGroup(group));
            }
            let blocks = self.shape.group_range(group);
            let rest = BlockRange::new(at.max(blocks.start()), blocks.end());
            // A run that was begun is filled to its end: it starts at the cursor.
            let next =
                BlockRange::new(rest.start(), rest.end().min(rest.start().saturating_add(want.max(1))));
            let begun = space.first_vacant(next, 1, want).filter(|r| r.start() == at);
            let begun = begun.filter(|&r| self.taken_soon(r).is_none());
            let found = begun.or_else(|| {
                // It is as long as it has to be; more may be wanted.
                let run = self.long_run(group, rest, space)?;
                let all = BlockRange::new(run.start(), blocks.end().min(run.start().saturating_add(want)));
                let longer = (run.len() < want).then(|| space.first_vacant(all, run.len(), want)).flatten();
                longer.filter(|&r| r.start() == run.start() && self.taken_soon(r).is_none()).or(Some(run))
            });
            if let Some(run) = found {
                let len = run.len().min(want);
                self.cursor = Some((run.start() + len, end));
                let place = BlockRange::new(run.start(), run.start() + len);
                let ends = len < want && (want < self.free_run || self.runs_are_long());
                return Some(if ends { Place::Ends(place) } else { Place::At(place) });
            }
            group += 1;
        }
        self.cursor = None;
        None
    }

    /// The blocks of a free run that is looked for in all groups.
    fn far_run(&self) -> u32 {
        FAR_RUN_BYTES / self.shape.block_bytes
    }

    /// Whether the free runs that copies go to are so long that what is left at the end of one is little of it.
    fn runs_are_long(&self) -> bool {
        self.free_run >= self.far_run()
    }

    /// From the beginning: for the longest runs, in all groups.
    fn begin_search(&mut self, head: &Head) -> Search {
        let tracks = FREE_RUN_TRACKS * head.media_bytes_a_ms() * head.turn_ms();
        let mib = (tracks / f64::from(FAR_RUN_BYTES)).max(1.0) as u32;
        self.free_run = mib.saturating_mul(self.far_run());
        self.avoiding = true;
        Search { order: self.groups_by_cost(head), seen: 0 }
    }

    /// Where the next `want` blocks go.
    pub(super) fn place(&mut self, want: u32, head: &Head, space: &dyn Space) -> Place {
        if let Some(place) = self.after_cursor(want, space) {
            return place;
        }
        // A new window: the cheapest group by mean seek from the heat that has a large free run; the
        // size asked for is halved while there is none.
        let window = (self.shape.blocks / WINDOW_SHARE).max(self.shape.group_blocks);
        let Search { order, mut seen } = self.search.take().unwrap_or_else(|| self.begin_search(head));
        let mut left = SEARCH_COST;
        loop {
            let groups = if self.free_run > self.far_run() { NEAR_GROUPS } else { order.len() };
            for (at, &group) in order.iter().enumerate().take(groups).skip(seen) {
                if left == 0 {
                    self.search = Some(Search { order, seen: at });
                    return Place::Later;
                }
                let looks = space.is_known(group)
                    && !self.is_poor(group, space.vacated(self.shape.group_range(group)));
                left = left.saturating_sub(if looks { LOOK_COST } else { 1 });
                if !space.is_known(group) {
                    if self.is_too_full(group, space) {
                        continue;
                    }
                    return Place::NeedsGroup(group);
                }
                if let Some(run) = self.long_run(group, self.shape.group_range(group), space) {
                    self.cursor =
                        Some((run.start(), run.start().saturating_add(window).min(self.shape.blocks)));
                    return self.after_cursor(want, space).unwrap_or(Place::Nowhere);
                }
            }
            seen = 0;
            match (self.avoiding, self.free_run) {
                (true, _) => self.avoiding = false,
                (false, ..=1) => return Place::Nowhere,
                // Not past what is looked for in all groups: whole MiB are no powers of two.
                (false, run) if run > self.far_run() => {
                    (self.avoiding, self.free_run) = (true, (run / 2).max(self.far_run()));
                }
                (false, _) => (self.avoiding, self.free_run) = (true, self.free_run / 2),
            }
        }
    }

    /// The part of the volume where reads took longest.
    pub(super) fn hot_region(&self) -> Option<BlockRange> {
        let (bin, _) =
            self.heat.iter().enumerate().filter(|h| *h.1 > 0.0).max_by(|a, b| a.1.total_cmp(b.1))?;
        let bins = self.heat.len() as u64;
        let blocks = u64::from(self.shape.blocks);
        Some(BlockRange::new((blocks * bin as u64 / bins) as u32, (blocks * (bin as u64 + 1) / bins) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of many groups, in runs; counts the groups that are looked at.
    struct Wide {
        free: roaring::RoaringBitmap,
        looks: std::cell::Cell<u32>,
    }

    impl Space for Wide {
        fn vacant(&self, _: u32) -> Option<Vec<BlockRange>> {
            None
        }
        fn is_known(&self, _: u32) -> bool {
            true
        }
        fn first_vacant(&self, within: BlockRange, least: u32, enough: u32) -> Option<BlockRange> {
            self.looks.set(self.looks.get() + 1);
            let mut runs = self.free.range(within.start()..within.end());
            while let Some(run) = runs.next_range() {
                if run.end() - run.start() + 1 >= least {
                    let end = (run.end() + 1).min(run.start() + enough);
                    return Some(BlockRange::new(*run.start(), end));
                }
            }
            None
        }
        fn vacated(&self, _: BlockRange) -> u64 {
            0
        }
        fn has_replica(&self, _: BlockNo) -> bool {
            false
        }
        fn copies(&self, _: BlockNo) -> usize {
            0
        }
        fn room(&self) -> usize {
            8000
        }
    }

    /// On a large volume without long runs: in pieces, what a search in one go finds, in the groups in the order of each by itself.
    #[test]
    fn a_window_is_searched_for_in_pieces() {
        const GROUPS: u32 = 3000;
        let shape = Shape {
            blocks: GROUPS * 1024 - 500,
            group_blocks: 1024,
            first_block: 0,
            block_bytes: 4096,
            seed: 0,
        };
        let (mut random, mut in_pieces) = (88_172_645_463_325_252u64, 0);
        let mut draw = |below: u32| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) as u32 % below
        };
        for longest in [0, 1, 3, 9, 40, 300, 1000] {
            let mut p = Placement::new(&shape);
            let head = Head::new(None);
            for _ in 0..draw(40) {
                p.read(BlockNo(draw(shape.blocks)), Nanos::from_millis(u64::from(draw(20))));
            }
            let mut free = roaring::RoaringBitmap::new();
            for group in (0..GROUPS).filter(|_| longest > 0) {
                let start = group * 1024 + draw(20);
                free.insert_range(start..start + 1 + draw(longest));
            }
            let total: f64 = p.heat.iter().sum();
            let cost = |group: u32| {
                let here = p.bin_middle(p.bin_of_group(group)).0;
                let of = |h: usize| p.heat[h] * head.seek_ms(p.bin_middle(h).0.abs_diff(here));
                (0..p.heat.len()).filter(|&h| p.heat[h] > 0.0).map(of).sum::<f64>() / total.max(1e-9)
            };
            let mut order: Vec<u32> = (0..GROUPS).collect();
            let costs: Vec<f64> = order.iter().map(|&group| cost(group)).collect();
            order.sort_by(|&a, &b| costs[a as usize].total_cmp(&costs[b as usize]).then(a.cmp(&b)));
            assert_eq!(p.groups_by_cost(&head), order, "up to {longest}");

            let space = Wide { free, looks: 0.into() };
            let first = |least: u32| {
                order.iter().find_map(|&g| space.first_vacant(shape.group_range(g), least, least))
            };
            let sizes = (0..9).rev().map(|n| 1 << n);
            let expected = sizes.filter_map(first).next();
            let found = loop {
                space.looks.set(0);
                let place = p.place(8, &head, &space);
                assert!(space.looks.get() <= SEARCH_COST / LOOK_COST + 4, "{} looks", space.looks.get());
                if place != Place::Later {
                    break place;
                }
                in_pieces += 1;
            };
            let start = match found {
                Place::At(run) | Place::Ends(run) => Some(run.start()),
                Place::Nowhere => None,
                other => panic!("{other:?}"),
            };
            assert_eq!(start, expected.map(|run| run.start()), "up to {longest}");
        }
        assert!(in_pieces > 20, "{in_pieces}");
    }

    /// 8,000 blocks in two groups, of which `taken` is taken.
    struct Ground {
        taken: BlockRange,
    }

    impl Space for Ground {
        fn vacant(&self, _: u32) -> Option<Vec<BlockRange>> {
            None
        }
        fn is_known(&self, _: u32) -> bool {
            true
        }
        fn first_vacant(&self, within: BlockRange, least: u32, enough: u32) -> Option<BlockRange> {
            let before =
                BlockRange::new(within.start(), within.end().min(self.taken.start()).max(within.start()));
            let behind =
                BlockRange::new(within.start().max(self.taken.end()).min(within.end()), within.end());
            let found = [before, behind].into_iter().find(|r| r.len() >= least.max(1))?;
            Some(BlockRange::new(found.start(), found.end().min(found.start() + enough)))
        }
        fn vacated(&self, _: BlockRange) -> u64 {
            0
        }
        fn has_replica(&self, _: BlockNo) -> bool {
            false
        }
        fn copies(&self, _: BlockNo) -> usize {
            0
        }
        fn room(&self) -> usize {
            8000
        }
    }

    fn placement() -> Placement {
        let shape = Shape { blocks: 8000, group_blocks: 4000, first_block: 0, block_bytes: 4096, seed: 0 };
        Placement::new(&shape)
    }

    fn at(start: u32, end: u32) -> BlockRange {
        BlockRange::new(start, end)
    }

    #[test]
    fn what_is_about_to_be_taken_is_left_free() {
        let (mut p, head) = (placement(), Head::new(None));
        let place = |p: &mut Placement, taken: BlockRange| p.place(100, &head, &Ground { taken });
        // A file was written; it will go on.
        p.allocated(at(0, 9));
        p.allocated(at(9, 10));
        assert_eq!(place(&mut p, at(0, 10)), Place::At(at(267, 367)));
        assert_eq!(place(&mut p, at(0, 367)), Place::At(at(367, 467)));
        // Another comes near.
        p.allocated(at(380, 389));
        p.allocated(at(389, 390));
        assert_eq!(place(&mut p, at(0, 467)), Place::At(at(647, 747)));
    }

    #[test]
    fn where_a_run_ends_is_told_but_not_where_all_are_short() {
        let (mut p, head) = (placement(), Head::new(None));
        // 300 blocks are free, then 100 are taken.
        let place =
            |p: &mut Placement, from: u32| p.place(120, &head, &Ground { taken: at(from, from + 100) });
        assert_eq!(place(&mut p, 300), Place::At(at(0, 120)));
        assert_eq!(place(&mut p, 300), Place::At(at(120, 240)));
        assert_eq!(place(&mut p, 300), Place::Ends(at(240, 300)));
        assert_eq!(place(&mut p, 300), Place::At(at(400, 520)));
        p.free_run = 120;
        assert_eq!(place(&mut p, 580), Place::At(at(520, 580)));
    }

    /// More is written at a time than a free run has to have: where long runs ended was told of none.
    #[test]
    fn a_long_run_takes_all_it_has_room_for_and_where_it_ends_is_told() {
        let (mut p, head) = (placement(), Head::new(None));
        let mut place = || p.place(290, &head, &Ground { taken: at(300, 400) });
        assert_eq!(place(), Place::At(at(0, 290)));
        assert_eq!(place(), Place::Ends(at(290, 300)));
        assert_eq!(place(), Place::At(at(400, 690)));
        // But not what a file is about to grow into.
        p.allocated(at(1260, 1269));
        p.allocated(at(1269, 1270));
        let taken = at(0, 1000);
        assert_eq!(p.place(290, &head, &Ground { taken }), Place::Ends(at(1000, 1256)));
    }

    /// A thousand groups, in each of which from `full` on 300 blocks are free in a row, and which bitmaps were read.
    #[derive(Default)]
    struct Pieces {
        known: std::collections::BTreeSet<u32>,
        full: u32,
        /// Before that one so many.
        pieces: u32,
        /// What descriptors say of these, or, for 0, no more than that.
        free: u64,
    }

    impl Space for Pieces {
        fn vacant(&self, _: u32) -> Option<Vec<BlockRange>> {
            None
        }
        fn is_known(&self, group: u32) -> bool {
            self.known.contains(&group)
        }
        fn vacant_at_most(&self, group: u32) -> u64 {
            if group < self.full { u64::from(self.pieces) } else { self.free.max(300) }
        }
        fn first_vacant(&self, within: BlockRange, least: u32, enough: u32) -> Option<BlockRange> {
            let group = within.start() / 4000;
            let blocks = if group < self.full { self.pieces } else { 300 };
            let free = at(group * 4000 + 10, group * 4000 + 10 + blocks).intersect(within);
            (free.len() >= least.max(1)).then(|| at(free.start(), free.start() + free.len().min(enough)))
        }
        fn vacated(&self, _: BlockRange) -> u64 {
            0
        }
        fn has_replica(&self, _: BlockNo) -> bool {
            false
        }
        fn copies(&self, _: BlockNo) -> usize {
            0
        }
        fn room(&self) -> usize {
            8000
        }
    }

    /// Where the next 100 blocks go, once every bitmap was read that is asked for.
    fn place_in(p: &mut Placement, head: &Head, space: &mut Pieces) -> Place {
        loop {
            match p.place(100, head, space) {
                Place::NeedsGroup(group) => assert!(space.known.insert(group)),
                place => return place,
            }
        }
    }

    fn thousand_groups() -> Placement {
        let shape =
            Shape { blocks: 4_000_000, group_blocks: 4000, first_block: 0, block_bytes: 4096, seed: 0 };
        Placement::new(&shape)
    }

    /// Found: before it took a shorter run it had the bitmap of every group read.
    #[test]
    fn longer_runs_are_looked_for_nearby_only() {
        let drive = fs2_disk::DriveProfile::builtin("nearline-hc310").ok();
        let (mut p, mut space, head) = (thousand_groups(), Pieces::default(), Head::new(drive));
        // All may be vacant, as far as descriptors tell.
        space.free = 4000;
        let place = place_in(&mut p, &head, &mut space);
        assert_eq!((place, space.known.len()), (Place::At(at(10, 110)), NEAR_GROUPS));
    }

    /// Found: on a drive with tracks of two and a half MiB runs of 1.25 MiB were looked for, nearby, and then of 640 KiB, so that copies lay in
    /// smaller pieces than on a drive with tracks of two.
    #[test]
    fn a_free_mib_is_looked_for_everywhere_on_any_drive() {
        let drive = fs2_disk::DriveProfile::builtin("exos-x24").ok();
        let (mut p, head) = (thousand_groups(), Head::new(drive));
        let mut space = Pieces { full: 900, pieces: 200, ..Pieces::default() };
        assert_eq!(place_in(&mut p, &head, &mut space), Place::At(at(3_600_010, 3_600_110)));
    }

    /// Found: where all groups near the heat are full, the first copy waited until each of their bitmaps had been read.
    #[test]
    fn bitmaps_of_groups_without_room_are_not_asked_for() {
        let (mut p, head) = (thousand_groups(), Head::new(None));
        let mut space = Pieces { full: 900, ..Pieces::default() };
        let place = place_in(&mut p, &head, &mut space);
        assert_eq!(place, Place::At(at(3_600_010, 3_600_110)));
        assert_eq!(space.known.into_iter().collect::<Vec<_>>(), [900]);
        // Nor on the way from one to the next.
        p.cursor = Some((0, 4_000_000));
        let mut space = Pieces { full: 950, ..Pieces::default() };
        assert_eq!(place_in(&mut p, &head, &mut space), Place::At(at(3_800_010, 3_800_110)));
        assert_eq!(space.known.into_iter().collect::<Vec<_>>(), [950]);
        // And of a volume without any room of none.
        let mut space = Pieces { full: 1000, ..Pieces::default() };
        assert_eq!(place_in(&mut p, &head, &mut space), Place::Nowhere);
        assert!(space.known.is_empty());
    }

    #[test]
    fn where_there_is_nothing_else_it_is_used() {
        let (mut p, head) = (placement(), Head::new(None));
        p.allocated(at(0, 5000));
        p.allocated(at(5000, 6000));
        // All that is left may be taken.
        assert_eq!(p.place(100, &head, &Ground { taken: at(0, 6000) }), Place::At(at(6000, 6100)));
        assert_eq!(p.place(100, &head, &Ground { taken: at(0, 6100) }), Place::At(at(6100, 6200)));
    }
}
