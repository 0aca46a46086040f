//! Crash states of recorded runs: daemon sessions, mkfs2 and its undo.

use fs2_engine::Plant;
use fs2_sim::model::content::Content;
use fs2_sim::model::crash::{FROM, Swept, sweep, sweep_offline};
use fs2_sim::model::scenarios;
use fs2_sim::model::world::{Action, R};

fn told(result: Result<Swept, (fs2_sim::model::world::Violation, Vec<String>)>, what: &str) -> Swept {
    result.unwrap_or_else(|(v, path)| panic!("{what}:\n{}\n => {v}", path.join("\n")))
}

#[test]
fn power_fails_after_every_step_of_a_session() {
    let (mut states, mut active, mut trusted, mut unverified) = (0, 0, 0, 0);
    for (scenario, seed) in FROM.iter().flat_map(|s| [1, 2, 3].map(|seed| (*s, seed))) {
        let from = scenarios::by_name(scenario).unwrap();
        let swept = told(sweep(&from, seed, 120, &[]), &format!("{scenario}, seed {seed}"));
        states += swept.states;
        active += swept.active;
        trusted += swept.trusted;
        unverified += swept.unverified;
    }
    println!(
        "{states} states, {active} active, {trusted} entries trusted, {unverified} unverified after a check"
    );
    assert!(states > 10_000 && active > 300 && trusted > 100 && unverified > 1_000);
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
        assert!(swept.steps > 50 && swept.active > 20 && swept.unverified > 0, "{swept:?}");
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
    fs2_engine::offline::undo(&mut fs2_engine::offline::Devices::new(&mut writer, None), &mut |_| {})
        .unwrap();
    assert_eq!(volume.durable().block(world.block(R)), Content::of(0));
}
