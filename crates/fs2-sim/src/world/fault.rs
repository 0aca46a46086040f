//! What can go wrong, by name, and how often it does.

use std::fmt;
use std::str::FromStr;

use crate::model::swarm::Rng;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $($(#[$doc])* $name),+
        }

        impl Fault {
            /// Every kind.
            pub const ALL: &'static [Fault] = &[$(Fault::$name),+];

            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Fault::$name => $text),+ }
            }
        }
    };
}

faults! {
    /// A client's read of an original fails.
    Read = "eio-read",
    /// A client's write, write-zeroes or discard fails, carried out or not, or in part.
    Write = "eio-write",
    /// A read of a replica fails.
    ReplicaRead = "eio-replica-read",
    /// Reading the table fails, at the attach.
    TableRead = "eio-table-read",
    /// A write to the table fails, carried out or not, or in part.
    TableWrite = "eio-table-write",
    /// A flush fails: what it covered becomes durable later, or never.
    Flush = "eio-flush",
    /// A read of the daemon's own fails: of a bitmap, an original to be hashed, what a detach looks at.
    OwnRead = "eio-own-read",
    /// A copy fails.
    Copy = "eio-copy",
    /// An I/O takes longer than the client waits: it sends again; the I/O ends well or badly.
    Timeout = "timeout",
    /// In a loss of power, writes in the cache are lost.
    LostWrite = "lost-write",
    /// In a loss of power, sectors of writes in the cache are lost.
    TornWrite = "torn-write",
    /// A replica's block changes on the medium.
    CorruptReplica = "corrupt-replica",
    /// A copy is written to another free block than it should.
    MisdirectedCopy = "misdirected-copy",
    /// The table changes on the medium.
    CorruptTable = "corrupt-table",
    /// The device is slow for a while.
    SlowDevice = "slow-device",
    /// The host has no space for copies.
    NoSpace = "enospc",
    /// The daemon is killed; its I/O is not.
    Kill = "kill",
    /// Power is lost.
    PowerLoss = "power-loss",
    /// A connection breaks: its requests are sent again over another, its discards may be read late.
    Reconnect = "reconnect",
    /// The kernel dies, the daemon lives.
    KernelDies = "kernel-dies",
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;
    fn from_str(s: &str) -> Result<Fault, String> {
        let names = || Fault::ALL.iter().map(|f| f.name()).collect::<Vec<_>>().join(", ");
        Fault::ALL
            .iter()
            .copied()
            .find(|f| f.name() == s)
            .ok_or_else(|| format!("no fault '{s}'; there are {}, none", names()))
    }
}

/// Which faults a world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Each kind is drawn by the seed.
    Drawn,
    /// None.
    None,
    /// This kind alone, and what it needs.
    Only(Fault),
}

/// How often each kind strikes: once in so many occasions; 0 is never.
#[derive(Clone, Debug)]
pub struct Odds([u32; Fault::ALL.len()]);

impl Odds {
    /// Draws a world's. A FUSE file is one connection, and cannot break.
    pub fn draw(choice: Choice, one_connection: bool, rng: &mut Rng) -> Odds {
        let mut odds = Odds([0; Fault::ALL.len()]);
        for fault in Fault::ALL {
            // The same draws whatever is chosen: the world around the faults stays the same.
            let (on, n) = (rng.below(3) == 0, [30, 100, 300][rng.below(3) as usize]);
            let wanted = match choice {
                Choice::Drawn => on,
                Choice::None => false,
                Choice::Only(only) => only == *fault,
            };
            if wanted {
                odds.0[*fault as usize] = n;
            }
        }
        if one_connection {
            odds.0[Fault::Reconnect as usize] = 0;
        }
        let losses = odds.of(Fault::LostWrite) + odds.of(Fault::TornWrite) > 0;
        if losses && odds.of(Fault::PowerLoss) == 0 {
            odds.0[Fault::PowerLoss as usize] = 100;
        }
        odds
    }

    /// Once in so many occasions; 0 is never.
    pub fn of(&self, fault: Fault) -> u32 {
        self.0[fault as usize]
    }

    /// Whether it strikes this time.
    pub fn strikes(&self, fault: Fault, rng: &mut Rng) -> bool {
        let n = self.of(fault);
        n > 0 && rng.below(u64::from(n)) == 0
    }

    /// The kinds that strike at all.
    pub fn kinds(&self) -> impl Iterator<Item = Fault> + '_ {
        Fault::ALL.iter().copied().filter(|f| self.of(*f) > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for f in Fault::ALL {
            assert_eq!(f.name().parse(), Ok(*f));
        }
        assert!("eio".parse::<Fault>().is_err());
    }

    #[test]
    fn one_kind_alone_is_one_kind_and_what_it_needs() {
        let odds = Odds::draw(Choice::Only(Fault::TornWrite), false, &mut Rng(5));
        assert_eq!(odds.kinds().collect::<Vec<_>>(), [Fault::TornWrite, Fault::PowerLoss]);
        assert_eq!(Odds::draw(Choice::None, false, &mut Rng(5)).kinds().count(), 0);
    }
}
