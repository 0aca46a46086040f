//! The pictures of a replay, each after one of the paper's: addresses over time (Figure 9 a1 to c1), access
//! time over seek distance (Figures 8 and 9 a2 to c2), what an access takes and uses (Figure 10); then
//! distributions, and copies over time.

use fs2_block::Nanos;
use fs2_disk::Power;
use fs2_sim::replay::{Dot, DotKind, Histogram, Run, Samples};

use super::chart::{Axis, Chart, Row, bars};
use crate::replay::run::report::Figures;
use crate::replay::run::{Replayed, Results};
use crate::report::page::escape;
use crate::report::summary::figure;

/// Dots of a page at most; they are most of its bytes.
const PAGE_DOTS_MAX: usize = 110_000;

/// Points of a line at most.
const LINE_POINTS_MAX: usize = 400;

/// Of more runs than this only the first and the last are drawn as bars.
const BAR_ROWS_MAX: usize = 30;

/// A section of the page.
pub(crate) struct Section {
    /// Its name in the page, also for scripts.
    pub(crate) id: &'static str,
    pub(crate) heading: &'static str,
    pub(crate) caption: String,
    /// What the colours are, as HTML.
    pub(crate) key: String,
    /// A title, foreign text perhaps, and a picture each.
    pub(crate) panels: Vec<(String, String)>,
}

/// A run that has dots.
pub(crate) struct Panel {
    pub(crate) title: String,
    /// Accesses that the dots were chosen from.
    pub(crate) seen: u64,
    /// When the last request was answered, since the begin.
    pub(crate) answered: Nanos,
    pub(crate) dots: Vec<Dot>,
}

/// The colour of a policy's lines: class names of the page's style.
pub(super) fn color(results: &Results, index: usize) -> String {
    let name = |i: usize| results.policies.get(i).map_or("", |p| p.name.as_str());
    match name(index) {
        "none" => "pn".to_owned(),
        "fs2" => "p0".to_owned(),
        "fs2-2005" => "p1".to_owned(),
        _ => {
            let others = (0..index).filter(|i| !["none", "fs2", "fs2-2005"].contains(&name(*i))).count();
            let n = others + 2;
            format!("p{} d{}", n % 5, n / 5 % 4)
        }
    }
}

pub(crate) fn key(kind: &str, entries: impl Iterator<Item = (String, String)>) -> String {
    let swatch = |class: &str| match kind {
        "ln" => format!("<path class=\"ln s-{class}\" d=\"M1 6H25\"/>"),
        "dots" => format!("<path class=\"spot s-{class}\" d=\"M13 6h.01\"/>"),
        _ => format!("<path class=\"f-{class}\" d=\"M7 1h12v10h-12z\"/>"),
    };
    let entries = entries.map(|(class, name)| {
        let svg =
            format!("<svg class=\"sw\" viewBox=\"0 0 26 12\" aria-hidden=\"true\">{}</svg>", swatch(&class));
        format!("<span>{svg}{}</span>", escape(&name))
    });
    entries.collect::<Vec<_>>().join("\n")
}

fn policy_key(results: &Results) -> String {
    let names = results.policies.iter().enumerate();
    key("ln", names.map(|(i, p)| (color(results, i), p.name.clone())))
}

fn ms(t: Nanos) -> f64 {
    t.as_millis_f64()
}

/// First and last run of each policy, with as many dots as the page has room for.
fn panels(results: &Results) -> Vec<Panel> {
    let mut out = Vec::new();
    for p in &results.policies {
        let last = p.samples.len().saturating_sub(1);
        for (i, samples) in p.samples.iter().enumerate().filter(|(i, _)| *i == 0 || *i == last) {
            let title = format!("{}, run {}", p.name, i + 1);
            out.push(Panel {
                title,
                seen: samples.seen(),
                answered: samples.answered(),
                dots: samples.dots(),
            });
        }
    }
    // Two pictures are drawn from them.
    let room = (PAGE_DOTS_MAX / 2 / out.len().max(1)).max(1);
    for p in &mut out {
        let n = p.dots.len();
        if n > room {
            p.dots = (0..room).map(|i| p.dots[i * n / room]).collect();
        }
    }
    out
}

fn thinned(panels: &[Panel]) -> String {
    let most = panels.iter().max_by_key(|p| p.seen);
    match most {
        Some(p) if p.seen > p.dots.len() as u64 => format!(
            " Of a run with more than {} accesses so many are drawn, chosen evenly among all: where dots are \
             dense, accesses were.",
            p.dots.len()
        ),
        _ => String::new(),
    }
}

const KINDS: [(DotKind, &str, &str); 3] = [
    (DotKind::Read, "read", "read"),
    (DotKind::ReadFromCopy, "copy", "read from a copy or a new place"),
    (DotKind::Write, "write", "write"),
];

fn dot_key() -> String {
    key("dots", KINDS.iter().map(|(_, class, name)| ((*class).to_owned(), (*name).to_owned())))
}

fn draw_dots(chart: &mut Chart, dots: &[Dot], place: impl Fn(&Dot) -> (f64, f64)) {
    for (kind, class, _) in KINDS {
        chart.dots(class, dots.iter().filter(|d| d.kind == kind).map(&place));
    }
}

/// The mean distance of the drawn accesses and how many of them came from copies, in words.
fn told(p: &Panel) -> String {
    let n = p.dots.len().max(1) as u64;
    let copies = p.dots.iter().filter(|d| d.kind == DotKind::ReadFromCopy).count() as u64;
    let distance = p.dots.iter().map(|d| u128::from(d.distance)).sum::<u128>() / u128::from(n);
    let way = crate::report::summary::bytes(u64::try_from(distance * 512).unwrap_or(u64::MAX));
    let seconds = figure(p.answered.as_secs_f64());
    format!(
        "{}: {seconds} s, mean distance between accesses {way}, {} % from copies",
        p.title,
        copies * 100 / n
    )
}

/// Bytes of a unit in which `end` is a handy number, and its name.
fn byte_unit(end: f64) -> (f64, &'static str) {
    let units = [(1099511627776.0, "TiB"), (1073741824.0, "GiB"), (1048576.0, "MiB")];
    units.into_iter().find(|(bytes, _)| end >= 2.0 * bytes).unwrap_or((1024.0, "KiB"))
}

const SECTOR: f64 = 512.0;

/// The part of the volume that was used, as an axis, and bytes of its unit.
fn address_axis(lowest: f64, highest: f64) -> (Axis, f64) {
    let (unit, name) = byte_unit(highest);
    let margin = (highest - lowest) * 0.02;
    let from = if lowest - margin < (highest - lowest) * 0.3 { 0.0 } else { lowest - margin };
    (Axis::linear(from / unit, (highest + margin) / unit, &format!("address, {name}")), unit)
}

pub(crate) fn addresses(panels: &[Panel]) -> Option<Section> {
    let all = || panels.iter().flat_map(|p| &p.dots).map(|d| d.sector.0 as f64 * SECTOR);
    let (lowest, highest) = all().fold((f64::MAX, 0.0), |(a, b), v| (v.min(a), v.max(b)));
    if lowest > highest {
        return None;
    }
    let longest = panels.iter().map(|p| p.answered.as_secs_f64()).fold(0.0, f64::max);
    let draw = |p: &Panel| {
        let (y, unit) = address_axis(lowest, highest);
        let mut chart = Chart::new(Axis::linear(0.0, longest, "time since the begin, s"), y);
        draw_dots(&mut chart, &p.dots, |d| (d.at.as_secs_f64(), d.sector.0 as f64 * SECTOR / unit));
        (p.title.clone(), chart.finish(&format!("Address of each access over time. {}", told(p))))
    };
    Some(Section {
        id: "addresses",
        heading: "Where the accesses went",
        caption: format!(
            "A dot is an access for a request: when it began, and where on the volume. All panels have the \
             same scales.{}",
            thinned(panels)
        ),
        key: dot_key(),
        panels: panels.iter().map(draw).collect(),
    })
}

pub(crate) fn distances(panels: &[Panel]) -> Option<Section> {
    let dots = || panels.iter().flat_map(|p| &p.dots);
    let farthest = dots().map(|d| d.distance as f64 * SECTOR).fold(0.0, f64::max);
    let mut times: Vec<f64> = dots().map(|d| ms(d.access)).collect();
    times.sort_by(f64::total_cmp);
    // What took longer than all but one in 500 would flatten the rest.
    let top = *times.get((times.len() * 499 / 500).min(times.len().checked_sub(1)?))? * 1.05;
    let above = times.iter().filter(|t| **t > top).count();
    let mut marks = vec![(SECTOR / 2.0, "0".to_owned())];
    let words = ["4Ki", "64Ki", "1Mi", "16Mi", "256Mi", "4Gi", "64Gi", "1Ti", "16Ti"];
    marks.extend(words.iter().zip(3..).map(|(word, i)| (16f64.powi(i), (*word).to_owned())));
    let draw = |p: &Panel| {
        let end = (farthest * 1.3).max(SECTOR * 16.0);
        let name = "distance from the access before, bytes";
        let x = Axis::log(SECTOR / 2.0, end, marks.clone(), name);
        let mut chart = Chart::new(x, Axis::linear(0.0, top, "access time, ms"));
        draw_dots(&mut chart, &p.dots, |d| (d.distance as f64 * SECTOR, ms(d.access)));
        (p.title.clone(), chart.finish(&format!("Time of each access over its seek distance. {}", told(p))))
    };
    let cut = match above {
        0 => String::new(),
        n => format!(" At the upper edge: {n} that took longer."),
    };
    Some(Section {
        id: "distances",
        heading: "What distance costs",
        caption: format!(
            "The same accesses: how far the head had to go from where the last access (the engine's own too) \
             ended, by ratios, with 0 at the left edge, and what the access took in all. The lower edge of a \
             cloud is the seek curve, its height a turn of the platters.{cut}"
        ),
        key: dot_key(),
        panels: panels.iter().map(draw).collect(),
    })
}

/// The runs shown as bars: all, or the first and the last where that would be too many.
fn bar_runs(results: &Results, p: &Replayed) -> Vec<usize> {
    let all: usize = results.policies.iter().map(|p| p.runs.len()).sum();
    // Nothing has no bar.
    let some: Vec<_> = (0..p.runs.len()).filter(|i| p.runs[*i].requests > 0).collect();
    let ends = [some.first().copied(), some.last().copied()];
    some.into_iter().filter(|i| all <= BAR_ROWS_MAX || ends.contains(&Some(*i))).collect()
}

fn rows(results: &Results, parts: impl Fn(&Run) -> Vec<(f64, &'static str)>) -> Vec<Row> {
    let mut out = Vec::new();
    for p in &results.policies {
        for (n, i) in bar_runs(results, p).into_iter().enumerate() {
            out.push(Row {
                group: if n == 0 { p.name.clone() } else { String::new() },
                label: format!("run {}", i + 1),
                parts: parts(&p.runs[i]),
            });
        }
    }
    out
}

fn say(what: &str, rows: &[Row]) -> String {
    let mut group = "";
    let mut told = Vec::new();
    for r in rows {
        if !r.group.is_empty() {
            group = &r.group;
        }
        let parts: Vec<_> = r.parts.iter().map(|(v, name)| format!("{name} {}", figure(*v))).collect();
        told.push(format!("{group} {}: {}", r.label, parts.join(", ")));
    }
    format!("{what}. {}", told.join("; "))
}

fn access_bars(figures: &Figures, results: &Results) -> (String, String) {
    let rows = rows(results, |r| {
        let [seek, rotation, transfer] = r.parts_reads_ms();
        vec![(transfer, "transfer"), (rotation, "rotation"), (seek, "seek")]
    });
    let bound = figures.bounds.runs.iter().rev().find_map(|b| b.b2_order);
    let marks: Vec<_> = bound.map(|ms| (ms, "B2o".to_owned())).into_iter().collect();
    let svg = bars(&rows, "ms a read", &marks, &say("Bars: mean access time of reads in ms", &rows));
    ("Access time of a read".to_owned(), svg)
}

/// Means of a request in mJ: transfer and overhead, rotation, seek. The paper's E_A taken apart.
fn energy_parts(run: &Run, power: &Power) -> [f64; 3] {
    let each = |t: Nanos, watts: f64| 1000.0 * t.as_secs_f64() * watts / run.split.count.max(1) as f64;
    let (seek, rotation) = (each(run.split.seek, power.seek_w), each(run.split.rotation, power.idle_w));
    [(run.energy_mj_per_access() - seek - rotation).max(0.0), rotation, seek]
}

fn energy_bars(results: &Results) -> (String, String) {
    let rows = rows(results, |r| {
        let [transfer, rotation, seek] = energy_parts(r, &results.power);
        vec![(transfer, "transfer"), (rotation, "rotation"), (seek, "seek")]
    });
    let svg = bars(&rows, "mJ an access", &[], &say("Bars: mean energy of an access in mJ", &rows));
    ("Energy of an access".to_owned(), svg)
}

fn breakdown(figures: &Figures, results: &Results) -> Section {
    let parts = [("seek", "seek"), ("rotation", "rotation"), ("transfer", "transfer and overhead")];
    Section {
        id: "breakdown",
        heading: "What an access takes and uses",
        caption:
            "Means of a run; time of reads, energy of reads and writes, without the engine's own accesses. \
                  Dashed: B2o of the last run, what one may hope for where order decides."
                .to_owned(),
        key: key("box", parts.iter().map(|(c, n)| ((*c).to_owned(), (*n).to_owned()))),
        panels: vec![access_bars(figures, results), energy_bars(results)],
    }
}

/// Each step of a distribution: milliseconds, and percent not above them; thinned to what a line can show.
pub(crate) fn cumulative(h: &Histogram) -> Vec<(f64, f64)> {
    let all = h.count().max(1) as f64;
    let mut out: Vec<(f64, f64)> = Vec::new();
    let mut seen = 0;
    for (end, n) in h.steps() {
        seen += n;
        let (at, percent) = (ms(end), 100.0 * seen as f64 / all);
        match out.last() {
            None => out.push((at, 0.0)),
            Some((_, before)) if percent - before < 100.0 / LINE_POINTS_MAX as f64 && seen < h.count() => {
                continue;
            }
            Some(_) => {}
        }
        out.push((at, percent));
    }
    out
}

fn distribution(results: &Results, name: &str, of: impl Fn(&Run) -> &Histogram) -> Option<String> {
    let lines: Vec<Vec<(f64, f64)>> = results
        .policies
        .iter()
        .map(|p| p.runs.iter().rfind(|r| r.requests > 0).map_or(Vec::new(), |r| cumulative(of(r))))
        .collect();
    let ends = lines.iter().flatten().map(|p| p.0);
    let (least, most) = ends.fold((f64::MAX, 0.0), |(a, b), t| (t.min(a), t.max(b)));
    if least > most {
        return None;
    }
    let mut marks = Vec::new();
    for power in -3..9 {
        for by in [1.0, 3.0] {
            let at = by * 10f64.powi(power);
            marks.push((at, format!("{at:.*}", usize::try_from(-power).unwrap_or(0))));
        }
    }
    let mut chart = Chart::new(
        Axis::log(least * 0.8, most * 1.25, marks, &format!("{name}, ms")),
        Axis::linear(0.0, 100.0, "percent that took no longer"),
    );
    let mut told = Vec::new();
    for (i, (line, p)) in lines.iter().zip(&results.policies).enumerate() {
        // Before the first step nothing, behind the last everything.
        let (first, last) = ((least * 0.8, 0.0), (most * 1.25, 100.0));
        if !line.is_empty() {
            chart.line(
                &color(results, i),
                [first].into_iter().chain(line.iter().copied()).chain([last]),
                true,
            );
        }
        if let Some(h) = p.runs.last().map(&of) {
            let at = |permille| figure(ms(h.quantile(permille)));
            told.push(format!("{}: half {}, 90 % {}, 99 % {}", p.name, at(500), at(900), at(990)));
        }
    }
    Some(chart.finish(&format!("Cumulative distribution of {name} in ms, last run. {}", told.join("; "))))
}

fn distributions(results: &Results) -> Option<Section> {
    let access = distribution(results, "access time of reads", |r| &r.access_reads);
    let response = distribution(results, "response time of requests", |r| &r.response);
    let panels: Vec<_> = [("Access, reads", access), ("Response, all requests", response)]
        .into_iter()
        .filter_map(|(title, svg)| Some((title.to_owned(), svg?)))
        .collect();
    if panels.is_empty() {
        return None;
    }
    Some(Section {
        id: "distributions",
        heading: "Not only means",
        caption: "The last run of each policy: which share of the reads' accesses, and of the requests' \
                  answers, took no longer than so many milliseconds."
            .to_owned(),
        key: policy_key(results),
        panels,
    })
}

/// A moment of all runs.
struct Then {
    /// Since the first run began.
    minutes: f64,
    /// Blocks with a copy.
    replicas: u64,
    /// First block of the hot region, and the one behind its last.
    hot: Option<(u32, u32)>,
}

/// All runs and the idle time between them, in as many moments as a line can show.
fn history(p: &Replayed) -> Vec<Then> {
    let origin = p.samples.first().map_or(Nanos(0), Samples::begin);
    let all: Vec<_> = p
        .samples
        .iter()
        .flat_map(|s| {
            let begin = s.begin().since(origin);
            s.moments().map(move |m| Then {
                minutes: (begin + m.at).as_secs_f64() / 60.0,
                replicas: m.replicas,
                hot: m.hot.map(|h| (h.start(), h.end())),
            })
        })
        .collect();
    let every = all.len().div_ceil(LINE_POINTS_MAX).max(1);
    let last = all.len().saturating_sub(1);
    all.into_iter().enumerate().filter(|(i, _)| i % every == 0 || *i == last).map(|(_, m)| m).collect()
}

/// When each run began, minutes.
fn begins(p: &Replayed) -> Vec<f64> {
    let origin = p.samples.first().map_or(Nanos(0), Samples::begin);
    p.samples.iter().map(|s| s.begin().since(origin).as_secs_f64() / 60.0).collect()
}

/// Runs of a policy that are named above a picture.
const RUN_MARKS_MAX: usize = 12;

fn mark_runs(chart: &mut Chart, p: &Replayed) {
    let begins = begins(p);
    let every = begins.len().div_ceil(RUN_MARKS_MAX).max(1);
    for (i, at) in begins.into_iter().enumerate().step_by(every) {
        chart.mark(at, &if i == 0 { String::new() } else { (i + 1).to_string() });
    }
}

fn growth(results: &Results) -> Option<Section> {
    let block = f64::from(results.block_size.bytes());
    let histories: Vec<_> = results.policies.iter().map(history).collect();
    let minutes = histories.iter().flatten().map(|m| m.minutes).fold(0.0, f64::max);
    let most = histories.iter().flatten().map(|m| m.replicas).max()? as f64 * block;
    let (unit, unit_name) = byte_unit(most);
    let mut chart = Chart::new(
        Axis::linear(0.0, minutes, "time, idle time between runs included, min"),
        Axis::linear(0.0, (most * 1.05).max(unit) / unit, &format!("copies, {unit_name}")),
    );
    let mut told = Vec::new();
    for (i, (history, p)) in histories.iter().zip(&results.policies).enumerate() {
        let points = history.iter().map(|m| (m.minutes, m.replicas as f64 * block / unit));
        chart.line(&color(results, i), points, true);
        let end = history.last().map_or(0.0, |m| m.replicas as f64 * block / unit);
        told.push(format!("{} {} {unit_name}", p.name, figure(end)));
    }
    let say = format!("Blocks with a copy over time; in the end: {}", told.join(", "));
    let mut panels = vec![("Copies there are".to_owned(), chart.finish(&say))];
    let edges = || histories.iter().flatten().filter_map(|m| m.hot);
    if let Some(to) = edges().map(|h| h.1).max() {
        let to = (f64::from(to) * block).max(results.volume_bytes as f64);
        for (history, p) in histories.iter().zip(&results.policies) {
            if history.iter().all(|m| m.hot.is_none()) {
                continue;
            }
            let (y, unit) = address_axis(0.0, to);
            let mut chart = Chart::new(Axis::linear(0.0, minutes, "time, min; run numbers above"), y);
            let place = |b: u32| f64::from(b) * block / unit;
            let points: Vec<_> =
                history.iter().filter_map(|m| m.hot.map(|(a, b)| (m.minutes, place(a), place(b)))).collect();
            chart.band("copy", &points);
            mark_runs(&mut chart, p);
            let (first, last) = (points.first(), points.last());
            let told = [("first", first), ("in the end", last)].map(|(when, p)| {
                p.map_or(String::new(), |p| format!("{when} from {} to {}", figure(p.1), figure(p.2)))
            });
            let say = format!("Hot region over time, {}: {}", byte_unit(to).1, told.join(", "));
            panels.push((format!("Hot region, {}", p.name), chart.finish(&say)));
        }
    }
    Some(Section {
        id: "growth",
        heading: "Copies and hot region over time",
        caption:
            "All runs and the idle time between them. The hot region is where the policy takes the head to \
                  be mostly. Schemes that move blocks instead of copying them have no copies."
                .to_owned(),
        key: policy_key(results),
        panels,
    })
}

/// All sections that have something to show.
pub(super) fn sections(figures: &Figures, results: &Results) -> Vec<Section> {
    let panels = panels(results);
    let breakdown = results.policies.iter().any(|p| !p.runs.is_empty()).then(|| breakdown(figures, results));
    let all = [breakdown, addresses(&panels), distances(&panels), distributions(results), growth(results)];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use fs2_block::{Op, Sector};
    use fs2_disk::{Energy, Service};

    use super::*;

    #[test]
    fn a_distribution_climbs_from_nothing_to_all() {
        let mut run = Run::default();
        for us in [100, 100, 100, 2000] {
            run.access.add(Nanos(us * 1000));
        }
        let points = cumulative(&run.access);
        let percents: Vec<_> = points.iter().map(|p| p.1).collect();
        assert_eq!(percents, [0.0, 75.0, 100.0]);
        // Within the steps' 1.6 %.
        assert!((points[1].0 - 0.1).abs() < 0.002 && (points[2].0 - 2.0).abs() < 0.04, "{points:?}");
        for us in 1..100_000u64 {
            run.access.add(Nanos(us * 1000));
        }
        let points = cumulative(&run.access);
        assert!(points.len() <= LINE_POINTS_MAX + 2, "{}", points.len());
        assert!(points.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1));
        assert_eq!(points.last().map(|p| p.1), Some(100.0));
    }

    #[test]
    fn energy_parts_add_up_to_what_the_run_says() {
        let drive = fs2_disk::DriveProfile::builtin("nearline-hc310").expect("it is built in");
        let power = drive.power();
        let (mut energy, mut run) = (Energy::new(power), Run::default());
        for op in [Op::Read, Op::Write] {
            let service = Service {
                op,
                start: Nanos(0),
                overhead: Nanos::from_millis(1),
                seek: Nanos::from_millis(5),
                rotation: Nanos::from_millis(4),
                transfer: Nanos::from_millis(2),
                cache_hit: false,
            };
            energy.add(&service);
            run.split.add(&service);
        }
        run.request_joules = energy.access_joules();
        let [transfer, rotation, seek] = energy_parts(&run, &power);
        assert!((seek - 5.0 * power.seek_w).abs() < 1e-6, "{seek}");
        assert!((rotation - 4.0 * power.idle_w).abs() < 1e-6, "{rotation}");
        let rest = power.idle_w + (power.read_w + power.write_w) / 2.0 * 2.0;
        assert!((transfer - rest).abs() < 1e-6, "{transfer} {rest}");
    }

    #[test]
    fn units_and_the_used_part_of_a_volume() {
        assert_eq!(byte_unit(1.0).1, "KiB");
        assert_eq!(byte_unit(1.9e9), (1048576.0, "MiB"));
        assert_eq!(byte_unit(3e9), (1073741824.0, "GiB"));
        let (axis, unit) = address_axis(0.0, 10.0 * 1073741824.0);
        assert_eq!(unit, 1073741824.0);
        assert!(format!("{axis:?}").contains("from: 0.0, to: 10.2"), "{axis:?}");
        // Far up and narrow: not from 0.
        let (axis, _) = address_axis(900.0 * 1073741824.0, 910.0 * 1073741824.0);
        assert!(format!("{axis:?}").contains("from: 899.8"), "{axis:?}");
    }

    #[test]
    fn a_panel_tells_distance_and_copies() {
        let dot = |distance, kind| Dot { at: Nanos(0), sector: Sector(0), distance, access: Nanos(0), kind };
        let dots = vec![dot(2048, DotKind::Read), dot(6144, DotKind::ReadFromCopy)];
        let said = told(&Panel { title: "x, run 2".to_owned(), seen: 0, answered: Nanos(0), dots });
        assert_eq!(said, "x, run 2: 0.00 s, mean distance between accesses 2.0 MiB, 50 % from copies");
    }
}
