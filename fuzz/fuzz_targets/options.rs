//! Any options at any path: see `monolite_sim::fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(error) = monolite_sim::fuzz::options(data) {
        panic!("{error:#}");
    }
});
