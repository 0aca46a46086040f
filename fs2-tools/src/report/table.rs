//! The report for a terminal.

use super::summary::{figure, percent, sentences, setting, sorted};
use super::{DemoReport, System};

/// Columns of the text.
const COLUMNS: usize = 100;

/// The report as text of at most 100 columns, ending in a newline. Control characters become `?`.
pub fn render_table(report: &DemoReport) -> String {
    let mut out = String::new();
    paragraph(&mut out, "", &report.title);
    for (name, value) in setting(report) {
        paragraph(&mut out, &format!("  {name:<10}"), &value);
    }
    out.push('\n');
    let head = [
        "run", "system", "reads", "replica", "access", "seek", "rotation", "transfer", "p99", "energy",
        "time",
    ];
    let units = ["", "", "", "", "ms", "ms", "ms", "ms", "ms", "J", "s"];
    row(&mut out, &head.map(String::from));
    row(&mut out, &units.map(String::from));
    for r in sorted(report) {
        let replica = if r.system == System::Ext2 { "-".into() } else { percent(r.from_replica, r.reads) };
        row(
            &mut out,
            &[
                r.run.to_string(),
                r.system.name().into(),
                r.reads.to_string(),
                replica,
                figure(r.access_ms),
                figure(r.seek_ms),
                figure(r.rotation_ms),
                figure(r.transfer_ms),
                figure(r.p99_ms),
                figure(r.energy_j),
                figure(r.elapsed_s),
            ],
        );
    }
    if report.runs.is_empty() {
        out.push_str("  no run was made\n");
    }
    out.push('\n');
    for sentence in sentences(report) {
        paragraph(&mut out, "", &sentence);
    }
    for note in &report.notes {
        paragraph(&mut out, "* ", note);
    }
    out
}

/// One row; a figure too wide for its column takes its neighbour's room, never the last column's.
fn row(out: &mut String, cells: &[String; 11]) {
    const WIDTHS: [usize; 11] = [5, 8, 10, 9, 9, 8, 10, 10, 8, 10, 10];
    const { assert!(5 + 8 + 10 + 9 + 9 + 8 + 10 + 10 + 8 + 10 + 10 <= COLUMNS) };
    let mut line = String::new();
    let mut column = 0;
    for (cell, width) in cells.iter().zip(WIDTHS) {
        column += width;
        let room = column.saturating_sub(line.chars().count() + 1);
        line.push(' ');
        line.push_str(&format!("{cell:>room$}"));
    }
    // Only figures beyond any drive's make it longer.
    out.extend(line.trim_end().chars().take(COLUMNS));
    out.push('\n');
}

/// `text` folded behind `lead`.
fn paragraph(out: &mut String, lead: &str, text: &str) {
    let plain: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let indent = lead.chars().count();
    let mut line = lead.to_string();
    let mut used = indent;
    for word in plain.split(' ').filter(|w| !w.is_empty()) {
        for (n, piece) in word.chars().collect::<Vec<_>>().chunks(COLUMNS - indent).enumerate() {
            if used > indent && (n > 0 || used + 1 + piece.len() > COLUMNS) {
                out.push_str(line.trim_end());
                out.push('\n');
                line = " ".repeat(indent);
                used = indent;
            }
            if used > indent {
                line.push(' ');
                used += 1;
            }
            line.extend(piece);
            used += piece.len();
        }
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_table_of_a_demo() {
        let mut report = sample::report();
        report.runs.retain(|r| r.run == 1 || r.run == 7);
        let want = "\
FS² demo: <starting> a desktop & more
  drive     wd800-repaired, modelled
  image     8.0 GiB; 12000 files of 3.0 GiB together
  frontend  in-process
  time      a second of the drive took 0.05 s here; all figures are in the drive's time
  machine   2 cores, 8 GiB

  run  system     reads  replica   access    seek  rotation  transfer     p99    energy      time
                                       ms      ms        ms        ms      ms         J         s
    1    ext2      4007        -     9.55    5.20      4.10      0.25    22.0       430      39.2
    1     FS2      4007      0 %     9.55    5.20      4.10      0.25    22.0       430      39.2
    7    ext2      4007        -     9.55    5.20      4.10      0.25    22.0       430      39.2
    7     FS2      4007     90 %     3.86    1.56      2.05      0.25    16.0       161      15.8

Last runs, FS2 (run 7) against ext2 (run 7):
A read took 3.86 ms instead of 9.55 ms (60 % less), its seek 1.56 ms instead of 5.20 ms (70 % less).
A run's accesses used 161 J instead of 430 J (63 % less).
The workload took 15.8 s instead of 39.2 s (60 % less).
90 % of its reads were served from replicas.
15300 blocks were copied in all.
* The page cache was dropped before each run.
";
        assert_eq!(render_table(&report), want);
    }

    #[test]
    fn no_line_is_wider_than_a_hundred_columns() {
        let mut report = sample::report();
        report.notes.push("long ".repeat(100));
        report.notes.push("x".repeat(450));
        report.title = "t\u{1b}[31m".repeat(60);
        report.runs[0].reads = u64::MAX;
        report.runs[0].energy_j = 1e300;
        report.runs[1].p99_ms = f64::NAN;
        let text = render_table(&report);
        assert!(text.lines().all(|l| l.chars().count() <= COLUMNS), "{text}");
        assert!(!text.contains('\u{1b}'));
        assert_eq!(text.matches('x').count() - render_table(&sample::report()).matches('x').count(), 450);
    }

    #[test]
    fn an_empty_report_is_no_fault() {
        assert!(render_table(&DemoReport::default()).contains("no run was made"));
    }
}
