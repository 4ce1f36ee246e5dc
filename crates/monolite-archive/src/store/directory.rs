//! Owns the store that is a directory: for local disks, and for NFS version 4.
//!
//! # Algorithm
//! 1. An object is created under a name of its own beside its key, ending in `.tmp`, with its bytes
//!    synced and its time set; `link` then gives it its key, which fails if the key exists; the
//!    other name goes; the directory is synced. The key itself is never opened with `O_EXCL`:
//!    readers would see half of it.
//! 2. An object is replaced under the lock of the file `lock` beside it: read, compared, written
//!    under another name, renamed, synced. The lock is one of the open file, which the kernel drops
//!    with the process.
//! 3. A folder is listed in pieces: all its names are read for each, and those that come next are
//!    kept, so that memory has a bound, however many there are.
//! 4. The process that creates its first object in a folder removes temporary files that others
//!    left there, if they are older than a day by the clock of the file system. A process that
//!    stood still for so long finds its file gone, and tries again.
//!
//! 5. The directory that was found first, by its inode number, must be there: an object missing in
//!    another directory, or without one, says nothing. Only a directory that was never found is
//!    created.
//! 6. Before an object is created in a folder in which this process has created one by
//!    [`Store::create`], the last of them must be there: a directory that was removed, replaced, or
//!    is not mounted any more would take what comes next, and lack all that was before.
//! 7. A new file belongs to the owner of the directory and has its permissions ([`give_as_in`]): a
//!    command that root runs once must not keep out the program, which runs as another user.
//!
//! # Threads and locks
//! The lock is `flock`. Linux has the server of an NFS version 4 hold it, as a lock of all bytes of
//! the file, which excludes processes on all machines that mount it; in version 3 so it does unless
//! the mount says `nolock` or `local_lock`, and then it excludes those of one machine alone: such a
//! mount must not have an archive that several machines use. Nothing can be seen of that from here.
//! Where there are no locks at all, a replacement is [`Unsupported`](ErrorKind::Unsupported). A
//! server that forgets a lock (it was cut off from its client for longer than a lease) may let two
//! replace the record, each believing that it was alone; a claim reads the record once more before
//! it trusts it, and slots are linked, for which no lock is needed.
//!
//! # Durability
//! What is answered has been synced, its name included, and the names of the directories above.
//!
//! # Not here
//! Leadership that changes by itself: a directory that only one machine sees cannot be taken over
//! from another.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fs::{self, DirEntry, File, OpenOptions};
use std::hash::Hasher as _;
use std::io::{BufWriter, ErrorKind as IoErrorKind, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use monolite_ltx::Timestamp;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::{Fetched, Listed, Listing, Part, Store, Tag, in_memory};
use crate::error::{Error, ErrorKind, Result};
use crate::owner::{give_as_in, give_to_owner_of};

/// The most bytes of an object that can be replaced, and whose tag is one of its content when it is
/// read as a whole. The leader record is the only such object and smaller.
const REPLACEABLE: u64 = 2 << 20;

/// How many objects a list has at most. Each takes about 100 bytes of memory, and each list reads
/// all names of the folder: a million files take four lists, some seconds in all.
const LISTED: usize = 1 << 18;

/// How old a file that was left must be to be removed, in seconds: a day.
const LEFT: i64 = 24 * 3600;

/// What Linux says where a server has no locks: `ENOLCK`.
const NO_LOCKS: i32 = rustix::io::Errno::NOLCK.raw_os_error();

/// The end of names that are no objects, or not yet.
const TEMPORARY: &str = ".tmp";

/// The file that is locked while an object beside it is replaced.
const LOCK: &str = "lock";

/// A directory as a store.
#[derive(Clone, Debug)]
pub struct DirectoryStore {
    root: PathBuf,
    /// Folders in which what others have left was looked for.
    tidied: Arc<Mutex<HashSet<PathBuf>>>,
    /// The last object that was created in each folder, but for those of levels and snapshots,
    /// which others may delete.
    last: Arc<Mutex<HashMap<PathBuf, PathBuf>>>,
    /// The inode of `root`, once it was there.
    inode: Arc<OnceLock<u64>>,
    listed: usize,
    left: i64,
}

impl DirectoryStore {
    /// Objects below `root`, which need not be there yet.
    pub fn new(root: impl Into<PathBuf>) -> DirectoryStore {
        DirectoryStore {
            root: root.into(),
            tidied: Arc::default(),
            last: Arc::default(),
            inode: Arc::default(),
            listed: LISTED,
            left: LEFT,
        }
    }

    /// With lists of at most so many objects, so that a test meets several.
    #[cfg(test)]
    fn listing(self, listed: usize) -> DirectoryStore {
        DirectoryStore { listed, ..self }
    }

    /// That takes files of such an age, in seconds, for left over.
    #[cfg(test)]
    fn leaving(self, left: i64) -> DirectoryStore {
        DirectoryStore { left, ..self }
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

    /// Whether the directory is the one that was found first; false when none was ever found.
    fn is_there(&self) -> Result<bool> {
        let found = fs::metadata(&self.root).ok().filter(fs::Metadata::is_dir);
        match (found.map(|found| found.ino()), self.inode.get()) {
            (Some(found), None) => {
                // Another thread may have been first, and have found another one.
                if *self.inode.get_or_init(|| found) == found { Ok(true) } else { self.is_there() }
            }
            (Some(found), Some(first)) if found == *first => Ok(true),
            (None, None) => Ok(false),
            _ => {
                let doing = format!(
                    "find the directory {} that was there before: bring it back, or mount it \
                     again; if another one is to be in its place, open the database again",
                    self.root.display()
                );
                Err(Error::of_io(doing, IoErrorKind::NotFound.into()))
            }
        }
    }

    /// Makes a folder below the directory, and the directory if it was never found.
    fn make(&self, folder: &Path) -> Result<()> {
        if !self.is_there()? {
            make_directories(&self.root)?;
            self.is_there()?;
        }
        let below = folder.strip_prefix(&self.root).unwrap_or(folder);
        let mut made = self.root.clone();
        for part in below {
            made.push(part);
            if make_directory(&made)? == Made::New
                && let Ok(new) = File::open(&made)
            {
                give_as_in(parent(&made)?, &new);
            }
        }
        Ok(())
    }

    /// Whether what was created last in `folder` is there.
    fn must_have_the_last(&self, folder: &Path) -> Result<()> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).get(folder).cloned();
        let looked = last.map(|last| fs::symlink_metadata(&last).map_err(|error| (last, error)));
        looked.transpose().map(drop).map_err(|(last, error)| {
            let last = last.display();
            let doing = format!(
                "see {last}, which was created before: bring the directory back, or mount it \
                 again; without it, what is written there could not be restored"
            );
            Error::of_io(doing, error)
        })
    }

    /// Removes what others have left in the folder of a file that was just created, once.
    fn tidy(&self, new: &Temporary) {
        let Some(folder) = new.path.parent() else { return };
        let mut tidied = self.tidied.lock().unwrap_or_else(PoisonError::into_inner);
        if tidied.insert(folder.to_owned()) {
            drop(tidied);
            // A leftover is no object, and does no harm.
            let _ = remove_left(folder, new, self.left);
        }
    }
}

impl Store for DirectoryStore {
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag> {
        let path = self.path(key)?;
        self.must_have_the_last(parent(&path)?)?;
        let tag = self.create_from(key, body.len() as u64, time, &mut |file| {
            file.write_all(body).map_err(|error| Error::of_io(format!("write {key:?}"), error))
        })?;
        let folder = parent(&path)?.to_owned();
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(folder, path);
        Ok(if body.len() as u64 <= REPLACEABLE { content_tag(body) } else { tag })
    }

    fn create_from(
        &self,
        key: &str,
        _about: u64,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<Tag> {
        let path = self.path(key)?;
        self.make(parent(&path)?)?;
        let temporary = Temporary::write(&path, time, write)?;
        self.tidy(&temporary);
        let tag = file_tag(&temporary.file, &path)?;
        temporary.link(&path)?;
        drop(temporary);
        sync_directory(parent(&path)?)?;
        Ok(tag)
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        let path = self.path(key)?;
        let folder = parent(&path)?;
        self.make(folder)?;
        let _lock = lock(&folder.join(LOCK)).map_err(|error| not_locked(key, error))?;
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
            Err(error) if is_absent(&error) => return self.is_there().map(|_| None),
            Err(error) => return Err(failed(error)),
        };
        self.is_there()?;
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
                self.is_there()?;
                return Ok(Listing { objects: Vec::new(), is_cut: false });
            }
            Err(error) => return Err(failed(error)),
        };
        self.is_there()?;
        // The first ones after `after`, the last of them on top, and one to see that more follow.
        let mut names = BinaryHeap::with_capacity(self.listed.min(1 << 10));
        for entry in entries {
            let name = object_name(&entry.map_err(failed)?).map_err(failed)?;
            let is_asked =
                |name: &String| after.is_none_or(|after| *format!("{prefix}/{name}") > *after);
            let is_near = |name: &String| {
                names.len() <= self.listed || names.peek().is_some_and(|last| name < last)
            };
            if let Some(name) = name.filter(|name| is_near(name) && is_asked(name)) {
                names.push(name);
            }
            if names.len() > self.listed + 1 {
                names.pop();
            }
        }
        let mut names = names.into_sorted_vec();
        let is_cut = names.len() > self.listed;
        names.truncate(self.listed);
        let mut objects = Vec::with_capacity(names.len());
        for name in &names {
            match fs::symlink_metadata(path.join(name)) {
                Ok(metadata) => {
                    objects.push(Listed { key: format!("{prefix}/{name}"), len: metadata.len() });
                }
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        match names.last() {
            // All of them were deleted meanwhile, and a list goes on behind its last object.
            Some(last) if is_cut && objects.is_empty() => {
                self.list(prefix, Some(&format!("{prefix}/{last}")))
            }
            _ => Ok(Listing { objects, is_cut }),
        }
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
                Ok(file) => {
                    give_as_in(parent(path)?, &file);
                    return Ok(Temporary { file, path: name.into(), is_renamed: false });
                }
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
        Err(not_linked(to, error))
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
            // A leftover is no object, and does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The name of an object, unless this is something else.
fn object_name(entry: &DirEntry) -> std::io::Result<Option<String>> {
    // Keys are text.
    let Ok(name) = entry.file_name().into_string() else { return Ok(None) };
    if name.ends_with(TEMPORARY) || name == LOCK {
        return Ok(None);
    }
    match entry.file_type() {
        Ok(kind) => Ok(kind.is_file().then_some(name)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes files that have names as a [`Temporary`] has and are `left` seconds older than `new`,
/// which was created in the same folder just now. What counts is when they were changed last: the
/// time that is set for them is that of their content.
fn remove_left(folder: &Path, new: &Temporary, left: i64) -> std::io::Result<()> {
    let before = new.file.metadata()?.ctime().saturating_sub(left);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_one = entry.file_name().to_str().is_some_and(is_temporary);
        if !is_one || entry.path() == new.path {
            continue;
        }
        let metadata = fs::symlink_metadata(entry.path())?;
        if metadata.is_file() && metadata.ctime() < before {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Whether a [`Temporary`] has such a name: that of an object, two numbers, and the ending.
fn is_temporary(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let numbered = name.strip_suffix(TEMPORARY).and_then(|name| name.rsplit_once('.'));
    let numbers = numbered.and_then(|(_, numbers)| numbers.split_once('-'));
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// What a lock that is not given means: where there are none, to ask again is of no use.
fn not_locked(key: &str, error: std::io::Error) -> Error {
    if error.kind() == IoErrorKind::Unsupported || error.raw_os_error() == Some(NO_LOCKS) {
        let message = format!(
            "{key:?} cannot be locked ({error}): the directory is on a file system without locks; \
             mount it with them, or take another one"
        );
        return Error::new(ErrorKind::Unsupported, message);
    }
    Error::of_io(format!("lock {key:?}"), error)
}

/// What a link that is not made means: where there are none, Linux says that it is not permitted.
fn not_linked(to: &Path, error: std::io::Error) -> Error {
    const NO_LINKS: i32 = rustix::io::Errno::PERM.raw_os_error();
    if error.kind() == IoErrorKind::Unsupported || error.raw_os_error() == Some(NO_LINKS) {
        let message = format!(
            "{} cannot be linked ({error}): the directory is on a file system without hard links; \
             take another one",
            to.display()
        );
        return Error::new(ErrorKind::Unsupported, message);
    }
    Error::of_io(format!("link {}", to.display()), error)
}

/// Waits for the lock of a file, which lasts as long as what is returned.
fn lock(path: &Path) -> std::io::Result<File> {
    let file = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == IoErrorKind::NotFound => {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
            // Only then: a directory that cannot be written now would lock its owner out.
            give_as_in(path.parent().unwrap_or(Path::new("")), &file);
            file
        }
        opened => opened?,
    };
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
    make_directories(parent(directory)?)?;
    if make_directory(directory)? == Made::New
        && let Ok(new) = File::open(directory)
    {
        give_to_owner_of(parent(directory)?, &new);
    }
    Ok(())
}

/// Who has made a directory.
#[derive(PartialEq, Eq)]
enum Made {
    New,
    Before,
}

/// Makes a directory in one that is there, unless it is there.
fn make_directory(directory: &Path) -> Result<Made> {
    match fs::create_dir(directory) {
        Ok(()) => sync_directory(parent(directory)?).map(|()| Made::New),
        Err(error) if error.kind() == IoErrorKind::AlreadyExists => Ok(Made::Before),
        Err(error) => Err(Error::of_io(format!("create {}", directory.display()), error)),
    }
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

#[cfg(test)]
mod tests;
