//! Texts that people write, profiles of drives and plans, read with a bound: a name may be of anything.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of such a text at most. A guess: the largest profile that comes with FS2 has 3 KiB.
pub const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Reads a text from a file, or from a pipe until it ends.
///
/// # Errors
/// `FileTooLarge` beyond [`TEXT_BYTES_MAX`], `InvalidData` where it is no text; what the system says.
pub fn read(path: &Path) -> io::Result<String> {
    all_of(File::open(path)?)
}

/// As [`read`], of a regular file only: whoever serves a volume waits for nobody who may never write to a pipe.
///
/// # Errors
/// As [`read`]; `InvalidInput` for anything else.
pub fn read_file(path: &Path) -> io::Result<String> {
    // A pipe is opened at once so.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    all_of(file)
}

fn all_of(file: File) -> io::Result<String> {
    let mut text = String::new();
    AtMost::new(file, TEXT_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// An input that fails behind so many bytes, rather than fill the memory.
pub struct AtMost<R> {
    input: R,
    max: u64,
    left: u64,
}

impl<R: Read> AtMost<R> {
    /// `max` bytes of `input`, and an error where there are more.
    pub fn new(input: R, max: u64) -> AtMost<R> {
        AtMost { input, max, left: max }
    }
}

impl<R: Read> Read for AtMost<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !buf.is_empty() {
            return match self.input.read(&mut [0])? {
                0 => Ok(0),
                _ => {
                    let what = format!("more than {} MiB", self.max >> 20);
                    Err(io::Error::new(io::ErrorKind::FileTooLarge, what))
                }
            };
        }
        let n = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.input.read(&mut buf[..n])?;
        self.left -= n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        let max = TEXT_BYTES_MAX as usize;
        for (bytes, fits) in [(0, true), (max, true), (max + 1, false)] {
            std::fs::write(&path, vec![b'x'; bytes]).unwrap();
            for text in [read(&path), read_file(&path)] {
                let is = text.as_ref().map(String::len).map_err(io::Error::kind);
                assert_eq!(is, if fits { Ok(bytes) } else { Err(io::ErrorKind::FileTooLarge) });
            }
        }
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().to_string(), "more than 1 MiB");
    }

    /// Nobody writes to it: a daemon that opened it as its profile waited for ever.
    #[test]
    fn a_pipe_is_no_file_to_wait_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&*path, Path::new("/dev/zero"), dir.path()] {
            assert_eq!(read_file(path).unwrap_err().to_string(), "not a regular file");
        }
        let e = crate::daemon::profile(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(e.ends_with("pipe: not a regular file"), "{e}");
        let writer = {
            let path = path.clone();
            std::thread::spawn(move || std::fs::write(path, "drive"))
        };
        assert_eq!(read(&path).unwrap(), "drive");
        writer.join().unwrap().unwrap();
    }
}
