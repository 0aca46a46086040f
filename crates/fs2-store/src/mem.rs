//! A store in memory, sparse, with cheap snapshots.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::store::{check_range, check_read};
use crate::{Store, Stretch};

/// Bytes in a page: holes are told in these.
const PAGE: u64 = 4096;

type Pages = BTreeMap<u64, Arc<[u8; PAGE as usize]>>;

/// Memory as a backing device: what was never written takes no space and reads as zero. A snapshot
/// shares pages with its origin until one of them writes.
pub struct MemStore {
    size: u64,
    pages: RwLock<Pages>,
}

impl MemStore {
    /// `size` bytes, all zero.
    pub fn new(size: u64) -> MemStore {
        MemStore { size, pages: RwLock::default() }
    }

    /// A copy of `bytes`; pages that are all zero become holes.
    pub fn from_bytes(bytes: &[u8]) -> MemStore {
        let pages = bytes
            .chunks(PAGE as usize)
            .enumerate()
            .filter(|(_, chunk)| chunk.iter().any(|&b| b != 0))
            .map(|(i, chunk)| {
                let mut page = [0; PAGE as usize];
                page[..chunk.len()].copy_from_slice(chunk);
                (i as u64, Arc::new(page))
            })
            .collect();
        MemStore { size: bytes.len() as u64, pages: RwLock::new(pages) }
    }

    /// Everything another store holds; its holes stay holes, and so do its zero pages.
    ///
    /// # Errors
    /// What the other store says.
    pub fn copy_of(other: &dyn Store) -> io::Result<MemStore> {
        let copy = MemStore::new(other.size_bytes());
        let mut at = 0;
        let mut buf = vec![0; 256 * PAGE as usize];
        while at < copy.size {
            let Some(s) = other.stretches(at, copy.size - at, 1)?.first().copied() else { break };
            let end = at + s.len;
            while !s.hole && at < end {
                let n = (end - at).min(buf.len() as u64 - at % PAGE) as usize;
                other.read_at(at, &mut buf[..n])?;
                let mut done = 0;
                for (_, _, m) in pieces(at, n as u64) {
                    if buf[done..done + m].iter().any(|&b| b != 0) {
                        copy.write_at(at + done as u64, &buf[done..done + m], false)?;
                    }
                    done += m;
                }
                at += n as u64;
            }
            at = end;
        }
        Ok(copy)
    }

    /// The content now, as a store of its own: later writes to either are not seen by the other.
    pub fn snapshot(&self) -> MemStore {
        MemStore { size: self.size, pages: RwLock::new(self.shared().clone()) }
    }

    /// The content as one piece, holes as zeros.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = vec![0; usize::try_from(self.size).unwrap_or(usize::MAX)];
        for (i, page) in self.shared().iter() {
            let start = (i * PAGE) as usize;
            let n = PAGE.min(self.size - i * PAGE) as usize;
            v[start..start + n].copy_from_slice(&page[..n]);
        }
        v
    }

    /// Bytes of memory that hold content, in whole pages of 4096.
    pub fn stored_bytes(&self) -> u64 {
        self.shared().len() as u64 * PAGE
    }

    fn shared(&self) -> RwLockReadGuard<'_, Pages> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Pages> {
        self.pages.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pages under `offset..offset + len`: page number, first byte in it, bytes in it.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let from = at % PAGE;
            let n = (PAGE - from).min(end - at);
            let piece = (at / PAGE, from as usize, n as usize);
            at += n;
            piece
        })
    })
}

impl Store for MemStore {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.read_at(offset, buf).map(|()| true)
    }

    fn try_write(&self, offset: u64, buf: &[u8]) -> io::Result<bool> {
        self.write_at(offset, buf, false).map(|()| true)
    }

    fn tries(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_read(self.size, offset, buf.len())?;
        let pages = self.shared();
        let mut done = 0;
        for (page, from, n) in pieces(offset, buf.len() as u64) {
            match pages.get(&page) {
                Some(p) => buf[done..done + n].copy_from_slice(&p[from..from + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], _fua: bool) -> io::Result<()> {
        check_range(self.size, offset, buf.len() as u64)?;
        let mut pages = self.exclusive();
        let mut done = 0;
        for (page, from, n) in pieces(offset, buf.len() as u64) {
            let p = pages.entry(page).or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(p)[from..from + n].copy_from_slice(&buf[done..done + n]);
            done += n;
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        check_range(self.size, offset, len)?;
        let mut pages = self.exclusive();
        for (page, from, n) in pieces(offset, len) {
            let whole = n as u64 == PAGE || (from == 0 && page * PAGE + n as u64 == self.size);
            if whole && !no_hole {
                pages.remove(&page);
            } else if no_hole {
                let p = pages.entry(page).or_insert_with(|| Arc::new([0; PAGE as usize]));
                Arc::make_mut(p)[from..from + n].fill(0);
            } else if let Some(p) = pages.get_mut(&page) {
                Arc::make_mut(p)[from..from + n].fill(0);
            }
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.size, offset, len)?;
        let mut pages = self.exclusive();
        for (page, _, n) in pieces(offset, len) {
            if n as u64 == PAGE {
                pages.remove(&page);
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn sparse(&self) -> bool {
        true
    }

    fn stretches(&self, offset: u64, len: u64, limit: usize) -> io::Result<Vec<Stretch>> {
        check_range(self.size, offset, len)?;
        let pages = self.shared();
        let mut found: Vec<Stretch> = Vec::new();
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let page = at / PAGE;
            let hole = !pages.contains_key(&page);
            // A hole reaches to the next page held; a held page is told by itself and merged.
            let next = if hole {
                pages.range(page..).next().map_or(end, |(p, _)| p * PAGE).min(end)
            } else {
                ((page + 1) * PAGE).min(end)
            };
            let full = found.len() >= limit.max(1);
            match found.last_mut() {
                Some(last) if last.hole == hole => last.len += next - at,
                _ if full => break,
                _ => found.push(Stretch { len: next - at, hole }),
            }
            at = next;
        }
        Ok(found)
    }
}

impl std::fmt::Debug for MemStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemStore({} bytes, {} stored)", self.size, self.stored_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_do_not_see_each_other() {
        let a = MemStore::new(3 * PAGE);
        a.write_at(10, b"one", false).unwrap();
        let b = a.snapshot();
        a.write_at(10, b"two", false).unwrap();
        b.write_at(PAGE, b"x", false).unwrap();
        assert_eq!(&a.to_vec()[10..13], b"two");
        assert_eq!(&b.to_vec()[10..13], b"one");
        assert_eq!((a.stored_bytes(), b.stored_bytes()), (PAGE, 2 * PAGE));
    }

    #[test]
    fn holes_are_told() {
        let s = MemStore::new(10 * PAGE);
        s.write_at(3 * PAGE + 1, &[1; PAGE as usize], false).unwrap();
        let all = s.stretches(100, 10 * PAGE - 100, 9).unwrap();
        assert_eq!(
            all,
            [
                Stretch { len: 3 * PAGE - 100, hole: true },
                Stretch { len: 2 * PAGE, hole: false },
                Stretch { len: 5 * PAGE, hole: true }
            ]
        );
        assert_eq!(s.stretches(100, 10 * PAGE - 100, 1).unwrap(), all[..1]);
        assert_eq!(s.stretches(0, 0, 5).unwrap(), []);
        s.write_zeroes(3 * PAGE, 2 * PAGE, true).unwrap();
        assert_eq!(s.stored_bytes(), 2 * PAGE);
        s.write_zeroes(3 * PAGE, 2 * PAGE, false).unwrap();
        assert_eq!(s.stored_bytes(), 0);
    }

    #[test]
    fn a_copy_is_equal_and_sparse() {
        let s = MemStore::new(2000 * PAGE + 512);
        s.write_at(700 * PAGE - 5, &[7; 12], false).unwrap();
        s.write_at(2000 * PAGE, &[9; 512], false).unwrap();
        s.write_zeroes(0, 300 * PAGE, true).unwrap();
        let c = MemStore::copy_of(&s).unwrap();
        assert!(c.to_vec() == s.to_vec());
        assert_eq!(c.stored_bytes(), 3 * PAGE);
        assert!(MemStore::from_bytes(&s.to_vec()).to_vec() == s.to_vec());
    }
}
