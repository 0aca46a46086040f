//! Memory for reads and writes, aligned as direct I/O wants it.

use super::dist::Rng;

/// Direct I/O needs the logical block size of the device; none has more.
const ALIGN: usize = 4096;

/// Bytes that start at an aligned address.
#[derive(Debug)]
pub(super) struct Aligned {
    data: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub(super) fn new(len: usize) -> Self {
        let data = vec![0; len + ALIGN];
        let start = data.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { data, start, len }
    }

    /// Random bytes: no drive, file system or store can make less of them than they are.
    pub(super) fn noise(len: usize, seed: u64) -> Self {
        let (mut out, mut rng) = (Self::new(len), Rng::new(seed, 0x6e6f_6973));
        let start = out.start;
        out.data[start..start + len].chunks_mut(8).for_each(|chunk| {
            let bytes = rng.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        });
        out
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, from: usize, len: usize) -> &[u8] {
        &self.data[self.start + from..self.start + from + len]
    }

    pub(super) fn get_mut(&mut self, from: usize, len: usize) -> &mut [u8] {
        &mut self.data[self.start + from..self.start + from + len]
    }

    /// An aligned place where `len` bytes fit, anywhere.
    pub(super) fn place(&self, len: usize, rng: &mut Rng) -> usize {
        let places = (self.len - len) / ALIGN + 1;
        rng.below(places as u64) as usize * ALIGN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_within() {
        let (mut buffer, mut rng) = (Aligned::noise(3 * ALIGN + 100, 1), Rng::new(1, 1));
        for len in [0, 1, ALIGN, buffer.len()] {
            for _ in 0..50 {
                let place = buffer.place(len, &mut rng);
                assert_eq!(buffer.get(place, len).len(), len);
                assert_eq!(buffer.get_mut(place, len).as_ptr() as usize % ALIGN, 0);
            }
        }
        assert_ne!(buffer.get(0, 8), buffer.get(8, 8));
    }
}
