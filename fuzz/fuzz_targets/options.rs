//! Any options at any path: see `monolite_torture::fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(error) = monolite_torture::fuzz::options(data) {
        panic!("{error:#}");
    }
});
