//! Small worlds, each with an alphabet of actions and how often each may be done.

use fs2_engine::{DiscardMode, Plant};

use super::world::{Action, From, O, R, S, T, World, X};
use crate::glue::Setup;

/// A small world.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    setup: Setup,
    before: &'static [Action],
    menu: &'static [(Action, u8)],
}

impl Scenario {
    /// Where it begins, with these rules broken.
    pub fn start(&self, plants: &[Plant]) -> World {
        let mut setup = self.setup.clone();
        setup.plants = plants.to_vec();
        World::new(setup).prepared(self.before).with_menu(self.menu)
    }
}

const READ: Action = Action::Read(O, From::Original);
const READ_COPY: Action = Action::Read(O, From::Replica);

/// Attached and mounted, the group's bitmap loaded, copies go to R.
const LOADED: &[Action] =
    &[Action::Attach, Action::Mount, Action::Background, Action::Background, Action::Target(R)];
/// And O is copied to R.
const MAPPED: &[Action] = &[
    Action::Attach,
    Action::Mount,
    Action::Background,
    Action::Background,
    Action::Target(R),
    READ,
    Action::Background,
];

/// All of them.
pub fn all() -> Vec<Scenario> {
    let memory = Setup::default;
    let pass = || Setup { discard: DiscardMode::Pass, ..Setup::default() };
    vec![
        Scenario {
            name: "copy",
            about: "a copy races with writes of its original and of its target",
            setup: memory(),
            before: LOADED,
            menu: &[
                (READ, 1),
                (READ_COPY, 1),
                (Action::Write(O), 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (Action::Read(R, From::Original), 1),
                (Action::Background, 2),
            ],
        },
        Scenario {
            name: "held-discard",
            about: "a discard waits for the mark's erasure while its block is used again",
            setup: memory(),
            before: &[Action::Attach, Action::Background, Action::Target(R)],
            menu: &[
                (Action::Discard(R), 1),
                (Action::GiveUp(R), 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (READ, 1),
                (Action::Background, 1),
            ],
        },
        Scenario {
            name: "pins",
            about: "a replica is read while its block is taken, evicted, copied into",
            setup: memory(),
            before: MAPPED,
            menu: &[
                (READ_COPY, 1),
                (Action::Read(X, From::Original), 1),
                (Action::Evict(R), 1),
                (Action::Background, 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
            ],
        },
        Scenario {
            name: "discard-pass",
            about: "discards are passed down",
            setup: pass(),
            before: MAPPED,
            menu: &[
                (Action::Discard(R), 1),
                (READ_COPY, 1),
                (READ, 1),
                (Action::Background, 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
            ],
        },
        Scenario {
            name: "table",
            about: "a client takes a block of the table",
            setup: memory(),
            before: MAPPED,
            menu: &[(Action::Write(T), 1), (Action::Background, 4), (Action::Discard(S), 1)],
        },
    ]
}

/// The one of this name.
pub fn by_name(name: &str) -> Option<Scenario> {
    all().into_iter().find(|s| s.name == name)
}
