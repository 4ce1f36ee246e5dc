//! Owns which file the descriptor of a lower file leads to: code of the same process may close a
//! descriptor that is not its own, and the next file that is opened has its number then.
//!
//! # Algorithm
//! SQLite does not tell its descriptors. It asks for the size of a file by the descriptor, through
//! a table of system calls that can be replaced (`xSetSystemCall`): the one put there notes which
//! descriptor was asked for, and calls the one before. Which file that was when it was opened, by
//! device and inode, is compared before it is used again, and that it does not append: what is
//! written by such a descriptor goes to the end of the file, wherever it was meant for.
//!
//! # Not here
//! What happens between the comparison and the call that follows is not noticed. What is read of a
//! database file is not compared: that would cost as much as half a read.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use rusqlite::ffi::sqlite3_vfs;
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fstat};
use rustix::io::Errno;

type Fstat = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;

/// What was there before.
static BEFORE: OnceLock<Fstat> = OnceLock::new();

thread_local! {
    static ASKED: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// A descriptor, and the file that it led to when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    number: c_int,
    device: u64,
    inode: u64,
}

impl Descriptor {
    /// That which `ask` asks the size of; `None` where it cannot be known.
    pub(super) fn asked(ask: impl FnOnce()) -> Option<Descriptor> {
        ASKED.set(None);
        ask();
        let number = ASKED.take().filter(|number| *number >= 0)?;
        let (device, inode) = file_of(number).ok()?;
        Some(Descriptor { number, device, inode })
    }

    /// # Errors
    /// `EBADF` when the descriptor was closed, or leads to another file, or to the same one for
    /// appending.
    pub(super) fn check(self) -> Result<(), Errno> {
        let is_it = file_of(self.number)? == (self.device, self.inode);
        let appends = fcntl_getfl(borrowed(self.number))?.contains(OFlags::APPEND);
        if is_it && !appends { Ok(()) } else { Err(Errno::BADF) }
    }

    /// Sets aside what is between two bytes of the file.
    ///
    /// # Errors
    /// `NOSPC` or `DQUOT` when there is no room; what the file system says that cannot do this;
    /// those of [`Descriptor::check`].
    pub(super) fn set_aside(self, from: u64, to: u64) -> Result<(), Errno> {
        self.check()?;
        let length = to.saturating_sub(from);
        fallocate(borrowed(self.number), FallocateFlags::KEEP_SIZE, from, length)
    }
}

fn file_of(number: c_int) -> Result<(u64, u64), Errno> {
    let seen = fstat(borrowed(number))?;
    Ok((seen.st_dev, seen.st_ino))
}

/// The number is not negative.
fn borrowed<'fd>(number: c_int) -> BorrowedFd<'fd> {
    // SAFETY: it is only asked about, or has space set aside that changes no content; a descriptor
    // that was closed is an error.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Has descriptors be noted, once; not where the VFS has no table of system calls.
pub(super) fn watch(vfs: *mut sqlite3_vfs) {
    static REPLACED: OnceLock<()> = OnceLock::new();
    REPLACED.get_or_init(|| {
        // SAFETY: `vfs` is one of SQLite's own, which live for ever; what is called "fstat" in its
        // table has that signature.
        unsafe {
            let (Some(get), Some(set)) = ((*vfs).xGetSystemCall, (*vfs).xSetSystemCall) else {
                return;
            };
            let Some(before) = get(vfs, c"fstat".as_ptr()) else { return };
            BEFORE.get_or_init(|| transmute::<unsafe extern "C" fn(), Fstat>(before));
            let noting = transmute::<Fstat, unsafe extern "C" fn()>(noting_fstat);
            set(vfs, c"fstat".as_ptr(), Some(noting));
        }
    });
}

unsafe extern "C" fn noting_fstat(number: c_int, into: *mut c_void) -> c_int {
    // A thread that ends has no place for it any more, and opens no files.
    let _ = ASKED.try_with(|asked| asked.set(Some(number)));
    // SAFETY: the arguments are SQLite's, for the call that it would have made.
    BEFORE.get().map_or(-1, |before| unsafe { before(number, into) })
}
