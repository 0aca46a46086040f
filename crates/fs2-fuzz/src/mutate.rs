//! Bytes a little beside known ones.

/// A small generator (SplitMix64): the same seed, the same bytes.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator from `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, 0 where that is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.number() % n as u64) as usize }
    }
}

/// Numbers at which programs err.
const EDGES: [u64; 10] =
    [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff];

/// One of `seeds` with one to eight changes: bits, bytes, numbers at the edge of their range, pieces
/// left out, repeated, or taken from another seed. At most `len_max` bytes.
///
/// # Panics
/// Where there are no seeds.
pub fn mutate(rng: &mut Rng, seeds: &[Vec<u8>], len_max: usize) -> Vec<u8> {
    let mut bytes = seeds[rng.below(seeds.len())].clone();
    for _ in 0..=rng.below(8) {
        let at = rng.below(bytes.len());
        match rng.below(8) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
            1 if !bytes.is_empty() => bytes[at] = rng.number() as u8,
            2 => {
                let edge = EDGES[rng.below(EDGES.len())].wrapping_sub(rng.below(2) as u64);
                let width = 1 << rng.below(4);
                let mut number = edge.to_le_bytes();
                if rng.below(2) == 0 {
                    number[..width].reverse();
                }
                for (to, from) in bytes[at..].iter_mut().zip(&number[..width]) {
                    *to = *from;
                }
            }
            3 => bytes.insert(at, rng.number() as u8),
            4 => {
                let end = (at + 1 + rng.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => {
                let end = (at + 1 + rng.below(64)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = rng.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            6 => {
                let other = &seeds[rng.below(seeds.len())];
                let from = rng.below(other.len());
                let end = (from + 1 + rng.below(128)).min(other.len());
                let cut = if rng.below(2) == 0 { at } else { (at + end - from).min(bytes.len()) };
                bytes.splice(at..cut, other[from..end].iter().copied());
            }
            _ => bytes.truncate(bytes.len() - rng.below(bytes.len() / 4 + 1)),
        }
    }
    bytes.truncate(len_max);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_the_same_bytes_and_all_lengths_are_bounded() {
        let seeds = [vec![], vec![1], (0..200).collect::<Vec<u8>>()];
        let run = || {
            let mut rng = Rng::new(9);
            (0..5000).map(|_| mutate(&mut rng, &seeds, 220)).collect::<Vec<_>>()
        };
        let all = run();
        assert_eq!(all, run());
        assert!(all.iter().all(|b| b.len() <= 220));
        assert!(all.iter().filter(|b| !seeds.contains(b)).count() > 3000);
        assert!(all.iter().any(|b| b.len() > 200) && all.iter().any(|b| b.len() < 150 && b.len() > 1));
    }
}
