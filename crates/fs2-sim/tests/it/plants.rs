//! Every rule that can be broken is seen to be: by an oracle, in a scenario that holds without the plant.

use fs2_engine::Plant;
use fs2_sim::model::explore::{Limits, explore};
use fs2_sim::model::plants::TABLE;

#[test]
fn every_plant_has_a_scenario() {
    for plant in Plant::ALL {
        let n = TABLE.iter().filter(|p| p.plant == Some(*plant)).count();
        assert_eq!(n, 1, "{plant:?} is looked for in {n} scenarios");
    }
}

#[test]
fn every_plant_is_caught() {
    let mut missed = Vec::new();
    for planted in TABLE {
        let found = planted.look(&Limits::default());
        let with = if planted.unhashed { " (unhashed)" } else { "" };
        match &found.violation {
            Some((v, path)) => {
                println!("{}{with} in {}: {} steps, {v}", planted.name(), planted.scenario, path.len());
                for (i, step) in path.iter().enumerate() {
                    println!("  {:2} {step}", i + 1);
                }
            }
            None => {
                println!("{}{with} in {}: MISSED, {} states", planted.name(), planted.scenario, found.states);
                missed.push(planted.name());
            }
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

/// `docs/safety.md` names every plant with the scenario that shows it, and every scenario.
#[test]
fn the_page_lists_them() {
    let page = include_str!("../../../../docs/safety.md");
    for p in TABLE {
        let with = if p.unhashed { " (with hashing off)" } else { "" };
        let row = format!("| {}{with} | {} |", p.name(), p.scenario);
        assert!(page.contains(&row), "no row '{row}' in docs/safety.md");
    }
    for s in fs2_sim::model::scenarios::all() {
        let row = format!("| {} | {} |", s.name, s.about);
        assert!(page.contains(&row), "no row '{row}' in docs/safety.md");
    }
}

/// Where a plant is shown with hashing off as well, hashing off alone breaks nothing.
#[test]
fn hashing_off_alone_breaks_nothing() {
    let mut scenarios: Vec<_> = TABLE.iter().filter(|p| p.unhashed).map(|p| p.scenario).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    assert!(!scenarios.is_empty());
    for name in scenarios {
        let scenario = fs2_sim::model::scenarios::by_name(name).unwrap();
        let found = explore(&scenario.start(&[Plant::ReplicaNotHashed]), &Limits::default());
        assert!(found.violation.is_none() && found.complete, "{name}: {:?}", found.violation);
    }
}

/// What a client reads in part comes from a copy only if all of the block is as it was copied.
#[test]
fn reads_of_parts_are_hashed_whole_and_hold_what_they_read() {
    let breaks = |name: &str, plants: &[Plant]| {
        let scenario = fs2_sim::model::scenarios::by_name(name).unwrap();
        explore(&scenario.start(plants), &Limits::default()).violation
    };
    let unhashed = Plant::ReplicaNotHashed;
    for plants in
        [&[Plant::WriteKeepsOriginal][..], &[unhashed, Plant::WriteKeepsReplica], &[unhashed, Plant::NoPin]]
    {
        assert!(breaks("parts", plants).is_some(), "{plants:?}");
    }
    assert!(breaks("part-lost", &[unhashed]).is_some());
}
