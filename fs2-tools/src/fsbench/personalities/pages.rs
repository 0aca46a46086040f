//! Tables, indexes and the log of a database, as files of pages: what `tpcw`, `rubis` and `rubbos` keep.
//!
//! I1: a page's content follows from its file, its number and how often it was written; the count is kept here,
//!     and changes under the file's lock together with the page.
//! I2: the log is a ring: bytes before its head are of the current round, those behind it of the one before.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::files::{Kind, number};
use crate::fsbench::{BenchError, Content, Control, Needs, OpClass, Site, Verified};

/// Bytes of a page.
pub(super) const PAGE: u64 = 8192;
/// Entries in a leaf of an index: 20 bytes each, leaves two thirds full.
pub(super) const LEAF_ENTRIES: u64 = 280;
/// Bytes of the log, which is used again and again.
const LOG_BYTES: u64 = 16 << 20;
/// Bytes that a changed page leaves in the log (a guess: most of a row and its headers).
const LOG_RECORD: u64 = 512;
/// Files are made in turns of so many bytes, at least and at most.
const TURN: (u64, u64) = (1 << 20, 4 << 20);

/// A table or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Its file's name.
    pub(super) name: &'static str,
    /// Rows at the beginning; entries, of an index.
    pub(super) rows: u64,
    /// Rows in a page; [`LEAF_ENTRIES`] of an index.
    pub(super) rows_of_page: u64,
}

/// What is in a file now.
#[derive(Clone, Debug)]
struct State {
    /// How often each page was written since it was made.
    versions: Vec<u32>,
    rows: u64,
}

/// The log's head: bytes written to it in all.
#[derive(Clone, Copy, Debug, Default)]
struct LogHead(u64);

pub(super) struct Store {
    seed: u64,
    tables: Vec<Table>,
    states: Vec<Mutex<State>>,
    log: Mutex<LogHead>,
}

fn log_path() -> PathBuf {
    PathBuf::from("db").join("log")
}

/// Keeps I1.
fn content(seed: u64, table: usize, page: u64, version: u32) -> Content {
    let number = number(Kind::First, (table as u64) << 40 | page);
    Content::new(seed.wrapping_add(u64::from(version) << 32), number)
}

/// Keeps I2.
fn log_content(seed: u64, round: u64) -> Content {
    Content::new(seed, number(Kind::Third, round))
}

impl Store {
    /// One of these tables, which are called by their places in the list from here on.
    pub(super) fn new(tables: Vec<Table>, seed: u64) -> Store {
        let states = tables
            .iter()
            .map(|t| {
                Mutex::new(State {
                    versions: vec![0; t.rows.div_ceil(t.rows_of_page) as usize],
                    rows: t.rows,
                })
            })
            .collect();
        Store { seed, tables, states, log: Mutex::default() }
    }

    fn path(&self, table: usize) -> PathBuf {
        PathBuf::from("db").join(self.tables[table].name)
    }

    fn state(&self, table: usize) -> MutexGuard<'_, State> {
        self.states[table].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self, table: usize) -> u64 {
        self.state(table).versions.len() as u64
    }

    pub(super) fn needs(&self) -> Needs {
        let bytes = (0..self.tables.len()).map(|t| self.pages(t)).sum::<u64>() * PAGE;
        Needs {
            bytes: bytes + LOG_BYTES,
            inodes: self.tables.len() as u64 + 2,
            descriptors: self.tables.len() as u64 + 1,
            memory: bytes / PAGE * 8 + (1 << 20),
        }
    }

    /// Makes all files in turns, so that their blocks lie between one another's.
    pub(super) fn make(&self, site: &Site, control: &Control) -> Result<(), BenchError> {
        let dir = site.path("db");
        std::fs::create_dir(&dir).map_err(BenchError::at(&dir, "making the directory"))?;
        let mut rng = site.stream("table turns");
        let mut recorder = control.recorder(vec![OpClass::new("make")]);
        let mut unfinished = Vec::new();
        for table in 0..self.tables.len() {
            let path = site.path(self.path(table));
            let file = File::create_new(&path).map_err(BenchError::at(&path, "making it"))?;
            unfinished.push((table, path, file, 0, self.pages(table)));
        }
        let mut page = vec![0; PAGE as usize];
        while !unfinished.is_empty() {
            for (table, path, file, done, pages) in &mut unfinished {
                let turn = rng.between(TURN.0, TURN.1) / PAGE;
                let until = (*done + turn).min(*pages);
                while *done < until {
                    control.check()?;
                    let began = std::time::Instant::now();
                    content(self.seed, *table, *done, 0).fill(0, &mut page);
                    file.write_all_at(&page, *done * PAGE).map_err(BenchError::at(path, "making it"))?;
                    recorder.done(0, began, 0, PAGE);
                    *done += 1;
                }
            }
            unfinished.retain(|(_, _, _, done, pages)| done < pages);
        }
        let log = site.path(log_path());
        let make = || log_content(self.seed, 0).write(&File::create_new(&log)?, 0, LOG_BYTES);
        make().map_err(BenchError::at(&log, "making it"))
    }

    /// Opens all files for a pass.
    pub(super) fn open(&self, site: &Site) -> Result<Open<'_>, BenchError> {
        let open = |path: PathBuf| {
            let path = site.path(path);
            let file = File::options().read(true).write(true).open(&path);
            Ok((file.map_err(BenchError::at(&path, "opening it"))?, path))
        };
        let files = (0..self.tables.len()).map(|t| open(self.path(t))).collect::<Result<_, BenchError>>()?;
        Ok(Open { store: self, files, log: open(log_path())? })
    }

    /// Compares every page of every file, and the log.
    pub(super) fn verify(
        &self,
        site: &Site,
        control: &Control,
        into: &mut Verified,
    ) -> Result<(), BenchError> {
        for table in 0..self.tables.len() {
            let path = site.path(self.path(table));
            let state = self.state(table);
            let bytes = state.versions.len() as u64 * PAGE;
            let compare = || -> io::Result<Option<String>> {
                let file = File::open(&path)?;
                let have = file.metadata()?.len();
                if have != bytes {
                    return Ok(Some(format!("{have} bytes, {bytes} were written")));
                }
                let (mut got, mut want) = (vec![0; PAGE as usize], vec![0; PAGE as usize]);
                for (page, version) in (0u64..).zip(&state.versions) {
                    if control.stopped() {
                        break;
                    }
                    file.read_exact_at(&mut got, page * PAGE)?;
                    content(self.seed, table, page, *version).fill(0, &mut want);
                    if got != want {
                        return Ok(Some(format!("page {page} is not what was written {version} times")));
                    }
                }
                Ok(None)
            };
            let wrong = compare().unwrap_or_else(|e| Some(e.to_string()));
            control.check()?;
            into.note(&path, bytes, wrong);
        }
        let log = site.path(log_path());
        let LogHead(written) = *self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let (round, head) = (written / LOG_BYTES, written % LOG_BYTES);
        let compare = || -> io::Result<Option<String>> {
            let file = File::open(&log)?;
            if file.metadata()?.len() != LOG_BYTES {
                return Ok(Some(format!("not {LOG_BYTES} bytes")));
            }
            let new = log_content(self.seed, round + 1).compare_range(&file, 0, head)?;
            Ok(new.or(log_content(self.seed, round).compare_range(&file, head, LOG_BYTES - head)?))
        };
        let wrong = compare().unwrap_or_else(|e| Some(e.to_string()));
        into.note(&log, LOG_BYTES, wrong);
        Ok(())
    }
}

/// The files of a store while a pass runs.
pub(super) struct Open<'a> {
    store: &'a Store,
    files: Vec<(File, PathBuf)>,
    log: (File, PathBuf),
}

impl Open<'_> {
    fn rows_of_page(&self, table: usize) -> u64 {
        self.store.tables[table].rows_of_page
    }

    /// Rows now.
    pub(super) fn rows(&self, table: impl Into<usize>) -> u64 {
        self.store.state(table.into()).rows
    }

    /// Reads the page that holds a row.
    pub(super) fn read_row(
        &self,
        table: impl Into<usize>,
        row: u64,
        buffer: &mut [u8],
    ) -> Result<u64, BenchError> {
        let table = table.into();
        self.read_pages(table, row / self.rows_of_page(table), 1, buffer)
    }

    /// Reads pages in sequence; what is beyond the end is left out.
    pub(super) fn read_pages(
        &self,
        table: impl Into<usize>,
        first: u64,
        count: u64,
        buffer: &mut [u8],
    ) -> Result<u64, BenchError> {
        let table = table.into();
        let (file, path) = &self.files[table];
        let end = (first + count).min(self.store.pages(table));
        for page in first..end {
            file.read_exact_at(&mut buffer[..PAGE as usize], page * PAGE)
                .map_err(BenchError::at(path, format!("reading page {page}")))?;
        }
        Ok(end.saturating_sub(first) * PAGE)
    }

    /// Pages that hold these rows at the end of a table.
    pub(super) fn tail(&self, table: impl Into<usize>, rows: u64) -> (u64, u64) {
        let table = table.into();
        let all = self.rows(table);
        let per_page = self.rows_of_page(table);
        let first = all.saturating_sub(rows) / per_page;
        (first, all.div_ceil(per_page) - first)
    }

    /// All pages of a table.
    pub(super) fn all(&self, table: impl Into<usize>) -> (u64, u64) {
        (0, self.store.pages(table.into()))
    }

    /// Reads the page that holds a row and writes it anew.
    pub(super) fn update_row(
        &self,
        table: impl Into<usize>,
        row: u64,
        buffer: &mut [u8],
    ) -> Result<(u64, u64), BenchError> {
        let table = table.into();
        let page = row / self.rows_of_page(table);
        let read = self.read_pages(table, page, 1, buffer)?;
        let mut state = self.store.state(table);
        let written = self.write(table, page, &mut state, buffer)?;
        Ok((read, written))
    }

    /// Adds a row at the end: its page is written, a new one where the last is full.
    pub(super) fn insert_row(
        &self,
        table: impl Into<usize>,
        buffer: &mut [u8],
    ) -> Result<(u64, u64), BenchError> {
        let table = table.into();
        let mut state = self.store.state(table);
        let page = state.rows / self.rows_of_page(table);
        if page == state.versions.len() as u64 {
            state.versions.push(0);
        }
        let written = self.write(table, page, &mut state, buffer)?;
        state.rows += 1;
        Ok((state.rows - 1, written))
    }

    fn write(
        &self,
        table: usize,
        page: u64,
        state: &mut State,
        buffer: &mut [u8],
    ) -> Result<u64, BenchError> {
        let version = &mut state.versions[page as usize];
        let buffer = &mut buffer[..PAGE as usize];
        content(self.store.seed, table, page, *version + 1).fill(0, buffer);
        let (file, path) = &self.files[table];
        file.write_all_at(buffer, page * PAGE)
            .map_err(BenchError::at(path, format!("writing page {page}")))?;
        *version += 1;
        Ok(PAGE)
    }

    /// Writes records for so many changed pages to the log and waits until they are on the disk.
    pub(super) fn commit(&self, pages: u64, buffer: &mut [u8]) -> Result<u64, BenchError> {
        let mut head = self.store.log.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = pages * LOG_RECORD;
        let (file, path) = &self.log;
        while left > 0 {
            let (round, at) = (head.0 / LOG_BYTES, head.0 % LOG_BYTES);
            let n = left.min(LOG_BYTES - at).min(buffer.len() as u64);
            let bytes = &mut buffer[..n as usize];
            log_content(self.store.seed, round + 1).fill(at, bytes);
            file.write_all_at(bytes, at).map_err(BenchError::at(path, "writing to it"))?;
            head.0 += n;
            left -= n;
        }
        // Under the lock: whoever waits for it finds its own records written with the next one's.
        file.sync_data().map_err(BenchError::at(path, "syncing it"))?;
        Ok(pages * LOG_RECORD)
    }
}
