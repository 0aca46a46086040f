//! Small worlds, each with an alphabet of actions and how often each may be done.

mod clients;
mod data;
mod sessions;

use fs2_engine::{DiscardMode, Plant};

use super::image::Shape;
use super::world::{Action, From, O, R, S, T, U, World, X};
use crate::glue::{Checker, Setup};

/// A small world.
#[derive(Clone)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    setup: Setup,
    before: &'static [&'static [Action]],
    menu: &'static [(Action, u8)],
}

impl Scenario {
    /// Where it begins, with these rules broken. What comes before breaks none.
    pub fn start(&self, plants: &[Plant]) -> World {
        let before: Vec<Action> = self.before.concat();
        let world = World::new(self.setup.clone()).prepared(&before);
        world.with_plants(plants).with_menu(self.menu)
    }

    /// The same where the device may still have I/O of a dead daemon when the next attaches.
    pub fn without_lock_wait(mut self) -> Scenario {
        self.setup.no_lock_wait = true;
        self
    }
}

const READ: Action = Action::Read(O, From::Original);
const READ_X: Action = Action::Read(X, From::Original);
const READ_TWO: Action = Action::ReadTwo(O, From::Original);
const READ_TWO_COPIES: Action = Action::ReadTwo(O, From::Replica);
const READ_COPY: Action = Action::Read(O, From::Replica);
const READ_PART_COPY: Action = Action::ReadPart(O, 1, From::Replica);
const BG: Action = Action::Background;

/// Attached; the mark stands, the group's bitmap is not loaded.
const FRESH: &[Action] = &[Action::Attach, Action::Target(R)];
/// The bitmap is loaded.
const LOAD: &[Action] = &[BG];
/// Those of four groups are.
const LOAD_4: &[Action] = &[BG, BG, BG, BG];
/// Mounted, the mark erased in both slots.
const MOUNT: &[Action] = &[Action::Mount, BG];
/// O's parts hold different values.
const UNLIKE: &[Action] = &[Action::WritePart(O, 1)];
/// O is copied to R.
const COPY: &[Action] = &[READ, BG, Action::Expect(R)];
/// The same as the first change of the session: the mark is erased before, in both slots after.
const FIRST_COPY: &[Action] = &[READ, BG, BG, BG, Action::Expect(R)];
/// O and X are copied to R and S.
const COPY_TWO: &[Action] = &[READ_TWO, BG, Action::Expect(R), Action::Expect(S)];
/// The table is on disk (the superblock is looked at first).
const TABLE: &[Action] = &[BG, BG];
/// In order to the end, and attached again: the table is trusted, the mark stands.
const AGAIN: &[Action] = &[Action::Detach, Action::Attach, Action::Target(R), Action::Expect(R)];
/// The sample of the originals was looked at.
const SAMPLED: &[Action] = &[BG];
/// Killed and checked: all pages are unverified, the mark stands.
const CHECKED: &[Action] =
    &[Action::Kill, Action::Check, Action::Attach, Action::Target(R), Action::Expect(R)];

/// All of them.
pub fn all() -> Vec<Scenario> {
    [data::all(), sessions::all(), clients::all()].concat()
}

/// The one of this name.
pub fn by_name(name: &str) -> Option<Scenario> {
    all().into_iter().find(|s| s.name == name)
}
