//! Bytes as a trace file: refused in one line that names the file, or opened, and every site read or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use loka_core::trace::Trace;

const NAME: &str = "fuzz.trace.safetensors";

fuzz_target!(|bytes: &[u8]| {
    let trace = match Trace::from_bytes(NAME, bytes.to_vec()) {
        Ok(trace) => trace,
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n') && line.contains(NAME), "{line}");
            return;
        }
    };
    for entry in trace.sites().iter().take(16) {
        drop(trace.site_stats(&entry.site.id));
        drop(trace.site_series(&entry.site.id));
    }
    drop(trace.digest());
});
