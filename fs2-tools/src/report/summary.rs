//! The few sentences above the figures, the same for page and terminal.

use super::{DemoReport, RunRow, System};

/// Runs by number, then system.
pub(super) fn sorted(report: &DemoReport) -> Vec<RunRow> {
    let mut runs = report.runs.clone();
    runs.sort_by_key(|r| (r.run, r.system));
    runs
}

fn last(runs: &[RunRow], system: System) -> Option<&RunRow> {
    runs.iter().rfind(|r| r.system == system)
}

/// `68 % less`, `3 % more` or `as much`; nothing where there is nothing to compare with.
pub(crate) fn change(from: f64, to: f64) -> Option<String> {
    let ratio = to / from;
    if !ratio.is_finite() || from <= 0.0 {
        return None;
    }
    let percent = ((ratio - 1.0) * 100.0).round();
    Some(match percent {
        p if p < 0.0 => format!("{:.0} % less", -p),
        p if p > 0.0 => format!("{p:.0} % more"),
        _ => "as much".into(),
    })
}

/// Three digits that mean something.
pub(crate) fn figure(x: f64) -> String {
    match x {
        _ if !x.is_finite() => "?".into(),
        _ if x.abs() < 9.995 => format!("{x:.2}"),
        _ if x.abs() < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

/// Bytes with a binary unit.
pub(crate) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    let mut unit = "bytes";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "bytes" { format!("{n} bytes") } else { format!("{value:.1} {unit}") }
}

/// `part` of `whole` in percent, without digits that mean nothing.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.0} %", part as f64 / whole as f64 * 100.0) }
}

/// What came out, a sentence each: the last run of FS2 against the last of ext2.
pub(super) fn sentences(report: &DemoReport) -> Vec<String> {
    let runs = sorted(report);
    let mut out = Vec::new();
    if let (Some(plain), Some(fs2)) = (last(&runs, System::Ext2), last(&runs, System::Fs2)) {
        let what: [(&str, &str, f64, f64); 4] = [
            ("A read took", "ms", plain.access_ms, fs2.access_ms),
            ("its seek", "ms", plain.seek_ms, fs2.seek_ms),
            ("A run's accesses used", "J", plain.energy_j, fs2.energy_j),
            ("The workload took", "s", plain.elapsed_s, fs2.elapsed_s),
        ];
        let told: Vec<Option<String>> = what
            .iter()
            .map(|(what, unit, from, to)| {
                let change = change(*from, *to)?;
                Some(format!("{what} {} {unit} instead of {} {unit} ({change})", figure(*to), figure(*from)))
            })
            .collect();
        let head = format!("Last runs, FS2 (run {}) against ext2 (run {}):", fs2.run, plain.run);
        if told.iter().any(Option::is_some) {
            out.push(head);
        }
        match (&told[0], &told[1]) {
            (Some(access), Some(seek)) => out.push(format!("{access}, {seek}.")),
            (Some(one), None) => out.push(format!("{one}.")),
            _ => {}
        }
        out.extend(told[2..].iter().flatten().map(|t| format!("{t}.")));
        if fs2.reads > 0 {
            let share = percent(fs2.from_replica, fs2.reads);
            out.push(format!("{share} of its reads were served from replicas."));
        }
    }
    if report.copies_written > 0 {
        out.push(format!("{} blocks were copied in all.", report.copies_written));
    }
    out
}

/// The setting: a name and a value each.
pub(super) fn setting(report: &DemoReport) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    let mut put = |name, value: String| {
        if !value.is_empty() {
            out.push((name, value));
        }
    };
    put("drive", report.drive.clone());
    let image = &report.image;
    if image.bytes > 0 {
        let (whole, files) = (bytes(image.bytes), bytes(image.file_bytes));
        put("image", format!("{whole}; {} files of {files} together", image.files));
    }
    put("frontend", report.frontend.clone());
    let scale = report.time_scale;
    if scale.is_finite() && scale > 0.0 && scale != 1.0 {
        put(
            "time",
            format!("a second of the drive took {scale} s here; all figures are in the drive's time"),
        );
    }
    put("machine", report.machine_note.clone());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn less_more_and_nothing_to_compare() {
        assert_eq!(change(8.0, 2.0).as_deref(), Some("75 % less"));
        assert_eq!(change(8.0, 9.0).as_deref(), Some("13 % more"));
        assert_eq!(change(8.0, 8.01).as_deref(), Some("as much"));
        assert_eq!(change(0.0, 1.0), None);
        assert_eq!(change(f64::NAN, 1.0), None);
    }

    #[test]
    fn a_run_that_got_worse_is_told_as_such() {
        let mut report = sample::report();
        for r in &mut report.runs {
            if r.system == System::Fs2 {
                r.access_ms = 12.0;
            }
        }
        let text = sentences(&report).join(" ");
        assert!(text.contains("A read took 12.0 ms instead of 9.55 ms (26 % more)"), "{text}");
    }

    #[test]
    fn without_a_baseline_nothing_is_compared() {
        let mut report = sample::report();
        report.runs.retain(|r| r.system == System::Fs2);
        assert_eq!(sentences(&report), ["15300 blocks were copied in all."]);
    }
}
