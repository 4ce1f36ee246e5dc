//! Owns what the C library does with large blocks that were freed.

/// Blocks from here on are the system's own, in bytes: glibc's first threshold.
#[cfg(target_env = "gnu")]
const LARGE: std::ffi::c_int = 128 << 10;

/// Has large blocks go back to the system when they are freed, for the rest of the process.
///
/// glibc raises its threshold (`M_MMAP_THRESHOLD`) to the size of each large block that is freed,
/// up to 32 MiB, and keeps blocks below it. A process that serves large requests to many clients
/// holds far more than it uses then. Other C libraries are left as they are.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn mallopt(parameter: std::ffi::c_int, value: std::ffi::c_int) -> std::ffi::c_int;
        }
        const M_MMAP_THRESHOLD: std::ffi::c_int = -3;
        // SAFETY: it takes two numbers, by the declaration of glibc's `malloc.h`, and locks what it
        // changes.
        let is_set = unsafe { mallopt(M_MMAP_THRESHOLD, LARGE) };
        assert_eq!(is_set, 1, "glibc takes any threshold up to half of a heap");
    }
}
