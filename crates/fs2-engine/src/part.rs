//! Parts of the policy `fs2`, to be left out one at a time: what a part is worth shows in a replay without it
//! (docs/policy.md, "What each part is worth"). A mounted volume has them all.

use std::fmt;
use std::str::FromStr;

macro_rules! parts {
    ($($(#[$doc:meta])* $part:ident = $name:literal,)+) => {
        /// A part that can be left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Part {
            $($(#[$doc])* $part),+
        }

        impl Part {
            /// Every one of them, in the order of docs/policy.md.
            pub const ALL: &'static [Part] = &[$(Part::$part),+];

            /// What [`Part::from_str`] takes.
            pub fn name(self) -> &'static str {
                match self {
                    $(Part::$part => $name),+
                }
            }
        }
    };
}

parts! {
    /// What found no room in the log is read again in a long rest.
    Backlog = "backlog",
    /// Copies of what was written are made again where they were.
    Updates = "updates",
    /// Several runs are written at once.
    Merging = "merging",
    /// In pauses copies begin when there are many to make.
    Batches = "batches",
    /// What is copied goes on elsewhere where a read ends, not in the middle of it.
    Pieces = "pieces",
    /// Copies lie near the heat; without it, from the volume's beginning on.
    Heat = "heat",
    /// Nothing is placed where the file system is about to allocate.
    Foresight = "foresight",
    /// Copies whose blocks the file system took are made again elsewhere.
    Remaking = "remaking",
    /// What the next read saves if it goes on from there counts for the choice; without it, this read's cost alone.
    Lookahead = "lookahead",
    /// The same of originals only.
    OriginalsChance = "originals-chance",
    /// So does, for copies, what later reads save that come back there.
    Returns = "returns",
    /// How far the arm has to go from there for what comes next counts, too.
    Onward = "onward",
    /// Places where reads take longer than predicted are known.
    SlowPlaces = "slow-places",
    /// What was read lately nearby may be in the drive's cache, whatever its profile says.
    Nearby = "nearby",
    /// What comes for the first time is copied only while enough of that comes again.
    Admission = "admission",
    /// Streams that the drive reads ahead of are left to it.
    Streams = "streams",
    /// A read goes where others are read that the drive has not served yet.
    Joins = "joins",
    /// In a crowd among the copies the nearest is read.
    Crowds = "crowds",
    /// Some more behind a jump is read to nowhere.
    Trails = "trails",
    /// Whether trails pay is tried; without it, they are taken for paying.
    Trials = "trials",
    /// Where the volume never rests, copies are made beside clients' requests.
    Beside = "beside",
    /// Own work begins in pauses that likely last; without it, in any.
    Pauses = "pauses",
    /// What own work costs clients is accounted and limited.
    Disturbance = "disturbance",
    /// So is what it does to the slowest hundredth.
    Slowest = "slowest",
    /// What jumped though it has a copy is copied once more.
    SecondCopies = "second-copies",
    /// Copies are not read while they make reads slower than the modelled drive without them.
    Gate = "gate",
    /// Nobody in a crowd is passed over for long.
    PassingOver = "passing-over",
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(s: &str) -> Result<Part, String> {
        let names = || Part::ALL.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ");
        let found = Part::ALL.iter().copied().find(|p| p.name() == s);
        found.ok_or_else(|| format!("no part '{s}'; there are {}", names()))
    }
}

/// The parts that are left out; none, unless told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without(u32);

impl Without {
    /// Whether `part` is left out.
    pub fn has(self, part: Part) -> bool {
        self.0 & 1 << part as u32 != 0
    }
}

impl FromIterator<Part> for Without {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Without {
        Without(parts.into_iter().fold(0, |set, part| set | 1 << part as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_its_own() {
        for &part in Part::ALL {
            assert_eq!(part.name().parse(), Ok(part));
            let without: Without = [part].into_iter().collect();
            assert!(Part::ALL.iter().all(|&p| without.has(p) == (p == part)), "{part}");
            assert!(!Without::default().has(part));
        }
        assert!("trail".parse::<Part>().unwrap_err().contains("trails, trials"));
    }
}
