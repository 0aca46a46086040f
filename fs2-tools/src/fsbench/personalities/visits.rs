//! Browsers before a database: what `tpcw`, `rubis` and `rubbos` have in common. A [`Visited`] says who visits and what
//! a visit does, by [`Acts`] on the pages of a [`Store`]; [`Visits`] is the workload made of it.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use super::clients::{self, Times};
use super::files::{Files, both};
use super::pages::{Open, PAGE, Store};
use crate::fsbench::control::in_threads;
use crate::fsbench::{BenchError, Control, Needs, OpClass, PassReport, Rng, Site, Verified, Workload};

/// What a visit does, and how many bytes that came to.
pub(super) struct Acts<'a> {
    site: &'a Site,
    db: &'a Open<'a>,
    buffer: Vec<u8>,
    read: u64,
    written: u64,
    changed: u64,
}

impl<'a> Acts<'a> {
    /// With a buffer of so many bytes, in pieces of which files are read; at least a page.
    pub(super) fn new(site: &'a Site, db: &'a Open<'a>, buffer_bytes: u64) -> Acts<'a> {
        let buffer = vec![0; buffer_bytes.max(PAGE) as usize];
        Acts { site, db, buffer, read: 0, written: 0, changed: 0 }
    }

    pub(super) fn db(&self) -> &'a Open<'a> {
        self.db
    }

    /// Bytes read and written since this was asked last.
    pub(super) fn take(&mut self) -> (u64, u64) {
        self.changed = 0;
        (std::mem::take(&mut self.read), std::mem::take(&mut self.written))
    }

    /// Reads the page that holds a row.
    pub(super) fn row(&mut self, table: impl Into<usize>, row: u64) -> Result<(), BenchError> {
        self.read += self.db.read_row(table, row, &mut self.buffer)?;
        Ok(())
    }

    /// Reads these pages: the first, and how many.
    pub(super) fn pages(&mut self, table: impl Into<usize>, pages: (u64, u64)) -> Result<(), BenchError> {
        self.read += self.db.read_pages(table, pages.0, pages.1, &mut self.buffer)?;
        Ok(())
    }

    /// Reads a row's page and writes it anew; of rows beyond the end the last one's.
    pub(super) fn update(&mut self, table: impl Into<usize>, row: u64) -> Result<(), BenchError> {
        let table = table.into();
        let row = row.min(self.db.rows(table).saturating_sub(1));
        let (read, written) = self.db.update_row(table, row, &mut self.buffer)?;
        self.read += read;
        self.written += written;
        self.changed += 1;
        Ok(())
    }

    /// Adds a row at the end of each of these: of a table, and of its index.
    pub(super) fn insert<T: Into<usize>>(
        &mut self,
        into: impl IntoIterator<Item = T>,
    ) -> Result<(), BenchError> {
        for table in into {
            let (_, written) = self.db.insert_row(table, &mut self.buffer)?;
            self.written += written;
            self.changed += 1;
        }
        Ok(())
    }

    /// Writes what was changed to the log and waits until it is on the disk.
    pub(super) fn commit(&mut self) -> Result<(), BenchError> {
        self.written += self.db.commit(self.changed, &mut self.buffer)?;
        self.changed = 0;
        Ok(())
    }

    /// Reads a file whole; its length.
    pub(super) fn file(&mut self, name: &str) -> Result<u64, BenchError> {
        let path = self.site.path(name);
        let read = |buffer: &mut [u8]| {
            let (mut file, mut total) = (File::open(&path)?, 0);
            loop {
                match file.read(buffer)? {
                    0 => return Ok(total),
                    n => total += n as u64,
                }
            }
        };
        let bytes = read(&mut self.buffer).map_err(BenchError::at(&path, "reading it"))?;
        self.read += bytes;
        Ok(bytes)
    }
}

/// Whoever looks at a site through one browser, one after another.
pub(super) trait Visitor {
    /// Makes way for the next one.
    fn change(&mut self, rng: &mut Rng);

    /// Does a visit, by its place in [`Visited::visits`]; bytes read and written.
    fn visit(&mut self, which: usize, rng: &mut Rng) -> Result<(u64, u64), BenchError>;
}

/// A site with its visitors.
pub(super) trait Visited: Send + Sync {
    /// Its visitors.
    type Visitor<'a>: Visitor
    where
        Self: 'a;

    /// Bytes that a visit adds to the database, at most in the mean.
    const GROWTH_BYTES: f64;

    /// For the report: an object.
    fn parameters(&self) -> serde_json::Value;

    /// What its parameters mean.
    fn about(&self) -> &'static [(&'static str, &'static str)];

    /// How many browsers there are, how long they think and stay, and seconds of a run where nothing else is said.
    fn browsers(&self) -> (u64, Times, u64);

    /// The visits with their shares.
    fn visits(&self) -> Vec<(&'static str, f64)>;

    /// The name of a browser's random numbers in a pass.
    fn stream(&self, browser: usize, pass: u32) -> String;

    /// Who comes to a browser first.
    fn visitor<'a>(&'a self, site: &'a Site, db: &'a Open<'a>, rng: &mut Rng) -> Self::Visitor<'a>;
}

/// The workload.
pub(super) struct Visits<V> {
    pub(super) what: V,
    /// What lies beside the database: pictures, static pages.
    pub(super) files: Files,
    pub(super) store: Store,
    passes: u32,
    most_passes: u32,
}

impl<V: Visited> Visits<V> {
    /// Of which there are at most so many passes.
    pub(super) fn new(what: V, files: Files, store: Store, most_passes: u32) -> Visits<V> {
        Visits { what, files, store, passes: 0, most_passes }
    }

    fn browse(
        &self,
        site: &Site,
        control: &Control,
        browser: usize,
        db: &Open<'_>,
    ) -> Result<Vec<OpClass>, BenchError> {
        let (names, weights): (Vec<_>, Vec<f64>) = self.what.visits().into_iter().unzip();
        let mut rng = site.stream(&self.what.stream(browser, self.passes));
        let mut recorder = control.recorder(names.into_iter().map(OpClass::new).collect());
        let mut visitor = self.what.visitor(site, db, &mut rng);
        let (_, times, _) = self.what.browsers();
        times.browse(control, &mut rng, &mut recorder, |is_new, rng| {
            if is_new {
                visitor.change(rng);
            }
            let which = rng.weighted(&weights);
            let (read, written) = visitor.visit(which, rng)?;
            Ok((which, read, written))
        })?;
        Ok(recorder.into_classes())
    }
}

impl<V: Visited> Workload for Visits<V> {
    fn parameters(&self) -> serde_json::Value {
        self.what.parameters()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        self.what.about()
    }

    fn needs(&self) -> Needs {
        let (clients, times, seconds) = self.what.browsers();
        let growth = times.needs(clients, seconds, self.most_passes, V::GROWTH_BYTES);
        both(both(self.files.needs(), self.store.needs()), growth)
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        self.store.make(site, control)?;
        self.files.make(site, control)
    }

    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        true
    }

    fn usual_duration(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.what.browsers().2))
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let open = self.store.open(site)?;
        let (this, clients) = (&*self, self.what.browsers().0 as usize);
        let classes = in_threads(control, clients, |browser| this.browse(site, control, browser, &open))?;
        drop(open);
        self.passes += 1;
        let mut report = control.report(classes);
        clients::told(&mut report);
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        self.store.verify(site, control, &mut verified)?;
        self.files.verify(site, control, &mut verified)?;
        Ok(verified)
    }
}
