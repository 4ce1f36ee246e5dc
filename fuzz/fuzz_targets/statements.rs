//! Sequences of statements against plain SQLite: see `monolite_sim::fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(error) = monolite_sim::fuzz::statements(data) {
        panic!("{error:#}");
    }
});
