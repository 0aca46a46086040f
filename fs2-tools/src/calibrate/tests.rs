use std::fs::File;
use std::path::Path;

use clap::Parser;
use fs2_disk::DriveProfile;
use fs2_disk::calibrate::Oracle;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// Exit code (or failure), standard output, standard error.
fn calibrate(args: &[&str]) -> (Result<u8, String>, String, String) {
    let cli = Cli::parse_from(["calibrate"].iter().chain(args));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(&cli.args, &mut out, &mut err).map_err(|Failure(what)| what);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

fn sparse(dir: &Path, name: &str, bytes: u64) -> String {
    let path = dir.join(name);
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path.display().to_string()
}

/// Found: a read a little longer than the longest before it ended the command, as on a drive that keeps whole tracks, whose long reads
/// are as long as half of what was measured last.
#[test]
fn a_read_may_be_a_little_longer_than_all_before() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse(dir.path(), "disk.img", 4 << 20);
    let mut device = Device::open(Path::new(&image), false, Some(DriveProfile::default()), false).unwrap();
    for sectors in [8, 9, 1043, 1044, 1047, 1, 1048] {
        assert!(device.read(16, sectors).is_ok(), "{sectors}");
    }
}

#[test]
fn an_image_with_a_drives_times_is_that_drive() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse(dir.path(), "disk.img", 64 << 30);
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (profile, page) = (at("found.toml"), at("found.html"));
    // Few places: how well it can be found, also by a clock that is late, is asked in fs2-disk.
    let drive = ["--drive", "cheetah-15k5", "--seconds", "20"];
    let made: Vec<&str> =
        [image.as_str(), "-o", &profile, "--html", &page, "--json"].into_iter().chain(drive).collect();
    let (code, out, err) = calibrate(&made);
    assert_eq!(code, Ok(0), "{out}{err}");
    assert!(!err.contains("extended"), "{err}");
    let said: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["has_arm"], true);
    let rpm = said["rpm"].as_f64().unwrap();
    assert!((rpm / 15020.0 - 1.0).abs() < 0.001, "{rpm}");
    let text = std::fs::read_to_string(&profile).unwrap();
    assert!(text.starts_with("# Measured by fs2 calibrate: "), "{text}");
    let found = DriveProfile::parse(&text, "found").unwrap();
    assert_eq!((found.name(), found.capacity_sectors()), ("found", 64 << 21));
    let truth = DriveProfile::builtin("cheetah-15k5").unwrap();
    let far = |p: &DriveProfile| p.seek_time(100_000_000, fs2_block::Op::Read).as_millis_f64();
    assert!((far(&found) / far(&truth) - 1.0).abs() < 0.1, "{} {}", far(&found), far(&truth));
    assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
    // What was found fits, another drive's profile does not.
    let checked: Vec<&str> = [image.as_str(), "--check", &profile].into_iter().chain(drive).collect();
    let (code, out, _) = calibrate(&checked);
    assert_eq!(code, Ok(0), "{out}");
    let checked: Vec<&str> = [image.as_str(), "--check", "wd800-repaired"].into_iter().chain(drive).collect();
    let (code, out, _) = calibrate(&checked);
    assert_eq!(code, Ok(1), "{out}");
    assert!(out.contains("does not fit: ") && out.contains("fs2 calibrate"), "{out}");
    // It was read, and nothing else.
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&image).unwrap()), 0);
}

/// As `fs2-replay run` and the daemon say of it: who tried another drive than meant, or another image, was not told.
#[test]
fn a_drive_that_is_smaller_than_the_image_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse(dir.path(), "disk.img", 100 << 30);
    let (_, _, err) = calibrate(&[&image, "--drive", "wd800-repaired", "--seconds", "5"]);
    let sectors = DriveProfile::builtin("wd800-repaired").unwrap().capacity_sectors();
    let to = 100u64 << 21;
    let told = format!("wd800-repaired describes {sectors} sectors; its last zone was extended to {to}\n");
    assert!(err.starts_with("fs2: drive profile ") && err.contains(&told), "{err}");
}

/// Without a drive to be modelled it is the machine's clock that is looked at, before a read and after it.
#[test]
fn a_device_takes_its_own_time() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse(dir.path(), "disk.img", 1 << 20);
    let mut device = match Device::open(Path::new(&image), false, None, false) {
        Ok(device) => device,
        // Temporary files in memory, on an older kernel.
        Err(Failure(why)) => return assert!(why.contains("where direct I/O works"), "{why}"),
    };
    let first = device.read(0, 8).unwrap();
    device.pause(Nanos(2_000_000));
    let second = device.read(2040, 8).unwrap();
    assert!(first.begin < first.end && first.end + Nanos(2_000_000) <= second.begin, "{first:?} {second:?}");
    assert!(second.begin < second.end, "{second:?}");
    assert!(device.read(2048, 8).is_err());
    let (_, why) = device.close();
    assert!(why.unwrap().starts_with("reading 8 sectors at 2048: "));
}

#[test]
fn without_an_arm_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse(dir.path(), "flash.img", 1 << 30);
    let (code, out, err) = calibrate(&[&image, "--drive", "ssd-sata", "--seconds", "5"]);
    assert_eq!(code, Ok(0), "{err}");
    assert!(err.contains("it has no arm"), "{err}");
    assert!(!DriveProfile::parse(&out, "out").unwrap().rotational(), "{out}");
}

/// One bad place ends it: without a word on what to do, who tried again came to the same place.
#[test]
fn a_place_that_cannot_be_read_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse(dir.path(), "disk.img", 1 << 30);
    let drive = DriveProfile::builtin("ssd-sata").unwrap();
    let mut device = Device::open(Path::new(&image), false, Some(drive), false).unwrap();
    File::options().write(true).open(&image).unwrap().set_len(1 << 20).unwrap();
    let options =
        Options { capacity_sectors: device.sectors(), grain: 8, seed: 1, budget: Nanos(5_000_000_000) };
    let Failure(why) = finished(calibrate::calibrate(&mut device, options), device).unwrap_err();
    assert!(why.starts_with(&format!("{image}: reading 8 sectors at ")), "{why}");
    assert!(why.ends_with("; where only that place cannot be read, another --seed reads others"), "{why}");
}

/// It was "0.0 to 0.0 MB/s".
#[test]
fn a_rate_that_was_not_seen_is_none() {
    let found = calibrate::Calibration {
        profile: DriveProfile::builtin("exos-x24").unwrap(),
        seeks: vec![],
        rates: vec![],
        seek_residual_us: 0.0,
        rate_residual_percent: 0.0,
        reads: 1,
        elapsed: Nanos(1),
        notes: vec![],
    };
    let said = words::told(Path::new("/dev/sdb"), &found);
    assert!(said.contains("rate        not seen") && !said.contains(" MB/s"), "{said}");
}

#[test]
fn what_it_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let small = sparse(dir.path(), "small.img", 1 << 20);
    for (args, said) in [
        (vec![small.as_str(), "--drive", "ssd-sata"], "has 2048 sectors"),
        (vec![small.as_str(), "--drive", "no-such-drive"], "no drive profile 'no-such-drive'"),
        (vec![small.as_str(), "--check", "no-such-drive"], "no drive profile"),
        (vec!["/nowhere/disk.img"], "does not exist"),
        (vec!["/dev/null"], "not a regular file or block device"),
        (vec![small.as_str(), "-o", "/nowhere/profile.toml"], "/nowhere/profile.toml"),
    ] {
        let (code, out, _) = calibrate(&args);
        let error = code.unwrap_err();
        assert!(error.contains(said), "{args:?}: {error}");
        assert_eq!(out, "");
    }
    // Found: the image was replaced by its profile of 4 KB.
    let other = |name: &str| dir.path().join(name).display().to_string();
    std::os::unix::fs::symlink("small.img", other("link")).unwrap();
    std::fs::hard_link(&small, other("hard")).unwrap();
    for name in [small.clone(), other("link"), other("hard")] {
        for option in ["-o", "--html"] {
            let error = calibrate(&[&small, option, &name, "--drive", "ssd-sata"]).0.unwrap_err();
            assert!(error.starts_with(&name) && error.contains("give the output another name"), "{error}");
        }
    }
    let page = other("page");
    let error = calibrate(&[&small, "-o", &page, "--html", &page]).0.unwrap_err();
    assert!(error.contains("two outputs are the same file") && !Path::new(&page).exists(), "{error}");
    assert_eq!(std::fs::metadata(&small).unwrap().len(), 1 << 20);
    // Somebody else holds it for writing.
    let options = fs2_store::OpenOptions { write: true, ..fs2_store::OpenOptions::default() };
    let held = fs2_store::FileStore::open(&small, options).unwrap();
    let error = calibrate(&[&small, "--drive", "ssd-sata"]).0.unwrap_err();
    assert!(error.contains("in use by") && error.contains("--busy"), "{error}");
    let error = calibrate(&[&small, "--drive", "ssd-sata", "--busy"]).0.unwrap_err();
    assert!(error.contains("has 2048 sectors"), "{error}");
    drop(held);
}
