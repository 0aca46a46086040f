//! The screen: 24 lines of 80 columns, made of what is known of one volume. Smaller screens lose their lower lines and
//! right columns; what is too small says so.

use fs2_control::{
    Control, Liveness, Source, Status, bytes, count, duration, figure, less, percent, plain, plus_minus,
    strip, watermark,
};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::list;
use super::model::{Rates, Split, Watched};

/// Where there is nothing to watch.
pub(super) const NOBODY: &str = "no volume is mounted by FS2, and no daemon serves one";

/// Below this nothing would be told.
pub(super) const LEAST: (u16, u16) = (50, 10);

/// Columns before a row's value.
const LABEL: usize = 11;

/// Columns of a strip at most: the parts a volume is counted in.
const STRIP_MAX: usize = 64;

/// What is shown.
pub(super) struct View<'a> {
    pub(super) watched: &'a Watched,
    /// Which of how many, from 1.
    pub(super) number: (usize, usize),
    /// Seconds between two statuses.
    pub(super) interval_s: f64,
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) colors: bool,
}

/// Milliseconds as a figure with its unit.
fn ms(t: f64) -> String {
    fs2_control::ms(Some(t))
}

/// So many a second.
pub(super) fn rate(n: f64) -> String {
    match n {
        0.0 => "0".into(),
        ..10.0 => format!("{n:.1}"),
        _ => format!("{n:.0}"),
    }
}

/// A list of volumes, one of them chosen.
pub(super) struct ListView<'a> {
    pub(super) all: &'a [Watched],
    /// Which is chosen.
    pub(super) chosen: usize,
    pub(super) interval_s: f64,
    pub(super) paused: bool,
    pub(super) colors: bool,
}

struct Rows<'a> {
    view: &'a View<'a>,
    width: usize,
    lines: Vec<Line<'static>>,
}

impl Rows<'_> {
    fn style(&self, color: Color) -> Style {
        if self.view.colors { Style::new().fg(color) } else { Style::new() }
    }

    fn label(&self, label: &str) -> Span<'static> {
        let style = if self.view.colors { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        Span::styled(format!(" {label:<width$}", width = LABEL - 1), style)
    }

    fn row(&mut self, label: &str, value: impl Into<Span<'static>>) {
        let line = Line::from(vec![self.label(label), value.into()]);
        self.lines.push(line);
    }

    fn text(&mut self, label: &str, value: &str) {
        self.row(label, plain(value));
    }

    fn blank(&mut self) {
        self.lines.push(Line::default());
    }

    fn strip_columns(&self) -> usize {
        (self.width - LABEL - 1).min(STRIP_MAX)
    }
}

/// Says where a screen is too small for anything; true where it is.
fn is_small(frame: &mut Frame<'_>) -> bool {
    let area = frame.area();
    let small = area.width < LEAST.0 || area.height < LEAST.1;
    if small {
        let text = format!("too small: {} x {}, at least {} x {}", area.width, area.height, LEAST.0, LEAST.1);
        frame.render_widget(Paragraph::new(text), area);
    }
    small
}

/// Draws the list.
pub(super) fn draw_list(frame: &mut Frame<'_>, view: &ListView<'_>) {
    if is_small(frame) {
        return;
    }
    let area = frame.area();
    let width = usize::from(area.width);
    let at = |y: u16, height: u16| Rect { y: area.y + y, height, ..area };
    let paused = if view.paused { "PAUSED  " } else { "" };
    let volumes = match view.all.len() {
        1 => "1 volume".into(),
        n => format!("{n} volumes"),
    };
    let title =
        bar_of(&format!(" fs2 top  {volumes}"), &format!("{paused}every {} s ", view.interval_s), width);
    frame.render_widget(Paragraph::new(Line::styled(title, reversed(view.colors))), at(0, 1));
    // What fits below the heading, with the chosen one among it.
    let room = usize::from(area.height) - 4;
    let from = (view.chosen + 1).saturating_sub(room);
    let columns = list::columns(width);
    let mut lines = vec![Line::default(), Line::raw(list::heading(&columns))];
    for (i, watched) in view.all.iter().enumerate().skip(from).take(room) {
        let line = list::line(&columns, watched, i + 1, i == view.chosen);
        let style = match (view.colors && i == view.chosen, list::is_well(watched)) {
            (true, _) => reversed(true),
            (false, false) if view.colors => Style::new().fg(Color::Red),
            _ => Style::new(),
        };
        lines.push(Line::styled(line, style));
    }
    if view.all.is_empty() {
        lines = vec![Line::default(), Line::raw(format!(" {NOBODY}"))];
    }
    frame.render_widget(Paragraph::new(lines), at(1, area.height - 2));
    let keys = " enter or a number: a volume  up down  q quit  p pause  + - interval";
    frame.render_widget(Paragraph::new(keys), at(area.height - 1, 1));
}

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    if is_small(frame) {
        return;
    }
    let area = frame.area();
    let mut rows = Rows { view, width: usize::from(area.width), lines: Vec::new() };
    if view.help {
        rows.lines.extend(HELP.lines().map(|l| Line::from(format!(" {l}"))));
    } else if let Some(status) = &view.watched.now {
        state(&mut rows, status);
        places(&mut rows, status);
        times(&mut rows, status);
        requests(&mut rows, status);
        replicas(&mut rows, status);
    } else {
        rows.blank();
        let trouble = view.watched.trouble.as_deref().unwrap_or("asking its daemon");
        rows.text("", trouble);
    }
    let at = |y: u16, height: u16| Rect { y: area.y + y, height, ..area };
    frame.render_widget(Paragraph::new(title(view, usize::from(area.width))), at(0, 1));
    frame.render_widget(Paragraph::new(rows.lines), at(1, area.height - 2));
    frame.render_widget(Paragraph::new(keys(view)), at(area.height - 1, 1));
}

fn reversed(colors: bool) -> Style {
    if colors { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() }
}

/// Two texts at the ends of a line; the left one gives way.
fn bar_of(left: &str, right: &str, width: usize) -> String {
    let room = width.saturating_sub(list::columns_of(right) + 1);
    format!("{} {right}", list::padded(&list::cut(left, room), room, false))
}

fn title(view: &View<'_>, width: usize) -> Line<'static> {
    let device = view.watched.now.as_ref().map_or("", |s| &*s.volume);
    let mut left = format!(" fs2 top  {}", plain(&view.watched.name));
    if !device.is_empty() && device != view.watched.name {
        left += &format!("  {}", plain(device));
    }
    let mut right = format!("every {} s ", view.interval_s);
    if view.number.1 > 1 {
        right = format!("volume {} of {}  {right}", view.number.0, view.number.1);
    }
    if view.paused {
        right = format!("PAUSED  {right}");
    }
    Line::styled(bar_of(&left, &right, width), reversed(view.colors))
}

fn keys(view: &View<'_>) -> Line<'static> {
    let volumes = if view.number.1 > 1 { "  tab 1-9 volume  l list" } else { "" };
    Line::raw(format!(" q quit  p pause  + - interval{volumes}  h help"))
}

const HELP: &str = "
reads, replicas, writes, own: where accesses began since the screen before,
           lowest addresses left; own: the daemon's
head       ^ where the head is taken to be, = the hot region
a read     measured, dispatch to completion; wait: arrival to dispatch
made of    seek, rotation, transfer of an access, as the drive's model has it
           w waiting  s seek  r rotation  t transfer
history    mean of a read, one column a screen, the latest right
hits       reads served from replicas
control    measured: runs as the policy serves them, and n reads sent home
free       of the blocks that are not static metadata, those free without a
           replica; c critical, l low, h high: below low copying stops, above
           high it resumes
pauses     what the daemon's own work in short pauses costs requests

q          quit                      tab 1-9    next volume, volume by number
p space    pause                     l Esc      list of volumes
h ?        this page                 + -        longer, shorter interval";

fn state(rows: &mut Rows<'_>, s: &Status) {
    let color = match s.liveness {
        Liveness::Active => Color::Green,
        Liveness::Frozen(_) => Color::Yellow,
        Liveness::Inactive(_) => Color::Red,
    };
    let copying = if s.liveness == Liveness::Active { watermark(s.watermark_state) } else { "" };
    let text = plain(&s.liveness.to_string());
    let style = rows.style(color);
    let mut line = vec![rows.label("state"), Span::styled(text, style)];
    if !copying.is_empty() {
        line.push(Span::raw(format!("; {copying}")));
    }
    rows.lines.push(Line::from(line));
    let (policy, up) = (&s.policy, duration(s.uptime_s));
    rows.text("daemon", &format!("fs2d {}, policy {policy}, up {up}; {}", s.version, s.drive));
    let bad = [
        (s.failed.reads, "failed reads"),
        (s.failed.writes, "failed writes"),
        (s.failed.flushes, "failed flushes"),
        (s.hash_mismatches, "hash mismatches"),
        (s.replica_errors, "replica read errors"),
        (s.original_errors, "reads of originals failed, answered from replicas"),
        (s.copy_errors, "copy errors"),
        (s.table_errors, "table errors"),
    ];
    let mut troubles: Vec<String> = rows.view.watched.trouble.iter().map(|t| plain(t)).collect();
    troubles.extend(bad.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(*n))));
    match (&s.remedy, troubles.is_empty()) {
        (_, false) => {
            let style = rows.style(Color::Red);
            rows.row("!", Span::styled(troubles.join(", "), style));
        }
        (Some(remedy), true) => rows.text("remedy", remedy),
        (None, true) => rows.blank(),
    }
}

fn places(rows: &mut Rows<'_>, s: &Status) {
    let columns = rows.strip_columns();
    let a_column = bytes(s.volume_bytes / columns.max(1) as u64);
    rows.text("volume", &format!("{}; a column is {a_column}", bytes(s.volume_bytes)));
    let parts = rows.view.watched.rates.as_ref().map_or(&s.parts, |r| &r.parts).clone();
    let strips = [
        ("reads", &parts.reads, Color::Cyan),
        ("replicas", &parts.replica_reads, Color::Green),
        ("writes", &parts.writes, Color::Yellow),
        ("own", &parts.own, Color::Magenta),
    ];
    for (label, parts, color) in strips {
        let style = rows.style(color);
        rows.row(label, Span::styled(strip(parts, columns), style));
    }
    rows.row("head", head(s, columns));
    rows.blank();
}

/// The head and the hot region over the volume.
fn head(s: &Status, columns: usize) -> String {
    let blocks = (s.volume_bytes / u64::from(s.block_bytes.max(1))).max(1);
    let column =
        |block: u64| (u128::from(block.min(blocks - 1)) * columns as u128 / u128::from(blocks)) as usize;
    let mut line = vec!['·'; columns];
    if let Some(hot) = s.hot_region.filter(|h| h.first_block <= h.last_block)
        && let Some(stretch) = line.get_mut(column(hot.first_block)..=column(hot.last_block))
    {
        stretch.fill('=');
    }
    if let Some(at) = line.get_mut(column(s.head_block)) {
        *at = '^';
    }
    line.into_iter().collect()
}

fn times(rows: &mut Rows<'_>, s: &Status) {
    let split = rows.view.watched.rates.as_ref().and_then(|r| r.split);
    let now = split.map_or("- now".into(), |n| format!("{} now, wait {}", ms(n.mean), ms(n.wait)));
    let ever = match (s.access_ms.mean, s.access_ms.p99) {
        (Some(mean), Some(p99)) => format!("; in all {}, 99 % within {}", ms(mean), ms(p99)),
        _ => "; none since the attach".into(),
    };
    rows.text("a read", &format!("{now}{ever}"));
    let parts = split.and_then(|n| n.parts);
    let from = match &s.access_ms.source {
        Source::None => String::new(),
        Source::Modelled(_) => "; modelled".into(),
        Source::Simulated(_) => "; simulated".into(),
        Source::Other(what) => format!("; {what}"),
    };
    match parts {
        Some([seek, rotation, transfer]) => {
            let (seek, rotation, transfer) = (ms(seek), ms(rotation), ms(transfer));
            rows.text("made of", &format!("seek {seek}, rotation {rotation}, transfer {transfer}{from}"));
        }
        None => rows.text("made of", if s.access_ms.source == Source::None { "not known" } else { "-" }),
    }
    bar(rows, split);
    history(rows);
}

/// The parts of a read as letters.
fn bar(rows: &mut Rows<'_>, split: Option<Split>) {
    let columns = rows.strip_columns();
    let Some(split) = split else { return rows.row("", "") };
    let [seek, rotation, transfer] = split.parts.unwrap_or_default();
    let parts = [
        ('w', split.wait, Color::Red),
        ('s', seek, Color::Blue),
        ('r', rotation, Color::Yellow),
        ('t', transfer, Color::Green),
    ];
    let all: f64 = parts.iter().map(|p| p.1).sum();
    let (mut line, mut before, mut drawn) = (vec![rows.label("")], 0.0, 0);
    for (letter, part, color) in parts {
        before += part;
        // A share of nothing is nothing.
        let end = if all > 0.0 { (before / all * columns as f64).round() as usize } else { 0 };
        let n = end.min(columns).saturating_sub(drawn);
        drawn += n;
        line.push(Span::styled(letter.to_string().repeat(n), rows.style(color)));
    }
    rows.lines.push(Line::from(line));
}

/// The latest points as a strip, the latest right.
fn points(of: impl DoubleEndedIterator<Item = Option<f64>>, columns: usize, most: f64) -> String {
    let mut latest: Vec<u64> =
        of.rev().take(columns).map(|v| v.map_or(0, |v| (v / most * 1e6) as u64)).collect();
    latest.reverse();
    // The scale's end is in it, and cut off again.
    latest.push(1_000_000);
    let drawn = strip(&latest, latest.len());
    let shown = drawn.chars().take(latest.len() - 1).collect::<String>();
    format!("{shown:>columns$}")
}

fn history(rows: &mut Rows<'_>) {
    let history = &rows.view.watched.history;
    let most = history.iter().filter_map(|p| p.access_ms).fold(0.0, f64::max);
    let columns = rows.strip_columns().saturating_sub(16);
    let text = match most > 0.0 {
        true => {
            let line = points(history.iter().map(|p| p.access_ms), columns, most);
            format!("{line} up to {}", ms(most))
        }
        false => String::new(),
    };
    let style = rows.style(Color::Cyan);
    rows.row("history", Span::styled(text, style));
    let share = |share: Option<f64>| share.map_or("-".into(), percent);
    let s = rows.view.watched.now.as_ref();
    let ever = s.filter(|s| s.reads > 0).map(|s| s.reads_from_replica as f64 / s.reads as f64);
    let now = rows.view.watched.rates.as_ref().and_then(|r| r.hits);
    let text = format!("{} now, {} since the attach", share(now), share(ever));
    let room = rows.strip_columns().saturating_sub(text.len() + 2);
    let line = points(history.iter().map(|p| p.hits), room, 1.0);
    rows.row("hits", format!("{text}  {line}"));
    match rows.view.watched.now.as_ref().map(|s| s.control).filter(|c| c.every > 0) {
        Some(control) => rows.text("control", &control_of(&control)),
        None => rows.blank(),
    }
}

/// What the control sample says, in a line.
fn control_of(c: &Control) -> String {
    let Some(gain) = c.gain() else {
        return format!(
            "1 run in {}; too few reads yet, {} from originals",
            c.every,
            count(c.originals.reads)
        );
    };
    format!(
        "with copies {}, without {}; {}, n {}",
        plus_minus(c.copies.mean_ms, c.copies.error_ms),
        plus_minus(c.originals.mean_ms, c.originals.error_ms),
        gain.share().map_or("-".into(), less),
        count(c.originals.reads)
    )
}

fn requests(rows: &mut Rows<'_>, s: &Status) {
    let none = Rates::default();
    let r = rows.view.watched.rates.as_ref().unwrap_or(&none);
    let per_s = |n: f64| bytes(n as u64);
    let text = format!(
        "a second: read {} {}, write {} {}, discard {}, flush {}",
        rate(r.reads),
        per_s(r.read_bytes),
        rate(r.writes),
        per_s(r.write_bytes),
        rate(r.discards),
        rate(r.flushes)
    );
    let frontend = s.frontend.split(' ').next().filter(|f| !f.is_empty()).unwrap_or("frontend");
    rows.text(&frontend.chars().take(LABEL - 2).collect::<String>(), &text);
    let (waiting, device) = (count(s.requests_waiting), count(s.ios_in_flight));
    let energy = s.energy_j.value.map_or(String::new(), |j| format!("; energy {} J", figure(j)));
    rows.text("queue", &format!("{waiting} waiting, {device} at the device{energy}"));
}

fn replicas(rows: &mut Rows<'_>, s: &Status) {
    let (copies, dropped) = rows.view.watched.rates.as_ref().map_or((0.0, 0.0), |r| (r.copies, r.dropped));
    let (made, void, waiting) = (count(s.copies_written), count(s.copies_void), count(s.copies_waiting));
    rows.text(
        "copies",
        &format!(
            "{}/s now, {}/s dropped; {made} made, {void} void, {waiting} waiting",
            rate(copies),
            rate(dropped)
        ),
    );
    let unverified = match s.replicas_unverified {
        0 => String::new(),
        n => format!(", {} unverified", count(n)),
    };
    let saved = match s.total_s.saved > 0.0 {
        true => format!("; saved {} s (predicted)", figure(s.total_s.saved)),
        false => String::new(),
    };
    let held = bytes(s.replica_bytes);
    rows.text("replicas", &format!("{} blocks, {held}{unverified}{saved}", count(s.replicas)));
    gauge(rows, s);
    let p = s.pause_work;
    let text = match p.limit_ms > 0.0 {
        true => {
            let what = if p.allowed { "goes on" } else { "waits for long rests" };
            let limit = ms(p.limit_ms);
            match p.saved_ms() {
                Some(saved) => format!("own work {what}: it saved {} more than it cost, lately", ms(saved)),
                None => format!("own work {what}: it cost {} of {limit} it may, lately", ms(p.cost_ms)),
            }
        }
        false => "no own work".into(),
    };
    rows.text("pauses", &text);
}

/// The free share over the watermarks.
fn gauge(rows: &mut Rows<'_>, s: &Status) {
    if s.liveness != Liveness::Active {
        return rows.text("free", "not known in this state; nothing is copied");
    }
    let marks = [(s.watermarks.critical, 'c'), (s.watermarks.low, 'l'), (s.watermarks.high, 'h')];
    let text = format!("{:>7} of the blocks  ", percent(s.free_share));
    let columns = rows.strip_columns().saturating_sub(text.len() + 2);
    // Twice the high mark is plenty.
    let end = (2.0 * s.watermarks.high).clamp(0.01, 1.0);
    let column = |share: f64| (share / end * columns as f64).clamp(0.0, columns as f64) as usize;
    let mut line = vec!['░'; columns];
    line[..column(s.free_share)].fill('█');
    for (share, letter) in marks {
        if let Some(at) = line.get_mut(column(share)) {
            *at = letter;
        }
    }
    let style = rows.style(if s.free_share < s.watermarks.low { Color::Red } else { Color::Green });
    let bar: String = line.into_iter().collect();
    let line = vec![rows.label("free"), Span::raw(text), Span::styled(format!("[{bar}]"), style)];
    rows.lines.push(Line::from(line));
}
