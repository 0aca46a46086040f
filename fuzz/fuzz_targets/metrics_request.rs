//! `metrics_request` of `crates/fs2-fuzz`, where it is said what is done with the bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (fs2_fuzz::find("metrics_request").expect("it is listed").run)(data);
});
