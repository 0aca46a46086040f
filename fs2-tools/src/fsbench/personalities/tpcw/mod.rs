//! `tpcw-browsing`, `tpcw-shopping`, `tpcw-ordering`: a bookshop's database and pictures under TPC-W's three
//! mixes (FS² paper, 4.3; data-centre study).
//!
//! There is no database behind it: `store` keeps tables and indexes as files of 8 KiB pages and a log that is
//! written through, and each interaction reads and writes the pages that one in a database would. Which
//! pages these are is an assumption, written down in `docs/fsbench.md`.

mod interactions;
mod store;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::files::{Files, Kind, both, number};
use crate::fsbench::control::in_threads;
use crate::fsbench::{
    BenchError, Control, Entry, Metric, Needs, OpClass, PassReport, Rng, Setup, Site, Verified, Workload,
};
use interactions::{INTERACTIONS, Shop, User};
use store::{Shape, Store};

const SOURCE: &str = "FS2 4.3";
const PRESETS: &[&str] = &["ci", "paper"];

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

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Sizes in KB of the full pictures and how many have each (TPC-W's intention; docs/fsbench.md).
const PICTURES: [(u64, f64); 5] = [(250, 0.01), (100, 0.04), (50, 0.15), (10, 0.35), (5, 0.45)];
/// Bytes of a thumbnail.
const THUMB_BYTES: u64 = 5 << 10;
/// Directories of pictures.
const PICTURE_DIRS: u64 = 100;
/// A think time is at most so many means.
const THINK_MAX: f64 = 10.0;
/// A session is at most so many means.
const SESSION_MAX: f64 = 4.0;

pub(super) struct Tpcw {
    parameters: Parameters,
    mix: Mix,
    pictures: Files,
    store: Store,
    passes: u32,
    most_passes: u32,
}

fn thumb(item: u64) -> String {
    format!("img{}/thumb{item:06}.gif", item % PICTURE_DIRS)
}

fn picture(item: u64) -> String {
    format!("img{}/image{item:06}.gif", item % PICTURE_DIRS)
}

impl Tpcw {
    fn new(setup: &Setup, mix: Mix) -> Result<Tpcw, BenchError> {
        let p = match setup.preset.as_str() {
            "paper" => Parameters {
                customers: 288_000,
                items: 10_000,
                clients: 25,
                think: 7.0,
                session: 900.0,
                seconds: 1200,
            },
            _ => Parameters {
                customers: 20_000,
                items: 2000,
                clients: 8,
                think: 0.2,
                session: 25.0,
                seconds: 60,
            },
        };
        let p = setup.apply(Parameters {
            customers: setup.scaled(p.customers, 100),
            items: setup.scaled(p.items, 100),
            ..p
        })?;
        let times = [p.think, p.session].iter().all(|t| (0.0..=1e6).contains(t));
        if !(10..=1 << 32).contains(&p.customers)
            || !(10..=1 << 32).contains(&p.items)
            || !(1..=10_000).contains(&p.clients)
            || !times
        {
            return Err(BenchError::Usage(
                "tpcw: at least 10 customers and 10 items, 1 to 10,000 clients, times that are not negative"
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
        let store = Store::new(Shape { customers: p.customers, items: p.items }, setup.seed);
        Ok(Tpcw { parameters: p, mix, pictures, store, passes: 0, most_passes: setup.passes })
    }

    fn client(
        &self,
        site: &Site,
        control: &Control,
        thread: usize,
        shop: &Shop<'_>,
    ) -> Result<Vec<OpClass>, BenchError> {
        let p = &self.parameters;
        let weights = INTERACTIONS.map(|i| i.share[self.mix as usize]);
        let mut rng = site.stream(&format!("tpcw client {thread} pass {}", self.passes));
        let mut recorder = control.recorder(INTERACTIONS.map(|i| OpClass::new(i.name)).into());
        let mut user = User::new(shop, &mut rng);
        let mut session_ends = control.elapsed().as_secs_f64() + session(p, &mut rng);
        // Browsers do not come all at once.
        let mut goes_on = control.sleep(Duration::from_secs_f64(rng.unit() * p.think.min(10.0)));
        while goes_on {
            if control.elapsed().as_secs_f64() > session_ends {
                user = User::new(shop, &mut rng);
                session_ends = control.elapsed().as_secs_f64() + session(p, &mut rng);
            }
            let which = rng.weighted(&weights);
            let began = Instant::now();
            let (read, written) = shop.interact(which, &mut user, &mut rng)?;
            recorder.done(which, began, read, written);
            let think = rng.exponential(p.think).min(THINK_MAX * p.think);
            goes_on = control.sleep(Duration::from_secs_f64(think));
        }
        Ok(recorder.into_classes())
    }
}

fn session(p: &Parameters, rng: &mut Rng) -> f64 {
    rng.exponential(p.session).min(SESSION_MAX * p.session)
}

impl Workload for Tpcw {
    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn needs(&self) -> Needs {
        let p = &self.parameters;
        // An order is a kilobyte at most; no client does more than a thousand interactions a second.
        let rate = p.clients as f64 / p.think.max(0.001).max(p.clients as f64 / 10_000.0);
        let orders = rate * p.seconds as f64 * f64::from(self.most_passes) * 0.11;
        let growth = Needs {
            bytes: ((orders * 1024.0) as u64).min(1 << 30),
            descriptors: p.clients + 64,
            memory: p.clients * (256 << 10),
            ..Needs::default()
        };
        both(both(self.pictures.needs(), self.store.needs()), growth)
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        self.store.make(site, control)?;
        self.pictures.make(site, control)
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
        let shop = Shop::new(site, &open, self.parameters.customers, self.parameters.items);
        let this = &*self;
        let classes =
            in_threads(control, this.parameters.clients as usize, |t| this.client(site, control, t, &shop))?;
        self.passes += 1;
        let mut report = control.report(classes);
        let mut all = crate::fsbench::measure::Histogram::new();
        report.classes.iter().for_each(|c| all.merge(&c.latencies));
        if all.count() == 0 {
            report.short = Some("no interaction was made".into());
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        report.metrics = vec![
            Metric::less("response", "ms", all.mean_ns().unwrap_or(0.0) / 1e6),
            Metric::less("90th percentile", "ms", ms(all.quantile_ns(0.9).unwrap_or(0))),
            Metric::more("interactions", "/s", report.ops_per_second()),
        ];
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        self.store.verify(site, control, &mut verified)?;
        self.pictures.verify(site, control, &mut verified)?;
        Ok(verified)
    }
}

#[cfg(test)]
mod tests;
