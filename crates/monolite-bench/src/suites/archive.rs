//! `bench archive`: what an archive costs those who write, how long they wait for it, and how fast
//! it is restored.
//!
//! The store is a directory on the same disk, so its writes take the disk's time from the others,
//! or the bucket that is named. One that is to answer after some milliseconds is the same, and
//! rests for what is left of them when its work is done.

mod place;
mod restoring;
mod store;

use self::place::{Opened, PATIENCE, Place, accounts, forget, transfer};
use super::shift::{Crew, Shift};
use super::stage::Play;
use super::{Bundle, Entry, Ground, Turn};
use crate::drivers::Round;
use crate::report::record::Section;
use anyhow::{Context, Result, ensure};
use monolite::Durability;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The suite. It is no part of `bench all`.
#[derive(Debug, Default)]
pub struct Archives {
    /// An address below which no other program writes.
    bucket: Option<String>,
    /// The addresses in it that were given out.
    given: Mutex<BTreeSet<String>>,
}

impl Archives {
    /// With its archives in the bucket at an address, as `s3://bucket/prefix?region=…`, until
    /// [`Archives::remove`]; in directories beside the databases if there is none.
    pub fn new(bucket: Option<&str>) -> Result<Archives> {
        let Some(bucket) = bucket else { return Ok(Archives::default()) };
        ensure!(bucket.contains("://"), "{bucket:?} is no bucket, as s3://bucket/prefix is");
        let bucket = below(bucket, &format!("monolite-bench-{:016x}", fastrand::u64(..)));
        monolite_archive::Archive::at(&bucket)?;
        Ok(Archives { bucket: Some(bucket), given: Mutex::default() })
    }

    /// Deletes what the run has left in the bucket.
    pub fn remove(self) -> Result<()> {
        let given = self.given.into_inner().unwrap_or_else(PoisonError::into_inner);
        given.iter().try_for_each(|address| {
            forget(address).context("cannot delete an archive of this run from the bucket")
        })
    }

    /// The address of the archive of a candidate.
    fn address(&self, ground: &Ground<'_>, name: &str) -> String {
        match &self.bucket {
            Some(bucket) => {
                let address = below(bucket, name);
                let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
                given.insert(address.clone());
                address
            }
            None => ground.dir.join(format!("{name}.archive")).display().to_string(),
        }
    }
}

/// What has this name below an address.
fn below(address: &str, name: &str) -> String {
    let (place, query) = address.split_once('?').unwrap_or((address, ""));
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{}/{name}{mark}{query}", place.trim_end_matches('/'))
}

impl Play for Archives {
    fn name(&self) -> &'static str {
        "archive"
    }

    fn prepare(&self, ground: &Ground<'_>) -> Result<Vec<String>> {
        Ok(vec![
            format!("{} accounts; a transaction adds to one and to another", rows(ground)),
            format!("each archive is {}", self.kind()),
        ])
    }

    fn sections(&self, ground: &Ground<'_>) -> Vec<Bundle> {
        vec![self.bursts(ground), self.closed(ground), self.copies(ground), self.restores(ground)]
    }
}

/// Threads that write in bursts, and how many of each one's writes are under way.
const BURST: (usize, usize) = (4, 2_000);

/// Clients that wait for each of their writes.
const CLIENTS: usize = 128;

/// After how many milliseconds a store answers each request.
const ANSWERS: [u64; 4] = [0, 1, 10, 50];

/// Time between two looks at whether a copy is made.
const LOOK: Duration = Duration::from_millis(5);

/// How many bytes of text a row has in a database that is copied or restored.
const TEXT: u32 = 100;

fn rows(ground: &Ground<'_>) -> u64 {
    ground.options.rows.unwrap_or(ground.options.depth.pick(50_000, 500_000, 10_000_000))
}

const CHECK: &str = "each acknowledged transaction is in the database once, and what is restored \
                     of the archive is what the database has";

impl Archives {
    /// What an archive is in.
    fn kind(&self) -> String {
        match &self.bucket {
            Some(bucket) => match bucket.split_once("://") {
                Some(("file", _)) | None => "a directory that was named".into(),
                Some((kind, _)) => format!("a bucket ({kind})"),
            },
            None => "a directory on the disk that is measured".into(),
        }
    }

    /// A place of its own; `rest` is how many milliseconds its store takes.
    fn place(
        &self,
        ground: &Ground<'_>,
        name: &str,
        rest: Option<u64>,
        durability: Durability,
    ) -> Place {
        Place {
            database: ground.dir.join(format!("{name}.db")),
            archive: self.address(ground, name),
            rows: rows(ground),
            text: 0,
            rest: rest.map(Duration::from_millis),
            durability,
        }
    }

    fn bursts(&self, ground: &Ground<'_>) -> Bundle {
        let mut entries = Vec::new();
        for (line, name, rest) in [
            ("without", "monolite, no archive".into(), None),
            ("archived", format!("monolite, and an archive: {}", self.kind()), Some(0)),
        ] {
            let place = self.place(ground, &format!("burst-{line}"), rest, Durability::Synced);
            entries.push(Entry::new(line, name, BURST.0, move |turn| burst(&place, turn)));
        }
        let section = Section::new(
            "archive/burst",
            "Bursts, with and without an archive",
            "What an archive takes of the processor and the disk from those who do not wait for it",
            ["threads", "transactions"],
        );
        Bundle { section, check: CHECK, entries }
    }

    fn closed(&self, ground: &Ground<'_>) -> Bundle {
        let mut entries = Vec::new();
        for rest in ANSWERS {
            for (line, durability) in
                [("synced", Durability::Synced), ("archived", Durability::Archived)]
            {
                let place =
                    self.place(ground, &format!("closed-{line}-{rest}"), Some(rest), durability);
                let name = format!("monolite, {durability:?}");
                entries.push(Entry::new(line, name, rest, move |turn| wait_each(&place, turn)));
            }
        }
        let section = Section::new(
            "archive/closed",
            "128 clients that wait for each answer, by the time that the store takes",
            "An answer of `Archived` waits for one request of the store, which all share that wait \
         meanwhile",
            ["ms a request", "transactions"],
        );
        Bundle { section, check: CHECK, entries }
    }

    fn copies(&self, ground: &Ground<'_>) -> Bundle {
        let mut entries = Vec::new();
        let took = Rc::<Cell<Option<Duration>>>::default();
        for (line, name, rest) in [
            ("without", "monolite, no archive", None),
            ("copied", "monolite, while it is copied to a new archive", Some(0)),
        ] {
            let place = self.place(ground, &format!("copy-{line}"), rest, Durability::Synced);
            let place = Place { text: TEXT, ..place };
            let took = Rc::clone(&took);
            let trial = move |turn: &Turn<'_>| burst_beside_copy(&place, turn, &took);
            entries.push(Entry::new(line, name, BURST.0, trial));
        }
        let place = self.place(ground, "copy-before", Some(0), Durability::Synced);
        let place = Place { text: TEXT, ..place };
        let trial = move |turn: &Turn<'_>| {
            burst(&place, &Turn { length: took.get().unwrap_or(turn.length), ..*turn })
        };
        entries.push(Entry::new("before", "monolite, copied before", BURST.0, trial));
        let section = Section::new(
            "archive/copy",
            "Bursts while the first copy of the database is made",
            "How much the copy leaves to those who write, until it is in the archive; beside none, \
             and with a copy that is there already, they write for as long as the copy before took",
            ["threads", "transactions"],
        );
        Bundle { section, check: CHECK, entries }
    }

    fn restores(&self, ground: &Ground<'_>) -> Bundle {
        let place =
            Place { text: TEXT, ..self.place(ground, "restore", Some(0), Durability::Synced) };
        let megabytes = rows(ground) * u64::from(TEXT + 20) / 1_000_000;
        let mut entries = Vec::new();
        type Of = fn(&Place) -> Result<Round>;
        for (line, name, trial) in [
            ("restore", "monolite restore", restoring::whole as Of),
            ("client", "the store's client alone", restoring::client),
            ("disk", "the disk alone", restoring::disk),
        ] {
            let place = place.clone();
            entries.push(Entry::new(line, name, megabytes, move |_| trial(&place)));
        }
        let section = Section::new(
            "archive/restore",
            "The restore of a database, and what bounds it",
            "The client reads the archive's files and drops them; the disk writes and syncs as \
             many bytes as the database has; all figures are of the database's bytes",
            ["MB", "megabytes"],
        );
        Bundle { section, check: "what is restored is the database, byte for byte", entries }
    }
}

fn burst(place: &Place, turn: &Turn<'_>) -> Result<Round> {
    let opened = place.open()?;
    let round = opened.noting(|| writes(place, &opened, turn, &|| true))?;
    // Those that were waited for after the time count for the balances alone.
    place.close(opened, round.operations + round.retries)?;
    Ok(Round { retries: 0, ..round })
}

/// Writes in bursts for the time of the round, and while `goes_on` says so.
fn writes(
    place: &Place,
    opened: &Opened,
    turn: &Turn<'_>,
    goes_on: &(dyn Fn() -> bool + Sync),
) -> Result<Round> {
    Crew { threads: BURST.0, sample: 1, turn }.work(|number, shift| {
        let mut random = turn.random(number);
        let mut under_way = VecDeque::new();
        shift.begin();
        while shift.goes_on() {
            if !goes_on() {
                shift.give_up();
                break;
            }
            while under_way.len() < BURST.1 {
                let (from, to) = accounts(&mut random, place.rows);
                under_way.push_back((Instant::now(), transfer(&opened.db, from, to)));
            }
            if let Some((submitted, oldest)) = under_way.pop_front() {
                oldest.wait()?;
                shift.acknowledged_since(submitted);
            }
        }
        end(under_way.into_iter().map(|(_, write)| write), shift)
    })
}

fn end(
    rest: impl Iterator<Item = monolite::Write<(), monolite::Error>>,
    shift: &mut Shift<'_>,
) -> Result<()> {
    for write in rest {
        write.wait()?;
        shift.repeated();
    }
    Ok(())
}

/// Makes the database, or leaves nothing of an earlier round but that: neither an archive nor what
/// it has beside the database.
fn begin_anew(place: &Place) -> Result<()> {
    if !place.database.exists() {
        return Ok(Place { rest: None, ..place.clone() }.begin(None)?.db.close()?);
    }
    forget(&place.archive)?;
    let mut beside = place.database.clone().into_os_string();
    beside.push("-archive");
    match std::fs::remove_dir_all(&beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// A burst into a database that is not in its archive yet, until it is, which it notes; without an
/// archive, for as long as that took.
fn burst_beside_copy(
    place: &Place,
    turn: &Turn<'_>,
    took_last: &Cell<Option<Duration>>,
) -> Result<Round> {
    begin_anew(place)?;
    let opened = place.begin(Some(Duration::ZERO))?;
    let is_copied = || opened.db.stats().archive.is_some_and(|it| it.is_restorable);
    let (begin, is_over) = (Instant::now(), OnceLock::new());
    let turn = match place.rest {
        Some(_) => Turn { length: PATIENCE, ..*turn },
        None => Turn { length: took_last.get().unwrap_or(turn.length), ..*turn },
    };
    let written = AtomicBool::new(false);
    let round = opened.noting(|| {
        std::thread::scope(|scope| {
            // Not by those who write: figures are not for nothing.
            scope.spawn(|| {
                while !is_copied() && !written.load(Ordering::Relaxed) {
                    std::thread::sleep(LOOK);
                }
                if is_copied() {
                    is_over.get_or_init(|| begin.elapsed());
                }
            });
            let round = writes(place, &opened, &turn, &|| is_over.get().is_none());
            written.store(true, Ordering::Relaxed);
            round
        })
    })?;
    let stats = opened.db.stats();
    let note = is_over.get().map(|took| {
        took_last.set(Some(*took));
        let megabytes = std::fs::metadata(&place.database).map_or(0, |it| it.len()) as f64 / 1e6;
        let wal = stats.wal_bytes_max as f64 / 1e6;
        format!(
            "{megabytes:.0} MB were copied in {:.1} s; the WAL was at most {wal:.1} MB long",
            took.as_secs_f64()
        )
    });
    ensure!(place.rest.is_none() || note.is_some(), "the copy took too long");
    place.close(opened, round.operations + round.retries)?;
    Ok(Round { retries: 0, note: note.or(round.note), ..round })
}

fn wait_each(place: &Place, turn: &Turn<'_>) -> Result<Round> {
    let opened = place.open()?;
    let round = opened.noting(|| {
        Crew { threads: CLIENTS, sample: 1, turn }.work(|number, shift| {
            let mut random = turn.random(number);
            shift.repeat(|| {
                let (from, to) = accounts(&mut random, place.rows);
                Ok(transfer(&opened.db, from, to).wait()?)
            })
        })
    })?;
    place.close(opened, round.operations)?;
    Ok(round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_works_a_round() {
        let directory = tempfile::tempdir().unwrap();
        let interrupt = crate::progress::Interrupt::default();
        let turn = Turn { length: Duration::from_millis(20), seed: 1, interrupt: &interrupt };
        let place = |name: &str, rest, durability| {
            let dir = directory.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            Place { rest, durability, ..Place::within(&dir, 100, 50) }
        };
        let without = place("without", None, Durability::Synced);
        let round = burst(&without, &turn).unwrap();
        assert!(round.operations > 0 && round.note.is_none());
        let with = place("with", Some(Duration::from_millis(1)), Durability::Archived);
        let round = wait_each(&with, &turn).unwrap();
        assert!(round.operations > 0);
        let note = round.note.unwrap();
        assert!(note.contains(" creating, ") && !note.contains(" 0.00 creating"), "{note}");
        assert!(note.ends_with(" 0 at the end"), "{note}");
        assert!(std::path::Path::new(&with.archive).is_dir());
    }

    #[test]
    fn each_round_beside_a_copy_has_a_copy_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let interrupt = crate::progress::Interrupt::default();
        let turn = Turn { length: Duration::from_millis(20), seed: 1, interrupt: &interrupt };
        let place = Place::within(directory.path(), 5_000, 100);
        let took = Cell::default();
        for _ in 0..2 {
            let round = burst_beside_copy(&place, &turn, &took).unwrap();
            assert!(took.get().is_some());
            assert!(round.operations > 0);
            assert!(round.note.unwrap().contains("were copied in"));
            let snapshots =
                std::fs::read_dir(directory.path().join("archive/ltx/9")).unwrap().count();
            assert_eq!(snapshots, 1);
        }
    }
    #[test]
    fn a_name_goes_before_what_an_address_asks_for() {
        assert_eq!(
            below("s3://bucket/prefix/?region=here", "name"),
            "s3://bucket/prefix/name?region=here"
        );
        assert_eq!(below("gs://bucket", "name"), "gs://bucket/name");
        assert!(Archives::new(Some("bucket")).is_err());
        assert!(Archives::new(Some("ftp://bucket")).is_err());
    }

    #[test]
    fn nothing_is_left_where_archives_were_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let interrupt = crate::progress::Interrupt::default();
        let turn = Turn { length: Duration::from_millis(20), seed: 1, interrupt: &interrupt };
        let bucket = directory.path().join("bucket");
        let archives = Archives::new(Some(&format!("file://{}", bucket.display()))).unwrap();
        let mut options = crate::suites::SuiteOptions::new(
            directory.path().to_owned(),
            crate::suites::Depth::Quick,
        );
        options.rows = Some(100);
        let ground = Ground {
            options: &options,
            dir: directory.path(),
            memory: None,
            interrupt: &interrupt,
        };
        let place = archives.place(&ground, "one", Some(0), Durability::Archived);
        assert!(wait_each(&place, &turn).unwrap().operations > 0);
        let (store, layout) = place.store().unwrap();
        let files = || {
            monolite_archive::internals::Catalog::read(&*store, &layout).unwrap().files().to_vec()
        };
        assert!(!files().is_empty());
        archives.remove().unwrap();
        assert!(files().is_empty());
    }
}
