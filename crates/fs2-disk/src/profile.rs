//! What is known of a drive.

use std::fmt;

use fs2_block::{Nanos, Op};

use crate::controller::{ControllerSpec, ReadAhead, RemapSpec, WriteCacheSpec};
use crate::parse;
use crate::platter::PlatterSpec;
use crate::seek::SeekCurve;

/// A drive's characteristics: all that [`crate::Disk`] needs to be that drive.
///
/// Made from TOML ([`DriveProfile::parse`]) or by name ([`DriveProfile::builtin`]); either way
/// its relations hold (zones ascend, times are finite and not negative, powers are not negative).
#[derive(Clone, Debug, PartialEq)]
pub struct DriveProfile {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) capacity: u64,
    pub(crate) mechanism: Mechanism,
    pub(crate) power: Power,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mechanism {
    Disk(Box<DiskSpec>),
    Flash(FlashSpec),
}

/// A drive with platters and an arm.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DiskSpec {
    /// Turns a minute.
    pub(crate) rpm: f64,
    /// Angle between a track's last sector and the next track's first, as time.
    pub(crate) track_skew_ms: f64,
    /// The same where the cylinder ends too.
    pub(crate) cylinder_skew_ms: f64,
    pub(crate) tracks_per_cylinder: u32,
    pub(crate) zones: Vec<Zone>,
    pub(crate) seek: SeekCurve,
    /// Time of a move that stays on its track; the curve's where absent.
    pub(crate) same_track_ms: Option<f64>,
    /// What a write's seek takes longer.
    pub(crate) write_settle_ms: f64,
    /// Command overhead of an access to the platters.
    pub(crate) overhead_us: f64,
    /// Command overhead of a read from the drive's cache.
    pub(crate) hit_overhead_us: f64,
    /// Bus rate in 10⁶ bytes a second.
    pub(crate) bus_mb_s: f64,
    /// The same of writes where it differs.
    pub(crate) bus_write_mb_s: Option<f64>,
    /// Read-ahead cache.
    pub(crate) segments: u32,
    pub(crate) segment_sectors: u32,
    pub(crate) read_ahead: ReadAhead,
    /// The drive's own mapping. Then seek distances are in cylinders, [`DiskSpec::zones`] follow from
    /// it, and the skews above do not apply.
    pub(crate) platter: Option<PlatterSpec>,
    /// Overheads in detail, in place of the two above.
    pub(crate) controller: Option<ControllerSpec>,
    pub(crate) write_cache: Option<WriteCacheSpec>,
    pub(crate) remapped: Option<RemapSpec>,
}

/// A bit-recording zone of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// First sector; the zone ends where the next begins.
    pub first_sector: u64,
    /// Sectors on each of its tracks.
    pub sectors_per_track: u32,
}

/// A drive without moving parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FlashSpec {
    pub(crate) read_latency_us: f64,
    pub(crate) write_latency_us: f64,
    pub(crate) read_mb_s: f64,
    pub(crate) write_mb_s: f64,
}

/// Electrical power in watts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// While the arm moves.
    pub seek_w: f64,
    /// While a read's data passes.
    pub read_w: f64,
    /// While a write's data passes.
    pub write_w: f64,
    /// While spinning with nothing to do, and while waiting for the platter to turn.
    pub idle_w: f64,
    /// Spun down, where known.
    pub standby_w: Option<f64>,
    /// While spinning up, where known.
    pub spin_up_w: Option<f64>,
    /// How long spinning up takes, seconds, where known.
    pub spin_up_s: Option<f64>,
    /// The drive spins down when it was not used for so many seconds; never where absent.
    pub standby_after_s: Option<f64>,
}

/// Why a profile was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No built-in profile has this name.
    #[error("no built-in drive profile is called `{name}`; there are {}", names_in_prose())]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The text is not a profile.
    #[error("drive profile {name}, line {line}, column {column}: {what}")]
    Malformed {
        /// The file's name, or what the caller calls the text.
        name: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong there and what was expected.
        what: String,
    },
}

/// Said by [`DriveProfile::fit`] where a volume is larger than the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    /// The profile's name.
    pub profile: String,
    /// Sectors the profile describes.
    pub from: u64,
    /// Sectors it now has.
    pub to: u64,
}

impl fmt::Display for Extended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "drive profile {} describes {} sectors; its last zone was extended to {}",
            self.profile, self.from, self.to
        )
    }
}

const BUILTIN: [(&str, &str); 9] = [
    ("wd800-repaired", include_str!("../profiles/wd800-repaired.toml")),
    ("wd800-literal", include_str!("../profiles/wd800-literal.toml")),
    ("cheetah-15k5", include_str!("../profiles/cheetah-15k5.toml")),
    ("ultrastar-15k450", include_str!("../profiles/ultrastar-15k450.toml")),
    ("nearline-hc310", include_str!("../profiles/nearline-hc310.toml")),
    ("exos-x24", include_str!("../profiles/exos-x24.toml")),
    ("laptop-5400", include_str!("../profiles/laptop-5400.toml")),
    ("ssd-sata", include_str!("../profiles/ssd-sata.toml")),
    ("ssd-nvme", include_str!("../profiles/ssd-nvme.toml")),
];

fn names_in_prose() -> String {
    BUILTIN.map(|(name, _)| name).join(", ")
}

impl Default for DriveProfile {
    /// `wd800-repaired`: the paper's drive, its seek curve mended within the printed digits.
    fn default() -> DriveProfile {
        let (name, text) = BUILTIN[0];
        parse::profile(text, name).expect("a built-in profile is well formed")
    }
}

impl DriveProfile {
    /// The profiles that come with the crate; the first is the default.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// A profile that comes with the crate.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`], listing what there is.
    pub fn builtin(name: &str) -> Result<DriveProfile, ProfileError> {
        match BUILTIN.iter().find(|(known, _)| *known == name) {
            Some((known, text)) => parse::profile(text, known),
            None => Err(ProfileError::Unknown { name: name.to_owned() }),
        }
    }

    /// The source text of a built-in profile, with its comments on where each number comes from.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`], listing what there is.
    pub fn builtin_source(name: &str) -> Result<&'static str, ProfileError> {
        let found = BUILTIN.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| *text).ok_or_else(|| ProfileError::Unknown { name: name.to_owned() })
    }

    /// Reads a profile from TOML. `name` stands for the text in errors (a file's path).
    ///
    /// # Errors
    /// [`ProfileError::Malformed`] with the line.
    pub fn parse(toml: &str, name: &str) -> Result<DriveProfile, ProfileError> {
        parse::profile(toml, name)
    }

    /// Reads a drive described in the form of DiskSim's parameters (`.diskspecs`, or a whole `.parv`
    /// whose buses then count too). `text` is what the file `name` holds; `resolve` gives the text of
    /// a file that it names, or says why it cannot.
    ///
    /// DiskSim knows nothing of power: those of the profile are 0.
    ///
    /// # Errors
    /// [`ProfileError::Malformed`] with file and line; also where the drive needs what is not
    /// supported (layout models other than g1).
    pub fn import_disksim(
        text: &str,
        name: &str,
        resolve: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<DriveProfile, ProfileError> {
        crate::disksim::import(text, name, resolve)
    }

    /// The profile as TOML that [`DriveProfile::parse`] reads back to an equal profile.
    pub fn to_toml(&self) -> String {
        parse::to_toml(self)
    }

    /// The profile's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One line on which drive this is.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Whether the drive has an arm and platters.
    pub fn rotational(&self) -> bool {
        matches!(self.mechanism, Mechanism::Disk(_))
    }

    /// Sectors of 512 bytes.
    pub fn capacity_sectors(&self) -> u64 {
        self.capacity
    }

    /// Turns a minute; `None` for a drive without platters.
    pub fn rpm(&self) -> Option<f64> {
        self.disk().map(|d| d.rpm)
    }

    /// Time of one turn, 0 for a drive without platters.
    pub fn turn(&self) -> Nanos {
        self.disk().map_or(Nanos(0), |d| Nanos((60e9 / d.rpm) as u64))
    }

    /// The zones, ascending; none for a drive without platters.
    pub fn zones(&self) -> &[Zone] {
        self.disk().map_or(&[], |d| &d.zones)
    }

    /// The seek curve; `None` for a drive without an arm.
    pub fn seek_curve(&self) -> Option<&SeekCurve> {
        self.disk().map(|d| &d.seek)
    }

    /// Read-ahead cache: number of segments and bytes of each; (0, 0) for a drive without platters.
    pub fn read_ahead(&self) -> (u32, u64) {
        self.disk().map_or((0, 0), |d| (d.segments, u64::from(d.segment_sectors) * 512))
    }

    /// Electrical power.
    pub fn power(&self) -> Power {
        self.power
    }

    /// Time the arm takes over a distance, settling for a write included; 0 for distance 0. Where the
    /// drive's own mapping is known, so many sectors are reckoned as cylinders of mean size.
    pub fn seek_time(&self, distance_sectors: u64, op: Op) -> Nanos {
        let Some(d) = self.disk() else { return Nanos(0) };
        match &d.platter {
            Some(p) => {
                let mean = (self.capacity / u64::from(p.cylinders())).max(1);
                d.seek_time(distance_sectors.div_ceil(mean), op)
            }
            None => d.seek_time(distance_sectors, op),
        }
    }

    /// Mean seek time of reads between random places: what data sheets call the average seek.
    /// Distances between two uniform random places have density 2·(1 − x) over the capacity.
    pub fn mean_seek(&self) -> Nanos {
        const STEPS: u32 = 512; // midpoint rule; error far below 1 %
        let Some(disk) = self.disk() else { return Nanos(0) };
        let full = disk.platter.as_ref().map_or(self.capacity, |p| u64::from(p.cylinders()));
        let sum: f64 = (0..STEPS)
            .map(|i| {
                let x = (f64::from(i) + 0.5) / f64::from(STEPS);
                disk.seek.millis((x * full as f64) as u64) * 2.0 * (1.0 - x)
            })
            .sum();
        Nanos::from_millis_f64(sum / f64::from(STEPS))
    }

    /// The same drive under another name.
    pub fn with_name(self, name: &str) -> DriveProfile {
        DriveProfile { name: name.to_owned(), ..self }
    }

    /// Makes room for a volume of `sectors`: the last zone is extended where the drive is smaller,
    /// which the answer says. A smaller volume changes nothing: distances stay what they are.
    pub fn fit(&mut self, sectors: u64) -> Option<Extended> {
        (sectors > self.capacity).then(|| {
            let from = std::mem::replace(&mut self.capacity, sectors);
            Extended { profile: self.name.clone(), from, to: sectors }
        })
    }

    /// The same drive at a speed multiplied by `factor`: a belief that is a little wrong. What is
    /// written on the platters stays: skews keep their angle, so their time changes.
    ///
    /// # Panics
    /// Unless `factor` is within 0.5..=2.
    pub fn with_rpm_scaled(mut self, factor: f64) -> DriveProfile {
        assert!((0.5..=2.0).contains(&factor), "speed factor {factor} outside 0.5..=2");
        if let Mechanism::Disk(d) = &mut self.mechanism {
            d.rpm *= factor;
            d.track_skew_ms /= factor;
            d.cylinder_skew_ms /= factor;
        }
        self
    }

    /// The same drive with every seek time multiplied by `factor`.
    ///
    /// # Panics
    /// Unless `factor` is within 0..=10.
    pub fn with_seek_scaled(mut self, factor: f64) -> DriveProfile {
        assert!((0.0..=10.0).contains(&factor), "seek factor {factor} outside 0..=10");
        if let Mechanism::Disk(d) = &mut self.mechanism {
            d.seek = d.seek.scaled(factor);
        }
        self
    }

    /// The same drive with another cache: `segments` of `segment_kib` KiB. 0 segments: none.
    ///
    /// # Panics
    /// Beyond 1024 segments or 1 GiB a segment.
    pub fn with_read_ahead(mut self, segments: u32, segment_kib: u32) -> DriveProfile {
        assert!(segments <= 1024 && segment_kib <= 1 << 20, "{segments} segments of {segment_kib} KiB");
        if let Mechanism::Disk(d) = &mut self.mechanism {
            (d.segments, d.segment_sectors) = (segments, segment_kib * 2);
        }
        self
    }

    /// The same drive with a write-back cache of `kib` KiB, or without one for 0. It is written to the
    /// platters when the drive had nothing to do for `idle_ms` milliseconds, when it is full, and at a
    /// flush. Without effect where the drive has no platters.
    ///
    /// # Panics
    /// Beyond 8 GiB, or unless `idle_ms` is within 0..=1e6.
    pub fn with_write_cache(mut self, kib: u32, idle_ms: f64) -> DriveProfile {
        assert!(kib <= 1 << 23 && (0.0..=1e6).contains(&idle_ms), "{kib} KiB, {idle_ms} ms");
        if let Mechanism::Disk(d) = &mut self.mechanism {
            let sectors = kib * 2;
            d.write_cache = (sectors > 0).then_some(WriteCacheSpec { extents: 1 << 12, sectors, idle_ms });
        }
        self
    }

    /// Whether it has a write-back cache, by what is known of it.
    pub fn caches_writes(&self) -> bool {
        self.disk().is_some_and(|d| d.write_cache.is_some())
    }

    /// The same drive spinning down after so many idle seconds, or never.
    ///
    /// # Panics
    /// Unless they are within 0.1..=1e6.
    pub fn with_standby_after(mut self, seconds: Option<f64>) -> DriveProfile {
        assert!(seconds.is_none_or(|s| (0.1..=1e6).contains(&s)), "standby after {seconds:?} s");
        self.power.standby_after_s = seconds;
        self
    }

    /// The same drive with so many thousandths of its sectors lying elsewhere, in stretches of 256 KiB
    /// drawn by `seed`; none for 0. Without effect where the drive has no platters, or is known by its
    /// own mapping.
    ///
    /// # Panics
    /// Above 1000.
    pub fn with_remapped(mut self, permille: u16, seed: u64) -> DriveProfile {
        assert!(permille <= 1000, "{permille} thousandths");
        if let Mechanism::Disk(d) = &mut self.mechanism
            && d.platter.is_none()
        {
            d.remapped = (permille > 0).then_some(RemapSpec { permille, seed });
        }
        self
    }

    /// Whether sectors lie where its own mapping says, defects and all, as of a drive imported from DiskSim's form: nothing else can
    /// be believed of its layout.
    pub fn has_own_mapping(&self) -> bool {
        self.disk().is_some_and(|d| d.platter.is_some())
    }

    /// The same drive with the track layout of another: zones and skews, the belief of one who
    /// took the wrong sheet. Without effect where either has no platters, or is known by its own
    /// mapping.
    pub fn with_layout_of(mut self, other: &DriveProfile) -> DriveProfile {
        if let (Mechanism::Disk(d), Some(o)) = (&mut self.mechanism, other.disk())
            && d.platter.is_none()
            && o.platter.is_none()
        {
            let inside = o.zones.iter().filter(|z| z.first_sector < self.capacity);
            d.zones = inside.copied().collect();
            (d.track_skew_ms, d.cylinder_skew_ms) = (o.track_skew_ms, o.cylinder_skew_ms);
            d.tracks_per_cylinder = o.tracks_per_cylinder;
        }
        self
    }

    pub(crate) fn disk(&self) -> Option<&DiskSpec> {
        match &self.mechanism {
            Mechanism::Disk(d) => Some(d),
            Mechanism::Flash(_) => None,
        }
    }
}

impl DiskSpec {
    pub(crate) fn seek_time(&self, distance: u64, op: Op) -> Nanos {
        if distance == 0 { Nanos(0) } else { self.seek.nanos(distance) + self.settle(op) }
    }

    pub(crate) fn settle(&self, op: Op) -> Nanos {
        Nanos(self.settle_ns(op).max(0) as u64)
    }

    /// May be negative where the drive's own mapping is known: its seek curve is one of writes.
    pub(crate) fn settle_ns(&self, op: Op) -> i64 {
        match op {
            Op::Write | Op::WriteZeroes => (self.write_settle_ms * 1e6).round() as i64,
            _ => 0,
        }
    }
}
