//! Pictures with two bars a run: ext2 on the left, FS² on the right.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::paint::{
    EXT2, FAINT, FS2, Fault, GRID, INK, ROTATION, SEEK, TRANSFER, at, axis_number, legend, picture, text,
};
use super::summary::{figure, sorted};
use super::{DemoReport, RunRow, System};

/// A bar's parts from below, each with its colour.
type Parts = Vec<(f64, RGBColor)>;

/// Mean access time a run, its parts stacked.
pub(super) fn access(report: &DemoReport) -> Result<String, Fault> {
    let parts = |r: &RunRow| vec![(r.transfer_ms, TRANSFER), (r.rotation_ms, ROTATION), (r.seek_ms, SEEK)];
    let names = [("seek", SEEK), ("rotation", ROTATION), ("transfer", TRANSFER)];
    bars(report, "ms an access", "mean access time", &names, parts)
}

/// Energy a run.
pub(super) fn energy(report: &DemoReport) -> Result<String, Fault> {
    plain(report, "J a run", "energy", |r| r.energy_j)
}

/// Wall clock a run.
pub(super) fn elapsed(report: &DemoReport) -> Result<String, Fault> {
    plain(report, "s a run", "time the workload took", |r| r.elapsed_s)
}

fn plain(
    report: &DemoReport,
    unit: &str,
    what: &str,
    value: impl Fn(&RunRow) -> f64,
) -> Result<String, Fault> {
    bars(report, unit, what, &[("ext2", EXT2), ("FS²", FS2)], |r| {
        let color = if r.system == System::Ext2 { EXT2 } else { FS2 };
        vec![(value(r), color)]
    })
}

/// What has no height is drawn without.
fn height(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

fn bars(
    report: &DemoReport,
    unit: &str,
    what: &str,
    names: &[(&str, RGBColor)],
    parts: impl Fn(&RunRow) -> Parts,
) -> Result<String, Fault> {
    let rows: Vec<(RunRow, Parts, f64)> = sorted(report)
        .into_iter()
        .map(|r| {
            let parts: Parts = parts(&r).into_iter().map(|(v, c)| (height(v), c)).collect();
            let sum = parts.iter().map(|(v, _)| v).sum();
            (r, parts, sum)
        })
        .collect();
    let mut runs: Vec<u32> = rows.iter().map(|(r, _, _)| r.run).collect();
    runs.dedup();
    let top = rows.iter().map(|(_, _, sum)| *sum).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.12 } else { 1.0 };
    // Room for two labels a run.
    let width = (runs.len() as u32).saturating_mul(84).clamp(860, 8000);
    let told: Vec<String> = rows
        .iter()
        .map(|(r, _, sum)| format!("run {} {} {}", r.run, r.system.pretty(), figure(*sum)))
        .collect();
    let say = format!("Bars: {what} in {unit}; {}", told.join(", "));
    picture((width, 330), &say, |root| {
        legend(root, 62, 16, names)?;
        let mut chart = ChartBuilder::on(root)
            .margin_top(34)
            .margin_right(10)
            .margin_bottom(44)
            .margin_left(6)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..runs.len().max(1) as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .y_labels(6)
            .y_label_formatter(&|v| axis_number(*v))
            .label_style(text(12.0, FAINT, at(HPos::Left, VPos::Top)))
            .y_desc(unit)
            .axis_desc_style(text(12.0, FAINT, at(HPos::Left, VPos::Top)))
            .draw()?;
        for (r, parts, sum) in &rows {
            let group = runs.iter().position(|n| *n == r.run).unwrap_or(0) as f64;
            let left = group + if r.system == System::Ext2 { 0.14 } else { 0.52 };
            let right = left + 0.34;
            let mut low = 0.0;
            for (value, color) in parts {
                let bar = [(left, low), (right, low + value)];
                chart.draw_series([Rectangle::new(bar, color.filled())])?;
                low += value;
            }
            let (x, y) = chart.backend_coord(&((left + right) / 2.0, *sum));
            root.draw_text(&figure(*sum), &text(11.0, INK, at(HPos::Center, VPos::Bottom)), (x, y - 3))?;
            let (x, y) = chart.backend_coord(&((left + right) / 2.0, 0.0));
            root.draw_text(r.system.pretty(), &text(11.0, INK, at(HPos::Center, VPos::Top)), (x, y + 6))?;
        }
        for (group, run) in runs.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            let style = text(12.0, FAINT, at(HPos::Center, VPos::Top));
            root.draw_text(&format!("run {run}"), &style, (x, y + 24))?;
        }
        Ok(())
    })
}
