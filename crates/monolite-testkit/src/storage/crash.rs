//! What a power cut leaves: a moment of a disk, and the files that might be found afterwards.
//!
//! # Algorithm
//! A file's content is the durable bytes and, for each sector, any one of the states that this
//! sector went through since: the disk may have written any of them, and in any order. Its size is
//! any of the sizes that the file had since. A name leads to any of the files that it led to since
//! the directory was synced, or to none if it was not there for a while.
//!
//! Random choice alone would rarely leave what one bug needs, so there are several ways to choose
//! ([`Left`]): from nothing, over a prefix with a torn end, to all but a few sectors.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use fastrand::Rng;

use super::content::Content;
use super::inode::{Inode, SECTOR, What, pieces};

/// How many names a database has: its own, its WAL's, its journal's.
pub(super) const NAMES: usize = 3;

const SUFFIXES: [&str; NAMES] = ["", "-wal", "-journal"];

/// What is left of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// All of it: the process died and not the machine.
    Everything,
    /// The first so many changes, the last of them torn.
    Prefix,
    /// Each write whole or not at all.
    Writes,
    /// Each sector with this chance in 16.
    Sectors(u8),
}

impl Left {
    /// One of the ways, each about as likely as any other.
    pub fn random(rng: &mut Rng) -> Left {
        let ways = [
            Left::Nothing,
            Left::Everything,
            Left::Prefix,
            Left::Prefix,
            Left::Writes,
            Left::Sectors(1),
            Left::Sectors(8),
            Left::Sectors(15),
        ];
        ways[rng.usize(..ways.len())]
    }
}

/// A moment of a disk: everything that a power cut then could leave.
#[derive(Clone, Debug)]
pub struct Crash {
    pub(super) inodes: BTreeMap<u64, Inode>,
    /// For each name, what it led to since the directory was synced, the latest last.
    pub(super) names: [Vec<Option<u64>>; NAMES],
}

impl Crash {
    /// The files that are found after the power cut.
    pub fn image(&self, left: Left, rng: &mut Rng) -> Image {
        let content = |entries: &Vec<Option<u64>>, rng: &mut Rng| {
            let entry = match left {
                Left::Nothing => entries.first(),
                Left::Everything => entries.last(),
                _ => entries.get(rng.usize(..entries.len().max(1))),
            };
            let inode = entry.copied().flatten().and_then(|inode| self.inodes.get(&inode));
            inode.map(|inode| surviving(inode, left, rng))
        };
        Image { files: std::array::from_fn(|name| content(&self.names[name], rng)) }
    }

    /// How many changes are not durable.
    pub fn pending(&self) -> usize {
        self.inodes.values().map(|inode| inode.pending.len()).sum()
    }
}

/// Of each sector, the last change that reached the disk; and of the changes of size, whether they
/// did.
struct Chosen {
    last: HashMap<usize, usize>,
    resized: Vec<bool>,
}

fn choose(inode: &Inode, left: Left, rng: &mut Rng) -> Chosen {
    let count = inode.pending.len();
    let whole = rng.usize(..=count);
    let mut chosen = Chosen { last: HashMap::new(), resized: vec![false; count] };
    for (index, change) in inode.pending.iter().enumerate() {
        let all = match left {
            Left::Nothing => Some(false),
            Left::Everything => Some(true),
            Left::Prefix => (index != whole).then_some(index < whole),
            Left::Writes => Some(rng.bool()),
            Left::Sectors(_) => None,
        };
        let What::Write { at, data } = &change.what else {
            chosen.resized[index] = all.unwrap_or_else(|| rng.bool());
            continue;
        };
        let torn_at = at + rng.usize(..=data.len());
        for (sector, place, _) in pieces(*at, data) {
            let survives = all.unwrap_or_else(|| match left {
                Left::Sectors(chance) => rng.u8(..16) < chance,
                _ => place < torn_at,
            });
            if survives {
                chosen.last.insert(sector, index);
            }
        }
    }
    chosen
}

fn surviving(inode: &Inode, left: Left, rng: &mut Rng) -> Content {
    let Chosen { last, resized } = choose(inode, left, rng);
    let mut bytes = inode.durable.clone();
    let mut size = bytes.len();
    let mut sizes = vec![size];
    for (index, change) in inode.pending.iter().enumerate() {
        let is_there = |sector: &usize| last.get(sector).is_some_and(|last| *last >= index);
        match &change.what {
            What::Write { at, data } => {
                size = size.max(at + data.len());
                for (sector, at, piece) in pieces(*at, data) {
                    if is_there(&sector) {
                        bytes.write(at, piece);
                    }
                }
            }
            What::Size(new) => {
                size = *new;
                cut(&mut bytes, *new, |sector| resized[index] || is_there(&sector));
            }
        }
        sizes.push(size);
    }
    match left {
        Left::Nothing => {}
        Left::Everything => bytes.resize(size),
        _ if rng.bool() => bytes.resize(sizes[rng.usize(..sizes.len())]),
        _ => {}
    }
    bytes
}

/// Cuts or extends `bytes` to `size`: what is beyond is zero in the sectors that `reached` names,
/// and the file is shorter if that holds for all of them.
fn cut(bytes: &mut Content, size: usize, reached: impl Fn(usize) -> bool) {
    let mut is_whole = true;
    for sector in size / SECTOR..bytes.len().div_ceil(SECTOR) {
        if reached(sector) {
            let from = (sector * SECTOR).max(size);
            let to = ((sector + 1) * SECTOR).min(bytes.len());
            bytes.clear(from..to);
        } else {
            is_whole = false;
        }
    }
    if is_whole {
        bytes.resize(size);
    }
}

/// The files of a database after a power cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    files: [Option<Content>; NAMES],
}

impl Image {
    /// Writes the files to `path` and its companions, and removes what else is there under these
    /// names.
    pub fn write_to(&self, path: &Path) -> io::Result<()> {
        self.write_over(None, path)
    }

    /// As [`Image::write_to`]; `before` is what is there, if that is known.
    fn write_over(&self, before: Option<&Image>, path: &Path) -> io::Result<()> {
        remove_one(&beside(path, "-shm"))?;
        for (name, (content, suffix)) in self.files.iter().zip(SUFFIXES).enumerate() {
            let path = beside(path, suffix);
            let Some(content) = content else {
                remove_one(&path)?;
                continue;
            };
            // In place: on a file system in memory new pages cost more than what is written.
            let file = File::options().write(true).create(true).truncate(false).open(path)?;
            let len = file.metadata()?.len();
            let before = before.and_then(|before| before.files[name].as_ref());
            // SQLite deletes the WAL of an empty database.
            content.write_to(&file, before.filter(|before| before.len() as u64 == len))?;
        }
        Ok(())
    }

    /// Reads the files of a database that nobody has open.
    pub fn read_from(path: &Path) -> io::Result<Image> {
        let mut files = [None, None, None];
        for (content, suffix) in files.iter_mut().zip(SUFFIXES) {
            *content = match std::fs::read(beside(path, suffix)) {
                Ok(bytes) => Some(bytes.into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        Ok(Image { files })
    }

    pub(super) fn into_files(self) -> [Option<Content>; NAMES] {
        self.files
    }
}

/// Where images are put one after another to be looked at: only what differs is written.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    holds: Option<Image>,
}

impl Place {
    /// Images will be put at `path` and its companions.
    pub fn new(path: PathBuf) -> Place {
        Place { path, holds: None }
    }

    /// Puts `image` here in place of what is here, and returns the path of its database. Whoever
    /// opens it changes nothing in its files.
    pub fn put(&mut self, image: &Image) -> io::Result<&Path> {
        let before = self.holds.take();
        image.write_over(before.as_ref(), &self.path)?;
        // SQLite makes the WAL that is missing, and rolls a journal back.
        if let [Some(_), Some(_), None] = &image.files {
            self.holds = Some(image.clone());
        }
        Ok(&self.path)
    }

    /// As [`Place::put`], for those who change the files.
    pub fn give(&mut self, image: &Image) -> io::Result<&Path> {
        self.put(image)?;
        self.holds = None;
        Ok(&self.path)
    }
}

/// Removes a database with its companions, as far as they are there.
pub fn remove(path: &Path) -> io::Result<()> {
    SUFFIXES.iter().chain(&["-shm"]).try_for_each(|suffix| remove_one(&beside(path, suffix)))
}

fn remove_one(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The name of the WAL of the database at `path`.
pub fn wal_beside(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
