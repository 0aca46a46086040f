//! What buffers leave behind that were dropped. A program of its own: it measures the process.

use std::hint::black_box;

use fs2_store::AlignedBuf;

const BUFFERS: usize = 128;
const BYTES: usize = 256 << 10;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Buffers, all of them touched, with something small beside each that stays.
fn with_small_things_between(small: &mut Vec<Vec<u8>>) -> Vec<AlignedBuf> {
    let one = |_| {
        let mut buffer = AlignedBuf::zeroed(BYTES);
        buffer.fill(1);
        small.push(vec![1; 64]);
        buffer
    };
    (0..BUFFERS).map(one).collect()
}

#[test]
fn the_system_has_a_large_buffer_back_when_it_is_dropped() {
    // Its own memory grows now, not between the measurements.
    let mut small = Vec::with_capacity(4 * BUFFERS);
    // As an attach does that reads the table: what is smaller than the largest that was given back glibc keeps in its heaps from then on.
    drop(black_box(vec![1u8; 4 << 20]));
    let before = resident_bytes();
    for round in 0..4 {
        let buffers = with_small_things_between(&mut small);
        let full = resident_bytes();
        assert!(full >= before + BUFFERS * BYTES / 2, "round {round}: {before}, then {full} bytes resident");
        drop(buffers);
        let after = resident_bytes();
        assert!(
            after <= before + BUFFERS * BYTES / 8,
            "round {round}: {before}, then {after} bytes resident"
        );
    }
}
