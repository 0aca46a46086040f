//! One picture: two axes and what is drawn between them, as SVG inside a page.
//!
//! Colours are the page's custom properties, by class; text is the page's. Numbers have a tenth of a unit,
//! which is less than a pixel; what is not finite is not drawn.

use std::collections::HashSet;
use std::fmt::Write;

use crate::report::page::escape;

/// Of every picture, in its own units.
const WIDTH: f64 = 400.0;
/// Of a picture that does not say otherwise.
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 42.0;
/// Between a text and what it belongs to.
const GAP: f64 = 5.0;

/// A character, most digits at the page's size: what is wider is rarer.
const CHAR: f64 = 7.2;
/// The most that names before bars take.
const NAMES_MAX: f64 = 240.0;

/// How wide a text is, about.
fn wide(word: &str) -> f64 {
    word.chars().count() as f64 * CHAR
}

/// Where the middle of a text is that should be at `x` and must not stick out.
fn middle(x: f64, word: &str) -> f64 {
    let half = wide(word) / 2.0;
    x.min(WIDTH - half).max(half)
}

/// What of a text has room, and that there is more.
fn cut(word: &str, room: f64) -> String {
    match wide(word) > room {
        true => word.chars().take((room / CHAR) as usize - 1).chain(['…']).collect(),
        false => word.to_owned(),
    }
}

/// From a value to its place, and what is written beside it.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    from: f64,
    to: f64,
    log: bool,
    ticks: Vec<(f64, String)>,
    name: String,
}

impl Axis {
    /// From `from` to `to` or a little further, with three to eight round steps; `name` with its unit.
    pub(crate) fn linear(from: f64, to: f64, name: &str) -> Axis {
        let finite = |x: f64| if x.is_finite() { x.clamp(-1e15, 1e15) } else { 0.0 };
        let (from, to) = (finite(from), finite(to));
        let to = if to > from { to } else { from + 1.0 };
        let step = round_step((to - from) / 7.0);
        let first = (from / step).ceil();
        let mut ticks = Vec::new();
        for n in 0..20 {
            let at = (first + f64::from(n)) * step;
            if at > to + step * 1e-6 {
                break;
            }
            ticks.push((at, plain(at, step)));
        }
        Axis { from, to, log: false, ticks, name: name.to_owned() }
    }

    /// By ratios, with these marks: only those inside are written.
    pub(crate) fn log(from: f64, to: f64, marks: Vec<(f64, String)>, name: &str) -> Axis {
        let from = if from.is_finite() && from > 0.0 { from } else { 1.0 };
        let to = if to.is_finite() && to > from { to } else { from * 10.0 };
        let ticks = marks.into_iter().filter(|(v, _)| (from..=to).contains(v)).collect();
        Axis { from, to, log: true, ticks, name: name.to_owned() }
    }

    /// 0 at its begin, 1 at its end; beyond the ends the ends.
    fn place(&self, v: f64) -> Option<f64> {
        if !v.is_finite() {
            return None;
        }
        let at = if self.log {
            (v.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (v - self.from) / (self.to - self.from)
        };
        Some(at.clamp(0.0, 1.0))
    }
}

/// 1, 2 or 5 times a power of ten, not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let by = [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= least * (1.0 - 1e-9));
    by.unwrap_or(10.0) * power
}

/// With the digits that steps of this size need.
fn plain(v: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{v:.digits$}");
    if text.trim_start_matches(['-', '0', '.']).is_empty() { "0".to_owned() } else { text }
}

/// A coordinate.
fn n(v: f64) -> String {
    let text = format!("{v:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// A picture being drawn.
pub(crate) struct Chart {
    x: Axis,
    y: Axis,
    height: f64,
    left: f64,
    body: String,
}

impl Chart {
    pub(crate) fn new(x: Axis, y: Axis) -> Chart {
        let widest = y.ticks.iter().map(|(_, word)| wide(word)).fold(0.0, f64::max);
        Chart { x, y, height: HEIGHT, left: LEFT.max(widest + GAP), body: String::new() }
    }

    fn at(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let (x, y) = (self.x.place(x)?, self.y.place(y)?);
        let (wide, high) = (WIDTH - self.left - RIGHT, self.height - TOP - BOTTOM);
        Some((self.left + x * wide, TOP + (1.0 - y) * high))
    }

    /// A dot for each point; where several fall on one pixel, one. `class` says which colour.
    pub(crate) fn dots(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        let mut seen = HashSet::new();
        for (x, y) in points.filter_map(|p| self.at(p)) {
            if seen.insert(((x * 2.0) as u32, (y * 2.0) as u32)) {
                let _ = write!(path, "M{} {}h.01", n(x), n(y));
            }
        }
        if !path.is_empty() {
            let _ = writeln!(self.body, "<path class=\"dots s-{class}\" d=\"{path}\"/>");
        }
    }

    /// A line through the points; with `steps` it goes level, then straight up.
    pub(crate) fn line(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>, steps: bool) {
        let mut path = String::new();
        let mut before: Option<(String, String)> = None;
        for (x, y) in points.filter_map(|p| self.at(p)) {
            let (x, y) = (n(x), n(y));
            match &before {
                None => path += &format!("M{x} {y}"),
                Some((bx, by)) if *bx == x && *by == y => continue,
                Some((_, by)) if steps && *by == y => path += &format!("H{x}"),
                Some((bx, _)) if steps && *bx == x => path += &format!("V{y}"),
                Some(_) if steps => path += &format!("H{x}V{y}"),
                Some(_) => path += &format!("L{x} {y}"),
            }
            before = Some((x, y));
        }
        if !path.is_empty() {
            let _ = writeln!(self.body, "<path class=\"ln s-{class}\" d=\"{path}\"/>");
        }
    }

    /// The area between two heights at each place, level until the next place.
    pub(crate) fn band(&mut self, class: &str, points: &[(f64, f64, f64)]) {
        let mut path = String::new();
        let ends = points.iter().map(|p| p.0).skip(1).chain(points.last().map(|p| p.0));
        for ((from, low, high), to) in points.iter().zip(ends) {
            if let (Some(a), Some(b)) = (self.at((*from, *high)), self.at((to, *low))) {
                let (w, h) = ((b.0 - a.0).max(0.5), (b.1 - a.1).max(1.0));
                let _ = write!(path, "M{} {}h{}v{}h-{}z", n(a.0), n(a.1), n(w), n(h), n(w));
            }
        }
        if !path.is_empty() {
            let _ = writeln!(self.body, "<path class=\"f-{class}\" d=\"{path}\"/>");
        }
    }

    /// A dashed line from bottom to top, with a word at its top where there is one to say.
    pub(crate) fn mark(&mut self, x: f64, word: &str) {
        let Some((x, top)) = self.at((x, self.y.to)) else { return };
        let bottom = self.height - BOTTOM;
        let _ = writeln!(self.body, "<path class=\"mark\" d=\"M{} {}V{}\"/>", n(x), n(top), n(bottom));
        if !word.is_empty() {
            let word = cut(word, WIDTH);
            let _ = writeln!(
                self.body,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                n(middle(x, &word)),
                n(top - GAP),
                escape(&word)
            );
        }
    }

    /// The picture; `say` tells what it shows to those who cannot see it.
    pub(crate) fn finish(self, say: &str) -> String {
        let (right, bottom) = (WIDTH - RIGHT, self.height - BOTTOM);
        let mut out = begin(self.height, say);
        let mut grid = String::new();
        let mut words = String::new();
        let mut free = f64::MIN;
        for (value, word) in &self.x.ticks {
            let Some((x, _)) = self.at((*value, self.y.from)) else { continue };
            let _ = write!(grid, "M{} {}V{}", n(x), n(TOP), n(bottom));
            // What would touch its neighbour is left out.
            let half = wide(word) / 2.0 + 3.0;
            if x - half >= free {
                free = x + half;
                let _ = write!(
                    words,
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    n(middle(x, word)),
                    n(bottom + 15.0),
                    escape(word)
                );
            }
        }
        for (value, word) in &self.y.ticks {
            let Some((_, y)) = self.at((self.x.from, *value)) else { continue };
            let _ = write!(grid, "M{} {}H{}", n(self.left), n(y), n(right));
            let _ = write!(
                words,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                n(self.left - GAP),
                n(y + 4.0),
                escape(word)
            );
        }
        let _ = writeln!(out, "<path class=\"grid\" d=\"{grid}\"/>");
        out += &self.body;
        let _ = writeln!(out, "{words}");
        let _ = writeln!(
            out,
            "<text class=\"ax\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            n(middle((self.left + right) / 2.0, &self.x.name)),
            n(self.height - 6.0),
            escape(&self.x.name)
        );
        // Above the axis, not turned on its side.
        let _ = writeln!(
            out,
            "<text class=\"ax\" x=\"2\" y=\"11\" text-anchor=\"start\">{}</text>",
            escape(&self.y.name)
        );
        out + "</svg>\n"
    }
}

fn begin(height: f64, say: &str) -> String {
    format!(
        "<svg class=\"ch\" role=\"img\" viewBox=\"0 0 {} {}\" aria-label=\"{}\">\n",
        n(WIDTH),
        n(height),
        escape(say)
    )
}

/// A row of a picture of bars that lie.
pub(crate) struct Row {
    /// Before the bar; the first row of a group has its name as well.
    pub(crate) group: String,
    pub(crate) label: String,
    /// From the left: how long, and the class of its colour.
    pub(crate) parts: Vec<(f64, &'static str)>,
}

/// Between two rows.
const ROW: f64 = 19.0;

/// Bars that lie, their parts one behind the other, with the sum behind; `name` of what they count with its
/// unit; `marks` are values with a word, drawn across all.
pub(crate) fn bars(rows: &[Row], name: &str, marks: &[(f64, String)], say: &str) -> String {
    whiskered(rows, &[], name, marks, say)
}

/// As [`bars`], with half an interval about each bar's end, where it has one above zero.
pub(crate) fn whiskered(
    rows: &[Row],
    halves: &[f64],
    name: &str,
    marks: &[(f64, String)],
    say: &str,
) -> String {
    let half = |i: usize| halves.get(i).map_or(0.0, |h| fine(*h));
    let sum = |(i, r): (usize, &Row)| r.parts.iter().map(|p| fine(p.0)).sum::<f64>() + half(i);
    let most = rows.iter().enumerate().map(sum).chain(marks.iter().map(|m| fine(m.0))).fold(0.0, f64::max);
    // A group's name, and behind it the rows'.
    let widest = |of: fn(&Row) -> &String| {
        rows.iter().map(|r| wide(of(r))).fold(0.0, f64::max).min((NAMES_MAX - 3.0 * GAP) / 2.0)
    };
    let (group, label) = (widest(|r| &r.group), widest(|r| &r.label));
    let left = f64::max(116.0, group + label + 3.0 * GAP);
    // Room for the sum's digits behind the longest bar.
    let sums = rows.iter().map(|r| crate::report::summary::figure(r.parts.iter().map(|p| fine(p.0)).sum()));
    let digits = sums.map(|s| wide(&s)).fold(0.0, f64::max);
    let room = (WIDTH - left - RIGHT) / (WIDTH - left - GAP - digits);
    let x = Axis::linear(0.0, if most > 0.0 { most * room.max(1.16) } else { 1.0 }, name);
    let groups = rows.iter().filter(|r| !r.group.is_empty()).count().saturating_sub(1) as f64;
    let height = TOP + BOTTOM + ROW * rows.len() as f64 + 8.0 * groups;
    let y = Axis { from: 0.0, to: 1.0, log: false, ticks: Vec::new(), name: String::new() };
    let mut chart = Chart { x, y, height, left, body: String::new() };
    let mut top = TOP;
    for (i, row) in rows.iter().enumerate() {
        if i > 0 && !row.group.is_empty() {
            top += 8.0;
        }
        let mut begin = 0.0;
        for (value, class) in &row.parts {
            let end = begin + fine(*value);
            if let (Some(a), Some(b)) = (chart.at((begin, 0.0)), chart.at((end, 0.0)))
                && b.0 > a.0
            {
                let _ = writeln!(
                    chart.body,
                    "<path class=\"f-{class}\" d=\"M{} {}H{}v{}H{}z\"/>",
                    n(a.0),
                    n(top + 2.0),
                    n(b.0),
                    n(ROW - 4.0),
                    n(a.0)
                );
            }
            begin = end;
        }
        let base = n(top + ROW - 5.0);
        let mut x = chart.at((begin, 0.0)).map_or(chart.left, |p| p.0);
        if half(i) > 0.0
            && let (Some(a), Some(b)) =
                (chart.at((fine(begin - half(i)), 0.0)), chart.at((begin + half(i), 0.0)))
        {
            let (high, mid, low) = (n(top + 5.0), n(top + ROW / 2.0), n(top + ROW - 5.0));
            let (a, b) = (n(a.0), n(b.0));
            let _ = writeln!(
                chart.body,
                "<path class=\"err\" d=\"M{a} {high}V{low}M{b} {high}V{low}M{a} {mid}H{b}\"/>"
            );
            x = chart.at((begin + half(i), 0.0)).map_or(x, |p| p.0);
        }
        let _ = writeln!(
            chart.body,
            "<text class=\"ax\" x=\"0\" y=\"{base}\">{}</text><text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{}</text>\
             <text class=\"ax\" x=\"{}\" y=\"{base}\">{}</text>",
            escape(&cut(&row.group, group)),
            n(chart.left - GAP),
            escape(&cut(&row.label, label)),
            n(x + 4.0),
            crate::report::summary::figure(begin)
        );
        top += ROW;
    }
    for (value, word) in marks {
        chart.mark(*value, word);
    }
    chart.finish(say)
}

/// What has no length is drawn without.
fn fine(v: f64) -> f64 {
    if v.is_finite() { v.max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::check::{elements, texts_are_inside};

    fn words(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|t| t.1.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(words(&Axis::linear(0.0, 10.0, "")), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(words(&Axis::linear(0.3, 0.72, "")), ["0.3", "0.4", "0.5", "0.6", "0.7"]);
        assert_eq!(
            words(&Axis::linear(0.0, 0.042, "")),
            ["0.00", "0.01", "0.02", "0.03", "0.04"].map(|w| { if w == "0.00" { "0" } else { w } })
        );
        assert_eq!(words(&Axis::linear(0.0, 23_000.0, "")), ["0", "5000", "10000", "15000", "20000"]);
        for (from, to) in [(0.0, 0.0), (5.0, 1.0), (f64::NAN, f64::INFINITY), (0.0, 1e300), (-1e300, 1e-300)]
        {
            let axis = Axis::linear(from, to, "");
            assert!((1..=20).contains(&axis.ticks.len()), "{from} {to}: {axis:?}");
            assert!(axis.ticks.iter().all(|t| (0.0..=1.0).contains(&axis.place(t.0).unwrap())), "{axis:?}");
        }
    }

    #[test]
    fn ratios_are_equal_lengths() {
        let marks = vec![(0.1, "a".into()), (1.0, "b".into()), (10.0, "c".into()), (1000.0, "d".into())];
        let axis = Axis::log(0.1, 10.0, marks, "");
        assert_eq!(words(&axis), ["a", "b", "c"]);
        assert!((axis.place(1.0).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!((axis.place(0.0), axis.place(1e9), axis.place(f64::NAN)), (Some(0.0), Some(1.0), None));
    }

    #[test]
    fn corners_of_the_picture_are_the_ends_of_its_axes() {
        let chart = Chart::new(Axis::linear(0.0, 10.0, "s"), Axis::linear(2.0, 4.0, "ms"));
        assert_eq!(chart.at((0.0, 2.0)), Some((LEFT, HEIGHT - BOTTOM)));
        assert_eq!(chart.at((10.0, 4.0)), Some((WIDTH - RIGHT, TOP)));
        assert_eq!(chart.at((f64::INFINITY, 3.0)), None);
    }

    #[test]
    fn dots_on_one_pixel_are_one_and_lines_leave_out_repeats() {
        let mut chart = Chart::new(Axis::linear(0.0, 10.0, "s"), Axis::linear(0.0, 10.0, "ms"));
        chart.dots("w", (0..1000).map(|_| (5.0, 5.0)).chain([(6.0, 5.0), (f64::NAN, 1.0)]));
        assert_eq!(chart.body.matches("h.01").count(), 2);
        chart.body.clear();
        chart.line("0", [(0.0, 0.0), (5.0, 5.0), (5.0, 5.0), (10.0, 5.0)].into_iter(), true);
        assert_eq!(chart.body, format!("<path class=\"ln s-0\" d=\"M52 238H221V129H390\"/>\n"));
        let svg = chart.finish("a <b> & \"c\"");
        assert!(svg.contains("aria-label=\"a &lt;b&gt; &amp; &quot;c&quot;\""));
        elements(&svg);
    }

    #[test]
    fn a_bar_is_as_long_as_its_parts() {
        let row = |group: &str, parts: Vec<(f64, &'static str)>| Row {
            group: group.into(),
            label: "run 1".into(),
            parts,
        };
        let rows = [
            row("none", vec![(1.0, "seek"), (3.0, "rotation")]),
            row("", vec![(f64::NAN, "seek"), (-1.0, "x")]),
        ];
        let svg = bars(&rows, "ms", &[(2.0, "B2o".into())], "bars");
        // 4.64 units of value are 274 of the picture.
        assert!(svg.contains("<path class=\"f-seek\" d=\"M116 22H175.1v15H116z\"/>"), "{svg}");
        assert!(svg.contains("<path class=\"f-rotation\" d=\"M175.1 22H352.2v15H175.1z\"/>"), "{svg}");
        assert!(svg.contains(">4.00</text>") && svg.contains(">0.00</text>") && svg.contains(">B2o</text>"));
        assert_eq!(svg.matches("class=\"f-").count(), 2, "what has no length is not drawn");
        elements(&svg);
    }

    /// Found: a small part of a large volume has addresses of nine digits, whose first were cut off.
    #[test]
    fn no_text_is_cut_off() {
        for (from, to) in [(0.0, 10.0), (4_094.999, 4_094.999_1), (0.0, 2e9), (0.0, 3e-7), (-7e6, 0.0)] {
            let axis = || Axis::linear(from, to, "time, idle time between runs included, min");
            let mut chart = Chart::new(axis(), axis());
            for x in [from, (from + to) / 2.0, to] {
                chart.mark(x, "a policy's name");
            }
            texts_are_inside(&chart.finish("a chart"));
        }
        let edge = |at: f64| vec![(at, "1024 million".to_owned())];
        for at in [1.0, 10.0] {
            texts_are_inside(
                &Chart::new(Axis::log(1.0, 10.0, edge(at), "x"), Axis::linear(0.0, 1.0, "y"))
                    .finish("a chart"),
            );
        }
        for name in ["def", "a-variant-with-a-name", &"x".repeat(300)] {
            for value in [0.0, 9.99, 123_456_789.0, 1e12] {
                let rows = [0, 1].map(|_| Row {
                    group: name.into(),
                    label: format!("<{name}>"),
                    parts: vec![(value, "seek")],
                });
                let svg = whiskered(
                    &rows,
                    &[value / 9.0],
                    "operations to a joule, disk model",
                    &[(value, name.into())],
                    "bars",
                );
                texts_are_inside(&svg);
                elements(&svg);
            }
        }
    }
}
