//! A line of the list of volumes, and its heading.

use fs2_control::{Liveness, Status, count, ms, percent, plain};
use ratatui::text::Span;

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

/// Columns that a text takes: a letter of Chinese has two.
pub(super) fn columns_of(text: &str) -> usize {
    Span::raw(text).width()
}

fn columns_of_letter(letter: char) -> usize {
    columns_of(letter.encode_utf8(&mut [0; 4]))
}

/// `text` in at most `width` columns, the lost end marked.
pub(super) fn cut(text: &str, width: usize) -> String {
    if columns_of(text) <= width {
        return text.to_owned();
    }
    // The mark takes one.
    let mut used = 1;
    let fits = |letter: &char| {
        used += columns_of_letter(*letter);
        used <= width
    };
    text.chars().take_while(fits).chain(['…'].into_iter().take(width)).collect()
}

/// Of a path, its end tells more.
fn cut_path(path: &str, width: usize) -> String {
    if columns_of(path) <= width {
        return path.to_owned();
    }
    let (mut used, mut begin) = (1, path.len());
    for (at, letter) in path.char_indices().rev() {
        used += columns_of_letter(letter);
        if used > width {
            break;
        }
        begin = at;
    }
    ['…'].into_iter().take(width).chain(path[begin..].chars()).collect()
}

/// `text` and blanks up to `width` columns, before it where it ends `right`.
pub(super) fn padded(text: &str, width: usize, right: bool) -> String {
    let blanks = " ".repeat(width.saturating_sub(columns_of(text)));
    if right { blanks + text } else { text.to_owned() + &blanks }
}

fn cell(column: Column, text: &str) -> String {
    let width = column.width;
    let text = match column.what {
        What::Place | What::Device => cut_path(text, width),
        _ => cut(text, width),
    };
    padded(&text, width, column.what.is_figure()) + " "
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
