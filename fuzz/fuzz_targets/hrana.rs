//! Any bytes as a request of Hrana: see `fuzzed`, which is part of the tests of `monolite-server`,
//! too.

#![no_main]

#[path = "../../crates/monolite-server/tests/it/hrana/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = fuzzed::any_bytes(data) {
        panic!("{why}");
    }
});
