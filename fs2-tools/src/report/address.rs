//! The picture of addresses over time: two panels with the same scales.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::paint::{EXT2, FAINT, FS2, Fault, GRID, INK, at, axis_number, picture, text};
use super::{AddressSeries, DemoReport, System};

/// Dots a panel at most: a page stays below a megabyte.
const DOTS_MAX: usize = 4000;

/// Bytes of a sector.
const SECTOR_BYTES: f64 = 512.0;

/// The first and the last run of FS²; with one of these only, ext2's last run before it.
fn panels(report: &DemoReport) -> Vec<&AddressSeries> {
    let of = |system| {
        let mut all: Vec<_> = report.addresses.iter().filter(|s| s.system == system).collect();
        all.sort_by_key(|s| s.run);
        all
    };
    let (ext2, fs2) = (of(System::Ext2), of(System::Fs2));
    match (ext2.as_slice(), fs2.as_slice()) {
        (_, [first, .., last]) | ([.., first], [last]) | ([first, .., last], []) => vec![first, last],
        (one, other) => one.iter().chain(other).copied().collect(),
    }
}

/// How many reads one dot stands for.
fn thinning(series: &AddressSeries) -> usize {
    series.points.len().div_ceil(DOTS_MAX).max(1)
}

/// What the caption must say about dots left out; nothing where each read has one.
pub(super) fn caption(report: &DemoReport) -> String {
    if panels(report).into_iter().all(|s| thinning(s) == 1) {
        return String::new();
    }
    format!(" Of a run with more than {DOTS_MAX} reads only every second, third and so on is drawn.")
}

/// The picture, or none where no addresses were recorded.
pub(super) fn addresses(report: &DemoReport) -> Result<Option<String>, Fault> {
    let panels = panels(report);
    if panels.iter().all(|s| s.points.is_empty()) {
        return Ok(None);
    }
    let seconds =
        |s: &AddressSeries| s.points.iter().map(|p| p.0).filter(|t| t.is_finite()).fold(0.0, f64::max);
    let last = panels.iter().map(|s| seconds(s)).fold(0.0, f64::max);
    let last = if last > 0.0 { last * 1.01 } else { 1.0 };
    let highest = panels.iter().flat_map(|s| &s.points).map(|p| p.1).max().unwrap_or(0);
    let end = ((highest as f64 + 1.0) * SECTOR_BYTES).max(report.image.bytes as f64);
    let (unit, unit_bytes) =
        if end >= 2.0 * 1073741824.0 { ("GiB", 1073741824.0) } else { ("MiB", 1048576.0) };
    let names: Vec<String> = panels.iter().map(|s| format!("{}, run {}", s.system.pretty(), s.run)).collect();
    let say = format!("Dots: the address of each read over time; {}", names.join(" and "));
    let svg = picture((860, 380), &say, |root| {
        let areas = root.split_evenly((1, panels.len()));
        for ((area, series), name) in areas.iter().zip(&panels).zip(&names) {
            let mut chart = ChartBuilder::on(area)
                .margin_top(34)
                .margin_right(14)
                .margin_bottom(4)
                .margin_left(6)
                .x_label_area_size(40)
                .y_label_area_size(56)
                .build_cartesian_2d(0.0..last, 0.0..end / unit_bytes)?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(GRID)
                .axis_style(GRID)
                .x_labels(6)
                .y_labels(8)
                .x_label_formatter(&|v| axis_number(*v))
                .y_label_formatter(&|v| axis_number(*v))
                .label_style(text(12.0, FAINT, at(HPos::Left, VPos::Top)))
                .x_desc("seconds")
                .y_desc(format!("address in {unit}"))
                .axis_desc_style(text(12.0, FAINT, at(HPos::Left, VPos::Top)))
                .draw()?;
            let color = if series.system == System::Ext2 { EXT2 } else { FS2 };
            let dots = series.points.iter().step_by(thinning(series)).filter(|p| p.0.is_finite());
            chart.draw_series(dots.map(|(t, sector)| {
                Circle::new((*t, *sector as f64 * SECTOR_BYTES / unit_bytes), 1, color.filled())
            }))?;
            area.draw_text(name, &text(13.0, INK, at(HPos::Left, VPos::Center)), (62, 17))?;
        }
        Ok(())
    })?;
    Ok(Some(svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(all: &[(System, u32)]) -> DemoReport {
        let series =
            |(system, run): &(System, u32)| AddressSeries { system: *system, run: *run, points: vec![] };
        DemoReport { addresses: all.iter().map(series).collect(), ..DemoReport::default() }
    }

    #[test]
    fn which_runs_are_drawn() {
        use System::{Ext2, Fs2};
        let of = |all: &[(System, u32)]| -> Vec<(System, u32)> {
            panels(&report(all)).into_iter().map(|s| (s.system, s.run)).collect()
        };
        assert_eq!(of(&[(Fs2, 7), (Ext2, 1), (Fs2, 1), (Fs2, 3)]), [(Fs2, 1), (Fs2, 7)]);
        assert_eq!(of(&[(Fs2, 7), (Ext2, 1), (Ext2, 2)]), [(Ext2, 2), (Fs2, 7)]);
        assert_eq!(of(&[(Ext2, 1), (Ext2, 2)]), [(Ext2, 1), (Ext2, 2)]);
        assert_eq!(of(&[(Fs2, 2)]), [(Fs2, 2)]);
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn no_panel_has_more_dots_than_its_bound() {
        let mut report = report(&[(System::Fs2, 1), (System::Fs2, 2)]);
        for (series, n) in report.addresses.iter_mut().zip([8001u64, 4000]) {
            series.points = (0..n).map(|k| (k as f64, k * 8)).collect();
        }
        let svg = addresses(&report).unwrap().unwrap();
        assert_eq!(svg.matches("<circle").count(), 8001usize.div_ceil(3) + 4000);
        assert!(caption(&report).contains("more than 4000 reads"));
        report.addresses[0].points.truncate(10);
        assert_eq!(caption(&report), "");
    }
}
