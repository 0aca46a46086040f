//! Whether more is open than usual: then the drive is behind, and whoever has waited for long would only be served at the expense of all others.
//!
//! So many clients that each wait for an answer before they ask again have nearly that many open whenever another request comes; a scan, or a burst,
//! finds less before it.

/// So many open requests are no rush. Measured on made-up traces in which a drive is nearly busy with a scan beside small reads: with 4 they are won
/// a tenth more, with 16 lost a quarter; with 4 programs by eight clients have a 99th percentile up to 18 % above that without copies.
const FEW: f64 = 8.0;

/// So much more than usual is none. A guess: clients come and go.
const MORE: f64 = 1.25;

/// The share of requests that find less than usual. A guess: those at the beginning and the end.
const LESS: f64 = 0.1;

/// What is usual rises by one while so many requests come at the least: more than a scan has in that time. Guess.
const SLOW: f64 = 128.0;

/// How many requests are open when others come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rush {
    usually: f64,
}

impl Rush {
    /// Another request comes; so many are open.
    pub(super) fn came(&mut self, open: usize) {
        let step = if open as f64 > self.usually { 1.0 } else { 1.0 - 1.0 / LESS };
        self.usually = (self.usually + step / SLOW).max(0.0);
    }

    /// Whether so many are more than usual.
    pub(super) fn is_with(&self, open: usize) -> bool {
        open as f64 > FEW.max(MORE * self.usually)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_are_always_there_are_no_rush_and_a_scan_is() {
        let mut rush = Rush::default();
        let come = |rush: &mut Rush, open: usize, times: u32| (0..times).for_each(|_| rush.came(open));
        assert!(!rush.is_with(8) && rush.is_with(9), "nothing is known");
        for _ in 0..4 {
            come(&mut rush, 31, 2000);
            (0..32).for_each(|open| rush.came(open));
        }
        assert!(!rush.is_with(32) && rush.is_with(40), "{rush:?}");
        for _ in 0..8 {
            come(&mut rush, 1, 400);
            come(&mut rush, 60, 1500);
            assert!(rush.is_with(60), "{rush:?}");
        }
    }
}
