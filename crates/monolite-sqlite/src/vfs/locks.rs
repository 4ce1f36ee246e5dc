//! Owns the locks of a database file that is one process's alone: one exclusive lock against
//! everybody else, and among the connections of the engine a count in memory.
//!
//! A POSIX lock belongs to the process, so it does not keep out a plain SQLite connection that
//! other code of the same process opens on the file. That one would write without the engine
//! noticing, which serves pages from caches of its own, and both would damage the file. SQLite's
//! unix VFS counts the locks of all its files on one inode, though, whichever VFS they were opened
//! with. So as long as one file of the engine holds an exclusive lock there, every other connection
//! of the process is told `SQLITE_BUSY`, as one of another process is.
//!
//! # Algorithm
//! 1. The first connection of the engine that asks for a shared lock becomes the *holder*: its
//!    lower file takes the exclusive lock, and then what is to be locked besides is ([`Second`]),
//!    before SQLite has read anything. If another process has either locked, the connection gets
//!    `SQLITE_BUSY`.
//! 2. All further locks are counted here, by the rules of SQLite: many shared, one reserved beside
//!    them, one exclusive alone. The lower files are not asked.
//! 3. When the holder lets go, the next connection that asks for a shared lock takes its place. The
//!    writer is opened first and closed last, so in practice it is the holder for ever.
//!
//! # Not here
//! The locks of the wal-index: an exclusive SQLite keeps them in memory, for all connections of
//! the process on that inode. Connections over [`Lower::Unix`](super::Lower::Unix), which others
//! may use beside us, have SQLite's own locks.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use rusqlite::ffi;

use super::{IoError, LockLevel, Result};
use crate::locked::locked;

const NONE: LockLevel = LockLevel(ffi::SQLITE_LOCK_NONE);
const SHARED: LockLevel = LockLevel(ffi::SQLITE_LOCK_SHARED);
const RESERVED: LockLevel = LockLevel(ffi::SQLITE_LOCK_RESERVED);
const EXCLUSIVE: LockLevel = LockLevel(ffi::SQLITE_LOCK_EXCLUSIVE);

/// The locks of one database, shared by all its connections.
#[derive(Debug, Default)]
pub(super) struct Locks {
    state: Mutex<LockState>,
    second: OnceLock<Second>,
}

/// Locks something else beside the database file; doing it again does nothing.
pub(super) struct Second(pub(super) Box<dyn Fn() -> io::Result<()> + Send + Sync>);

impl fmt::Debug for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Second").finish_non_exhaustive()
    }
}

/// One file's name among those of its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id(u64);

#[derive(Debug, Default)]
struct LockState {
    next: u64,
    shared: u32,
    reserved: Option<Id>,
    exclusive: Option<Id>,
    holder: Option<Id>,
}

impl LockState {
    fn new_id(&mut self) -> Id {
        self.next += 1;
        Id(self.next)
    }
}

impl Locks {
    /// Has `second` be locked whenever the database file has been. Said once.
    pub(super) fn lock_also(&self, second: Second) {
        let said = self.second.set(second);
        debug_assert!(said.is_ok(), "there is one second lock");
    }

    /// Keeps everybody else from the file.
    fn hold(&self, lower: &mut dyn LowerLock) -> Result {
        lower.lock(SHARED)?;
        lower.lock(EXCLUSIVE).and_then(|()| self.lock_second()).inspect_err(|_| {
            // That it failed is what the caller has to know; the lock goes with the file.
            let _ = lower.unlock(NONE);
        })
    }

    fn lock_second(&self) -> Result {
        let Some(Second(lock)) = self.second.get() else { return Ok(()) };
        lock().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => IoError::BUSY,
            _ => IoError::CANT_OPEN,
        })
    }
}

/// What the locks need of the lower file of the connection that asks.
pub(super) trait LowerLock {
    /// # Errors
    /// `SQLITE_BUSY` when another connection has the file locked, or the code of the failure.
    fn lock(&mut self, level: LockLevel) -> Result;
    /// # Errors
    /// The code of the failure.
    fn unlock(&mut self, level: LockLevel) -> Result;
}

/// The lock that one connection's file has.
#[derive(Debug)]
pub(super) struct FileLock {
    locks: Arc<Locks>,
    id: Id,
    level: LockLevel,
}

impl FileLock {
    pub(super) fn new(locks: Arc<Locks>) -> FileLock {
        let id = locked(&locks.state).new_id();
        FileLock { locks, id, level: NONE }
    }

    /// Raises the lock to `level`.
    ///
    /// # Errors
    /// `SQLITE_BUSY` when another connection has one that precludes it, or the code of the failure.
    pub(super) fn lock(&mut self, lower: &mut dyn LowerLock, level: LockLevel) -> Result {
        if self.level >= level {
            return Ok(());
        }
        let mut state = locked(&self.locks.state);
        if state.exclusive.is_some_and(|id| id != self.id) {
            return Err(IoError::BUSY);
        }
        match level {
            SHARED => {
                if state.holder.is_none() {
                    self.locks.hold(lower)?;
                    state.holder = Some(self.id);
                }
                state.shared += 1;
            }
            RESERVED => {
                if state.reserved.is_some_and(|id| id != self.id) {
                    return Err(IoError::BUSY);
                }
                state.reserved = Some(self.id);
            }
            _ => {
                if state.shared > 1 || state.reserved.is_some_and(|id| id != self.id) {
                    return Err(IoError::BUSY);
                }
                state.exclusive = Some(self.id);
            }
        }
        self.level = level;
        Ok(())
    }

    /// Lowers the lock to `level`.
    ///
    /// # Errors
    /// The code of the failure.
    pub(super) fn unlock(&mut self, lower: &mut dyn LowerLock, level: LockLevel) -> Result {
        if self.level <= level {
            return Ok(());
        }
        let mut state = locked(&self.locks.state);
        if level < EXCLUSIVE {
            state.exclusive.take_if(|id| *id == self.id);
        }
        if level < RESERVED {
            state.reserved.take_if(|id| *id == self.id);
        }
        self.level = level;
        if level > NONE {
            return Ok(());
        }
        assert!(state.shared > 0, "a shared lock is given back once");
        state.shared -= 1;
        if state.holder.take_if(|id| *id == self.id).is_some() {
            lower.unlock(NONE)
        } else {
            Ok(())
        }
    }

    /// Whether any connection of the database has more than a shared lock.
    pub(super) fn is_reserved(&self) -> bool {
        let state = locked(&self.locks.state);
        state.reserved.is_some() || state.exclusive.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A lower file, and whether somebody else of the process has its inode locked.
    #[derive(Default)]
    struct Lower {
        held: Option<LockLevel>,
        is_taken: bool,
    }

    impl LowerLock for Lower {
        fn lock(&mut self, level: LockLevel) -> Result {
            if self.is_taken && level > SHARED {
                return Err(IoError::BUSY);
            }
            self.held = Some(level);
            Ok(())
        }

        fn unlock(&mut self, level: LockLevel) -> Result {
            self.held = (level > NONE).then_some(level);
            Ok(())
        }
    }

    fn files(count: usize) -> Vec<(FileLock, Lower)> {
        let locks = Arc::new(Locks::default());
        (0..count).map(|_| (FileLock::new(Arc::clone(&locks)), Lower::default())).collect()
    }

    #[test]
    fn the_first_file_holds_the_exclusive_lock_for_all() {
        let mut files = files(3);
        for (file, lower) in &mut files {
            file.lock(lower, SHARED).unwrap();
        }
        let held: Vec<_> = files.iter().map(|(_, lower)| lower.held).collect();
        assert_eq!(held, [Some(EXCLUSIVE), None, None]);
        let [(a, lower_a), (b, lower_b), (c, lower_c)] = &mut files[..] else { unreachable!() };
        a.unlock(lower_a, NONE).unwrap();
        assert_eq!(lower_a.held, None);
        b.unlock(lower_b, NONE).unwrap();
        b.lock(lower_b, SHARED).unwrap();
        assert_eq!((lower_b.held, lower_c.held), (Some(EXCLUSIVE), None));
        c.unlock(lower_c, NONE).unwrap();
    }

    #[test]
    fn a_file_that_others_of_the_process_use_cannot_be_held() {
        let mut files = files(1);
        let (file, lower) = &mut files[0];
        lower.is_taken = true;
        assert_eq!(file.lock(lower, SHARED), Err(IoError::BUSY));
        assert_eq!(lower.held, None);
        lower.is_taken = false;
        file.lock(lower, SHARED).unwrap();
    }

    #[test]
    fn a_file_whose_second_lock_somebody_has_cannot_be_held() {
        for (kind, code) in [
            (io::ErrorKind::WouldBlock, IoError::BUSY),
            (io::ErrorKind::PermissionDenied, IoError::CANT_OPEN),
        ] {
            let mut files = files(1);
            let (file, lower) = &mut files[0];
            let is_free = Arc::new(AtomicBool::new(false));
            let asked = Arc::clone(&is_free);
            file.locks.lock_also(Second(Box::new(move || match asked.load(Ordering::Relaxed) {
                true => Ok(()),
                false => Err(kind.into()),
            })));
            assert_eq!(file.lock(lower, SHARED), Err(code));
            assert_eq!(lower.held, None);
            is_free.store(true, Ordering::Relaxed);
            file.lock(lower, SHARED).unwrap();
            assert_eq!(lower.held, Some(EXCLUSIVE));
        }
    }

    #[test]
    fn among_themselves_files_keep_the_rules_of_sqlite() {
        let mut files = files(2);
        let [(a, lower_a), (b, lower_b)] = &mut files[..] else { unreachable!() };
        a.lock(lower_a, SHARED).unwrap();
        b.lock(lower_b, SHARED).unwrap();
        a.lock(lower_a, RESERVED).unwrap();
        assert!(b.is_reserved());
        assert_eq!(b.lock(lower_b, RESERVED), Err(IoError::BUSY));
        assert_eq!(a.lock(lower_a, EXCLUSIVE), Err(IoError::BUSY), "another one reads");
        b.unlock(lower_b, NONE).unwrap();
        a.lock(lower_a, EXCLUSIVE).unwrap();
        assert_eq!(b.lock(lower_b, SHARED), Err(IoError::BUSY));
        a.unlock(lower_a, SHARED).unwrap();
        b.lock(lower_b, SHARED).unwrap();
        assert!(!b.is_reserved());
    }
}
