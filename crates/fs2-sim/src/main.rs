//! Runs the models and the worlds from the command line.

mod worlds;

use std::process::ExitCode;

use fs2_sim::model::crash::{self, Failure, Swept};
use fs2_sim::model::explore::{Found, Limits, explore};
use fs2_sim::model::plants::TABLE;
use fs2_sim::model::scenarios;
use fs2_sim::model::swarm;

const HELP: &str = "\
fs2-sim: models around the replica engine

  fs2-sim --seed N [--events N] [--fault NAME|none] [--trace]
                                                             one world: the life of a volume in virtual time
  fs2-sim --seeds COUNT [--seconds S] [--seed FIRST] ...     many, on every core, until either bound
  fs2-sim ... --canary, ... --plant RULE                     with a rule broken: success is that it is noticed
  fs2-sim model [--depth N] [--states N] [--scenario NAME]   every interleaving of each scenario
  fs2-sim model --plants [--depth N] [--states N]            every rule broken once: what sees it, and how
  fs2-sim swarm [--seed S] [--walks N] [--steps N]           long random walks with everything allowed
  fs2-sim crash [--scenario NAME] [--seed S] [--walks N] [--steps N]
                                                             power fails after every step of recorded sessions,
                                                             of clean detaches, and after every write of mkfs2,
                                                             its undo, chkfs2: states by class
";

struct Options {
    limits: Limits,
    scenario: Option<String>,
    plants: bool,
    seed: u64,
    walks: u64,
    steps: usize,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = args.split_first() else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    if command.starts_with("--") && command != "--help" {
        return worlds::main(&args);
    }
    let options = match parse(rest) {
        Ok(options) => options,
        Err(what) => {
            eprintln!("fs2-sim: {what}");
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    // A failed check of the engine is a finding like any other, printed as such.
    std::panic::set_hook(Box::new(|_| ()));
    let ok = match command.as_str() {
        "model" if options.plants => plants(&options),
        "model" => model(&options),
        "swarm" => swarm(&options),
        "crash" => crash(&options),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            true
        }
        other => {
            eprintln!("fs2-sim: no command '{other}'");
            return ExitCode::from(2);
        }
    };
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options = Options {
        limits: Limits { states: 20_000_000, ..Limits::default() },
        scenario: None,
        plants: false,
        seed: 1,
        walks: 200,
        steps: 400,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        let number = |text: &String| text.parse().map_err(|_| format!("'{text}' is no number"));
        match arg.as_str() {
            "--depth" => options.limits.depth = number(value()?)? as usize,
            "--states" => options.limits.states = number(value()?)? as usize,
            "--scenario" => options.scenario = Some(value()?.clone()),
            "--plants" => options.plants = true,
            "--seed" => options.seed = number(value()?)?,
            "--walks" => options.walks = number(value()?)?,
            "--steps" => options.steps = number(value()?)? as usize,
            other => return Err(format!("no option '{other}'")),
        }
    }
    if let Some(name) = &options.scenario
        && scenarios::by_name(name).is_none()
    {
        let names: Vec<_> = scenarios::all().iter().map(|s| s.name).collect();
        return Err(format!("no scenario '{name}'; there are {}", names.join(", ")));
    }
    Ok(options)
}

fn model(options: &Options) -> bool {
    let mut ok = true;
    let (mut states, mut steps, mut interleavings) = (0, 0, 0u128);
    println!(
        "{:<21} {:>9} {:>10} {:>16} {:>6}  about",
        "scenario", "states", "steps", "interleavings", "depth"
    );
    for scenario in scenarios::all() {
        if options.scenario.as_ref().is_some_and(|name| name != scenario.name) {
            continue;
        }
        let found = explore(&scenario.start(&[]), &options.limits);
        println!(
            "{:<21} {:>9} {:>10} {:>16} {:>6}  {}{}",
            scenario.name,
            found.states,
            found.steps,
            found.interleavings,
            found.depth,
            scenario.about,
            if found.complete { "" } else { " (cut off)" }
        );
        states += found.states;
        steps += found.steps;
        interleavings += found.interleavings;
        ok &= found.violation.is_none();
        print_path(&found);
    }
    println!("{:<21} {states:>9} {steps:>10} {interleavings:>16}", "in all");
    ok
}

fn plants(options: &Options) -> bool {
    let mut missed = 0;
    println!("{:<26} {:<21} {:>5}  oracle", "rule broken", "scenario", "steps");
    for planted in TABLE {
        if options.scenario.as_ref().is_some_and(|name| name != planted.scenario) {
            continue;
        }
        let found = planted.look(&options.limits);
        let name = planted.name() + if planted.unhashed { " *" } else { "" };
        match &found.violation {
            Some((v, path)) => println!("{name:<26} {:<21} {:>5}  {v}", planted.scenario, path.len()),
            None => {
                missed += 1;
                println!("{name:<26} {:<21}        MISSED in {} states", planted.scenario, found.states);
            }
        }
        if options.scenario.is_some() {
            print_path(&found);
        }
    }
    println!("* with hashing off too (R8), which would hide it");
    missed == 0
}

fn print_path(found: &Found) {
    if let Some((v, path)) = &found.violation {
        for (i, step) in path.iter().enumerate() {
            println!("  {:>3}  {step}", i + 1);
        }
        println!("   =>  {v}");
    }
}

fn swarm(options: &Options) -> bool {
    let mut coverage = swarm::Coverage::default();
    for walk in 0..options.walks {
        let seed = options.seed.wrapping_add(walk);
        let end = swarm::walk(seed, options.steps, &[]);
        coverage.add(&end.coverage);
        if let Some((v, path)) = end.violation {
            println!("seed {seed}:");
            for (i, step) in path.iter().enumerate() {
                println!("  {:>4}  {step}", i + 1);
            }
            println!("    =>  {v}");
            return false;
        }
    }
    println!("{} walks from seed {}\n{coverage}", options.walks, options.seed);
    true
}

fn crash(options: &Options) -> bool {
    let chosen = |name: &str| options.scenario.as_ref().is_none_or(|o| o == name);
    let mut names: Vec<&str> = crash::FROM.into_iter().filter(|n| chosen(n)).collect();
    if let (Some(name), true) = (&options.scenario, names.is_empty()) {
        names.push(name);
    }
    let mut ok = true;
    let mut all = Swept::default();
    println!("{:<30} {:>7} {:>7} {:>9}", "from", "steps", "epochs", "states");
    for name in names {
        let from = scenarios::by_name(name).expect("it was looked up");
        let mut swept = Swept::default();
        for walk in 0..options.walks.min(20) {
            let seed = options.seed.wrapping_add(walk);
            ok &= told(crash::sweep(&from, seed, options.steps, &[]), &mut swept, &format!("seed {seed}"));
        }
        row(name, &swept, &mut all);
    }
    for name in crash::ENDS.into_iter().filter(|n| chosen(n)) {
        let from = scenarios::by_name(name).expect("it is there");
        let mut swept = Swept::default();
        for walk in 0..options.walks.min(20) {
            let seed = options.seed.wrapping_add(walk);
            ok &= told(crash::sweep_detach(&from, seed), &mut swept, &format!("seed {seed}"));
        }
        row(&format!("clean detach, {name}"), &swept, &mut all);
    }
    for name in ["mark", "mark-in-pieces"].into_iter().filter(|n| chosen(n)) {
        let from = scenarios::by_name(name).expect("it is there").start(&[]);
        let mut swept = Swept::default();
        ok &= told(crash::sweep_offline(&from, options.seed), &mut swept, name);
        row(&format!("mkfs2, undo, chkfs2, {name}"), &swept, &mut all);
    }
    println!(
        "\n{:<30} {:>9} {:>8} {:>8} {:>10}",
        "states by class", "states", "active", "trusted", "unverified"
    );
    for (class, c) in &all.classes {
        println!(
            "{:<30} {:>9} {:>8} {:>8} {:>10}",
            class.to_string(),
            c.states,
            c.active,
            c.trusted,
            c.unverified
        );
    }
    let c = all.all();
    println!("{:<30} {:>9} {:>8} {:>8} {:>10}", "all", c.states, c.active, c.trusted, c.unverified);
    let mut lying = Swept::default();
    for name in ["detach", "mark", "unverified"] {
        let from = scenarios::by_name(name).expect("it is there");
        for walk in 0..options.walks.min(20) {
            let seed = options.seed.wrapping_add(walk);
            let result = crash::sweep_lying(&from, seed, options.steps);
            ok &= told(result, &mut lying, &format!("{name} on a drive that lies, seed {seed}"));
        }
    }
    println!("\n{:<30} {:>9}", "drive lied about flush", lying.lies);
    for (oracle, n) in &lying.lied {
        println!("{:<30} {n:>9}", format!("  {oracle} fails"));
    }
    ok
}

fn told(result: Result<Swept, Failure>, sum: &mut Swept, what: &str) -> bool {
    match result {
        Ok(swept) => sum.add(&swept),
        Err((v, path)) => {
            println!("{what}:");
            for (i, step) in path.iter().enumerate() {
                println!("  {:>4}  {step}", i + 1);
            }
            println!("    =>  {v}");
            return false;
        }
    }
    true
}

fn row(name: &str, s: &Swept, all: &mut Swept) {
    println!("{name:<30} {:>7} {:>7} {:>9}", s.steps, s.epochs, s.all().states);
    all.add(s);
}
