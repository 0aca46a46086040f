//! Every rule that can be broken is seen to be: by an oracle, in a scenario that holds without the plant.

use fs2_engine::Plant;
use fs2_sim::model::explore::Limits;
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
    std::panic::set_hook(Box::new(|_| ()));
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
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
