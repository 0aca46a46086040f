//! Crash states: after every step of a recorded run power fails, or the daemon is killed, and what is left is
//! read in every way.
//!
//! For a state: nothing of the caches survives, all of it, each write alone, all but each, random sets of
//! writes, random sectors ([`Class`]). Then a daemon attaches, or `chkfs2` runs first; every block of a file is
//! read from its replica, from its original, and from its replica again.
//!
//! The oracles are the world's: what was flushed is there; nothing was written to a live block, and each holds
//! what it would hold without the daemon's own writes; the mark tells the truth; each read brings what the
//! block holds, and nothing else than was written and not lost.
//!
//! A drive that lies about flushes leaves states that no other can. They are looked at too: what breaks in
//! them is counted by oracle, as the drive's doing. What breaks in a state that an honest drive could leave is
//! ours.

use std::collections::BTreeMap;
use std::fmt;

use fs2_engine::offline::{CheckOptions, CreateOptions, Devices, UndoOptions, check, create, undo};
use fs2_engine::{Plant, Standing};

use super::device::Device;
use super::explore::guarded;
use super::scenarios::Scenario;
use super::swarm::{Rng, Walk};
use super::world::{Action, From, O, Oracle, Violation, World};
use crate::glue::Writer;

/// What of the caches is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Only what was flushed.
    Nothing,
    /// Everything that was done so far: a prefix.
    Prefix,
    /// One write more than was flushed.
    OneKept,
    /// All writes but one.
    OneLost,
    /// A random set of writes.
    Random,
    /// Random sectors: writes and pages of the table are torn.
    Torn,
    /// Power stays; the daemon is killed, and its I/O in the device goes on.
    Killed,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Nothing => "only what was flushed",
            Class::Prefix => "a prefix: all so far",
            Class::OneKept => "one write kept",
            Class::OneLost => "one write lost",
            Class::Random => "random writes",
            Class::Torn => "random sectors",
            Class::Killed => "kill -9",
        })
    }
}

/// What was found in the states of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// States looked at.
    pub states: u64,
    /// Of these attached active at once: with a mark.
    pub active: u64,
    /// Entries trusted at once in these.
    pub trusted: u64,
    /// Entries there after a check.
    pub unverified: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.states += other.states;
        self.active += other.active;
        self.trusted += other.trusted;
        self.unverified += other.unverified;
    }
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Steps after which it was looked.
    pub steps: u64,
    /// Flushes that ended meanwhile, each of which ends an epoch.
    pub epochs: u64,
    /// By class.
    pub classes: BTreeMap<Class, Counts>,
    /// States that only a drive that lies about flushes can leave.
    pub lies: u64,
    /// In how many of them which oracle fails.
    pub lied: BTreeMap<Oracle, u64>,
}

impl Swept {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Swept) {
        self.steps += other.steps;
        self.epochs += other.epochs;
        for (class, counts) in &other.classes {
            self.classes.entry(*class).or_default().add(*counts);
        }
        self.lies += other.lies;
        for (oracle, n) in &other.lied {
            *self.lied.entry(*oracle).or_default() += n;
        }
    }

    /// Over all classes.
    pub fn all(&self) -> Counts {
        let mut all = Counts::default();
        self.classes.values().for_each(|c| all.add(*c));
        all
    }
}

/// Where recorded runs begin: fresh, trusted, apart, in pieces, unverified, with discards passed down, in
/// blocks of 4 KiB, over several groups, over two connections.
pub const FROM: [&str; 9] = [
    "detach",
    "mark",
    "mark-apart",
    "mark-in-pieces",
    "unverified",
    "discard-pass-trusted",
    "large-blocks-mark",
    "groups-border",
    "kill-queued",
];

/// Where sessions begin that end in order, looked at after each step of the end.
pub const ENDS: [&str; 4] = ["detach", "detach-apart", "detach-in-pieces", "large-blocks-detach"];

/// A violation with the way there.
pub type Failure = (Violation, Vec<String>);

/// Random sets of writes, and random sets of sectors, at each step.
const RANDOM: u64 = 3;

/// Writes in the caches at most, so that a set of them is a word.
const CACHED_MAX: usize = 63;

/// Walks `steps` steps by `seed` from where a scenario begins, without accidents; at each, every crash state
/// of the list above.
///
/// # Errors
/// What must not happen and did.
pub fn sweep(scenario: &Scenario, seed: u64, steps: usize, plants: &[Plant]) -> Result<Swept, Failure> {
    let mut world = scenario.start(plants);
    world.keep_plain();
    sweep_from(world, seed, steps)
}

/// The same over drives that lie about flushes.
///
/// # Errors
/// What must not happen, and did in a state that an honest drive could leave.
pub fn sweep_lying(scenario: &Scenario, seed: u64, steps: usize) -> Result<Swept, Failure> {
    let mut world = scenario.start(&[]);
    world.lie();
    sweep_from(world, seed, steps)
}

fn sweep_from(world: World, seed: u64, steps: usize) -> Result<Swept, Failure> {
    let mut walk = Walk::calm(world, seed);
    let mut swept = Swept::default();
    let mut rng = Rng(!seed);
    for _ in 0..steps {
        let flushes = walk.world.flushes_done();
        match walk.step() {
            Some(Ok(())) => {}
            Some(Err(v)) => return Err((v, walk.path)),
            None => break,
        }
        if walk.world.devices().iter().map(Device::cached).sum::<usize>() > CACHED_MAX {
            break;
        }
        swept.epochs += walk.world.flushes_done() - flushes;
        look_all(&walk.world, &mut rng, &mut swept).map_err(|(v, way)| {
            let path = walk.path.iter().cloned().chain(way).collect();
            (v, path)
        })?;
    }
    Ok(swept)
}

/// A session that writes, copies, and ends in order; after each step of its end, every crash state.
///
/// # Errors
/// What must not happen and did.
pub fn sweep_detach(scenario: &Scenario, seed: u64) -> Result<Swept, Failure> {
    let mut world = scenario.start(&[]);
    world.keep_plain();
    let mut path = Vec::new();
    let mut swept = Swept::default();
    let mut rng = Rng(!seed);
    let read = Action::Read(O, From::Original);
    for action in [Action::Write(O), read, Action::Background, Action::Background] {
        path.push(world.describe(action));
        world.step(action).and_then(|()| world.drain()).map_err(|v| (v, path.clone()))?;
    }
    let mut next = Some(Action::Detach);
    while let Some(action) = next {
        path.push(world.describe(action));
        world.step(action).map_err(|v| (v, path.clone()))?;
        look_all(&world, &mut rng, &mut swept)
            .map_err(|(v, way)| (v, path.iter().cloned().chain(way).collect()))?;
        let queued = world.queued() as u64;
        next = (queued > 0).then(|| Action::Land(rng.below(queued) as usize));
    }
    swept.epochs = world.flushes_done();
    Ok(swept)
}

/// Every crash state after a step.
fn look_all(world: &World, rng: &mut Rng, swept: &mut Swept) -> Result<(), Failure> {
    swept.steps += 1;
    for (class, state) in states(world, rng) {
        let mut way = vec![world.describe(state)];
        let honest = world.is_honest(state);
        swept.lies += u64::from(!honest);
        match guarded_count(|counts| look(world.clone(), state, &mut way, counts)) {
            Ok(counts) if honest => swept.classes.entry(class).or_default().add(counts),
            Ok(_) => {}
            Err(v) if honest => return Err((v, way)),
            Err(v) => *swept.lied.entry(v.oracle).or_default() += 1,
        }
    }
    Ok(())
}

fn guarded_count(f: impl FnOnce(&mut Counts) -> Result<(), Violation>) -> Result<Counts, Violation> {
    let mut counts = Counts { states: 1, ..Counts::default() };
    guarded(|| f(&mut counts))?;
    Ok(counts)
}

/// Sets of the writes in caches that survive, `n` of them being there.
fn sets(n: usize, rng: &mut Rng) -> Vec<(Class, u64)> {
    let n = n.min(CACHED_MAX);
    let all = (1u64 << n) - 1;
    let mut sets = vec![(Class::Nothing, 0), (Class::Prefix, all)];
    // The latest are those that nothing was flushed behind.
    for i in n.saturating_sub(8)..n {
        sets.extend([(Class::OneKept, 1 << i), (Class::OneLost, all & !(1 << i))]);
    }
    sets.extend((0..RANDOM).map(|_| (Class::Random, rng.draw() & all)));
    let mut seen = std::collections::BTreeSet::new();
    sets.retain(|(_, keep)| seen.insert(*keep));
    sets
}

/// The losses of power to look at, and the kill.
fn states(world: &World, rng: &mut Rng) -> Vec<(Class, Action)> {
    let n = world.devices().iter().map(Device::cached).sum::<usize>();
    let mut all: Vec<_> =
        sets(n, rng).into_iter().map(|(class, keep)| (class, Action::PowerLoss(keep))).collect();
    all.extend((0..RANDOM).filter(|_| n > 0).map(|_| (Class::Torn, Action::PowerLossTorn(rng.draw()))));
    all.extend(world.is_enabled(Action::Kill).then_some((Class::Killed, Action::Kill)));
    all
}

fn look(
    mut world: World,
    state: Action,
    way: &mut Vec<String>,
    counts: &mut Counts,
) -> Result<(), Violation> {
    let mut act = |world: &mut World, a: Action| {
        if a != state {
            way.push(world.describe(a));
        }
        world.step(a)
    };
    act(&mut world, state)?;
    // What a killed daemon had in the device goes on.
    world.drain()?;
    let mut checked = world.clone();
    act(&mut world, Action::Attach)?;
    if let Some(v) = world.volume().filter(|v| *v.standing() == Standing::Active) {
        counts.active += 1;
        counts.trusted += (v.table().len() - v.table().unverified_count()) as u64;
    }
    world.reads_everything()?;
    if !checked.is_enabled(Action::Check) {
        return Ok(());
    }
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
        let options = UndoOptions { checked: true, ..UndoOptions::default() };
        undo(&mut Devices::new(&mut Writer(device), None), &options, &mut |_| {}).map(|_| ())
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
            for (class, state) in survivors(device, &mut rng) {
                let name = format!("{what}: power fails after write {n}");
                let look = |counts: &mut Counts| {
                    let mut after = world.with_volume(state);
                    after.step(Action::Attach)?;
                    if let Some(v) = after.volume().filter(|v| *v.standing() == Standing::Active) {
                        counts.active += 1;
                        counts.unverified += v.table().unverified_count() as u64;
                    }
                    after.reads_everything()
                };
                match guarded_count(look) {
                    Ok(counts) => swept.classes.entry(class).or_default().add(counts),
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

fn survivors(device: &Device, rng: &mut Rng) -> Vec<(Class, Device)> {
    let kept = |keep| {
        let mut d = device.clone();
        d.power_loss(keep);
        d
    };
    let mut out: Vec<_> =
        sets(device.cached(), rng).into_iter().map(|(class, keep)| (class, kept(keep))).collect();
    for _ in 0..RANDOM {
        let mut d = device.clone();
        d.power_loss_torn(&mut || rng.draw().is_multiple_of(2));
        out.push((Class::Torn, d));
    }
    out
}
