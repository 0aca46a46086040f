//! The invariants, asserted.

use std::collections::BTreeSet;

use fs2_block::BlockRange;

use super::{Kind, Purpose, Source, Standing, Volume};

impl Volume {
    /// Asserts every invariant of the module. What it does not check: that F holds no block the file
    /// system uses, and that copies equal their originals; only the models in `fs2-sim` know that.
    ///
    /// # Panics
    /// With the numbers, where one is broken.
    pub fn check(&self) {
        self.log.check();
        if let Some(crowd) = &self.crowd {
            crowd.check(&self.requests);
        }
        self.check_flushes();
        if matches!(self.standing, Standing::Inactive(_)) {
            assert!(self.table.is_empty(), "an inactive volume has {} replicas", self.table.len());
            assert!(self.log.is_empty(), "an inactive volume copies");
            return;
        }
        self.check_table();
        self.check_holds();
        for (seq, p) in self.requests.iter() {
            assert_eq!(p.active, !self.waiting.contains_key(seq), "request {seq} waits or is in flight");
            if p.active && p.kind != Kind::Read {
                assert!(
                    self.mark.is_gone() || !self.config.plants.is_empty(),
                    "I4: request {seq} passed the mark"
                );
            }
        }
    }

    fn check_flushes(&self) {
        let purposes =
            self.urgent.iter().map(|u| &u.purpose).chain(self.in_flight.values().map(|io| &io.purpose));
        let on_their_way = purposes.filter_map(|p| match p {
            Purpose::Flush(waiters) => Some(waiters),
            _ => None,
        });
        let waiters = on_their_way.flatten().chain(&self.flush_waiting);
        let open: BTreeSet<_> = waiters.filter_map(|w| w.client()).collect();
        assert!(
            open.iter().eq(self.flushes.keys()),
            "flushes of {open:?} wait, and {:?} are open",
            self.flushes
        );
    }

    fn check_table(&self) {
        let Some(live) = &self.live else { return };
        for e in self.table.iter() {
            let group = live.layout().group_of(e.replica);
            assert!(
                live.in_universe(e.replica),
                "I1: replica of {} in {}, not in the universe",
                e.original,
                e.replica
            );
            assert!(
                live.is_free(e.replica) || live.frozen().is_some() || !live.is_loaded(group),
                "I1: replica of {} in {}, which is not free",
                e.original,
                e.replica
            );
        }
        for (seq, p) in self.requests.iter() {
            if matches!(p.kind, Kind::Write | Kind::Zeroes) {
                let originals = self.table.any_in_originals(p.blocks);
                assert!(!originals, "I2: request {seq} writes an original of {}", p.blocks);
                let replicas = self.table.replicas_in(p.blocks);
                assert!(replicas.is_empty(), "I2: request {seq} writes a replica in {}", p.blocks);
            }
        }
        for io in self.in_flight.values() {
            match &io.purpose {
                Purpose::Copy(job) => {
                    let there = self.table.replicas_in(job.target);
                    assert!(there.is_empty(), "I2: a copy into {} over a replica", job.target);
                }
                Purpose::Client { source: Source::Copy { first, hashes }, .. } => {
                    let pinned = BlockRange::at(*first, hashes.len() as u32);
                    let held = self.holds.iter().any(|h| h.extent == pinned.extent(self.block_size));
                    assert!(held, "I3: the copy read in {pinned} is not pinned");
                }
                _ => {}
            }
        }
    }

    fn check_holds(&self) {
        for (i, a) in self.holds.iter().enumerate() {
            assert!(self.in_flight.contains_key(a.io.0), "a hold of an I/O that ended");
            for b in &self.holds[i + 1..] {
                let clash = a.io != b.io && (a.exclusive || b.exclusive) && a.extent.overlaps(b.extent);
                assert!(
                    !clash,
                    "I3: I/Os {:?} and {:?} in flight overlap at {} and {}",
                    a.io, b.io, a.extent, b.extent
                );
            }
        }
    }
}
