//! SURGE: clients of two web servers on one machine ask for pages of static files.

use super::draw::{Draw, Zipf};
use super::kernel::{Script, Step, seconds};
use super::params::{Kernel, Surge};
use super::volume::{Directory, Stored, Volume};

#[derive(Clone, Debug)]
struct Host {
    directories: Vec<Directory>,
    /// By popularity, with the number of the directory.
    files: Vec<(Stored, usize)>,
}

/// All hosts.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    hosts: Vec<Host>,
    popularity: Zipf,
    seed: u64,
}

/// What the clients of a run share: each host's list of names.
pub(super) struct Lists {
    names: Vec<Draw>,
    /// Each client's times off.
    off: Vec<Draw>,
    /// By how much each is missed in this run.
    missed: Vec<Draw>,
}

/// Embedded files of a page at most; the distribution has no mean worth the name.
const EMBEDDED_MAX: f64 = 150.0;
/// Longest time off, seconds; as above.
const OFF_MAX: f64 = 600.0;

impl Hosts {
    pub(super) fn make(volume: &mut Volume, p: &Surge, seed: u64) -> Option<Hosts> {
        let mut hosts = Vec::new();
        for (n, at) in p.at.iter().enumerate() {
            let mut draw = Draw::new(seed, "surge").fork(n as u64);
            let mut root = volume.directory_in(volume.group_at(*at))?;
            let mut directories = Vec::new();
            for _ in 0..p.directories {
                directories.push(volume.directory(&mut root)?);
            }
            let mut files = Vec::new();
            for i in 0..p.files as usize {
                let bytes = if draw.chance(p.tail_share) {
                    draw.pareto(p.tail_least_bytes, p.tail_shape)
                } else {
                    draw.log_normal(p.body_mu, p.body_sigma)
                };
                let bytes = bytes.min(p.file_max_mib * 1_048_576.0);
                let d = i * directories.len() / p.files as usize;
                let blocks = (bytes as u64).div_ceil(4096).max(1) as u32;
                files.push((volume.file_of(&mut directories[d], blocks, 6)?, d));
            }
            // What is popular lies anywhere.
            draw.shuffle(&mut files);
            hosts.push(Host { directories, files });
        }
        Some(Hosts { hosts, popularity: Zipf::new(p.files as usize, p.popularity), seed })
    }

    pub(super) fn stored(&self) -> impl Iterator<Item = &Stored> {
        self.hosts
            .iter()
            .flat_map(|h| h.directories.iter().map(|d| &d.stored).chain(h.files.iter().map(|(f, _)| f)))
    }

    pub(super) fn lists(&self, p: &Surge, run: u64) -> Lists {
        let (names, off) = (Draw::new(self.seed, "names"), Draw::new(self.seed, "off times"));
        let missed = Draw::new(self.seed, "missed times");
        let of = if p.same_sequence { 0 } else { run };
        let clients = self.hosts.len() as u64 * u64::from(p.clients);
        Lists {
            names: (0..self.hosts.len() as u64).map(|h| names.fork(h).fork(of)).collect(),
            off: (0..clients).map(|c| off.fork(c).fork(of)).collect(),
            missed: (0..clients).map(|c| missed.fork(c).fork(run)).collect(),
        }
    }

    /// What a client does next: a pause, then a page with what is embedded in it.
    pub(super) fn next(
        &self,
        volume: &Volume,
        kernel: &Kernel,
        p: &Surge,
        lists: &mut Lists,
        client: usize,
    ) -> Vec<Step> {
        let mut s = Script::new(volume, kernel);
        let h = client % self.hosts.len();
        let (host, names) = (&self.hosts[h], &mut lists.names[h]);
        let (times, missed) = (&mut lists.off[client], &mut lists.missed[client]);
        let mut nearly = |s: f64| s * (1.0 + p.off_times_missed_by * missed.between(-1.0, 1.0));
        let off = nearly(times.pareto(p.inactive_off_least_s, p.inactive_off_shape).min(OFF_MAX));
        s.steps.push(Step::Think(seconds(off)));
        let files = names.pareto(1.0, p.embedded_shape).min(EMBEDDED_MAX) as u32;
        for n in 0..files.max(1) {
            if n > 0 {
                let off = nearly(times.weibull(p.active_off_scale_s, p.active_off_shape).min(OFF_MAX));
                s.steps.push(Step::Think(seconds(off)));
            }
            let (file, d) = &host.files[self.popularity.draw(names)];
            s.look_up(&host.directories[*d], 1.0);
            s.read_whole(file);
        }
        s.steps
    }
}
