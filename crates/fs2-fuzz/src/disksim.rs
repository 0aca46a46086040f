//! A drive in the form of DiskSim's parameters: an error with its place, or a drive that can be written
//! down, read back, and asked for sectors.
//!
//! The texts of up to three files, a zero byte between them: the parameters, what they call
//! `*.model`, and a seek curve. Each is handed out once: what a file that names itself again and again
//! may cost is a limit of the importer's own, and a test of `fs2-disk`.

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Disk, DriveProfile, Head, Knowledge};

pub(crate) fn run(data: &[u8]) {
    let mut parts = data.splitn(3, |&b| b == 0).map(String::from_utf8_lossy);
    let specs = parts.next().unwrap_or_default();
    let (mut model, mut curve) = (parts.next(), parts.next());
    let mut resolve = |name: &str| {
        let part = if name.ends_with(".model") { &mut model } else { &mut curve };
        part.take().map(|text| text.into_owned()).ok_or("no such file".to_owned())
    };
    let profile = match DriveProfile::import_disksim(&specs, "specs", &mut resolve) {
        Ok(profile) => profile,
        Err(e) => return drop(e.to_string()),
    };
    let written = profile.to_toml();
    let again = DriveProfile::parse(&written, "again").unwrap_or_else(|e| panic!("{e}:\n{written}"));
    assert_eq!(again, profile, "what was written is read back");
    serve(profile);
}

/// The drive serves some requests, wherever they point, and what is believed of it keeps to the same clock.
fn serve(profile: DriveProfile) {
    let mut disk = Disk::new(profile.clone());
    let mut head = Head::new(profile, Knowledge::Full);
    let mut now = Nanos(0);
    for i in 0..16u64 {
        let sector = Sector(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i * 3 + 8));
        let op = if i % 3 == 0 { Op::Write } else { Op::Read };
        let sectors = (i as u32 % 7) * 30 + 1;
        assert!(head.predict(now, op, sector, sectors).start >= now);
        let service = disk.serve(now, op, sector, sectors);
        assert!(service.start >= now && service.end() >= service.start, "{service:?}");
        head.completed(op, sector, sectors, now, service.end());
        now = service.end() + Nanos(i * 1_000_000);
    }
}
