//! Bars of every cell: its runs' mean, with the 95 % interval.

use super::super::measure::{Document, Summary};
use super::plan::{Cell, Plan};
use crate::replay::html::STYLE;
use crate::replay::html::chart::{Row, whiskered};
use crate::report::page::{self, escape};

/// The bars of one figure: a row for each system and variant.
fn panel(cells: &[(&Cell, &Document)], figure: &str, name: &str) -> String {
    let (mut rows, mut halves) = (Vec::new(), Vec::new());
    let mut system = String::new();
    for (cell, document) in cells {
        let Some(summary) = Summary::of(&document.figure(figure)) else { continue };
        let this = cell.system.name();
        let group = if this == system { String::new() } else { this.clone() };
        system = this;
        rows.push(Row { group, label: cell.variant.name.clone(), parts: vec![(summary.mean, "seek")] });
        halves.push(summary.ci95_half.unwrap_or_default());
    }
    if rows.is_empty() {
        return String::new();
    }
    whiskered(&rows, &halves, name, &[], &format!("Bars: {name} by system and variant, with 95 % intervals"))
}

/// The page.
pub(super) fn page(plan: &Plan, cells: &[Cell], documents: &[Document]) -> String {
    let mut out = page::begin("fsbench sweep", STYLE);
    for drive in &plan.drives {
        for work in &plan.works {
            let own: Vec<(&Cell, &Document)> = cells
                .iter()
                .zip(documents)
                .filter(|(c, _)| {
                    let same = (c.work.entry.name, &c.work.preset, &c.work.set);
                    c.drive == *drive && same == (work.entry.name, &work.preset, &work.set)
                })
                .collect();
            let set: Vec<String> = work.set.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let title = format!("{} on a modelled {drive} {}", work.entry.name, set.join(" "));
            out += &format!("<h2>{}</h2>\n<figure>\n<div class=\"panels\">\n", escape(title.trim()));
            for (figure, name) in [
                ("ops_per_s", "operations a second"),
                (
                    "ops_per_joule_disk_model_and_rest",
                    "operations to a joule, disk model, the accesses of the rest after each run too",
                ),
            ] {
                let svg = panel(&own, figure, name);
                if !svg.is_empty() {
                    out += &format!("<div><h3>{}</h3>\n{svg}</div>\n", escape(name));
                }
            }
            out += &format!(
                "</div>\n<figcaption>Means of {} runs; the line across a bar\u{2019}s end is the 95 % interval \
                 (Student\u{2019}s t).</figcaption>\n</figure>\n",
                plan.runs
            );
        }
    }
    out + page::END
}

#[cfg(test)]
mod tests {
    use super::super::super::measure::result::tests::document;
    use super::*;
    use crate::report::page::check::{asks_for_nothing, elements};

    #[test]
    fn a_bar_with_its_interval_for_every_cell() {
        let text = "size = '1g'\nruns = 3\nvariants = ['def', 'blk1k']\ndrives = ['wd800-repaired']\n\
                    systems = ['ext2', 'fs2']\n[[workload]]\nname = 'cvs-update'\n";
        let plan = Plan::parse(text).unwrap();
        let cells = plan.cells();
        let documents: Vec<Document> = cells.iter().map(|_| document(&[2.0, 2.2, 2.1])).collect();
        let html = page(&plan, &cells, &documents);
        asks_for_nothing(&html);
        // Begun and ended; no energy is in these documents.
        assert_eq!(elements(&html).iter().filter(|n| *n == "svg").count(), 2);
        assert_eq!(html.matches("class=\"err\"").count(), 4);
    }
}
