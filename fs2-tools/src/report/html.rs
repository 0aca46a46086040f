//! The report as one page that asks for nothing else.

use super::page::{self, escape};
use super::paint::Fault;
use super::summary::{figure, percent, sentences, setting, sorted};
use super::{DemoReport, System, address, bars};

/// A picture, or why there is none.
type Drawn = Result<Option<String>, Fault>;

/// Name, heading, caption and drawing of each picture.
fn pictures(report: &DemoReport) -> Vec<(&'static str, &'static str, String, Drawn)> {
    let runs = |drawn: Result<String, Fault>| {
        if report.runs.is_empty() { Ok(None) } else { drawn.map(Some) }
    };
    let dots = "A dot is a read: when it came, and where on the volume it went. Both panels have the same \
                scales."
        .to_string();
    vec![
        (
            "access",
            "What an access takes",
            "Mean of all reads of a run: seek, rotational latency, transfer.".into(),
            runs(bars::access(report)),
        ),
        (
            "energy",
            "Energy",
            "Of all accesses of a run, by the drive's power when it seeks and when it does not.".into(),
            runs(bars::energy(report)),
        ),
        (
            "elapsed",
            "The workload's time",
            "From the first request of a run to its last answer, thinking time included.".into(),
            runs(bars::elapsed(report)),
        ),
        ("addresses", "Where the reads go", dots + &address::caption(report), address::addresses(report)),
    ]
}

/// The pictures alone, each with a name for its file (without ending). Those without data are left
/// out.
///
/// # Errors
/// What plotters says when it cannot draw; figures that are not finite are drawn as none.
pub fn render_svgs(report: &DemoReport) -> Result<Vec<(&'static str, String)>, Fault> {
    let mut out = Vec::new();
    for (name, _, _, drawn) in pictures(report) {
        out.extend(drawn?.map(|svg| (name, svg)));
    }
    Ok(out)
}

/// One HTML file: figures, pictures, notes. It makes no request, needs no script, and follows the
/// reader's choice of light or dark.
pub fn render_html(report: &DemoReport) -> String {
    let mut out = page::begin(
        &report.title,
        "td:nth-child(2){text-align:left;border-left:4px solid var(--ext2);padding-left:8px}\
         .fs2row td:nth-child(2){border-left-color:var(--fs2)}th:nth-child(2){text-align:left}\n",
    );
    let told = sentences(report);
    if !told.is_empty() {
        let told: Vec<String> = told.iter().map(|s| escape(&s.replace("FS2", "FS²"))).collect();
        out += &format!("<p class=\"sum\">{}</p>\n", told.join(" "));
    }
    let facts = setting(report);
    if !facts.is_empty() {
        out += "<dl>\n";
        for (name, value) in facts {
            out += &format!("<dt>{name}</dt><dd>{}</dd>\n", escape(&value));
        }
        out += "</dl>\n";
    }
    for (name, heading, caption, drawn) in pictures(report) {
        let picture = match drawn {
            Ok(Some(svg)) => svg,
            Ok(None) => continue,
            Err(e) => format!("<p>This picture could not be drawn: {}</p>", escape(&e.to_string())),
        };
        let caption = escape(&caption);
        out += &format!("<h2>{heading}</h2>\n<figure id=\"{name}\">\n");
        out +=
            &format!("<div class=\"pic\">{picture}</div>\n<figcaption>{caption}</figcaption>\n</figure>\n");
    }
    out += &table(report);
    if !report.notes.is_empty() {
        out += "<h2>Notes</h2>\n<ul>\n";
        for note in &report.notes {
            out += &format!("<li>{}</li>\n", escape(note));
        }
        out += "</ul>\n";
    }
    out + page::END
}

fn table(report: &DemoReport) -> String {
    let mut out = "<h2>All figures</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>run</th><th>system</th>\
                   <th>reads</th><th>from replicas</th><th>access, ms</th><th>seek, ms</th>\
                   <th>rotation, ms</th><th>transfer, ms</th><th>99 % within, ms</th><th>energy, J</th>\
                   <th>time, s</th></tr></thead>\n<tbody>\n"
        .to_string();
    for r in sorted(report) {
        let replica = if r.system == System::Ext2 { "–".into() } else { percent(r.from_replica, r.reads) };
        let class = if r.system == System::Ext2 { "plain" } else { "fs2row" };
        out += &format!("<tr class=\"{class}\"><td>{}</td><td>{}</td>", r.run, r.system.pretty());
        out += &format!("<td>{}</td><td>{replica}</td>", r.reads);
        for value in [r.access_ms, r.seek_ms, r.rotation_ms, r.transfer_ms, r.p99_ms, r.energy_j, r.elapsed_s]
        {
            out += &format!("<td>{}</td>", figure(value));
        }
        out += "</tr>\n";
    }
    if report.runs.is_empty() {
        out += "<tr><td colspan=\"11\">no run was made</td></tr>\n";
    }
    out + "</tbody>\n</table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::check::{asks_for_nothing, elements};
    use crate::report::sample;

    #[test]
    fn the_page_is_whole_and_asks_for_nothing() {
        let html = render_html(&sample::report());
        let seen = elements(&html);
        assert_eq!(seen.iter().filter(|n| *n == "svg").count(), 2 * 4);
        asks_for_nothing(&html);
    }

    #[test]
    fn no_text_is_cut_off() {
        for by in [1e-3, 0.02, 0.37, 1.0, 3.3, 47.0, 1e3, 1e4] {
            let mut report = sample::report();
            for r in &mut report.runs {
                (r.seek_ms, r.energy_j, r.elapsed_s) = (r.seek_ms * by, r.energy_j * by, r.elapsed_s * by);
            }
            report
                .addresses
                .iter_mut()
                .flat_map(|s| &mut s.points)
                .for_each(|p| *p = (p.0 * by, (p.1 as f64 * by) as u64));
            report.image.bytes = (report.image.bytes as f64 * by) as u64;
            asks_for_nothing(&render_html(&report));
        }
    }

    #[test]
    fn foreign_text_stays_text() {
        let mut report = sample::report();
        let evil = "<script>alert(\"1\")</script>'&".to_string();
        for text in [&mut report.title, &mut report.machine_note, &mut report.drive, &mut report.frontend] {
            *text = evil.clone();
        }
        report.notes = vec![evil.clone()];
        let html = render_html(&report);
        assert!(!elements(&html).iter().any(|n| n == "script"));
        assert_eq!(html.matches("&lt;script&gt;").count(), 6, "title twice, three facts, a note");
    }

    /// Every colour plotters writes has a dark counterpart.
    #[test]
    fn dark_paper_leaves_nothing_dark_on_it() {
        for (name, svg) in render_svgs(&sample::report()).unwrap() {
            for attribute in ["fill=\"#", "stroke=\"#"] {
                for (at, _) in svg.match_indices(attribute) {
                    let color = &svg[at + attribute.len() - 1..][..7];
                    let rule = format!("{attribute}{}\"]{{", &color[1..]);
                    assert!(svg.contains(&rule), "{name}: {color} has no rule");
                }
            }
        }
    }

    #[test]
    fn figures_that_are_none_break_nothing() {
        let mut report = sample::report();
        for (r, bad) in report.runs.iter_mut().zip([f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300]) {
            (r.seek_ms, r.energy_j, r.elapsed_s) = (bad, bad, bad);
        }
        report.addresses[0].points.extend([(f64::NAN, 5), (f64::INFINITY, 6), (-1.0, u64::MAX)]);
        elements(&render_html(&report));
        assert_eq!(render_svgs(&report).unwrap().len(), 4);
        elements(&render_html(&DemoReport::default()));
        assert!(render_svgs(&DemoReport::default()).unwrap().is_empty());
    }
}
