//! What is done with foreign bytes: one function for each place where they come in.
//! [`TARGETS`] lists them, each with what its memory must be bounded by; a panic is a bug found.
//! libFuzzer (`fuzz/`) calls them with bytes it evolves, the test `fs2d/tests/foreign_bytes.rs` with the
//! seeds in `fuzz/seeds` and with [`mutate`]d ones; finding new bytes is left to those two.
//!
//! ```
//! let nbd = fs2_fuzz::TARGETS.iter().find(|t| t.name == "nbd_bytes").unwrap();
//! (nbd.run)(b"\0\0\0\0\x03IHAVEOPT");
//! ```
#![forbid(unsafe_code)]

mod engine;
mod ext2;
mod image;
mod mutate;
mod session;
mod table;
mod trace;

pub use mutate::{Rng, mutate};

/// One place where foreign bytes come in.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: of the libFuzzer binary and of the directory of its seeds.
    pub name: &'static str,
    /// Takes the bytes; panics where they break something.
    pub run: fn(&[u8]),
    /// Heap it may have at once, in bytes, however little it is given.
    pub memory_bytes: usize,
    /// And so many more for each byte it is given.
    pub memory_per_byte: usize,
    /// What a seed costs, in runs of the cheapest target: a replay makes fewer runs of the dear ones.
    pub cost: u32,
}

/// All of them.
pub const TARGETS: [Target; 6] = [
    Target { name: "ext2_image", run: ext2::run, memory_bytes: 6 << 20, memory_per_byte: 64, cost: 30 },
    Target { name: "table_bytes", run: table::run, memory_bytes: 256 << 10, memory_per_byte: 64, cost: 10 },
    Target { name: "nbd_bytes", run: nbd, memory_bytes: 64 << 10, memory_per_byte: 16, cost: 1 },
    // Decoded, encoded again and shown; from 4 KiB on a text may claim 1 MiB before it is read.
    Target { name: "control_frames", run: control, memory_bytes: 128 << 10, memory_per_byte: 300, cost: 1 },
    // A reader holds one block: 2 MiB stored and 2 MiB of records.
    Target { name: "trace_bytes", run: trace::run, memory_bytes: 6 << 20, memory_per_byte: 64, cost: 3 },
    Target {
        name: "engine_events",
        run: engine::run,
        memory_bytes: 16 << 20,
        memory_per_byte: 4096,
        cost: 60,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

/// Everything an NBD client can send.
fn nbd(data: &[u8]) {
    let _ = fs2d::frontend::nbd::codec::fuzz_session(data);
}

/// Frames of the control socket, to the daemon and from it.
fn control(data: &[u8]) {
    let _ = fs2_control::fuzz_frame(data);
}

/// CRC-32C bit by bit: mends checksums, so that what is behind them is reached. Shares no code with the
/// crates under test.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &b| {
        (0..8).fold(crc ^ u32::from(b), |c, _| if c & 1 == 1 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 })
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc_of_the_standard() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(super::crc32c(b""), 0);
    }
}
