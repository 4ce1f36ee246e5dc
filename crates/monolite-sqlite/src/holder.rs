//! Owns one question: which process holds the lock that made an exclusive open fail?
//!
//! # Algorithm
//! Asking the file itself (`F_GETLK`) would need a descriptor of the database, and closing any
//! descriptor of it drops all POSIX locks this process holds on the file. So the kernel's list of
//! locks is read instead (`/proc/locks`, Linux only) and matched by inode.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Names the process that holds a POSIX lock on `path`, as `pid 123 (name)`, where the system
/// tells.
///
/// Returns `None` on systems without `/proc/locks`, when the holder lives in another container, or
/// when nobody holds a lock any more.
pub fn lock_holder(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    let table = fs::read_to_string("/proc/locks").ok()?;
    let pid = holder_in(&table, meta.ino(), std::process::id())?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim();
    Some(if name.is_empty() { format!("pid {pid}") } else { format!("pid {pid} ({name})") })
}

/// Finds the pid in a line such as `1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`.
fn holder_in(table: &str, inode: u64, own_pid: u32) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip_while(|f| *f != "POSIX").skip(3);
        let pid: u32 = fields.next()?.parse().ok()?;
        let file_inode: u64 = fields.next()?.rsplit(':').next()?.parse().ok()?;
        (file_inode == inode && pid != own_pid && pid != 0).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 1073741826 1073742335\n\
                         2: FLOCK  ADVISORY  WRITE 99 fe:00:77 0 EOF\n\
                         3: POSIX  ADVISORY  READ 42 fe:00:77 128 128\n";

    #[test]
    fn the_holder_is_found_by_inode() {
        assert_eq!(holder_in(TABLE, 5678, 1), Some(1234));
        assert_eq!(holder_in(TABLE, 77, 1), Some(42));
    }

    #[test]
    fn our_own_locks_and_other_files_name_nobody() {
        assert_eq!(holder_in(TABLE, 5678, 1234), None);
        assert_eq!(holder_in(TABLE, 1, 1), None);
    }
}
