//! The page of a running volume, in the look of a replay's.

use fs2_block::Nanos;
use fs2_control::{Control, ControlGain, Status, plus_minus};
use fs2_sim::replay::Histogram;

use super::accesses::Accesses;
use crate::replay::html::chart::{Axis, Chart, Row, bars, whiskered};
use crate::replay::html::pictures::{Panel, Section, addresses, cumulative, distances, key};
use crate::replay::html::{STYLE, figure_of};
use crate::report::page::{self, escape};
use crate::report::summary::{change, figure};

/// What a page is made of.
#[derive(Clone, Copy)]
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

/// What reads are said to take without replicas, and who says so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Without {
    /// The control sample: reads that have a copy, since the attach.
    Measured(ControlGain),
    /// The policy, at each read in the time looked at.
    Predicted(Gain),
}

/// The control sample where it says anything, else the prediction.
pub(super) fn without(before: &Status, after: &Status) -> Option<Without> {
    let measured = after.control.gain().map(Without::Measured);
    measured.or_else(|| gain(before, after).map(Without::Predicted))
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
    if a.seen == 0 && a.untimed > 0 {
        out += "<p>The trace has no service times: there is nothing to draw.</p>\n";
    } else if a.seen == 0 && m.cut {
        out += "<p>Nothing whole was recorded: there is nothing to draw.</p>\n";
    } else if a.seen == 0 {
        out += "<p>No request came while it was looked at: there is nothing to draw.</p>\n";
    }
    out += &notes(m);
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
<li>Reads from replicas and from originals are different reads: in the pictures their times may not be compared as \
before and after.</li>\n";

const CONTROL: &str = "<li>With and without replicas is measured on the control sample: of the reads that have a \
replica, one short run in so many is sent to the originals, whatever the policy would choose, and compared with the \
runs served as it chose. The first read after a change between the two is left out. The intervals hold with 95 % \
confidence; reads without a replica are in neither.</li>\n";

const PREDICTED: &str = "<li>What reads would have taken without replicas is a prediction: to what was measured is \
added what the policy predicted, at each read from a replica, that the original would have cost more. With a drive's \
profile (--drive, --belief) it predicts by the drive's mechanics, without by the seeks of a drive of today where the device turns, else by distance only. What a replica read saves \
the reads after it is not in it.</li>\n";

/// What the figures rest on.
fn notes(m: &Material<'_>) -> String {
    let mut out = NOTES.to_owned();
    let Some((before, after)) = m.asked else { return out + "</ul>\n" };
    match without(before, after) {
        Some(Without::Measured(_)) => out += CONTROL,
        _ => {
            out += PREDICTED;
            out += &match after.control.every {
                0 => "<li>There is no control sample (--control-sample off): the prediction is held against \
                      nothing.</li>\n"
                    .to_owned(),
                every => format!(
                    "<li>One run in {every} is sent to its originals to be compared; so far {} reads were, and \
                     {} are wanted before anything is concluded.</li>\n",
                    after.control.originals.reads,
                    Control::READS_LEAST
                ),
            };
        }
    }
    out + "</ul>\n"
}

fn sentence(m: &Material<'_>) -> String {
    let [(originals, _), (replicas, _)] = m.accesses.reads();
    let reads = originals + replicas;
    if reads == 0 {
        return String::new();
    }
    let share = 100.0 * replicas as f64 / reads as f64;
    let mut told = format!("{share:.0} % of {} reads came from replicas.", fs2_control::count(reads));
    match m.asked.and_then(|(b, a)| without(b, a)) {
        Some(Without::Measured(g)) => {
            told += &format!(
                " Reads that have one take {} ms with replicas and {} ms without, measured; the difference is right \
                 within {} ms",
                figure(g.with),
                figure(g.without),
                figure(g.error)
            );
            told += &change(g.without, g.with).map_or(String::new(), |c| format!(" ({c})"));
            told.push('.');
        }
        Some(Without::Predicted(g)) => {
            told += &format!(" A read took {} ms", figure(g.measured));
            if let Some(change) = change(g.without, g.measured).filter(|_| g.without > g.measured) {
                told += &format!(", where {} ms are predicted without them ({change})", figure(g.without));
            }
            told.push('.');
        }
        None => {}
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
    if a.untimed > 0 {
        let n = fs2_control::count(a.untimed);
        out.push(("times", format!("{n} requests left out: the trace has no service times of them")));
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

/// What replicas save, measured where that is possible.
fn estimate(m: &Material<'_>) -> Option<Section> {
    let (before, after) = m.asked?;
    match without(before, after)? {
        Without::Measured(g) => Some(measured(&after.control, &g)),
        Without::Predicted(g) => Some(predicted(&g)),
    }
}

fn row(group: &str, label: &str, parts: Vec<(f64, &'static str)>) -> Row {
    Row { group: group.into(), label: label.into(), parts }
}

fn keys(parts: &[(&str, &str)]) -> String {
    key("box", parts.iter().map(|(c, n)| ((*c).to_owned(), (*n).to_owned())))
}

fn measured(c: &Control, g: &ControlGain) -> Section {
    let say = format!(
        "with replicas {} ({} reads), without {} ({} reads)",
        plus_minus(c.copies.mean_ms, c.copies.error_ms),
        fs2_control::count(c.copies.reads),
        plus_minus(c.originals.mean_ms, c.originals.error_ms),
        fs2_control::count(c.originals.reads)
    );
    let rows = [
        row("with", "measured", vec![(g.with, "copy")]),
        row("without", "measured", vec![(g.without, "seek")]),
    ];
    let errors = [&c.copies, &c.originals].map(|s| s.error_ms.unwrap_or_default());
    Section {
        id: "estimate",
        heading: "With and without replicas",
        caption: format!(
            "Mean access of reads that have a replica, since the attach: {say}; 95 % intervals. One run in {} was \
             sent to its originals to be measured.",
            c.every
        ),
        key: keys(&[("copy", "as the policy served them"), ("seek", "sent to their originals")]),
        panels: vec![(
            "Access time of a read".into(),
            whiskered(&rows, &errors, "ms a read", &[], &format!("Bars: {say}")),
        )],
    }
}

fn predicted(g: &Gain) -> Section {
    let rows = [
        row("with", "measured", vec![(g.measured, "copy")]),
        row("without", "predicted", vec![(g.measured, "copy"), (g.without - g.measured, "seek")]),
    ];
    let say = format!(
        "Bars: a read took {} ms; without replicas {} ms are predicted",
        figure(g.measured),
        figure(g.without)
    );
    Section {
        id: "estimate",
        heading: "With and without replicas",
        caption: format!(
            "Mean access of {} reads in the time looked at. The second bar is a prediction; what it rests on is \
             said below.",
            fs2_control::count(g.reads)
        ),
        key: keys(&[("copy", "measured"), ("seek", "saved, as predicted at each read")]),
        panels: vec![("Access time of a read".into(), bars(&rows, "ms a read", &[], &say))],
    }
}

#[cfg(test)]
mod tests {
    use fs2_block::Op;
    use fs2_control::{Sample, TotalS};
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
        assert!(html.contains("-10 meanwhile") && html.contains("There is no control sample"));
        assert!(html.len() < 300_000, "{}", html.len());
        // Sampled, but too little.
        let sample = |reads, mean| Sample { reads, mean_ms: Some(mean), error_ms: Some(0.3) };
        let control = Control { every: 256, copies: sample(9000, 2.0), originals: sample(29, 8.0) };
        let few = Status { control, ..after.clone() };
        let html = page(&Material { asked: Some((&before, &few)), ..material });
        assert!(
            html.contains("so far 29 reads were, and 30 are wanted")
                && html.contains("are predicted without")
        );
        // Enough: what is measured goes before what is predicted.
        let control = Control { originals: sample(30, 8.0), ..control };
        let enough = Status { control, ..after.clone() };
        let html = page(&Material { asked: Some((&before, &enough)), ..material });
        elements(&html);
        asks_for_nothing(&html);
        assert!(html.contains("take 2.00 ms with replicas and 8.00 ms without, measured"), "{html}");
        assert!(
            html.contains("8.00 ± 0.30 ms (30 reads); 95 % intervals") && !html.contains("a prediction"),
            "{html}"
        );
    }

    #[test]
    fn a_trace_without_service_times_says_so() {
        let mut one = record(Op::Read, 1, 1, 0, RecordFlags::NONE);
        one.service = None;
        let (accesses, _) = Accesses::of([Ok(one)].into_iter()).unwrap();
        let material =
            Material { name: "t", accesses: &accesses, volume_bytes: 1 << 30, cut: false, asked: None };
        let html = page(&material);
        assert!(html.contains("1 requests left out") && html.contains("no service times: there is nothing"));
        assert!(!html.contains("<figure"), "{html}");
    }

    #[test]
    fn nothing_to_draw_is_said() {
        let material =
            Material { name: "x", accesses: &Accesses::default(), volume_bytes: 0, cut: false, asked: None };
        let html = page(&material);
        elements(&html);
        assert!(html.contains("nothing to draw") && !html.contains("<figure id"));
        // Of a daemon that died nothing says that no request came.
        let html = page(&Material { cut: true, ..material });
        assert!(html.contains("<p>Nothing whole was recorded: there is nothing to draw.</p>"), "{html}");
        assert!(!html.contains("No request came"));
    }
}
