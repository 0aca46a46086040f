//! Where a free run ends in the middle of a read, its copy goes elsewhere as a whole.

use fs2_block::{BlockRange, Nanos, Op};
use fs2_engine::policy::{Asked, Place, Policy, PolicyKind, ReadSeen, Space};
use fs2_engine::{Head, Log};

use crate::session::{BLOCK, Session, config};

/// Copies what is read, where it is told to.
#[derive(Clone)]
struct Told {
    places: Vec<Place>,
    whole: bool,
}

impl Policy for Told {
    fn kind(&self) -> PolicyKind {
        PolicyKind::None
    }
    fn captures(&self) -> bool {
        true
    }
    fn eager(&self) -> bool {
        true
    }
    fn keeps_reads_whole(&self) -> bool {
        self.whole
    }
    fn choose(&mut self, _: Nanos, _: &Head, _: &Asked<'_>) -> Option<usize> {
        None
    }
    fn read_seen(&mut self, seen: &ReadSeen<'_>, _: &dyn Space, log: &mut Log) {
        let run = log.open();
        for (i, (block, &hash)) in seen.blocks.iter().zip(seen.hashes).enumerate() {
            log.push(run, block, hash, seen.data.block(i, BLOCK));
        }
        log.close(run);
    }
    fn idle(&mut self, _: Nanos, _: &mut Log) {}
    fn place(&mut self, _: u32, _: &Head, _: &dyn Space) -> Place {
        self.places.pop().unwrap_or(Place::Nowhere)
    }
    fn hot_region(&self) -> Option<BlockRange> {
        None
    }
    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

#[test]
fn no_read_is_torn_where_a_free_run_ends_and_there_are_others() {
    let copied = |whole: bool, blocks: u32| {
        let mut s = Session::plain(config());
        s.load_bitmap();
        let at_last = Place::At(BlockRange::new(1330, 1338));
        let places = vec![at_last, Place::Ends(BlockRange::new(1300, 1303))];
        s.volume.set_policy(Box::new(Told { places, whole }));
        s.submit(Op::Read, 1100 * BLOCK as u64, u64::from(blocks) * BLOCK as u64, None);
        assert!(s.run().pop().unwrap().1.is_ok());
        s.idle(1000).replicas()
    };
    assert_eq!(copied(true, 3), [(1100, 1300), (1101, 1301), (1102, 1302)]);
    assert_eq!(copied(true, 4), [(1100, 1330), (1101, 1331), (1102, 1332), (1103, 1333)]);
    // Who does not ask for that has it filled.
    assert_eq!(copied(false, 4), [(1100, 1300), (1101, 1301), (1102, 1302), (1103, 1330)]);
}
