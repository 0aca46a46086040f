//! What the daemon is told, checked once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use fs2_block::Permille;
use fs2_engine::{DiscardMode, PolicyKind, Watermarks};

use crate::frontend::fuse::RingKind;
use crate::metrics::Place;
use crate::wakeups::AwakeKind;

/// Which protocol carries the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FrontendKind {
    /// Network block device: a socket that nbd-client, qemu, nbdcopy and fio speak to.
    Nbd,
    /// A file in a FUSE mount, for a loop device on top.
    Fuse,
    /// A block device of its own by the kernel's ublk driver (Linux 6.0 or later).
    Ublk,
}

impl std::fmt::Display for FrontendKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FrontendKind::Nbd => "nbd",
            FrontendKind::Fuse => "fuse",
            FrontendKind::Ublk => "ublk",
        })
    }
}

/// What to believe after a clean detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TrustKind {
    /// What the last clean detach verified.
    Clean,
    /// Nothing: each original is read and hashed before its replica is used.
    Verify,
}

/// What becomes of discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiscardKind {
    /// Answered from memory; replicas in the discarded blocks stay usable.
    Memory,
    /// Passed down, and evicted replicas give their space back.
    Pass,
}

/// Whether the device turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TurnsKind {
    /// As far as the system knows.
    Auto,
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// Whether the page cache is bypassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DirectKind {
    /// For block devices, and where the device turns.
    Auto,
    /// Or the volume is not served.
    On,
    /// Never.
    Off,
}

/// How I/O that waits for a device is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IoKind {
    /// By io_uring, where this system permits it, else by threads.
    Auto,
    /// By io_uring, or the volume is not served; what turns is fed by threads all the same.
    Uring,
    /// By threads in preadv and pwritev.
    Threads,
}

/// Settings of a served volume; `fs2 mount` takes the same.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// What is copied where, and which copy is read: none, static (only copies made by mkfs2
    /// replicate), fs2-2005, fs2, torture (tests only).
    #[arg(long, default_value = "fs2", value_name = "POLICY", value_parser = PolicyKind::from_str)]
    pub policy: PolicyKind,

    /// Model this drive in real time: reads and writes take as long as it would. A name
    /// (wd800-repaired, wd800-literal, cheetah-15k5, ultrastar-15k450, nearline-hc310, exos-x24,
    /// laptop-5400, ssd-sata, ssd-nvme) or a TOML file.
    #[arg(long, value_name = "PROFILE")]
    pub drive: Option<String>,

    /// Believe this of the drive's mechanics, where none is modelled (for a real disk).
    #[arg(long, value_name = "PROFILE", conflicts_with = "drive")]
    pub belief: Option<String>,

    /// Real seconds to one of the modelled drive's: 0.1 is ten times faster.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = parse_time_scale, requires = "drive")]
    pub time_scale: f64,

    /// At most this share of the volume holds replicas.
    #[arg(long, default_value = "5%", value_name = "SHARE", value_parser = parse_share)]
    pub space: Permille,

    /// At most this many replicas of a block; by default 2, with the policy fs2-2005 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=4))]
    pub degree: Option<u8>,

    /// High, low and critical mark of the free share, in percent of the blocks that are not static metadata: copying
    /// resumes at the first and stops below the second; below the third whole regions of replicas go.
    #[arg(long, default_value = "15,10,5", value_name = "H,L,C", value_parser = parse_watermarks)]
    pub watermarks: Watermarks,

    /// Measure what copies gain: of the reads that have a copy, one short run in so many is read from the
    /// originals. off, or 1/N with N from 2 to 65535.
    #[arg(long, default_value = "1/1024", value_name = "SHARE", value_parser = parse_control)]
    pub control_sample: u16,

    /// The replica table lives in this file or device instead of on inode 5 of the volume.
    #[arg(long, value_name = "PATH")]
    pub table: Option<PathBuf>,

    /// What to believe after a clean detach.
    #[arg(long, value_enum, default_value_t = TrustKind::Clean, value_name = "WHAT")]
    pub trust: TrustKind,

    /// What becomes of the file system's discards.
    #[arg(long, value_enum, default_value_t = DiscardKind::Memory, value_name = "HOW")]
    pub discard: DiscardKind,

    /// Stop copying while the host of a sparse image has less of its space free.
    #[arg(long, default_value = "10%", value_name = "SHARE", value_parser = parse_share)]
    pub host_reserve: Permille,

    /// Write a trace of every access to this new file. Started by a service manager or mount(8), where it is there, to FILE.1,
    /// FILE.2 ...
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Record every change of the volume in this new file, as dm-log-writes does: replay-log rebuilds every
    /// state in between (for finding bugs; see docs/testing.md).
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub record: Option<PathBuf>,

    /// Serve metrics for Prometheus here: unix:PATH, or ADDRESS:PORT on loopback, such as 127.0.0.1:9835.
    #[arg(long, value_name = "WHERE", value_parser = Place::from_str)]
    pub metrics: Option<Place>,

    /// Let metrics be served where other machines reach them; there is neither password nor encryption.
    #[arg(long, requires = "metrics")]
    pub metrics_remote: bool,

    /// Refuse to serve a volume whose replicas cannot be trusted, instead of serving it plainly.
    #[arg(long)]
    pub require_active: bool,

    /// Serve the volume as a plain device, whatever it holds. What holds no ext2 file system is served only so.
    #[arg(long, conflicts_with = "require_active")]
    pub passive: bool,

    /// A former daemon served it, and programs wait: it is served again, whatever became of its file system.
    #[arg(long, hide = true)]
    pub again: bool,

    /// The backing that a former daemon served, by its [identity](fs2_store::FileStore::identity): what the path names by now may be another.
    #[arg(long, hide = true, value_name = "IDENTITY")]
    pub instead_of: Option<String>,

    /// I/Os at the device at a time [default: on a drive that turns as many as its own queue takes, at most 16, and 1 where
    /// it is modelled; else 128].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: Option<u16>,

    /// Whether the device turns: then no more requests go to it than its own queue takes, the cheapest next. auto: as the
    /// system says of a block device; an image file does not, since it goes through the page cache.
    #[arg(long, value_enum, default_value_t = TurnsKind::Auto, value_name = "WHETHER")]
    pub rotational: TurnsKind,

    /// Whether the page cache is bypassed. auto: for block devices and where the device turns.
    #[arg(long, value_enum, default_value_t = DirectKind::Auto, value_name = "WHETHER")]
    pub direct: DirectKind,

    /// How I/O that has to wait for a device is done. auto: io_uring where this system permits it.
    #[arg(long, value_enum, default_value_t = IoKind::Auto, value_name = "HOW")]
    pub io: IoKind,

    /// Whether requests of the FUSE frontend come by io_uring. auto: where the kernel offers it (Linux 6.14, after
    /// `echo Y > /sys/module/fuse/parameters/enable_uring`).
    #[arg(long, value_enum, default_value_t = RingKind::Auto, value_name = "WHETHER")]
    pub fuse_ring: RingKind,

    /// Whether idle processors are kept awake while small requests come one after the other and are answered from memory: in a
    /// virtual machine that is up to three times faster, at the price of its idle processors' time. auto: in those of at most
    /// four processors whose kernel gives idle ones back (cpuidle driver haltpoll). Never for a device that turns.
    #[arg(long, value_enum, default_value_t = AwakeKind::Auto, value_name = "WHETHER")]
    pub keep_cpus_awake: AwakeKind,

    /// Wait this many seconds for a former daemon's last I/O to end.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub lock_wait: u64,

    /// Check every invariant after every event (slow; for tests).
    #[arg(long, hide_short_help = true)]
    pub paranoid: bool,
}

impl Settings {
    /// Whether they make sense together; each for itself is looked at where it is read.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), String> {
        // Who takes over goes on as the one before was told to.
        if self.space.get() == 0 && self.policy != PolicyKind::None && !self.again {
            return Err(
                "--space 0%: nothing could be copied; give a share like 5% or 0.5%, or --policy none".into(),
            );
        }
        Ok(())
    }

    /// The arguments that say the same again, for a daemon started by another program.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        let mut put = |name: &str, value: OsString| {
            let mut arg = OsString::from(name);
            arg.push(value);
            args.push(arg);
        };
        put("--policy=", self.policy.to_string().into());
        put("--space=", percent(self.space).into());
        let w = self.watermarks;
        let marks = [w.high(), w.low(), w.critical()].map(percent).join(",");
        put("--watermarks=", marks.into());
        put("--trust=", value_name(&self.trust));
        put("--discard=", value_name(&self.discard));
        put("--host-reserve=", percent(self.host_reserve).into());
        put("--rotational=", value_name(&self.rotational));
        put("--direct=", value_name(&self.direct));
        put("--io=", value_name(&self.io));
        put("--fuse-ring=", value_name(&self.fuse_ring));
        put("--keep-cpus-awake=", value_name(&self.keep_cpus_awake));
        put("--control-sample=", control_text(self.control_sample).into());
        if let Some(degree) = self.degree {
            put("--degree=", degree.to_string().into());
        }
        put("--lock-wait=", self.lock_wait.to_string().into());
        if let Some(drive) = &self.drive {
            put("--drive=", absolute_if_file(drive));
            put("--time-scale=", self.time_scale.to_string().into());
        }
        if let Some(identity) = &self.instead_of {
            put("--instead-of=", identity.into());
        }
        if let Some(belief) = &self.belief {
            put("--belief=", absolute_if_file(belief));
        }
        for (name, path) in
            [("--table=", &self.table), ("--trace=", &self.trace), ("--record=", &self.record)]
        {
            if let Some(path) = path {
                put(name, std::path::absolute(path).unwrap_or_else(|_| path.clone()).into());
            }
        }
        match &self.metrics {
            Some(Place::Unix(path)) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                let mut place = OsString::from("unix:");
                place.push(path);
                put("--metrics=", place);
            }
            Some(Place::Tcp(address)) => put("--metrics=", address.to_string().into()),
            None => {}
        }
        if let Some(depth) = self.depth {
            put("--depth=", depth.to_string().into());
        }
        for (name, on) in [
            ("--metrics-remote", self.metrics_remote),
            ("--require-active", self.require_active),
            ("--passive", self.passive),
            ("--again", self.again),
            ("--paranoid", self.paranoid),
        ] {
            if on {
                args.push(name.into());
            }
        }
        args
    }
}

/// A control sample as one is asked for.
fn control_text(every: u16) -> String {
    if every == 0 { "off".into() } else { format!("1/{every}") }
}

/// 0 for `off`, N for `1/N`.
fn parse_control(s: &str) -> Result<u16, String> {
    let every = if s == "off" {
        Some(0)
    } else {
        s.strip_prefix("1/").and_then(|n| n.parse().ok()).filter(|n| *n > 1)
    };
    every.ok_or_else(|| format!("'{s}' is neither off nor a share such as 1/256"))
}

fn percent(share: Permille) -> String {
    format!("{}.{}%", share.get() / 10, share.get() % 10)
}

/// A profile's name stays; a file's path must mean the same to a program started elsewhere.
fn absolute_if_file(profile: &str) -> OsString {
    match std::path::absolute(profile) {
        Ok(path) if path.is_file() => path.into(),
        _ => profile.into(),
    }
}

fn value_name(v: &impl ValueEnum) -> OsString {
    v.to_possible_value().map_or_else(OsString::new, |p| p.get_name().into())
}

impl DiscardKind {
    /// As the engine names it.
    pub fn mode(self) -> DiscardMode {
        match self {
            DiscardKind::Memory => DiscardMode::Memory,
            DiscardKind::Pass => DiscardMode::Pass,
        }
    }
}

/// A share below 1 without a sign, which may be meant in percent or not: both as they are to be written.
pub fn either(number: &str) -> Option<String> {
    let n: f64 = number.parse().ok().filter(|n| (f64::MIN_POSITIVE..1.0).contains(n))?;
    let whole = (n * 1e8).round() / 1e6;
    Some(format!("{number} may be {number}% or {whole}%: write which"))
}

/// A share: "5%", "0.5%" or "5", in percent, to a tenth; below 1 with the sign.
///
/// # Errors
/// What was wrong with it.
pub fn parse_share(s: &str) -> Result<Permille, String> {
    match either(s.trim()) {
        Some(both) => Err(both),
        None => parse_percent(s),
    }
}

fn parse_percent(s: &str) -> Result<Permille, String> {
    let plain = s.trim();
    let number = plain.strip_suffix('%').unwrap_or(plain).trim();
    let n: f64 = number.parse().map_err(|_| format!("'{s}' is not a share such as 5%"))?;
    if !(0.0..=100.0).contains(&n) {
        return Err(format!("{s} is not between 0% and 100%"));
    }
    let permille = (n * 10.0).round();
    if (n * 10.0 - permille).abs() > 1e-9 {
        return Err(format!("{s} is finer than 0.1%"));
    }
    Permille::new(permille as u16).ok_or_else(|| format!("{s} is not between 0% and 100%"))
}

fn parse_watermarks(s: &str) -> Result<Watermarks, String> {
    // Three side by side are in percent: marks as shares of one would all be below it.
    let parse =
        if s.split(',').all(|mark| either(mark.trim()).is_some()) { parse_share } else { parse_percent };
    let marks: Result<Vec<Permille>, String> = s.split(',').map(parse).collect();
    match marks?[..] {
        [high, low, critical] => Watermarks::new(high, low, critical).ok_or_else(|| {
            format!("{s}: the high mark must be above the low one, and that above the critical one")
        }),
        _ => Err(format!("'{s}' is not three shares such as 15,10,5")),
    }
}

/// Seconds to a modelled one.
///
/// # Errors
/// Which there are.
pub fn parse_time_scale(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(f) if f.is_finite() && (0.001..=100.0).contains(&f) => Ok(f),
        _ => Err(format!("'{s}' is not a factor between 0.001 and 100")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser, Debug)]
    struct Only {
        #[command(flatten)]
        settings: Settings,
    }

    #[test]
    fn arguments_say_the_same_again() {
        use clap::Parser;
        let args = "x --policy torture --drive wd800-repaired --time-scale 0.25 --space 2.5% --watermarks 20,12,3.5 \
                    --table /a/t --trust verify --discard pass --host-reserve 0 --trace /b/c --record /d --require-active \
                    --depth 3 --rotational yes --direct on --io threads --degree 2 --lock-wait 0 --paranoid --again --instead-of file-1-2-3 \
                    --metrics unix:/e/f --metrics-remote --control-sample 1/2 --keep-cpus-awake off";
        let one = Only::try_parse_from(args.split_whitespace()).unwrap();
        let again = std::iter::once(OsString::from("x")).chain(one.settings.to_args());
        let two = Only::try_parse_from(again).unwrap();
        assert_eq!(format!("{one:?}"), format!("{two:?}"));
        let plain = Only::try_parse_from(["x"]).unwrap();
        let again = std::iter::once(OsString::from("x")).chain(plain.settings.to_args());
        assert_eq!(format!("{plain:?}"), format!("{:?}", Only::try_parse_from(again).unwrap()));
    }

    /// It was taken without a word, and the status said that copies are made.
    #[test]
    fn no_share_at_all_is_for_a_policy_without_copies() {
        use clap::Parser;
        let check = |args: &str| {
            let args = std::iter::once("x").chain(args.split_whitespace());
            Only::try_parse_from(args).unwrap().settings.check()
        };
        for nothing in ["--space 0", "--space 0.0%", "--space 0% --policy static"] {
            assert!(check(nothing).unwrap_err().contains("or --policy none"), "{nothing}");
        }
        for good in ["", "--space 0.1%", "--space 0 --policy none", "--space 0 --again"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_control_sample_is_off_or_one_in_so_many() {
        for (text, every) in [("off", 0), ("1/2", 2), ("1/256", 256), ("1/65535", 65535)] {
            assert_eq!(parse_control(text), Ok(every));
            assert_eq!(control_text(every), text);
        }
        for bad in ["", "on", "0", "1/0", "1/1", "1/65536", "2/3", "1/-2", "1/2.5", "1/"] {
            assert!(parse_control(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_and_marks() {
        assert_eq!(parse_share("5%").map(|p| p.get()), Ok(50));
        assert_eq!(parse_share("0.5%").map(|p| p.get()), Ok(5));
        // They were rounded, the first to nothing.
        for fine in ["0.04%", "0.05%", "2.55%"] {
            assert!(parse_share(fine).unwrap_err().contains("finer than 0.1%"), "{fine}");
        }
        assert_eq!(parse_share("33.3 %").map(|p| p.get()), Ok(333));
        assert!(parse_share("5%%").is_err());
        assert!(parse_share("0.5").unwrap_err().contains("0.5% or 50%"));
        for bad in ["", "x", "-1", "101%", "NaN", "inf"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
        assert!(parse_watermarks("15,10,5").is_ok() && parse_watermarks("2,1,0.5").is_ok());
        assert!(parse_watermarks("0.15,0.1,0.05").unwrap_err().contains("0.15% or 15%"));
        for bad in ["15,10", "10,15,5", "1,1,1", "a,b,c"] {
            assert!(parse_watermarks(bad).is_err(), "{bad}");
        }
    }
}
