//! `fs2 calibrate`: a drive's profile from reads of it.
//!
//! What is measured and how is [`fs2_disk::calibrate`]; here are the device, the clock, the files and the words.

mod device;
mod words;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fs2_block::Nanos;
use fs2_disk::calibrate::{self, Options, Refused, Verdict};

use crate::new_file::NewFile;
use crate::output::quoted;
use crate::outputs;
use crate::replay::Failure;
use crate::report::render_calibration;
use device::Device;

/// Exit code: measured, or the profile fits.
const DONE: u8 = 0;
/// Exit code: the profile is not this drive's.
const MISFIT: u8 = 1;
/// Exit code: it could not be measured.
const FAILED: u8 = 2;

/// `fs2 calibrate`'s arguments.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Nothing is ever written to the device. While it is measured nobody else should use it: their reads move its arm.

EXAMPLES:
  fs2 calibrate /dev/sdb -o sdb.toml --html sdb.html    measure it, write the profile and a page with the curves
  fs2 mount --drive sdb.toml disk.img /mnt              an image that feels like that drive
  fs2-replay run web.fs2trace --drive sdb.toml          a trace on a model of it
  fs2 calibrate --check sdb.toml /dev/sdb               whether the profile is still this drive's

EXIT CODES: 0 measured (also: a drive without an arm), or the profile fits; 1 the profile does not fit, or wrong usage; \
2 it could not be measured"
)]
pub struct Args {
    /// The block device, or an image file.
    device: PathBuf,
    /// Where to write the profile [default: standard output].
    #[arg(short, long, value_name = "PROFILE.toml", conflicts_with = "check")]
    output: Option<PathBuf>,
    /// Write a page with access time over distance and rate over address.
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    html: Option<PathBuf>,
    /// Print one JSON object instead.
    #[arg(long)]
    json: bool,
    /// Say whether this profile (a file, or a built-in drive's name) is the device's.
    #[arg(long, value_name = "PROFILE")]
    check: Option<String>,
    /// About how long it may take: a disk takes 10 to 20 at the least, and more than 60 only where the machine is busy.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(5..=3600))]
    seconds: u16,
    /// Measure it though it is mounted or otherwise in use: times are those of a busy drive.
    #[arg(long)]
    busy: bool,
    /// Chooses the places that are read.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// To try the command: take the times of this drive's model, in its own time, which nobody waits for.
    #[arg(long, value_name = "PROFILE")]
    drive: Option<String>,
}

/// Runs the command.
pub fn main(args: &Args) -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let code = run(args, &mut out, &mut err).unwrap_or_else(|Failure(what)| {
        eprintln!("fs2: {what}");
        FAILED
    });
    ExitCode::from(code)
}

fn profile_named(name: &str) -> Result<fs2_disk::DriveProfile, Failure> {
    fs2d::daemon::profile(name).map_err(|e| Failure(e.to_string()))
}

/// The command; its exit code. Results go to `out`, what a person wants to know beside them to `err`.
///
/// # Errors
/// Why it could not be measured or written.
pub(crate) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, Failure> {
    // What cannot be written, or is read, is told before a minute was spent.
    let written: Vec<&Path> =
        [&args.output, &args.html].into_iter().flatten().map(PathBuf::as_path).collect();
    let named = [&args.drive, &args.check].into_iter().flatten().map(Path::new);
    outputs::refuse_same(&written, named.chain([args.device.as_path()]))?;
    let create = |path: &Option<PathBuf>| path.as_deref().map(NewFile::create).transpose();
    let (profile_file, page_file) = (create(&args.output)?, create(&args.html)?);
    let drive = args.drive.as_deref().map(profile_named).transpose()?;
    let known = args.check.as_deref().map(profile_named).transpose()?;
    let mut device = Device::open(&args.device, args.busy, drive, std::io::stderr().is_terminal())?;
    if let Some(extended) = &device.extended {
        writeln!(err, "fs2: {extended}")?;
    }
    let options = Options {
        capacity_sectors: device.sectors(),
        grain: device.grain(),
        seed: args.seed,
        budget: Nanos(u64::from(args.seconds) * 1_000_000_000),
    };
    if let Some(profile) = known {
        let verdict = calibrate::check(&mut device, options, &profile);
        let verdict = finished(verdict, device)?;
        say_verdict(args, &verdict, out)?;
        return Ok(if verdict.fits() { DONE } else { MISFIT });
    }
    let found = calibrate::calibrate(&mut device, options);
    let mut found = finished(found, device)?;
    let stem = |path: &PathBuf| path.file_stem().map(|s| s.to_string_lossy().into_owned());
    let name = args.output.as_ref().and_then(stem).or_else(|| stem(&args.device));
    if let Some(name) = name.filter(|n| !n.is_empty()) {
        found.profile = found.profile.with_name(&name);
    }
    let text = words::profile(&args.device, &found);
    if let Some(file) = page_file {
        file.write(&render_calibration(&args.device.display().to_string(), &found))?;
    }
    match profile_file {
        Some(file) => file.write(&text)?,
        None if args.json => {}
        None => out.write_all(text.as_bytes())?,
    }
    if args.json {
        writeln!(out, "{}", words::json(&args.device, &found))?;
    } else {
        // Where the profile goes to standard output, what is told of it must not.
        let to: &mut dyn Write = if args.output.is_some() { out } else { err };
        to.write_all(words::told(&args.device, &found).as_bytes())?;
    }
    out.flush()?;
    Ok(DONE)
}

/// What came of it, with the device's own reason where it failed.
fn finished<T>(result: Result<T, Refused>, device: Device) -> Result<T, Failure> {
    let (path, failure) = device.close();
    result.map_err(|refused| match (refused, failure) {
        (Refused::Stopped, Some(why)) => Failure::at(
            &path,
            format!("{why}; where only that place cannot be read, another --seed reads others"),
        ),
        (refused, _) => Failure::at(&path, refused),
    })
}

fn say_verdict(args: &Args, v: &Verdict, out: &mut dyn Write) -> Result<(), Failure> {
    let device = args.device.display();
    if args.json {
        let said = serde_json::json!({
            "device": device.to_string(),
            "fits": v.fits(),
            "faults": v.faults,
            "demerit_ms": v.demerit_ms,
            "mean_access_ms": v.mean_ms,
            "rpm": v.rpm,
            "reads": v.reads,
        });
        writeln!(out, "{said}")?;
    } else {
        let rpm = v.rpm.map_or(String::new(), |rpm| format!(", {rpm:.0} rpm"));
        let (off, mean) = (v.demerit_ms, v.mean_ms);
        writeln!(
            out,
            "{device}: access times are {off:.2} ms off the profile's, of {mean:.2} ms in the mean{rpm}"
        )?;
        for fault in &v.faults {
            writeln!(out, "does not fit: {fault}")?;
        }
        match v.fits() {
            true => writeln!(out, "the profile is this drive's")?,
            false => {
                writeln!(out, "measure it anew: fs2 calibrate {} -o PROFILE.toml", quoted(&args.device))?
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
