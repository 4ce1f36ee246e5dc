//! Owns `--follow`: the changes of an application that goes on while its database is exported, and
//! the switch to PostgreSQL.
//!
//! # Format
//! In the source there are, with names that begin with `monolite export `, triggers and the table
//! [`NOTES`]: for each change of a row a number, the table, and the primary key. They are no names
//! of the engine's, so the application may be on any SQLite.
//!
//! # Algorithm
//! 1. [`begin`] makes them; then all is exported as it is without `--follow`, but for foreign keys,
//!    which would act on rows that are taken out, and without COMMIT.
//! 2. **A round** reads the notes and the noted rows on one snapshot. In PostgreSQL all noted rows
//!    are taken out, and those that are there are put in: only all of them together are sure to
//!    have no two equal values in a unique index. Then the notes up to the last one are deleted.
//! 3. Each table is compared, in a round of its own, so that no snapshot is held for long.
//! 4. **The switch** lets the source refuse writes, makes the last round, sequences and foreign
//!    keys, and commits. The application may begin there then; beside it all tables are compared
//!    once more, on a snapshot taken before, and foreign keys are validated.
//!
//! # Invariants
//! - A change that is committed in the source is noted, was there before the export's snapshot, or
//!   is refused.
//! - Until the COMMIT, PostgreSQL has nothing and the source takes writes again after a failure.
//!   From then on the source takes none before `--abort`, also where the answer was lost.

use super::postgres::{Postgres, none_refused};
use super::rows::Sum;
use super::schema::{self, Column, Index, Part, Schema, Table};
use super::target::{Target, TargetColumn};
use super::translate::{literal, quoted};
use super::{Exported, Progress, Source, Stopped, TICK, map, read, verify, views};
use crate::out::stdout;
use crate::{arguments, backup, words};
use anyhow::{Context as _, Error, Result, bail, ensure};
use monolite::rusqlite::{Connection, OpenFlags};
use monolite::{Database, ErrorKind, Options, ReadTx, Sharing, Tx};
use monolite_sqlite::{is_before_update, noting_triggers};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Instant;

/// What all names begin with that it makes in the source.
const PREFIX: &str = "monolite export ";

/// Where changes are noted.
const NOTES: &str = "\"monolite export notes\"";

/// So few notes that the round for them is short.
const FEW: u64 = 10_000;

/// How many notes are deleted in one write: it takes some milliseconds.
const BATCH: i64 = 10_000;

/// The most writes for the notes of a round, which are larger then: each waits for those of the
/// application, which notes faster than small ones delete.
const MOST_BATCHES: i64 = 20;

/// The engine's most: the application bounds the WAL, and the export must not be ended for it.
const MOST_WAL: u64 = 1 << 40;

/// What is said at Ctrl-C.
pub(super) const STOPPING: &str = "stopping, when what PostgreSQL or SOURCE does now has ended and \
                                   its triggers are removed from SOURCE; once more stops at once, \
                                   and may leave them there: --abort removes them";

/// Behind the switch nothing may stop before the end.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Opens a database that its application goes on with. While a write of another program goes on,
/// it waits until `stop`.
pub(super) fn open(options: Options, file: &Path, stop: &AtomicBool) -> Result<Database> {
    ensure!(file.exists(), "{} does not exist; is this the right path?", file.display());
    let options = options.sharing(Sharing::Shared).wal_limit_bytes(MOST_WAL);
    let mut is_told = false;
    loop {
        let error = match options.clone().open(file) {
            Err(error) if error.kind() == ErrorKind::Overloaded => error,
            opened => return Ok(opened?),
        };
        let holder = backup::holder(&error);
        ensure!(
            is_readable(file),
            "{holder}; --follow needs an application that opens it with \
             Options::sharing(Sharing::Shared); a server does not: stop it, and export without \
             --follow"
        );
        if stop.load(Ordering::Relaxed) {
            return Err(Stopped("nothing was begun").into());
        }
        if !std::mem::replace(&mut is_told, true) {
            let wait = "waiting until a write there ends (Ctrl-C gives up)";
            writeln!(std::io::stderr(), "{holder}; {wait}")?;
        }
    }
}

/// Whether another program that has the database locked lets others read it: it writes then, and
/// does not hold it for itself alone.
fn is_readable(file: &Path) -> bool {
    let plain = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY);
    plain.is_ok_and(|it| it.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(())).is_ok())
}

/// Removes what a `--follow` has left or made in a database.
pub(super) fn abort(file: &Path) -> Result<()> {
    let db = open(Options::new(), file, &NEVER)?;
    let removed = db.with_error().write(|tx| remove(tx, "*")).wait();
    db.close()?;
    let removed = words::count(removed? as u64, "object");
    Ok(writeln!(stdout(), "{}: {removed} of --follow removed", file.display())?)
}

/// Removes those of our triggers whose names go on as `pattern` says, and the notes.
fn remove(tx: &Tx<'_>, pattern: &str) -> Result<usize> {
    let find = format!(
        "SELECT 'DROP ' || type || ' \"' || name || '\"' FROM sqlite_schema WHERE type IN \
         ('trigger', 'table') AND name GLOB '{PREFIX}{pattern}' ORDER BY type DESC"
    );
    let drops: Vec<String> = tx.query_map(&find, (), |row| row.get(0))?;
    drops.iter().try_for_each(|sql| tx.execute_batch(sql))?;
    Ok(drops.len())
}

/// An application's database, with what notes its changes.
struct Following {
    db: Database<Error>,
    /// Each object of its schema, with its definition.
    objects: BTreeMap<String, String>,
    /// Of each table, the place of noted keys in PostgreSQL.
    keys: Vec<Target>,
    /// The word on standard input.
    told: Receiver<()>,
    is_told: bool,
    /// How many were carried.
    changes: u64,
}

/// Exports and follows until the switch.
pub(super) fn run(
    db: &Database,
    arguments: &arguments::ExportPostgres,
    postgres: Postgres,
    progress: &mut Progress<'_>,
) -> Result<Exported> {
    let (db, objects, told) = (db.with_error::<Error>(), BTreeMap::new(), listen());
    let (keys, is_told, changes) = (Vec::new(), false, 0);
    let mut following = Following { db: db.clone(), objects, keys, told, is_told, changes };
    following.listen_for(1, progress)?;
    // Before the write: that may read all keys.
    db.read(refuse_faults).wait()?;
    following.objects = following.write(progress, begin)?;
    let followed = following.until_switch(arguments, postgres, progress);
    let (postgres, mut made, switching) = followed.map_err(|error| {
        (progress.stop, progress.doing) = (&NEVER, "removing its triggers from SOURCE");
        match following.write(progress, |tx| remove(tx, "*")) {
            Ok(_) => error,
            Err(why) => {
                error.context(format!("its triggers are left in SOURCE, use --abort: {why}"))
            }
        }
    })?;
    postgres.commit().context(
        "SOURCE refuses writes now: if PostgreSQL has the tables, go on there; if it has not, \
         --abort has SOURCE take writes again",
    )?;
    made.seconds.pause = Some(switching.elapsed().as_secs_f64());
    let after = "PostgreSQL has all since the switch, and SOURCE refuses writes until --abort";
    following.after_switch(&postgres, &mut made, progress).context(after)?;
    Ok(made)
}

/// Waits for the word on standard input.
fn listen() -> Receiver<()> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let word = line.trim();
            if word.eq_ignore_ascii_case("switch") {
                if tell.send(()).is_err() {
                    return;
                }
            } else if !word.is_empty() {
                let what = "is not known; enter switch, or Ctrl-C to give up";
                let _ = writeln!(std::io::stderr(), "{word:?} {what}");
            }
        }
    });
    told
}

/// Fails when changes of a table cannot be followed.
fn refuse_faults(tx: &ReadTx<'_>) -> Result<()> {
    let mut faults = Vec::new();
    for table in &schema::read(tx)?.tables {
        let mut parts = table.primary_index.iter().flat_map(|index| &index.parts);
        let is_null: Vec<_> = key(table).iter().map(|name| format!("{name} IS NULL")).collect();
        let find = format!("FROM {} WHERE {}", quoted(&table.name), is_null.join(" OR "));
        let why = if table.primary.is_empty() {
            "has no primary key (give it an INTEGER PRIMARY KEY)"
        } else if parts.any(|part| part.collation != "BINARY") {
            "has a primary key with a collation"
        } else if tx.query_row(&format!("SELECT EXISTS(SELECT 1 {find})"), (), |row| row.get(0))? {
            "has rows with NULL in its primary key"
        } else if let Some(why) = unforeseen(tx, table)? {
            why
        } else {
            continue;
        };
        faults.push(format!("{} {why}", table.name));
    }
    ensure!(faults.is_empty(), "--follow cannot tell rows apart: {}", faults.join("; "));
    Ok(())
}

/// Why a trigger that runs before a row is written cannot tell what the row will be in a unique
/// index, if it cannot.
fn unforeseen(tx: &ReadTx<'_>, table: &Table) -> Result<Option<&'static str>> {
    let is_plain = |part: &Part| {
        let column = part.of.as_ref().ok().map(|at| &table.columns[*at]);
        let is_default = |it: &Column| it.is_not_null && it.default.is_some();
        column.is_some_and(|it| !it.is_generated && !is_default(it))
    };
    let mut indexes = uniques(table).chain(&table.primary_index);
    if !indexes.all(|index| index.parts.iter().all(is_plain)) {
        return Ok(Some(
            "has a unique index with an expression, a generated column, or one that is NOT NULL \
             with a DEFAULT, so a row that REPLACE deletes by it would not be noted (drop it \
             first)",
        ));
    }
    let sql = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND \
               tbl_name = ?1 COLLATE NOCASE AND name NOT GLOB 'monolite[ _]*'";
    let triggers: Vec<String> = tx.query_map(sql, [&table.name], |row| row.get(0))?;
    let is_alone = table.primary.len() == 1 && uniques(table).next().is_none();
    let may_change = !is_alone && triggers.iter().any(|sql| is_before_update(sql));
    Ok(may_change.then_some(
        "has a trigger before an UPDATE, beside a unique index or a key of several columns: it may \
         change the row once that is noted (drop it first)",
    ))
}

/// The columns of a table's primary key.
fn key(table: &Table) -> Vec<String> {
    table.primary.iter().map(|at| quoted(&table.columns[*at].name)).collect()
}

/// Makes the triggers and the table for notes.
fn begin(tx: &Tx<'_>) -> Result<BTreeMap<String, String>> {
    let schema = schema::read(tx)?;
    let left = format!("SELECT 1 FROM sqlite_schema WHERE name GLOB '{PREFIX}*'");
    let is_left = tx.query_optional(&left, (), |_| Ok(()))?.is_some();
    ensure!(
        !is_left,
        "another --follow of it goes on, has switched, or did not end; --abort removes what it has \
         made there, then begin again"
    );
    let rebuild = "SELECT 1 FROM sqlite_schema WHERE name = 'monolite_rebuild_state'";
    ensure!(
        tx.query_optional(rebuild, (), |_| Ok(()))?.is_none(),
        "a table of SOURCE is being rebuilt online, and may not get triggers: end that by \
         `monolite migrate up` or `abort`, then begin again"
    );
    let most = schema.tables.iter().map(|table| table.primary.len()).max().unwrap_or(0);
    let keys: String = (0..most).map(|at| format!(", k{at}")).collect();
    tx.execute_batch(&format!("CREATE TABLE {NOTES}(n INTEGER PRIMARY KEY, t{keys})"))?;
    for (at, table) in schema.tables.iter().enumerate() {
        // The application may have made it since it was looked for.
        let why = unforeseen(tx, table)?;
        ensure!(why.is_none(), "{} {}; begin again", table.name, why.unwrap_or_default());
        triggers(at, table).iter().try_for_each(|sql| tx.execute_batch(sql))?;
    }
    objects(tx)
}

/// The unique indexes but that of the primary key, whose rows are noted by it.
fn uniques(table: &Table) -> impl Iterator<Item = &Index> {
    table.indexes.iter().filter(|index| index.is_unique)
}

/// The triggers that note the changes of the table with this number.
fn triggers(at: usize, table: &Table) -> Vec<String> {
    let places: Vec<String> = (0..table.primary.len()).map(|at| format!("k{at}")).collect();
    let into = format!("INSERT INTO {NOTES}(t, {})", places.join(", "));
    let key = key(table);
    let equal = |part: &Part| {
        let at = *part.of.as_ref().expect("an expression is refused");
        let (name, collation) = (quoted(&table.columns[at].name), quoted(&part.collation));
        format!("{name} COLLATE {collation} = NEW.{name}")
    };
    let replaced = |index: &Index| {
        let mut all: Vec<String> = index.parts.iter().map(equal).collect();
        all.extend(index.condition.as_ref().map(|text| format!("({text})")));
        let (name, all) = (quoted(&table.name), all.join(" AND "));
        format!("{into} SELECT {at}, {} FROM {name} WHERE {all}; ", key.join(", "))
    };
    let of_rowid = |rowid: &str| {
        let (name, key) = (quoted(&table.name), key.join(", "));
        format!("{into} SELECT {at}, {key} FROM {name} WHERE {rowid} = NEW.{rowid}; ")
    };
    let hidden = schema::rowid_name(table).filter(|_| table.rowid.is_none()).map(of_rowid);
    let replaced: String = uniques(table).map(replaced).chain(hidden).collect();
    let note = |row: &str| {
        let values: String = key.iter().map(|name| format!(", {row}.{name}")).collect();
        format!("{into} VALUES ({at}{values});")
    };
    noting_triggers(&format!("{PREFIX}{at} "), &table.name, note, &replaced)
}

/// The schema, as far as changes of it end the export.
fn objects(tx: &ReadTx<'_>) -> Result<BTreeMap<String, String>> {
    let sql = "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND \
               lower(name) NOT GLOB 'monolite_*' AND name NOT GLOB 'sqlite_stat*'";
    let of = |row: &monolite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(tx.query_map(sql, (), of)?.into_iter().collect())
}

/// Fails when the schema is another than `before`.
fn check(tx: &ReadTx<'_>, before: &BTreeMap<String, String>) -> Result<()> {
    let now = objects(tx)?;
    let mut names = before.keys().chain(now.keys());
    if let Some(name) = names.find(|name| before.get(*name) != now.get(*name)) {
        bail!("the schema of SOURCE was changed while it was followed ({name}); begin again");
    }
    Ok(())
}

impl Following {
    /// Rests for so many ticks, or until the word comes.
    fn listen_for(&mut self, ticks: u32, progress: &mut Progress<'_>) -> Result<()> {
        for _ in 0..ticks {
            progress.at("changes", self.changes)?;
            match self.told.recv_timeout(TICK) {
                Ok(()) => self.is_told = true,
                Err(RecvTimeoutError::Disconnected) if !self.is_told => {
                    bail!("standard input has ended, from where --follow reads the word switch")
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// All up to the COMMIT; gives when the source began to refuse writes, too.
    fn until_switch(
        &mut self,
        arguments: &arguments::ExportPostgres,
        postgres: Postgres,
        progress: &mut Progress<'_>,
    ) -> Result<(Postgres, Exported, Instant)> {
        let db = self.db.with_error();
        let export = |tx: &ReadTx<'_>| super::export(&db, tx, arguments, Ok(postgres), progress);
        let (mut made, postgres) = self.db.read(export).wait()?;
        let postgres = postgres.expect("it is committed by the switch alone");
        for (at, target) in made.plan.targets.iter().enumerate() {
            let keys = keys(at, target)?;
            postgres.place_for(&keys, target)?;
            self.keys.push(keys);
        }
        progress.doing = "following";
        let targets = &made.plan.targets;
        // Until few are left, or it does not catch up: the application notes as fast.
        let (mut last, mut is_even) = (u64::MAX, false);
        while !is_even {
            let before = self.changes;
            self.round(&postgres, targets, None, progress)?;
            let carried = self.changes - before;
            is_even = carried <= FEW || carried >= last;
            last = carried;
        }
        progress.doing = "comparing";
        for target in targets {
            let sum = self.round(&postgres, targets, Some(target), progress)?;
            verify(&postgres, std::slice::from_ref(target), sum.as_slice(), progress)?;
        }
        progress.bar.note(
            "all rows were compared and are equal; changes follow each second. To switch, stop the \
             application and enter the word switch; Ctrl-C gives up and leaves nothing",
        );
        progress.doing = "following";
        while !self.is_told {
            self.listen_for(5, progress)?;
            self.round(&postgres, targets, None, progress)?;
        }
        let switching = self.switch(&postgres, &mut made, progress)?;
        Ok((postgres, made, switching))
    }

    /// Has PostgreSQL be as one moment of the source; gives the checksum of the table to `compare`
    /// then.
    fn round(
        &mut self,
        postgres: &Postgres,
        targets: &[Target],
        compare: Option<&Target>,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Sum>> {
        let mut refused = Vec::new();
        let apply = |tx: &ReadTx<'_>| {
            check(tx, &self.objects)?;
            let noted = tx.query_map(&format!("SELECT DISTINCT t FROM {NOTES}"), (), |row| {
                row.get::<_, u32>(0)
            })?;
            for at in noted.into_iter().map(|at| at as usize) {
                let (target, keys) = (&targets[at], &self.keys[at]);
                let noted = format!("(SELECT DISTINCT {} FROM {NOTES} WHERE t = {at})", keys.list);
                postgres.take_out(Source(tx, Some(&noted)), keys, target, progress)?;
                let name = quoted(&target.name);
                let equal = target.key.iter().enumerate();
                let equal = equal.map(|(at, key)| format!("{name}.{} = noted.k{at}", quoted(key)));
                let equal = equal.collect::<Vec<_>>().join(" AND ");
                let rows = format!("{noted} AS noted CROSS JOIN {name} ON {equal}");
                postgres.copy(Source(tx, Some(&rows)), target, &mut refused, progress)?;
            }
            let sum = compare.map(|it| read(Source(tx, None), it, &mut refused, progress));
            none_refused(&refused)?;
            let ends = format!("SELECT min(n), max(n) FROM {NOTES}");
            let ends = tx.query_row(&ends, (), |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok::<_, Error>((ends, sum.transpose()?))
        };
        let (ends, sum): ((Option<i64>, Option<i64>), _) = self.db.read(apply).wait()?;
        let (Some(mut from), Some(last)) = ends else { return Ok(sum) };
        self.changes += (last - from + 1).unsigned_abs();
        // Each number once: where no note is left, the next one gets the number 1.
        let batch = BATCH.max((last - from) / MOST_BATCHES);
        while from <= last {
            progress.at("changes", self.changes)?;
            let to = last.min(from + batch - 1);
            let delete = format!("DELETE FROM {NOTES} WHERE n BETWEEN {from} AND {to}");
            self.write(progress, move |tx| Ok(tx.execute(&delete, ())?))?;
            from = to + 1;
        }
        Ok(sum)
    }

    /// Writes to the source, when the application leaves room for that.
    fn write<T: Send + 'static>(
        &self,
        progress: &mut Progress<'_>,
        body: impl Fn(&Tx<'_>) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        loop {
            let written = self.db.write(body.clone()).wait();
            let kind = |error: &Error| error.downcast_ref().map(monolite::Error::kind);
            match written {
                Err(error) if kind(&error) == Some(ErrorKind::Overloaded) => {
                    progress.at("(waiting until a write of another program ends)", self.changes)?;
                }
                written => return written,
            }
        }
    }

    /// Has the source refuse writes, and PostgreSQL have all of it but for the COMMIT.
    fn switch(
        &mut self,
        postgres: &Postgres,
        made: &mut Exported,
        progress: &mut Progress<'_>,
    ) -> Result<Instant> {
        let begin = Instant::now();
        let before = self.objects.clone();
        self.objects = self.write(progress, move |tx| {
            check(tx, &before)?;
            refuse_writes(tx, &schema::read(tx)?)?;
            objects(tx)
        })?;
        self.round(postgres, &made.plan.targets, None, progress)?;
        let sequences = self.db.read(|tx| map::sequences(tx, &schema::read(tx)?)).wait()?;
        made.plan.steps.extend(sequences);
        postgres.finish(&mut made.plan)?;
        Ok(begin)
    }

    /// Compares all, while the application may have begun, and leaves in the source what refuses
    /// writes.
    fn after_switch(
        &self,
        postgres: &Postgres,
        made: &mut Exported,
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        (progress.stop, progress.doing) = (&NEVER, "verifying");
        postgres.keep_moment()?;
        progress.bar.note(&format!(
            "switched: PostgreSQL has all, {} after the last write to SOURCE; start the \
             application there",
            words::seconds(made.seconds.pause.unwrap_or_default())
        ));
        let begin = Instant::now();
        let read_all = |tx: &ReadTx<'_>| {
            check(tx, &self.objects)?;
            let mut refused = Vec::new();
            let of = |it| read(Source(tx, None), it, &mut refused, progress);
            let sums = made.plan.targets.iter().map(of).collect::<Result<Vec<Sum>>>()?;
            none_refused(&refused)?;
            Ok::<_, Error>(sums)
        };
        made.sums = self.db.read(read_all).wait()?;
        verify(postgres, &made.plan.targets, &made.sums, progress)?;
        let report = &mut made.plan.report;
        views::compare(&self.db.with_error(), postgres, report, progress)?;
        postgres.commit()?;
        postgres.validate(&mut made.plan.report)?;
        made.seconds.verifying = begin.elapsed().as_secs_f64();
        self.write(progress, |tx| remove(tx, "[0-9n]*")).map(drop)
    }
}

/// The place of a table's noted keys.
fn keys(at: usize, target: &Target) -> Result<Target> {
    let mut columns = Vec::new();
    for column in target.primary.iter().map(|at| &target.columns[*at]) {
        let name = column.name.clone();
        ensure!(
            !column.note.contains("--mixed"),
            "--follow cannot tell rows of {} apart: {name} holds values of several types",
            target.name
        );
        let (kind, note) = (column.kind, String::new());
        columns.push(TargetColumn { name, kind, constraints: "", generated: None, note });
    }
    let list: Vec<String> = (0..columns.len()).map(|at| format!("k{at}")).collect();
    let (name, place, list) = (target.name.clone(), format!("{PREFIX}{at}"), list.join(", "));
    Ok(Target { name, place, columns, list, key: Vec::new(), primary: Vec::new() })
}

/// Makes the triggers that refuse all writes.
fn refuse_writes(tx: &Tx<'_>, schema: &Schema) -> Result<()> {
    let why = literal("this database has moved to PostgreSQL (monolite export --follow)");
    for (at, table) in schema.tables.iter().enumerate() {
        for event in ["INSERT", "UPDATE", "DELETE"] {
            let name = quoted(&format!("{PREFIX}moved {at} {event}"));
            let table = quoted(&table.name);
            tx.execute_batch(&format!(
                "CREATE TRIGGER {name} BEFORE {event} ON {table} BEGIN SELECT RAISE(ABORT, {why}); \
                 END"
            ))?;
        }
    }
    Ok(())
}
