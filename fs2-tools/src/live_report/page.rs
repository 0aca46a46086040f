//! The page of a running volume, in the look of a replay's.

use fs2_block::Nanos;
use fs2_control::Status;
use fs2_sim::replay::Histogram;

use super::accesses::Accesses;
use crate::replay::html::chart::{Axis, Chart, Row, bars};
use crate::replay::html::pictures::{Panel, Section, addresses, cumulative, distances, key};
use crate::replay::html::{STYLE, figure_of};
use crate::report::page::{self, escape};
use crate::report::summary::{change, figure};

/// What a page is made of.
pub(super) struct Material<'a> {
    /// Where the volume is mounted, its device, or the trace's file.
    pub(super) name: &'a str,
    pub(super) accesses: &'a Accesses,
    /// The volume's size, as the trace has it.
    pub(super) volume_bytes: u64,
    /// The trace was cut off; records that it lacks.
    pub(super) cut: bool,
    /// Before and after, where a daemon was asked.
    pub(super) asked: Option<(&'a Status, &'a Status)>,
}

/// Between two statuses: what reads took, and what they would have taken without replicas, as predicted; ms a read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gain {
    pub(super) reads: u64,
    pub(super) measured: f64,
    pub(super) without: f64,
}

pub(super) fn gain(before: &Status, after: &Status) -> Option<Gain> {
    let (b, a) = (&before.total_s, &after.total_s);
    let reads = a.reads.checked_sub(b.reads).filter(|n| *n > 0)?;
    let each = |sum: f64| sum.max(0.0) * 1e3 / reads as f64;
    let measured = each(a.read - b.read);
    Some(Gain { reads, measured, without: measured + each(a.saved - b.saved) })
}

/// The page.
pub(super) fn page(m: &Material<'_>) -> String {
    let mut out = page::begin(
        &format!("FS2 volume {}", m.name),
        &format!("{STYLE}pre{{overflow-x:auto;font-size:.8rem}}\n"),
    );
    let told = sentence(m);
    if !told.is_empty() {
        out += &format!("<p class=\"sum\">{}</p>\n", escape(&told));
    }
    out += "<dl>\n";
    for (name, value) in facts(m) {
        out += &format!("<dt>{name}</dt><dd>{}</dd>\n", escape(&value));
    }
    out += "</dl>\n";
    let a = m.accesses;
    let panel = Panel {
        title: m.name.to_owned(),
        seen: a.seen,
        answered: a.last.since(a.first.unwrap_or_default()),
        dots: a.dots_from_first(),
    };
    let panels = [panel];
    let sections = [addresses(&panels), distances(&panels), times(a), estimate(m)];
    out.extend(sections.into_iter().flatten().map(figure_of));
    if a.seen == 0 {
        out += "<p>No request came while it was looked at: there is nothing to draw.</p>\n";
    }
    out += NOTES;
    if let Some((_, after)) = m.asked {
        out +=
            &format!("<h2>Status at the end</h2>\n<figure><pre>{}</pre></figure>\n", lines(&after.to_text()));
    }
    out + page::END
}

/// As text that keeps its lines.
fn lines(text: &str) -> String {
    text.lines().map(|l| escape(l) + "\n").collect()
}

const NOTES: &str = "<h2>What it says and what not</h2>\n<ul>\n\
<li>Access times are measured, dispatch to completion; waits before it are not in them.</li>\n\
<li>What reads would have taken without replicas is an estimate: to what was measured is added what the policy \
predicted, at each read from a replica, that the original would have cost more. With a drive's profile (--drive, \
--belief) it predicts by the drive's mechanics, without by distance only.</li>\n\
<li>There is no control sample: no read is sent to its original on purpose, so the prediction is held against \
nothing, and what a replica read saves the reads after it is not in it.</li>\n\
<li>Reads from replicas and from originals are different reads: their times may not be compared as before and \
after.</li>\n</ul>\n";

fn sentence(m: &Material<'_>) -> String {
    let [(originals, _), (replicas, _)] = m.accesses.reads();
    let reads = originals + replicas;
    if reads == 0 {
        return String::new();
    }
    let share = 100.0 * replicas as f64 / reads as f64;
    let mut told = format!("{share:.0} % of {} reads came from replicas.", fs2_control::count(reads));
    if let Some(g) = m.asked.and_then(|(b, a)| gain(b, a)) {
        told += &format!(" A read took {} ms", figure(g.measured));
        if let Some(change) = change(g.without, g.measured).filter(|_| g.without > g.measured) {
            told += &format!(", where {} ms are predicted without them ({change})", figure(g.without));
        }
        told.push('.');
    }
    told
}

fn facts(m: &Material<'_>) -> Vec<(&'static str, String)> {
    let a = m.accesses;
    let mut out = Vec::new();
    if let Some((before, after)) = m.asked {
        out.push(("device", after.volume.clone()));
        out.push(("uuid", after.uuid.clone()));
        out.push(("state", after.liveness.to_string()));
        out.push(("policy", format!("{}; drive {}", after.policy, after.drive)));
        out.push(("frontend", format!("{}; {}", after.frontend, after.data_path)));
        let changed = after.replicas as i128 - before.replicas as i128;
        let held = fs2_control::bytes(after.replica_bytes);
        out.push((
            "replicas",
            format!("{}, {held}; {changed:+} meanwhile", fs2_control::count(after.replicas)),
        ));
    }
    out.push(("volume", fs2_control::bytes(m.volume_bytes)));
    let seconds = a.last.since(a.first.unwrap_or_default()).as_secs_f64();
    let writes = fs2_control::count(a.writes.count());
    let [(originals, _), (replicas, _)] = a.reads();
    let (originals, replicas) = (fs2_control::count(originals), fs2_control::count(replicas));
    out.push((
        "requests",
        format!(
            "{originals} reads from originals, {replicas} from replicas, {writes} writes, in {} s",
            figure(seconds)
        ),
    ));
    out.push(("own", format!("{} accesses of the daemon for its replicas", fs2_control::count(a.own))));
    if a.unplaced > 0 {
        let n = fs2_control::count(a.unplaced);
        out.push((
            "place",
            format!(
                "{n} reads from replicas are drawn at their originals: the trace does not say where they were"
            ),
        ));
    }
    if a.failed > 0 {
        out.push(("failed", format!("{} accesses, left out", fs2_control::count(a.failed))));
    }
    if m.cut {
        out.push(("cut off", "the trace ends without its end mark: what is whole of it is here".into()));
    }
    out
}

/// Distributions of the access times.
fn times(a: &Accesses) -> Option<Section> {
    let all: [(&str, &str, &Histogram); 3] = [
        ("pn", "reads from originals", &a.originals),
        ("p0", "reads from replicas", &a.replicas),
        ("p2", "writes", &a.writes),
    ];
    let lines: Vec<_> =
        all.iter().filter(|l| l.2.count() > 0).map(|l| (l.0, l.1, cumulative(l.2), l.2)).collect();
    let ends = || lines.iter().flat_map(|l| &l.2).map(|p| p.0);
    let (least, most) = ends().fold((f64::MAX, 0.0), |(x, y), t| (t.min(x), t.max(y)));
    if least > most {
        return None;
    }
    let marks = (-3..6).flat_map(|power| {
        [1.0, 3.0].map(|by| {
            let at = by * 10f64.powi(power);
            (at, format!("{at:.*}", usize::try_from(-power).unwrap_or(0)))
        })
    });
    let (from, to) = (least * 0.8, most * 1.25);
    let mut chart = Chart::new(
        Axis::log(from, to, marks.collect(), "access time, ms"),
        Axis::linear(0.0, 100.0, "percent that took no longer"),
    );
    let mut told = Vec::new();
    for (class, name, line, h) in &lines {
        let points = [(from, 0.0)].into_iter().chain(line.iter().copied()).chain([(to, 100.0)]);
        chart.line(class, points, true);
        let at = |permille| figure(Nanos::as_millis_f64(h.quantile(permille)));
        told.push(format!("{name}: half {}, 99 % {}", at(500), at(990)));
    }
    let told = told.join("; ");
    Some(Section {
        id: "times",
        heading: "How long accesses took",
        caption: format!("Percent of the accesses that took no longer. In ms, {told}."),
        key: key("ln", lines.iter().map(|l| (l.0.to_owned(), l.1.to_owned()))),
        panels: vec![(
            "Access time".into(),
            chart.finish(&format!("Cumulative distribution of access times. {told}")),
        )],
    })
}

/// What replicas are predicted to have saved.
fn estimate(m: &Material<'_>) -> Option<Section> {
    let (before, after) = m.asked?;
    let g = gain(before, after)?;
    let row = |group: &str, label: &str, parts| Row { group: group.into(), label: label.into(), parts };
    let rows = [
        row("with", "measured", vec![(g.measured, "copy")]),
        row("without", "estimated", vec![(g.measured, "copy"), (g.without - g.measured, "seek")]),
    ];
    let say = format!(
        "Bars: a read took {} ms; without replicas {} ms are estimated",
        figure(g.measured),
        figure(g.without)
    );
    let parts = [("copy", "measured"), ("seek", "saved, as predicted at each read")];
    Some(Section {
        id: "estimate",
        heading: "With and without replicas",
        caption: format!(
            "Mean access of {} reads in the time looked at. The second bar is an estimate; what it rests on is \
             said below.",
            fs2_control::count(g.reads)
        ),
        key: key("box", parts.iter().map(|(c, n)| ((*c).to_owned(), (*n).to_owned()))),
        panels: vec![("Access time of a read".into(), bars(&rows, "ms a read", &[], &say))],
    })
}

#[cfg(test)]
mod tests {
    use fs2_block::Op;
    use fs2_control::TotalS;
    use fs2_trace::RecordFlags;

    use super::super::accesses::tests::record;
    use super::*;
    use crate::report::page::check::{asks_for_nothing, elements};

    fn accesses() -> Accesses {
        let none = (0..50).map(|n| record(Op::Read, n * 10, n * 1000 % 7919, 5 + n % 7, RecordFlags::NONE));
        let copies = (50..100).map(|n| record(Op::Read, n * 10, 100 + n, 1, RecordFlags::REPLICA));
        let writes = (0..10).map(|n| record(Op::Write, n * 100, n, 2, RecordFlags::NONE));
        Accesses::of(none.chain(copies).chain(writes).map(Ok)).unwrap().0
    }

    fn statuses() -> (Status, Status) {
        let total = |reads, read, saved| TotalS { reads, read, saved, ..TotalS::default() };
        let before = Status { total_s: total(10, 1.0, 0.5), replicas: 50, ..Status::default() };
        let after = Status {
            total_s: total(110, 1.4, 1.1),
            volume: "/dev/<b>".into(),
            policy: "<script>".into(),
            replicas: 40,
            ..Status::default()
        };
        (before, after)
    }

    #[test]
    fn the_gain_is_what_was_measured_and_what_was_predicted() {
        let (before, after) = statuses();
        let g = gain(&before, &after).unwrap();
        assert_eq!(g.reads, 100);
        assert!((g.measured - 4.0).abs() < 1e-9 && (g.without - 10.0).abs() < 1e-9, "{g:?}");
        assert_eq!(gain(&after, &after), None);
    }

    #[test]
    fn the_page_is_whole_and_asks_for_nothing() {
        let (accesses, (before, after)) = (accesses(), statuses());
        let material = Material {
            name: "/srv<&>",
            accesses: &accesses,
            volume_bytes: 80_000_000_000,
            cut: true,
            asked: Some((&before, &after)),
        };
        let html = page(&material);
        let seen = elements(&html);
        asks_for_nothing(&html);
        for id in ["addresses", "distances", "times", "estimate"] {
            assert!(html.contains(&format!("<figure id=\"{id}\">")), "{id}");
        }
        assert!(!seen.iter().any(|n| n == "script" || n == "b"));
        assert!(
            html.contains(
                "50 % of 100 reads came from replicas. A read took 4.00 ms, where 10.0 ms are predicted"
            ),
            "{html}"
        );
        assert!(html.contains("-10 meanwhile") && html.contains("no control sample"));
        assert!(html.len() < 300_000, "{}", html.len());
    }

    #[test]
    fn nothing_to_draw_is_said() {
        let material =
            Material { name: "x", accesses: &Accesses::default(), volume_bytes: 0, cut: false, asked: None };
        let html = page(&material);
        elements(&html);
        assert!(html.contains("nothing to draw") && !html.contains("<figure id"));
    }
}
