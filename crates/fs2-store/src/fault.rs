//! A store that fails by plan.
//!
//! X1: the same plan and the same sequence of calls give the same failures; a plan is asked once a call, and
//!     the first fault in it that fits and is not spent acts, alone.
//! X2: what the volatile cache holds is newer than what lies below it: a write, write-zeroes or discard that
//!     goes past the cache first sends down all that is held up to the last overlap.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fs2_block::{Extent, Op, SECTOR_BYTES};

use crate::store::{check_range, check_read};
use crate::{Store, Stretch};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It is refused with this errno (EIO, ENOSPC, ...); nothing is done.
    Error(i32),
    /// Only the first so many sectors of 512 bytes are stored; then it fails with the errno, or says that
    /// all went well. For writes and write-zeroes.
    Torn {
        /// Sectors stored.
        sectors: u64,
        /// What the caller is told, if not success.
        error: Option<i32>,
    },
    /// It says that all went well, and nothing is ever stored. For all but reads and flushes.
    Lost,
    /// It says that all went well, and later reads see it, but it stays in a volatile cache until the next
    /// flush that succeeds: [`FaultStore::power_cut`] loses it. With FUA it goes past the cache. For
    /// writes and write-zeroes.
    Cached,
    /// One bit of what a read returns is flipped: in the first byte of the fault's extent, or of the read.
    Flip,
    /// It takes this much longer and then is done as ever.
    Slow(Duration),
}

/// A planned failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    ops: &'static [Op],
    extent: Option<Extent>,
    skip: u64,
    times: u64,
    kind: FaultKind,
}

impl Fault {
    /// Every call of these operations, anywhere. [`Op::Punch`] fits no call: a store knows discards only.
    ///
    /// # Panics
    /// Where the kind of failure has no meaning for one of the operations.
    pub fn on(ops: &'static [Op], kind: FaultKind) -> Fault {
        let fits = |op: &Op| match kind {
            FaultKind::Error(_) | FaultKind::Slow(_) => true,
            FaultKind::Torn { .. } | FaultKind::Cached => matches!(op, Op::Write | Op::WriteZeroes),
            FaultKind::Lost => matches!(op, Op::Write | Op::WriteZeroes | Op::Discard),
            FaultKind::Flip => matches!(op, Op::Read),
        };
        assert!(ops.iter().all(fits), "{kind:?} has no meaning for one of {ops:?}");
        Fault { ops, extent: None, skip: 0, times: u64::MAX, kind }
    }

    /// Only calls with a byte in the extent (flushes have none).
    pub fn within(self, extent: Extent) -> Fault {
        Fault { extent: Some(extent), ..self }
    }

    /// Lets the first `calls` that fit pass.
    pub fn after(self, calls: u64) -> Fault {
        Fault { skip: calls, ..self }
    }

    /// Acts so many times, then never again.
    pub fn times(self, times: u64) -> Fault {
        Fault { times, ..self }
    }

    fn fits(&self, op: Op, at: Extent) -> bool {
        self.ops.contains(&op) && self.extent.is_none_or(|e| e.overlaps(at))
    }
}

/// A fault in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(usize);

#[derive(Default)]
struct State {
    plan: Vec<(Fault, u64, u64)>,
    cache: Vec<(u64, Vec<u8>)>,
    off: bool,
}

/// A store that fails by plan, and may lose its power.
pub struct FaultStore<S> {
    inner: S,
    state: Mutex<State>,
}

impl<S: Store> FaultStore<S> {
    /// Over `inner`; nothing planned.
    pub fn new(inner: S) -> FaultStore<S> {
        FaultStore { inner, state: Mutex::default() }
    }

    /// What lies below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Adds a fault behind those already planned.
    pub fn plan(&self, fault: Fault) -> FaultId {
        let mut state = self.state();
        state.plan.push((fault, 0, 0));
        FaultId(state.plan.len() - 1)
    }

    /// Ends a fault; its count stays.
    pub fn end(&self, fault: FaultId) {
        self.state().plan[fault.0].0.times = 0;
    }

    /// How often a fault has acted.
    pub fn fired(&self, fault: FaultId) -> u64 {
        self.state().plan[fault.0].2
    }

    /// Writes that only the volatile cache holds.
    pub fn cached(&self) -> usize {
        self.state().cache.len()
    }

    /// The power fails: the volatile cache is lost and everything fails with EIO until
    /// [`FaultStore::power_on`]. Returns how many writes were lost.
    pub fn power_cut(&self) -> usize {
        let mut state = self.state();
        state.off = true;
        std::mem::take(&mut state.cache).len()
    }

    /// The power is back.
    pub fn power_on(&self) {
        self.state().off = false;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the plan, once a call. Errors and slowness are dealt with here.
    fn ask(&self, op: Op, at: Extent) -> io::Result<Option<(FaultKind, Option<Extent>)>> {
        let found = {
            let mut state = self.state();
            if state.off {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            let mut found = None;
            for (fault, seen, fired) in &mut state.plan {
                if !fault.fits(op, at) {
                    continue;
                }
                *seen += 1;
                if found.is_none() && *seen > fault.skip && *fired < fault.times {
                    *fired += 1;
                    found = Some((fault.kind, fault.extent));
                }
            }
            found
        };
        match found {
            Some((FaultKind::Error(errno), _)) => Err(io::Error::from_raw_os_error(errno)),
            Some((FaultKind::Slow(time), _)) => {
                std::thread::sleep(time);
                Ok(None)
            }
            other => Ok(other),
        }
    }

    /// Sends down what is held up to the last overlap with `at` (X2).
    fn send_down(&self, cache: &mut Vec<(u64, Vec<u8>)>, at: Extent) -> io::Result<()> {
        let overlaps = |(o, b): &(u64, Vec<u8>)| Extent::new(*o, b.len() as u64).overlaps(at);
        let Some(last) = cache.iter().rposition(overlaps) else { return Ok(()) };
        for done in 0..=last {
            let (offset, bytes) = &cache[done];
            if let Err(e) = self.inner.write_at(*offset, bytes, false) {
                cache.drain(..done);
                return Err(e);
            }
        }
        cache.drain(..=last);
        Ok(())
    }

    /// A change that may go past the cache.
    fn change(&self, at: Extent, run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state();
        if state.cache.is_empty() {
            drop(state);
            return run();
        }
        self.send_down(&mut state.cache, at)?;
        run()
    }
}

fn told(error: Option<i32>) -> io::Result<()> {
    error.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
}

impl<S: Store> Store for FaultStore<S> {
    fn below(&self) -> Option<&dyn Store> {
        Some(&self.inner)
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_read(self.size_bytes(), offset, buf.len())?;
        let at = Extent::new(offset, buf.len() as u64);
        let fault = self.ask(Op::Read, at)?;
        {
            let state = self.state();
            if state.cache.is_empty() {
                drop(state);
                self.inner.read_at(offset, buf)?;
            } else {
                self.inner.read_at(offset, buf)?;
                for (o, bytes) in &state.cache {
                    if let Some(common) = Extent::new(*o, bytes.len() as u64).intersect(at) {
                        let n = common.len() as usize;
                        buf[(common.offset() - offset) as usize..][..n]
                            .copy_from_slice(&bytes[(common.offset() - o) as usize..][..n]);
                    }
                }
            }
        }
        if let Some((FaultKind::Flip, extent)) = fault {
            let first = extent.and_then(|e| e.intersect(at)).map_or(0, |e| (e.offset() - offset) as usize);
            if let Some(byte) = buf.get_mut(first) {
                *byte ^= 1;
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        check_range(self.size_bytes(), offset, buf.len() as u64)?;
        let at = Extent::new(offset, buf.len() as u64);
        match self.ask(Op::Write, at)? {
            Some((FaultKind::Torn { sectors, error }, _)) => {
                let n = buf.len().min(usize::try_from(sectors * SECTOR_BYTES).unwrap_or(usize::MAX));
                self.change(at, || self.inner.write_at(offset, &buf[..n], fua))?;
                told(error)
            }
            Some((FaultKind::Lost, _)) => Ok(()),
            Some((FaultKind::Cached, _)) if !fua => {
                self.state().cache.push((offset, buf.to_vec()));
                Ok(())
            }
            _ => self.change(at, || self.inner.write_at(offset, buf, fua)),
        }
    }

    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        check_range(self.size_bytes(), offset, len)?;
        let at = Extent::new(offset, len);
        match self.ask(Op::WriteZeroes, at)? {
            Some((FaultKind::Torn { sectors, error }, _)) => {
                let n = len.min(sectors.saturating_mul(SECTOR_BYTES));
                self.change(at, || self.inner.write_zeroes(offset, n, no_hole))?;
                told(error)
            }
            Some((FaultKind::Lost, _)) => Ok(()),
            Some((FaultKind::Cached, _)) => {
                self.state().cache.push((offset, vec![0; len as usize]));
                Ok(())
            }
            _ => self.change(at, || self.inner.write_zeroes(offset, len, no_hole)),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.size_bytes(), offset, len)?;
        let at = Extent::new(offset, len);
        match self.ask(Op::Discard, at)? {
            Some((FaultKind::Lost, _)) => Ok(()),
            _ => self.change(at, || self.inner.discard(offset, len)),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.ask(Op::Flush, Extent::default())?;
        {
            let mut state = self.state();
            let size = self.size_bytes();
            self.send_down(&mut state.cache, Extent::new(0, size))?;
        }
        self.inner.flush()
    }

    fn stretches(&self, offset: u64, len: u64, limit: usize) -> io::Result<Vec<Stretch>> {
        let mut state = self.state();
        if state.off {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if state.cache.is_empty() {
            drop(state);
            return self.inner.stretches(offset, len, limit);
        }
        check_range(self.size_bytes(), offset, len)?;
        // What the cache holds would be told as a hole: have it below first.
        self.send_down(&mut state.cache, Extent::new(offset, len))?;
        self.inner.stretches(offset, len, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemStore;

    fn get(s: &dyn Store, offset: u64, len: usize) -> Vec<u8> {
        let mut v = vec![0; len];
        s.read_at(offset, &mut v).unwrap();
        v
    }

    fn errno(r: io::Result<()>) -> Option<i32> {
        r.unwrap_err().raw_os_error()
    }

    #[test]
    fn errors_come_where_when_and_as_often_as_planned() {
        let s = FaultStore::new(MemStore::new(1 << 16));
        let id = s.plan(
            Fault::on(&[Op::Write, Op::Read], FaultKind::Error(libc::EIO))
                .within(Extent::new(4096, 4096))
                .after(1)
                .times(2),
        );
        s.write_at(0, &[1; 4096], false).unwrap();
        s.write_at(4000, &[1; 200], false).unwrap();
        assert_eq!(errno(s.write_at(4095, &[2; 2], false)), Some(libc::EIO));
        assert_eq!(get(&s, 0, 1), [1]);
        assert_eq!(errno(s.read_at(8191, &mut [0; 1])), Some(libc::EIO));
        assert_eq!(get(&s, 4095, 2), [1, 1], "the refused write did nothing");
        assert_eq!(s.fired(id), 2);
        let full = s.plan(Fault::on(&[Op::WriteZeroes, Op::Flush], FaultKind::Error(libc::ENOSPC)));
        assert_eq!(errno(s.write_zeroes(0, 1, true)), Some(libc::ENOSPC));
        assert_eq!(errno(s.flush()), Some(libc::ENOSPC));
        s.end(full);
        s.flush().unwrap();
        assert_eq!(s.fired(full), 2);
    }

    #[test]
    fn torn_lost_and_flipped() {
        let s = FaultStore::new(MemStore::new(1 << 16));
        let torn = FaultKind::Torn { sectors: 3, error: Some(libc::EIO) };
        s.plan(Fault::on(&[Op::Write], torn).times(1));
        assert_eq!(errno(s.write_at(0, &[7; 4096], false)), Some(libc::EIO));
        assert_eq!(get(&s, 0, 4096), [vec![7; 1536], vec![0; 2560]].concat());
        s.plan(Fault::on(&[Op::WriteZeroes], FaultKind::Torn { sectors: 1, error: None }).times(1));
        s.write_zeroes(0, 4096, false).unwrap();
        assert_eq!(get(&s, 500, 24), [vec![0; 12], vec![7; 12]].concat());
        s.plan(Fault::on(&[Op::Write], FaultKind::Lost).times(1));
        s.write_at(0, &[9; 4096], true).unwrap();
        assert_eq!(get(&s, 0, 1), [0]);
        s.plan(Fault::on(&[Op::Read], FaultKind::Flip).within(Extent::new(600, 1)).times(1));
        assert_eq!(get(&s, 599, 3), [7, 6, 7]);
        assert_eq!(get(&s, 599, 3), [7, 7, 7]);
    }

    #[test]
    fn a_volatile_cache_is_lost_until_it_is_flushed() {
        let s = FaultStore::new(MemStore::new(1 << 16));
        let cached = Fault::on(&[Op::Write, Op::WriteZeroes], FaultKind::Cached);
        s.plan(cached);
        s.write_at(0, &[1; 4096], false).unwrap();
        s.flush().unwrap();
        s.write_at(0, &[2; 100], false).unwrap();
        s.write_zeroes(50, 100, false).unwrap();
        assert_eq!(get(&s, 49, 2), [2, 0], "reads see the cache");
        assert_eq!(get(s.inner(), 0, 1), [1]);
        assert_eq!(s.power_cut(), 2);
        assert_eq!(errno(s.flush()), Some(libc::EIO));
        assert_eq!(errno(s.read_at(0, &mut [0])), Some(libc::EIO));
        s.power_on();
        assert_eq!(get(&s, 49, 2), [1, 1]);
        // FUA goes past it, and what it overlaps goes first.
        s.write_at(8192, &[3; 512], false).unwrap();
        s.write_at(8000, &[4; 400], false).unwrap();
        s.write_at(0, &[5; 1], false).unwrap();
        s.write_at(8100, &[6; 1], true).unwrap();
        assert_eq!(s.power_cut(), 1);
        s.power_on();
        assert_eq!([get(&s, 8099, 3), get(&s, 8500, 1), get(&s, 0, 1)].concat(), [4, 6, 4, 3, 1]);
        // A failed flush keeps it.
        s.write_at(0, &[8], false).unwrap();
        s.plan(Fault::on(&[Op::Flush], FaultKind::Error(libc::EIO)).times(1));
        assert_eq!(errno(s.flush()), Some(libc::EIO));
        assert_eq!(s.cached(), 1);
        s.flush().unwrap();
        assert_eq!((s.cached(), get(s.inner(), 0, 1)), (0, vec![8]));
    }

    #[test]
    #[should_panic(expected = "no meaning")]
    fn a_torn_flush_has_no_meaning() {
        Fault::on(&[Op::Flush], FaultKind::Torn { sectors: 1, error: None });
    }
}
