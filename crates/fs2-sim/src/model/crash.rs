//! Crash states: after every step of a recorded run power fails, and what is left is read in every way.
//!
//! For a state: nothing of the caches survives, all of it, each write alone, all but each, random sets of
//! writes, random sectors. Then a daemon attaches, or `chkfs2` runs first; every block of a file is read from
//! its replica, from its original, and from its replica again.
//!
//! The oracles are the world's: what was flushed is there; nothing was written to a live block; the mark tells
//! the truth; each read brings what the block holds, and nothing else than was written and not lost.

use fs2_engine::offline::{CheckOptions, CreateOptions, Devices, check, create, undo};
use fs2_engine::{Plant, Standing};

use super::device::Device;
use super::explore::guarded;
use super::scenarios::Scenario;
use super::swarm::{Rng, Walk};
use super::world::{Action, O, Oracle, Violation, World};
use crate::glue::Writer;

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swept {
    /// Steps after which power failed.
    pub steps: u64,
    /// Crash states looked at.
    pub states: u64,
    /// Of these attached active at once: with a mark.
    pub active: u64,
    /// Entries trusted at once in these.
    pub trusted: u64,
    /// Entries there after a check.
    pub unverified: u64,
}

impl Swept {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Swept) {
        self.steps += other.steps;
        self.states += other.states;
        self.active += other.active;
        self.trusted += other.trusted;
        self.unverified += other.unverified;
    }
}

/// Where recorded runs begin: fresh, trusted, apart, in pieces, unverified, with discards passed down.
pub const FROM: [&str; 6] =
    ["detach", "mark", "mark-apart", "mark-in-pieces", "unverified", "discard-pass-trusted"];

/// A violation with the way there.
pub type Failure = (Violation, Vec<String>);

/// Random sets of writes, and random sets of sectors, at each step.
const RANDOM: u64 = 3;

/// Walks `steps` steps by `seed` from where a scenario begins, without accidents; at each, every crash state
/// of the list above.
///
/// # Errors
/// What must not happen and did.
pub fn sweep(scenario: &Scenario, seed: u64, steps: usize, plants: &[Plant]) -> Result<Swept, Failure> {
    let mut walk = Walk::calm(scenario.start(plants), seed);
    let mut swept = Swept::default();
    let mut rng = Rng(!seed);
    for _ in 0..steps {
        match walk.step() {
            Some(Ok(())) => {}
            Some(Err(v)) => return Err((v, walk.path)),
            None => break,
        }
        swept.steps += 1;
        for state in states(&walk.world, &mut rng) {
            let mut way = vec![walk.world.describe(state)];
            match guarded_count(|counts| look(walk.world.clone(), state, &mut way, counts)) {
                Ok(counts) => swept.add(&counts),
                Err(v) => {
                    let mut path = walk.path;
                    path.extend(way);
                    return Err((v, path));
                }
            }
        }
    }
    Ok(swept)
}

fn guarded_count(f: impl FnOnce(&mut Swept) -> Result<(), Violation>) -> Result<Swept, Violation> {
    let mut counts = Swept { states: 1, ..Swept::default() };
    guarded(|| f(&mut counts))?;
    Ok(counts)
}

/// The losses of power to look at.
fn states(world: &World, rng: &mut Rng) -> Vec<Action> {
    let n = world.devices().iter().map(Device::cached).sum::<usize>().min(63);
    let all = (1u64 << n) - 1;
    let mut sets = vec![0, all];
    // The latest are those that nothing was flushed behind.
    for i in n.saturating_sub(8)..n {
        sets.extend([1 << i, all & !(1 << i)]);
    }
    sets.extend((0..RANDOM).map(|_| rng.draw() & all));
    sets.sort_unstable();
    sets.dedup();
    let torn = (0..RANDOM).filter(|_| n > 0).map(|_| Action::PowerLossTorn(rng.draw())).collect::<Vec<_>>();
    sets.into_iter().map(Action::PowerLoss).chain(torn).collect()
}

fn look(mut world: World, state: Action, way: &mut Vec<String>, counts: &mut Swept) -> Result<(), Violation> {
    let mut act = |world: &mut World, a: Action| {
        if a != state {
            way.push(world.describe(a));
        }
        world.step(a)
    };
    act(&mut world, state)?;
    let mut checked = world.clone();
    act(&mut world, Action::Attach)?;
    if let Some(v) = world.volume().filter(|v| *v.standing() == Standing::Active) {
        counts.active += 1;
        counts.trusted += (v.table().len() - v.table().unverified_count()) as u64;
    }
    world.reads_everything()?;
    act(&mut checked, Action::Check)?;
    act(&mut checked, Action::Attach)?;
    counts.unverified += checked.volume().map_or(0, |v| v.table().unverified_count() as u64);
    checked.reads_everything()
}

/// `mkfs2` on the world's volume before it had a table, `mkfs2 --undo` on the one with replicas, `chkfs2` on one
/// whose session was killed; power fails after every write of each. No file's block changes, a daemon attaches, a
/// mark tells the truth, and nothing stale is read.
///
/// # Errors
/// What must not happen and did.
pub fn sweep_offline(world: &World, seed: u64) -> Result<Swept, Failure> {
    let words = |what: &str, e: &dyn std::fmt::Display| {
        (Violation { oracle: Oracle::Answer, what: format!("{what}: {e}") }, Vec::new())
    };
    let mut killed = world.clone();
    for action in [Action::Write(O), Action::Flush, Action::Kill] {
        let done = killed.step(action).and_then(|()| killed.drain());
        done.map_err(|v| (v, vec![killed.describe(action)]))?;
    }
    let making = recorded(world.bare(), |device| {
        let options = CreateOptions { volume_id: 7, ..CreateOptions::default() };
        create(&mut Devices::new(&mut Writer(device), None), &options, &mut |_| {}).map(|_| ())
    });
    let undoing = recorded(world.devices()[0].clone(), |device| {
        undo(&mut Devices::new(&mut Writer(device), None), &mut |_| {}).map(|_| ())
    });
    let checking = |quick| {
        recorded(killed.devices()[0].clone(), |device| {
            let options = CheckOptions { checked: true, quick, ..CheckOptions::default() };
            let mut writer = Writer(device);
            check(&mut Devices::new(&mut writer, None), &options, &mut |_| true, &mut |_| {}).map(|_| ())
        })
    };
    let runs = [
        ("mkfs2", world, making),
        ("mkfs2 --undo", world, undoing),
        ("chkfs2", &killed, checking(false)),
        ("chkfs2, hashing nothing", &killed, checking(true)),
    ];
    let mut swept = Swept::default();
    let mut rng = Rng(seed);
    for (what, world, states) in runs {
        for (n, device) in states.map_err(|e| words(what, &e))?.iter().enumerate() {
            swept.steps += 1;
            for state in survivors(device, &mut rng) {
                let name = format!("{what}: power fails after write {n}");
                let look = |counts: &mut Swept| {
                    let mut after = world.with_volume(state);
                    after.step(Action::Attach)?;
                    if let Some(v) = after.volume().filter(|v| *v.standing() == Standing::Active) {
                        counts.active += 1;
                        counts.unverified += v.table().unverified_count() as u64;
                    }
                    after.reads_everything()
                };
                match guarded_count(look) {
                    Ok(counts) => swept.add(&counts),
                    Err(v) => return Err((v, vec![name])),
                }
            }
        }
    }
    Ok(swept)
}

/// The device after each write or flush that `f` does.
fn recorded<E>(mut device: Device, f: impl FnOnce(&mut Device) -> Result<(), E>) -> Result<Vec<Device>, E> {
    device.record();
    f(&mut device)?;
    Ok(device.recorded())
}

fn survivors(device: &Device, rng: &mut Rng) -> Vec<Device> {
    let n = device.cached().min(63);
    let all = (1u64 << n) - 1;
    let mut sets = vec![0, all];
    for i in n.saturating_sub(8)..n {
        sets.extend([1 << i, all & !(1 << i)]);
    }
    sets.extend((0..RANDOM).map(|_| rng.draw() & all));
    sets.sort_unstable();
    sets.dedup();
    let mut out: Vec<Device> = sets
        .into_iter()
        .map(|keep| {
            let mut d = device.clone();
            d.power_loss(keep);
            d
        })
        .collect();
    for _ in 0..RANDOM {
        let mut d = device.clone();
        d.power_loss_torn(&mut || rng.draw().is_multiple_of(2));
        out.push(d);
    }
    out
}
