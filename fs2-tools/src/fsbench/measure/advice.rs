//! What a reader must be warned of, with what to do about it. Each is said once, and none names an option
//! that was already given.

use super::super::Needs;
use super::cold::ColdMode;
use super::memlimit::LIMIT_BYTES_MIN;
use super::stats::{CV_WILD, StopRule, Summary, Verdict, first_is_high, first_is_low, outliers};

/// The options a warning must not contradict.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// How runs were made cold.
    pub cold: ColdMode,
    /// Runs before the measured ones, which are not among the values.
    pub train: u32,
    /// Seconds at the start of each run that do not count.
    pub warmup_s: f64,
    /// Whether the volume learns from run to run: FS2 with a policy that copies.
    pub learns: bool,
    /// Whether more is better, as of ops/s; else less, as of seconds.
    pub more_is_better: bool,
    /// How long a run took, seconds.
    pub run_s: f64,
}

/// The warnings for one figure, `what`, over the measured runs in order.
pub fn warnings(what: &str, values: &[f64], circumstances: &Circumstances, rule: &StopRule) -> Vec<String> {
    let mut out = Vec::new();
    let Some(summary) = Summary::of(values) else {
        if !values.is_empty() {
            out.push(format!("{what}: a run has no finite figure; see the raw runs"));
        }
        return out;
    };
    if summary.n == 1 {
        out.push(format!("{what}: one run has no confidence interval; use --runs 5 or more"));
    }
    if let Verdict::NotReached { relative_half } = rule.judge(values) {
        let wanted = rule.relative_half.unwrap_or_default() * 100.0;
        let got = relative_half.map_or("unknown".into(), |h| format!("±{:.1} %", h * 100.0));
        out.push(format!(
            "{what}: after {} runs the 95 % interval is {got}, not ±{wanted:.1} %; use --max-runs or longer runs",
            summary.n
        ));
    }
    if summary.is_wild() {
        out.push(format!(
            "{what}: the runs vary by {:.0} % (more than {:.0} %): read the median and the extremes, not the mean",
            summary.cv.unwrap_or_default() * 100.0,
            CV_WILD * 100.0
        ));
    }
    let slow_first = if circumstances.more_is_better { first_is_low(values) } else { first_is_high(values) };
    let mut strange = outliers(values);
    if slow_first {
        strange.retain(|i| *i != 0);
        out.push(format!(
            "{what}: the first run is slower than the others; {}",
            slow_first_advice(circumstances)
        ));
    }
    if !strange.is_empty() {
        let runs: Vec<String> = strange.iter().map(|i| (i + 1).to_string()).collect();
        let s = if runs.len() == 1 { "" } else { "s" };
        out.push(format!(
            "{what}: run{s} {} far from the others: something else used the machine, or the distribution has a \
             long tail; repeat on a quiet machine or with more --runs",
            runs.join(", ")
        ));
    }
    if summary.n > 1 && circumstances.run_s < 0.1 {
        out.push(format!(
            "{what}: a run takes {:.0} ms, which is near to what starting it costs; use a larger --scale or --duration",
            circumstances.run_s * 1000.0
        ));
    }
    out
}

/// What a workload takes in its cgroup beside the page cache, bytes at most: its own memory, and what the kernel has for a
/// process.
fn own_bytes(needs: &Needs) -> u64 {
    needs.memory.saturating_add(LIMIT_BYTES_MIN)
}

/// A limit, MiB, in which a workload has room for itself and half of its files: it lives, and most of what it reads comes
/// from the disk. `None` where one that leaves room for the workload would hold all its files if that took less.
fn limit_mib(needs: &Needs) -> Option<u64> {
    let limit = own_bytes(needs).saturating_add(needs.bytes / 2).div_ceil(1 << 20);
    (limit < needs.bytes >> 20).then_some(limit)
}

/// What is known before the first run: a limit below what the workload itself may take, in which it is killed.
pub(super) fn kills(needs: &Needs, limit: Option<u64>) -> Option<String> {
    let (limit, own) = (limit?, own_bytes(needs));
    if limit >= own {
        return None;
    }
    let instead = match limit_mib(needs) {
        Some(mib) => format!("raise it to {mib}m"),
        None => "leave it out, and give --cold remount".into(),
    };
    let [limit, own] = [limit, own].map(crate::mkfs2::bytes);
    Some(format!(
        "--mem-limit ({limit}) is less than the workload itself may take, up to {own}: it may be killed; {instead}"
    ))
}

/// What is known before the first run: everything the workload touches fits into the memory that may cache it,
/// and no run begins cold. Then memory is measured and not the disk. Nothing is said of a workload without files.
pub(super) fn fits_into_memory(
    needs: &Needs,
    memory: u64,
    limit: Option<u64>,
    cold: ColdMode,
) -> Option<String> {
    let bytes = needs.bytes;
    let room = limit.map_or(memory, |limit| limit.min(memory));
    if cold != ColdMode::None || bytes == 0 || bytes > room {
        return None;
    }
    let what = if limit == Some(room) { "--mem-limit" } else { "the memory there is" };
    let smaller = match (limit_mib(needs), limit) {
        (None, _) => {
            let own = crate::mkfs2::bytes(own_bytes(needs));
            format!("; no --mem-limit would do, as the workload itself may take up to {own}")
        }
        (Some(mib), Some(_)) => format!(", or lower --mem-limit to {mib}m"),
        (Some(mib), None) => format!(", or --mem-limit {mib}m"),
    };
    let (files, room) = (crate::mkfs2::bytes(bytes), crate::mkfs2::bytes(room));
    Some(format!(
        "the files, {files}, fit into {what} ({room}) and no run begins cold: this measures the page cache, not the \
         disk; give --cold remount{smaller}"
    ))
}

/// Only what was not done yet.
fn slow_first_advice(c: &Circumstances) -> String {
    if c.learns && c.train == 0 {
        return "FS2 had copied nothing yet: --train N runs first without counting them".into();
    }
    if c.cold == ColdMode::None && c.train == 0 {
        return "the others found its data cached: --cold remount, or --train 1 to measure warm runs".into();
    }
    if c.cold == ColdMode::None {
        return format!(
            "{} before it did not warm what it reads: more --train, or --cold remount",
            runs(c.train)
        );
    }
    if c.learns {
        return format!("FS2 went on learning after {}: more --train", runs(c.train));
    }
    if c.warmup_s > 0.0 {
        return "although each run was cold and began before it counted: something else changed meanwhile"
            .into();
    }
    "although each run was cold: something outside the volume changed (allocation, the drive's or the host's cache)"
        .into()
}

fn runs(n: u32) -> String {
    if n == 1 { "1 run".into() } else { format!("{n} runs") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Circumstances = Circumstances {
        cold: ColdMode::None,
        train: 0,
        warmup_s: 0.0,
        learns: false,
        more_is_better: false,
        run_s: 10.0,
    };
    const FIXED: StopRule = StopRule { runs_min: 5, runs_max: 5, relative_half: None };
    const SLOW_FIRST: [f64; 5] = [30.0, 10.1, 9.9, 10.05, 10.0];

    fn said(values: &[f64], c: Circumstances) -> String {
        warnings("elapsed", values, &c, &FIXED).join("\n")
    }

    #[test]
    fn even_runs_need_no_word() {
        assert_eq!(said(&[10.0, 10.1, 9.9, 10.05, 10.0], PLAIN), "");
        assert_eq!(said(&[], PLAIN), "");
    }

    /// What was asked for already is not proposed.
    #[test]
    fn advice_respects_the_options() {
        assert!(said(&SLOW_FIRST, PLAIN).contains("--cold remount, or --train 1"));
        let cold = said(&SLOW_FIRST, Circumstances { cold: ColdMode::Remount, ..PLAIN });
        assert!(
            cold.contains("although each run was cold")
                && !cold.contains("--cold")
                && !cold.contains("--train")
        );
        let trained = said(&SLOW_FIRST, Circumstances { train: 2, ..PLAIN });
        assert!(trained.contains("2 runs before it") && trained.contains("more --train"), "{trained}");
        let fs2 = said(&SLOW_FIRST, Circumstances { cold: ColdMode::Remount, learns: true, ..PLAIN });
        assert!(fs2.contains("--train N"), "{fs2}");
        let taught =
            said(&SLOW_FIRST, Circumstances { cold: ColdMode::Drop, learns: true, train: 7, ..PLAIN });
        assert!(taught.contains("after 7 runs"), "{taught}");
        let warm = said(&SLOW_FIRST, Circumstances { cold: ColdMode::Drop, warmup_s: 1.0, ..PLAIN });
        assert!(warm.contains("began before it counted"), "{warm}");
    }

    #[test]
    fn a_fast_first_run_is_an_outlier_of_the_usual_kind() {
        let more = Circumstances { more_is_better: true, ..PLAIN };
        assert!(said(&SLOW_FIRST, more).contains("run 1 far from the others"));
        let ops: Vec<f64> = SLOW_FIRST.iter().map(|v| 100.0 / v).collect();
        assert!(said(&ops, more).contains("the first run is slower"));
    }

    #[test]
    fn the_others_are_named() {
        let c = Circumstances { cold: ColdMode::Remount, ..PLAIN };
        assert!(said(&[10.0, 10.1, 90.0, 10.05, 9.9], c).contains("run 3 far"));
        assert!(said(&[10.0, 10.1, 90.0, 10.05, 9.9, 10.0, 80.0], c).contains("runs 3, 7 far"));
        assert!(said(&[1.0, 2.0, 9.0], c).contains("vary by"));
        assert!(said(&[1.0], c).contains("--runs 5"));
        assert!(said(&[0.010, 0.010], Circumstances { run_s: 0.01, ..c }).contains("10 ms"));
        assert!(said(&[f64::NAN, 1.0], c).contains("no finite figure"));
        let rule = StopRule { runs_min: 3, runs_max: 3, relative_half: Some(0.05) };
        let text = warnings("ops/s", &[1.0, 2.0, 3.0], &c, &rule).join("\n");
        assert!(text.contains("after 3 runs") && text.contains("not ±5.0 %"), "{text}");
    }

    #[test]
    fn files_that_stay_in_memory_are_told_before_the_first_run() {
        let needs = |bytes| Needs { bytes, ..Needs::default() };
        let said = |bytes, limit, cold| fits_into_memory(&needs(bytes), 1 << 30, limit, cold);
        let plain = said(100 << 20, None, ColdMode::None).unwrap();
        assert!(
            plain.contains("100.0 MiB") && plain.contains("1.0 GiB") && plain.contains("--cold remount"),
            "{plain}"
        );
        assert!(plain.contains("--mem-limit 54m"), "{plain}");
        // What was given already is not proposed, but that there is less of it.
        let limited = said(100 << 20, Some(200 << 20), ColdMode::None).unwrap();
        assert!(
            limited.contains("--mem-limit (200.0 MiB)") && limited.contains("lower --mem-limit to 54m"),
            "{limited}"
        );
        // A limit above the memory limits nothing.
        assert!(
            said(100 << 20, Some(1 << 40), ColdMode::None).unwrap().contains("the memory there is (1.0 GiB)")
        );
        // Half of it is no limit anything runs in.
        let little = said(7 << 20, None, ColdMode::None).unwrap();
        assert!(
            little.ends_with("; no --mem-limit would do, as the workload itself may take up to 4.0 MiB"),
            "{little}"
        );
        for (bytes, limit, cold) in [
            (100 << 20, None, ColdMode::Remount),
            (100 << 20, None, ColdMode::Drop),
            (100 << 20, Some(64 << 20), ColdMode::None),
            ((1 << 30) + 1, None, ColdMode::None),
            (0, None, ColdMode::None),
        ] {
            assert_eq!(said(bytes, limit, cold), None, "{bytes} {limit:?} {cold}");
        }
        assert!(said(1 << 30, None, ColdMode::None).is_some(), "what just fits");
    }

    /// Found: half of the files' size was proposed to workloads whose threads have more memory of their own: they were
    /// killed.
    #[test]
    fn no_limit_is_proposed_that_kills() {
        let needs = |mib: u64, own: u64| Needs { bytes: mib << 20, memory: own << 20, ..Needs::default() };
        let said = |n: &Needs, limit| fits_into_memory(n, 1 << 40, limit, ColdMode::None).unwrap();
        let roomy = needs(200, 30);
        assert!(said(&roomy, None).contains("--mem-limit 134m"), "{}", said(&roomy, None));
        assert_eq!((kills(&roomy, Some(134 << 20)), kills(&roomy, None)), (None, None));
        let tight = kills(&roomy, Some(33 << 20)).unwrap();
        assert!(tight.contains("up to 34.0 MiB") && tight.ends_with("raise it to 134m"), "{tight}");
        // As a web server with 100 threads of 10 MiB.
        let threads = needs(62, 1000);
        for limit in [None, Some(1 << 30)] {
            assert!(said(&threads, limit).contains("no --mem-limit would do"), "{}", said(&threads, limit));
        }
        let tight = kills(&threads, Some(31 << 20)).unwrap();
        assert!(tight.contains("may be killed; leave it out, and give --cold remount"), "{tight}");
    }
}
