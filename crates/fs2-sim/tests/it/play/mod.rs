//! One interleaving, told step by step.

use fs2_sim::model::kernel::Tracked;
use fs2_sim::model::scenarios;
use fs2_sim::model::world::{Action, From, O, R, World, X};

/// A world in which one thing after the other happens; whatever breaks a rule ends the test.
pub(crate) struct Play(pub(crate) World);

/// Read O and let its payload be captured.
pub(crate) const READ: Action = Action::Read(O, From::Original);
/// Read O from its replica, if there is one.
pub(crate) const READ_COPY: Action = Action::Read(O, From::Replica);
/// Read X and let its payload be captured.
pub(crate) const READ_X: Action = Action::Read(X, From::Original);
/// Let the engine do one thing of its own.
pub(crate) const BG: Action = Action::Background;

impl Play {
    /// At the beginning of a scenario.
    pub(crate) fn at(scenario: &str) -> Play {
        Play(scenarios::by_name(scenario).expect("there is such a scenario").start(&[]))
    }

    /// Does these, one after the other.
    pub(crate) fn act(&mut self, actions: &[Action]) -> &mut Play {
        for &a in actions {
            assert!(self.0.is_enabled(a), "{} cannot be done: {:?}", self.0.describe(a), self.queue());
            let what = self.0.describe(a);
            self.0.step(a).unwrap_or_else(|v| panic!("{what}: {v}"));
        }
        self
    }

    /// The device does this.
    pub(crate) fn lands(&mut self, what: &str) -> &mut Play {
        let i = self.queue().iter().position(|q| q == what);
        let i = i.unwrap_or_else(|| panic!("'{what}' is not in the device's queue: {:?}", self.queue()));
        self.act(&[Action::Land(i)])
    }

    /// This is in the device's queue.
    pub(crate) fn flies(&mut self, what: &str) -> &mut Play {
        assert!(self.queue().iter().any(|q| q == what), "no '{what}' in {:?}", self.queue());
        self
    }

    /// This is not in the device's queue: it waits, or will never be.
    pub(crate) fn waits(&mut self, what: &str) -> &mut Play {
        assert!(self.queue().iter().all(|q| q != what), "'{what}' is in {:?}", self.queue());
        self
    }

    /// Nothing is in the device's queue.
    pub(crate) fn idle(&mut self) -> &mut Play {
        assert!(self.queue().is_empty(), "{:?}", self.queue());
        self
    }

    /// The device does everything there is.
    pub(crate) fn rest(&mut self) -> &mut Play {
        self.0.drain().unwrap_or_else(|v| panic!("{v}"));
        self
    }

    /// So many requests wait for their answers.
    pub(crate) fn unanswered(&mut self, n: usize) -> &mut Play {
        assert_eq!(self.0.kernel.outstanding.len(), n, "{:?}", self.0.kernel.outstanding);
        self
    }

    /// There is a replica in a block, or not.
    pub(crate) fn mapped(&mut self, block: Tracked, is: bool) -> &mut Play {
        assert_eq!(self.0.is_enabled(Action::Expect(block)), is, "a replica in block {block}");
        self
    }

    /// Reads O in every way: what it brings the oracles compare. Says whether the replica was read.
    pub(crate) fn reads_o(&mut self) -> bool {
        self.act(&[READ_COPY]);
        let copy = self.queue().iter().any(|q| q == "the client's read of R");
        self.rest().act(&[READ]).rest();
        copy
    }

    /// A copy of O to R is asked for with all that it may need; nothing must come of it.
    pub(crate) fn no_copy_to_r(&mut self) -> &mut Play {
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
