//! A descriptor whose end takes SQLite's locks away, so that another process uses the file, and an
//! SQLite that is too old.
//!
//! # What is true of the lost locks
//! POSIX locks belong to the process: closing any descriptor of a file drops all that SQLite holds
//! on it. When the database's are gone, another process takes itself for the only one, and as the
//! last to close it copies the WAL and deletes it, while this process goes on to commit into it.
//! What saves the data is a lock on the `-shm` file, which the other asks for as well: SQLite's own
//! with `Sharing::Shared`, the engine's with `Exclusive`. The control drops that, too.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use monolite::rusqlite::Connection;
use monolite::{Options, Sharing};
use monolite_testkit::child::{say, variable};
use monolite_testkit::markers;

use super::Case;
use super::load::{Came, under_load};
use crate::checks::writing::{Look, judge};
use crate::checks::wrong::Wrong;

/// How often the loss is tried to be shown before the control counts as unnoticed.
const TRIES: u32 = 60;

/// The role of stock SQLite, which opens the file, looks at it, and closes it.
pub(super) fn use_plain_sqlite() -> Result<()> {
    say("");
    let path: PathBuf = variable("FILE")?;
    let looked = Connection::open(&path).and_then(|connection| {
        connection.busy_timeout(Duration::ZERO)?;
        connection.query_row("SELECT count(*) FROM whole", [], |row| row.get::<_, i64>(0))
    });
    match looked {
        Ok(count) => say(&format!("saw {count}")),
        Err(error) => say(&format!("refused {error}")),
    }
    Ok(())
}

/// What stock SQLite in another process says of the file.
fn have_visited(case: &Case<'_>, path: &Path) -> Result<String> {
    let file = path.to_str().context("the path is text")?;
    let mut child = case.setting.program.spawn("environment plain SQLite", &[("FILE", file)])?;
    let mut told = String::new();
    while let Some(line) = child.next_line() {
        if line.starts_with("saw ") || line.starts_with("refused ") {
            told = line;
        }
    }
    Ok(told)
}

/// What came of a load during which a second descriptor was closed and stock SQLite came by.
struct Robbed {
    came: Came,
    wrong: Option<Wrong>,
    neighbour: String,
}

/// Opens and closes the database file and what is named by these endings, under load.
fn rob(case: &Case<'_>, sharing: Sharing, endings: &[&str], number: u32) -> Result<Robbed> {
    let name = format!("{sharing:?}-{}-{number}", endings.len());
    let path = case.directory().join(name);
    let file = path.to_str().context("the path is text")?.to_owned();
    let db = Options::new().sharing(sharing).open(&path)?;
    markers::create(&db)?;
    let mut neighbour = String::new();
    let came = under_load(&db, 1, 500, 200, |load| {
        for ending in endings {
            drop(File::open(format!("{file}{ending}"))?);
        }
        load.await_more(100);
        neighbour = have_visited(case, &path)?;
        Ok(())
    })?;
    // Closing fails when the engine noticed; what counts is what is left for the next opening.
    let _ = db.close();
    drop(db);
    let wrong = judge(&path, &came.acknowledged, Look::Thorough, true).err();
    Ok(Robbed { came, wrong, neighbour })
}

impl Robbed {
    fn told(&self) -> String {
        let (wrong, neighbour, refusals) = (&self.wrong, &self.neighbour, &self.came.refusals);
        format!("{wrong:?}, the neighbour {neighbour}, refusals {refusals:?}")
    }
}

/// The database's own locks are lost, in either mode: nothing else is.
pub(super) fn second_descriptor(case: &mut Case<'_>) -> Result<()> {
    for (sharing, tries) in [(Sharing::Shared, 5), (Sharing::Exclusive, 1)] {
        for number in 0..tries {
            case.tried += 1;
            let robbed = rob(case, sharing, &[""], number)?;
            case.acknowledged += robbed.came.acknowledged.len() as u64;
            case.lost += u64::from(matches!(robbed.wrong, Some(Wrong::Lost(..))));
            case.partial += u64::from(matches!(robbed.wrong, Some(Wrong::Partial(_))));
            let goes_on = robbed.came.goes_on && robbed.came.refusals.is_empty();
            case.expect(goes_on && robbed.wrong.is_none(), || {
                format!("{sharing:?}: {}", robbed.told())
            });
        }
    }
    // SQLite itself tries for ten seconds before it gives up on a lock that it cannot explain, so
    // the exclusive mode is tried once.
    case.note("harmless: the lock on the -shm file keeps the other process from the WAL");
    control(case)
}

/// With the lock on the `-shm` file gone as well, data must be lost.
fn control(case: &mut Case<'_>) -> Result<()> {
    let name = "descriptors of the database and of its -shm file, closed, lose data";
    let mut last = String::new();
    for number in 0..TRIES {
        case.tried += 1;
        let robbed = rob(case, Sharing::Exclusive, &["", "-shm"], number)?;
        last = robbed.told();
        if robbed.wrong.is_some() {
            case.controls.push((name, true, format!("at try {}: {last}", number + 1)));
            return Ok(());
        }
    }
    case.controls.push((name, false, format!("{TRIES} tries; the last: {last}")));
    Ok(())
}

/// Versions with the WAL-reset bug are refused; ours is none.
pub(super) fn old_sqlite(case: &mut Case<'_>) -> Result<()> {
    for (number, name, is_good) in [
        (3_007_000, "3.7.0", false),
        (3_040_001, "3.40.1", false),
        (3_051_002, "3.51.2", false),
        (3_051_003, "3.51.3", true),
    ] {
        case.tried += 1;
        let accepted = monolite_sqlite::accept(number, name).is_ok();
        case.expect(accepted == is_good, || format!("{name}: accepted is {accepted}"));
    }
    let linked = monolite::rusqlite::version();
    let is_good = monolite::rusqlite::version_number() >= monolite_sqlite::MIN_VERSION;
    case.expect(is_good, || format!("{linked} is linked"));
    case.note(format!("{linked} is linked; 3.51.2 and older are refused"));
    Ok(())
}
