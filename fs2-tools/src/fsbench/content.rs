//! What is in the files: bytes that follow from a seed and a number, so that any part of any file can be made
//! again and compared without keeping it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::rng::mix;

/// The content of one file, or of one version of it. Any length; random access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    key: u64,
}

/// Bytes made or read at a time.
const PIECE: usize = 256 << 10;

impl Content {
    /// The content with a number; no two numbers of a seed, and no two seeds, have the same.
    pub fn new(seed: u64, number: u64) -> Content {
        Content { key: mix(mix(seed) ^ number) }
    }

    fn word(self, at: u64) -> [u8; 8] {
        mix(self.key.wrapping_add(at.wrapping_mul(0x2545_f491_4f6c_dd1d))).to_le_bytes()
    }

    /// The bytes from `offset` on.
    pub fn fill(self, offset: u64, into: &mut [u8]) {
        let skip = (offset % 8) as usize;
        let mut word = offset / 8;
        let mut rest = into;
        if skip != 0 {
            let n = rest.len().min(8 - skip);
            rest[..n].copy_from_slice(&self.word(word)[skip..skip + n]);
            rest = &mut rest[n..];
            word += 1;
        }
        let mut words = rest.chunks_exact_mut(8);
        for chunk in &mut words {
            chunk.copy_from_slice(&self.word(word));
            word += 1;
        }
        let tail = words.into_remainder();
        let n = tail.len();
        tail.copy_from_slice(&self.word(word)[..n]);
    }

    /// Writes `len` bytes of it into `file` at `at`, in pieces.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(self, file: &File, at: u64, len: u64) -> io::Result<()> {
        let mut buffer = vec![0; PIECE.min(usize::try_from(len).unwrap_or(PIECE))];
        let mut done = 0;
        while done < len {
            let n = (len - done).min(buffer.len() as u64) as usize;
            self.fill(at + done, &mut buffer[..n]);
            file.write_all_at(&buffer[..n], at + done)?;
            done += n as u64;
        }
        Ok(())
    }

    /// Reads a file whole and compares it with the first `len` bytes of this content. Says what is
    /// wrong, `None` where nothing is.
    ///
    /// # Errors
    /// The file system's.
    pub fn compare(self, path: &Path, len: u64) -> io::Result<Option<String>> {
        let file = File::open(path)?;
        let have = file.metadata()?.len();
        if have != len {
            return Ok(Some(format!("{have} bytes, {len} were written")));
        }
        self.compare_range(&file, 0, len)
    }

    /// As [`Content::compare`] for the bytes from `at` on; the file may be longer.
    ///
    /// # Errors
    /// The file system's.
    pub fn compare_range(self, file: &File, at: u64, len: u64) -> io::Result<Option<String>> {
        let size = PIECE.min(usize::try_from(len).unwrap_or(PIECE));
        let (mut got, mut want) = (vec![0; size], vec![0; size]);
        let mut done = 0;
        while done < len {
            let n = (len - done).min(size as u64) as usize;
            file.read_exact_at(&mut got[..n], at + done)?;
            self.fill(at + done, &mut want[..n]);
            if let Some(i) = got[..n].iter().zip(&want[..n]).position(|(a, b)| a != b) {
                return Ok(Some(format!("byte {} is not what was written", at + done + i as u64)));
            }
            done += n as u64;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_is_as_in_the_whole() {
        let content = Content::new(1, 2);
        let mut whole = vec![0; 1000];
        content.fill(0, &mut whole);
        for from in 0..40 {
            for len in [0, 1, 7, 8, 9, 100, 900] {
                let mut part = vec![0; len];
                content.fill(from as u64, &mut part);
                assert_eq!(part, whole[from..from + len], "{from} {len}");
            }
        }
        let mut other = vec![0; 1000];
        Content::new(1, 3).fill(0, &mut other);
        assert_ne!(whole, other);
        Content::new(2, 2).fill(0, &mut other);
        assert_ne!(whole, other);
    }

    #[test]
    fn a_changed_byte_and_a_changed_length_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let content = Content::new(7, 7);
        let len = PIECE as u64 * 2 + 13;
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        content.write(&file, 0, len).unwrap();
        assert_eq!(content.compare(&path, len).unwrap(), None);
        assert!(content.compare(&path, len - 1).unwrap().unwrap().contains("were written"));
        let at = PIECE as u64 + 5;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        let said = content.compare(&path, len).unwrap().unwrap();
        assert!(said.contains(&format!("byte {at} ")), "{said}");
        assert_eq!(content.compare_range(&file, at + 1, 100).unwrap(), None);
    }
}
