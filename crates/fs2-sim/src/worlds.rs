//! Worlds from the command line, on every core.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fs2_engine::Plant;
use fs2_sim::model::swarm::Coverage;
use fs2_sim::world::fault::Choice;
use fs2_sim::world::{End, Options, World, coverage};

/// From so many worlds on, each counter must be above zero.
const MANY: u64 = 100;

/// Lines of a trace shown of a world that broke.
const TAIL: usize = 120;

struct Wanted {
    first: u64,
    count: Option<u64>,
    seconds: Option<u64>,
    all: bool,
    options: Options,
}

pub(crate) fn main(args: &[String]) -> ExitCode {
    let wanted = match parse(args) {
        Ok(wanted) => wanted,
        Err(what) => {
            eprintln!("fs2-sim: {what}");
            eprint!("{}", super::HELP);
            return ExitCode::from(2);
        }
    };
    // A failed check of the engine is a finding like any other, printed as such.
    std::panic::set_hook(Box::new(|_| ()));
    let found = if wanted.count.is_none() && wanted.seconds.is_none() { one(&wanted) } else { many(&wanted) };
    // With a canary, what is wanted is that it is noticed.
    if found == wanted.options.plants.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(args: &[String]) -> Result<Wanted, String> {
    let mut wanted = Wanted { first: 1, count: None, seconds: None, all: true, options: Options::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        let number = |text: &String| text.parse::<u64>().map_err(|_| format!("'{text}' is no number"));
        match arg.as_str() {
            "--seed" => wanted.first = number(value()?)?,
            "--seeds" => wanted.count = Some(number(value()?)?),
            "--seconds" => wanted.seconds = Some(number(value()?)?),
            "--events" => wanted.options.events = number(value()?)?,
            "--trace" => wanted.options.trace = true,
            "--canary" => wanted.options.plants = vec![Plant::ReplicaNotHashed],
            "--plant" => {
                let name = value()?;
                let plant = Plant::ALL.iter().copied().find(|p| format!("{p:?}") == *name);
                wanted.options.plants.push(plant.ok_or_else(|| format!("no rule '{name}' to break"))?);
            }
            "--fault" => {
                wanted.options.faults = match value()?.as_str() {
                    "none" => Choice::None,
                    name => Choice::Only(name.parse()?),
                };
                wanted.all = false;
            }
            other => return Err(format!("no option '{other}'")),
        }
    }
    Ok(wanted)
}

/// Whether nothing was found.
fn one(wanted: &Wanted) -> bool {
    let seed = wanted.first;
    println!("seed {seed}, {} events", wanted.options.events);
    let end = World::new(seed, wanted.options.clone()).run();
    println!("{}", end.about);
    for line in &end.trace {
        println!("{line}");
    }
    println!("{}digest {:016x} after {} events", end.coverage, end.digest, end.events);
    tell(seed, &end)
}

fn tell(seed: u64, end: &End) -> bool {
    if let Some(what) = &end.violation {
        println!("seed {seed} => {what}");
    }
    end.violation.is_none()
}

// Real time bounds how many worlds there are, never what happens in one.
#[expect(clippy::disallowed_methods)]
fn many(wanted: &Wanted) -> bool {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (first, until) = (wanted.first, wanted.count.map(|n| wanted.first.saturating_add(n)));
    println!(
        "from seed {first}, {} worlds of {} events, {threads} threads",
        wanted.count.map_or("as many as go".into(), |n| n.to_string()),
        wanted.options.events
    );
    let (begun, next, stop) = (Instant::now(), AtomicU64::new(first), AtomicBool::new(false));
    let sum = Mutex::new((0u64, 0u64, 0u64, Coverage::default(), None::<u64>));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let late = wanted.seconds.is_some_and(|s| begun.elapsed() >= Duration::from_secs(s));
            if until.is_some_and(|u| seed >= u) || late {
                return;
            }
            let end = World::new(seed, wanted.options.clone()).run();
            let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            sum.0 += 1;
            sum.1 += end.events;
            // Worlds end in any order; their sum does not depend on it.
            sum.2 = sum.2.wrapping_add(end.digest);
            sum.3.add(&end.coverage);
            if !tell(seed, &end) {
                sum.4 = Some(sum.4.map_or(seed, |s| s.min(seed)));
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (worlds, events, digest, counts, broken) =
        sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(seed) = broken {
        let options = Options { trace: true, ..wanted.options.clone() };
        let end = World::new(seed, options).run();
        println!("{}", end.about);
        for line in &end.trace[end.trace.len().saturating_sub(TAIL)..] {
            println!("{line}");
        }
        tell(seed, &end);
        return false;
    }
    println!(
        "{counts}{worlds} worlds, {events} events in {} s, digests' sum {digest:016x}",
        begun.elapsed().as_secs()
    );
    let missing = coverage::missing(&counts);
    if wanted.all && worlds >= MANY && !missing.is_empty() {
        println!("never seen: {}", missing.join(", "));
        return false;
    }
    true
}
