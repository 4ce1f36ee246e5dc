//! Owns the identity of files: which file is at a path, by device and inode, and whether a database
//! can have its WAL beside it there.
//!
//! A path is not an identity: a file has others through links, bind mounts and after a rename, and
//! each would lead to a WAL of its own. What holds for as long as a file is open is its device and
//! inode; they are looked at without opening the file, since closing it again would drop SQLite's
//! locks.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use monolite_sqlite::lock_holder;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statfs, statx};

use crate::error::{Error, ErrorKind, Result, remedy_of};
use crate::names::{COMPANIONS, check, unusable, with_ending};

/// Permissions of a new database, less those that the process's mask takes: SQLite's own.
const NEW_FILE_MODE: u32 = 0o644;

/// What SQLite's unix VFS lets a path have (`MAX_PATHNAME`, 512), less `-journal`.
const MAX_PATH_BYTES: usize = 504;

/// Which file it is, for as long as it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(meta: &Metadata) -> FileId {
        FileId { device: meta.dev(), inode: meta.ino() }
    }

    /// The file at `path`, which is created if there is none, and whether it was.
    ///
    /// A file that is there is not opened. One that is created is closed again, so this process
    /// must not open it elsewhere meanwhile.
    pub(crate) fn at(path: &Path) -> io::Result<(FileId, bool)> {
        let known = |meta: Metadata| FileId::of(&meta);
        let mut new = File::options();
        new.write(true).create_new(true).mode(NEW_FILE_MODE);
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match new.open(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    fs::metadata(path).map(|meta| (known(meta), false))
                }
                created => created?.metadata().map(|meta| (known(meta), true)),
            },
            meta => meta.map(|meta| (known(meta), false)),
        }
    }

    /// Removes the file, which was created at `path`, if it is empty still and no other process has
    /// it locked.
    pub(crate) fn remove_unused(self, path: &Path) {
        let is_unused = |meta: Metadata| FileId::of(&meta) == self && meta.len() == 0;
        if fs::symlink_metadata(path).is_ok_and(is_unused) && lock_holder(path).is_none() {
            // A file that stays does no harm: it is taken for a new database.
            let _ = fs::remove_file(path);
        }
    }
}

/// A file that has to stay where it is.
#[derive(Debug)]
pub(crate) struct Watched {
    name: &'static str,
    path: PathBuf,
    file: FileId,
}

impl Watched {
    /// The file that is at `path`, and what to call it.
    pub(crate) fn new(name: &'static str, path: PathBuf, meta: &Metadata) -> Watched {
        Watched { name, path, file: FileId::of(meta) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether what was looked at is this file, wherever it is now.
    pub(crate) fn is(&self, meta: &Metadata) -> bool {
        FileId::of(meta) == self.file
    }

    /// Returns how long the file is.
    ///
    /// # Errors
    /// `NotFound` unless it is the one at the path; those of looking.
    pub(crate) fn check(&self) -> io::Result<u64> {
        let gone = |how| io::Error::new(io::ErrorKind::NotFound, format!("{} {how}", self.name));
        // The path had no link at its end when the file was opened: one that leads to the same file
        // has another WAL beside it.
        match fs::symlink_metadata(&self.path) {
            Ok(meta) if FileId::of(&meta) == self.file => Ok(meta.len()),
            Ok(meta) if meta.is_symlink() => Err(gone("was replaced by a link")),
            Ok(_) => Err(gone("was replaced")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(gone("was deleted or renamed"))
            }
            Err(error) => Err(error),
        }
    }
}

/// The path by which the database at `path` is known: absolute and without links.
///
/// # Errors
/// `Invalid` for what can be no database, or would have another WAL under another name.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    check(path)?;
    let known = canonical_at_any_length(path)?;
    check(&known)?;
    check_companions(path, &known)?;
    let length = known.as_os_str().len();
    if length > MAX_PATH_BYTES {
        let most = MAX_PATH_BYTES;
        let reason = format!("its path has {length} bytes, and SQLite takes at most {most}");
        return Err(unusable(path, &reason));
    }
    Ok(known)
}

/// Sees whether what is where SQLite keeps its files is one that it can open: it waits for the
/// other end of a pipe, and says of a directory or a link to nothing only that it cannot be opened.
/// Whether the WAL has other names, too, as in a copy that was made with links; and whether a
/// database that is found through a link has left its WAL beside the link.
fn check_companions(path: &Path, known: &Path) -> Result<()> {
    for ending in COMPANIONS {
        let file = with_ending(known, ending);
        // A close of the database may delete it meanwhile: it is looked at once.
        let is_fit = fs::symlink_metadata(&file).map_or(true, |meta| {
            let leads_to_file = || fs::metadata(&file).is_ok_and(|meta| meta.is_file());
            meta.is_file() || (meta.is_symlink() && leads_to_file())
        });
        if !is_fit {
            let message = format!(
                "{} cannot be opened: {}, where SQLite keeps a file beside it, is no regular file; \
                 move it away",
                path.display(),
                file.display()
            );
            return Err(Error::new(ErrorKind::Storage, message));
        }
    }
    let (beside, own) = (with_ending(path, "-wal"), with_ending(known, "-wal"));
    if fs::symlink_metadata(&own).is_ok_and(|meta| meta.is_file() && meta.nlink() > 1) {
        let message = format!(
            "{} cannot be opened: its WAL, {}, has hard links, and what another database has \
             there under another name would be overwritten; put a copy of it in its place, or \
             remove the others",
            path.display(),
            own.display()
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    // None, or it is deleted now: a close of the database does that. A link to nothing was found
    // above.
    let Ok(found) = fs::canonicalize(&beside) else { return Ok(()) };
    let length = fs::metadata(&found).map_or(0, |meta| meta.len());
    let is_link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
    if length > WAL_WITHOUT_FRAMES && !is_link && found != own {
        let message = format!(
            "{} cannot be opened: its WAL, {}, is a link to {} ({length} bytes), and SQLite keeps \
             the WAL beside the database; put that in the place of the link",
            path.display(),
            beside.display(),
            found.display()
        );
        return Err(Error::new(ErrorKind::Storage, message));
    }
    if length > WAL_WITHOUT_FRAMES && found != own {
        let message = format!(
            "{} is a link to {}, and beside the link there is a WAL, {} ({length} bytes), that may \
             hold commits: the database was moved without it; move it beside the database, or away \
             to open the database without it",
            path.display(),
            known.display(),
            beside.display()
        );
        return Err(Error::new(ErrorKind::Storage, message));
    }
    Ok(())
}

fn canonical_at_any_length(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(unusable(path, "it has a NUL byte in it, which no file name can have"));
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(unusable(path, "it ends with a slash, as the name of a directory does"));
    }
    let fail = |error: io::Error| io_error(path, &error);
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(unusable(path, "it is a directory")),
        Ok(meta) if !meta.is_file() => return Err(unusable(path, "it is no regular file")),
        Ok(meta) if meta.nlink() > 1 => {
            return Err(unusable(path, LINKED));
        }
        Ok(_) => {
            let path = fs::canonicalize(path).map_err(fail)?;
            return if is_mounted(&path) { Err(unusable(&path, MOUNTED)) } else { Ok(path) };
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    if let Ok(target) = fs::read_link(path) {
        let reason = format!("it is a link to {}, which is not there", target.display());
        return Err(unusable(path, &reason));
    }
    let name = path.file_name().ok_or_else(|| unusable(path, "it names no file"))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = fs::canonicalize(directory).map_err(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            return io_error(path, &error).context(format!("directory {}", directory.display()));
        }
        let message = format!(
            "{} cannot be opened: the directory {} does not exist; create it first{}",
            path.display(),
            directory.display(),
            taken_literally(path)
        );
        Error::new(ErrorKind::Storage, message)
    })?;
    Ok(directory.join(name))
}

/// What to do about a path that was meant for a shell, or for an SQLite that takes URIs.
fn taken_literally(path: &Path) -> &'static str {
    let path = path.as_os_str().as_encoded_bytes();
    if path.starts_with(b"file:") {
        return " (a path is taken literally, and file: URIs are not: give the path alone, and \
                options by monolite::Options)";
    }
    if path.starts_with(b"~") {
        return " (a path is taken literally, and ~ is what only a shell replaces: give the path of \
                the home directory, as std::env::home_dir() has it)";
    }
    ""
}

/// Sees to it that no WAL or journal is thrown away because its database is not there: SQLite takes
/// one beside a missing or empty database for a leftover.
///
/// # Errors
/// `Storage` when the file at `path` is missing or empty, and there are frames in its WAL, or a
/// rollback journal.
pub(crate) fn check_wal(path: &Path, wal: &Path) -> Result<()> {
    let length = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    if length(path) > EMPTY {
        return Ok(());
    }
    let journal = with_ending(path, "-journal");
    let journal = journal.as_path();
    let (file, name, why) = if length(wal) > WAL_WITHOUT_FRAMES {
        (wal, "WAL", "may hold commits")
    } else if is_of_pages(journal) {
        (journal, "rollback journal", "is needed to open it")
    } else {
        return Ok(());
    };
    let message = format!(
        "{} is missing or empty, but there is its {name}, {} ({} bytes), and that {why}: the \
         database was moved or deleted; put it back, or move the {name} away to start empty",
        path.display(),
        file.display(),
        length(file)
    );
    Err(Error::new(ErrorKind::Storage, message))
}

/// Sees whether a database is at `path`.
///
/// # Errors
/// `Storage` when the file is missing or empty; those of looking.
pub(crate) fn check_existence(path: &Path) -> Result<()> {
    let why = match fs::metadata(path) {
        Ok(meta) if meta.len() > EMPTY => return Ok(()),
        Ok(_) => "is empty",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "does not exist",
        Err(error) => return Err(io_error(path, &error)),
    };
    let message = format!(
        "{} {why}, and Options::must_exist opens only a database that is there: see its name, \
         restore a backup, or create it without that option",
        path.display()
    );
    Err(Error::new(ErrorKind::Storage, message))
}

/// Whether there is a rollback journal of a database that had pages. One of a database that was
/// being made has none to give back. Format: <https://sqlite.org/fileformat2.html#rollbackjournal>.
fn is_of_pages(journal: &Path) -> bool {
    const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    let mut header = [0; 20];
    let read = File::open(journal).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header[..8] == MAGIC && header[16..] != [0; 4]
}

/// SQLite takes a file of one byte for an empty one.
pub(crate) const EMPTY: u64 = 1;

/// A header, and less than a page.
pub(crate) const WAL_WITHOUT_FRAMES: u64 = 32 + 24 + 511;

const LINKED: &str = "it has hard links, and each name would have its own WAL; remove the others, \
                      or copy it";

const MOUNTED: &str = "the file itself is a mount point (as docker -v FILE:FILE makes it), so its \
                       WAL would not be beside that of its other name; mount its directory";

/// Sees whether locks and memory of the file at `path`, or of one that is to be made there, are
/// shared by all who can open it: the file system is this machine's own.
///
/// # Errors
/// `Invalid` when it is known as another one.
pub(crate) fn check_file_system(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    // What cannot be asked is found out by the opening.
    let Ok(seen) = statfs(directory) else { return Ok(()) };
    // The type is a number of 32 bits, which some platforms extend by its sign.
    let known = SHARED_FILE_SYSTEMS.iter().find(|(number, _)| *number == seen.f_type as u32);
    let Some((_, name)) = known else { return Ok(()) };
    let reason = format!(
        "it is on {name}, where a process on another side of the mount has locks of its own, and \
         both would write; put it on a disk of this machine (in a container: in a volume)"
    );
    Err(unusable(path, &reason))
}

/// The numbers by which `statfs` tells file systems that are another machine's or program's, see
/// `statfs(2)` and `linux/magic.h`. Virtiofs says that it is FUSE.
const SHARED_FILE_SYSTEMS: [(u32, &str); 14] = [
    (0x6573_5546, "FUSE or virtiofs"),
    (0x0102_1997, "9p"),
    (0x0000_6969, "NFS"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x0000_517b, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x786f_4256, "a folder shared by VirtualBox"),
    (0xbacb_acbc, "a folder shared by VMware"),
    (0x0000_564c, "NCP"),
];

/// Whether the file at `path` is mounted there alone, where the kernel tells (Linux 5.8).
fn is_mounted(path: &Path) -> bool {
    let looked = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    looked.is_ok_and(|stat| {
        let root = StatxAttributes::MOUNT_ROOT;
        stat.stx_attributes_mask.contains(root) && stat.stx_attributes.contains(root)
    })
}

/// The error of [`FileId::at`]: there is nothing at `path`, which is canonical.
pub(crate) fn not_created(path: &Path, error: &io::Error) -> Error {
    let remedy = match remedy_of(error) {
        "" => "; see its permissions, or choose another directory",
        known => known,
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    let message =
        format!("{} cannot be created in {}: {error}{remedy}", path.display(), directory.display());
    Error::new(ErrorKind::Storage, message)
}

/// The error of a system call for the database at `path`.
pub(crate) fn io_error(path: &Path, error: &io::Error) -> Error {
    let message = format!("{} cannot be opened: {error}{}", path.display(), remedy_of(error));
    Error::new(ErrorKind::Storage, message)
}
