//! Every scenario, exhaustively.

use fs2_sim::model::explore::{Limits, explore};
use fs2_sim::model::scenarios;

#[test]
fn no_scenario_breaks_anything() {
    for scenario in scenarios::all() {
        let found = explore(&scenario.start(&[]), &Limits::default());
        println!(
            "{:14} {:8} states {:10} steps {:>14} interleavings, depth {}",
            scenario.name, found.states, found.steps, found.interleavings, found.depth
        );
        if let Some((v, path)) = found.violation {
            for (i, step) in path.iter().enumerate() {
                println!("  {:2} {step}", i + 1);
            }
            panic!("{}: {v}", scenario.name);
        }
        assert!(found.complete, "{}: {} states are not all", scenario.name, found.states);
    }
}
