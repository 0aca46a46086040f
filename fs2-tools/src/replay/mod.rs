//! `fs2-replay`: disk traces and modelled drives.
//!
//! [`run`] is the whole program but for the process around it. Each subcommand is a module with its
//! arguments (`Args`) and `run(&Args, out, err) -> Result<(), Failure>`; what it computes is done by the
//! pure crates.

mod convert;
mod digest;
mod generate;
pub(crate) mod html;
mod info;
mod input;
mod live;
pub(crate) mod paper;
mod profile;
mod run;
mod sweep;
mod validate;

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::path::Path;

use clap::{Parser, Subcommand};

/// Exit code: done.
const DONE: i32 = 0;
/// Exit code: something was refused or failed.
const FAILED: i32 = 1;
/// Exit code: the command line makes no sense.
const USAGE: i32 = 2;

const EXAMPLES: &str = "\
Examples:
  fs2-replay info web.blkparse.zst              what is in a trace, of any format it reads
  fs2-replay convert web.csv.gz web.fs2trace    a trace in the format that is read fastest
  fs2-replay generate cvs made-up.fs2trace      a trace where none is at hand
  fs2-replay profile list                       the drives that are built in
  fs2-replay profile show nearline-hc310        one of them, with the source of each number
  fs2-replay profile import disk.diskspecs > disk.toml
  fs2-replay validate disk.toml disk.trace.zst  the model against measured times
  fs2-replay run web.spc.gz --policy none,fs2   a trace under two policies, seven times
  fs2-replay sweep plan.toml --out results      traces times drives times policies, on all cores
  fs2-replay paper --workload cvs               the paper's evaluation on a made-up volume
  fs2-replay live web.blkparse.zst /dev/sdb     a trace on a real device, reads only

Exit codes: 0 done, 1 refused or failed, 2 usage.";

/// Disk traces and modelled drives.
#[derive(Parser, Debug)]
#[command(name = "fs2-replay", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// What is in a trace
    Info(info::Args),
    /// A trace in another format
    Convert(convert::Args),
    /// A trace made up by seed
    Generate(generate::Args),
    /// Drive profiles: list, show, import
    Profile(profile::Args),
    /// Compare a modelled drive with times measured on the real one
    Validate(validate::Args),
    Run(Box<run::Args>),
    Sweep(sweep::Args),
    Paper(paper::Args),
    Live(live::Args),
}

/// Why a subcommand did not do what it was asked: one or more sentences for people.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// What failed at a file.
    pub(crate) fn at(path: &Path, what: impl fmt::Display) -> Failure {
        Failure(format!("{}: {what}", path.display()))
    }
}

impl From<std::io::Error> for Failure {
    /// Standard output cannot be written.
    fn from(e: std::io::Error) -> Failure {
        Failure(format!("writing the output: {e}"))
    }
}

/// The definition of its arguments, for man pages and completions.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Runs the program: `args` with its own name first. Returns its exit code.
pub fn run(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write, err: &mut dyn Write) -> i32 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => return crate::mkfs2::usage(&e, out, err, USAGE, FAILED),
    };
    let makes_sense = match &cli.what {
        What::Run(args) => run::check_split(args),
        What::Convert(args) => convert::check_files(args),
        What::Generate(args) => generate::check_kind(args),
        _ => Ok(()),
    };
    if let Err(Failure(what)) = makes_sense {
        let _ = writeln!(err, "fs2-replay: {what}");
        return USAGE;
    }
    let done = match &cli.what {
        What::Info(args) => info::run(args, out, err),
        What::Convert(args) => convert::run(args, out, err),
        What::Generate(args) => generate::run(args, out, err),
        What::Profile(args) => profile::run(args, out),
        What::Validate(args) => validate::run(args, out),
        What::Run(args) => run::run(args, out, err),
        What::Sweep(args) => sweep::run(args, out, err),
        What::Paper(args) => paper::run(args, out, err),
        What::Live(args) => live::run(args, out, err),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => DONE,
        Err(Failure(what)) => {
            let _ = writeln!(err, "fs2-replay: {what}");
            FAILED
        }
    }
}
