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

mod disksim;
mod engine;
mod ext2;
mod hand_over;
mod image;
mod mutate;
mod script;
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
    /// What a run costs, in runs of the cheapest target: a replay makes fewer runs of the dear ones.
    pub cost: u32,
    /// A directory whose files are seeds too, from the project's root.
    pub samples: Option<&'static str>,
}

/// All of them.
pub const TARGETS: [Target; 11] = [
    // The device it is given is in memory too: 3 MiB, where all of it is written.
    target("ext2_image", ext2::run, 8 << 20, 64, 30),
    target("table_bytes", table::run, 256 << 10, 64, 10),
    target("nbd_bytes", nbd, 64 << 10, 16, 1),
    // A buffer has room for the longest request so far, 1 MiB at most; twelve wait to be used again, some are out.
    target("fuse_requests", fuse, 20 << 20, 16, 10),
    // Decoded, encoded again and shown; from 4 KiB on a text may claim 1 MiB before it is read.
    target("control_frames", control, 128 << 10, 300, 1),
    // A head is parsed anew with each piece that comes; it is refused when it is 8 KiB long.
    target("metrics_request", metrics, 16 << 10, 0, 10),
    // A container's reader holds one block: 2 MiB stored and 2 MiB of records. Streams keep a fixed
    // number of events; what unpacks is longer than what is given.
    Target {
        samples: Some("crates/fs2-trace/tests/samples"),
        ..target("trace_bytes", trace::run, 8 << 20, 256, 10)
    },
    target("engine_events", engine::run, 16 << 20, 4096, 60),
    // A drive may have a million cylinders, each with its place in a table; one number in a list is a value.
    target("disksim_specs", disksim::run, 32 << 20, 512, 10),
    // A run of a set is 4 bytes and may stand for 8 KiB.
    target("hand_over", hand_over::run, 4 << 20, 2048, 10),
    // Twenty thousand flowops, composites taken apart, whatever they are written in; and the same again to compare.
    Target { samples: Some("fs2-tools/tests/wml"), ..target("wml_script", script::run, 64 << 20, 1024, 10) },
];

const fn target(
    name: &'static str,
    run: fn(&[u8]),
    memory_bytes: usize,
    memory_per_byte: usize,
    cost: u32,
) -> Target {
    Target { name, run, memory_bytes, memory_per_byte, cost, samples: None }
}

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

/// Everything an NBD client can send.
fn nbd(data: &[u8]) {
    let _ = fs2d::frontend::nbd::codec::fuzz_session(data);
}

/// Everything the kernel can send through /dev/fuse.
fn fuse(data: &[u8]) {
    fs2d::frontend::fuse::fuzz_requests(data);
}

/// Frames of the control socket, to the daemon and from it.
fn control(data: &[u8]) {
    let _ = fs2_control::fuzz_frame(data);
}

/// What a scraper of metrics can send.
fn metrics(data: &[u8]) {
    let _ = fs2d::metrics::request::fuzz_request(data);
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
