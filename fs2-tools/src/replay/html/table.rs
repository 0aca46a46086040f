//! The figures of the page.

use std::fmt::Write;

use crate::replay::run::report::{BoundFigures, Figures, PolicyFigures, RunFigures};
use crate::report::page::escape;
use crate::report::summary::{change, figure};

/// Of more runs than this those in the middle are left out of the page; JSON has them.
const RUNS_MAX: usize = 20;

/// A head, what its figures are in, and the figures of a run.
type Column = (&'static str, &'static str, fn(&RunFigures) -> String);

/// How long things took.
const TIMES: [Column; 11] = [
    ("requests", "", |r| r.requests.to_string()),
    ("reads", "", |r| r.reads.to_string()),
    ("T<sub>A</sub>, reads", "ms", |r| three(r.t_a_reads_ms)),
    ("T<sub>s</sub>", "ms", |r| three(r.t_s_reads_ms)),
    ("T<sub>r</sub>", "ms", |r| three(r.t_r_reads_ms)),
    ("T<sub>t</sub>", "ms", |r| three(r.t_t_reads_ms)),
    ("p99 of T<sub>A</sub>", "ms", |r| fig(r.p99_reads_ms)),
    ("T<sub>A</sub>, all", "ms", |r| three(r.t_a_ms)),
    ("response", "ms", |r| fig(r.response_ms)),
    ("its p99", "ms", |r| fig(r.p99_response_ms)),
    ("behind copies", "ms", |r| three(r.wait_behind_copies_ms)),
];

/// What the drive did, and the copies.
const REST: [Column; 9] = [
    ("reads", "", |r| r.reads.to_string()),
    ("cache hits", "%", |r| one(r.cache_hit_percent)),
    ("busy", "%", |r| one(r.busy_percent)),
    ("energy", "mJ", |r| fig(r.energy_mj_per_access)),
    ("in all", "J", |r| fig(Some(r.energy_total_j))),
    ("run", "s", |r| fig(Some(r.elapsed_s))),
    ("copied", "%", |r| one(r.copy_percent)),
    ("copies", "blocks", |r| r.replicas.to_string()),
    ("of B2o", "%", |r| share(r)),
];

/// Where there is no figure.
const DASH: &str = "–";

fn three(x: Option<f64>) -> String {
    digits(x, 3)
}

fn one(x: Option<f64>) -> String {
    digits(x, 1)
}

fn digits(x: Option<f64>, n: usize) -> String {
    match x {
        Some(x) if x.is_finite() => format!("{x:.n$}"),
        Some(_) => "?".to_owned(),
        None => DASH.to_owned(),
    }
}

fn fig(x: Option<f64>) -> String {
    x.map_or(DASH.to_owned(), figure)
}

fn share(r: &RunFigures) -> String {
    r.share_percent.map_or(DASH.to_owned(), |s| format!("{s:.0}"))
}

/// A table: heads (HTML) with units, then rows of cells; the first cell is a name.
fn table(heads: &[(&str, &str)], rows: &[(bool, Vec<String>)]) -> String {
    let mut out = "<div class=\"wide\"><table>\n<thead><tr>".to_owned();
    for (name, unit) in heads {
        let unit = if unit.is_empty() { String::new() } else { format!("<br><small>{unit}</small>") };
        let _ = write!(out, "<th scope=\"col\">{name}{unit}</th>");
    }
    out += "</tr></thead>\n<tbody>\n";
    for (begins, cells) in rows {
        out += if *begins { "<tr class=\"first\">" } else { "<tr>" };
        for (i, cell) in cells.iter().enumerate() {
            let cell = escape(cell);
            let _ = if i == 0 {
                write!(out, "<th scope=\"row\">{cell}</th>")
            } else {
                write!(out, "<td>{cell}</td>")
            };
        }
        out += "</tr>\n";
    }
    out + "</tbody>\n</table></div>\n"
}

/// One row a policy: its last run, against `none`'s.
pub(super) fn summary(figures: &Figures) -> String {
    let none = figures.policies.iter().find(|p| p.name == "none").and_then(PolicyFigures::last);
    let heads = [
        ("last run", ""),
        ("T<sub>A</sub>, reads", "ms"),
        ("against none", ""),
        ("of B2o", "%"),
        ("T<sub>s</sub>", "ms"),
        ("T<sub>r</sub>", "ms"),
        ("T<sub>t</sub>", "ms"),
        ("p99 of T<sub>A</sub>", "ms"),
        ("response", "ms"),
        ("energy", "mJ"),
        ("copied", "%"),
        ("first run", "ms"),
        ("single pass", "ms"),
        ("of its B2o", "%"),
    ];
    let row = |p: &PolicyFigures| {
        let last = p.last()?;
        let against = none.filter(|_| p.name != "none");
        let against = against.and_then(|n| change(n.t_a_reads_ms?, last.t_a_reads_ms?));
        Some(vec![
            p.name.clone(),
            three(last.t_a_reads_ms),
            against.unwrap_or(DASH.into()),
            share(last),
            three(last.t_s_reads_ms),
            three(last.t_r_reads_ms),
            three(last.t_t_reads_ms),
            fig(last.p99_reads_ms),
            fig(last.response_ms),
            fig(last.energy_mj_per_access),
            one(last.copy_percent),
            p.first().map_or(String::new(), |r| three(r.t_a_reads_ms)),
            three(p.single_pass.t_a_reads_ms),
            share(&p.single_pass),
        ])
    };
    let rows: Vec<_> = figures.policies.iter().filter_map(row).map(|r| (false, r)).collect();
    table(&heads, &rows)
}

/// Which of so many runs are shown.
fn shown(runs: usize) -> impl Iterator<Item = usize> {
    (0..runs).filter(move |i| runs <= RUNS_MAX || *i < RUNS_MAX / 2 || *i >= runs - RUNS_MAX / 2)
}

/// Every figure of every run, and of the single pass, in two tables.
pub(super) fn all(figures: &Figures) -> String {
    let mut out = of_runs(figures, &TIMES) + &of_runs(figures, &REST);
    let most = figures.policies.iter().map(|p| p.runs.len()).max().unwrap_or(0);
    if most > RUNS_MAX {
        let _ = writeln!(out, "<p>The first ten and the last ten of {most} runs; JSON has all.</p>");
    }
    out
}

fn of_runs(figures: &Figures, columns: &[Column]) -> String {
    let mut heads = vec![("run", "")];
    heads.extend(columns.iter().map(|(name, unit, _)| (*name, *unit)));
    let cells = |name: String, r: &RunFigures| {
        let mut row = vec![name];
        row.extend(columns.iter().map(|(_, _, cell)| cell(r)));
        row
    };
    let mut rows = Vec::new();
    for p in &figures.policies {
        for i in shown(p.runs.len()) {
            rows.push((i == 0, cells(format!("{} {}", p.name, i + 1), &p.runs[i])));
        }
        rows.push((p.runs.is_empty(), cells(format!("{} single", p.name), &p.single_pass)));
    }
    table(&heads, &rows)
}

/// The bounds.
pub(super) fn bounds(figures: &Figures) -> String {
    let heads = [
        ("run", ""),
        ("reads", ""),
        ("reused", "%"),
        ("in order", "%"),
        ("B0", "ms"),
        ("B1", "ms"),
        ("B2 reuse", "ms"),
        ("strict", "ms"),
        ("B2 reuse-w", "ms"),
        ("strict", "ms"),
        ("B2o", "ms"),
    ];
    let row = |name: String, b: &BoundFigures| {
        let mut row =
            vec![name, b.reads.to_string(), one(b.reused_percent), one(b.in_order_percent), three(b.b0)];
        let rest = [b.b1, b.b2_reuse, b.b2_reuse_strict, b.b2_reuse_w, b.b2_reuse_w_strict, b.b2_order];
        row.extend(rest.map(three));
        (false, row)
    };
    let runs = &figures.bounds.runs;
    let mut rows: Vec<_> = shown(runs.len()).map(|i| row((i + 1).to_string(), &runs[i])).collect();
    rows.push(row("single".to_owned(), &figures.bounds.single_pass));
    table(&heads, &rows)
}
