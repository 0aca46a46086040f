//! `startx` and KDE: programs start one after the other, each maps its libraries, then reads fonts and
//! configuration; the user waits for the disk and for the processor in turns.

use super::draw::{Draw, ln};
use super::kernel::{Script, Step};
use super::params::{Installed, Kernel, X};
use super::volume::{Directory, Stored, Volume};

#[derive(Clone, Debug)]
struct Kind {
    directories: Vec<Directory>,
    /// With the number of the directory.
    files: Vec<(Stored, usize)>,
    mapped: bool,
}

/// Everything that was installed, and what a start reads of it, in order.
#[derive(Clone, Debug)]
pub(super) struct System {
    kinds: Vec<Kind>,
    /// Kind and file.
    order: Vec<(usize, usize)>,
    seed: u64,
}

impl System {
    pub(super) fn make(volume: &mut Volume, p: &X, seed: u64) -> Option<System> {
        let mut draw = Draw::new(seed, "x");
        let mut kinds = Vec::new();
        for kind in &p.installed {
            // Under directories of the root, which Orlov's rule spreads over the volume.
            let mut root = volume.directory_in(volume.group_at(kind.at))?;
            kinds.push(install(volume, &mut root, kind, &mut draw)?);
        }
        let order = order(p, &mut draw);
        Some(System { kinds, order, seed })
    }

    pub(super) fn stored(&self) -> impl Iterator<Item = &Stored> {
        self.kinds
            .iter()
            .flat_map(|k| k.directories.iter().map(|d| &d.stored).chain(k.files.iter().map(|(f, _)| f)))
    }

    /// The steps of a start.
    pub(super) fn start(&self, volume: &Volume, kernel: &Kernel, p: &X, run: u64) -> Vec<Step> {
        let mut noise = Draw::new(self.seed, "x, order").fork(run);
        let mut order = self.order.clone();
        for i in 0..order.len() {
            if noise.chance(p.order_noise) {
                let with = (i + 1 + noise.below(8) as usize).min(order.len() - 1);
                order.swap(i, with);
            }
        }
        let mut s = Script::new(volume, kernel);
        for (kind, file) in order {
            // What is read of a file is the same in each run; how long the processor takes is not.
            let mut same = Draw::new(self.seed, "x, pages").fork((kind as u64) << 32 | file as u64);
            let kind = &self.kinds[kind];
            let (stored, directory) = &kind.files[file];
            s.look_up(&kind.directories[*directory], same.unit());
            s.open(stored);
            let map = stored.map();
            let mut think = |s: &mut Script<'_>| s.think_ms(noise.between(p.think_ms[0], p.think_ms[1]));
            think(&mut s);
            if !kind.mapped {
                s.read(&map);
                think(&mut s);
                continue;
            }
            let first = (kernel.first_read_kib as usize / 4).clamp(1, map.len().max(1)).min(map.len());
            s.read(&map[..first]);
            think(&mut s);
            let window = (kernel.read_ahead_kib as usize / 4).max(1);
            let mut windows: Vec<&[super::volume::Mapped]> = map.chunks(window).collect();
            same.shuffle(&mut windows);
            let share = same.between(p.mapped_share[0], p.mapped_share[1]);
            let touched = ((windows.len() as f64 * share + 0.5) as usize).max(1).min(windows.len());
            for w in &windows[..touched] {
                s.read(w);
                think(&mut s);
            }
        }
        s.steps
    }
}

fn install(volume: &mut Volume, root: &mut Directory, kind: &Installed, draw: &mut Draw) -> Option<Kind> {
    let mut directories = Vec::new();
    for _ in 0..kind.directories {
        directories.push(volume.directory(root)?);
    }
    let mu = ln(kind.median_bytes);
    let mut files = Vec::new();
    for i in 0..kind.files as usize {
        let bytes = draw.log_normal(mu, kind.sigma).min(16e6);
        // One directory after the other.
        let d = i * directories.len() / kind.files as usize;
        let blocks = (bytes as u64).div_ceil(4096).max(1) as u32;
        files.push((volume.file_of(&mut directories[d], blocks, 3)?, d));
    }
    Some(Kind { directories, files, mapped: kind.mapped })
}

/// Programs in turn: of the first kind one each, then its part of the libraries, then of the rest.
fn order(p: &X, draw: &mut Draw) -> Vec<(usize, usize)> {
    let mut opened: Vec<Vec<usize>> = Vec::new();
    for kind in &p.installed {
        let mut all: Vec<usize> = (0..kind.files as usize).collect();
        draw.shuffle(&mut all);
        all.truncate(kind.opened as usize);
        opened.push(all);
    }
    let programs = p.programs as usize;
    let mut order = Vec::new();
    for program in 0..programs {
        for (kind, files) in opened.iter().enumerate() {
            let part = |n: usize| files.len() * n / programs;
            order.extend(files[part(program)..part(program + 1)].iter().map(|f| (kind, *f)));
        }
    }
    order
}
