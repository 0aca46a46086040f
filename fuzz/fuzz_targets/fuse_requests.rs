//! `fuse_requests` of `crates/fs2-fuzz`, where it is said what is done with the bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (fs2_fuzz::find("fuse_requests").expect("it is listed").run)(data);
});
