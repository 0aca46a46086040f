//! What a sweep is to do, checked as a whole before anything is made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use fs2_disk::DriveProfile;
use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64;

use super::super::measure::attach::parse_bytes;
use super::super::measure::{ColdMode, LIMIT_BYTES_MIN, MemLimitError};
use super::super::volumes::System;
use super::super::{BenchError, Entry, Setup, find, parse_duration, preset_is_there};

/// Cells of a plan at most: more is a mistake in it.
const CELLS_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// Bytes of the volume, as `2g`.
    size: String,
    #[serde(default = "five")]
    runs: u32,
    #[serde(default)]
    train: u32,
    #[serde(default = "one")]
    seed: u64,
    #[serde(default = "unity")]
    scale: f64,
    #[serde(default)]
    duration: Option<String>,
    #[serde(default)]
    mem_limit: Option<String>,
    #[serde(default)]
    cold: Option<String>,
    #[serde(default = "unity")]
    time_scale: f64,
    drives: Vec<String>,
    systems: Vec<String>,
    #[serde(default)]
    variants: Vec<String>,
    #[serde(default)]
    variant: Vec<VariantText>,
    workload: Vec<WorkloadText>,
}

fn five() -> u32 {
    5
}

fn one() -> u64 {
    1
}

fn unity() -> f64 {
    1.0
}

fn refuse_again<T: PartialEq>(before: &[T], one: &T, name: &str) -> Result<(), BenchError> {
    if before.contains(one) { Err(usage(format!("{name} is twice in the plan"))) } else { Ok(()) }
}

/// One way to make and mount the file system.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantText {
    name: String,
    #[serde(default)]
    format: Vec<String>,
    #[serde(default)]
    mount: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadText {
    name: String,
    #[serde(default)]
    preset: Option<String>,
    #[serde(default)]
    set: Vec<String>,
}

/// A way to make and mount the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) name: String,
    /// Arguments of mke2fs.
    pub(super) format: Vec<String>,
    /// Options of the mount.
    pub(super) mount: Vec<String>,
}

/// A workload with its parameters.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) entry: Entry,
    pub(super) preset: String,
    pub(super) set: Vec<(String, String)>,
}

/// A plan that makes sense.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) bytes: u64,
    pub(super) runs: u32,
    pub(super) train: u32,
    pub(super) seed: u64,
    pub(super) scale: f64,
    pub(super) duration: Option<std::time::Duration>,
    pub(super) mem_limit: Option<u64>,
    pub(super) cold: ColdMode,
    pub(super) time_scale: f64,
    pub(super) drives: Vec<String>,
    /// What those of the drives say that are files.
    profiles: BTreeMap<String, String>,
    pub(super) systems: Vec<System>,
    /// The default first.
    pub(super) variants: Vec<Variant>,
    pub(super) works: Vec<Work>,
}

/// One cell of the tables.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) drive: String,
    pub(super) system: System,
    pub(super) variant: Variant,
    pub(super) work: Work,
    /// Of everything its figures depend on: a result under this name is this cell's.
    pub(super) digest: u64,
}

impl Cell {
    /// Its result's file.
    pub(super) fn file(&self, out: &Path) -> PathBuf {
        let drive = self.drive.rsplit('/').next().unwrap_or_default();
        out.join(format!(
            "{drive}-{}-{}-{}-{:016x}.json",
            self.system.name(),
            self.variant.name,
            self.work.entry.name,
            self.digest
        ))
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.drive, self.system.name(), self.variant.name, self.work.entry.name)
    }
}

/// What a drive's profile says where it is a file; a built-in one is this program's, whose version each result has.
fn in_file(drive: &str) -> Result<Option<String>, BenchError> {
    let profile = fs2d::daemon::profile(drive).map_err(|e| usage(e.to_string()))?;
    // As it was understood: another comment makes no other drive.
    Ok(DriveProfile::builtin(drive).is_err().then(|| profile.to_toml()))
}

/// The thesis' variants of ext2 by name.
fn builtin(name: &str) -> Option<Variant> {
    let (format, mount): (&[&str], &[&str]) = match name {
        "def" => (&["-b", "4096", "-I", "128"], &["relatime"]),
        "noatime" => (&["-b", "4096", "-I", "128"], &["noatime"]),
        "blk1k" => (&["-b", "1024", "-I", "128"], &["relatime"]),
        "blk2k" => (&["-b", "2048", "-I", "128"], &["relatime"]),
        "isz1k" => (&["-b", "4096", "-I", "1024"], &["relatime"]),
        "bg16k" => (&["-b", "4096", "-I", "128", "-g", "16384"], &["relatime"]),
        _ => return None,
    };
    let own = |list: &[&str]| list.iter().map(ToString::to_string).collect();
    Some(Variant { name: name.into(), format: own(format), mount: own(mount) })
}

/// The names [`builtin`] knows, in the thesis' order.
const BUILTIN: [&str; 6] = ["def", "noatime", "blk1k", "blk2k", "isz1k", "bg16k"];

fn usage(what: impl std::fmt::Display) -> BenchError {
    BenchError::Usage(what.to_string())
}

/// Where a text is no plan, and what was expected there.
fn malformed(text: &str, e: &toml::de::Error) -> BenchError {
    let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let (line, column) =
        (before.split('\n').count(), before.chars().rev().take_while(|c| *c != '\n').count() + 1);
    usage(format!("line {line}, column {column}: {}", e.message()))
}

impl Plan {
    /// Reads a plan's file.
    ///
    /// # Errors
    /// What of it makes no sense.
    pub(super) fn read(path: &Path) -> Result<Plan, BenchError> {
        match fs2d::text::read(path) {
            Ok(text) => Plan::parse(&text).map_err(|e| usage(format!("{}: {e}", path.display()))),
            Err(e) if e.kind() == std::io::ErrorKind::FileTooLarge => {
                Err(usage(format!("{}: {e}, expected a plan", path.display())))
            }
            Err(e) => Err(BenchError::at(path, "reading the plan")(e)),
        }
    }

    /// Checks a plan's text.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub(super) fn parse(text: &str) -> Result<Plan, BenchError> {
        let text: Text = toml::from_str(text).map_err(|e| malformed(text, &e))?;
        let systems: Result<Vec<System>, String> = text.systems.iter().map(|s| System::from_str(s)).collect();
        let systems = systems.map_err(usage)?;
        if systems.contains(&System::Static) {
            return Err(usage("static is for fsbench paper, which knows what to copy"));
        }
        let names = if text.variants.is_empty() && text.variant.is_empty() {
            BUILTIN.map(String::from).to_vec()
        } else {
            text.variants
        };
        let mut variants = Vec::new();
        for name in names {
            let known = || usage(format!("no variant '{name}'; there are {}", BUILTIN.join(", ")));
            variants.push(builtin(&name).ok_or_else(known)?);
        }
        variants.extend(text.variant.into_iter().map(|v| Variant {
            name: v.name,
            format: v.format,
            mount: v.mount,
        }));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        for (i, v) in variants.iter().enumerate() {
            if v.name.is_empty() || !v.name.chars().all(plain) || v.name.starts_with('.') {
                return Err(usage(format!(
                    "'{}' is no name for a variant: letters, digits, - and _",
                    v.name
                )));
            }
            if variants[..i].iter().any(|w| w.name == v.name) {
                return Err(usage(format!("two variants are called {}", v.name)));
            }
        }
        let mut works = Vec::new();
        for w in text.workload {
            let entry = find(&w.name)?;
            preset_is_there(&entry, w.preset.as_deref())?;
            let set: Result<Vec<_>, String> = w.set.iter().map(|s| super::super::parse_set(s)).collect();
            let preset = w.preset.unwrap_or_else(|| entry.presets[0].to_owned());
            works.push(Work { entry, preset, set: set.map_err(usage)? });
        }
        let cold = match text.cold.as_deref() {
            None | Some("remount") => ColdMode::Remount,
            Some("drop") => ColdMode::Drop,
            Some("none") => ColdMode::None,
            Some(other) => return Err(usage(format!("cold = '{other}': give remount, drop or none"))),
        };
        if !(0.001..=100.0).contains(&text.time_scale) || !(1e-3..=1e3).contains(&text.scale) {
            return Err(usage("scale must be 0.001 to 1000, time_scale 0.001 to 100"));
        }
        if !(1..=10_000).contains(&text.runs) {
            return Err(usage("runs must be 1 to 10000"));
        }
        if text.train > 10_000 {
            return Err(usage("train must be 0 to 10000"));
        }
        let mut profiles = BTreeMap::new();
        for drive in &text.drives {
            profiles.extend(in_file(drive)?.map(|says| (drive.clone(), says)));
        }
        let mem_limit = text.mem_limit.as_deref().map(parse_bytes).transpose().map_err(usage)?;
        if let Some(bytes) = mem_limit.filter(|bytes| *bytes < LIMIT_BYTES_MIN) {
            return Err(usage(format!("mem_limit: {}", MemLimitError::TooSmall(bytes))));
        }
        let plan = Plan {
            bytes: parse_bytes(&text.size).map_err(usage)?,
            runs: text.runs,
            train: text.train,
            seed: text.seed,
            scale: text.scale,
            duration: text.duration.as_deref().map(parse_duration).transpose().map_err(usage)?,
            mem_limit,
            cold,
            time_scale: text.time_scale,
            drives: text.drives,
            profiles,
            systems,
            variants,
            works,
        };
        let cells = plan.drives.len() * plan.systems.len() * plan.variants.len() * plan.works.len();
        if cells == 0 || cells > CELLS_MAX {
            return Err(usage(format!("{cells} cells; give 1 to {CELLS_MAX}")));
        }
        let names: Vec<String> = plan.systems.iter().map(|s| s.name()).collect();
        for (i, name) in plan.drives.iter().enumerate() {
            refuse_again(&plan.drives[..i], name, name)?;
        }
        for (i, name) in names.iter().enumerate() {
            refuse_again(&names[..i], name, name)?;
        }
        let works: Vec<_> = plan.works.iter().map(|w| (w.entry.name, &w.preset, &w.set)).collect();
        for (i, work) in plan.works.iter().enumerate() {
            refuse_again(&works[..i], &works[i], work.entry.name)?;
            // Its parameters, and whether there is room for it.
            let needs = (work.entry.make)(&plan.setup(work))?.needs();
            if needs.bytes > plan.bytes {
                let (needs, size) = (crate::mkfs2::bytes(needs.bytes), crate::mkfs2::bytes(plan.bytes));
                return Err(usage(format!(
                    "{} needs about {needs}, more than size, {size}",
                    work.entry.name
                )));
            }
        }
        Ok(plan)
    }

    /// Every cell, in the order of the tables.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for drive in &self.drives {
            for system in &self.systems {
                for work in &self.works {
                    for variant in &self.variants {
                        cells.push(Cell {
                            drive: drive.clone(),
                            system: *system,
                            variant: variant.clone(),
                            work: work.clone(),
                            digest: self.digest(drive, *system, variant, work),
                        });
                    }
                }
            }
        }
        cells
    }

    fn digest(&self, drive: &str, system: System, variant: &Variant, work: &Work) -> u64 {
        let all = (
            (self.bytes, self.runs, self.train, self.seed, self.scale.to_bits(), self.time_scale.to_bits()),
            (self.duration, self.mem_limit, self.cold),
            (drive, system.name(), &variant.format, &variant.mount),
            (work.entry.name, &work.preset, &work.set),
        );
        let profile = self.profiles.get(drive).map_or("", String::as_str);
        xxh3_64(format!("{all:?}{profile}").as_bytes())
    }

    /// Checks that a drive is what it was when the plan was read: a result lies under that one's name.
    ///
    /// # Errors
    /// Its profile's file says something else now, or cannot be read any more.
    pub(super) fn check_profile(&self, drive: &str) -> Result<(), BenchError> {
        match in_file(drive)?.as_ref() == self.profiles.get(drive) {
            true => Ok(()),
            false => Err(BenchError::Failed(format!(
                "{drive}: the profile was changed during the sweep; run it again, what is measured already stays"
            ))),
        }
    }

    /// How the workload of a cell is made.
    pub(super) fn setup(&self, work: &Work) -> Setup {
        Setup {
            preset: work.preset.clone(),
            seed: self.seed,
            scale: self.scale,
            set: work.set.clone(),
            passes: self.runs.saturating_add(self.train),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "size = '2g'\ndrives = ['wd800-repaired']\nsystems = ['ext2', 'fs2']\n[[workload]]\nname = 'cvs-update'\n";

    #[test]
    fn the_thesis_variants_unless_others_are_named() {
        let plan = Plan::parse(PLAN).unwrap();
        assert_eq!((plan.bytes, plan.runs, plan.cold), (2 << 30, 5, ColdMode::Remount));
        assert_eq!(plan.cells().len(), 2 * 6);
        let one = Plan::parse(&PLAN.replacen("\n", "\nvariants = ['def', 'isz1k']\n", 1)).unwrap();
        assert_eq!(one.variants[1].format, ["-b", "4096", "-I", "1024"]);
        let own = format!("{PLAN}[[variant]]\nname = 'tiny'\nformat = ['-b', '1024']\n");
        assert_eq!(Plan::parse(&own).unwrap().variants.len(), 1);
    }

    #[test]
    fn what_has_no_end_is_no_plan() {
        let e = Plan::read(Path::new("/dev/zero")).err().unwrap();
        assert_eq!(e.to_string(), usage("/dev/zero: more than 1 MiB, expected a plan").to_string());
    }

    #[test]
    fn a_fault_is_told_with_its_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.toml");
        for (text, says) in [
            (
                format!("{PLAN}runs = 'five'\n"),
                ": line 6, column 1: unknown field `runs`, expected one of `name`, ",
            ),
            (
                format!("runs =  'five'\n{PLAN}"),
                ": line 1, column 9: invalid type: string \"five\", expected u32",
            ),
            (PLAN.replace("'2g'", "'x'"), ": 'x' is no size; give one like 24m or 1g"),
            (PLAN.replace("cvs-update", "nonsense"), ": there is no workload 'nonsense'"),
        ] {
            std::fs::write(&path, text).unwrap();
            let said = Plan::read(&path).err().unwrap().to_string();
            assert!(said.starts_with(&format!("{}{says}", path.display())) && !said.contains('\n'), "{said}");
        }
    }

    /// Found: it was seen in the middle of the sweep, or in other words.
    #[test]
    fn a_plan_that_cannot_be_gone_through_is_none() {
        let second = "[[workload]]\nname = 'cvs-update'\nset = ['dirs=7']\n";
        assert_eq!(Plan::parse(&format!("{PLAN}{second}")).unwrap().works.len(), 2);
        for (text, says) in [
            (
                format!("{PLAN}{}", second.replace("dirs", "nosuch")),
                "--set nosuch: there is no such parameter",
            ),
            (PLAN.replace("'2g'", "'1k'"), "cvs-update needs about "),
            (PLAN.replace("'ext2', 'fs2'", "'fs2', 'fs2'"), "fs2 is twice in the plan"),
            (
                PLAN.replace("'wd800-repaired'", "'wd800-repaired', 'wd800-repaired'"),
                "wd800-repaired is twice in the plan",
            ),
            (format!("{PLAN}[[workload]]\nname = 'cvs-update'\n"), "cvs-update is twice in the plan"),
        ] {
            let said = Plan::parse(&text).expect_err("a refusal").to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn the_plan_in_the_documentation_makes_sense() {
        let plan = Plan::parse(include_str!("../../../../docs/fsbench-sweep.toml")).unwrap();
        assert_eq!(plan.cells().len(), 2 * 6 * 2);
    }

    #[test]
    fn a_result_s_name_depends_on_all_its_figures_do() {
        let digest = |text: &str| Plan::parse(text).unwrap().cells()[0].digest;
        let usual = digest(PLAN);
        assert_eq!(usual, digest(PLAN));
        for more in
            ["runs = 6", "seed = 2", "scale = 0.5", "duration = '5s'", "mem_limit = '24m'", "cold = 'none'"]
        {
            assert_ne!(usual, digest(&format!("{more}\n{PLAN}")), "{more}");
        }
        assert_ne!(usual, digest(&PLAN.replace("'2g'", "'3g'")));
        let cells = Plan::parse(PLAN).unwrap().cells();
        let mut names: Vec<PathBuf> = cells.iter().map(|c| c.file(Path::new("o"))).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), cells.len());
    }

    /// Found: the results of the profile before were taken for those of the one that had its name now.
    #[test]
    fn a_drive_in_a_file_is_known_by_what_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let (path, text) =
            (dir.path().join("own.toml"), DriveProfile::builtin_source("wd800-repaired").unwrap());
        let plan = || Plan::parse(&PLAN.replace("wd800-repaired", path.to_str().unwrap())).unwrap();
        std::fs::write(&path, text).unwrap();
        let before = plan();
        let digest = |plan: &Plan| plan.cells()[0].digest;
        std::fs::write(&path, format!("# the same\n{text}")).unwrap();
        assert_eq!(digest(&plan()), digest(&before));
        before.check_profile(path.to_str().unwrap()).unwrap();
        let slower = text.replacen("rpm = 7200", "rpm = 5400", 1);
        assert_ne!(slower, text);
        std::fs::write(&path, slower).unwrap();
        assert_ne!(digest(&plan()), digest(&before));
        let said = before.check_profile(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(said.contains("was changed during the sweep"), "{said}");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, says) in [
            (PLAN.replace("'2g'", "'x'"), "no size"),
            (PLAN.replace("'fs2'", "'zfs'"), "no system 'zfs'"),
            (PLAN.replace("cvs-update", "cvs-updat"), "cvs-update"),
            (format!("variants = ['blk3k']\n{PLAN}"), "no variant 'blk3k'"),
            (format!("cold = 'icy'\n{PLAN}"), "icy"),
            (format!("runs = 0\n{PLAN}"), "runs must be"),
            (format!("train = 4294967295\n{PLAN}"), "train must be"),
            (PLAN.replace("wd800-repaired", "nope"), "no drive profile 'nope'"),
            (format!("mem_limit = '1k'\n{PLAN}"), "mem_limit: "),
            (format!("duration = '0s'\n{PLAN}"), "more than 0"),
            (format!("nonsense = 1\n{PLAN}"), "nonsense"),
            (PLAN.replace("['wd800-repaired']", "[]"), "0 cells"),
            (PLAN.replace("'fs2'", "'static'"), "fsbench paper"),
            (format!("{PLAN}[[variant]]\nname = '../x'\n"), "no name"),
        ] {
            let said = Plan::parse(&text).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.contains(says), "{says}: {said}");
        }
    }
}
