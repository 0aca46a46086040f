//! One number for a machine's state, for models that must know whether they were here before.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{IoId, Purpose, Volume};
use crate::io::IoData;

impl Volume {
    /// A number that two machines with the same settings share if they will behave alike, whatever
    /// names their requests, I/Os and runs of the log have had. Left out, because they do not decide
    /// what may be read or written: counters, times of accesses, the belief about the head, the
    /// entries' warmth.
    pub fn digest(&self) -> u64 {
        let h = &mut DefaultHasher::new();
        debug(&self.standing, h);
        if let Some(live) = &self.live {
            live.hash(h);
        }
        self.digest_table(h);
        self.digest_requests(h);
        self.digest_io(h);
        (
            self.distrusted,
            self.flush_failed,
            self.write_failed,
            self.copying,
            self.copies_off,
            self.host_short,
        )
            .hash(h);
        let before_flush = self.forced.iter().filter(|&&seq| seq < self.flush_behind).count();
        (before_flush * usize::from(!self.flush_waiting.is_empty())).hash(h);
        debug(&(&self.flush_waiting, &self.late_discards, &self.groups_wanted), h);
        debug(&(&self.punches, &self.alarm, &self.sweep_after, &self.detach), h);
        self.log.digest(h);
        self.unreadable.iter().for_each(|block| block.hash(h));
        (self.looked_below, self.next_look, self.next_table_flush, self.page_written).hash(h);
        self.last_activity.hash(h);
        if !self.policy.eager() {
            self.patience.hash(h);
        }
        self.policy.digest().hash(h);
        h.finish()
    }

    fn digest_table(&self, h: &mut DefaultHasher) {
        for e in self.table.iter() {
            e.hash(h);
        }
        for verified in [false, true] {
            let changes: Vec<u32> = self.table.pages_needing_flag_change(verified).collect();
            changes.hash(h);
        }
        let mut page = self.table.next_dirty_page(None);
        while let Some(p) = page {
            p.hash(h);
            page = self.table.next_dirty_page(Some(p));
        }
        if let Some(home) = &self.home {
            (home.generation, home.slot, home.owned).hash(h);
        }
        debug(&(self.mark, self.erase_tries), h);
        (&self.bitmap_checksums, &self.bitmaps_written).hash(h);
        (&self.backups, &self.backups_written).hash(h);
    }

    fn digest_requests(&self, h: &mut DefaultHasher) {
        for p in self.requests.values() {
            debug(&(&p.request, p.kind, p.active, &p.tried, p.tainted), h);
            debug(&(&p.overwritten, &p.groups), h);
            self.digest_ids(&p.ack_after, h);
        }
        for ack in &self.acks {
            (ack.request, ack.result).hash(h);
            self.digest_ids(&ack.after, h);
        }
        for r in &self.replies {
            (r.request, r.result).hash(h);
        }
    }

    fn digest_io(&self, h: &mut DefaultHasher) {
        for io in self.in_flight.values() {
            (io.target, io.extent).hash(h);
            debug(&io.op, h);
            self.digest_purpose(&io.purpose, h);
        }
        let mut holds: Vec<_> = self.holds.iter().map(|x| (self.rank(x.io), x.extent, x.exclusive)).collect();
        holds.sort_unstable();
        holds.hash(h);
        for u in &self.urgent {
            (u.target, u.extent).hash(h);
            debug(&u.op, h);
            if let IoData::Engine(bytes) = &u.data {
                bytes.hash(h);
            }
            self.digest_purpose(&u.purpose, h);
        }
        (self.background.map(|io| self.rank(io)), self.flush_active.map(|io| self.rank(io))).hash(h);
        self.write_cache.has_copy().hash(h);
    }

    fn digest_purpose(&self, purpose: &Purpose, h: &mut DefaultHasher) {
        match purpose {
            Purpose::Client { seq, source } => {
                self.requests.rank(*seq).hash(h);
                debug(source, h);
            }
            other => debug(other, h),
        }
    }

    fn digest_ids(&self, ids: &[IoId], h: &mut DefaultHasher) {
        for &io in ids {
            self.rank(io).hash(h);
        }
    }

    /// How many I/Os in flight were dispatched before this one.
    fn rank(&self, io: IoId) -> usize {
        self.in_flight.rank(io.0)
    }
}

fn debug(x: &impl std::fmt::Debug, h: &mut DefaultHasher) {
    struct Into<'a>(&'a mut DefaultHasher);
    impl std::fmt::Write for Into<'_> {
        fn write_str(&mut self, s: &str) -> std::fmt::Result {
            self.0.write(s.as_bytes());
            Ok(())
        }
    }
    // Writing into a hasher cannot fail.
    let _ = std::fmt::Write::write_fmt(&mut Into(h), format_args!("{x:?};"));
}
