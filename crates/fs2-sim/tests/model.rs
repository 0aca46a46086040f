//! Every scenario, exhaustively.

use fs2_sim::model::explore::{Limits, explore};
use fs2_sim::model::scenarios;

#[test]
fn no_scenario_breaks_anything() {
    std::panic::set_hook(Box::new(|_| ()));
    let only = std::env::var("SCENARIO").ok();
    let mut broken = Vec::new();
    for scenario in scenarios::all() {
        if only.as_ref().is_some_and(|o| o != scenario.name) {
            continue;
        }
        let start = match std::panic::catch_unwind(|| scenario.start(&[])) {
            Ok(start) => start,
            Err(why) => {
                println!("{:21} does not begin: {:?}", scenario.name, why.downcast_ref::<String>());
                broken.push(scenario.name);
                continue;
            }
        };
        let found = explore(&start, &Limits::default());
        println!(
            "{:21} {:8} states {:10} steps {:>14} interleavings, depth {}",
            scenario.name, found.states, found.steps, found.interleavings, found.depth
        );
        if let Some((v, path)) = found.violation {
            for (i, step) in path.iter().enumerate() {
                println!("  {:2} {step}", i + 1);
            }
            println!("  => {v}");
            broken.push(scenario.name);
        } else if !found.complete {
            println!("  => {} states are not all", found.states);
            broken.push(scenario.name);
        }
    }
    let _ = std::panic::take_hook();
    assert!(broken.is_empty(), "broken: {broken:?}");
}
