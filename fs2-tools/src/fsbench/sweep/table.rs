//! The thesis' tables.

use std::io::{self, Write};

use super::super::compare::cell as difference;
use super::super::measure::{Document, Summary};
use super::plan::{Cell, Plan};

/// Performance and energy of a cell: its runs' operations a second, and to a joule by the disk's model, of which the copies
/// made after each run are part.
fn figures(document: &Document) -> [Vec<f64>; 2] {
    [document.figure("ops_per_s"), document.figure("ops_per_joule_disk_model_and_rest")]
}

fn mean(values: &[f64]) -> Option<f64> {
    Summary::of(values).map(|s| s.mean)
}

/// Columns of a table's first cell, and of a workload's two.
const FIRST: usize = 22;
const PAIR: usize = 20;

/// Prints, for each drive and system, the variants against the default (as Table 4.1), then which is best for each
/// workload (as Table 4.2).
pub(super) fn print(
    plan: &Plan,
    cells: &[Cell],
    documents: &[Document],
    out: &mut dyn Write,
) -> io::Result<()> {
    let of = |drive: &str, system: &str, variant: &str, work: usize| -> Option<&Document> {
        let name = plan.works.get(work)?.entry.name;
        // The same workload may stand in a plan twice, with other parameters.
        let found = cells.iter().zip(documents).filter(|(c, _)| {
            c.drive == drive
                && c.system.name() == system
                && c.variant.name == variant
                && c.work.entry.name == name
        });
        let nth = plan.works[..work].iter().filter(|w| w.entry.name == name).count();
        found.map(|(_, d)| d).nth(nth)
    };
    let names: Vec<&str> = plan.works.iter().map(|w| w.entry.name).collect();
    for drive in &plan.drives {
        writeln!(
            out,
            "\nOn a modelled {drive}, relative to {}, {} runs each",
            plan.variants[0].name, plan.runs
        )?;
        head(out, &names, ["Perf.", "Pow."])?;
        for system in plan.systems.iter().map(|s| s.name()) {
            for variant in &plan.variants[1..] {
                write!(out, "{:<FIRST$}", format!("{system} {}", variant.name))?;
                for work in 0..plan.works.len() {
                    let pair = of(drive, &system, &plan.variants[0].name, work).zip(of(
                        drive,
                        &system,
                        &variant.name,
                        work,
                    ));
                    let text = pair.map_or(["?".to_owned(), "?".to_owned()], |(a, b)| {
                        let (a, b) = (figures(a), figures(b));
                        [difference(&a[0], &b[0]), difference(&a[1], &b[1])]
                    });
                    write!(out, "{:>w$}{:>w$}", text[0], text[1], w = PAIR / 2)?;
                }
                writeln!(out)?;
            }
        }
        if plan.systems.len() > 1 {
            let first = plan.systems[0].name();
            writeln!(out, "\nRelative to {first}, variant by variant")?;
            head(out, &names, ["Perf.", "Pow."])?;
            for system in plan.systems[1..].iter().map(|s| s.name()) {
                for variant in &plan.variants {
                    write!(out, "{:<FIRST$}", format!("{system} {}", variant.name))?;
                    for work in 0..plan.works.len() {
                        let pair = of(drive, &first, &variant.name, work).zip(of(
                            drive,
                            &system,
                            &variant.name,
                            work,
                        ));
                        let text = pair.map_or(["?".to_owned(), "?".to_owned()], |(a, b)| {
                            let (a, b) = (figures(a), figures(b));
                            [difference(&a[0], &b[0]), difference(&a[1], &b[1])]
                        });
                        write!(out, "{:>w$}{:>w$}", text[0], text[1], w = PAIR / 2)?;
                    }
                    writeln!(out)?;
                }
            }
        }
        best(plan, drive, &of, out)?;
    }
    writeln!(
        out,
        "\nPerf. is operations a second, Pow. operations to a joule by the disk's model, with the accesses (copies)\n\
         of the rest after each run. A dash: not to be told from the default (Welch's test at 95 %); †: the runs vary by more than 40 %."
    )
}

fn head(out: &mut dyn Write, names: &[&str], pair: [&str; 2]) -> io::Result<()> {
    write!(out, "{:<FIRST$}", "")?;
    for name in names {
        write!(out, "{name:>PAIR$}")?;
    }
    write!(out, "\n{:<FIRST$}", "")?;
    for _ in names {
        write!(out, "{:>w$}{:>w$}", pair[0], pair[1], w = PAIR / 2)?;
    }
    writeln!(out)
}

/// For each workload the system and variant with the most operations a second, and how much better it is than the
/// best and the worst default.
fn best<'a>(
    plan: &Plan,
    drive: &str,
    of: &dyn Fn(&str, &str, &str, usize) -> Option<&'a Document>,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "\n{:<FIRST$}{:<24}{:>16}{:>16}", "Workload", "Recommended", "Ops/sec", "Ops/joule")?;
    for (work, w) in plan.works.iter().enumerate() {
        let mut all: Vec<(String, bool, [Option<f64>; 2])> = Vec::new();
        for system in plan.systems.iter().map(|s| s.name()) {
            for (i, variant) in plan.variants.iter().enumerate() {
                if let Some(document) = of(drive, &system, &variant.name, work) {
                    let means = figures(document).map(|v| mean(&v));
                    all.push((format!("{system}-{}", variant.name), i == 0, means));
                }
            }
        }
        let perf = |m: &(String, bool, [Option<f64>; 2])| m.2[0].unwrap_or(f64::MIN);
        let Some(best) = all.iter().max_by(|a, b| perf(a).total_cmp(&perf(b))) else { continue };
        let range = |i: usize| {
            let defaults: Vec<f64> = all.iter().filter(|m| m.1).filter_map(|m| m.2[i]).collect();
            let (low, high) =
                (defaults.iter().copied().reduce(f64::max)?, defaults.iter().copied().reduce(f64::min)?);
            let value = best.2[i]?;
            Some(format!("{:.2}–{:.2}×", value / low, value / high))
        };
        let text = [0, 1].map(|i| range(i).unwrap_or_else(|| "-".into()));
        writeln!(out, "{:<FIRST$}{:<24}{:>16}{:>16}", w.entry.name, best.0, text[0], text[1])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::measure::EnergyReading;
    use super::super::super::measure::result::tests::document;
    use super::*;

    fn made(elapsed: [f64; 3], joules: f64) -> Document {
        let mut d = document(&elapsed);
        d.runs
            .iter_mut()
            .for_each(|r| r.energy = vec![EnergyReading::of("disk model and rest", joules * r.elapsed_s)]);
        d.summarise();
        d
    }

    #[test]
    fn tables_as_the_thesis_has_them() {
        let text = "size = '1g'\nruns = 3\nvariants = ['def', 'blk1k', 'isz1k']\ndrives = ['wd800-repaired']\n\
                    systems = ['ext2', 'fs2']\n[[workload]]\nname = 'cvs-update'\n";
        let plan = Plan::parse(text).unwrap();
        let cells = plan.cells();
        // ext2: blk1k is half as fast; isz1k cannot be told apart. FS2 is twice as fast as ext2.
        let documents: Vec<Document> = cells
            .iter()
            .map(|c| {
                let twice = if c.system.name() == "fs2" { 0.5 } else { 1.0 };
                let s = match c.variant.name.as_str() {
                    "blk1k" => [4.0, 4.04, 3.96],
                    "isz1k" => [2.02, 1.98, 2.01],
                    _ => [2.0, 2.02, 1.98],
                };
                made(s.map(|s| s * twice), 10.0)
            })
            .collect();
        let mut out = Vec::new();
        print(&plan, &cells, &documents, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row = |name: &str, n: usize| -> Vec<&str> {
            let line = text
                .lines()
                .filter(|l| l.starts_with(name))
                .nth(n)
                .unwrap_or_else(|| panic!("{name}: {text}"));
            line[name.len()..].split_whitespace().collect()
        };
        assert_eq!(row("ext2 blk1k", 0), ["-50%", "-50%"]);
        assert_eq!(row("ext2 isz1k", 0), ["-", "-"]);
        assert_eq!(row("fs2 blk1k", 1), ["+100%", "+100%"], "against ext2");
        assert_eq!(row("cvs-update", 0), ["fs2-def", "1.00–2.00×", "1.00–2.00×"]);
    }
}
