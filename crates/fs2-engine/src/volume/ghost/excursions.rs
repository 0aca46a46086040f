//! What it turned out to be worth to leave the originals for a copy, by what that saves at once.
//!
//! What a copy saves is predicted for the read itself, and guessed for those behind it. An excursion begins with a read of a copy while the
//! arm is at the originals, and ends with what brings it back: an original that it had to move for, or a write. What its requests took
//! less than in the model, the one that comes back included, is what it was worth. Excursions that save about as much at once are
//! of a kind; a kind that surely loses is refused, but for one in so many, which shows whether it still does.

/// Kinds, by what a copy saves of its own read, as a share of a mean positioning; less than nothing where it costs more than the
/// original, for the sake of what is read behind it. Guesses; kinds of their own in a crowd are no better (docs/experiments.md).
const EDGES: [f64; 6] = [-0.3, 0.0, 0.15, 0.3, 0.6, 1.0];

/// As if each kind had gained so much in so many excursions, in mean positionings. Measured on made-up mixtures: with 0 for a quarter 0.1 to 0.2 points less
/// is won, and a fifth more runs are above 1 %.
const BEFORE: (f64, f64) = (0.25, 4.0);

/// Their variance, then. A guess: one positioning, for the platters are anywhere.
const SPREAD: f64 = 1.0;

/// Excursions by which a kind is known. Measured with other constants than are kept: with 64 what loses is refused later.
const LEARN: f64 = 32.0;

/// A kind is refused if what it is worth is below nothing by so many times its standard error. Measured on made-up mixtures and workloads that lose: with a
/// half 0.1 to 0.4 points less is won, with 2 hardly anything is refused.
const SURELY: f64 = 1.0;

/// Of a kind that is refused, one in so many goes. Measured where more is refused than is: with 16 made-up mixtures win 0.1 to 0.3 points more, and
/// what loses does a tenth more.
const TRIED: u32 = 32;

/// Requests that count, the first: a long one among many short ones that lose does not decide for them all. Measured on made-up mixtures: as many as
/// come are alike.
const COUNTED: u32 = 8;

/// One that lasts for so many requests has ended, wherever the arm is. A guess.
const LASTS: u32 = 100;

/// A read that takes more than this share of a mean positioning brought the arm back. As in the policy's `MISS_SHARE`.
const MOVED: f64 = 1.0 / 3.0;

/// What excursions of a kind were worth, in mean positionings.
#[derive(Clone, Copy, Debug)]
struct Kind {
    mean: f64,
    /// The mean square.
    square: f64,
    known: f64,
    refused: u32,
}

impl Kind {
    fn new() -> Kind {
        let (mean, known) = BEFORE;
        Kind { mean, square: SPREAD + mean * mean, known, refused: 0 }
    }

    fn ended(&mut self, worth: f64) {
        self.known = (self.known + 1.0).min(LEARN);
        self.mean += (worth - self.mean) / self.known;
        self.square += (worth * worth - self.square) / self.known;
    }

    fn loses(&self) -> bool {
        let variance = (self.square - self.mean * self.mean).max(0.0);
        self.mean + SURELY * (variance / self.known).sqrt() < 0.0
    }

    /// Whether the next may go.
    fn goes(&mut self) -> bool {
        if !self.loses() {
            return true;
        }
        self.refused = (self.refused + 1) % TRIED;
        self.refused == 0
    }
}

/// The one that goes on.
#[derive(Clone, Copy, Debug)]
struct Excursion {
    kind: usize,
    positioning: f64,
    requests: u32,
    /// In ms.
    worth: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Excursions {
    kinds: [Kind; EDGES.len() + 1],
    now: Option<Excursion>,
}

impl Excursions {
    pub(super) fn new() -> Excursions {
        Excursions { kinds: [Kind::new(); EDGES.len() + 1], now: None }
    }

    /// A copy was chosen that saves so much at once, as a share of a mean positioning, which takes so many ms. Whether it is read: always while the
    /// arm is among the copies, and where it `must` be.
    pub(super) fn goes(&mut self, saves: f64, positioning: f64, must: bool) -> bool {
        if self.now.is_some() {
            return true;
        }
        let kind = EDGES.iter().filter(|&&edge| saves >= edge).count();
        let goes = must || self.kinds[kind].goes();
        if goes {
            self.now = Some(Excursion { kind, positioning, requests: 0, worth: 0.0 });
        }
        goes
    }

    /// A request was answered that read a copy, or an original in so many ms, or else wrote or failed; it gained so many ms.
    pub(super) fn answered(&mut self, from_copy: bool, read_ms: Option<f64>, gained: f64) {
        let Some(mut e) = self.now.take() else { return };
        let back = !from_copy && read_ms.is_none_or(|ms| ms > e.positioning * MOVED);
        e.requests += 1;
        e.worth += gained;
        if e.requests == COUNTED || back && e.requests < COUNTED {
            self.kinds[e.kind].ended(e.worth / e.positioning);
        }
        self.now = Some(e).filter(|e| !back && e.requests < LASTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITIONING: f64 = 10.0;

    /// An excursion whose copy saves so much at once and whose way back costs so many ms; whether it may go.
    fn excursion(e: &mut Excursions, saves: f64, costs: f64) -> bool {
        let goes = e.goes(saves, POSITIONING, false);
        if goes {
            e.answered(true, Some(5.0), saves * POSITIONING);
            e.answered(false, Some(8.0), -costs);
        }
        goes
    }

    #[test]
    fn a_kind_that_loses_is_refused_and_the_others_are_not() {
        let mut e = Excursions::new();
        for n in 0..200 {
            assert!(excursion(&mut e, 0.7, 5.0), "{n}");
            excursion(&mut e, 0.2, 5.0);
        }
        let went = (0..10 * TRIED).filter(|_| excursion(&mut e, 0.2, 5.0)).count();
        assert_eq!(went, 10);
        assert!(excursion(&mut e, 0.1, 0.0), "of that kind none was seen");
    }

    #[test]
    fn little_is_lost_before_it_is() {
        let mut e = Excursions::new();
        let went = (0..TRIED).filter(|_| excursion(&mut e, 0.2, 5.0)).count();
        assert!((3..12).contains(&went), "{went}");
    }

    #[test]
    fn one_that_gained_much_among_many_that_lose_decides_for_none() {
        let mut e = Excursions::new();
        for n in 0..100 {
            excursion(&mut e, 0.2, 5.0);
            if n % 10 == 0 && e.goes(0.2, POSITIONING, false) {
                (0..LASTS).for_each(|_| e.answered(true, Some(0.1), 0.2));
            }
        }
        assert!(e.kinds[3].loses(), "{e:?}");
    }

    #[test]
    fn what_wins_again_goes_again() {
        let mut e = Excursions::new();
        (0..2000).for_each(|_| _ = excursion(&mut e, 0.2, 5.0));
        assert!(e.kinds[3].loses());
        let until = (1..1000).find(|_| excursion(&mut e, 0.2, -20.0) && !e.kinds[3].loses()).unwrap();
        assert!(until <= 4 * TRIED, "{until}");
        assert!((0..200).all(|_| excursion(&mut e, 0.2, -20.0)));
    }

    #[test]
    fn from_among_the_copies_and_where_it_must_be_any_is_read() {
        let mut e = Excursions::new();
        (0..2000).for_each(|_| _ = excursion(&mut e, 0.2, 5.0));
        // One that is tried went just now.
        assert!((0..TRIED).any(|_| excursion(&mut e, 0.2, 5.0)));
        let refused = (0..TRIED - 2).all(|_| !e.goes(0.2, POSITIONING, false));
        assert!(refused && e.goes(0.2, POSITIONING, true));
        e.answered(true, Some(5.0), 1.0);
        // From the drive's cache: the arm is where it was.
        e.answered(false, Some(0.1), 0.0);
        assert!((0..3).all(|_| e.goes(0.2, POSITIONING, false)));
        // A write brings it back.
        e.answered(false, None, 0.0);
        assert!(e.now.is_none() && !e.goes(0.2, POSITIONING, false));
    }

    #[test]
    fn the_way_back_counts_and_what_is_read_later_does_not() {
        let of = |copies: u32| {
            let mut e = Excursions::new();
            assert!(e.goes(0.2, POSITIONING, false));
            (0..copies).for_each(|_| e.answered(true, Some(1.0), POSITIONING));
            e.answered(false, Some(9.0), -POSITIONING);
            assert!(e.now.is_none());
            let kind = e.kinds[3];
            (kind.mean * kind.known - BEFORE.0 * BEFORE.1, kind.known)
        };
        assert_eq!(of(3), (2.0, BEFORE.1 + 1.0));
        assert_eq!(of(COUNTED - 1), (6.0, BEFORE.1 + 1.0));
        assert_eq!(of(COUNTED), (8.0, BEFORE.1 + 1.0));
        assert_eq!(of(COUNTED + 5), (8.0, BEFORE.1 + 1.0));
    }

    #[test]
    fn it_ends_though_nothing_comes_back() {
        let mut e = Excursions::new();
        assert!(e.goes(0.2, POSITIONING, false));
        (1..LASTS).for_each(|_| e.answered(true, Some(1.0), 0.0));
        assert!(e.now.is_some());
        e.answered(true, Some(1.0), 0.0);
        assert!(e.now.is_none());
    }
}
