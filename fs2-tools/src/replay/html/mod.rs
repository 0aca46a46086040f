//! A replay as one page: figures and pictures, no script, nothing asked for.
//!
//! [`page`] makes it; the pictures are in `pictures`, drawn by `chart`. The
//! page stays below 3 MB whatever was replayed: dots, lines, bars and rows each have a bound.

pub(crate) mod chart;
pub(crate) mod pictures;
mod table;

#[cfg(test)]
mod tests;

use super::run::Results;
use super::run::report::{Figures, PolicyFigures};
use crate::report::page::{self, escape};
use crate::report::summary::{bytes, change, figure};

/// Accesses of a run to keep for the pictures.
pub(super) const DOTS_MAX: usize = 3000;

/// Names of traces that are listed.
const NAMES_MAX: usize = 16;

/// Bytes of a name that are shown.
const NAME_CHARS_MAX: usize = 200;

fn short(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// The page's title.
fn title(figures: &Figures) -> String {
    let name = figures.trace.first().map_or("a trace", |t| t.rsplit('/').next().unwrap_or(t));
    format!("Replay of {} on {}", short(name), short(&figures.drive))
}

/// Policies that the first sentence names; of more, those that did best.
const NAMED_MAX: usize = 4;

/// What came out, in a sentence; nothing where there is nothing to compare with.
fn sentence(figures: &Figures) -> String {
    let none = figures.policies.iter().find(|p| p.name == "none").and_then(PolicyFigures::last);
    let Some((none, from)) = none.and_then(|r| Some((r, r.t_a_reads_ms?))) else { return String::new() };
    let others = figures.policies.iter().filter(|p| p.name != "none").filter_map(|p| {
        let ms = p.last()?.t_a_reads_ms?;
        let change = change(from, ms)?;
        Some((ms, format!("{} ms with {} ({change})", figure(ms), p.name)))
    });
    let mut others: Vec<_> = others.collect();
    let best = if others.len() > NAMED_MAX { "; the best: " } else { ", " };
    if others.len() > NAMED_MAX {
        others.sort_by(|a, b| a.0.total_cmp(&b.0));
        others.truncate(NAMED_MAX);
    }
    let Some((_, last)) = others.pop() else { return String::new() };
    let told: Vec<_> = others.into_iter().map(|o| o.1).collect();
    let and = if told.is_empty() { "" } else { " and " };
    let from = figure(from);
    format!("In run {} a read took {from} ms with none{best}{}{and}{last}.", none.run, told.join(", "))
}

fn facts(figures: &Figures) -> Vec<(&'static str, String)> {
    let mut names: Vec<_> = figures.trace.iter().take(NAMES_MAX).map(|t| short(t)).collect();
    if figures.trace.len() > NAMES_MAX {
        names.push(format!("and {} more", figures.trace.len() - NAMES_MAX));
    }
    let pace = if figures.pace == "closed" {
        "closed loop: the next request a think time after the last answer"
    } else {
        "requests at the trace's times"
    };
    let mut out = vec![
        ("trace", names.join(", ")),
        ("drive", format!("{}, modelled; {}, depth {}", figures.drive, figures.scheduler, figures.depth)),
        ("pace", pace.to_owned()),
        ("belief", format!("what the engine was told about the drive: {}", figures.belief)),
        ("volume", format!("{}; {} % may hold copies", bytes(figures.volume_bytes), figures.space_percent)),
    ];
    out.push(("run by", format!("fs2-replay {}, {}", figures.version, figures.unusual())));
    if !figures.without.is_empty() {
        out.push(("fs2", format!("without {}", figures.without.join(", "))));
    }
    if figures.stretch > 1 {
        out.push(("stretched", format!("block groups {} times as far apart as recorded", figures.stretch)));
    }
    if let Some(extended) = &figures.extended {
        out.push(("beyond the drive", extended.clone()));
    }
    out.extend(figures.notes.iter().map(|note| ("note", note.clone())));
    if figures.skipped > 0 {
        out.push((
            "left out",
            format!("{} lines, records or blocks of a pass that were wrong", figures.skipped),
        ));
    }
    out
}

/// What the figures mean, as HTML.
const MEANING: &str = "\
<p><b>T<sub>A</sub></b> is an access at the drive: seek T<sub>s</sub>, rotation T<sub>r</sub>, transfer with \
overhead T<sub>t</sub>; means are over accesses. <b>Response</b> is \
from arrival to answer, queueing included, and its mean over requests: a flush may have no access, a request in \
pieces has several. <b>Copied</b> is what was written as copies, in the run and the idle \
time after it, in percent of what was requested; energy “in all” includes that and idling. Every run but the \
first repeats what came before, which flatters schemes that copy in the order of access; a <b>single pass</b> is \
the first run on a fresh volume.</p>
<p>Bounds, a read: <b>B0</b> transfer only; <b>B1</b> served where the head is; <b>B2</b> so only where the blocks \
were read before and not written since (reuse-w: or written before); <b>B2o</b> also in an order known by then. \
“Of B2o” is a policy’s share of the way from none to there.</p>
";

/// Style beyond that of every page.
pub(crate) const STYLE: &str = "\
main{max-width:1040px}h3{font-size:.95rem;margin:0 0 4px;font-weight:600}\n\
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,360px),1fr));gap:12px 20px}\n\
.panels>div{break-inside:avoid}\n\
.ch{display:block;width:100%;height:auto;max-width:620px}\n\
.ch text{font:12.5px system-ui,sans-serif;fill:var(--faint)}.ch text.ax{fill:var(--ink)}\n\
.grid{stroke:var(--line);stroke-width:1;fill:none}.mark{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 3;fill:none}\
.err{stroke:var(--ink);stroke-width:1.5;fill:none}\n\
.dots{stroke-width:1.7;stroke-linecap:round;fill:none}.spot{stroke-width:8;stroke-linecap:round}\n\
.ln{stroke-width:1.8;fill:none;stroke-linejoin:round}\n\
.d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:8 3 2 3}\n\
.key{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:.85rem;margin:0 0 8px}.key span{white-space:nowrap}\
.sw{width:26px;height:12px;margin-right:6px;vertical-align:-1px}\n\
.s-read{stroke:var(--seek)}.s-copy{stroke:var(--fs2)}.s-write{stroke:var(--transfer)}\
.f-seek{fill:var(--seek)}.f-rotation{fill:var(--rotation)}.f-transfer{fill:var(--transfer)}.f-copy{fill:var(--fs2)}\n\
:root{--p3:#a8487f;--p4:#946b00}\
@media screen and (prefers-color-scheme:dark){:root{--p3:#e08dbb;--p4:#e0b040}}\n\
.s-pn{stroke:var(--ext2)}.s-p0{stroke:var(--fs2)}.s-p1{stroke:var(--seek)}.s-p2{stroke:var(--transfer)}\
.s-p3{stroke:var(--p3)}.s-p4{stroke:var(--p4)}\n\
tbody th{text-align:left;white-space:nowrap;font-weight:400}thead th:first-child{text-align:left}\
th:first-child{position:sticky;left:0;background:var(--paper)}\
sub{line-height:0}th small{color:var(--faint);font-weight:400}.first>*{border-top:2px solid var(--faint)}td{white-space:nowrap}\n\
.wide+.wide{margin-top:20px}@media(max-width:500px){main{padding:16px 8px 40px}figure{padding:8px}}\n\
@media print{.key{break-after:avoid}.wide{overflow:visible}.panels{grid-template-columns:1fr 1fr}figure{break-inside:auto}th:first-child{position:static}\
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n";

/// A section as HTML.
pub(crate) fn figure_of(s: pictures::Section) -> String {
    let mut out =
        format!("<h2>{}</h2>\n<figure id=\"{}\">\n<p class=\"key\">{}</p>\n", s.heading, s.id, s.key);
    out += "<div class=\"panels\">\n";
    for (title, svg) in s.panels {
        out += &format!("<div><h3>{}</h3>\n{svg}</div>\n", escape(&title));
    }
    out + &format!("</div>\n<figcaption>{}</figcaption>\n</figure>\n", escape(&s.caption))
}

/// The page.
pub(super) fn page(figures: &Figures, results: &Results) -> String {
    let mut out = page::begin(&title(figures), STYLE);
    let told = sentence(figures);
    if !told.is_empty() {
        out += &format!("<p class=\"sum\">{}</p>\n", escape(&told));
    }
    out += "<dl>\n";
    for (name, value) in facts(figures) {
        out += &format!("<dt>{name}</dt><dd>{}</dd>\n", escape(&value));
    }
    out += "</dl>\n<h2>Policies</h2>\n";
    out += &table::summary(figures);
    out.extend(pictures::sections(figures, results).into_iter().map(figure_of));
    out +=
        &format!("<h2>All figures</h2>\n{}<h2>Bounds</h2>\n{}", table::all(figures), table::bounds(figures));
    out + "<h2>What they mean</h2>\n" + MEANING + page::END
}
