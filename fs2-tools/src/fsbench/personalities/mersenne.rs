//! The Mersenne Twister MT19937 of Matsumoto and Nishimura (ACM TOMACS 8, 1998), seeded as they did until 2002: what
//! PostMark draws from, so that the same seed means the same operations.

const N: usize = 624;
const M: usize = 397;

pub(super) struct Mersenne {
    state: [u32; N],
    next: usize,
}

impl Mersenne {
    pub(super) fn new(mut seed: u32) -> Mersenne {
        let mut step = || {
            let high = seed & 0xffff_0000;
            seed = seed.wrapping_mul(69_069).wrapping_add(1);
            high
        };
        let state = std::array::from_fn(|_| step() | step() >> 16);
        Mersenne { state, next: N }
    }

    fn bits(&mut self) -> u32 {
        if self.next == N {
            for i in 0..N {
                let y = self.state[i] & 0x8000_0000 | self.state[(i + 1) % N] & 0x7fff_ffff;
                let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + M) % N] ^ y >> 1 ^ odd;
            }
            self.next = 0;
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }

    /// Below `n`, by the remainder, as PostMark has it; 0 draws nothing.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { u64::from(self.bits()) % n }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the definition alone: the first word of a state whose words are known.
    #[test]
    fn the_first_word_by_the_definition() {
        let mut m = Mersenne::new(1);
        let s = m.state;
        // 69069 + 1 = 0x10dce; its square step has 0x10dcf for what follows it.
        assert_eq!(s[0], 69_070u32 >> 16);
        let mixed = s[0] & 0x8000_0000 | s[1] & 0x7fff_ffff;
        let mut y = s[M] ^ mixed >> 1 ^ if s[1] & 1 == 1 { 0x9908_b0df } else { 0 };
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^= y >> 18;
        assert_eq!(m.bits(), y);
        assert_eq!(m.below(0), 0);
    }
}
