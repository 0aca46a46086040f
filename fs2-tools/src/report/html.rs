//! The report as one page that asks for nothing else.

use super::paint::{EXT2, FAINT, FS2, Fault, GRID, INK, PAPER, hex};
use super::summary::{figure, percent, sentences, setting, sorted};
use super::{DemoReport, System, address, bars};

/// A picture, or why there is none.
type Drawn = Result<Option<String>, Fault>;

/// `text` as HTML, in elements and attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

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
    let title = escape(&report.title);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n{}\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        style()
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
    out + "</main>\n</body>\n</html>\n"
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

fn style() -> String {
    let (ink, faint, line) = (hex(INK), hex(FAINT), hex(GRID));
    let (ext2, fs2) = (hex(EXT2), hex(FS2));
    let [paper, dark] = PAPER;
    format!(
        "<style>\n:root{{color-scheme:light dark;--ink:{ink};--faint:{faint};--line:{line};--paper:{paper};\
         --back:#f4f6f8}}\n\
         @media screen and (prefers-color-scheme:dark){{:root{{--ink:#e3e8ee;--faint:#9aa5b1;--line:#2c343d;\
         --paper:{dark};--back:#0d1117}}}}\n\
         body{{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}}\n\
         main{{max-width:920px;margin:0 auto;padding:24px 16px 64px}}\n\
         h1{{font-size:1.6rem;line-height:1.25;margin:0 0 .5em}}h2{{font-size:1.1rem;margin:2em 0 .5em}}\n\
         .sum{{font-size:1.05rem}}\n\
         dl{{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:1em 0;font-size:.9rem}}\n\
         dt{{color:var(--faint)}}dd{{margin:0;overflow-wrap:anywhere}}\n\
         figure{{margin:0;padding:12px;background:var(--paper);border:1px solid var(--line);border-radius:8px}}\n\
         .pic{{overflow-x:auto}}.pic svg{{display:block;max-width:100%;min-width:640px;height:auto}}\n\
         figcaption{{color:var(--faint);font-size:.85rem;padding-top:8px}}\n\
         .wide{{overflow-x:auto}}table{{border-collapse:collapse;width:100%;font-size:.85rem;\
         font-variant-numeric:tabular-nums;background:var(--paper)}}\n\
         th,td{{text-align:right;padding:4px 8px;border-bottom:1px solid var(--line)}}\
         th{{font-weight:600;vertical-align:bottom}}\n\
         td:nth-child(2){{text-align:left;border-left:4px solid {ext2};padding-left:8px}}\
         .fs2row td:nth-child(2){{border-left-color:{fs2}}}th:nth-child(2){{text-align:left}}\n\
         @media print{{body{{background:none}}figure,tr{{break-inside:avoid}}\
         table{{font-size:.65rem}}th,td{{padding:2px 3px}}}}\n</style>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// The elements of `html` in order; panics where they are not closed in order. Knows no more
    /// than what this page uses: no comments, no optional end tags, no `>` in attributes.
    fn elements(html: &str) -> Vec<String> {
        let mut open = Vec::new();
        let mut seen = Vec::new();
        let mut rest = html;
        while let Some(start) = rest.find('<') {
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            let name: String =
                tag.trim_start_matches('/').chars().take_while(|c| c.is_alphanumeric()).collect();
            if tag.starts_with('!') || tag.starts_with('?') || name == "meta" || tag.ends_with('/') {
            } else if tag.starts_with('/') {
                assert_eq!(open.pop().as_ref(), Some(&name), "before {}", &rest[..rest.len().min(80)]);
            } else {
                open.push(name.clone());
            }
            seen.push(name);
        }
        assert!(open.is_empty(), "not closed: {open:?}");
        seen
    }

    #[test]
    fn the_page_is_whole_and_asks_for_nothing() {
        let html = render_html(&sample::report());
        let seen = elements(&html);
        assert_eq!(seen.iter().filter(|n| *n == "svg").count(), 2 * 4);
        for never in ["script", "link", "img", "iframe", "object", "image", "use", "a"] {
            assert!(!seen.iter().any(|n| n == never), "{never}");
        }
        let html = html.replace("http://www.w3.org/2000/svg", "");
        for never in ["http:", "https:", "url(", "@import", "src=", "href="] {
            assert!(!html.contains(never), "{never}");
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
