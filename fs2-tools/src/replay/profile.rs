//! `fs2-replay profile`: the drives there are, and those of others made ours.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use fs2_disk::{DriveProfile, Extended};
use fs2d::text::AtMost;

use super::Failure;
use crate::mkfs2::bytes;

/// Bytes of one of DiskSim's files at most. A guess: they list the seeks and zones of a drive, some each of its cylinders.
const DISKSIM_BYTES_MAX: u64 = 16 << 20;

const EXAMPLES: &str = "\
Examples:
  fs2-replay profile list
  fs2-replay profile show nearline-hc310 > mine.toml    to be changed by hand
  fs2-replay profile import disk.diskspecs > disk.toml

A command takes FILE where it takes a drive's name.";

#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// List the built-in drives
    List,
    /// Print a profile as TOML
    Show {
        /// A built-in drive's name, or a profile in a file
        #[arg(value_name = "PROFILE")]
        name: PathBuf,
    },
    /// Turn a drive described for DiskSim into a profile, as TOML
    Import {
        /// DiskSim's parameters of one drive (.diskspecs, .parv)
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.what {
        What::List => list(out),
        What::Show { name } => show(name, out),
        What::Import { file } => Ok(write!(out, "{}", import(file)?.to_toml())?),
    }
}

fn list(out: &mut dyn Write) -> Result<(), Failure> {
    for name in DriveProfile::names() {
        let p = DriveProfile::builtin(name).map_err(|e| Failure(e.to_string()))?;
        writeln!(out, "{name:<16} {}", p.about())?;
    }
    Ok(())
}

fn show(name: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let built_in = name.to_str().and_then(|n| DriveProfile::builtin_source(n).ok());
    match built_in {
        Some(text) => write!(out, "{text}")?,
        None => write!(out, "{}", load(name)?.to_toml())?,
    }
    Ok(())
}

/// A drive by a built-in name, from a file of ours, or from one of DiskSim's.
pub(super) fn load(name: &Path) -> Result<DriveProfile, Failure> {
    if let Some(p) = name.to_str().and_then(|n| DriveProfile::builtin(n).ok()) {
        return Ok(p);
    }
    if is_disksim(name) {
        return import(name);
    }
    let text = fs2d::text::read(name).map_err(|e| {
        let names: Vec<_> = DriveProfile::names().collect();
        Failure::at(name, format!("{e} (nor is it a built-in drive: {})", names.join(", ")))
    })?;
    DriveProfile::parse(&text, &name.display().to_string()).map_err(|e| Failure(e.to_string()))
}

/// What a reader of the figures has to know of it.
pub(super) fn told(extended: &Extended) -> String {
    let (from, to) = (bytes(extended.from * 512), bytes(extended.to.saturating_mul(512)));
    format!("the drive was extended from {from} to {to}: seeks beyond its full stroke are extrapolated")
}

/// The files that a drive's description names in turn, as far as they can be read.
pub(super) fn beside(file: &Path) -> Vec<PathBuf> {
    let mut named = Vec::new();
    if is_disksim(file) {
        // What is wrong with it is told where it is used.
        let _ = import_noting(file, &mut |path| named.push(path.to_owned()));
    }
    named
}

fn is_disksim(file: &Path) -> bool {
    file.extension().is_some_and(|e| e == "diskspecs" || e == "parv")
}

/// A drive in DiskSim's form; the files it names lie beside it.
fn import(file: &Path) -> Result<DriveProfile, Failure> {
    import_noting(file, &mut |_| {})
}

/// The same; `named` is told each file it names.
fn import_noting(file: &Path, named: &mut dyn FnMut(&Path)) -> Result<DriveProfile, Failure> {
    let read = |path: &Path| {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
        AtMost::new(file, DISKSIM_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        // Comments may be in any encoding.
        Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read(file).map_err(|e| Failure::at(file, e))?;
    let directory = file.parent().unwrap_or(Path::new(""));
    let mut resolve = |name: &str| {
        let path = directory.join(name);
        let text = read(&path)?;
        named(&path);
        Ok(text)
    };
    DriveProfile::import_disksim(&text, &file.display().to_string(), &mut resolve)
        .map_err(|e| Failure(e.to_string()))
}
