//! A trace in our container: records or an error with its offset.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(reader) = fs2_trace::Reader::new(data) {
        for record in reader {
            if let Err(e) = record {
                let _ = e.to_string();
                break;
            }
        }
    }
});
