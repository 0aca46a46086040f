//! A volume filled and emptied in turns until its free space looks like that of one in use.
//!
//! Sessions create files in one directory, a new one or an old one; files are deleted at random, one by
//! one or a session's together. Sizes are
//! log-normal. Nothing of this is read in the traces: it only decides what is free.

use super::draw::{Draw, ln};
use super::params::Ageing;
use super::volume::{Directory, Stored, Volume};

/// What lives on the volume besides the workloads' files.
pub(super) struct Population {
    /// What is left of each session's files; none is empty.
    sessions: Vec<Vec<Stored>>,
    directories: Vec<Directory>,
    draw: Draw,
}

/// Full or empty to within this share of the volume.
const NEARLY: f64 = 1e-9;

impl Population {
    pub(super) fn new(seed: u64) -> Population {
        let draw = Draw::new(seed, "ageing");
        Population { sessions: Vec::new(), directories: Vec::new(), draw }
    }

    /// Creates files until this share of the volume is in use.
    pub(super) fn fill(&mut self, volume: &mut Volume, p: &Ageing, used: f64) {
        let mu = ln(p.file_median_bytes);
        while 1.0 - volume.free_share() < used - NEARLY {
            let d = self.directory(volume, p);
            let Some(directory) = self.directories.get_mut(d) else { return };
            let pid = self.draw.below(16) as u32;
            let count = 1 + self.draw.exponential(p.files_per_session) as u64;
            let mut files = Vec::new();
            for _ in 0..count {
                let bytes = self.draw.log_normal(mu, p.file_sigma).min(p.file_max_mib * 1_048_576.0);
                let blocks = (bytes as u64).div_ceil(4096).max(1) as u32;
                files.extend(volume.file_of(directory, blocks, pid));
                if 1.0 - volume.free_share() >= used - NEARLY {
                    break;
                }
            }
            if files.is_empty() {
                return;
            }
            self.sessions.push(files);
        }
    }

    /// The directory of the next session.
    fn directory(&mut self, volume: &mut Volume, p: &Ageing) -> usize {
        let n = self.directories.len();
        if n > 0 && !self.draw.chance(p.new_directory) {
            return self.draw.below(n as u64) as usize;
        }
        let made = if n == 0 || self.draw.chance(p.top_level) {
            // At the top: spread, as Orlov's rule does with directories of the root.
            let group = self.draw.below(u64::from(volume.groups())) as u32;
            volume.directory_in(group)
        } else {
            let parent = self.draw.below(n as u64) as usize;
            volume.directory(&mut self.directories[parent])
        };
        match made {
            Some(directory) => {
                self.directories.push(directory);
                self.directories.len() - 1
            }
            None => self.draw.below(n as u64) as usize,
        }
    }

    /// Deletes files until this share of the volume is in use.
    pub(super) fn delete(&mut self, volume: &mut Volume, p: &Ageing, used: f64) {
        while 1.0 - volume.free_share() > used + NEARLY && !self.sessions.is_empty() {
            let at = self.draw.below(self.sessions.len() as u64) as usize;
            let session = &mut self.sessions[at];
            if self.draw.chance(p.deleted_together) {
                session.drain(..).for_each(|file| volume.remove(&file));
            } else {
                let file = self.draw.below(session.len() as u64) as usize;
                volume.remove(&session.swap_remove(file));
            }
            if session.is_empty() {
                self.sessions.swap_remove(at);
            }
        }
    }

    /// Ten times full and emptied again, or as the parameters have it.
    pub(super) fn age(&mut self, volume: &mut Volume, p: &Ageing) {
        for _ in 0..p.cycles {
            self.fill(volume, p, p.fill_to);
            self.delete(volume, p, p.delete_to);
        }
    }

    pub(super) fn files(&self) -> usize {
        self.sessions.iter().map(Vec::len).sum()
    }
}
