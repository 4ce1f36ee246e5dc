//! Other processes whose wall clock jumps while time goes on as it does, by `libfaketime`.

use std::fs;

/// Why it cannot be had.
pub(super) const MISSING: &str = "libfaketime is not installed (package faketime)";

/// Where Debian and Fedora put its library for programs with threads.
const LIBRARIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];

/// What a child has in its environment whose wall clock is shifted by what the file `clock` says,
/// as `+25h`, at any time; `None` where it is not installed.
pub(super) fn variables(clock: &str) -> Option<[(&str, &str); 5]> {
    let library = LIBRARIES.iter().find(|path| fs::exists(path).unwrap_or(false))?;
    Some([
        ("LD_PRELOAD", library),
        ("FAKETIME_TIMESTAMP_FILE", clock),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
    ])
}
