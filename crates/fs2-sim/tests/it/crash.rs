//! Crash states of recorded runs: daemon sessions, mkfs2 and its undo.

use fs2_engine::Plant;
use fs2_sim::model::content::Content;
use fs2_sim::model::crash::{Class, ENDS, FROM, Swept, sweep, sweep_detach, sweep_lying, sweep_offline};
use fs2_sim::model::scenarios;
use fs2_sim::model::world::{Action, R};

fn told(result: Result<Swept, (fs2_sim::model::world::Violation, Vec<String>)>, what: &str) -> Swept {
    result.unwrap_or_else(|(v, path)| panic!("{what}:\n{}\n => {v}", path.join("\n")))
}

#[test]
fn power_fails_after_every_step_of_a_session() {
    let mut all = Swept::default();
    for (scenario, seed) in FROM.iter().flat_map(|s| [1, 2].map(|seed| (*s, seed))) {
        let from = scenarios::by_name(scenario).unwrap();
        all.add(&told(sweep(&from, seed, 110, &[]), &format!("{scenario}, seed {seed}")));
    }
    println!("{all:?}");
    let c = all.all();
    assert!(c.states > 8_000 && c.active > 300 && c.trusted > 100 && c.unverified > 1_000, "{c:?}");
    let all_seen = all.classes.values().all(|c| c.states > 100) && all.classes.len() == 7;
    assert!(all_seen && all.epochs > 100 && all.lies == 0, "{all:?}");
}

#[test]
fn power_fails_after_every_step_of_a_clean_detach() {
    for scenario in ENDS {
        let from = scenarios::by_name(scenario).unwrap();
        let swept = told(sweep_detach(&from, 1), scenario);
        println!("{scenario}: {swept:?}");
        // The last states have the mark, and the page is trusted.
        assert!(swept.steps > 5 && swept.all().active > 0 && swept.all().trusted > 0, "{swept:?}");
    }
}

/// States that only a drive that lies about flushes can leave are named as such: some break an oracle.
#[test]
fn a_drive_that_lies_is_named() {
    let mut all = Swept::default();
    for (scenario, seed) in ["detach", "mark"].iter().flat_map(|s| [1, 2, 3].map(|seed| (*s, seed))) {
        let from = scenarios::by_name(scenario).unwrap();
        all.add(&told(sweep_lying(&from, seed, 40), &format!("{scenario}, seed {seed}")));
    }
    println!("{all:?}");
    assert!(all.lies > 100 && all.lied.values().sum::<u64>() > 10, "{all:?}");
    assert!(all.classes[&Class::Nothing].states > 0, "before the first flush it cannot lie");
}

#[test]
fn a_sweep_can_fail() {
    for (scenario, plant) in
        [("mark", Plant::MarkKept), ("mark", Plant::EraseNotFlushed), ("unverified", Plant::ReplicaNotHashed)]
    {
        let from = scenarios::by_name(scenario).unwrap();
        assert!((0..40).any(|seed| sweep(&from, seed, 60, &[plant]).is_err()), "{plant:?}");
    }
}

#[test]
fn power_fails_after_every_write_of_mkfs2_and_chkfs2() {
    for scenario in ["mark", "mark-in-pieces"] {
        let world = scenarios::by_name(scenario).unwrap().start(&[]);
        let swept = told(sweep_offline(&world, 1), scenario);
        println!("{scenario}: {swept:?}");
        let c = swept.all();
        assert!(swept.steps > 50 && c.active > 20 && c.unverified > 0, "{swept:?}");
    }
}

#[test]
fn undo_leaves_no_replica() {
    let mut world = scenarios::by_name("mark").unwrap().start(&[]);
    assert!(world.is_enabled(Action::Expect(R)));
    world.step(Action::Detach).unwrap();
    world.drain().unwrap();
    let replica = world.devices()[0].block(world.block(R));
    assert_eq!(replica, Content::of(0x100));
    let mut volume = world.devices()[0].clone();
    let mut writer = fs2_sim::glue::Writer(&mut volume);
    let mut devices = fs2_engine::offline::Devices::new(&mut writer, None);
    fs2_engine::offline::undo(&mut devices, &Default::default(), &mut |_| {}).unwrap();
    assert_eq!(volume.durable().block(world.block(R)), Content::of(0));
}
