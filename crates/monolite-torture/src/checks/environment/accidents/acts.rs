//! What happens to files, and what is done about it: each as one function that a row names.
//!
//! Nothing here opens a database file in this process; see [`command`].

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use monolite_testkit::storage::wal_beside;

use super::scene::{CannotBe, Place, command};

/// The size of a page, as SQLite has it unless it is told otherwise.
const PAGE: u64 = 4_096;
const WAL_HEADER: u64 = 32;
const FRAME: u64 = 24 + PAGE;

/// What the name of a WAL ends with that has lost its database.
const KEPT_WAL: &str = "-wal-of-lost-file-1";

/// To which file something happens.
type Which = fn(&Place) -> PathBuf;

fn database(place: &Place) -> PathBuf {
    place.path.clone()
}

fn moved(file: &Path) -> PathBuf {
    file.with_extension("moved")
}

fn delete(file: &Path) -> Result<()> {
    fs::remove_file(file).with_context(|| format!("cannot delete {}", file.display()))
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot rename {}", from.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    command(&[OsStr::new("cp"), from.as_os_str(), to.as_os_str()])
}

fn replace(file: &Path) -> Result<()> {
    let other = file.with_extension("other");
    copy(file, &other)?;
    rename(&other, file)
}

fn link_away(place: &Place, file: &Path) -> Result<()> {
    let large = place.home.join("large");
    fs::create_dir_all(&large)?;
    let target = large.join(file.file_name().context("a file has a name")?);
    // In one step, so that nobody looks while nothing is there.
    let link = file.with_extension("link");
    fs::hard_link(file, &target)?;
    symlink(target, &link)?;
    rename(&link, file)
}

fn cut(file: &Path, size: u64) -> Result<()> {
    let size = size.to_string();
    command(&[OsStr::new("truncate"), OsStr::new("-s"), OsStr::new(&size), file.as_os_str()])
}

fn cut_in_half(file: &Path) -> Result<()> {
    cut(file, fs::metadata(file)?.len() / 2)
}

/// Writes over `count` bytes at `at`, with what begins no page.
fn write_over(file: &Path, at: u64, count: u64) -> Result<()> {
    let script = r#"head -c "$3" /dev/zero | tr '\0' '\377' |
        dd of="$1" bs=1 seek="$2" conv=notrunc status=none"#;
    let (at, count) = (at.to_string(), count.to_string());
    let words = ["sh", "-c", script, "sh"].map(OsStr::new);
    let arguments = [file.as_os_str(), OsStr::new(&at), OsStr::new(&count)];
    command(&[&words[..], &arguments].concat())
}

/// Nobody can write to it, root neither.
fn freeze(file: &Path) -> Result<()> {
    let frozen = command(&[OsStr::new("chattr"), OsStr::new("+i"), file.as_os_str()]);
    frozen.map_err(|error| CannotBe(format!("{error:#} (needs root, and ext4 or xfs)")).into())
}

fn thaw(file: &Path) -> Result<()> {
    command(&[OsStr::new("chattr"), OsStr::new("-i"), file.as_os_str()])
}

fn forbid(file: &Path) -> Result<()> {
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o000))?)
}

/// Defines an act on a file for each of several files.
macro_rules! acts {
    ($($name:ident: $which:expr, $act:expr;)*) => {
        $(pub(super) fn $name(place: &Place) -> Result<()> {
            let (which, act): (Which, fn(&Path) -> Result<()>) = ($which, $act);
            act(&which(place))
        })*
    };
}

acts! {
    delete_database: database, delete;
    replace_database: database, replace;
    empty_database: database, |file| cut(file, 0);
    cut_database_to_a_byte: database, |file| cut(file, 1);
    cut_database: database, cut_in_half;
    write_over_page: database, |file| write_over(file, PAGE, PAGE);
    write_over_pages: database, |file| write_over(file, 10 * PAGE, 20 * PAGE);
    write_over_header: database, |file| write_over(file, 0, 64);
    freeze_database: database, freeze;
    forbid_database: database, forbid;
    delete_wal: Place::wal, delete;
    replace_wal: Place::wal, replace;
    empty_wal: Place::wal, |file| cut(file, 0);
    cut_wal_to_a_byte: Place::wal, |file| cut(file, 1);
    cut_wal: Place::wal, cut_in_half;
    write_over_wal_header: Place::wal, |file| write_over(file, 0, WAL_HEADER);
    write_over_frame: Place::wal, |file| write_over(file, WAL_HEADER + 2 * FRAME + 24, PAGE);
    write_over_last_frame: Place::wal, |file| {
        // Zeros may follow that are no frame.
        let last = fs::read(file)?.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
        let frames = last.saturating_sub(WAL_HEADER).div_ceil(FRAME);
        write_over(file, WAL_HEADER + frames * FRAME - PAGE, PAGE)
    };
    freeze_wal: Place::wal, freeze;
    forbid_wal: Place::wal, forbid;
    delete_shm: Place::shm, delete;
    empty_shm: Place::shm, |file| cut(file, 0);
    freeze_home: |place| place.home.clone(), freeze;
}

pub(super) fn rename_database(place: &Place) -> Result<()> {
    rename(&place.path, &moved(&place.path))
}

/// With all that is beside it.
pub(super) fn rename_all(place: &Place) -> Result<()> {
    let other = moved(&place.path);
    rename(&place.path, &other)?;
    // The engine may have noticed the first step, and put the WAL aside.
    let kept = place.beside(KEPT_WAL);
    let wal = wal_beside(&other);
    rename(&place.wal(), &wal).or_else(|_| rename(&kept, &wal))
}

pub(super) fn rename_wal(place: &Place) -> Result<()> {
    rename(&place.wal(), &place.beside("-moved"))
}

pub(super) fn link_database_away(place: &Place) -> Result<()> {
    link_away(place, &place.path)
}

pub(super) fn link_wal_away(place: &Place) -> Result<()> {
    link_away(place, &place.wal())
}

pub(super) fn dangling_link(place: &Place) -> Result<()> {
    rename(&place.path, &moved(&place.path))?;
    Ok(symlink(place.home.join("nowhere"), &place.path)?)
}

pub(super) fn hard_link(place: &Place) -> Result<()> {
    Ok(fs::hard_link(&place.path, place.beside("-link"))?)
}

pub(super) fn hard_link_wal(place: &Place) -> Result<()> {
    Ok(fs::hard_link(place.wal(), place.beside("-link"))?)
}

pub(super) fn soft_link(place: &Place) -> Result<()> {
    Ok(symlink(&place.path, place.beside("-link"))?)
}

pub(super) fn directory_for_wal(place: &Place) -> Result<()> {
    Ok(fs::create_dir(place.wal())?)
}

pub(super) fn letter_for_database(place: &Place) -> Result<()> {
    rename(&place.path, &moved(&place.path))?;
    Ok(fs::write(&place.path, "this is a letter, not a database. ".repeat(400))?)
}

pub(super) fn backup_over_it(place: &Place) -> Result<()> {
    copy(&place.backup(), &place.path)
}

pub(super) fn backup_in_its_place(place: &Place) -> Result<()> {
    let other = place.beside("-restored");
    copy(&place.backup(), &other)?;
    rename(&other, &place.path)
}

pub(super) fn copy_alone(place: &Place) -> Result<()> {
    copy(&place.path, &place.beside("-copy"))
}

pub(super) fn copy_with_wal(place: &Place) -> Result<()> {
    copy_alone(place)?;
    copy(&place.wal(), &place.beside("-copy-wal"))
}

/// Another one takes its place: the backup, in a directory of the old name.
pub(super) fn exchange_home(place: &Place) -> Result<()> {
    let other = place.home.with_extension("other");
    fs::create_dir(&other)?;
    copy(&place.backup(), &other.join("db"))?;
    rename_home(place)?;
    rename(&other, &place.home)
}

pub(super) fn link_home(place: &Place) -> Result<()> {
    let link = place.home.with_extension("link");
    symlink(moved(&place.home), &link)?;
    rename_home(place)?;
    rename(&link, &place.home)
}

pub(super) fn rename_home(place: &Place) -> Result<()> {
    rename(&place.home, &moved(&place.home))
}

pub(super) fn remove_home(place: &Place) -> Result<()> {
    // The engine may create a file in it meanwhile.
    let removed = || fs::remove_dir_all(&place.home);
    let again = |error: io::Error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty => removed(),
        _ => Err(error),
    };
    Ok(removed().or_else(again)?)
}

/// Puts the database back, and the WAL that was kept of it.
pub(super) fn put_back(place: &Place) -> Result<PathBuf> {
    let other = moved(&place.path);
    if other.exists() {
        rename(&other, &place.path)?;
    }
    kept_wal_back(place)
}

/// The same for what has a link in its place.
pub(super) fn put_back_from_link(place: &Place) -> Result<PathBuf> {
    rename(&place.home.join("large/db"), &place.path)?;
    kept_wal_back(place)
}

fn kept_wal_back(place: &Place) -> Result<PathBuf> {
    let kept = place.beside(KEPT_WAL);
    if kept.exists() {
        rename(&kept, &place.wal())?;
    }
    Ok(place.path.clone())
}

pub(super) fn wal_back_from_link(place: &Place) -> Result<PathBuf> {
    let away = place.home.join("large/db-wal");
    if away.exists() {
        rename(&away, &place.wal())?;
    }
    Ok(place.path.clone())
}

pub(super) fn use_moved(place: &Place) -> Result<PathBuf> {
    Ok(moved(&place.path))
}

pub(super) fn use_copy(place: &Place) -> Result<PathBuf> {
    Ok(place.beside("-copy"))
}

pub(super) fn use_moved_home(place: &Place) -> Result<PathBuf> {
    Ok(moved(&place.home).join("db"))
}

pub(super) fn thaw_all(place: &Place) -> Result<PathBuf> {
    for file in [&place.home, &place.path, &place.wal()] {
        if file.exists() {
            thaw(file)?;
        }
    }
    Ok(place.path.clone())
}

pub(super) fn remove_wal_directory(place: &Place) -> Result<PathBuf> {
    fs::remove_dir(place.wal())?;
    Ok(place.path.clone())
}

pub(super) fn remove_link(place: &Place) -> Result<PathBuf> {
    delete(&place.beside("-link"))?;
    Ok(place.path.clone())
}

pub(super) fn remove_what_is_there(place: &Place) -> Result<PathBuf> {
    delete(&place.path)?;
    put_back(place)
}

/// Another process copies what this one still has open, as `cp /proc/PID/fd/N` does.
pub(super) fn save_what_is_open(place: &Place) -> Result<PathBuf> {
    let saved = place.home.with_extension("saved");
    fs::create_dir_all(&saved)?;
    let database = saved.join("db");
    for (name, to) in [("db", &database), ("db-wal", &wal_beside(&database))] {
        let descriptor = descriptor_of(place, name)?;
        copy(&descriptor, to)?;
    }
    Ok(database)
}

/// Under which name another process reads a file that this one has open and that may be deleted.
fn descriptor_of(place: &Place, name: &str) -> Result<PathBuf> {
    let descriptors = PathBuf::from(format!("/proc/{}/fd", std::process::id()));
    let is_it = |target: &Path| {
        let text = target.to_string_lossy();
        let text = text.strip_suffix(" (deleted)").unwrap_or(&text);
        let Some(file) = Path::new(text).file_name().and_then(OsStr::to_str) else { return false };
        let is_named = file == name || name == "db-wal" && file.starts_with("db-wal-of-lost");
        is_named && Path::new(text).parent() == Some(&*place.home)
    };
    let mut found = None;
    for entry in fs::read_dir(descriptors)? {
        let entry = entry?.path();
        let Ok(target) = fs::read_link(&entry) else { continue };
        let is_deleted = target.to_string_lossy().ends_with(" (deleted)");
        if is_it(&target) && (is_deleted || found.is_none()) {
            found = Some(entry);
        }
    }
    match found {
        Some(found) => Ok(found),
        None => bail!("{name} is not open"),
    }
}
