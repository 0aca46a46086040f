//! `rubis` and `rubbos`: an auction's and a bulletin board's database under their visitors (data-centre study).
//!
//! As in `tpcw` there is no database behind it: `pages` keeps tables and indexes, and each interaction is a list
//! of [`Step`]s that read and write the pages which it would in one. Tables, rows and steps are in `rubis` and
//! `rubbos`; what of them is known and what assumed says `docs/fsbench.md`.

mod rubbos;
mod rubis;

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use super::clients::{self, Times};
use super::files::{Files, Kind, both, number};
use super::pages::{LEAF_ENTRIES, Open, PAGE, Store, Table};
use crate::fsbench::control::in_threads;
use crate::fsbench::rng::mix;
use crate::fsbench::{
    BenchError, Control, Entry, Needs, OpClass, PassReport, Rng, Setup, Site, Verified, Workload,
};

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
    statics: Files,
    store: Store,
    passes: u32,
    most_passes: u32,
}

fn static_page(interaction: usize) -> String {
    format!("html/p{interaction:02}.html")
}

impl Web {
    fn new(setup: &Setup, spec: &'static Spec) -> Result<Web, BenchError> {
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
        Ok(Web { spec, parameters: p, mix, statics, store, passes: 0, most_passes: setup.passes })
    }

    fn client(
        &self,
        site: &Site,
        control: &Control,
        thread: usize,
        db: &Open<'_>,
    ) -> Result<Vec<OpClass>, BenchError> {
        let weights: Vec<f64> = self.spec.interactions.iter().map(|i| i.share[self.mix]).collect();
        let mut rng = site.stream(&format!("client {thread} pass {}", self.passes));
        let classes = self.spec.interactions.iter().map(|i| OpClass::new(i.name)).collect();
        let mut recorder = control.recorder(classes);
        let mut visitor = Visitor::new(site, db, self.parameters.users);
        self.parameters.times().browse(control, &mut rng, &mut recorder, |is_new, rng| {
            if is_new {
                visitor.change(rng);
            }
            let which = rng.weighted(&weights);
            let (read, written) = visitor.visit(which, &self.spec.interactions[which], rng)?;
            Ok((which, read, written))
        })?;
        Ok(recorder.into_classes())
    }
}

/// Somebody before a browser.
struct Visitor<'a> {
    site: &'a Site,
    db: &'a Open<'a>,
    users: u64,
    own: u64,
    /// What was last looked at: a number of which each table takes its row.
    same: u64,
    buffer: Vec<u8>,
    read: u64,
    written: u64,
    changed: u64,
}

impl<'a> Visitor<'a> {
    fn new(site: &'a Site, db: &'a Open<'a>, users: u64) -> Visitor<'a> {
        let buffer = vec![0; PAGE as usize];
        Visitor { site, db, users, own: 0, same: 0, buffer, read: 0, written: 0, changed: 0 }
    }

    /// Another one comes.
    fn change(&mut self, rng: &mut Rng) {
        self.own = rng.below(self.users);
        self.same = popular(rng);
    }

    /// Bytes read and written.
    fn visit(&mut self, which: usize, visit: &Interaction, rng: &mut Rng) -> Result<(u64, u64), BenchError> {
        (self.read, self.written, self.changed) = (0, 0, 0);
        for step in visit.steps {
            self.step(which, step, rng)?;
        }
        Ok((self.read, self.written))
    }

    fn row(&mut self, of: usize, pick: Pick, rng: &mut Rng) -> u64 {
        // Never 0 in number: there are ten rows or a fixed number.
        let rows = self.db.rows(of).max(1);
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
        let (rows, entries) = (self.db.rows(of).max(1), self.db.rows(index));
        let entry = (u128::from(row) * u128::from(entries) / u128::from(rows)) as u64;
        self.read += self.db.read_row(index, entry.min(entries.saturating_sub(1)), &mut self.buffer)?;
        Ok(())
    }

    fn step(&mut self, which: usize, step: &Step, rng: &mut Rng) -> Result<(), BenchError> {
        match *step {
            Step::Page => self.page(which)?,
            Step::Row { of, by, pick } => {
                let row = self.row(of, pick, rng);
                self.leaf(by, of, row)?;
                self.read += self.db.read_row(of, row, &mut self.buffer)?;
            }
            Step::List { of, by, pick, rows } => {
                let row = self.row(of, pick, rng);
                self.leaf(by, of, row)?;
                let all = self.db.rows(of).max(1);
                for i in 0..rows.min(all) {
                    // The same ones for the same entry.
                    self.read += self.db.read_row(of, mix(mix(row) ^ i) % all, &mut self.buffer)?;
                }
            }
            Step::Newest { of, rows } => {
                let (first, pages) = self.db.tail(of, rows);
                self.read += self.db.read_pages(of, first, pages, &mut self.buffer)?;
            }
            Step::Whole { of } => {
                let (first, pages) = self.db.all(of);
                self.read += self.db.read_pages(of, first, pages, &mut self.buffer)?;
            }
            Step::Update { of, pick } => {
                let row = self.row(of, pick, rng);
                self.update(of, row)?;
            }
            Step::Insert { of, key } => {
                for table in [of, key] {
                    let (_, written) = self.db.insert_row(table, &mut self.buffer)?;
                    self.written += written;
                    self.changed += 1;
                }
            }
            Step::Entry { of } => {
                let row = self.row(of, Pick::Any, rng);
                self.update(of, row)?;
            }
            Step::Commit => {
                self.written += self.db.commit(self.changed, &mut self.buffer)?;
                self.changed = 0;
            }
        }
        Ok(())
    }

    fn update(&mut self, of: usize, row: u64) -> Result<(), BenchError> {
        let (read, written) = self.db.update_row(of, row, &mut self.buffer)?;
        self.read += read;
        self.written += written;
        self.changed += 1;
        Ok(())
    }

    fn page(&mut self, which: usize) -> Result<(), BenchError> {
        let path = self.site.path(static_page(which));
        let mut whole = || File::open(&path)?.read(&mut self.buffer);
        let n = whole().map_err(BenchError::at(&path, "reading it"))? as u64;
        if n != STATIC_BYTES {
            return Err(BenchError::Failed(format!("{}: {n} bytes of {STATIC_BYTES}", path.display())));
        }
        self.read += n;
        Ok(())
    }
}

/// Numbers that stand for rows: tables of different sizes take their part of this range.
const SPAN: u64 = 1 << 20;

/// A number of 0..[`SPAN`], some much more often than others.
fn popular(rng: &mut Rng) -> u64 {
    rng.nurand(SPAN / 4 - 1, 0, SPAN - 1)
}

impl Workload for Web {
    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        Parameters::ABOUT
    }

    fn needs(&self) -> Needs {
        let p = &self.parameters;
        // A quarter of the visits at most adds a row of two kilobytes.
        let growth = p.times().needs(p.clients, p.seconds, self.most_passes, 512.0);
        both(both(self.statics.needs(), self.store.needs()), growth)
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        self.store.make(site, control)?;
        self.statics.make(site, control)
    }

    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        true
    }

    fn usual_duration(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.parameters.seconds))
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let open = self.store.open(site)?;
        let this = &*self;
        let classes =
            in_threads(control, this.parameters.clients as usize, |t| this.client(site, control, t, &open))?;
        self.passes += 1;
        let mut report = control.report(classes);
        clients::told(&mut report);
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        self.store.verify(site, control, &mut verified)?;
        self.statics.verify(site, control, &mut verified)?;
        Ok(verified)
    }
}

#[cfg(test)]
mod tests;
