//! What holds for every command at every time.

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Disk, DriveProfile, Head, Knowledge};
use proptest::prelude::*;

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => Just(Op::Read),
        3 => Just(Op::Write),
        1 => Just(Op::WriteZeroes),
        1 => Just(Op::Discard),
        1 => Just(Op::Flush),
    ]
}

/// Mostly near each other, so that the cache matters; sometimes anywhere in 64 bits.
fn sector() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..4000, 4 => 15_630_000u64..15_631_000, 4 => 0u64..160_000_000, 1 => any::<u64>()]
}

fn sectors() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..600, 1 => any::<u32>()]
}

fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0u64), 8 => 0u64..20_000_000, 1 => 0u64..1 << 50]
}

proptest! {
    #[test]
    fn serve_is_predicted_takes_time_in_order_and_never_overflows(
        which in 0usize..9,
        segments in 0u32..4,
        remapped in prop_oneof![Just(0u16), 0u16..300],
        from in any::<u64>(),
        commands in prop::collection::vec((op(), sector(), sectors(), gap()), 1..60),
    ) {
        let name = DriveProfile::names().nth(which).unwrap();
        let mut disk = Disk::new(DriveProfile::builtin(name).unwrap().with_read_ahead(segments, 64).with_remapped(remapped, 5));
        let mut again = disk.clone();
        let turn = disk.profile().turn();
        let mut now = Nanos(from);
        let mut last_end = Nanos(0);
        for (op, sector, sectors, gap) in commands {
            now += Nanos(gap);
            let predicted = disk.predict(now, op, Sector(sector), sectors);
            let service = disk.serve(now, op, Sector(sector), sectors);
            prop_assert_eq!(predicted, service);
            prop_assert_eq!(again.serve(now, op, Sector(sector), sectors), service);
            prop_assert!(service.start >= now && service.start >= last_end);
            prop_assert!(service.rotation <= turn);
            if service.cache_hit {
                prop_assert_eq!(service.positioning(), Nanos(0));
                prop_assert_eq!(service.op, Op::Read);
            }
            last_end = service.end();
            prop_assert_eq!(disk.free_at(), last_end);
        }
    }

    #[test]
    fn a_read_without_cache_ends_when_its_last_sector_has_passed(
        sector in 0u64..156_000_000,
        sectors in 1u32..5000,
        now in 0u64..1 << 50,
    ) {
        // However a read is split, its end is at the same angle.
        let disk = Disk::new(DriveProfile::default().with_read_ahead(0, 1));
        let turn = disk.profile().turn().0;
        let whole = disk.predict(Nanos(now), Op::Read, Sector(sector), sectors).end();
        let last = disk.predict(Nanos(now), Op::Read, Sector(sector + u64::from(sectors) - 1), 1).end();
        let apart = whole.0.abs_diff(last.0) % turn;
        // A turn is 8,333,333.3 ns; whole nanoseconds lose a third at each of the turns between. A head
        // that arrives up to 64 ns late still counts as in time.
        let slack = 10 + 64 + whole.0.abs_diff(last.0) / turn;
        prop_assert!(apart <= slack || turn - apart <= slack, "{apart}");
    }

    #[test]
    fn belief_takes_any_completion(
        which in 0usize..9,
        full in any::<bool>(),
        events in prop::collection::vec((op(), sector(), sectors(), any::<u64>(), gap()), 1..60),
    ) {
        let name = DriveProfile::names().nth(which).unwrap();
        let knowledge = if full { Knowledge::Full } else { Knowledge::SeekOnly };
        let mut head = Head::new(DriveProfile::builtin(name).unwrap(), knowledge);
        let turn = head.profile().turn().0;
        for (op, sector, sectors, dispatched, took) in events {
            head.completed(op, Sector(sector), sectors, Nanos(dispatched), Nanos(dispatched) + Nanos(took));
            let s = head.predict(Nanos(dispatched), op, Sector(sector.wrapping_add(8)), sectors);
            prop_assert!(s.rotation.0 <= turn + turn / 2, "{s:?}");
        }
    }
}
