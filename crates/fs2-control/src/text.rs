//! A status as a page for people: 80 columns, units that can be read.

use crate::sample::Sample;
use crate::status::{DetachInfo, Liveness, Marks, Source, Status, WatermarkState};

/// Without a discard, one part in so many of the volume is written before that is told of: a guess. A mount writes a few blocks
/// before anybody can have removed a file, and a volume that is read only loses nothing.
const WRITTEN_SHARE: u64 = 100;

/// Columns of the page.
const COLUMNS: usize = 80;

/// Columns before a row's value.
const INDENT: usize = 14;

/// Lines that keep to the page's width; control characters in foreign text become `?`.
struct Page(String);

impl Page {
    /// A label and its value, folded under itself.
    fn row(&mut self, label: &str, value: &str) {
        let mut label = format!("  {label}");
        for line in fold(value, COLUMNS - INDENT) {
            self.0.push_str(format!("{label:<INDENT$}{line}").trim_end());
            self.0.push('\n');
            label.clear();
        }
    }

    fn heading(&mut self, text: &str) {
        self.0.push('\n');
        self.0.push_str(text);
        self.0.push('\n');
    }

    /// A label and a picture of one line, spaces kept.
    fn picture(&mut self, label: &str, picture: &str) {
        let label = format!("  {label}");
        self.0.push_str(format!("{label:<INDENT$}{picture}").trim_end());
        self.0.push('\n');
    }

    /// Something to notice.
    fn warning(&mut self, text: &str) {
        let mut mark = "! ";
        for line in fold(text, COLUMNS - 2) {
            self.0.push_str(format!("{mark}{line}").trim_end());
            self.0.push('\n');
            mark = "  ";
        }
    }

    /// A command on a line of its own, never folded: it is there to be copied.
    fn command(&mut self, command: &str) {
        self.0.push_str("    ");
        self.0.push_str(&plain(command));
        self.0.push('\n');
    }
}

/// `text` without control characters, which become `?`: foreign names must not steer a terminal or begin a line.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// `text` in lines of at most `width` characters, broken between words where that is possible.
fn fold(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in plain(text).split(' ').filter(|w| !w.is_empty()) {
        let letters: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + letters.len() > width {
            lines.push(String::new());
            used = 0;
        }
        for (n, piece) in letters.chunks(width).enumerate() {
            if n > 0 {
                lines.push(String::new());
                used = 0;
            }
            let line = lines.last_mut().expect("there is always a last line");
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.extend(piece);
            used += piece.len();
        }
    }
    lines
}

/// 1234567 as `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 block`, `1,000 blocks`.
fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Bytes in the largest binary unit that leaves a whole number before the point.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = n as f64;
    let mut unit = "bytes";
    for next in UNITS {
        // What would be printed as 1024.0 goes into the next unit.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "bytes" { counted(n, "byte") } else { format!("{value:.1} {unit}") }
}

/// Three digits that mean something.
pub fn figure(x: f64) -> String {
    match x {
        // Not -0.00.
        _ if x.abs() < 0.005 => "0.00".into(),
        _ if !x.is_finite() => "?".into(),
        _ if x.abs() < 9.995 => format!("{x:.2}"),
        _ if x.abs() < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

/// Milliseconds; `-` where not known.
pub fn ms(t: Option<f64>) -> String {
    match t {
        None => "-".into(),
        Some(t) if t >= 1e4 => format!("{} s", figure(t / 1e3)),
        Some(t) if t > 0.0 && t < 0.1 => format!("{} us", figure(t * 1e3)),
        Some(t) => format!("{} ms", figure(t)),
    }
}

/// A mean of measured times and the interval of 95 % around it: `5.12 ± 0.30 ms`.
pub fn plus_minus(mean: Option<f64>, error: Option<f64>) -> String {
    match (mean, error) {
        (Some(m), Some(e)) => format!("{} ± {} ms", figure(m), figure(e)),
        (mean, _) => ms(mean),
    }
}

/// A share by which something is less, or more where it is negative: `62.0 % less`.
pub fn less(share: f64) -> String {
    format!("{} {}", percent(share.abs()), if share < 0.0 { "more" } else { "less" })
}

fn joules(e: Option<f64>) -> String {
    match e {
        None => "not known".into(),
        Some(e) if e >= 1e4 => format!("{} kJ", figure(e / 1e3)),
        Some(e) => format!("{} J", figure(e)),
    }
}

/// A share of 0 to 1 in percent.
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { "?".into() }
}

/// Seconds in the two largest units.
pub fn duration(seconds: f64) -> String {
    let s = if seconds.is_finite() { seconds.max(0.0) as u64 } else { 0 };
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3600 % 24),
    }
}

/// What a state of the watermarks means.
pub fn watermark(state: WatermarkState) -> &'static str {
    match state {
        WatermarkState::Off => "nothing is copied",
        WatermarkState::Copying => "copies are made",
        WatermarkState::Suspended => "no copies until the high watermark is reached again",
        WatermarkState::Low => "below the low watermark: the least used replicas go",
        WatermarkState::Critical => "below the critical watermark: whole regions of replicas go",
        WatermarkState::HostShort => "no copies: the image's file system is short of space",
    }
}

/// Counters of parts as `columns` characters, the highest column full; a part with anything in it is never blank.
pub fn strip(parts: &[u64], columns: usize) -> String {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let columns = columns.min(parts.len());
    let sum = |c: usize| {
        let part = |c: usize| c * parts.len() / columns;
        parts[part(c)..part(c + 1)].iter().fold(0u64, |a, n| a.saturating_add(*n))
    };
    let sums: Vec<u64> = (0..columns).map(sum).collect();
    let most = u128::from(sums.iter().copied().max().unwrap_or(0)).max(1);
    sums.iter().map(|&n| LEVELS[(u128::from(n) * 8).div_ceil(most) as usize]).collect()
}

fn detach(page: &mut Page, d: &DetachInfo) {
    page.heading("detach");
    let marked = if d.marked { "clean: the next attach is active at once" } else { "without a mark" };
    page.row("ended", marked);
    if let Some(why) = &d.why_not {
        page.row("why", why);
    }
    page.row("table", &counted(d.replicas, "replica"));
}

impl Status {
    /// The page that `fs2 status` prints: lines of at most 80 columns (the remedy apart, which is
    /// there to be copied), ending in a newline.
    pub fn to_text(&self) -> String {
        let mut page = Page(String::new());
        page.row("volume", &self.volume);
        page.row("state", &self.liveness.to_string());
        if let Some(remedy) = &self.remedy {
            page.warning("To make it active:");
            page.command(remedy);
        }
        let uuid = if self.uuid.is_empty() { "none: no file system was read" } else { &self.uuid };
        page.row("uuid", uuid);
        page.row("frontend", &self.frontend);
        page.row("policy", &self.policy);
        page.row("drive", &self.drive);
        page.row("data path", &self.data_path);
        let up = duration(self.uptime_s);
        page.row("daemon", &format!("fs2d {}, process {}, up {up}", self.version, self.pid));
        if let Some(trace) = &self.trace {
            page.row("trace", &format!("being recorded in {trace}"));
        }
        if let Some(why) = &self.trace_failed {
            page.warning(&format!("The trace ended early: {why}"));
        }

        page.heading("space");
        self.space(&mut page);
        self.places(&mut page);
        page.heading("requests");
        self.requests(&mut page);
        page.heading("time and energy");
        self.times(&mut page);
        self.troubles(&mut page);
        if let Some(d) = &self.detach {
            detach(&mut page, d);
        }
        page.0
    }

    /// The same in a line, without its end: for a list of volumes.
    pub fn to_line(&self) -> String {
        let read = match self.access_ms.mean {
            None => "no read measured".into(),
            mean => format!("a read {}", ms(mean)),
        };
        let (state, own) = (plain(&self.liveness.to_string()), self.own_work());
        format!(
            "{state}  {} replicas, {} of {} reads from them, {read}, own work {own}",
            self.replicas, self.reads_from_replica, self.reads
        )
    }

    /// Whether the daemon's own work goes on in short pauses, in a word or two; `off` where there is none.
    pub fn own_work(&self) -> &'static str {
        match (self.pause_work.limit_ms > 0.0, self.pause_work.allowed) {
            (false, _) => "off",
            (true, true) => "goes on",
            (true, false) => "waits",
        }
    }

    /// Whether enough was written for a lack of discards to be told of: what is known to be free shrinks by nothing else.
    fn much_written(&self) -> bool {
        self.write_bytes.saturating_mul(WRITTEN_SHARE) >= self.volume_bytes
    }

    fn space(&self, page: &mut Page) {
        match &self.liveness {
            Liveness::Active => {
                let share = percent(self.free_share);
                page.row(
                    "free",
                    &format!(
                        "{share} of the blocks that are not static metadata; {}",
                        watermark(self.watermark_state)
                    ),
                );
            }
            _ => page.row("free", "not known in this state; nothing is copied"),
        }
        let Marks { high, low, critical } = self.watermarks;
        if high > 0.0 {
            let [high, low, critical] = [high, low, critical].map(percent);
            page.row("marks", &format!("copies from {high}, none below {low}, regions go below {critical}"));
        }
        if self.replicas == 0 {
            page.row("replicas", "none");
        } else {
            let mut text = format!("{}, {}", counted(self.replicas, "block"), bytes(self.replica_bytes));
            if self.replicas_unverified > 0 {
                text += &format!("; {} not verified yet", count(self.replicas_unverified));
            }
            if self.space_share > 0.0 {
                text += &format!("; at most {} of the volume", percent(self.space_share));
            }
            page.row("replicas", &text);
        }
        if let Some(hot) = self.hot_region {
            let text = format!("blocks {} to {}", count(hot.first_block), count(hot.last_block));
            page.row("hot region", &text);
        }
        if self.liveness == Liveness::Active && !self.discard_seen && self.much_written() {
            let written = bytes(self.write_bytes);
            page.warning(&format!(
                "No discard was seen since the attach, in which {written} were written: where it is mounted without -o \
                 discard, the space known to be free can only shrink; run fs2 trim from time to time."
            ));
        }
    }

    /// Where on the volume.
    fn places(&self, page: &mut Page) {
        if self.volume_bytes == 0 {
            return;
        }
        let blocks = self.volume_bytes / u64::from(self.block_bytes.max(1));
        page.row("head", &format!("at block {} of {}", count(self.head_block), count(blocks)));
        let rows = [
            ("reads at", &self.parts.reads),
            ("replicas at", &self.parts.replica_reads),
            ("writes at", &self.parts.writes),
            ("own at", &self.parts.own),
        ];
        for (label, parts) in rows.into_iter().filter(|(_, p)| p.iter().any(|n| *n > 0)) {
            page.picture(label, &strip(parts, COLUMNS - INDENT - 2));
        }
    }

    fn requests(&self, page: &mut Page) {
        let from = if self.reads == 0 {
            String::new()
        } else {
            let share = percent(self.reads_from_replica as f64 / self.reads as f64);
            format!("; {} from replicas ({share})", count(self.reads_from_replica))
        };
        page.row("reads", &format!("{}{from}; {}", count(self.reads), bytes(self.read_bytes)));
        page.row("writes", &format!("{}; {}", count(self.writes), bytes(self.write_bytes)));
        page.row("discards", &count(self.discards));
        page.row("flushes", &count(self.flushes));
        let (waiting, device) = (count(self.requests_waiting), count(self.ios_in_flight));
        page.row("queue", &format!("{waiting} waiting, {device} at the device"));
        let void = match self.copies_void {
            0 => String::new(),
            n => format!("; {} in vain", count(n)),
        };
        let waiting = match self.copies_waiting {
            0 => String::new(),
            n => format!("; {} waiting", count(n)),
        };
        page.row("copied", &format!("{}{void}{waiting}", counted(self.copies_written, "block")));
        let (invalid, reclaimed) = (count(self.invalidated), count(self.reclaimed));
        page.row("dropped", &format!("{invalid} invalidated, {reclaimed} reclaimed"));
        if self.verified > 0 || self.refuted > 0 {
            let (right, wrong) = (count(self.verified), count(self.refuted));
            page.row("verified", &format!("{right} right, {wrong} wrong and dropped"));
        }
        let p = self.pause_work;
        if p.limit_ms > 0.0 {
            let what = if p.allowed { "own work goes on" } else { "own work waits for long rests" };
            let (cost, limit) = (ms(Some(p.cost_ms)), ms(Some(p.limit_ms)));
            let slowest =
                if p.allowed || p.cost_ms > p.limit_ms { "" } else { ", but made too many of the slowest" };
            let text = match p.saved_ms() {
                Some(saved) => format!(
                    "{what}: it saved {} more than it cost, and may cost {limit}, lately{slowest}",
                    ms(Some(saved))
                ),
                None => format!("{what}: it cost {cost} of {limit} it may, lately{slowest}"),
            };
            page.row("pauses", &text);
        }
        let g = self.replica_gate;
        let times = counted(g.closings, "time");
        match (g.closed_for, g.closings) {
            (0, 0) => {}
            (0, _) => {
                page.row("gate", &format!("replicas are read; {times} they were not, for they were slower"))
            }
            (n, _) => {
                let why = "their reads were slower than plain ext2 would be, by a model of the drive";
                page.row(
                    "gate",
                    &format!("originals are read for {}: {why} ({times} so far)", counted(n, "read")),
                );
            }
        }
        page.row("table", &format!("{} written", counted(self.table_pages_written, "page")));
    }

    fn times(&self, page: &mut Page) {
        let t = &self.access_ms;
        match (t.mean, t.p99) {
            (None, None) => page.row("a read", "none measured yet"),
            _ => page.row("a read", &format!("mean {}, 99 % within {} (measured)", ms(t.mean), ms(t.p99))),
        }
        if let Some(wait) = t.wait {
            page.row("its wait", &format!("mean {}, before that (measured)", ms(Some(wait))));
        }
        if self.total_s.saved > 0.0 {
            let saved = figure(self.total_s.saved);
            page.row("saved", &format!("{saved} s by replicas (predicted at each read)"));
        }
        self.control(page);
        if t.source != Source::None {
            let parts = format!(
                "seek {}, rotation {}, transfer {} ({})",
                ms(t.seek),
                ms(t.rotation),
                ms(t.transfer),
                t.source
            );
            page.row("an access", &parts);
        }
        match &self.energy_j.source {
            Source::None => {}
            source => page.row("energy", &format!("{} ({source})", joules(self.energy_j.value))),
        }
    }

    fn control(&self, page: &mut Page) {
        let c = &self.control;
        if c.every == 0 {
            return;
        }
        let of = |s: &Sample| format!("{} ({})", plus_minus(s.mean_ms, s.error_ms), counted(s.reads, "read"));
        let text = match c.gain() {
            Some(g) => format!(
                "with copies {}, from originals {}: {}",
                of(&c.copies),
                of(&c.originals),
                g.share().map_or("no difference".into(), less)
            ),
            None => format!("too few reads yet: {} were sent to their originals", count(c.originals.reads)),
        };
        page.row("control", &format!("{text} (measured, one run in {})", c.every));
    }

    fn troubles(&self, page: &mut Page) {
        let troubles = [
            (self.failed.reads, "read", "of clients failed"),
            (self.failed.writes, "write", "of clients failed (discards among them)"),
            (self.failed.flushes, "flush request", "of clients failed"),
            (self.hash_mismatches, "replica", "held other bytes than its hash says; the original was read"),
            (self.replica_errors, "replica read", "failed below; what else holds its blocks was read"),
            (
                self.original_errors,
                "read",
                "of an original failed below; a replica answered: copy the files elsewhere",
            ),
            (self.copy_errors, "attempt", "to write a copy failed"),
            (self.table_errors, "write", "of the table or the mark failed"),
            (self.clients_cut, "client", "took no answers, or sent half a write, and was sent away"),
        ];
        if troubles.iter().any(|(n, _, _)| *n > 0) {
            page.heading("troubles");
        }
        for (n, what, happened) in troubles {
            if n > 0 {
                page.warning(&format!("{} {happened}", counted(n, what)));
            }
        }
        if let Some(last) = &self.failed.last {
            page.warning(&format!("The last that a client was told of: {last}"));
        }
        if let Some(why) = &self.failed.refuses_changes {
            let then = "unmount it, see to what failed below, and check it with chkfs2 -f -p";
            page.warning(&format!("Every write is refused now: {why}; {then}"));
        }
    }
}

#[cfg(test)]
mod tests;
