//! Any bytes as an LTX file: see `fuzzed`, which is part of the tests of `monolite-ltx`, too.

#![no_main]

#[path = "../../crates/monolite-ltx/tests/it/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = fuzzed::any_bytes(data) {
        panic!("{why}");
    }
});
