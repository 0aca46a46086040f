//! Schedulers by hand, over a drive whose positioning times are what the test says.

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Chosen, Device, Disk, DriveProfile, Positioning, Queue, Scheduler};
use proptest::prelude::*;

/// A head at a sector; positioning takes a nanosecond a sector, but for one sector that is near.
struct Line {
    head: u64,
    near: u64,
}

impl Positioning for Line {
    fn position(&self, _: Nanos) -> Sector {
        Sector(self.head)
    }

    fn positioning(&self, _: Nanos, _: Op, sector: Sector, _: u32) -> Nanos {
        if sector.0 == self.near { Nanos(0) } else { Nanos(sector.0.abs_diff(self.head)) }
    }
}

/// Requests of 8 sectors at these places, in this order, popped with the head moving along.
fn order(scheduler: Scheduler, head: u64, near: u64, places: &[u64]) -> Vec<u64> {
    let mut queue = Queue::new(scheduler, None);
    for (id, place) in places.iter().enumerate() {
        queue.push(id as u64, Op::Read, &[Sector(*place)], 8, Nanos(id as u64));
    }
    let mut line = Line { head, near };
    let mut got = Vec::new();
    while let Some(c) = queue.pop(Nanos(1000), &line) {
        line.head = c.sector.0 + 8;
        got.push(c.sector.0);
    }
    got
}

#[test]
fn each_scheduler_by_hand() {
    let places = [500, 90, 700, 110, 300];
    let none = u64::MAX;
    assert_eq!(order(Scheduler::Fcfs, 100, none, &places), places);
    // From 100: 90 and 110 are equally far, 90 came first; then 110 from 98, and on upwards.
    assert_eq!(order(Scheduler::Sstf, 100, none, &places), [90, 110, 300, 500, 700]);
    // 700 costs nothing; from 708 downwards.
    assert_eq!(order(Scheduler::Sptf, 100, 700, &places), [700, 500, 300, 110, 90]);
    // C-LOOK begins at 0 and goes up.
    assert_eq!(order(Scheduler::CLook, 100, none, &places), [90, 110, 300, 500, 700]);
}

#[test]
fn c_look_goes_on_upwards_and_wraps_to_the_lowest() {
    let mut queue = Queue::new(Scheduler::CLook, None);
    let line = Line { head: 0, near: 0 };
    let mut pop = |push: &[u64]| {
        for p in push {
            queue.push(*p, Op::Read, &[Sector(*p)], 8, Nanos(0));
        }
        queue.pop(Nanos(0), &line).unwrap().sector.0
    };
    assert_eq!(pop(&[400, 600]), 400);
    // 405 lies behind the sweep, which stands at 408.
    assert_eq!(pop(&[405, 408, 100]), 408);
    assert_eq!(pop(&[]), 600);
    assert_eq!(pop(&[]), 100);
    assert_eq!(pop(&[]), 405);
}

#[test]
fn the_copy_chosen_is_the_one_the_scheduler_would_take() {
    for (scheduler, copy) in
        [(Scheduler::Fcfs, 2), (Scheduler::Sstf, 1), (Scheduler::CLook, 0), (Scheduler::Sptf, 2)]
    {
        let mut queue = Queue::new(scheduler, None);
        let line = Line { head: 1000, near: 5000 };
        queue.push(7, Op::Read, &[Sector(10), Sector(900), Sector(5000)], 8, Nanos(3));
        let sector = Sector([10, 900, 5000][copy]);
        let want = Chosen { id: 7, op: Op::Read, copy, sector, sectors: 8, arrival: Nanos(3) };
        assert_eq!(queue.pop(Nanos(9), &line), Some(want), "{scheduler:?}");
        assert_eq!(queue.pop(Nanos(9), &line), None);
    }
}

#[test]
fn an_old_request_goes_first() {
    let mut queue = Queue::new(Scheduler::Sstf, Some(Nanos(100)));
    let line = Line { head: 0, near: 0 };
    queue.push(1, Op::Read, &[Sector(9000)], 8, Nanos(0));
    queue.push(2, Op::Read, &[Sector(10)], 8, Nanos(50));
    queue.push(3, Op::Read, &[Sector(20)], 8, Nanos(90));
    assert_eq!(queue.pop(Nanos(100), &line).unwrap().id, 2);
    assert_eq!(queue.pop(Nanos(101), &line).unwrap().id, 1);
}

#[test]
fn names_are_read_back() {
    for s in Scheduler::ALL {
        assert_eq!(s.name().parse::<Scheduler>().unwrap(), s);
    }
    assert_eq!("clook".parse::<Scheduler>().unwrap(), Scheduler::CLook);
    assert!("elevator".parse::<Scheduler>().unwrap_err().ends_with("fcfs, sstf, c-look, sptf"));
}

#[test]
fn a_drives_own_queue_serves_what_is_soonest_reached() {
    let disk = Disk::new(DriveProfile::default());
    let mut device = Device::new(disk, 3);
    for (id, sector) in [(1, 150_000_000), (2, 40_000), (3, 80_000_000)] {
        device.submit(Nanos(0), id, Op::Read, Sector(sector), 8);
    }
    assert_eq!(device.room(Nanos(0)), 0);
    let mut now = Nanos(0);
    let mut got = Vec::new();
    while let Some((id, service)) = device.start(now) {
        assert_eq!(device.start(now), None, "one at a time");
        got.push(id);
        assert_eq!(device.room(now), got.len() - 1);
        now = service.end();
    }
    assert_eq!(got, [2, 3, 1]);
    assert_eq!((device.room(now), device.disk().free_at()), (3, now));
}

fn scheduler() -> impl Strategy<Value = Scheduler> {
    prop::sample::select(Scheduler::ALL.to_vec())
}

proptest! {
    /// Against a list searched from end to end.
    #[test]
    fn the_queue_is_the_plain_list(
        scheduler in scheduler(),
        age in prop::option::of(0u64..300),
        steps in prop::collection::vec((0u8..5, prop::collection::vec(0u64..1000, 1..5), 0u64..40), 1..120),
    ) {
        let mut queue = Queue::new(scheduler, age.map(Nanos));
        let mut plain: Vec<(u64, Vec<u64>, u64)> = Vec::new();
        let (mut head, mut swept, mut now) = (0u64, 0u64, 0u64);
        // Requests since one went first because of its age.
        let mut since = 16;
        for (id, (step, places, gap)) in steps.into_iter().enumerate() {
            now += gap;
            let line = Line { head, near: 500 };
            match step {
                0..3 => {
                    let at: Vec<_> = places.iter().map(|p| Sector(*p)).collect();
                    queue.push(id as u64, Op::Read, &at, 8, Nanos(now));
                    plain.push((id as u64, places, now));
                }
                3 => {
                    let cost = |request: &(u64, Vec<u64>, u64), place: u64| match scheduler {
                        Scheduler::Fcfs => request.0,
                        Scheduler::Sstf => place.abs_diff(head),
                        Scheduler::CLook => place.wrapping_sub(swept),
                        Scheduler::Sptf => line.positioning(Nanos(0), Op::Read, Sector(place), 8).0,
                    };
                    // In FCFS the copy is the one soonest reached.
                    let copy_cost = |request: &(u64, Vec<u64>, u64), place: u64| match scheduler {
                        Scheduler::Fcfs => line.positioning(Nanos(0), Op::Read, Sector(place), 8).0,
                        _ => cost(request, place),
                    };
                    let mut candidates = Vec::new();
                    let aged = since >= 16 && plain.iter().any(|r| age.is_some_and(|a| now - r.2 > a));
                    for (i, r) in plain.iter().enumerate() {
                        for (copy, place) in r.1.iter().enumerate() {
                            let first = if aged { r.0 } else { cost(r, *place) };
                            candidates.push((first, r.0, copy_cost(r, *place), copy, i));
                        }
                    }
                    let want = candidates.into_iter().min();
                    let got = queue.pop(Nanos(now), &line);
                    prop_assert_eq!(got.map(|c| (c.id, c.copy)), want.map(|w| (w.1, w.3)));
                    if let Some(c) = got {
                        plain.remove(want.unwrap().4);
                        // Of a single one nobody asks its age.
                        let first = aged && scheduler != Scheduler::Fcfs && !plain.is_empty();
                        since = if first { 1 } else { since + 1 };
                        (head, swept) = (c.sector.0 + 8, c.sector.0 + 8);
                    }
                }
                _ => {
                    let victim = places[0] % (id as u64 + 1);
                    let there = plain.iter().position(|r| r.0 == victim);
                    prop_assert_eq!(queue.remove(victim), there.is_some());
                    if let Some(i) = there {
                        plain.remove(i);
                    }
                }
            }
            prop_assert_eq!(queue.len(), plain.len());
            prop_assert_eq!(queue.is_empty(), plain.is_empty());
        }
    }

    #[test]
    fn a_long_queue_loses_nothing(scheduler in scheduler(), places in prop::collection::vec(0u64..1 << 20, 1..2500)) {
        let mut got = order(scheduler, 0, 0, &places);
        let mut want = places.clone();
        got.sort_unstable();
        want.sort_unstable();
        prop_assert_eq!(got, want);
    }
}
