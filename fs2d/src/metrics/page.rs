//! The metrics' text: Prometheus' exposition format 0.0.4, made anew for each scrape from what the daemon knows.
//!
//! `prometheus-client` was looked at and left: it writes OpenMetrics, whose counters `promtool check metrics`
//! refuses, and wants a metric object kept beside each counter that the engine has already.

use fs2_control::{Liveness, Source, Status, WatermarkState};
use fs2_engine::Times;

/// Bounds of the histograms' buckets: 2^6 µs to 2^22 µs, 64 µs to 4.2 s.
const OCTAVES: std::ops::RangeInclusive<u32> = 6..=22;

/// What the page is made of.
pub(crate) struct Measured<'a> {
    pub(crate) status: &'a Status,
    /// Dispatch to completion of clients' reads.
    pub(crate) reads: &'a Times,
    /// And of their writes.
    pub(crate) writes: &'a Times,
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A page being written.
struct Page {
    text: String,
    /// Of every sample: which volume, on which device.
    labels: String,
    name: &'static str,
}

/// A label's value as the format wants it.
fn quoted(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl Page {
    /// Begins a metric; its samples follow. Help is ours: it has neither a backslash nor a newline.
    fn metric(&mut self, kind: Kind, name: &'static str, help: &str) -> &mut Page {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self.name = name;
        self
    }

    fn line(&mut self, suffix: &str, more: &[(&str, &str)], value: &str) {
        let more: String = more.iter().map(|(name, value)| format!(",{name}={}", quoted(value))).collect();
        self.text += &format!("{}{suffix}{{{}{more}}} {value}\n", self.name, self.labels);
    }

    fn whole(&mut self, more: &[(&str, &str)], value: u64) -> &mut Page {
        self.line("", more, &value.to_string());
        self
    }

    /// What is not known, or not finite, has no sample.
    fn real(&mut self, more: &[(&str, &str)], value: impl Into<Option<f64>>) -> &mut Page {
        if let Some(value) = value.into().filter(|v| v.is_finite()) {
            self.line("", more, &value.to_string());
        }
        self
    }

    fn states(&mut self, names: &[&str], now: &str) {
        for name in names {
            self.whole(&[("state", name)], u64::from(*name == now));
        }
    }

    fn histogram(&mut self, op: &str, times: &Times) {
        for octave in OCTAVES {
            let bound = 2f64.powi(octave as i32) / 1e6;
            self.line("_bucket", &[("op", op), ("le", &bound.to_string())], &times.below(octave).to_string());
        }
        let count = times.count().to_string();
        self.line("_bucket", &[("op", op), ("le", "+Inf")], &count);
        self.line("_sum", &[("op", op)], &times.total().as_secs_f64().to_string());
        self.line("_count", &[("op", op)], &count);
    }
}

/// The page.
pub(crate) fn page(m: &Measured<'_>) -> String {
    let s = m.status;
    let labels = format!("volume={},device={}", quoted(&s.uuid), quoted(&s.volume));
    let mut page = Page { text: String::new(), labels, name: "" };
    volume(&mut page, s);
    space(&mut page, s);
    requests(&mut page, s);
    replicas(&mut page, s);
    times(&mut page, m);
    page.text
}

use Kind::{Counter, Gauge, Histogram};

fn volume(p: &mut Page, s: &Status) {
    p.metric(Gauge, "fs2_info", "What serves the volume; always 1.").whole(
        &[
            ("version", &s.version),
            ("policy", &s.policy),
            ("frontend", s.frontend.split(' ').next().unwrap_or_default()),
            ("drive", &s.drive),
        ],
        1,
    );
    let state = match &s.liveness {
        Liveness::Active => "active",
        Liveness::Frozen(_) => "frozen",
        Liveness::Inactive(_) => "inactive",
    };
    p.metric(Gauge, "fs2_state", "Whether replicas are kept: 1 for the state the volume is in.")
        .states(&["active", "frozen", "inactive"], state);
    p.metric(Gauge, "fs2_uptime_seconds", "Time since the volume was attached.").real(&[], s.uptime_s);
    p.metric(Gauge, "fs2_volume_bytes", "Size of the volume.").whole(&[], s.volume_bytes);
    p.metric(Gauge, "fs2_head_bytes", "Address at which the drive's head is taken to be.")
        .whole(&[], s.head_block.saturating_mul(u64::from(s.block_bytes)));
}

fn space(p: &mut Page, s: &Status) {
    p.metric(
        Gauge,
        "fs2_free_ratio",
        "Share of the blocks that are not static metadata: those free without a replica.",
    )
    .real(&[], (s.liveness == Liveness::Active).then_some(s.free_share));
    let marks = [("high", s.watermarks.high), ("low", s.watermarks.low), ("critical", s.watermarks.critical)];
    p.metric(
        Gauge,
        "fs2_watermark_ratio",
        "Free shares at which copying resumes (high), stops (low) and whole regions of replicas go (critical).",
    );
    for (mark, share) in marks {
        p.real(&[("mark", mark)], share);
    }
    let state = match s.watermark_state {
        WatermarkState::Off => "off",
        WatermarkState::Copying => "copying",
        WatermarkState::Suspended => "suspended",
        WatermarkState::Low => "low",
        WatermarkState::Critical => "critical",
        WatermarkState::HostShort => "host-short",
    };
    p.metric(Gauge, "fs2_watermark_state", "Where the free share stands: 1 for the state it is in.")
        .states(&["off", "copying", "suspended", "low", "critical", "host-short"], state);
    p.metric(Gauge, "fs2_space_ratio", "Share of the volume that replicas may take at most.")
        .real(&[], s.space_share);
}

fn requests(p: &mut Page, s: &Status) {
    p.metric(Counter, "fs2_requests_total", "Requests of clients, by operation; write zeroes are writes.");
    for (op, n) in [("read", s.reads), ("write", s.writes), ("discard", s.discards), ("flush", s.flushes)] {
        p.whole(&[("op", op)], n);
    }
    p.metric(Counter, "fs2_request_bytes_total", "Bytes that clients asked to read or to write.")
        .whole(&[("op", "read")], s.read_bytes)
        .whole(&[("op", "write")], s.write_bytes);
    p.metric(Counter, "fs2_replica_reads_total", "Reads of clients served from a replica.")
        .whole(&[], s.reads_from_replica);
    p.metric(
        Counter,
        "fs2_request_errors_total",
        "Requests of clients answered with an error of what is below, by operation.",
    );
    let f = &s.failed;
    for (op, n) in [("read", f.reads), ("write", f.writes), ("flush", f.flushes)] {
        p.whole(&[("op", op)], n);
    }
    p.metric(Gauge, "fs2_refuses_changes", "1 where every write and flush is answered with an error.")
        .whole(&[], u64::from(f.refuses_changes.is_some()));
    p.metric(Gauge, "fs2_requests_waiting", "Requests of clients that wait to be started.")
        .whole(&[], s.requests_waiting);
    p.metric(Gauge, "fs2_requests_in_flight", "Requests at the device, the daemon's own among them.")
        .whole(&[], s.ios_in_flight);
    p.metric(
        Counter,
        "fs2_clients_cut_total",
        "Clients sent away because they took no answers, or left a write half sent.",
    )
    .whole(&[], s.clients_cut);
}

fn replicas(p: &mut Page, s: &Status) {
    p.metric(Gauge, "fs2_replicas", "Replicas in the table, in blocks.").whole(&[], s.replicas);
    p.metric(Gauge, "fs2_replica_bytes", "Bytes the replicas take.").whole(&[], s.replica_bytes);
    p.metric(Gauge, "fs2_replicas_unverified", "Replicas not yet compared with their original.")
        .whole(&[], s.replicas_unverified);
    p.metric(Counter, "fs2_replicas_verified_total", "Replicas compared with their original, by outcome.")
        .whole(&[("outcome", "right")], s.verified)
        .whole(&[("outcome", "wrong")], s.refuted);
    p.metric(Counter, "fs2_replicas_dropped_total", "Replicas dropped, by reason.")
        .whole(&[("reason", "invalidated")], s.invalidated)
        .whole(&[("reason", "reclaimed")], s.reclaimed);
    p.metric(Gauge, "fs2_copies_waiting", "Blocks read that wait to be copied.").whole(&[], s.copies_waiting);
    p.metric(
        Counter,
        "fs2_copies_total",
        "Blocks copied, by outcome; void: what they hold changed meanwhile.",
    )
    .whole(&[("outcome", "kept")], s.copies_written)
    .whole(&[("outcome", "void")], s.copies_void);
    p.metric(Gauge, "fs2_pause_work_allowed", "1 while the daemon's own work goes on in short pauses.")
        // As `Status::own_work`: where there is none, it goes on in no pause.
        .whole(&[], u64::from(s.pause_work.allowed && s.pause_work.limit_ms > 0.0));
    p.metric(
        Gauge,
        "fs2_pause_work_cost_seconds",
        "What work in pauses cost requests, lately; below 0 it saved more than it cost.",
    )
    .real(&[], s.pause_work.cost_ms / 1e3);
    p.metric(Gauge, "fs2_pause_work_limit_seconds", "What work in pauses may cost requests, lately.")
        .real(&[], s.pause_work.limit_ms / 1e3);
    p.metric(
        Gauge,
        "fs2_replica_gate_open",
        "1 while replicas are read; 0 while they are slower than plain ext2.",
    )
    .whole(&[], u64::from(s.replica_gate.closed_for == 0));
    p.metric(
        Counter,
        "fs2_replica_gate_closings_total",
        "How often reading replicas was stopped for a while.",
    )
    .whole(&[], s.replica_gate.closings);
    p.metric(Counter, "fs2_table_pages_written_total", "Pages of the replica table written.")
        .whole(&[], s.table_pages_written);
    p.metric(
        Counter,
        "fs2_errors_total",
        "What failed below, by kind; of reads clients saw it only where no other place was read.",
    )
    .whole(&[("kind", "hash_mismatch")], s.hash_mismatches)
    .whole(&[("kind", "replica_read")], s.replica_errors)
    .whole(&[("kind", "original_read")], s.original_errors)
    .whole(&[("kind", "copy_write")], s.copy_errors)
    .whole(&[("kind", "table_write")], s.table_errors);
}

fn times(p: &mut Page, m: &Measured<'_>) {
    let (s, t) = (m.status, &m.status.total_s);
    p.metric(Histogram, "fs2_access_seconds", "Dispatch to completion of clients' accesses, by operation.");
    p.histogram("read", m.reads);
    p.histogram("write", m.writes);
    p.metric(Counter, "fs2_read_wait_seconds_total", "Arrival to dispatch of clients' reads.")
        .real(&[], t.read_wait);
    p.metric(
        Counter,
        "fs2_access_part_seconds_total",
        "What accesses are made of, as the drive's model has it; nothing where there is none.",
    );
    if s.access_ms.source != Source::None {
        for (part, seconds) in [("seek", t.seek), ("rotation", t.rotation), ("transfer", t.transfer)] {
            p.real(&[("part", part)], seconds);
        }
    }
    p.metric(Counter, "fs2_modelled_accesses_total", "Accesses that these parts are of.")
        .whole(&[], t.accesses);
    p.metric(
        Counter,
        "fs2_saved_seconds_total",
        "What reading replicas instead of originals saved, as predicted at each read.",
    )
    .real(&[], t.saved);
    control(p, s);
    p.metric(Counter, "fs2_energy_joules_total", "Energy the drive used, where a model knows.")
        .real(&[], s.energy_j.value);
}

fn control(p: &mut Page, s: &Status) {
    let samples = [("copies", &s.control.copies), ("originals", &s.control.originals)];
    let seconds = |ms: Option<f64>| ms.map(|ms| ms / 1e3);
    p.metric(
        Counter,
        "fs2_control_reads_total",
        "Reads of the control sample, all of which have a copy, by where it sent them.",
    );
    for (sent, sample) in samples {
        p.whole(&[("sent", sent)], sample.reads);
    }
    p.metric(
        Gauge,
        "fs2_control_read_seconds",
        "Mean of these reads since the attach, dispatch to completion.",
    );
    for (sent, sample) in samples {
        p.real(&[("sent", sent)], seconds(sample.mean_ms));
    }
    p.metric(Gauge, "fs2_control_error_seconds", "Each mean is right within so much, with 95 % confidence.");
    for (sent, sample) in samples {
        p.real(&[("sent", sent)], seconds(sample.error_ms));
    }
}

#[cfg(test)]
mod tests {
    use fs2_block::Nanos;

    use super::*;

    fn sample(uuid: &str, status: Status) -> String {
        let mut reads = Times::default();
        [50, 100, 5_000, 10_000_000].into_iter().for_each(|us| reads.add(Nanos(us * 1000)));
        let status = Status { uuid: uuid.into(), volume: "/dev/sdb1".into(), ..status };
        page(&Measured { status: &status, reads: &reads, writes: &Times::default() })
    }

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_all() {
        let text = sample("u", Status::default());
        let count = |le: &str| {
            let line = format!(
                "fs2_access_seconds_bucket{{volume=\"u\",device=\"/dev/sdb1\",op=\"read\",le=\"{le}\"}} "
            );
            let at = text.find(&line).unwrap_or_else(|| panic!("{line} in {text}"));
            text[at + line.len()..].lines().next().unwrap().parse::<u64>().unwrap()
        };
        assert_eq!(
            [count("0.000064"), count("0.000128"), count("0.008192"), count("4.194304")],
            [1, 2, 3, 3]
        );
        assert_eq!(count("+Inf"), 4);
        assert!(text.contains("op=\"read\"} 10.00515\n"), "the sum: {text}");
    }

    #[test]
    fn a_control_sample_is_in_seconds() {
        use fs2_control::{Control, Sample};
        let originals = Sample { reads: 40, mean_ms: Some(5.0), error_ms: Some(0.5) };
        let copies = Sample { error_ms: None, ..originals };
        let text =
            sample("u", Status { control: Control { every: 256, copies, originals }, ..Status::default() });
        for line in [
            "fs2_control_reads_total{volume=\"u\",device=\"/dev/sdb1\",sent=\"originals\"} 40\n",
            "fs2_control_read_seconds{volume=\"u\",device=\"/dev/sdb1\",sent=\"copies\"} 0.005\n",
            "fs2_control_error_seconds{volume=\"u\",device=\"/dev/sdb1\",sent=\"originals\"} 0.0005\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(
            !text.contains("fs2_control_error_seconds{volume=\"u\",device=\"/dev/sdb1\",sent=\"copies\"}")
        );
    }

    #[test]
    fn foreign_text_stays_in_its_label() {
        let status = Status { policy: "a\"b\\c\nfs2_evil 1".into(), ..Status::default() };
        let text = sample("u", status);
        assert!(text.contains("policy=\"a\\\"b\\\\c\\nfs2_evil 1\""), "{text}");
        assert!(!text.lines().any(|l| l.starts_with("fs2_evil")));
    }

    /// Found: a free share of 0 and work in pauses, of a volume without either: whoever holds the share against the marks was called.
    #[test]
    fn of_what_is_not_active_no_free_share_is_told_and_no_work() {
        let liveness = [Liveness::Active, Liveness::Frozen("x".into()), Liveness::Inactive("x".into())];
        let told = liveness.map(|liveness| {
            let limit_ms = if liveness == Liveness::Active { 9.0 } else { 0.0 };
            let pause_work = fs2_control::PauseWork { allowed: true, cost_ms: 0.0, limit_ms };
            let text = sample("u", Status { liveness, pause_work, ..Status::default() });
            let work = text.contains("\nfs2_pause_work_allowed{volume=\"u\",device=\"/dev/sdb1\"} 1\n");
            (text.contains("\nfs2_free_ratio{"), work)
        });
        assert_eq!(told, [(true, true), (false, false), (false, false)]);
    }

    #[test]
    fn what_is_not_known_has_no_sample() {
        let status = Status { liveness: Liveness::Active, free_share: f64::NAN, ..Status::default() };
        let text = sample("u", status);
        for metric in [
            "fs2_control_read_seconds",
            "fs2_control_error_seconds",
            "fs2_free_ratio",
            "fs2_energy_joules_total",
            "fs2_access_part_seconds_total",
        ] {
            assert!(text.contains(&format!("# TYPE {metric} ")), "{metric}");
            assert!(!text.contains(&format!("\n{metric}{{")), "{metric}");
        }
    }
}
