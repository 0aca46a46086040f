//! Frames of the control socket.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = fs2_control::fuzz_frame(data);
});
