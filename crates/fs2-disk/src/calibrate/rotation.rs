//! How long a turn takes.
//!
//! A place a few sectors before the one just read comes round after a turn less those sectors. Where a
//! drive has kept them (it reads a track from where the head lands), ends of reads of the same places,
//! far enough between that the cache has forgotten them, are whole turns apart.

use super::Stop;
use super::bench::Bench;
use super::robust::{densest, median};

/// Turns of disks: 15,000 rpm and some, to 3,600.
const TURN_US: std::ops::Range<f64> = 3_500.0..17_000.0;

/// Ends of reads agree to within this: jitter of a machine that is not idle. A skew is more.
pub(super) const AGREE_US: f64 = 120.0;

/// So many of twelve short steps must agree: most of them stay on their track.
const AGREE_MIN: usize = 7;

/// A turn, and whether places before the last one read come from the platters.
pub(super) struct Turn {
    pub(super) us: f64,
    pub(super) downwards: bool,
}

/// `None` where there is none to be seen.
pub(super) fn turn(bench: &mut Bench<'_>) -> Result<Option<Turn>, Stop> {
    if let Some(us) = by_steps(bench)? {
        let us = longer(bench, us)?;
        return Ok(Some(Turn { us, downwards: true }));
    }
    Ok(by_revisits(bench)?.map(|us| Turn { us, downwards: false }))
}

/// A read this short was answered from a cache: no arm and no overhead leave less.
const HIT_US: f64 = 200.0;

/// Microseconds from end to end of reads at places `step` sectors apart, downwards from `from`; without those
/// from and to an answer of a cache.
pub(super) fn steps(bench: &mut Bench<'_>, from: u64, step: u64, count: usize) -> Result<Vec<f64>, Stop> {
    let count = count.min((bench.capacity() / 2 / step) as usize);
    let mut at = from.max(step * (count as u64 + 1));
    let mut last = None;
    let mut out = Vec::with_capacity(count);
    for _ in 0..=count {
        let read = bench.read(at)?;
        let end = (read.took() > HIT_US).then_some(read.end);
        out.extend(last.zip(end).map(|(last, end)| end - last));
        last = end;
        at -= step;
    }
    Ok(out)
}

fn by_steps(bench: &mut Bench<'_>) -> Result<Option<f64>, Stop> {
    // Few enough that most of them stay on a track of 200 sectors.
    let short = 8u64.next_multiple_of(bench.grain());
    let long = 4 * short;
    let mut found = Vec::new();
    for _ in 0..3 {
        let at = bench.place(bench.capacity() / 64, bench.capacity() / 16);
        let a = steps(bench, at, short, 12)?;
        let b = steps(bench, at - 40 * short, long, 16)?;
        let (Some((a, n)), Some((b, m))) = (densest(&a, AGREE_US), densest(&b, AGREE_US)) else { continue };
        // One sector takes (a - b) / (long - short).
        let us = a + (a - b) * short as f64 / (long - short) as f64;
        if n >= AGREE_MIN && m >= 8 && a >= b && TURN_US.contains(&us) {
            found.push(us);
        }
    }
    let middle = median(&found);
    let agree = found.iter().filter(|us| (*us - middle).abs() < middle / 100.0).count();
    Ok((agree >= 2).then_some(middle))
}

/// The same over many turns: what a clock is off by is divided by them.
fn longer(bench: &mut Bench<'_>, mut us: f64) -> Result<f64, Stop> {
    let short = 8u64.next_multiple_of(bench.grain());
    // What passes between the two places, a few sectors: where few steps agree, nothing is nearer to it than one that was late.
    let mut passed = 0.0;
    for _ in 0..3 {
        let at = bench.place(bench.capacity() / 64, bench.capacity() / 16);
        if let Some((d, _)) =
            densest(&steps(bench, at, short, 12)?, AGREE_US).filter(|(_, n)| *n >= AGREE_MIN)
        {
            passed = us - d;
            break;
        }
    }
    // A turn that is off by a thousandth is off by a tenth of one after a hundred.
    for (turns, tries) in [(12.0, bench.share(9, 5)), (60.0, bench.share(7, 3))] {
        let mut all = Vec::with_capacity(tries);
        // An answer of the cache is none of the platters: on a small volume the drive remembers much of it.
        for _ in 0..4 * tries {
            let at = bench.place(bench.capacity() / 64, bench.capacity() / 16);
            let first = bench.read(at)?;
            bench.pause(us * (turns - 1.0));
            let second = bench.read(at - short)?;
            if first.took() > HIT_US && second.took() > HIT_US {
                let apart = second.end - first.end + passed;
                all.push(apart / (apart / us).round());
            }
            if all.len() == tries {
                break;
            }
        }
        // Of fewer the median is one that was late.
        if all.len() >= 3 {
            us = median(&all);
        }
    }
    Ok(us)
}

fn by_revisits(bench: &mut Bench<'_>) -> Result<Option<f64>, Stop> {
    // More places than a drive's cache remembers: most reads are not answered from it.
    const PLACES: usize = 150;
    let places: Vec<u64> =
        (0..PLACES).map(|_| bench.place(bench.capacity() / 64, bench.capacity() / 10)).collect();
    let mut last = [None; PLACES];
    let mut apart = Vec::with_capacity(2 * PLACES);
    // In another order each time: a round takes as long as the one before, and a number of turns is that of another speed, too.
    for step in [1, 7, 11] {
        for i in (0..PLACES).map(|i| i * step % PLACES) {
            let read = bench.read(places[i])?;
            // On a small volume it remembers some of them all the same.
            let end = (read.took() > HIT_US).then_some(read.end);
            apart.extend(last[i].zip(end).map(|(last, end)| end - last));
            last[i] = end;
        }
    }
    if apart.len() < PLACES {
        return Ok(None);
    }
    let longest = apart.iter().copied().fold(0.0, f64::max);
    // How well all of them are whole turns: the mean cosine of what is left over.
    let fits = |turn: f64| {
        apart.iter().map(|a| (a / turn * std::f64::consts::TAU).cos()).sum::<f64>() / apart.len() as f64
    };
    let (mut best, mut frequency) = (Vec::<(f64, f64)>::new(), 1.0 / TURN_US.end);
    while frequency < 1.0 / TURN_US.start {
        best.push((fits(1.0 / frequency), 1.0 / frequency));
        frequency += 0.05 / longest;
    }
    let top = best.iter().map(|b| b.0).fold(0.0, f64::max);
    // Half a turn fits as well as a turn: the longest counts, and of those around it the best.
    let Some((_, near)) = best.iter().find(|b| b.0 > 0.9 * top).copied() else { return Ok(None) };
    let around = best.iter().filter(|b| (b.1 / near - 1.0).abs() < 0.08).copied();
    let found = around.max_by(|a, b| a.0.total_cmp(&b.0));
    Ok(found.filter(|(fit, _)| *fit > 0.5).map(|(_, turn)| turn))
}
