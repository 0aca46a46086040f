//! Worlds: the first hundred seeds, what they must have met, and that they can fail.

use fs2_engine::Plant;
use fs2_sim::model::swarm::Coverage;
use fs2_sim::world::fault::{Choice, Fault};
use fs2_sim::world::{End, Options, World, coverage};

fn lived(seed: u64, options: &Options) -> End {
    World::new(seed, options.clone()).run()
}

fn fine(seed: u64, options: &Options) -> Coverage {
    let end = lived(seed, options);
    if let Some(what) = end.violation {
        panic!("seed {seed} of {} events ({}): {what}", options.events, end.about);
    }
    end.coverage
}

#[test]
fn a_hundred_worlds_break_nothing_and_meet_everything() {
    let options = Options::default();
    let mut coverage = Coverage::default();
    // Two halves at a time: the machines this runs on have at least two cores.
    std::thread::scope(|scope| {
        let half = |from: u64| {
            let options = &options;
            scope.spawn(move || (from..=100).step_by(2).map(|s| fine(s, options)).collect::<Vec<_>>())
        };
        for all in [half(1), half(2)] {
            let all = all.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.iter().for_each(|c| coverage.add(c));
        }
    });
    println!("{coverage}");
    assert_eq!(coverage::missing(&coverage), [""; 0]);
}

/// A freed block that was not discarded is an original to the daemon; a copy that lands there is seen by the next read of it.
#[test]
fn a_copy_on_an_original_is_a_reason_to_freeze() {
    fine(91_002_606, &Options::default());
}

#[test]
fn one_seed_is_one_world() {
    let options = Options { trace: true, ..Options::default() };
    for seed in [3, 8] {
        let (a, b) = (lived(seed, &options), lived(seed, &options));
        assert_eq!((a.digest, a.events, a.coverage, a.trace), (b.digest, b.events, b.coverage, b.trace));
    }
    let untold = lived(3, &Options::default());
    assert_eq!(untold.digest, lived(3, &options).digest, "telling changes nothing");
    assert_ne!(untold.digest, lived(4, &Options::default()).digest);
}

#[test]
fn without_faults_nothing_fails() {
    let options = Options { events: 1_000, faults: Choice::None, ..Options::default() };
    for seed in 1..=5 {
        let coverage = fine(seed, &options);
        for f in Fault::ALL {
            assert_eq!(coverage.of(f.name()), 0, "{f} in seed {seed}");
        }
    }
}

#[test]
fn worlds_can_fail() {
    for plant in [Plant::ReplicaNotHashed, Plant::WriteKeepsOriginal, Plant::WriteStaysFree] {
        let options = Options { plants: vec![plant], ..Options::default() };
        let caught = (1..=60).find_map(|seed| lived(seed, &options).violation);
        assert!(caught.is_some(), "{plant:?} was not noticed in 60 worlds");
    }
}
