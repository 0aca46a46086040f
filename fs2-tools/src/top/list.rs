//! A line of the list of volumes, and its heading.

use fs2_control::{Liveness, Status, count, ms, percent, plain};

use super::model::Watched;

/// Columns that say where a volume is want as many at least.
const PLACE_LEAST: usize = 12;

/// A column: its heading, its width, and whether what is in it ends right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    what: What,
    width: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Place,
    Device,
    State,
    Reads,
    Hits,
    Access,
    Replicas,
    Own,
}

impl What {
    fn heading(self) -> &'static str {
        match self {
            What::Place => "mounted on",
            What::Device => "device",
            What::State => "state",
            What::Reads => "reads/s",
            What::Hits => "hits",
            What::Access => "a read",
            What::Replicas => "replicas",
            What::Own => "own work",
        }
    }

    fn is_figure(self) -> bool {
        matches!(self, What::Reads | What::Hits | What::Access | What::Replicas)
    }
}

/// Columns of the marker and the number before a line.
const NUMBER: usize = 5;

/// The columns for lines of `width`: what matters least is left out where it is narrow, and what is left goes to the places.
pub(super) fn columns(width: usize) -> Vec<Column> {
    use What::{Access, Device, Hits, Own, Place, Reads, Replicas, State};
    let mut all = vec![Place, Device, State, Reads, Hits, Access, Replicas, Own];
    let fixed = |what| match what {
        Place | Device => None,
        State | Access | Own => Some(8),
        Reads | Hits => Some(7),
        Replicas => Some(10),
    };
    let taken =
        |all: &[What]| NUMBER + all.iter().map(|w| fixed(*w).map_or(PLACE_LEAST, |w| w) + 1).sum::<usize>();
    for least in [Reads, Device, Own, Replicas] {
        if taken(&all) <= width {
            break;
        }
        all.retain(|w| *w != least);
    }
    let places = all.iter().filter(|w| fixed(**w).is_none()).count().max(1);
    let spare = width.saturating_sub(taken(&all)) / places;
    all.into_iter().map(|what| Column { what, width: fixed(what).unwrap_or(PLACE_LEAST + spare) }).collect()
}

/// `text` in at most `width` columns, the lost end marked.
pub(super) fn cut(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect(),
        false => text.to_owned(),
    }
}

/// Of a path, its end tells more.
fn cut_path(path: &str, width: usize) -> String {
    let long = path.chars().count().saturating_sub(width);
    match long {
        0 => path.to_owned(),
        _ => ['…'].into_iter().chain(path.chars().skip(long + 1)).take(width).collect(),
    }
}

fn cell(column: Column, text: &str) -> String {
    let width = column.width;
    let text = match column.what {
        What::Place | What::Device => cut_path(text, width),
        _ => cut(text, width),
    };
    if column.what.is_figure() { format!("{text:>width$} ") } else { format!("{text:<width$} ") }
}

/// The line above the list.
pub(super) fn heading(columns: &[Column]) -> String {
    let cells: String = columns.iter().map(|c| cell(*c, c.what.heading())).collect();
    format!("{:NUMBER$}{cells}", "")
}

/// Whether nothing is to be said of a volume that its line has no room for.
pub(super) fn is_well(w: &Watched) -> bool {
    w.trouble.is_none() && w.now.as_ref().is_none_or(|s| s.liveness == Liveness::Active)
}

fn state(w: &Watched) -> &'static str {
    match (&w.trouble, &w.now) {
        (Some(_), _) => "silent",
        (None, None) => "asked",
        (None, Some(s)) => match s.liveness {
            Liveness::Active => "active",
            Liveness::Frozen(_) => "frozen",
            Liveness::Inactive(_) => "inactive",
        },
    }
}

/// A volume's line.
pub(super) fn line(columns: &[Column], w: &Watched, number: usize, chosen: bool) -> String {
    let known = |of: fn(&Status) -> String| w.now.as_ref().map_or("-".into(), of);
    let text = |what| match what {
        What::Place if w.mounted => plain(&w.name),
        What::Place => "-".into(),
        What::Device => match &w.now {
            Some(s) => plain(&s.volume),
            // The socket is all there is.
            None if !w.mounted => plain(&w.name),
            None => "-".into(),
        },
        What::State => state(w).into(),
        What::Reads => w.rates.as_ref().map_or("-".into(), |r| super::screen::rate(r.reads)),
        What::Hits => known(|s| match s.reads {
            0 => "-".into(),
            n => percent(s.reads_from_replica as f64 / n as f64),
        }),
        What::Access => known(|s| ms(s.access_ms.mean)),
        What::Replicas => known(|s| count(s.replicas)),
        What::Own => known(|s| s.own_work().into()),
    };
    let cells: String = columns.iter().map(|c| cell(*c, &text(c.what))).collect();
    let mark = if chosen { '>' } else { ' ' };
    format!(" {mark}{number:>2} {cells}")
}
