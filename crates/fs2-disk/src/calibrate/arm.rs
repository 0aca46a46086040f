//! How long the arm takes, by logical distance.
//!
//! An access takes what it must (overhead and arm) and then waits for its sector, less than a turn. So each access
//! of one distance says that what it must take is between its time less a turn and its time. The next
//! access of that distance goes to the place under which its time would halve what is left. Both places of each
//! try lie whole tracks below those of the last, so that neither is in the drive's cache and skews cancel.

use super::Stop;
use super::bench::Bench;
use super::robust::agreed;
use super::rotation::Turn;
use super::zones::Map;

/// Seen at one distance; microseconds.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) distance: u64,
    pub(super) us: f64,
    /// Half of what the accesses leave open.
    half: f64,
    /// Tries from just outside said the same from both sides; 1: they said nothing; 2: they contradict.
    doubt: u8,
    pub(super) accesses: Vec<f64>,
}

/// Tries at a distance: a turn of 8.3 ms halved eleven times is 4 µs, and two more for those that went wrong.
const HALVINGS: usize = 13;
/// Then both sides are tried once more from just outside. One access that was late by more than it should have
/// waited pushes one side away for good, and nothing inside would show it.
const PROOFS: [f64; 4] = [-1.0, 1.0, -1.5, 1.5];
const TRIES: usize = HALVINGS + PROOFS.len();
/// How far outside: more than what clocks and places are off by.
const OUTSIDE_US: f64 = 120.0;

fn at_distance(
    bench: &mut Bench<'_>,
    turn: &Turn,
    map: &Map,
    distance: u64,
    up: bool,
) -> Result<Option<Seen>, Stop> {
    let near = map.sectors_per_track_max();
    // Short moves go down, and far enough from try to try that none comes where another was.
    let tracks = if distance < 64 * near { distance / near + 3 } else { 1 };
    let room = (TRIES as u64 + 2) * tracks * near;
    let end = bench.capacity().saturating_sub(2 * near);
    let (low, high) = if up { (room, end.saturating_sub(distance)) } else { (distance + room, end) };
    if low >= high {
        return Ok(None);
    }
    let from = bench.place(low, high);
    let to = if up { from + distance } else { from - distance };
    let (step_from, step_to) = (map.sectors_per_track(from) * tracks, map.sectors_per_track(to) * tracks);
    let sector_us = map.sector_us(turn, to);
    let half_track = (map.sectors_per_track(to) / 2) as f64;
    let transfer = bench.grain() as f64 * sector_us;
    let (mut shift, mut accesses, mut moved) = (0.0f64, Vec::with_capacity(TRIES), distance);
    let mut found = (0.0, turn.us);
    let (mut aimed, mut below, mut above, mut against) = (None, false, false, false);
    for i in 0..TRIES {
        let tracks_on = i as u64;
        let a = bench.whole(from - tracks_on * step_from);
        let b = bench.whole((to - tracks_on * step_to).saturating_add_signed(shift as i64));
        bench.read(a)?;
        let took = bench.read(b)?.took() - transfer;
        moved = b.abs_diff(a + bench.grain());
        accesses.push(took);
        let is = |us: f64| (took - us).abs() < OUTSIDE_US / 2.0;
        match aimed {
            None => found = agreed(&accesses, turn.us).unwrap_or(found),
            // Too soon to be reached: a turn later.
            Some(aim) if aim < found.0 => {
                below |= is(aim + turn.us);
                against |= is(aim);
            }
            Some(aim) => {
                above |= is(aim);
                against |= is(aim + turn.us);
            }
        }
        let (middle, half) = found;
        let wanted = match i.checked_sub(HALVINGS - 1).and_then(|n| PROOFS.get(n)) {
            None => middle,
            Some(outside) => {
                let aim = middle + outside * OUTSIDE_US + half * outside.signum();
                aimed = Some(aim);
                aim
            }
        };
        let mut later = (wanted - took).rem_euclid(turn.us);
        if later > turn.us / 2.0 {
            later -= turn.us;
        }
        shift += later / sector_us;
        if shift.abs() > half_track {
            shift -= 2.0 * half_track * shift.signum();
        }
    }
    let (us, half) = found;
    let doubt = if against { 2 } else { u8::from(!(below && above)) };
    Ok(Some(Seen { distance: moved, us: us.max(0.0), half, doubt, accesses }))
}

/// What is left open at most, microseconds, and beyond what a point is left out, as a share of a turn.
const OPEN_US: f64 = 50.0;
const OPEN_MAX: f64 = 0.04;

/// At the ends of tracks a try goes astray by a skew: then it is done elsewhere; `at_least` so often while there is
/// nothing to go by, however little time is left.
fn narrowed(
    bench: &mut Bench<'_>,
    turn: &Turn,
    map: &Map,
    (distance, up): (u64, bool),
    at_least: usize,
) -> Result<Option<Seen>, Stop> {
    let mut best = None::<Seen>;
    let usable = |s: &Seen| s.doubt < 2 && s.half < turn.us * OPEN_MAX;
    for tries in 1..=6 {
        let seen = at_distance(bench, turn, map, distance, up)?;
        best = match (best, seen) {
            (Some(a), Some(b)) => Some(if (b.doubt, b.half) < (a.doubt, a.half) { b } else { a }),
            (a, b) => a.or(b),
        };
        let Some(s) = &best else { break };
        if s.doubt == 0 && s.half < OPEN_US || bench.hurry() && (usable(s) || tries >= at_least) {
            break;
        }
    }
    Ok(best.filter(usable))
}

/// Seeks of all distances, ascending.
pub(super) fn curve(bench: &mut Bench<'_>, turn: &Turn, map: &Map) -> Result<Vec<Seen>, Stop> {
    let tries_sectors = (TRIES as u64 + 5) * map.sectors_per_track_max();
    let most = (bench.capacity() / 100 * 97).min(bench.capacity().saturating_sub(tries_sectors));
    let least = 4 * map.sectors_per_track(0);
    let points = bench.share(22, 10);
    let finer = bench.share(10, 3);
    let ratio = (most as f64 / least as f64).powf(1.0 / (points - 1) as f64);
    let mut seen: Vec<Seen> = Vec::with_capacity(points + finer);
    for i in 0..points + finer {
        if i >= points && bench.hurry() {
            break;
        }
        let distance = match i < points {
            // The longest first: they weigh most, should time run out.
            true => (most as f64 / ratio.powi(i as i32)) as u64,
            false => where_steepest(&seen),
        };
        // Without the longest nothing is known of half the way.
        let at_least = if i == 0 { 6 } else { 1 };
        let up = i % 2 == 1 && distance > 64 * map.sectors_per_track(0);
        if let Some(found) = narrowed(bench, turn, map, (distance, up), at_least)? {
            let after = seen.partition_point(|s| s.distance < found.distance);
            if seen.get(after).is_none_or(|s| s.distance != found.distance) {
                seen.insert(after, found);
            }
        }
        bench.progress("seeks", 0.6 + 0.4 * i as f64 / (points + finer) as f64);
    }
    Ok(seen)
}

/// Between the two neighbours whose times are furthest apart.
fn where_steepest(seen: &[Seen]) -> u64 {
    let steep = seen.windows(2).max_by(|a, b| {
        let rise = |w: &[Seen]| (w[1].us - w[0].us).abs();
        rise(a).total_cmp(&rise(b))
    });
    steep.map_or(1, |w| w[0].distance + (w[1].distance - w[0].distance) / 2)
}
