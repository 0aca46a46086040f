//! Everything an NBD client can send: no panic, bounded memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = fs2d::frontend::nbd::codec::fuzz_session(data);
});
