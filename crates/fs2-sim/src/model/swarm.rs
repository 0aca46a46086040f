//! Long random walks: everything is allowed, each seed sets another world and other odds.
//!
//! What walks find that the scenarios do not: more than one crash, many sessions, tables with history. What
//! they do not do: prove that nothing is left.

use std::collections::BTreeMap;
use std::fmt;

use fs2_engine::{DiscardMode, Plant, Standing};

use super::content::Grain;
use super::explore::guarded;
use super::image::Shape;
use super::world::{Action, From, O, R, S, T, Tool, U, Violation, World, X};
use crate::glue::{Checker, Setup};

/// A small generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }
}

/// How often what matters happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(pub BTreeMap<&'static str, u64>);

impl Coverage {
    /// Adds another's.
    pub fn add(&mut self, other: &Coverage) {
        for (name, n) in &other.0 {
            *self.0.entry(name).or_default() += n;
        }
    }

    /// How often it happened.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, n) in &self.0 {
            writeln!(f, "  {n:>9} {name}")?;
        }
        Ok(())
    }
}

/// How a walk ended.
#[derive(Clone, Debug)]
pub struct End {
    /// What must not happen and did, with the way there.
    pub violation: Option<(Violation, Vec<String>)>,
    /// What happened.
    pub coverage: Coverage,
}

/// Everything a walk may do, with its weight.
fn alphabet(rng: &mut Rng) -> Vec<(Action, u64)> {
    let blocks = [O, X, R, S];
    let mut all = vec![
        (Action::Background, 60),
        (Action::Flush, 4),
        (Action::FlushToo, 1),
        (Action::SendBitmap, 6),
        (Action::WriteRefs, 4),
        (Action::Mount, 12),
        (Action::Unmount, 3),
        (Action::KernelDies, 1),
        (Action::Reconnect, 1),
        (Action::Kill, 1),
        (Action::KillAlone, 1),
        (Action::HandOver, 2),
        (Action::PowerLoss(0), 1),
        (Action::PowerLossTorn(0), 1),
        (Action::Attach, 40),
        (Action::Detach, 6),
        (Action::DetachBusy, 1),
        (Action::Check, 20),
        (Action::Write(T), 0),
        (Action::Write(U), 0),
        (Action::ReadTwo(O, From::Original), 8),
        (Action::ReadTwo(O, From::Replica), 8),
        (Action::WriteTwo(O), 3),
        (Action::ReadTwo(R, From::Original), 3),
        (Action::ReadTwo(R, From::Replica), 3),
        (Action::WriteTwo(R), 2),
        (Action::DiscardOdd(R), 3),
        (Action::SendOtherBitmap, 4),
        (Action::FreezeFs, 2),
        (Action::Thaw, 20),
        (Action::ReadOnly, 1),
        (Action::Writable, 20),
        (Action::Run(Tool::Check), 2),
        (Action::Route(0), 4),
        (Action::Route(1), 4),
    ];
    for b in blocks {
        all.extend([
            (Action::Read(b, From::Original), 12),
            (Action::Read(b, From::Replica), 16),
            (Action::ReadFree(b, From::Original), 1),
            (Action::ReadPart(b, 0, From::Original), 1),
            (Action::ReadPart(b, 0, From::Replica), 2),
            (Action::ReadPart(b, 1, From::Replica), 2),
            (Action::Write(b), 8),
            (Action::WriteToo(b), 2),
            (Action::WritePart(b, 0), 2),
            (Action::WritePart(b, 1), 1),
            (Action::ZeroPart(b, 1), 1),
            (Action::DiscardPart(b), 1),
            (Action::Zero(b), 2),
            (Action::Alloc(b), 8),
            (Action::Free(b), 6),
            (Action::Discard(b), 12),
            (Action::Claim(b), 4),
            (Action::Target(b), 12),
            (Action::Evict(b), 4),
            (Action::Fetch(b), 4),
            (Action::ElsewhereWrites(b), 1),
        ]);
    }
    // Each walk has favourites, and things it never does.
    for (_, weight) in &mut all {
        *weight = match rng.below(8) {
            0 => 0,
            1 => *weight * 8,
            _ => *weight * 2,
        };
    }
    // Without these nothing goes on.
    for (action, weight) in &mut all {
        if matches!(
            action,
            Action::Attach | Action::Background | Action::Check | Action::Thaw | Action::Writable
        ) {
            *weight = (*weight).max(20);
        }
        if matches!(action, Action::Write(T | U)) && rng.below(3) == 0 {
            *weight = 2;
        }
    }
    all
}

/// A walk under way.
pub struct Walk {
    /// Where it is.
    pub world: World,
    /// What was done, in words.
    pub path: Vec<String>,
    /// What happened.
    pub coverage: Coverage,
    rng: Rng,
    alphabet: Vec<(Action, u64)>,
    plan: Vec<Action>,
    /// How often the device does something when there is something else to do.
    lands: u64,
    fails: bool,
    apart: bool,
    /// Sessions end in order, and others begin.
    calm: bool,
}

impl Walk {
    /// At the beginning of the walk of this seed.
    pub fn new(seed: u64, plants: &[Plant]) -> Walk {
        let mut rng = Rng(seed);
        let (shape, grain) = match rng.below(10) {
            0 | 1 => (Shape::Fragmented, Grain::SMALL),
            2 => (Shape::Groups, Grain::SMALL),
            3 => (Shape::Groups, Grain::LARGE),
            4 => (Shape::Plain, Grain::LARGE),
            5 => (Shape::Plain, Grain::LARGE_BY_1K),
            _ => (Shape::Plain, Grain::SMALL),
        };
        let setup = Setup {
            shape,
            grain,
            queues: rng.below(4).saturating_sub(1) as u32,
            apart: rng.below(4) == 0,
            discard: if rng.below(3) == 0 { DiscardMode::Pass } else { DiscardMode::Memory },
            punch: rng.below(3) == 0,
            degree: if rng.below(3) == 0 { 2 } else { 1 },
            slots: if rng.below(3) == 0 { 1 + rng.below(3) as usize } else { usize::MAX },
            checker: [Checker::Weak, Checker::Quick, Checker::Full][rng.below(3) as usize],
            ..Setup::default()
        };
        let apart = setup.apart;
        let alphabet = alphabet(&mut rng);
        Walk {
            world: World::new(setup).with_plants(plants),
            path: Vec::new(),
            coverage: Coverage::default(),
            lands: 1 + rng.below(4),
            fails: rng.below(6) == 0,
            apart,
            alphabet,
            plan: Vec::new(),
            calm: false,
            rng,
        }
    }

    /// A walk without accidents, from a world that is prepared: for others to cut off anywhere.
    pub fn calm(world: World, seed: u64) -> Walk {
        let walk = Walk::new(seed, &[]);
        let accident = |a: &Action| {
            matches!(
                a,
                Action::KernelDies
                    | Action::Kill
                    | Action::KillAlone
                    | Action::PowerLoss(_)
                    | Action::PowerLossTorn(_)
                    | Action::ElsewhereWrites(_)
                    | Action::Write(T | U)
            )
        };
        let alphabet = walk.alphabet.into_iter().filter(|(a, _)| !accident(a)).collect();
        Walk { world, alphabet, fails: false, calm: true, ..walk }
    }

    /// One step on; `None` where nothing can be done.
    pub fn step(&mut self) -> Option<Result<(), Violation>> {
        if self.plan.is_empty() && self.rng.below(30) == 0 {
            self.plan = way_out(&self.world, self.calm, &mut self.rng);
        }
        let next = follow(&self.world, &mut self.plan, &mut self.rng);
        let action = next.or_else(|| self.choose())?;
        self.path.push(self.world.describe(action));
        let before = self.world.tally();
        let world = &mut self.world;
        let mut result = guarded(|| world.step(action));
        self.world.tally().since(&before, &mut self.coverage);
        for what in ["steps"].into_iter().chain(notable(action)) {
            *self.coverage.0.entry(what).or_default() += 1;
        }
        // From time to time everything comes to rest: liveness, and the oracles with nothing in flight.
        if result.is_ok() && self.rng.below(60) == 0 {
            self.path.push("everything comes to rest".into());
            let world = &mut self.world;
            result = guarded(|| world.judge_end());
        }
        Some(result)
    }

    fn choose(&mut self) -> Option<Action> {
        let (world, rng) = (&self.world, &mut self.rng);
        let queued = world.queued() as u64;
        for a in [Action::BitmapArrives, Action::OtherBitmapArrives] {
            if world.is_enabled(a) && rng.below(4) == 0 {
                return Some(a);
            }
        }
        if let Some(a) = read_on(world, rng) {
            return Some(a);
        }
        if queued > 0 && rng.below(self.lands + 2) < self.lands {
            let i = rng.below(queued) as usize;
            // A failed flush has a scenario of its own: what it lost, later sessions read from the cache.
            let fail = self.fails && rng.below(40) == 0 && !world.is_flush(i);
            return Some(if fail { Action::Fail(i) } else { Action::Land(i) });
        }
        let possible: Vec<_> = self
            .alphabet
            .iter()
            .filter(|(a, weight)| {
                // The table's blocks are on another device there.
                let table = matches!(a, Action::Write(T | U));
                // Only a mounted kernel allocates; only a tool marks blocks as it likes.
                let kernel = matches!(
                    a,
                    Action::Alloc(_) | Action::Free(_) | Action::SendBitmap | Action::SendOtherBitmap
                );
                let fits = if world.kernel.mounted { !matches!(a, Action::Claim(_)) } else { !kernel };
                *weight > 0 && fits && !(self.apart && table) && world.is_enabled(*a)
            })
            .collect();
        let total: u64 = possible.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return (queued > 0).then(|| Action::Land(rng.below(queued) as usize));
        }
        let mut at = rng.below(total);
        let (action, _) = possible.into_iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        })?;
        Some(drawn(*action, rng))
    }
}

/// What is counted beside what the engine counts.
fn notable(action: Action) -> Option<&'static str> {
    Some(match action {
        Action::FreezeFs => "file systems frozen",
        Action::ReadOnly => "remounts read-only",
        Action::Run(_) => "checks of served volumes",
        Action::ReadPart(..) => "reads of parts",
        Action::Reconnect => "connections lost",
        Action::Receive(_) => "requests read from dead connections",
        Action::Arrives(_) => "requests that waited in sockets",
        Action::KernelDies => "kernels that died",
        Action::Kill | Action::KillAlone => "daemons killed",
        Action::PowerLoss(_) | Action::PowerLossTorn(_) => "losses of power",
        _ => return None,
    })
}

/// Walks `steps` steps; one seed, one walk.
pub fn walk(seed: u64, steps: usize, plants: &[Plant]) -> End {
    let mut walk = Walk::new(seed, plants);
    let plan = walk.world.ground().plan;
    for (is, what) in [
        (plan.grain.block() == 4096, "walks in blocks of 4 KiB"),
        (plan.groups() > 1, "walks over several groups"),
    ] {
        *walk.coverage.0.entry(what).or_default() += u64::from(is);
    }
    for _ in 0..steps {
        match walk.step() {
            Some(Ok(())) => {}
            Some(Err(v)) => return End { violation: Some((v, walk.path)), coverage: walk.coverage },
            None => break,
        }
    }
    let world = &mut walk.world;
    let end = guarded(|| world.judge_end()).err();
    End { violation: end.map(|v| (v, walk.path)), coverage: walk.coverage }
}

/// A few steps that lead somewhere, in reverse: a session that ends in order, one that is killed and
/// checked, a copy that is read.
fn way_out(world: &World, calm: bool, rng: &mut Rng) -> Vec<Action> {
    let [a, b] = [rng.below(4), rng.below(4)].map(|i| [O, X, R, S][i as usize]);
    let trusted = world.volume().is_some_and(|v| *v.standing() == Standing::Active);
    let which = if calm { [0, 4, 4][rng.below(3) as usize] } else { rng.below(if trusted { 8 } else { 4 }) };
    let mut plan = match which {
        0 => vec![Action::Unmount, Action::Detach, Action::Attach],
        1 => vec![Action::Unmount, Action::Detach, Action::ElsewhereWrites(a), Action::Check, Action::Attach],
        2 => vec![Action::Kill, Action::Check, Action::Attach],
        3 => {
            let fails = if rng.below(2) == 0 { Action::PowerLoss(0) } else { Action::PowerLossTorn(0) };
            vec![fails, Action::Check, Action::Attach]
        }
        _ => vec![
            Action::Target(b),
            Action::Read(a, From::Original),
            Action::Background,
            Action::Background,
            Action::Background,
            Action::Read(a, From::Replica),
            Action::Background,
        ],
    };
    plan.reverse();
    plan
}

/// Mostly the daemon reads what there is to be read; what is in dead sockets, now and then.
fn read_on(world: &World, rng: &mut Rng) -> Option<Action> {
    let unread = world.unread();
    if unread.is_empty() {
        return None;
    }
    let action = unread[rng.below(unread.len() as u64) as usize];
    let often = if matches!(action, Action::Arrives(_)) { 3 } else { 1 };
    (rng.below(6) < often).then_some(action)
}

/// The plan's next step; the device may have to do something first. What cannot be done is left out.
fn follow(world: &World, plan: &mut Vec<Action>, rng: &mut Rng) -> Option<Action> {
    while let Some(&action) = plan.last() {
        if world.queued() > 0 && rng.below(8) > 0 {
            return Some(Action::Land(rng.below(world.queued() as u64) as usize));
        }
        if rng.below(8) > 0
            && let Some(a) = read_on(world, rng)
        {
            return Some(a);
        }
        plan.pop();
        if world.is_enabled(action) {
            return Some(drawn(action, rng));
        }
    }
    None
}

/// What survives a loss of power is drawn when it happens.
fn drawn(action: Action, rng: &mut Rng) -> Action {
    match action {
        Action::PowerLoss(_) => Action::PowerLoss(rng.draw()),
        Action::PowerLossTorn(_) => Action::PowerLossTorn(rng.draw()),
        other => other,
    }
}
