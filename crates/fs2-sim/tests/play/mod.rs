//! One interleaving, told step by step.
#![allow(dead_code, unreachable_pub)]

use fs2_sim::model::kernel::Tracked;
use fs2_sim::model::scenarios;
use fs2_sim::model::world::{Action, From, O, R, World, X};

/// A world in which one thing after the other happens; whatever breaks a rule ends the test.
pub struct Play(pub World);

/// Read O and let its payload be captured.
pub const READ: Action = Action::Read(O, From::Original);
/// Read O from its replica, if there is one.
pub const READ_COPY: Action = Action::Read(O, From::Replica);
/// Read X and let its payload be captured.
pub const READ_X: Action = Action::Read(X, From::Original);
/// Let the engine do one thing of its own.
pub const BG: Action = Action::Background;

impl Play {
    /// At the beginning of a scenario.
    pub fn at(scenario: &str) -> Play {
        Play(scenarios::by_name(scenario).expect("there is such a scenario").start(&[]))
    }

    /// Does these, one after the other.
    pub fn act(&mut self, actions: &[Action]) -> &mut Play {
        for &a in actions {
            assert!(self.0.is_enabled(a), "{} cannot be done: {:?}", self.0.describe(a), self.queue());
            let what = self.0.describe(a);
            self.0.step(a).unwrap_or_else(|v| panic!("{what}: {v}"));
        }
        self
    }

    /// The device does this.
    pub fn lands(&mut self, what: &str) -> &mut Play {
        let i = self.queue().iter().position(|q| q == what);
        let i = i.unwrap_or_else(|| panic!("'{what}' is not in the device's queue: {:?}", self.queue()));
        self.act(&[Action::Land(i)])
    }

    /// This is in the device's queue.
    pub fn flies(&mut self, what: &str) -> &mut Play {
        assert!(self.queue().iter().any(|q| q == what), "no '{what}' in {:?}", self.queue());
        self
    }

    /// This is not in the device's queue: it waits, or will never be.
    pub fn waits(&mut self, what: &str) -> &mut Play {
        assert!(self.queue().iter().all(|q| q != what), "'{what}' is in {:?}", self.queue());
        self
    }

    /// Nothing is in the device's queue.
    pub fn idle(&mut self) -> &mut Play {
        assert!(self.queue().is_empty(), "{:?}", self.queue());
        self
    }

    /// The device does everything there is.
    pub fn rest(&mut self) -> &mut Play {
        self.0.drain().unwrap_or_else(|v| panic!("{v}"));
        self
    }

    /// So many requests wait for their answers.
    pub fn unanswered(&mut self, n: usize) -> &mut Play {
        assert_eq!(self.0.kernel.outstanding.len(), n, "{:?}", self.0.kernel.outstanding);
        self
    }

    /// There is a replica in a block, or not.
    pub fn mapped(&mut self, block: Tracked, is: bool) -> &mut Play {
        assert_eq!(self.0.is_enabled(Action::Expect(block)), is, "a replica in block {block}");
        self
    }

    /// Reads O in every way: what it brings the oracles compare. Says whether the replica was read.
    pub fn reads_o(&mut self) -> bool {
        self.act(&[READ_COPY]);
        let copy = self.queue().iter().any(|q| q == "the client's read of R");
        self.rest().act(&[READ]).rest();
        copy
    }

    /// A copy of O to R is asked for with all that it may need; nothing must come of it.
    pub fn no_copy_to_r(&mut self) -> &mut Play {
        self.act(&[READ]).rest();
        for _ in 0..4 {
            self.act(&[BG]).waits("the daemon's write of R").rest();
        }
        self.mapped(R, false)
    }

    fn queue(&self) -> Vec<String> {
        self.0.queue_in_words()
    }
}
