//! `tpcw-browsing`, `tpcw-shopping`, `tpcw-ordering`: a bookshop's database and pictures under TPC-W's three
//! mixes (FS² paper, 4.3; data-centre study).
//!
//! There is no database behind it: `pages` keeps tables and indexes as files of 8 KiB pages and a log that is
//! written through, and each interaction reads and writes the pages that one in a database would. Which
//! pages these are is an assumption, written down in `docs/fsbench.md`.

mod interactions;
mod store;

use super::clients::Times;
use super::files::{Files, Kind, number};
use super::pages::{Open, Store};
use super::visits::{Visited, Visits};
use crate::fsbench::{BenchError, Entry, Rng, Setup, Site};
use interactions::{INTERACTIONS, User};
use store::Shape;

const SOURCE: &str = "FS2 4.3, data centres";
const PRESETS: &[&str] = &["ci", "paper", "class-0", "class-1", "class-2", "class-3", "class-4"];

pub(super) const ENTRIES: [Entry; 3] = [
    Entry {
        name: "tpcw-browsing",
        summary: "a bookshop's pages, database and pictures, 95 % browsing",
        source: SOURCE,
        presets: PRESETS,
        make: |setup| Ok(Box::new(Tpcw::new(setup, Mix::Browsing)?)),
    },
    Entry {
        name: "tpcw-shopping",
        summary: "the same, 80 % browsing",
        source: SOURCE,
        presets: PRESETS,
        make: |setup| Ok(Box::new(Tpcw::new(setup, Mix::Shopping)?)),
    },
    Entry {
        name: "tpcw-ordering",
        summary: "the same, half of it orders",
        source: SOURCE,
        presets: PRESETS,
        make: |setup| Ok(Box::new(Tpcw::new(setup, Mix::Ordering)?)),
    },
];

/// TPC-W's three mixes: columns of [`INTERACTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    Browsing,
    Shopping,
    Ordering,
}

parameters! {
    struct Parameters {
        /// Customers; TPC-W has 2880 for each emulated browser the database is scaled for.
        customers: u64,
        /// Books.
        items: u64,
        /// Emulated browsers, a thread each.
        clients: u64,
        /// Mean seconds between two interactions.
        think: f64,
        /// Mean seconds until a customer makes way for the next one.
        session: f64,
        /// Seconds of a run where neither --duration nor --ops is given.
        seconds: u64,
    }
}

impl Parameters {
    fn times(&self) -> Times {
        Times { think: self.think, session: self.session }
    }
}

/// Sizes in KB of the full pictures and how many have each (TPC-W's intention; docs/fsbench.md).
const PICTURES: [(u64, f64); 5] = [(250, 0.01), (100, 0.04), (50, 0.15), (10, 0.35), (5, 0.45)];
/// Bytes of a thumbnail.
const THUMB_BYTES: u64 = 5 << 10;
/// Directories of pictures.
const PICTURE_DIRS: u64 = 100;

pub(super) struct Tpcw {
    parameters: Parameters,
    mix: Mix,
}

/// Databases as large as the working sets of the data-centre study's classes: preset, bytes, items. The items
/// are of TPC-W's sizes, so that there are fewer of them than of customers.
const CLASSES: [(&str, u64, u64); 5] = [
    ("class-0", 25_000_000, 1000),
    ("class-1", 100_000_000, 1000),
    ("class-2", 450_000_000, 10_000),
    ("class-3", 2_000_000_000, 10_000),
    ("class-4", 6_000_000_000, 100_000),
];

/// As many customers as bring the tables to `bytes`.
fn customers_of(bytes: u64, items: u64) -> u64 {
    let size = |customers| store::bytes(Shape { customers, items });
    let (mut low, mut high) = (100, 1 << 32);
    while low < high {
        let middle = (low + high) / 2;
        if size(middle) < bytes { low = middle + 1 } else { high = middle }
    }
    low
}

fn thumb(item: u64) -> String {
    format!("img{}/thumb{item:06}.gif", item % PICTURE_DIRS)
}

fn picture(item: u64) -> String {
    format!("img{}/image{item:06}.gif", item % PICTURE_DIRS)
}

impl Tpcw {
    fn new(setup: &Setup, mix: Mix) -> Result<Visits<Tpcw>, BenchError> {
        let p = match setup.preset.as_str() {
            "paper" => Parameters {
                customers: 288_000,
                items: 10_000,
                clients: 25,
                think: 7.0,
                session: 900.0,
                seconds: 1200,
            },
            preset => match CLASSES.iter().find(|c| c.0 == preset) {
                Some((_, bytes, items)) => Parameters {
                    customers: customers_of(*bytes, *items),
                    items: *items,
                    clients: 8,
                    think: 7.0,
                    session: 900.0,
                    seconds: 1200,
                },
                None => Parameters {
                    customers: 20_000,
                    items: 2000,
                    clients: 8,
                    think: 0.2,
                    session: 25.0,
                    seconds: 60,
                },
            },
        };
        let p = setup.apply(Parameters {
            customers: setup.scaled(p.customers, 100),
            items: setup.scaled(p.items, 100),
            ..p
        })?;
        if !(10..=1 << 32).contains(&p.customers)
            // Each has two pictures, whose names are kept in memory.
            || !(10..=10_000_000).contains(&p.items)
            || !(1..=10_000).contains(&p.clients)
            || !p.times().are_sane()
        {
            return Err(BenchError::Usage(
                "tpcw: at least 10 customers, 10 to 10,000,000 items, 1 to 10,000 clients, times that are not negative"
                    .into(),
            ));
        }
        let mut pictures = Files::default();
        for d in 0..PICTURE_DIRS.min(p.items) {
            pictures.dir(format!("img{d}"));
        }
        let mut rng = Rng::stream(setup.seed, "tpcw pictures");
        let weights = PICTURES.map(|(_, share)| share);
        for item in 0..p.items {
            pictures.file(thumb(item), THUMB_BYTES, number(Kind::Second, 2 * item));
            let (kb, _) = PICTURES[rng.weighted(&weights)];
            pictures.file(picture(item), kb << 10, number(Kind::Second, 2 * item + 1));
        }
        let shape = Shape { customers: p.customers, items: p.items };
        let store = Store::new(shape.tables(), setup.seed);
        Ok(Visits::new(Tpcw { parameters: p, mix }, pictures, store, setup.passes))
    }
}

impl Visited for Tpcw {
    type Visitor<'a> = User<'a>;

    // An order is a kilobyte at most, and at most eleven interactions of a hundred are one.
    const GROWTH_BYTES: f64 = 0.11 * 1024.0;

    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        Parameters::ABOUT
    }

    fn browsers(&self) -> (u64, Times, u64) {
        (self.parameters.clients, self.parameters.times(), self.parameters.seconds)
    }

    fn visits(&self) -> Vec<(&'static str, f64)> {
        INTERACTIONS.iter().map(|i| (i.name, i.share[self.mix as usize])).collect()
    }

    fn stream(&self, browser: usize, pass: u32) -> String {
        format!("tpcw client {browser} pass {pass}")
    }

    fn visitor<'a>(&'a self, site: &'a Site, db: &'a Open<'a>, rng: &mut Rng) -> User<'a> {
        User::new(site, db, self.parameters.customers, self.parameters.items, rng)
    }
}

#[cfg(test)]
mod tests;
