//! What it turned out to be worth to leave the originals for a copy, by what that saves at once and by where the original lies.
//!
//! What a copy saves is predicted for the read itself, and guessed for those behind it. An excursion begins with a read of a copy while the
//! arm is at the originals, and ends with what brings it back: an original that it had to move for, or a write. What its requests took
//! less than in the model, the one that comes back included, is what it was worth. Excursions that save about as much at once are
//! of a kind; a kind that surely loses is refused, but for one in so many, which shows whether it still does. What wins and what loses lies
//! apart, so each place is known by its own as well, and begins with what the kind is worth.

use fs2_block::Sector;

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

/// The place of an original, 2 to this sectors. Measured on made-up mixtures and workloads that lose: 256 KiB to 8 MiB are alike, and places of copies tell less.
const PLACE_SHIFT: u32 = 11;

/// Places known at a time, of which one takes the slot of another. A guess: 16 GiB of what is read, in 192 KiB.
const PLACES: usize = 1 << 14;

/// A place has what its kind is worth as if from so many excursions of its own. Measured on workloads that lose: 2 to 8 are alike.
const AS_KIND: f64 = 4.0;

/// Excursions by which a place is known. Measured on made-up mixtures and workloads that lose: to 64 are alike.
const LEARN_PLACE: f64 = 8.0;

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

    /// At that place.
    fn loses(&self, there: Place) -> bool {
        let known = f64::from(there.known);
        let mean = (self.mean * AS_KIND + f64::from(there.mean) * known) / (AS_KIND + known);
        let variance = (self.square - self.mean * self.mean).max(0.0);
        mean + SURELY * (variance / (self.known + known)).sqrt() < 0.0
    }

    /// Whether the next may go, which would begin there.
    fn goes(&mut self, there: Place) -> bool {
        if !self.loses(there) {
            return true;
        }
        self.refused = (self.refused + 1) % TRIED;
        self.refused == 0
    }
}

/// What excursions from one place were worth, in mean positionings.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    number: u32,
    mean: f32,
    known: f32,
}

impl Place {
    fn ended(&mut self, worth: f64) {
        self.known = (self.known + 1.0).min(LEARN_PLACE as f32);
        self.mean += (worth as f32 - self.mean) / self.known;
    }
}

/// By place; those that excursions ended at lately.
#[derive(Clone, Debug)]
struct Places(Vec<Place>);

impl Places {
    fn new() -> Places {
        Places(vec![Place::default(); PLACES])
    }

    /// Of a 4 PiB volume at most; beyond that places have namesakes.
    fn number(at: Sector) -> u32 {
        (at.0 >> PLACE_SHIFT) as u32
    }

    fn of(&self, number: u32) -> Place {
        let there = self.0[number as usize % PLACES];
        if there.number == number { there } else { Place { number, ..Place::default() } }
    }

    fn ended(&mut self, number: u32, worth: f64) {
        let mut there = self.of(number);
        there.ended(worth);
        self.0[number as usize % PLACES] = there;
    }
}

/// The one that goes on.
#[derive(Clone, Copy, Debug)]
struct Excursion {
    kind: usize,
    place: u32,
    positioning: f64,
    requests: u32,
    /// In ms.
    worth: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Excursions {
    kinds: [Kind; EDGES.len() + 1],
    places: Places,
    now: Option<Excursion>,
}

impl Excursions {
    pub(super) fn new() -> Excursions {
        Excursions { kinds: [Kind::new(); EDGES.len() + 1], places: Places::new(), now: None }
    }

    /// A copy of what lies at `original` was chosen that saves so much at once, as a share of a mean positioning, which takes so many ms. Whether
    /// it is read: always while the arm is among the copies, and where it `must` be.
    pub(super) fn goes(&mut self, original: Sector, saves: f64, positioning: f64, must: bool) -> bool {
        if self.now.is_some() {
            return true;
        }
        let kind = EDGES.iter().filter(|&&edge| saves >= edge).count();
        let place = Places::number(original);
        let goes = must || self.kinds[kind].goes(self.places.of(place));
        if goes {
            self.now = Some(Excursion { kind, place, positioning, requests: 0, worth: 0.0 });
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
            let worth = e.worth / e.positioning;
            self.kinds[e.kind].ended(worth);
            self.places.ended(e.place, worth);
        }
        self.now = Some(e).filter(|e| !back && e.requests < LASTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITIONING: f64 = 10.0;
    const HERE: Sector = Sector(7 << PLACE_SHIFT);

    /// An excursion from here whose copy saves so much at once and whose way back costs so many ms; whether it may go.
    fn excursion(e: &mut Excursions, saves: f64, costs: f64) -> bool {
        excursion_from(e, HERE, saves, costs)
    }

    fn excursion_from(e: &mut Excursions, original: Sector, saves: f64, costs: f64) -> bool {
        let goes = e.goes(original, saves, POSITIONING, false);
        if goes {
            e.answered(true, Some(5.0), saves * POSITIONING);
            e.answered(false, Some(8.0), -costs);
        }
        goes
    }

    fn loses_here(e: &Excursions) -> bool {
        e.kinds[3].loses(e.places.of(Places::number(HERE)))
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
            if n % 10 == 0 && e.goes(HERE, 0.2, POSITIONING, false) {
                (0..LASTS).for_each(|_| e.answered(true, Some(0.1), 0.2));
            }
        }
        assert!(loses_here(&e), "{e:?}");
    }

    #[test]
    fn what_wins_again_goes_again() {
        let mut e = Excursions::new();
        (0..2000).for_each(|_| _ = excursion(&mut e, 0.2, 5.0));
        assert!(loses_here(&e));
        let until = (1..1000).find(|_| excursion(&mut e, 0.2, -20.0) && !loses_here(&e)).unwrap();
        assert!(until <= 4 * TRIED, "{until}");
        assert!((0..200).all(|_| excursion(&mut e, 0.2, -20.0)));
    }

    #[test]
    fn of_a_kind_that_loses_what_wins_at_its_place_goes() {
        let mut e = Excursions::new();
        (0..LEARN_PLACE as u32).for_each(|_| assert!(excursion(&mut e, 0.2, -8.0)));
        (0..400).for_each(|n| _ = excursion_from(&mut e, Sector((100 + n) << PLACE_SHIFT), 0.2, 8.0));
        assert!(e.kinds[3].loses(Place::default()), "{:?}", e.kinds);
        let new =
            (0..4 * TRIED).filter(|_| excursion_from(&mut e, Sector(5000 << PLACE_SHIFT), 0.2, 8.0)).count();
        assert_eq!(new, 4);
        let last_of_it = Sector(HERE.0 + (1 << PLACE_SHIFT) - 1);
        assert!((0..100).all(|_| excursion_from(&mut e, last_of_it, 0.2, -8.0)));
    }

    #[test]
    fn of_a_kind_that_wins_what_loses_at_its_place_is_refused() {
        let mut e = Excursions::new();
        let mut lost = 0;
        for n in 0..400 {
            assert!(excursion_from(&mut e, Sector((100 + n) << PLACE_SHIFT), 0.2, -8.0));
            lost += u32::from(excursion(&mut e, 0.2, 20.0));
        }
        assert!((2..30).contains(&lost), "{lost}");
        assert!(loses_here(&e) && !e.kinds[3].loses(Place::default()));
    }

    #[test]
    fn a_place_changes_its_mind_and_gives_way_to_a_namesake() {
        let mut places = Places::new();
        let (here, there) = (7, 7 + PLACES as u32);
        (0..100).for_each(|_| places.ended(here, -1.0));
        assert_eq!((places.of(here).mean, places.of(here).known), (-1.0, LEARN_PLACE as f32));
        (0..20).for_each(|_| places.ended(here, 1.0));
        assert!(places.of(here).mean > 0.8, "{:?}", places.of(here));
        assert_eq!((places.of(there).mean, places.of(there).known), (0.0, 0.0));
        places.ended(there, 0.5);
        assert_eq!((places.of(there).mean, places.of(there).known, places.of(here).known), (0.5, 1.0, 0.0));
    }

    #[test]
    fn from_among_the_copies_and_where_it_must_be_any_is_read() {
        let mut e = Excursions::new();
        (0..2000).for_each(|_| _ = excursion(&mut e, 0.2, 5.0));
        // One that is tried went just now.
        assert!((0..TRIED).any(|_| excursion(&mut e, 0.2, 5.0)));
        let refused = (0..TRIED - 2).all(|_| !e.goes(HERE, 0.2, POSITIONING, false));
        assert!(refused && e.goes(HERE, 0.2, POSITIONING, true));
        e.answered(true, Some(5.0), 1.0);
        // From the drive's cache: the arm is where it was.
        e.answered(false, Some(0.1), 0.0);
        assert!((0..3).all(|_| e.goes(HERE, 0.2, POSITIONING, false)));
        // A write brings it back.
        e.answered(false, None, 0.0);
        assert!(e.now.is_none() && !e.goes(HERE, 0.2, POSITIONING, false));
    }

    #[test]
    fn the_way_back_counts_and_what_is_read_later_does_not() {
        let of = |copies: u32| {
            let mut e = Excursions::new();
            assert!(e.goes(HERE, 0.2, POSITIONING, false));
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
        assert!(e.goes(HERE, 0.2, POSITIONING, false));
        (1..LASTS).for_each(|_| e.answered(true, Some(1.0), 0.0));
        assert!(e.now.is_some());
        e.answered(true, Some(1.0), 0.0);
        assert!(e.now.is_none());
    }
}
