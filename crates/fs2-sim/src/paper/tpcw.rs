//! TPC-W: browsers ask for pages of a shop whose tables grew in turns, so that each lies in many pieces.

use std::collections::BTreeMap;

use fs2_block::Nanos;

use super::draw::Draw;
use super::kernel::{Script, Step, seconds};
use super::params::{Interaction, Kernel, Tpcw};
use super::volume::{Directory, Mapped, Stored, Volume, pieces};

#[derive(Clone, Debug)]
struct Table {
    data: Vec<Mapped>,
    index: Vec<Mapped>,
    inodes: [u32; 2],
    stored: [Stored; 2],
}

/// The database and the pictures.
#[derive(Clone, Debug)]
pub(super) struct Shop {
    tables: BTreeMap<String, Table>,
    directories: Vec<Directory>,
    /// Thumbnail and full picture of each item.
    pictures: Vec<(Stored, Stored)>,
    seed: u64,
}

const MIB_BLOCKS: u32 = 256;

impl Shop {
    pub(super) fn make(volume: &mut Volume, p: &Tpcw, seed: u64) -> Option<Shop> {
        let mut draw = Draw::new(seed, "tpcw");
        let mut root = volume.directory_in(volume.group_at(p.at))?;
        let mut database = volume.directory(&mut root)?;
        // Grown in turns, each in proportion to its size, as populating writes them.
        let mut growing = Vec::new();
        for t in &p.table {
            for (part, mib) in [(0, t.mib), (1, t.index_mib)] {
                let file = volume.file(&mut database)?;
                growing.push((t.name.clone(), part, file, mib * MIB_BLOCKS));
            }
        }
        while growing.iter().any(|(_, _, f, size)| f.blocks < *size) {
            for (_, _, file, size) in &mut growing {
                let left = size.saturating_sub(file.blocks);
                let kib = draw.between(f64::from(p.step_kib[0]), f64::from(p.step_kib[1]));
                let step = ((kib / 4.0) as u32).clamp(1, left.max(1)).min(left);
                if step > 0 {
                    let group = volume.group_of_inode(file.inode);
                    let before = file.blocks;
                    volume.grow(file, step, group, 4);
                    if file.blocks == before {
                        return None;
                    }
                }
            }
        }
        let mut directories = Vec::new();
        for _ in 0..p.image_directories {
            directories.push(volume.directory(&mut root)?);
        }
        let mut pictures = Vec::new();
        let all: f64 = p.image_bytes.iter().map(|(share, _)| share).sum();
        for item in 0..p.items {
            let n = directories.len() as u32;
            let directory = &mut directories[(item % n) as usize];
            let mut at = draw.unit() * all;
            let full = p.image_bytes.iter().find(|(share, _)| {
                at -= share;
                at <= 0.0
            });
            let bytes = full.or(p.image_bytes.last()).map_or(4096, |(_, b)| *b);
            let thumbnail = volume.file_of(directory, p.thumbnail_bytes.div_ceil(4096), 5)?;
            pictures.push((thumbnail, volume.file_of(directory, bytes.div_ceil(4096), 5)?));
        }
        let mut tables: BTreeMap<String, Table> = BTreeMap::new();
        for pair in growing.chunks_exact(2) {
            let (data, index) = (&pair[0].2, &pair[1].2);
            let table = Table {
                data: data.map(),
                index: index.map(),
                inodes: [data.inode, index.inode],
                stored: [data.clone(), index.clone()],
            };
            tables.insert(pair[0].0.clone(), table);
        }
        Some(Shop { tables, directories, pictures, seed })
    }

    pub(super) fn stored(&self) -> impl Iterator<Item = &Stored> {
        let tables = self.tables.values().flat_map(|t| &t.stored);
        let pictures = self.pictures.iter().flat_map(|(t, f)| [t, f]);
        tables.chain(pictures).chain(self.directories.iter().map(|d| &d.stored))
    }

    /// The browsers of a run.
    pub(super) fn browsers(&self, p: &Tpcw, run: u64) -> Vec<Browser> {
        let (base, pauses) = (Draw::new(self.seed, "browser"), Draw::new(self.seed, "pauses"));
        (0..u64::from(p.browsers))
            .map(|b| Browser {
                asks: base.fork(b).fork(if p.same_customers { 0 } else { run }),
                pauses: pauses.fork(b).fork(run),
                begun: false,
            })
            .collect()
    }

    /// What a browser does next: it thinks, then asks for a page.
    pub(super) fn next(
        &self,
        volume: &Volume,
        kernel: &Kernel,
        p: &Tpcw,
        browser: &mut Browser,
    ) -> Vec<Step> {
        let mut s = Script::new(volume, kernel);
        let think = if browser.begun {
            browser.pauses.exponential(p.think_s).min(10.0 * p.think_s)
        } else {
            // They do not begin all at once.
            browser.begun = true;
            browser.pauses.between(0.0, p.think_s)
        };
        s.steps.push(Step::Think(seconds(think).max(Nanos(1))));
        let all: f64 = p.interaction.iter().map(|i| i.percent).sum();
        let mut at = browser.asks.unit() * all;
        let chosen = p.interaction.iter().find(|i| {
            at -= i.percent;
            at <= 0.0
        });
        if let Some(interaction) = chosen.or(p.interaction.last()) {
            self.page(&mut s, p, interaction, &mut browser.asks);
        }
        s.steps
    }

    fn page(&self, s: &mut Script<'_>, p: &Tpcw, i: &Interaction, draw: &mut Draw) {
        let item = |draw: &mut Draw| nurand(draw, u64::from(p.items));
        let reads: u32 = i.rows.values().sum::<u32>() + i.thumbnails + i.images;
        let think = p.cpu_ms / f64::from(reads.max(1));
        for (name, n) in &i.rows {
            for _ in 0..*n {
                self.row(s, p, name, draw);
                s.think_ms(think);
            }
        }
        for (name, kib) in &i.tail_kib {
            let Some(t) = self.tables.get(name) else { continue };
            let from = t.data.len().saturating_sub(*kib as usize / 4);
            s.read(&t.data[from..]);
        }
        for (name, n) in &i.changed {
            let Some(t) = self.tables.get(name) else { continue };
            for _ in 0..*n {
                for part in [&t.index, &t.data] {
                    // New rows are at the end, what changes is anywhere.
                    let last = part.len().saturating_sub(1 + draw.below(16) as usize);
                    s.change(part[last].data);
                }
                s.change(s.volume.inode_block(t.inodes[0]));
            }
        }
        for n in 0..i.thumbnails + i.images {
            let item = item(draw) as usize;
            let (thumbnail, full) = &self.pictures[item % self.pictures.len()];
            let file = if n < i.thumbnails { thumbnail } else { full };
            s.look_up(&self.directories[item % self.directories.len()], 1.0);
            s.read_whole(file);
            s.think_ms(think);
        }
    }

    /// A row by its key: a leaf of the index and a block of the data, both in the order of keys.
    fn row(&self, s: &mut Script<'_>, p: &Tpcw, name: &str, draw: &mut Draw) {
        let Some(t) = self.tables.get(name) else { return };
        let keys = match name {
            "item" | "author" => u64::from(p.items),
            _ => u64::from(p.customers),
        };
        let key = nurand(draw, keys);
        for part in [&t.index, &t.data] {
            let at = (u128::from(key) * part.len() as u128 / u128::from(keys)) as usize;
            for piece in pieces(&part[at..at + 1], 1) {
                let (super::volume::Piece::Indirect(b) | super::volume::Piece::Data((b, _))) = piece;
                s.block(b);
            }
        }
    }
}

/// Somebody at the shop.
#[derive(Clone, Debug)]
pub(super) struct Browser {
    asks: Draw,
    pauses: Draw,
    begun: bool,
}

/// TPC's distribution of keys that are not equally likely: an or of two numbers evenly drawn.
fn nurand(draw: &mut Draw, keys: u64) -> u64 {
    let mask = (keys / 40).next_power_of_two().max(2) - 1;
    (draw.below(mask + 1) | draw.below(keys)) % keys
}
