//! What copies would be worth while the gate is closed.

use fs2_block::{Nanos, Op, Sector};

use super::gate::{LEARN, SHARE_MAX};
use super::model::Model;

/// By what share of what the model without copies takes the one with them must be faster. Measured on made-up mixtures; see
/// docs/experiments.md.
const GAINS: f64 = 0.2;

/// What copies would be worth while the gate is closed: the same requests on a second modelled drive, which reads them.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    model: Model,
    /// What reads took without copies and with them lately, by the requests outstanding, in ms.
    without: f64,
    with: f64,
    reads: u64,
}

impl Trial {
    /// As the model without copies is now.
    pub(super) fn new(plain: &Model) -> Trial {
        Trial { model: plain.clone(), without: 0.0, with: 0.0, reads: 0 }
    }

    /// A read or a write arrives, as in [`Model::arrived`].
    pub(super) fn arrived(&mut self, rested: Nanos, op: Op, places: &[Sector], sectors: u32) {
        self.model.arrived(rested, op, places, sectors);
    }

    /// One was answered, while the drive had so many; in the model without copies a read took so many ms by the requests outstanding.
    pub(super) fn answered(&mut self, reads: bool, given: usize, without: f64) {
        let outstanding = self.model.outstanding();
        let keep = 1.0 - f64::from(u8::from(reads)) / LEARN.2;
        (self.without, self.with) = (self.without * keep + without.min(SHARE_MAX), self.with * keep);
        if let Some(served) = self.model.serve(given)
            && served.op == Op::Read
        {
            self.with += (served.response.as_millis_f64() / outstanding).min(SHARE_MAX);
        }
        self.reads += u64::from(reads);
    }

    /// Reads so far, and what they took without copies lately.
    pub(super) fn so_far(&self) -> (u64, f64) {
        (self.reads, self.without)
    }

    pub(super) fn gains(&self) -> bool {
        self.with < self.without * (1.0 - GAINS)
    }
}
