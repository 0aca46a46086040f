//! Where what was measured is written: a file that is there whole or not at all, or standard output.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::BenchError;
use crate::new_file::NewFile;
use crate::outputs;

/// A place for a document.
#[derive(Debug)]
pub(super) enum Output {
    Stdout,
    File(PathBuf),
}

impl Output {
    /// Of what `--json` and its like were given: `-` is standard output. A file is made now, on trial, so that a bad
    /// path is refused before hours have gone by.
    ///
    /// # Errors
    /// Where no file can be made there.
    pub(super) fn at(path: &Path) -> Result<Output, BenchError> {
        if path == Path::new("-") {
            return Ok(Output::Stdout);
        }
        // Not kept open: on the volume that is measured it would be in the way of a cold start.
        drop(NewFile::create(path).map_err(|e| BenchError::Refused(e.0))?);
        Ok(Output::File(path.to_owned()))
    }

    /// As [`Output::at`], of an option.
    ///
    /// # Errors
    /// As there.
    pub(super) fn of(path: Option<&Path>) -> Result<Option<Output>, BenchError> {
        path.map(Output::at).transpose()
    }

    /// Writes it; `out` is the standard output.
    ///
    /// # Errors
    /// The file system's, or the output's.
    pub(super) fn write(&self, text: &str, out: &mut dyn Write) -> Result<(), BenchError> {
        match self {
            Output::Stdout => {
                out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(super::printing)
            }
            Output::File(path) => write_file(path, text),
        }
    }
}

/// Refuses an output that is another one, or is read.
///
/// # Errors
/// Which two are the same.
pub(super) fn refuse_same<'a>(
    outputs: impl IntoIterator<Item = &'a Option<PathBuf>>,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), BenchError> {
    let outputs: Vec<&Path> = outputs.into_iter().flatten().map(PathBuf::as_path).collect();
    outputs::refuse_same(&outputs, inputs).map_err(|e| BenchError::Refused(e.0))
}

/// Writes a file, all of it or nothing.
///
/// # Errors
/// The file system's.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), BenchError> {
    NewFile::create(path).and_then(|file| file.write(text)).map_err(|e| BenchError::Failed(e.0))
}

/// Where tables go: to standard error where a document takes the standard output.
pub(super) fn tables<'a>(
    document: Option<&Output>,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
) -> &'a mut dyn Write {
    if matches!(document, Some(Output::Stdout)) { err } else { out }
}

/// The last of these errors; those before it are told here.
pub(super) fn last(
    all: impl IntoIterator<Item = Result<(), BenchError>>,
    err: &mut dyn Write,
) -> Result<(), BenchError> {
    let mut last = Ok(());
    for failed in all.into_iter().filter(Result::is_err) {
        if let Err(e) = std::mem::replace(&mut last, failed) {
            let _ = writeln!(err, "fsbench: {e}");
        }
    }
    last
}
