//! How many sectors a track has, place by place, and the skews between tracks.

use super::bench::Bench;
use super::robust::{densest, median, slope};
use super::rotation::{AGREE_US, Turn, steps};
use super::{RatePoint, Stop};
use crate::profile::Zone;

/// What is known of the tracks.
pub(super) struct Map {
    pub(super) zones: Vec<Zone>,
    pub(super) track_skew_us: f64,
    pub(super) cylinder_skew_us: f64,
    pub(super) tracks_per_cylinder: u32,
    /// A head that stays on its track is ready within a tenth of a turn; `None`: not seen.
    pub(super) quick_on_track: Option<bool>,
    /// Measured rate of each zone that was looked at.
    pub(super) rates: Vec<RatePoint>,
    pub(super) notes: Vec<String>,
}

impl Map {
    pub(super) fn sectors_per_track(&self, at: u64) -> u64 {
        let i = self.zones.partition_point(|z| z.first_sector <= at);
        self.zones.get(i.saturating_sub(1)).map_or(1, |z| u64::from(z.sectors_per_track))
    }

    /// The same where they have most: not the first ones on a volume that was put together of several stretches.
    pub(super) fn sectors_per_track_max(&self) -> u64 {
        self.zones.iter().map(|z| u64::from(z.sectors_per_track)).max().unwrap_or(1)
    }

    /// Microseconds a sector takes to pass.
    pub(super) fn sector_us(&self, turn: &Turn, at: u64) -> f64 {
        turn.us / self.sectors_per_track(at) as f64
    }

    /// 10⁶ bytes a second over many tracks.
    fn mb_s(&self, turn: &Turn, at: u64) -> f64 {
        let tracks = f64::from(self.tracks_per_cylinder);
        let skew = (self.track_skew_us * (tracks - 1.0) + self.cylinder_skew_us) / tracks;
        512.0 * self.sectors_per_track(at) as f64 / (turn.us + skew)
    }

    /// The same where it reads fastest: as a stream did, else by the zones.
    pub(super) fn fastest_mb_s(&self, turn: &Turn) -> f64 {
        let streamed = self.rates.iter().map(|r| r.mb_s).fold(0.0, f64::max);
        let by_zone = || self.zones.iter().map(|z| self.mb_s(turn, z.first_sector)).fold(0.0, f64::max);
        if streamed > 0.0 { streamed } else { by_zone() }
    }
}

/// Sectors of a long read where nothing is known of a track: 512 KiB, which no kernel takes apart.
const PIECE: u64 = 1024;
/// Long reads in a row, each about half a track.
const PIECES: u64 = 24;

/// Microseconds of a sector at `at` over many tracks, skews included; 0 where it is not to be seen.
fn streamed(bench: &mut Bench<'_>, turn: &Turn, at: u64, piece: u64) -> Result<f64, Stop> {
    let piece = bench.whole(piece.clamp(512, 4096)).max(bench.grain());
    for i in 0..5 {
        let at = (at + i * 2 * PIECES * piece).min(bench.capacity() - (PIECES + 1) * piece);
        let mut ends = Vec::with_capacity(PIECES as usize + 1);
        for i in 0..=PIECES {
            ends.push(((i * piece) as f64, bench.read_long(at + i * piece, piece)?.end));
        }
        let us = slope(&ends).unwrap_or(0.0);
        // Who comes late loses a turn: then not all ends lie on one line, and all of it is done elsewhere.
        let left: Vec<f64> = ends.iter().map(|(sectors, end)| end - us * sectors).collect();
        let middle = median(&left);
        let off = left.iter().filter(|l| (*l - middle).abs() > turn.us / 8.0).count();
        if off * 12 < ends.len() {
            return Ok(us);
        }
    }
    Ok(0.0)
}

/// Sectors of a track around `at`, where they are about `near`. `None`: the reads do not agree.
fn track(bench: &mut Bench<'_>, turn: &Turn, at: u64, near: f64) -> Result<Option<f64>, Stop> {
    if !turn.downwards {
        let us = streamed(bench, turn, at, (near / 2.0) as u64)?;
        return Ok((us > 0.0).then(|| turn.us / us));
    }
    let step = bench.whole((near * 0.3) as u64).max(bench.grain());
    let apart = steps(bench, at, step, 12)?;
    let passed: Vec<f64> = apart.iter().map(|d| (-d).rem_euclid(turn.us)).collect();
    // Seven of ten steps stay on their track; the others have a skew more.
    let stay = densest(&passed, AGREE_US).filter(|(us, n)| *us > 0.0 && n * 2 >= passed.len());
    Ok(stay.map(|(us, _)| turn.us * step as f64 / us))
}

/// The same, a little further on where the reads do not agree, or not with what is near.
fn track_near(bench: &mut Bench<'_>, turn: &Turn, at: u64, near: f64) -> Result<Option<f64>, Stop> {
    for i in 0..3 {
        let at = at.saturating_sub(bench.whole((near * 20.0) as u64) * i);
        if let Some(found) = track(bench, turn, at, near)?.filter(|t| (0.8..1.25).contains(&(t / near))) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The same from nothing but the turn. Skews make a stream slower by a few to twenty per cent, a bus by more.
fn track_anew(bench: &mut Bench<'_>, turn: &Turn, at: u64) -> Result<Option<f64>, Stop> {
    let mut found = Vec::new();
    for i in 0..5 {
        let at = (at + i * 64 * PIECE).min(bench.capacity() / 100 * 99);
        let us = streamed(bench, turn, at, PIECE)?;
        if us <= 0.0 {
            continue;
        }
        let streamed = turn.us / us;
        let coarse = track(bench, turn, at, streamed)?;
        let Some(coarse) = coarse.filter(|t| (0.95..8.0).contains(&(t / streamed))) else { continue };
        let fine = track_near(bench, turn, at, coarse)?;
        found.extend(fine.filter(|t| coarse < streamed * 1.5 || (t / coarse - 1.0).abs() < 0.03));
        if found.len() == 3 {
            break;
        }
    }
    Ok((!found.is_empty()).then(|| median(&found)))
}

/// `None`: what a stream's rate and the ends of reads say of a track has nothing to do with each other.
pub(super) fn map(bench: &mut Bench<'_>, turn: &Turn) -> Result<Option<Map>, Stop> {
    let mut map = Map {
        zones: Vec::new(),
        track_skew_us: 0.0,
        cylinder_skew_us: 0.0,
        tracks_per_cylinder: 1,
        quick_on_track: None,
        rates: Vec::new(),
        notes: Vec::new(),
    };
    let at = bench.capacity() / 40;
    let Some(outer) = track_anew(bench, turn, at)? else { return Ok(None) };
    let mut near = outer;
    let places = bench.share(48, 12) as u64;
    let mut seen: Vec<(u64, f64)> = Vec::with_capacity(places as usize);
    for i in 0..places {
        let at = bench.whole(bench.capacity() / places * i + bench.capacity() / places / 2);
        let found = match track_near(bench, turn, at, near)? {
            None => track_anew(bench, turn, at)?,
            found => found,
        };
        if let Some(tracks) = found {
            near = tracks;
            seen.push((at, near));
        }
        bench.progress("zones", 0.1 + 0.15 * i as f64 / places as f64);
    }
    map.zones = zones(bench, turn, &seen)?;
    if map.zones.is_empty() {
        return Ok(None);
    }
    if turn.downwards {
        bench.progress("skews", 0.35);
        skews(bench, turn, outer, &mut map)?;
        on_track(bench, turn, outer, &mut map)?;
    } else {
        map.notes.push(
            "The drive keeps what passes before the sector it was asked for: skews cannot be seen, and are in the \
             sectors of a track."
                .into(),
        );
    }
    rates(bench, turn, &mut map)?;
    Ok(Some(map))
}

/// Places whose tracks differ by less than this share are of one zone. Neighbouring zones of large drives
/// differ by 1 %; a place is off by a quarter per cent.
const SAME_ZONE: f64 = 0.006;

fn zones(bench: &mut Bench<'_>, turn: &Turn, seen: &[(u64, f64)]) -> Result<Vec<Zone>, Stop> {
    // A place and its tracks; a zone is a run of them.
    let mut runs: Vec<Vec<(u64, f64)>> = Vec::new();
    let mean = |run: &[(u64, f64)]| median(&run.iter().map(|p| p.1).collect::<Vec<_>>());
    for (i, place) in seen.iter().enumerate() {
        let apart = |m: f64| (place.1 / m - 1.0).abs() > SAME_ZONE;
        let here = runs.last().map(|run| mean(run));
        // A place that differs from both sides, which agree, was measured wrong.
        let next = seen.get(i + 1).map(|p| p.1);
        let wrong = here.zip(next).is_some_and(|(m, n)| apart(m) && (n / m - 1.0).abs() < SAME_ZONE);
        match runs.last_mut() {
            _ if wrong => {}
            Some(run) if !here.is_some_and(apart) => run.push(*place),
            _ => runs.push(vec![*place]),
        }
    }
    let mut out: Vec<Zone> = Vec::with_capacity(runs.len());
    for (i, run) in runs.iter().enumerate() {
        let tracks = mean(run);
        let first = match i.checked_sub(1).map(|before| &runs[before]) {
            None => 0,
            Some(before) => {
                let (mut low, mut high) = (before.last().map_or(0, |p| p.0), run[0].0);
                let middle = (mean(before) + tracks) / 2.0;
                let descends = mean(before) > tracks;
                for _ in 0..5 {
                    if bench.hurry() {
                        break;
                    }
                    let at = bench.whole(low + (high - low) / 2);
                    match track_near(bench, turn, at, middle)? {
                        Some(here) if (here > middle) == descends => low = at,
                        Some(_) => high = at,
                        None => break,
                    }
                }
                bench.whole(low + (high - low) / 2)
            }
        };
        let sectors_per_track = tracks.round().clamp(8.0, f64::from(1 << 20)) as u32;
        if out.last().is_none_or(|z| z.first_sector < first) {
            out.push(Zone { first_sector: first, sectors_per_track });
        }
        bench.progress("zones", 0.25 + 0.1 * i as f64 / runs.len() as f64);
    }
    Ok(out)
}

/// Skews, from steps of which nearly half cross from a track to the one before.
fn skews(bench: &mut Bench<'_>, turn: &Turn, tracks: f64, map: &mut Map) -> Result<(), Stop> {
    let step = bench.whole((tracks * 0.45) as u64).max(bench.grain());
    let at = bench.place(bench.capacity() / 64, bench.capacity() / 32);
    let count = bench.share(420, 160);
    let apart = steps(bench, at, step, count)?;
    let passed: Vec<f64> = apart.iter().map(|d| (-d).rem_euclid(turn.us)).collect();
    let Some((stays, _)) = densest(&passed, AGREE_US) else { return Ok(()) };
    let more: Vec<f64> =
        passed.iter().map(|p| p - stays).filter(|m| *m > AGREE_US && *m < turn.us / 3.0).collect();
    let Some((skew, n)) = densest(&more, AGREE_US).filter(|(_, n)| *n >= count / 10) else {
        map.notes.push("No skew between tracks is to be seen.".into());
        return Ok(());
    };
    (map.track_skew_us, map.cylinder_skew_us) = (skew, skew);
    let larger: Vec<f64> = more.iter().copied().filter(|m| *m > skew + AGREE_US / 2.0).collect();
    let Some((cylinder, many)) = densest(&larger, AGREE_US).filter(|(_, m)| *m >= (n / 40).max(4)) else {
        return Ok(());
    };
    map.cylinder_skew_us = cylinder;
    // Cylinders end every so many tracks: the commonest number of crossings from one end to the next.
    let is = |m: f64, what: f64| (m - what).abs() < AGREE_US / 2.0;
    let (mut since, mut gaps) = (None::<u32>, Vec::new());
    for p in &passed {
        let m = p - stays;
        if is(m, cylinder) {
            gaps.extend(since.map(|n| f64::from(n + 1)));
            since = Some(0);
        } else if is(m, skew) {
            since = since.map(|n| n + 1);
        }
    }
    let by_count = ((n + many) as f64 / many as f64).round().max(1.0);
    let tracks = densest(&gaps, 0.5).map_or(by_count, |(gap, _)| gap);
    map.tracks_per_cylinder = (tracks as u32).clamp(1, 256);
    Ok(())
}

/// Whether a head that stays on its track is ready sooner than a tenth of a turn: steps of nine tenths of a track
/// that stay on it come round after the rest, or a turn later.
fn on_track(bench: &mut Bench<'_>, turn: &Turn, tracks: f64, map: &mut Map) -> Result<(), Stop> {
    let step = bench.whole((tracks * 0.9) as u64).max(bench.grain());
    let at = bench.place(bench.capacity() / 64, bench.capacity() / 32);
    let apart = steps(bench, at, step, bench.share(90, 60))?;
    let rest = turn.us * (1.0 - step as f64 / tracks);
    let count = |us: f64| apart.iter().filter(|d| (*d - us).abs() < AGREE_US / 2.0).count();
    let (soon, late) = (count(rest), count(rest + turn.us));
    if soon.max(late) >= 3 {
        map.quick_on_track = Some(soon > late);
    }
    Ok(())
}

fn rates(bench: &mut Bench<'_>, turn: &Turn, map: &mut Map) -> Result<(), Stop> {
    let wanted = bench.share(20, 6);
    let every = map.zones.len().div_ceil(wanted).max(1);
    for i in (0..map.zones.len()).step_by(every) {
        let from = map.zones[i].first_sector;
        let to = map.zones.get(i + 1).map_or(bench.capacity(), |z| z.first_sector);
        let tracks = u64::from(map.zones[i].sectors_per_track);
        let at = bench.whole(from + to.saturating_sub(from) / 2);
        let us = streamed(bench, turn, at, tracks / 2)?;
        if us > 0.0 {
            map.rates.push(RatePoint { sector: at, mb_s: 512.0 / us, fitted_mb_s: map.mb_s(turn, at) });
        }
    }
    if map.rates.is_empty() {
        map.notes.push("No stream went on evenly: rates are what the sectors of a track say.".into());
    }
    Ok(())
}
