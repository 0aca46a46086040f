//! What is assumed of the volume and the workloads: one TOML, `paper.toml`, which says where each number is from.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The parameters as they come with the program, with the source of each number.
pub const DEFAULT_PARAMS: &str = include_str!("paper.toml");

/// What is wrong with parameters.
#[derive(Debug)]
pub struct ParamsError(pub(super) String);

impl std::fmt::Display for ParamsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParamsError {}

/// The volume, its age, and the workloads. Made by [`Params::parse`], which refuses what makes no sense or
/// would not end.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    pub(super) seed: u64,
    pub(super) volume: VolumeShape,
    pub(super) ageing: Ageing,
    pub(super) kernel: Kernel,
    pub(super) fs2_2005: Guesses,
    pub(super) cvs: Cvs,
    pub(super) tpcw: Tpcw,
    pub(super) x: X,
    pub(super) surge: Surge,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeShape {
    pub(super) groups: u32,
    pub(super) inodes_per_group: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ageing {
    pub(super) cycles: u32,
    pub(super) fill_to: f64,
    pub(super) delete_to: f64,
    pub(super) used_in_the_end: f64,
    pub(super) file_median_bytes: f64,
    pub(super) file_sigma: f64,
    pub(super) file_max_mib: f64,
    pub(super) files_per_session: f64,
    pub(super) new_directory: f64,
    pub(super) top_level: f64,
    pub(super) deleted_together: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    pub(super) read_ahead_kib: u32,
    pub(super) first_read_kib: u32,
    pub(super) write_back_after_s: f64,
    pub(super) write_back_every_s: f64,
    pub(super) access_times: bool,
}

/// What the paper leaves open about its policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Guesses {
    pub(super) region_groups: u32,
    pub(super) together: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cvs {
    pub(super) repository_at: f64,
    pub(super) tree_at: f64,
    pub(super) directories: u32,
    pub(super) files: u32,
    pub(super) file_median_bytes: f64,
    pub(super) file_sigma: f64,
    pub(super) rcs_bytes: f64,
    pub(super) commits: u32,
    pub(super) committed: f64,
    pub(super) cpu_ms_per_file: f64,
    pub(super) cache_mib: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tpcw {
    pub(super) at: f64,
    pub(super) browsers: u32,
    pub(super) seconds: f64,
    pub(super) think_s: f64,
    pub(super) cpu_ms: f64,
    pub(super) same_customers: bool,
    pub(super) step_kib: [u32; 2],
    pub(super) items: u32,
    pub(super) customers: u32,
    pub(super) thumbnail_bytes: u32,
    pub(super) image_bytes: Vec<(f64, u32)>,
    pub(super) image_directories: u32,
    pub(super) cache_mib: u32,
    pub(super) table: Vec<Table>,
    pub(super) interaction: Vec<Interaction>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) mib: u32,
    pub(super) index_mib: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interaction {
    #[serde(rename = "name")]
    _name: String,
    pub(super) percent: f64,
    #[serde(default)]
    pub(super) rows: BTreeMap<String, u32>,
    #[serde(default)]
    pub(super) tail_kib: BTreeMap<String, u32>,
    #[serde(default)]
    pub(super) changed: BTreeMap<String, u32>,
    #[serde(default)]
    pub(super) thumbnails: u32,
    #[serde(default)]
    pub(super) images: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct X {
    pub(super) programs: u32,
    pub(super) think_ms: [f64; 2],
    pub(super) mapped_share: [f64; 2],
    pub(super) order_noise: f64,
    pub(super) cache_mib: u32,
    pub(super) installed: Vec<Installed>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Installed {
    #[serde(rename = "what")]
    _what: String,
    pub(super) at: f64,
    pub(super) directories: u32,
    pub(super) files: u32,
    pub(super) median_bytes: f64,
    pub(super) sigma: f64,
    pub(super) opened: u32,
    pub(super) mapped: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Surge {
    pub(super) at: Vec<f64>,
    pub(super) files: u32,
    pub(super) directories: u32,
    pub(super) body_mu: f64,
    pub(super) body_sigma: f64,
    pub(super) tail_share: f64,
    pub(super) tail_least_bytes: f64,
    pub(super) tail_shape: f64,
    pub(super) file_max_mib: f64,
    pub(super) popularity: f64,
    pub(super) embedded_shape: f64,
    pub(super) active_off_scale_s: f64,
    pub(super) active_off_shape: f64,
    pub(super) inactive_off_least_s: f64,
    pub(super) inactive_off_shape: f64,
    pub(super) clients: u32,
    pub(super) seconds: f64,
    pub(super) same_sequence: bool,
    pub(super) off_times_missed_by: f64,
    pub(super) cache_mib: u32,
}

/// Checks that a number lies where it makes sense.
struct Check(Result<(), String>);

impl Check {
    fn within(&mut self, name: &str, value: f64, from: f64, to: f64) {
        if self.0.is_ok() && !(from..=to).contains(&value) {
            self.0 = Err(format!("{name} is {value}, expected {from} to {to}"));
        }
    }

    fn shares(&mut self, named: &[(&str, f64)]) {
        for (name, value) in named {
            self.within(name, *value, 0.0, 1.0);
        }
    }

    fn counts(&mut self, named: &[(&str, u32)]) {
        for (name, value) in named {
            self.within(name, f64::from(*value), 1.0, 1e6);
        }
    }

    /// Sizes in bytes or MiB, times, shapes: positive, and not beyond reason.
    fn positive(&mut self, named: &[(&str, f64)]) {
        for (name, value) in named {
            self.within(name, *value, 1e-3, 1e9);
        }
    }
}

impl Params {
    /// From TOML in the form of [`DEFAULT_PARAMS`]; every number must be there.
    ///
    /// # Errors
    /// What is no such TOML, names what there is not, or lies outside of what makes sense.
    pub fn parse(toml: &str) -> Result<Params, ParamsError> {
        let params: Params = toml::from_str(toml).map_err(|e| ParamsError(e.to_string()))?;
        params.check().map_err(ParamsError)?;
        Ok(params)
    }

    fn check(&self) -> Result<(), String> {
        let mut c = Check(Ok(()));
        let (a, k) = (&self.ageing, &self.kernel);
        c.within("volume.groups", f64::from(self.volume.groups), 16.0, 8192.0);
        c.within("volume.inodes_per_group", f64::from(self.volume.inodes_per_group), 1024.0, 32_768.0);
        if !self.volume.inodes_per_group.is_multiple_of(64) {
            c.0 = c.0.and(Err("volume.inodes_per_group: expected a multiple of 64".into()));
        }
        c.within("ageing.cycles", f64::from(a.cycles), 0.0, 100.0);
        c.within("ageing.fill_to", a.fill_to, 0.0, 0.95);
        c.within("ageing.delete_to", a.delete_to, 0.0, a.fill_to);
        c.within("ageing.used_in_the_end", a.used_in_the_end, 0.0, 0.95);
        c.within("ageing.file_median_bytes", a.file_median_bytes, 512.0, 1e8);
        c.within("ageing.file_sigma", a.file_sigma, 0.0, 4.0);
        c.within("ageing.file_max_mib", a.file_max_mib, 0.01, 2048.0);
        c.within("ageing.files_per_session", a.files_per_session, 0.0, 1e4);
        c.shares(&[
            ("ageing.new_directory", a.new_directory),
            ("ageing.top_level", a.top_level),
            ("ageing.deleted_together", a.deleted_together),
        ]);
        c.within("kernel.read_ahead_kib", f64::from(k.read_ahead_kib), 4.0, 1024.0);
        c.within("kernel.first_read_kib", f64::from(k.first_read_kib), 4.0, 1024.0);
        c.within("kernel.write_back_after_s", k.write_back_after_s, 0.0, 1e5);
        c.within("kernel.write_back_every_s", k.write_back_every_s, 0.1, 1e5);
        let g = &self.fs2_2005;
        c.counts(&[("fs2_2005.region_groups", g.region_groups), ("fs2_2005.together", g.together)]);
        self.check_cvs(&mut c);
        self.check_tpcw(&mut c);
        self.check_x(&mut c);
        self.check_surge(&mut c);
        c.0
    }

    fn check_cvs(&self, c: &mut Check) {
        let p = &self.cvs;
        c.shares(&[
            ("cvs.repository_at", p.repository_at),
            ("cvs.tree_at", p.tree_at),
            ("cvs.committed", p.committed),
        ]);
        c.counts(&[
            ("cvs.directories", p.directories),
            ("cvs.files", p.files),
            ("cvs.cache_mib", p.cache_mib),
        ]);
        c.within("cvs.commits", f64::from(p.commits), 0.0, 1000.0);
        c.positive(&[("cvs.file_median_bytes", p.file_median_bytes), ("cvs.file_sigma", p.file_sigma)]);
        c.within("cvs.file_sigma", p.file_sigma, 0.0, 4.0);
        c.within("cvs.rcs_bytes", p.rcs_bytes, 0.0, 1e6);
        c.within("cvs.cpu_ms_per_file", p.cpu_ms_per_file, 0.0, 1e4);
    }

    fn check_tpcw(&self, c: &mut Check) {
        let p = &self.tpcw;
        c.shares(&[("tpcw.at", p.at)]);
        c.counts(&[
            ("tpcw.browsers", p.browsers),
            ("tpcw.items", p.items),
            ("tpcw.customers", p.customers),
            ("tpcw.image_directories", p.image_directories),
            ("tpcw.thumbnail_bytes", p.thumbnail_bytes),
            ("tpcw.cache_mib", p.cache_mib),
        ]);
        c.within("tpcw.browsers", f64::from(p.browsers), 1.0, 10_000.0);
        c.within("tpcw.seconds", p.seconds, 1.0, 86_400.0);
        c.within("tpcw.think_s", p.think_s, 0.01, 1e4);
        c.within("tpcw.cpu_ms", p.cpu_ms, 0.0, 1e5);
        c.within("tpcw.step_kib", f64::from(p.step_kib[0]), 4.0, f64::from(p.step_kib[1]));
        c.within("tpcw.step_kib", f64::from(p.step_kib[1]), 4.0, 1e6);
        for (share, bytes) in &p.image_bytes {
            c.within("tpcw.image_bytes", *share, 0.0, 1.0);
            c.within("tpcw.image_bytes", f64::from(*bytes), 1.0, 1e7);
        }
        for t in &p.table {
            c.within(&format!("tpcw.table {}", t.name), f64::from(t.mib), 1.0, 4096.0);
            c.within(&format!("tpcw.table {}", t.name), f64::from(t.index_mib), 1.0, 4096.0);
        }
        if p.interaction.is_empty() || p.image_bytes.is_empty() {
            c.within("tpcw: numbers of interactions and images", 0.0, 1.0, 1e6);
        }
        for i in &p.interaction {
            c.within("tpcw.interaction: percent", i.percent, 0.0, 100.0);
            c.within("tpcw.interaction: pictures", f64::from(i.thumbnails.max(i.images)), 0.0, 1e4);
            for (name, n) in i.rows.iter().chain(&i.tail_kib).chain(&i.changed) {
                c.within(&format!("tpcw.interaction: {name}"), f64::from(*n), 0.0, 1e5);
                if !p.table.iter().any(|t| t.name == *name) && c.0.is_ok() {
                    c.0 = Err(format!("tpcw.interaction: there is no table {name}"));
                }
            }
        }
        let percent: f64 = p.interaction.iter().map(|i| i.percent).sum();
        c.within("tpcw: percent of all interactions", percent, 99.0, 101.0);
    }

    fn check_x(&self, c: &mut Check) {
        let p = &self.x;
        c.shares(&[
            ("x.order_noise", p.order_noise),
            ("x.mapped_share", p.mapped_share[0]),
            ("x.mapped_share", p.mapped_share[1]),
        ]);
        c.within("x.programs", f64::from(p.programs), 1.0, 1000.0);
        c.counts(&[("x.cache_mib", p.cache_mib)]);
        c.within("x.think_ms", p.think_ms[0], 0.0, p.think_ms[1]);
        c.within("x.think_ms", p.think_ms[1], 0.0, 1e5);
        if p.installed.is_empty() {
            c.within("x: kinds of installed files", 0.0, 1.0, 100.0);
        }
        for i in &p.installed {
            c.shares(&[("x.installed: at", i.at)]);
            c.counts(&[("x.installed: directories", i.directories), ("x.installed: files", i.files)]);
            c.within("x.installed: median_bytes", i.median_bytes, 1.0, 1e8);
            c.within("x.installed: sigma", i.sigma, 0.0, 4.0);
            c.within("x.installed: opened", f64::from(i.opened), 0.0, f64::from(i.files));
        }
    }

    fn check_surge(&self, c: &mut Check) {
        let p = &self.surge;
        c.within("surge.at: number of hosts", p.at.len() as f64, 1.0, 16.0);
        for at in &p.at {
            c.shares(&[("surge.at", *at)]);
        }
        c.counts(&[
            ("surge.files", p.files),
            ("surge.directories", p.directories),
            ("surge.clients", p.clients),
            ("surge.cache_mib", p.cache_mib),
        ]);
        c.within("surge.clients", f64::from(p.clients), 1.0, 10_000.0);
        c.within("surge.seconds", p.seconds, 1.0, 86_400.0);
        c.within("surge.body_mu", p.body_mu, 0.0, 20.0);
        c.within("surge.body_sigma", p.body_sigma, 0.0, 4.0);
        c.shares(&[("surge.tail_share", p.tail_share), ("surge.off_times_missed_by", p.off_times_missed_by)]);
        c.positive(&[("surge.tail_least_bytes", p.tail_least_bytes)]);
        c.within("surge.file_max_mib", p.file_max_mib, 0.01, 1024.0);
        c.within("surge.popularity", p.popularity, 0.0, 10.0);
        for (name, shape) in [
            ("surge.tail_shape", p.tail_shape),
            ("surge.embedded_shape", p.embedded_shape),
            ("surge.active_off_shape", p.active_off_shape),
            ("surge.inactive_off_shape", p.inactive_off_shape),
        ] {
            c.within(name, shape, 0.05, 100.0);
        }
        c.within("surge.active_off_scale_s", p.active_off_scale_s, 0.0, 1e4);
        // Without a pause a client would ask for ever at one moment.
        c.within("surge.inactive_off_least_s", p.inactive_off_least_s, 0.001, 1e4);
    }
}

impl Default for Params {
    /// [`DEFAULT_PARAMS`].
    fn default() -> Params {
        Params::parse(DEFAULT_PARAMS).expect("the parameters that come with the program are right")
    }
}
