//! Owns one question: which process holds the lock that made an exclusive open fail?
//!
//! # Algorithm
//! Asking the file itself (`F_GETLK`) would need a descriptor of the database, and closing any
//! descriptor of it drops all POSIX locks this process holds on the file. So the kernel's list of
//! locks is read instead (`/proc/locks`, Linux only) and matched by device and inode. Where a file
//! system tells another device there than by `stat` (btrfs, one for all its subvolumes, which have
//! the same inodes), no holder is named rather than the wrong one. Of our own locks it is known
//! which files we have, so that device is looked for: the one that the list of mounts tells.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// Names the process that holds a POSIX lock on `path`, as `pid 123 (name)`, where the system
/// tells.
///
/// Returns `None` on systems without `/proc/locks`, when the holder lives in another container, or
/// when no process holds a lock any more.
pub fn lock_holder(path: &Path) -> Option<String> {
    let file = place_of(&fs::metadata(path).ok()?);
    let pid = looks().find_map(|table| holder_in(&table, file, std::process::id()))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim();
    Some(if name.is_empty() { format!("pid {pid}") } else { format!("pid {pid} ({name})") })
}

/// Whether this process holds a POSIX lock on `path`, where the system tells.
///
/// `false` when it does not tell, and when the lock was lost, as any descriptor of the file was
/// closed.
pub fn holds_lock(path: &Path) -> bool {
    let Ok(meta) = fs::metadata(path) else { return false };
    let (device, inode) = place_of(&meta);
    let own = (std::process::id(), (mounted_device(path).unwrap_or(device), inode));
    looks().any(|table| locks(&table).any(|lock| lock == own))
}

/// The device of the file system that is mounted where `path` is, by which the system lists its
/// locks. `None` before Linux 5.8.
fn mounted_device(path: &Path) -> Option<(u32, u32)> {
    let seen = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let is_told = seen.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    device_in(&mounts, seen.stx_mnt_id).filter(|_| is_told)
}

/// The device of the mount `id` in lines such as `29 1 0:25 /sub /srv rw - btrfs /dev/vda rw`.
fn device_in(mounts: &str, id: u64) -> Option<(u32, u32)> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let is_it = fields.next()?.parse() == Ok(id);
        let (major, minor) = fields.nth(1).filter(|_| is_it)?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    })
}

/// The system's table of locks, as often as it must be read; nothing where there is none.
fn looks() -> impl Iterator<Item = String> {
    (0..LOOKS).map_while(|_| fs::read_to_string("/proc/locks").ok())
}

/// How often the system's table of locks is read until a lock is known not to be there: it is read
/// in pieces, and a lock is passed over when one before it goes meanwhile.
const LOOKS: u32 = 8;

/// A device and an inode.
type Place = ((u32, u32), u64);

fn place_of(meta: &fs::Metadata) -> Place {
    ((rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev())), meta.ino())
}

fn holder_in(table: &str, file: Place, own_pid: u32) -> Option<u32> {
    let is_another = |(pid, place): &(u32, Place)| *place == file && *pid != own_pid && *pid != 0;
    locks(table).find(is_another).map(|(pid, _)| pid)
}

/// The POSIX locks in lines such as `1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`, each with
/// its process and its file.
fn locks(table: &str) -> impl Iterator<Item = (u32, Place)> {
    table.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip_while(|f| *f != "POSIX").skip(3);
        let pid: u32 = fields.next()?.parse().ok()?;
        let mut place = fields.next()?.split(':');
        let mut number = || u32::from_str_radix(place.next()?, 16).ok();
        let device = (number()?, number()?);
        Some((pid, (device, place.next()?.parse().ok()?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: (u32, u32) = (0xfe, 0);

    const TABLE: &str = "1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 1073741826 1073742335\n\
                         2: FLOCK  ADVISORY  WRITE 99 fe:00:77 0 EOF\n\
                         3: POSIX  ADVISORY  READ 42 fe:00:77 128 128\n";

    #[test]
    fn the_holder_is_found_by_device_and_inode() {
        assert_eq!(holder_in(TABLE, (DEVICE, 5678), 1), Some(1234));
        assert_eq!(holder_in(TABLE, (DEVICE, 77), 1), Some(42));
        assert_eq!(holder_in(TABLE, ((0xfe, 1), 77), 1), None);
    }

    #[test]
    fn our_own_locks_and_other_files_name_nobody() {
        assert_eq!(holder_in(TABLE, (DEVICE, 5678), 1234), None);
        assert_eq!(holder_in(TABLE, (DEVICE, 1), 1), None);
    }

    #[test]
    fn the_device_of_a_mount_is_found_by_its_number() {
        let mounts = "29 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
                      290 29 0:25 /sub /srv rw shared:5 - btrfs /dev/loop0 rw,subvol=/sub\n";
        assert_eq!(device_in(mounts, 290), Some((0, 25)));
        assert_eq!(device_in(mounts, 29), Some((254, 0)));
        assert_eq!(device_in(mounts, 1), None);
    }

    #[test]
    fn a_lock_is_seen_while_others_come_and_go() {
        use rustix::fs::{FlockOperation, fcntl_lock};
        use std::sync::atomic::{AtomicBool, Ordering};

        let directory = tempfile::tempdir().unwrap();
        let lock_new = |name: &str| {
            let file = fs::File::create(directory.path().join(name)).unwrap();
            fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
            file
        };
        let is_over = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _others: Vec<_> = (0..200).map(|n| lock_new(&n.to_string())).collect();
                }
            });
            let _own = lock_new("own");
            let path = directory.path().join("own");
            let seen = (0..300).filter(|_| holds_lock(&path)).count();
            is_over.store(true, Ordering::Relaxed);
            seen
        });
        assert_eq!(seen, 300);
        assert!(!holds_lock(&directory.path().join("0")));
    }
}
