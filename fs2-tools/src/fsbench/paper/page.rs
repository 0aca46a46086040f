//! The paper's figures 9 to 15 of what was measured, as one page.

use super::super::measure::{Document, Summary};
use super::super::volumes::System;
use super::tables::{improvement, of_paper};
use super::{Access, Args, Outcome};
use crate::replay::html::STYLE;
use crate::replay::html::chart::{Axis, Chart, Row, bars, whiskered};
use crate::replay::paper::report::table_of;
use crate::report::page::{self, escape};
use crate::report::summary::figure;

/// Dots of a picture at most.
const DOTS_MAX: usize = 3000;

fn thin(accesses: &[Access]) -> impl Iterator<Item = &Access> {
    accesses.iter().step_by(accesses.len().div_ceil(DOTS_MAX).max(1))
}

/// Figure 9, left: where the reads of a run went.
fn sectors(accesses: &[Access], last_s: f64, end: u64, say: &str) -> String {
    let x = Axis::linear(0.0, last_s, "seconds");
    let y = Axis::linear(0.0, end as f64 / 2_097_152.0, "address, GiB");
    let mut chart = Chart::new(x, y);
    chart.dots("read", thin(accesses).map(|a| (a.at_s, a.sector as f64 / 2_097_152.0)));
    chart.finish(say)
}

/// Figure 9, right: how long a read took, by how far it was.
fn distances(accesses: &[Access], end: u64, longest: f64, say: &str) -> String {
    let x = Axis::linear(0.0, end as f64 / 1e6, "seek distance, million sectors");
    let mut chart = Chart::new(x, Axis::linear(0.0, longest, "access time, ms"));
    chart.dots("read", thin(accesses).map(|a| (a.distance as f64 / 1e6, a.ms)));
    chart.finish(say)
}

/// Figure 10 (b) and (c): bars in parts, by system and run.
fn parts(outcome: &Outcome, energy: bool) -> String {
    let mut rows = Vec::new();
    for m in &outcome.systems {
        for (i, r) in m.document.measured().enumerate() {
            let Some(d) = &r.drive else { continue };
            let ms = [d.t_s_ms, d.t_r_ms, d.t_t_ms].map(Option::unwrap_or_default);
            let parts = if energy {
                let all = d.access_mj().unwrap_or_default();
                let seek = d
                    .seek_j
                    .zip(d.access_j)
                    .map_or(0.0, |(seek, j)| if j > 0.0 { all * seek / j } else { 0.0 });
                vec![(seek, "seek"), (all - seek, "rotation")]
            } else {
                vec![(ms[0], "seek"), (ms[1], "rotation"), (ms[2], "transfer")]
            };
            let group = if i == 0 { m.system.name() } else { String::new() };
            rows.push(Row { group, label: format!("run {}", r.run), parts });
        }
    }
    let (name, say) = if energy {
        ("mJ an access", "Bars: energy of an access by system and run")
    } else {
        ("ms an access", "Bars: access time in its parts by system and run")
    };
    bars(&rows, name, &[], say)
}

/// Means of all runs of each system, with their 95 % intervals.
fn means(outcome: &Outcome, name: &str, of: impl Fn(&Document) -> Vec<f64>) -> String {
    let (mut rows, mut halves) = (Vec::new(), Vec::new());
    for m in &outcome.systems {
        if let Some(summary) = Summary::of(&of(&m.document)) {
            let label = format!("{} runs", summary.n);
            rows.push(Row { group: m.system.name(), label, parts: vec![(summary.mean, "seek")] });
            halves.push(summary.ci95_half.unwrap_or_default());
        }
    }
    whiskered(&rows, &halves, name, &[], &format!("Bars: {name} by system, with 95 % intervals"))
}

fn figure_of(out: &mut String, heading: &str, key: &str, panels: &[(String, String)], caption: &str) {
    *out += &format!(
        "<h2>{}</h2>\n<figure>\n<p class=\"key\">{key}</p>\n<div class=\"panels\">\n",
        escape(heading)
    );
    for (title, svg) in panels {
        *out += &format!("<div><h3>{}</h3>\n{svg}</div>\n", escape(title));
    }
    *out += &format!("</div>\n<figcaption>{}</figcaption>\n</figure>\n", escape(caption));
}

fn swatch(class: &str, name: &str) -> String {
    format!(
        "<span><svg class=\"sw\" viewBox=\"0 0 26 12\"><path class=\"f-{class}\" d=\"M0 0H26V12H0z\"/></svg>{name}</span> "
    )
}

fn table(outcome: &Outcome) -> String {
    let mut out =
        "<div class=\"wide\"><table>\n<thead><tr><th>per cent less than on ext2</th><th>busy, %</th>\
                   <th>T<sub>A</sub></th><th>T<sub>s</sub></th><th>T<sub>r</sub></th><th>mJ an access</th>\
                   <th>user-perceived</th><th>total energy, the accesses of the rest after it too</th></tr></thead>\n<tbody>\n"
            .to_owned();
    for m in &outcome.systems {
        let Some(row) = improvement(outcome, m) else { continue };
        let paper = of_paper(outcome.workload, m.system);
        for (name, row) in
            std::iter::once((m.system.name(), row)).chain(paper.map(|p| ("the paper".to_owned(), p)))
        {
            out += &format!("<tr><th>{}</th>", escape(&name));
            for v in [row.busy, row.t_a, row.t_s, row.t_r, row.energy, row.runtime, row.total_energy] {
                out += &v.map_or("<td>–</td>".to_owned(), |v| format!("<td>{v:.1}</td>"));
            }
            out += "</tr>\n";
        }
    }
    out + "</tbody>\n</table></div>\n"
}

/// The page.
pub(super) fn page(outcomes: &[Outcome], args: &Args) -> String {
    let mut out = page::begin(&format!("The FS² paper's workloads on a modelled {}", args.drive), STYLE);
    let facts = [
        (
            "drive",
            format!("{}, modelled; {} real seconds to one of its own", args.drive, figure(args.time_scale)),
        ),
        (
            "volume",
            format!("{}; through the kernel: FUSE, loop device, ext2", crate::mkfs2::bytes(args.size)),
        ),
        ("sizes", format!("preset {}, scale {}, seed {}", args.preset, args.scale, args.seed)),
        ("runs", format!("{} of each system, each cold; ext2 is the mean of its runs", args.runs)),
    ];
    out += "<dl>\n";
    for (name, value) in facts {
        out += &format!("<dt>{name}</dt><dd>{}</dd>\n", escape(&value));
    }
    out += "</dl>\n";
    for outcome in outcomes {
        let (number, name) = table_of(outcome.workload);
        out += &format!("<h2>Table {number}: {}</h2>\n{}", escape(name), table(outcome));
        let key =
            [swatch("seek", "seek"), swatch("rotation", "rotation"), swatch("transfer", "transfer")].concat();
        let panels = [
            ("access time".to_owned(), parts(outcome, false)),
            ("energy of an access: seek, and the rest".to_owned(), parts(outcome, true)),
        ];
        figure_of(
            &mut out,
            &format!("{name}: access time and energy by run (figures 10, 11, 13 to 15)"),
            &key,
            &panels,
            "Means of all accesses of a run, the daemon's own included.",
        );
        let access =
            |d: &Document| -> Vec<f64> { d.measured().filter_map(|r| r.drive.as_ref()?.t_a_ms).collect() };
        let panels = [
            ("run time".to_owned(), means(outcome, "seconds a run", |d| d.figure("elapsed_s"))),
            ("access time".to_owned(), means(outcome, "ms an access", access)),
        ];
        figure_of(
            &mut out,
            &format!("{name}: means of all runs"),
            "",
            &panels,
            "The line across a bar\u{2019}s end is the 95 % interval (Student\u{2019}s t). Policies learn from run to run, \
             which their intervals contain.",
        );
        let all = || {
            outcome.systems.iter().flat_map(|m| m.accesses.iter().map(move |(run, a)| (m.system, *run, a)))
        };
        let most = |get: fn(&Access) -> f64| all().flat_map(|(_, _, a)| a).map(get).fold(0.0, f64::max);
        let (last_s, end, longest) = (most(|a| a.at_s), most(|a| a.sector as f64) as u64, most(|a| a.ms));
        if end == 0 {
            continue;
        }
        let mut panels = Vec::new();
        // Of ext2 the last run alone: it does not learn.
        for (system, run, accesses) in all().filter(|(s, run, _)| *s != System::Ext2 || *run == args.runs) {
            let title = format!("{}, run {run}", system.name());
            panels.push((
                title.clone(),
                sectors(accesses, last_s, end, &format!("Dots: the address of each read over time; {title}")),
            ));
            panels.push((
                title.clone(),
                distances(accesses, end, longest, &format!("Dots: access time by seek distance; {title}")),
            ));
        }
        figure_of(
            &mut out,
            &format!("{name}: where the reads go, and what they cost (figures 9 and 12)"),
            "",
            &panels,
            &format!(
                "A dot is a read of the file system; of more than {DOTS_MAX} every second, third and so on."
            ),
        );
    }
    out + page::END
}

#[cfg(test)]
mod tests {
    use super::super::tables::tests::{args, outcome};
    use super::*;
    use crate::report::page::check::{asks_for_nothing, elements};

    #[test]
    fn the_page_is_whole_and_asks_for_nothing() {
        let html = page(&[outcome()], &args());
        asks_for_nothing(&html);
        // Three swatches, two pictures of bars by run and two of means, two of dots for ext2 and four for FS2.
        assert_eq!(elements(&html).iter().filter(|n| *n == "svg").count(), 2 * (3 + 2 + 2 + 2 + 4));
        assert!(html.contains("the paper") && html.contains("Table 3"));
    }

    #[test]
    fn nothing_recorded_leaves_no_empty_picture() {
        let mut one = outcome();
        one.systems.iter_mut().for_each(|m| m.accesses.clear());
        assert!(!page(&[one], &args()).contains("figures 9 and 12"));
        elements(&page(&[], &args()));
    }
}
