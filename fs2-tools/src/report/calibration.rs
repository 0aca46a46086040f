//! A calibration as a page: access time over distance with the fitted curve, rate over address.

use fs2_disk::calibrate::Calibration;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::page::{self, escape};
use super::paint::{Area, EXT2, FAINT, FS2, Fault, GRID, SEEK, at, axis_number, legend, picture, text};

/// Sectors in a GiB (2³⁰ bytes).
const GIB: f64 = 2_097_152.0;

fn highest(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|v| v.is_finite()).fold(0.0, f64::max).max(1e-3)
}

/// A chart's frame: axes from 0, and `draw` into it.
fn chart(
    root: &Area<'_>,
    (right, top): (f64, f64),
    (below, beside): (&str, &str),
    draw: impl FnOnce(
        &mut ChartContext<
            '_,
            SVGBackend<'_>,
            Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
        >,
    ) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut chart = ChartBuilder::on(root)
        .margin_top(34)
        .margin_right(14)
        .margin_bottom(4)
        .margin_left(6)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&|v| axis_number(*v))
        .y_label_formatter(&|v| axis_number(*v))
        .label_style(text(12.0, FAINT, at(HPos::Left, VPos::Top)))
        .x_desc(below)
        .y_desc(beside)
        .axis_desc_style(text(12.0, FAINT, at(HPos::Left, VPos::Top)))
        .draw()?;
    draw(&mut chart)
}

fn seeks(c: &Calibration) -> Result<String, Fault> {
    let right = highest(c.seeks.iter().map(|s| s.distance as f64 / GIB)) * 1.02;
    let turn = c.profile.turn().as_millis_f64();
    let top = highest(c.seeks.iter().map(|s| s.ms + turn)) * 1.05;
    picture((860, 400), "Access time over seek distance, and the fitted curve", |root| {
        legend(root, 62, 17, &[("an access", EXT2), ("overhead and arm, measured", FS2), ("fitted", SEEK)])?;
        chart(root, (right, top), ("distance in GiB", "ms"), |chart| {
            let accesses = c.seeks.iter().flat_map(|s| {
                s.accesses_ms
                    .iter()
                    .filter(|ms| (0.0..=top).contains(*ms))
                    .map(|ms| (s.distance as f64 / GIB, *ms))
            });
            chart.draw_series(accesses.map(|p| Circle::new(p, 1, EXT2.filled())))?;
            let overhead = c.seeks.first().map_or(0.0, |s| {
                s.fitted_ms - c.profile.seek_curve().map_or(0.0, |curve| curve.millis(s.distance))
            });
            let line = (1..=400).filter_map(|i| {
                let x = right * f64::from(i) / 400.0;
                let ms = c.profile.seek_curve()?.millis((x * GIB) as u64) + overhead;
                Some((x, ms.min(top)))
            });
            chart.draw_series(LineSeries::new(line, SEEK.stroke_width(2)))?;
            let points = c.seeks.iter().map(|s| (s.distance as f64 / GIB, s.ms));
            chart.draw_series(points.map(|p| Circle::new(p, 3, FS2.filled())))?;
            Ok(())
        })
    })
}

fn rates(c: &Calibration) -> Result<String, Fault> {
    let right = c.profile.capacity_sectors() as f64 / GIB;
    let top = highest(c.rates.iter().map(|r| r.mb_s.max(r.fitted_mb_s))) * 1.1;
    picture((860, 320), "Rate of reading in one go over the address, and the fitted zones", |root| {
        legend(root, 62, 17, &[("measured", FS2), ("fitted", SEEK)])?;
        chart(root, (right, top), ("address in GiB", "10⁶ bytes a second"), |chart| {
            let fitted: Vec<(f64, f64)> =
                c.rates.iter().map(|r| (r.sector as f64 / GIB, r.fitted_mb_s)).collect();
            chart.draw_series(LineSeries::new(fitted, SEEK.stroke_width(2)))?;
            let points = c.rates.iter().map(|r| (r.sector as f64 / GIB, r.mb_s));
            chart.draw_series(points.map(|p| Circle::new(p, 3, FS2.filled())))?;
            Ok(())
        })
    })
}

/// One HTML file that asks for nothing else; `device` is foreign text.
pub fn render_calibration(device: &str, c: &Calibration) -> String {
    let mut out = page::begin(&format!("Calibration of {device}"), "");
    let figures: Vec<(&str, String)> = match c.profile.rpm() {
        None => vec![],
        Some(rpm) => vec![
            ("rotation", format!("{rpm:.1} rpm")),
            ("mean seek", format!("{:.2} ms", c.profile.mean_seek().as_millis_f64())),
            ("seek curve", format!("off by {:.0} µs (root mean square)", c.seek_residual_us)),
            ("rates", format!("off by {:.2} % at most", c.rate_residual_percent)),
        ],
    };
    out += "<dl>\n";
    for (name, value) in figures {
        out += &format!("<dt>{name}</dt><dd>{}</dd>\n", escape(&value));
    }
    out += &format!("<dt>reads</dt><dd>{} in {:.0} s</dd>\n</dl>\n", c.reads, c.elapsed.as_secs_f64());
    let drawn = |draw: Result<String, Fault>| {
        draw.unwrap_or_else(|e| format!("<p>This picture could not be drawn: {}</p>", escape(&e.to_string())))
    };
    let mut figure = |heading: &str, picture: String, caption: &str| {
        out += &format!("<h2>{heading}</h2>\n<figure><div class=\"pic\">{picture}</div>\n");
        out += &format!("<figcaption>{}</figcaption></figure>\n", escape(caption));
    };
    if !c.seeks.is_empty() {
        let caption = "A grey dot is an access: overhead, arm, and a wait of less than a turn. What all of a distance \
                       have in common is the blue dot.";
        figure("Access time over distance", drawn(seeks(c)), caption);
    }
    if !c.rates.is_empty() {
        figure("Rate over address", drawn(rates(c)), "Reads in a row, skews included.");
    }
    out += "<h2>Notes</h2>\n<ul>\n";
    for note in &c.notes {
        out += &format!("<li>{}</li>\n", escape(note));
    }
    out + "</ul>\n" + page::END
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::check::{asks_for_nothing, elements};
    use fs2_block::Nanos;
    use fs2_disk::DriveProfile;
    use fs2_disk::calibrate::{RatePoint, SeekPoint};

    fn calibration() -> Calibration {
        let seek = |distance: u64| SeekPoint {
            distance,
            ms: 3.0,
            fitted_ms: 3.1,
            accesses_ms: vec![3.0, 11.2, f64::NAN, 40.0],
        };
        Calibration {
            profile: DriveProfile::builtin("wd800-repaired").unwrap(),
            seeks: vec![seek(10_000), seek(100_000_000)],
            rates: vec![RatePoint { sector: 5, mb_s: 54.0, fitted_mb_s: 53.0 }],
            seek_residual_us: 9.0,
            rate_residual_percent: 0.5,
            reads: 7,
            elapsed: Nanos(3_000_000_000),
            notes: vec!["<b>bold</b>".into()],
        }
    }

    #[test]
    fn the_page_is_whole_and_asks_for_nothing() {
        let html = render_calibration("/dev/<script>", &calibration());
        asks_for_nothing(&html);
        assert_eq!(elements(&html).iter().filter(|n| *n == "svg").count(), 2 * 2);
        assert!(html.contains("Calibration of /dev/&lt;script&gt;") && html.contains("&lt;b&gt;bold"));
    }

    #[test]
    fn no_text_is_cut_off() {
        for name in DriveProfile::names().filter(|name| DriveProfile::builtin(name).unwrap().rotational()) {
            let (profile, usual) = (DriveProfile::builtin(name).unwrap(), calibration());
            for by in [0.1, 0.99, 1.0, 1.7, 30.0] {
                let distance = (profile.capacity_sectors() as f64 * by) as u64;
                let seeks =
                    vec![SeekPoint { distance, ms: 9.0 * by, fitted_ms: 9.1 * by, accesses_ms: vec![1.0] }];
                let rates = vec![RatePoint { sector: 5, mb_s: 110.0 * by, fitted_mb_s: 100.0 * by }];
                let found = Calibration { profile: profile.clone(), seeks, rates, ..usual.clone() };
                asks_for_nothing(&render_calibration(name, &found));
            }
        }
    }

    #[test]
    fn a_drive_without_an_arm_has_no_pictures() {
        let flat = Calibration {
            profile: DriveProfile::builtin("ssd-sata").unwrap(),
            seeks: vec![],
            rates: vec![],
            ..calibration()
        };
        let html = render_calibration("x", &flat);
        asks_for_nothing(&html);
        assert!(!elements(&html).iter().any(|n| n == "svg"));
    }
}
