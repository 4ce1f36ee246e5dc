//! Owns the store that is a directory: for local disks, and for NFS version 4.
//!
//! # Algorithm
//! 1. An object is created under a name of its own beside its key, ending in `.tmp`, with its bytes
//!    synced and its time set; `link` then gives it its key, which fails if somebody was first; the
//!    other name goes; the directory is synced. The key itself is never opened with `O_EXCL`:
//!    readers would see half of it.
//! 2. An object is replaced under the lock of the file `lock` beside it: read, compared, written
//!    under another name, renamed, synced. The lock is one of the open file, which the kernel drops
//!    with the process, and on NFS a lock of the whole file at the server.
//!
//! # Durability
//! What is answered has been synced, its name included, and the names of the directories above.
//!
//! # Not here
//! Leadership that changes by itself: a directory that only one machine sees cannot be taken over
//! from another.

use std::fs::{self, File, OpenOptions};
use std::hash::Hasher as _;
use std::io::{BufWriter, ErrorKind as IoErrorKind, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use monolite_ltx::Timestamp;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::{Fetched, Listed, Listing, Part, Store, Tag, in_memory};
use crate::error::{Error, ErrorKind, Result};

/// The most bytes of an object that can be replaced, and whose tag is one of its content when it is
/// read as a whole. The leader record is the only such object and smaller.
const REPLACEABLE: u64 = 2 << 20;

/// How many files a folder may have. It is read in one piece; a hundred times what an hour of slots
/// is.
const FILES: usize = 1 << 20;

/// The end of names that are no objects, or not yet.
const TEMPORARY: &str = ".tmp";

/// The file that is locked while an object beside it is replaced.
const LOCK: &str = "lock";

/// A directory as a store.
#[derive(Clone, Debug)]
pub struct DirectoryStore {
    root: PathBuf,
}

impl DirectoryStore {
    /// Objects below `root`, which need not be there yet.
    pub fn new(root: impl Into<PathBuf>) -> DirectoryStore {
        DirectoryStore { root: root.into() }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, key: &str) -> Result<PathBuf> {
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if !key.split('/').all(is_part) || key.ends_with(TEMPORARY) {
            return Err(Error::invalid(format!("{key:?} can be no file below a directory")));
        }
        Ok(self.root.join(key))
    }
}

impl Store for DirectoryStore {
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag> {
        let tag = self.create_from(key, time, &mut |file| {
            file.write_all(body).map_err(|error| Error::of_io(format!("write {key:?}"), error))
        })?;
        Ok(if body.len() as u64 <= REPLACEABLE { content_tag(body) } else { tag })
    }

    fn create_from(
        &self,
        key: &str,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<Tag> {
        let path = self.path(key)?;
        let temporary = Temporary::write(&path, time, write)?;
        let tag = file_tag(&temporary.file, &path)?;
        temporary.link(&path)?;
        drop(temporary);
        sync_directory(parent(&path)?)?;
        Ok(tag)
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        let path = self.path(key)?;
        let folder = parent(&path)?;
        make_directories(folder)?;
        let _lock = lock(&folder.join(LOCK))
            .map_err(|error| Error::of_io(format!("lock {key:?}"), error))?;
        let is = self.get(key, Part::Whole(REPLACEABLE))?.map(|object| object.tag);
        if is.as_ref() != Some(expected) {
            return Err(Error::new(ErrorKind::Exists, format!("{key:?} is another by now")));
        }
        let mut temporary = Temporary::write(&path, None, &mut |file| {
            file.write_all(body).map_err(|error| Error::of_io(format!("write {key:?}"), error))
        })?;
        temporary.rename(&path)?;
        sync_directory(folder)?;
        Ok(content_tag(body))
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        let path = self.path(key)?;
        let failed = |error| Error::of_io(format!("read {key:?}"), error);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let len = file.metadata().map_err(failed)?.len();
        let range = part.of(len);
        let range = range.ok_or_else(|| Error::corrupt(format!("{key:?} has {len} bytes")))?;
        let mut bytes = vec![0; in_memory(range.end - range.start)?];
        file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
        file.read_exact(&mut bytes).map_err(failed)?;
        let tag = match part {
            Part::Whole(_) if len <= REPLACEABLE => content_tag(&bytes),
            _ => file_tag(&file, &path)?,
        };
        Ok(Some(Fetched { bytes, len, tag }))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        let path = self.path(prefix)?;
        let failed = |error| Error::of_io(format!("list {prefix:?}"), error);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => {
                return Ok(Listing { objects: Vec::new(), is_cut: false });
            }
            Err(error) => return Err(failed(error)),
        };
        let mut objects = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // Not one of ours: keys are text.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(failed(error)),
            };
            let key = format!("{prefix}/{name}");
            let is_asked = after.is_none_or(|after| *key > *after);
            if metadata.is_file() && is_asked && !name.ends_with(TEMPORARY) && name != LOCK {
                objects.push(Listed { key, len: metadata.len() });
            }
            if objects.len() > FILES {
                return Err(Error::corrupt(format!("{prefix:?} has more than {FILES} files")));
            }
        }
        objects.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Ok(Listing { objects, is_cut: false })
    }

    fn delete(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        match fs::remove_file(&path) {
            Ok(()) => sync_directory(parent(&path)?),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(Error::of_io(format!("delete {key:?}"), error)),
        }
    }
}

/// A file under a name of its own, which goes when this does.
struct Temporary {
    file: File,
    path: PathBuf,
    is_renamed: bool,
}

impl Temporary {
    /// A file beside `path` with content and time, synced.
    fn write(
        path: &Path,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<Temporary> {
        make_directories(parent(path)?)?;
        let temporary = Temporary::beside(path)?;
        let failed = |error| Error::of_io(format!("write {}", temporary.path.display()), error);
        let mut buffered = BufWriter::new(&temporary.file);
        write(&mut buffered)?;
        buffered.flush().map_err(failed)?;
        drop(buffered);
        if let Some(time) = time.and_then(system_time) {
            temporary.file.set_modified(time).map_err(failed)?;
        }
        temporary.file.sync_all().map_err(failed)?;
        Ok(temporary)
    }

    fn beside(path: &Path) -> Result<Temporary> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{}-{number}{TEMPORARY}", std::process::id()));
            let mut options = OpenOptions::new();
            match options.read(true).write(true).create_new(true).open(&name) {
                Ok(file) => return Ok(Temporary { file, path: name.into(), is_renamed: false }),
                // Left by a process of the same number, here or on another machine.
                Err(error) if error.kind() == IoErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Error::of_io(format!("create beside {}", path.display()), error));
                }
            }
        }
    }

    fn link(&self, to: &Path) -> Result<()> {
        let Err(error) = fs::hard_link(&self.path, to) else { return Ok(()) };
        // A server that was asked twice refuses the second time: two names tell that it was done.
        if fs::metadata(&self.path).is_ok_and(|metadata| metadata.nlink() == 2) {
            return Ok(());
        }
        if error.kind() == IoErrorKind::AlreadyExists {
            return Err(Error::new(ErrorKind::Exists, format!("{} is there", to.display())));
        }
        Err(Error::of_io(format!("link {}", to.display()), error))
    }

    fn rename(&mut self, to: &Path) -> Result<()> {
        let renamed = fs::rename(&self.path, to);
        renamed.map_err(|error| Error::of_io(format!("rename to {}", to.display()), error))?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_renamed {
            // What is left over is no object, and in nobody's way.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Waits for the lock of a file, which lasts as long as what is returned.
fn lock(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Of a file that is created and deleted, but never replaced.
fn file_tag(file: &File, path: &Path) -> Result<Tag> {
    let metadata = file.metadata();
    let metadata =
        metadata.map_err(|error| Error::of_io(format!("look at {}", path.display()), error))?;
    let (len, seconds, nanos) = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    Ok(Tag::new(format!("{:x}-{len:x}-{seconds:x}.{nanos}", metadata.ino())))
}

/// Of an object that may be replaced: numbers of files and times come again.
fn content_tag(body: &[u8]) -> Tag {
    let mut hasher = SipHasher24::new();
    hasher.write(body);
    Tag::new(format!("{:032x}", hasher.finish128().as_u128()))
}

fn system_time(time: Timestamp) -> Option<SystemTime> {
    let distance = Duration::from_millis(time.millis().unsigned_abs());
    if time.millis() < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    }
}

fn parent(path: &Path) -> Result<&Path> {
    path.parent().ok_or_else(|| Error::invalid(format!("{} is in nothing", path.display())))
}

/// Creates `directory` and those above it, each synced into the one that has it.
fn make_directories(directory: &Path) -> Result<()> {
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    let above = parent(directory)?;
    make_directories(above)?;
    match fs::create_dir(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == IoErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::of_io(format!("create {}", directory.display()), error)),
    }
    sync_directory(above)
}

/// Syncs a directory, so that the names in it last.
pub(crate) fn sync_directory(directory: &Path) -> Result<()> {
    let named = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let synced = File::open(named).and_then(|directory| directory.sync_all());
    synced.map_err(|error| Error::of_io(format!("sync {}", named.display()), error))
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), IoErrorKind::NotFound | IoErrorKind::NotADirectory)
}
