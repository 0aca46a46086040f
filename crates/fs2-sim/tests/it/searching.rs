//! A place that is looked for in pieces: what comes behind copies waits, and who has nothing else to do asks again.

use fs2_block::{Nanos, Op};
use fs2_engine::policy::{Asked, Fetch, Place, Policy, PolicyKind, ReadSeen, Space};
use fs2_engine::{Brought, Head, IoOp, Log};
use fs2_sim::glue::Scripted;

use crate::session::{BLOCK, Session, config};

/// Finds the place when it is asked for the third time, and has something to read meanwhile.
#[derive(Clone, Debug)]
struct Slow {
    as_said: Scripted,
    pieces: u8,
}

impl Policy for Slow {
    fn kind(&self) -> PolicyKind {
        self.as_said.kind()
    }
    fn choose(&mut self, now: Nanos, head: &Head, asked: &Asked<'_>) -> Option<usize> {
        self.as_said.choose(now, head, asked)
    }
    fn read_seen(&mut self, seen: &ReadSeen<'_>, space: &dyn Space, log: &mut Log) {
        self.as_said.read_seen(seen, space, log);
    }
    fn idle(&mut self, _: Nanos, _: &mut Log) {}
    fn eager(&self) -> bool {
        true
    }
    fn place(&mut self, want: u32, head: &Head, space: &dyn Space) -> Place {
        match self.pieces {
            0 => self.as_said.place(want, head, space),
            _ => {
                self.pieces -= 1;
                Place::Later
            }
        }
    }
    fn fetch_at(&self, idle_since: Nanos) -> Option<Nanos> {
        self.as_said.fetch_at(idle_since)
    }
    fn fetch(&mut self, rested: Nanos, space: &dyn Space) -> Fetch {
        self.as_said.fetch(rested, space)
    }
    fn fetched(&mut self, blocks: fs2_block::BlockRange, data: Brought<'_>, hashes: &[u64], log: &mut Log) {
        self.as_said.fetched(blocks, data, hashes, log);
    }
    fn hot_region(&self) -> Option<fs2_block::BlockRange> {
        None
    }
    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

#[test]
fn what_comes_behind_copies_waits_for_the_search() {
    let mut s = Session::plain(config());
    s.write(1500, 1, 1).unwrap();
    s.idle(10_000);
    let as_said = Scripted { capture: true, target: Some(1300), fetch: Some(1103), ..Scripted::default() };
    s.volume.set_policy(Box::new(Slow { as_said, pieces: 2 }));
    s.submit(Op::Read, 1100 * BLOCK as u64, 3 * BLOCK as u64, None);
    let read = s.dispatch().unwrap();
    s.complete(read);
    for _ in 0..2 {
        assert!(s.dispatch().is_none(), "nothing is fetched before");
        assert!(s.volume.is_still_searching() && !s.volume.is_still_searching(), "it is told once");
    }
    let copy = s.dispatch().unwrap();
    assert!(matches!(copy.op, IoOp::Write { .. }) && copy.extent.offset() == 1300 * BLOCK as u64);
    assert!(!s.volume.is_still_searching());
    s.complete(copy);
}
