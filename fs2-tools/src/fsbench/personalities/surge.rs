//! `surge`: static pages of two virtual hosts, requested as SURGE does (FS² paper, 4.6; Barford and Crovella,
//! SIGMETRICS'98).
//!
//! A page is a base file and what is embedded in it, read one after another with short pauses; after a page
//! its user rests. Which file is read follows three laws at once: sizes (lognormal body, Pareto tail),
//! popularity (Zipf), and how long ago it was read last (lognormal depth in an LRU stack).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::files::{AGEING_MIB_MAX, Files, Kind, age, age_needs, both, number};
use crate::fsbench::control::in_threads;
use crate::fsbench::{
    BenchError, Content, Control, Entry, Metric, Needs, OpClass, PassReport, Rng, Setup, Site, Verified,
    Workload, Zipf,
};

pub(super) const ENTRY: Entry = Entry {
    name: "surge",
    summary: "a web server's static files, two virtual hosts, SURGE's distributions",
    source: "FS2 4.6",
    presets: &["ci", "paper"],
    make: |setup| Ok(Box::new(Surge::new(setup)?)),
};

/// Sizes: body lognormal, for this share of the files.
const BODY_SHARE: f64 = 0.93;
const BODY_MU: f64 = 9.357;
const BODY_SIGMA: f64 = 1.318;
/// Tail: Pareto.
const TAIL_K: f64 = 133_000.0;
const TAIL_ALPHA: f64 = 1.1;
/// Sizes of what is requested: Pareto.
const REQUEST_K: f64 = 1000.0;
const REQUEST_ALPHA: f64 = 1.0;
/// Depth in the LRU stack: lognormal.
const DEPTH_MU: f64 = 1.5;
const DEPTH_SIGMA: f64 = 0.80;
/// Embedded files: Pareto.
const EMBEDDED_K: f64 = 1.0;
const EMBEDDED_ALPHA: f64 = 2.43;
/// At most so many of them in a page (a guess: the tail has no end).
const EMBEDDED_MAX: u64 = 100;
/// Seconds between the files of a page: Weibull.
const ACTIVE_SCALE: f64 = 1.46;
const ACTIVE_SHAPE: f64 = 0.382;
/// Seconds after a page: Pareto.
const REST_K: f64 = 1.0;
const REST_ALPHA: f64 = 1.5;
/// A line of the access log.
const LOG_LINE: u64 = 100;
/// Bytes sent at a time.
const SEND: usize = 128 << 10;
/// Directories of a host.
const DIRS: u64 = 40;
/// Requests a popularity list is drawn up for; then it begins anew.
const ROUND: u64 = 20_000;

parameters! {
    struct Parameters {
        /// Virtual hosts, each with files and users of its own.
        hosts: u64,
        /// Files of a host.
        files: u64,
        /// Users of a host, a thread each.
        users: u64,
        /// Largest file, bytes: the tail's variance is infinite.
        cap: u64,
        /// Pauses are multiplied by this.
        off: f64,
        /// And are at most so long, in seconds.
        off_max: f64,
        /// Made between the hosts' files, and half of it removed, in MiB.
        ageing_mib: u64,
        /// Seconds of a run where neither --duration nor --ops is given.
        seconds: u64,
    }
}

struct Host {
    files: Files,
    /// Lengths by popularity, most popular first, with the place in `files`.
    ranked: Vec<usize>,
    /// Bytes in its access log so far.
    logged: u64,
}

pub(super) struct Surge {
    parameters: Parameters,
    seed: u64,
    hosts: Vec<Host>,
    passes: u32,
    most_passes: u32,
}

fn size(rng: &mut Rng, cap: u64) -> u64 {
    let bytes = if rng.chance(BODY_SHARE) {
        rng.lognormal(BODY_MU, BODY_SIGMA)
    } else {
        rng.pareto(TAIL_K, TAIL_ALPHA)
    };
    (bytes as u64).clamp(1, cap)
}

/// Ranks that are placed by a draw of their own: each has more than a half per cent of all requests, so no
/// single file is meant to get as much.
const PLACED: usize = 20;

/// Share of requests for files of at most so many bytes.
fn requested(len: u64) -> f64 {
    if (len as f64) < REQUEST_K { 0.0 } else { 1.0 - (REQUEST_K / len as f64).powf(REQUEST_ALPHA) }
}

/// Matches files to ranks so that the sizes requested follow their law; the file of each rank. The most
/// popular ranks draw a size and take the file nearest to it. Then, from the smallest file on, each takes the
/// rank that brings the share of requests so far nearest to what it is to be.
fn rank(lengths: &[u64], zipf: &Zipf, rng: &mut Rng) -> Vec<usize> {
    let mut free: BTreeSet<(u64, usize)> = lengths.iter().enumerate().map(|(i, l)| (*l, i)).collect();
    let mut owner: Vec<Option<usize>> = vec![None; lengths.len()];
    for rank in 0..PLACED.min(lengths.len()) {
        let want = rng.pareto(REQUEST_K, REQUEST_ALPHA) as u64;
        let above = free.range((want, 0)..).next().copied();
        let below = free.range(..(want, 0)).next_back().copied();
        let nearest = [below, above].into_iter().flatten().min_by_key(|f| f.0.abs_diff(want));
        let Some(nearest) = nearest else { break };
        free.remove(&nearest);
        owner[nearest.1] = Some(rank);
    }
    let mut ranks: BTreeSet<usize> = (PLACED.min(lengths.len())..lengths.len()).collect();
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|i| (lengths[*i], *i));
    let first = zipf.probability(0);
    let mut shared_out = 0.0;
    let mut of_rank = vec![0; lengths.len()];
    for file in order {
        let rank = owner[file].or_else(|| {
            let missing = requested(lengths[file]) - shared_out;
            // Zipf: the rank whose share that is; the last one where nothing is missing.
            let ideal = if missing > 0.0 { (first / missing) as usize } else { usize::MAX };
            let rank = ranks.range(ideal..).next().or_else(|| ranks.last()).copied()?;
            ranks.remove(&rank);
            Some(rank)
        });
        let Some(rank) = rank else { continue };
        shared_out += zipf.probability(rank);
        of_rank[rank] = file;
    }
    of_rank
}

/// The order of requests to a host: popularity by counts, closeness in time by an LRU stack.
struct Requests {
    /// Files by rank, the one requested last at the front.
    stack: Vec<usize>,
    /// How often each rank is still to be requested in this round.
    remaining: Vec<u64>,
    left: u64,
    zipf: Zipf,
    rng: Rng,
}

impl Requests {
    fn new(files: usize, mut rng: Rng) -> Requests {
        let mut stack: Vec<usize> = (0..files).collect();
        rng.shuffle(&mut stack);
        Requests { stack, remaining: vec![0; files], left: 0, zipf: Zipf::new(files, 1.0), rng }
    }

    /// The next file's rank.
    fn next(&mut self) -> usize {
        if self.left == 0 {
            for (rank, n) in self.remaining.iter_mut().enumerate() {
                *n = (self.zipf.probability(rank) * ROUND as f64).round() as u64;
                self.left += *n;
            }
        }
        let depth = self.rng.lognormal(DEPTH_MU, DEPTH_SIGMA) as usize;
        let depth = depth.min(self.stack.len() - 1);
        // Around that depth, by what is still to be requested. Where nothing is, deeper: the files on top would
        // go round among themselves.
        let (mut from, mut to) = (depth - depth / 2, (depth + depth / 2 + 1).min(self.stack.len()));
        loop {
            let weight: u64 = self.stack[from..to].iter().map(|r| self.remaining[*r]).sum();
            if weight > 0 {
                let mut at = self.rng.below(weight);
                for place in from..to {
                    let rank = self.stack[place];
                    if at < self.remaining[rank] {
                        self.stack.remove(place);
                        self.stack.insert(0, rank);
                        self.remaining[rank] -= 1;
                        self.left -= 1;
                        return rank;
                    }
                    at -= self.remaining[rank];
                }
            }
            if to == self.stack.len() {
                from = 0;
            }
            to = (2 * to).min(self.stack.len());
        }
    }
}

impl Surge {
    fn new(setup: &Setup) -> Result<Surge, BenchError> {
        let p = match setup.preset.as_str() {
            "paper" => Parameters {
                hosts: 2,
                files: 2000,
                users: 200,
                cap: 20_000_000,
                off: 1.0,
                off_max: 300.0,
                ageing_mib: 256,
                seconds: 600,
            },
            _ => Parameters {
                hosts: 2,
                files: 1000,
                users: 10,
                cap: 4_000_000,
                off: 0.05,
                off_max: 2.0,
                ageing_mib: 32,
                seconds: 45,
            },
        };
        let p =
            Parameters { files: setup.scaled(p.files, 1), ageing_mib: setup.scaled(p.ageing_mib, 0), ..p };
        let p = setup.apply(p)?;
        let pauses = p.off >= 0.0 && p.off.is_finite() && (0.0..=1e6).contains(&p.off_max);
        if p.hosts == 0
            || p.hosts > 100
            || p.files == 0
            || p.files > 10_000_000
            || p.users == 0
            || p.users > 10_000
            || p.cap == 0
            || p.ageing_mib > AGEING_MIB_MAX
            || !pauses
        {
            return Err(BenchError::Usage(
                "surge: 1 to 100 hosts, at least a file and a user each, pauses that are not negative, at most 2^30 MiB \
                 of ageing"
                    .into(),
            ));
        }
        let zipf = Zipf::new(p.files as usize, 1.0);
        let hosts = (0..p.hosts)
            .map(|h| {
                let mut rng = Rng::stream(setup.seed, &format!("surge host {h}"));
                let mut files = Files::default();
                files.dir(format!("host{h}"));
                for d in 0..DIRS {
                    files.dir(format!("host{h}/d{d:02}"));
                }
                let lengths: Vec<u64> = (0..p.files).map(|_| size(&mut rng, p.cap)).collect();
                for (i, len) in (0u64..).zip(&lengths) {
                    let path = PathBuf::from(format!("host{h}/d{:02}/f{i:05}.html", rng.below(DIRS)));
                    files.file(path, *len, number(Kind::First, h << 32 | i));
                }
                Host { ranked: rank(&lengths, &zipf, &mut rng), files, logged: 0 }
            })
            .collect();
        Ok(Surge { parameters: p, seed: setup.seed, hosts, passes: 0, most_passes: setup.passes })
    }

    fn pause(&self, control: &Control, seconds: f64) -> bool {
        control.sleep(Duration::from_secs_f64((seconds * self.parameters.off).min(self.parameters.off_max)))
    }

    fn user(
        &self,
        site: &Site,
        control: &Control,
        thread: usize,
        hosts: &[Mutex<Requests>],
        logs: &[Mutex<Log>],
    ) -> Result<Vec<OpClass>, BenchError> {
        let h = thread % self.hosts.len();
        let mut rng = site.stream(&format!("surge user {thread} pass {}", self.passes));
        let mut recorder = control.recorder(vec![OpClass::new("request"), OpClass::uncounted("page")]);
        let mut buffer = vec![0; SEND];
        // Users do not come all at once.
        let mut goes_on = self.pause(control, rng.unit());
        while goes_on {
            let embedded = (rng.pareto(EMBEDDED_K, EMBEDDED_ALPHA) as u64).clamp(1, EMBEDDED_MAX);
            let page = Instant::now();
            for i in 0..=embedded {
                let rank = hosts[h].lock().unwrap_or_else(PoisonError::into_inner).next();
                let planned = &self.hosts[h].files.files[self.hosts[h].ranked[rank]];
                let path = site.path(&planned.path);
                let began = Instant::now();
                let n = send(&path, &mut buffer).map_err(BenchError::at(&path, "reading it"))?;
                if n != planned.len {
                    return Err(BenchError::Failed(format!(
                        "{}: {n} bytes of {}",
                        path.display(),
                        planned.len
                    )));
                }
                logs[h].lock().unwrap_or_else(PoisonError::into_inner).append()?;
                recorder.done(0, began, n, LOG_LINE);
                goes_on = i == embedded || self.pause(control, rng.weibull(ACTIVE_SCALE, ACTIVE_SHAPE));
                if !goes_on {
                    break;
                }
            }
            if goes_on {
                recorder.done(1, page, 0, 0);
                goes_on = self.pause(control, rng.pareto(REST_K, REST_ALPHA));
            }
        }
        Ok(recorder.into_classes())
    }
}

/// Reads a file whole, by pieces, as one is sent.
fn send(path: &Path, buffer: &mut [u8]) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut sent = 0;
    loop {
        match file.read(buffer)? {
            0 => return Ok(sent),
            n => sent += n as u64,
        }
    }
}

/// A host's access log.
struct Log {
    file: File,
    path: PathBuf,
    content: Content,
    len: u64,
}

impl Log {
    fn open(site: &Site, h: usize, len: u64) -> Result<Log, BenchError> {
        let path = site.path(log_name(h));
        let file = File::options().append(true).open(&path).map_err(BenchError::at(&path, "opening it"))?;
        Ok(Log { file, path, content: log_content(site.seed(), h), len })
    }

    fn append(&mut self) -> Result<(), BenchError> {
        let mut line = [0; LOG_LINE as usize];
        self.content.fill(self.len, &mut line);
        self.file.write_all(&line).map_err(BenchError::at(&self.path, "appending to it"))?;
        self.len += LOG_LINE;
        Ok(())
    }
}

fn log_name(h: usize) -> String {
    format!("access{h}.log")
}

fn log_content(seed: u64, h: usize) -> Content {
    Content::new(seed, number(Kind::Second, h as u64))
}

impl Workload for Surge {
    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        Parameters::ABOUT
    }

    fn needs(&self) -> Needs {
        let p = &self.parameters;
        let files = self.hosts.iter().map(|h| h.files.needs()).fold(Needs::default(), both);
        // A user reads at most a thousand files a second, of which each leaves a line (a guess).
        let lines = (p.users * p.hosts).min(100) * 1000 * p.seconds.min(600) * u64::from(self.most_passes);
        let own = Needs {
            bytes: (lines * LOG_LINE).min(1 << 28),
            inodes: p.hosts,
            descriptors: p.users * p.hosts + p.hosts,
            memory: p.users * p.hosts * (SEND as u64 + (64 << 10)),
        };
        both(both(files, age_needs(p.ageing_mib << 20)), own)
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        for (h, host) in self.hosts.iter().enumerate() {
            if h == 1 {
                age(site, control, self.parameters.ageing_mib << 20)?;
            }
            host.files.make(site, control)?;
            let log = site.path(log_name(h));
            File::create_new(&log).map_err(BenchError::at(&log, "making it"))?;
        }
        Ok(())
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
        let n = self.parameters.files as usize;
        let requests: Vec<Mutex<Requests>> = (0..self.hosts.len())
            .map(|h| {
                // Users of another day ask for the same files in another order.
                let rng = Rng::stream(self.seed, &format!("surge requests {h} pass {}", self.passes));
                Mutex::new(Requests::new(n, rng))
            })
            .collect();
        let logs: Vec<Mutex<Log>> = (0..self.hosts.len())
            .map(|h| Log::open(site, h, self.hosts[h].logged).map(Mutex::new))
            .collect::<Result<_, _>>()?;
        let threads = (self.parameters.users * self.parameters.hosts) as usize;
        let this = &*self;
        let classes = in_threads(control, threads, |t| this.user(site, control, t, &requests, &logs));
        for (host, log) in self.hosts.iter_mut().zip(&logs) {
            host.logged = log.lock().unwrap_or_else(PoisonError::into_inner).len;
        }
        self.passes += 1;
        let mut report = control.report(classes?);
        if report.classes.first().is_none_or(|c| c.ops == 0) {
            report.short = Some("no request was answered".into());
        }
        let mean = report.classes.first().and_then(OpClass::mean_ms).unwrap_or(0.0);
        report.metrics = vec![
            Metric::less("response", "ms", mean),
            Metric::more("requests", "/s", report.ops_per_second()),
        ];
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        for (h, host) in self.hosts.iter().enumerate() {
            host.files.verify(site, control, &mut verified)?;
            verified.compare(&site.path(log_name(h)), log_content(self.seed, h), host.logged);
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsbench::rng::normal_cdf;

    fn furthest(sorted: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
        let n = sorted.len() as f64;
        sorted.iter().enumerate().map(|(i, x)| (cdf(*x) - (i as f64 + 0.5) / n).abs()).fold(0.0, f64::max)
    }

    fn surge(preset: &str, files: &str) -> Surge {
        let set = vec![("files".to_string(), files.to_string())];
        Surge::new(&Setup { preset: preset.into(), seed: 1, scale: 1.0, set, passes: 1 }).unwrap()
    }

    #[test]
    fn file_sizes_follow_the_law_of_body_and_tail() {
        let s = surge("paper", "20000");
        let mut sizes: Vec<f64> = s.hosts[0].files.files.iter().map(|f| f.len as f64).collect();
        sizes.sort_by(f64::total_cmp);
        let law = |x: f64| {
            let tail = if x < TAIL_K { 0.0 } else { 1.0 - (TAIL_K / x).powf(TAIL_ALPHA) };
            let body = normal_cdf(((x + 0.5).ln() - BODY_MU) / BODY_SIGMA);
            if x >= 20_000_000.0 { 1.0 } else { BODY_SHARE * body + (1.0 - BODY_SHARE) * tail }
        };
        assert!(furthest(&sizes, law) < 1.63 / (sizes.len() as f64).sqrt());
    }

    #[test]
    fn popularity_is_zipf_s_and_the_sizes_requested_have_a_pareto_tail() {
        let s = surge("paper", "2000");
        let mut requests = Requests::new(2000, Rng::new(3));
        let mut counts = vec![0u64; 2000];
        let mut asked = Vec::new();
        for _ in 0..ROUND {
            let rank = requests.next();
            counts[rank] += 1;
            asked.push(s.hosts[0].files.files[s.hosts[0].ranked[rank]].len as f64);
        }
        let zipf = Zipf::new(2000, 1.0);
        // A round's counts are those of the law but for rounding and the last few.
        for rank in [0, 1, 2, 9, 99] {
            let law = zipf.probability(rank) * ROUND as f64;
            assert!(
                (counts[rank] as f64 - law).abs() < 0.05 * law + 3.0,
                "{rank}: {} of {law}",
                counts[rank]
            );
        }
        asked.sort_by(f64::total_cmp);
        // Matching follows the law as far as the files allow: no further
        // away than the two most popular files' shares.
        let far =
            furthest(&asked, |x| if x < REQUEST_K { 0.0 } else { 1.0 - (REQUEST_K / x).powf(REQUEST_ALPHA) });
        assert!(far < zipf.probability(0) + zipf.probability(1), "{far}");
        let median = asked[asked.len() / 2];
        assert!((1_500.0..3_000.0).contains(&median), "{median}; the law's is 2,000");
    }

    #[test]
    fn what_is_asked_for_was_asked_for_lately() {
        let mut requests = Requests::new(2000, Rng::new(4));
        let mut stack: Vec<usize> = requests.stack.clone();
        let mut depths = Vec::new();
        for _ in 0..ROUND / 2 {
            let rank = requests.next();
            let depth = stack.iter().position(|r| *r == rank).unwrap();
            stack.remove(depth);
            stack.insert(0, rank);
            depths.push(depth as f64);
        }
        depths.sort_by(f64::total_cmp);
        let median = depths[depths.len() / 2];
        // e^1.5 is 4.5; independent draws by Zipf's law would have a median beyond 100.
        assert!((3.0..=9.0).contains(&median), "{median}");
        // Popularity has each file asked for, a tenth of all requests for the first time in a round: from deep.
        let p80 = depths[depths.len() * 4 / 5];
        assert!(p80 < 30.0, "{p80}; the law's alone is 8.8");
    }

    #[test]
    fn the_same_seed_asks_for_the_same_files() {
        let draw = |seed| {
            let mut requests = Requests::new(100, Rng::new(seed));
            (0..50).map(|_| requests.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        // A list with one file goes on for ever.
        let mut one = Requests::new(1, Rng::new(1));
        assert!((0..3 * ROUND).all(|_| one.next() == 0));
    }
}
