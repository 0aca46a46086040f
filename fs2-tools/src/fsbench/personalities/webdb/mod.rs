//! `rubis` and `rubbos`: an auction's and a bulletin board's database under their visitors (data-centre study).
//!
//! As in `tpcw` there is no database behind it: `pages` keeps tables and indexes, and each interaction is a list
//! of [`Step`]s that read and write the pages which it would in one. Tables, rows and steps are in `rubis` and
//! `rubbos`; what of them is known and what assumed says `docs/fsbench.md`.

mod rubbos;
mod rubis;

use super::clients::Times;
use super::files::{Files, Kind, number};
use super::pages::{LEAF_ENTRIES, Open, PAGE, Store, Table};
use super::visits::{Acts, Visited, Visitor, Visits};
use crate::fsbench::rng::mix;
use crate::fsbench::{BenchError, Entry, Rng, Setup, Site};

const SOURCE: &str = "data centres";
/// FileBench has neither: `stock` is `paper` by another name.
const PRESETS: &[&str] = &["ci", "paper", "stock"];

pub(super) const ENTRIES: [Entry; 2] = [
    Entry {
        name: "rubis",
        summary: "an auction's database, 15 % of the visits change it; --set mix=browsing",
        source: SOURCE,
        presets: PRESETS,
        make: |setup| Ok(Box::new(Web::new(setup, &rubis::SPEC)?)),
    },
    Entry {
        name: "rubbos",
        summary: "a bulletin board's database, 15 % of the visits change it; --set mix=browsing",
        source: SOURCE,
        presets: PRESETS,
        make: |setup| Ok(Box::new(Web::new(setup, &rubbos::SPEC)?)),
    },
];

/// A benchmark's database and visits.
struct Spec {
    name: &'static str,
    /// The mixes' names, in the order of [`Interaction::share`]: the one that only reads, the one that writes.
    mixes: [&'static str; 2],
    /// Users as published, and at `ci`.
    users: [u64; 2],
    tables: &'static [Sized],
    interactions: &'static [Interaction],
}

/// A table, or an index where it has [`LEAF_ENTRIES`] rows in a page.
struct Sized {
    name: &'static str,
    rows: Rows,
    rows_of_page: u64,
}

const fn table(name: &'static str, rows: Rows, rows_of_page: u64) -> Sized {
    Sized { name, rows, rows_of_page }
}

const fn index(name: &'static str, rows: Rows) -> Sized {
    Sized { name, rows, rows_of_page: LEAF_ENTRIES }
}

/// How many rows a table has.
#[derive(Clone, Copy)]
enum Rows {
    /// So many whatever the size.
    Fixed(u64),
    /// So many for each million users.
    PerMillion(u64),
}

/// A visit to a page with its share of each mix in per cent.
struct Interaction {
    name: &'static str,
    share: [f64; 2],
    steps: &'static [Step],
}

const fn visit(name: &'static str, share: [f64; 2], steps: &'static [Step]) -> Interaction {
    Interaction { name, share, steps }
}

/// A part of a visit. Tables are called by their places in [`Spec::tables`].
enum Step {
    /// Reads a static page.
    Page,
    /// Reads a row by an index.
    Row { of: usize, by: usize, pick: Pick },
    /// Reads a leaf of an index and the rows it names, which lie anywhere.
    List { of: usize, by: usize, pick: Pick, rows: u64 },
    /// Reads the newest rows, which lie in sequence.
    Newest { of: usize, rows: u64 },
    /// Reads a table whole.
    Whole { of: usize },
    /// Reads a row's page and writes it anew.
    Update { of: usize, pick: Pick },
    /// Adds a row at the end of a table, and an entry at the end of an index.
    Insert { of: usize, key: usize },
    /// Adds an entry to an index that is in another order: anywhere.
    Entry { of: usize },
    /// Writes the changes to the log and waits until they are on the disk.
    Commit,
}

/// The first three tables of both.
const USERS: usize = 0;
const USERS_KEY: usize = 1;
const USERS_NAME: usize = 2;

/// The visitor is looked up by name.
const LOG_IN: Step = Step::Row { of: USERS, by: USERS_NAME, pick: Pick::Own };
/// Whoever made what is looked at.
const MADE_BY: Step = Step::Row { of: USERS, by: USERS_KEY, pick: Pick::Same };
/// A new user, and the entry to find one by name.
const ADD_USER: Step = Step::Insert { of: USERS, key: USERS_KEY };
const ADD_NAME: Step = Step::Entry { of: USERS_NAME };

/// Which row.
#[derive(Clone, Copy)]
enum Pick {
    /// The visitor's own.
    Own,
    /// What is looked at anew: an auction, a story. Some are drawn much more often (NURand).
    New,
    /// What was last looked at.
    Same,
    /// Any row.
    Any,
}

parameters! {
    struct Parameters {
        /// Registered users; all tables grow with them.
        users: u64,
        /// Which visits: one of the two mixes' names.
        mix: String,
        /// Emulated browsers, a thread each.
        clients: u64,
        /// Mean seconds between two visits.
        think: f64,
        /// Mean seconds until a visitor makes way for the next one.
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

/// Bytes of a static page (a guess).
const STATIC_BYTES: u64 = 4096;

struct Web {
    spec: &'static Spec,
    parameters: Parameters,
    /// Place of the mix in [`Interaction::share`].
    mix: usize,
}

fn static_page(interaction: usize) -> String {
    format!("html/p{interaction:02}.html")
}

impl Web {
    fn new(setup: &Setup, spec: &'static Spec) -> Result<Visits<Web>, BenchError> {
        let ci = setup.preset == "ci";
        let p = Parameters {
            users: setup.scaled(spec.users[usize::from(ci)], 100),
            mix: spec.mixes[1].into(),
            clients: if ci { 8 } else { 25 },
            think: if ci { 0.2 } else { 7.0 },
            session: if ci { 25.0 } else { 900.0 },
            seconds: if ci { 60 } else { 1200 },
        };
        let p = setup.apply(p)?;
        let Some(mix) = spec.mixes.iter().position(|m| *m == p.mix) else {
            return Err(BenchError::Usage(format!(
                "--set mix: {} has no '{}'; there are {}",
                spec.name,
                p.mix,
                spec.mixes.join(" and ")
            )));
        };
        if !(10..=1 << 32).contains(&p.users) || !(1..=10_000).contains(&p.clients) || !p.times().are_sane() {
            return Err(BenchError::Usage(format!(
                "{}: at least 10 users, 1 to 10,000 clients, times that are not negative",
                spec.name
            )));
        }
        let mut statics = Files::default();
        statics.dir("html");
        for i in 0..spec.interactions.len() as u64 {
            statics.file(static_page(i as usize), STATIC_BYTES, number(Kind::Second, i));
        }
        let rows = |rows: Rows| match rows {
            Rows::Fixed(n) => n,
            Rows::PerMillion(n) => ((u128::from(n) * u128::from(p.users) / 1_000_000) as u64).max(10),
        };
        let tables = spec.tables.iter();
        let tables = tables
            .map(|t| Table { name: t.name, rows: rows(t.rows), rows_of_page: t.rows_of_page })
            .collect();
        let store = Store::new(tables, setup.seed);
        Ok(Visits::new(Web { spec, parameters: p, mix }, statics, store, setup.passes))
    }
}

/// Somebody before a browser.
struct Somebody<'a> {
    spec: &'static Spec,
    acts: Acts<'a>,
    users: u64,
    own: u64,
    /// What was last looked at: a number of which each table takes its row.
    same: u64,
}

impl Somebody<'_> {
    fn row(&mut self, of: usize, pick: Pick, rng: &mut Rng) -> u64 {
        // Never 0 in number: there are ten rows or a fixed number.
        let rows = self.acts.db().rows(of).max(1);
        let part = |number: u64| (u128::from(number) * u128::from(rows) / u128::from(SPAN)) as u64;
        match pick {
            Pick::Own => (u128::from(self.own) * u128::from(rows) / u128::from(self.users)) as u64,
            Pick::New => {
                self.same = popular(rng);
                part(self.same)
            }
            Pick::Same => part(self.same),
            Pick::Any => rng.below(rows),
        }
        .min(rows - 1)
    }

    fn leaf(&mut self, index: usize, of: usize, row: u64) -> Result<(), BenchError> {
        // Keys are in the order of rows; an index by something else is looked into as far along.
        let (rows, entries) = (self.acts.db().rows(of).max(1), self.acts.db().rows(index));
        let entry = (u128::from(row) * u128::from(entries) / u128::from(rows)) as u64;
        self.acts.row(index, entry.min(entries.saturating_sub(1)))
    }

    fn step(&mut self, which: usize, step: &Step, rng: &mut Rng) -> Result<(), BenchError> {
        match *step {
            Step::Page => {
                let name = static_page(which);
                let bytes = self.acts.file(&name)?;
                if bytes != STATIC_BYTES {
                    return Err(BenchError::Failed(format!("{name}: {bytes} bytes of {STATIC_BYTES}")));
                }
                Ok(())
            }
            Step::Row { of, by, pick } => {
                let row = self.row(of, pick, rng);
                self.leaf(by, of, row)?;
                self.acts.row(of, row)
            }
            Step::List { of, by, pick, rows } => {
                let row = self.row(of, pick, rng);
                self.leaf(by, of, row)?;
                let all = self.acts.db().rows(of).max(1);
                // The same ones for the same entry.
                (0..rows.min(all)).try_for_each(|i| self.acts.row(of, mix(mix(row) ^ i) % all))
            }
            Step::Newest { of, rows } => self.acts.pages(of, self.acts.db().tail(of, rows)),
            Step::Whole { of } => self.acts.pages(of, self.acts.db().all(of)),
            Step::Update { of, pick } => {
                let row = self.row(of, pick, rng);
                self.acts.update(of, row)
            }
            Step::Insert { of, key } => self.acts.insert([of, key]),
            Step::Entry { of } => {
                let row = self.row(of, Pick::Any, rng);
                self.acts.update(of, row)
            }
            Step::Commit => self.acts.commit(),
        }
    }
}

impl Visitor for Somebody<'_> {
    fn change(&mut self, rng: &mut Rng) {
        self.own = rng.below(self.users);
        self.same = popular(rng);
    }

    fn visit(&mut self, which: usize, rng: &mut Rng) -> Result<(u64, u64), BenchError> {
        let spec = self.spec;
        spec.interactions[which].steps.iter().try_for_each(|step| self.step(which, step, rng))?;
        Ok(self.acts.take())
    }
}

/// Numbers that stand for rows: tables of different sizes take their part of this range.
const SPAN: u64 = 1 << 20;

/// A number of 0..[`SPAN`], some much more often than others.
fn popular(rng: &mut Rng) -> u64 {
    rng.nurand(SPAN / 4 - 1, 0, SPAN - 1)
}

impl Visited for Web {
    type Visitor<'a> = Somebody<'a>;

    // A quarter of the visits at most adds a row of two kilobytes.
    const GROWTH_BYTES: f64 = 512.0;

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
        self.spec.interactions.iter().map(|i| (i.name, i.share[self.mix])).collect()
    }

    fn stream(&self, browser: usize, pass: u32) -> String {
        format!("client {browser} pass {pass}")
    }

    fn visitor<'a>(&'a self, site: &'a Site, db: &'a Open<'a>, _rng: &mut Rng) -> Somebody<'a> {
        // Who comes first is drawn when the first session begins.
        let (spec, users) = (self.spec, self.parameters.users);
        Somebody { spec, acts: Acts::new(site, db, PAGE), users, own: 0, same: 0 }
    }
}

#[cfg(test)]
mod tests;
