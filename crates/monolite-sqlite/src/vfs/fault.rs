//! Owns what a file call of this thread has failed with, beyond what SQLite tells of it.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::path::Path;
use std::{fmt, io};

use rustix::io::Errno;

use super::IoError;

/// A call of the system on a file that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// The file.
    pub path: Box<Path>,
    /// What was being done to it: "writing", "reading".
    pub doing: &'static str,
    /// The number of the system's error.
    pub errno: i32,
    /// What all temporary files of the database may have, where that is what refused the write.
    pub limit_bytes: Option<u64>,
    /// What SQLite was told.
    code: IoError,
}

impl FileFault {
    pub(super) fn new(path: Box<Path>, doing: &'static str, errno: i32, code: IoError) -> Self {
        FileFault { path, doing, errno, limit_bytes: None, code }
    }

    /// The same, where a limit of the engine's own is what refused it.
    pub(super) fn of_limit(self, limit_bytes: Option<u64>) -> Self {
        FileFault { limit_bytes, ..self }
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileFault { path, doing, errno, .. } = self;
        if let Some(limit) = self.limit_bytes {
            return write!(
                f,
                "the temporary files of the database would have more than {limit} bytes (option \
                 temp_limit_bytes); sort less at once, add an index that gives the order, or raise \
                 the limit"
            );
        }
        let error = io::Error::from_raw_os_error(*errno);
        write!(f, "{doing} {} failed: {error}", path.display())?;
        if *errno == Errno::BADF.raw_os_error() {
            return f.write_str(
                "; other code of this process has closed its descriptor, and another file may \
                 have it now: mend that code (a descriptor that is closed twice), end the \
                 process, and open the database again",
            );
        }
        f.write_str(match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "; it seems to be immutable or append-only (lsattr): make it \
                 writable with chattr -i or -a"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "; its file system was mounted again as one that is read only, often for an error \
                 of the disk: see the kernel's log (dmesg)"
            }
            // What to do about these is told with the code.
            io::ErrorKind::StorageFull
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::QuotaExceeded => "",
            _ => "; see the kernel's log (dmesg)",
        })
    }
}

thread_local! {
    static FAULT: RefCell<Option<FileFault>> = const { RefCell::new(None) };
    static REFUSED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Remembers what has failed, for [`take_file_fault`].
pub(super) fn note_fault(fault: FileFault) {
    FAULT.set(Some(fault));
}

/// Takes what failed last in a file of this thread's connections, if SQLite was told `code` of it.
pub fn take_file_fault(code: c_int) -> Option<FileFault> {
    FAULT.take().filter(|fault| fault.code.code() == code)
}

/// The write of a temporary file is refused, as all of them would have more than `limit_bytes`.
pub(super) fn note_refusal(limit_bytes: u64) {
    REFUSED.set(Some(limit_bytes));
}

/// Takes the limit because of which this thread's last write was refused, if it was.
pub(super) fn take_refusal() -> Option<u64> {
    REFUSED.take()
}
