//! Owns the rebuild of a table while the application goes on with it: the steps of it, each a part
//! of a transaction, with nothing in memory that the next one needs.
//!
//! # Format
//! While it goes on, the file has the new table under the engine's own name ([`SHADOW`]), without
//! foreign keys, which would act on it, and with its indexes, but for those that are *kept*: an
//! index of the old table is kept if the copy has none of its number. There are, too, triggers of
//! the old table; the keys of rows that were changed ([`DIRTY`]); and, in [`REBUILD`], names and
//! values: whose migration it is, `from` (the first key that is not copied; none when all are),
//! `rows` and `total`, which rows were `refused` last, what it rebuilds (`schema`), `removing` when
//! only rows are left to be deleted, and the definition of each `object` it has made, which are the
//! only ones of these names that [`crate::names`] allows.
//!
//! # Algorithm
//! 1. **[`Online::begin`]** makes all that, drops those indexes of the copy that are kept, and
//!    tries the swap on the empty table.
//! 2. The triggers write the keys of changed rows, and no values. `REPLACE` fires none for the rows
//!    that it deletes, so two look before a row is written which others it is unique against.
//! 3. **[`Online::step`]** gives the changed rows among those that were copied the values that
//!    differ, replaces those that are not equal then, and copies the next ones by one statement
//!    over the old table, limited to some keys. Rows that do not fit are found only when all
//!    changed ones are out of the new table: an old state of them may be in the way.
//! 4. **[`Online::verify`]** compares each row that is not dirty, on a reader's snapshot.
//! 5. **[`Online::swap`]** copies the last changed rows, exchanges the two tables in the schema,
//!    and leaves the rows of the old one to [`Online::clean`], which [`Online::abort`] needs, too.
//!
//! # Invariants
//! - Each row of the old table that is not dirty, and whose key is before `from`, is in the new one
//!   as it shall be, and no other one is, in each committed state.
//! - No write of the application fails because of the new table.
//! - Rows that foreign keys use keep their values, so that none is violated by the swap.
//! - A table whose definition, indexes or triggers have changed is not swapped.

mod exchange;
mod plan;

use std::collections::BTreeSet;

use rusqlite::types::FromSql;
use rusqlite::{OptionalExtension as _, Result, Row, ToSql, ffi};

use super::attached::{Defined, Shape, all};
use super::fill::is_of_row;
use super::{Creation, Rebuild, SHADOW, text};
use crate::codes::{failure, refuse};
use crate::connection::Connection;
use crate::connection::keys::is_missing;
use crate::names::{self, DIRTY, REBUILD, quoted};
use crate::scan;
pub use plan::OnlinePlan;
use plan::{KEYS, Unfit, keys_of, list, triggers, without_key};

/// The online rebuild in the file, from [`Connection::online`].
#[derive(Clone, Copy)]
pub struct Online<'c>(pub(in crate::connection) &'c Connection);

/// How far an online rebuild is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilding {
    /// The number of its migration.
    pub number: i64,
    /// The name of its migration.
    pub name: String,
    /// The checksum of its migration.
    pub checksum: String,
    /// The table.
    pub table: String,
    /// What it does.
    pub phase: RebuildPhase,
    /// Rows that are copied.
    pub rows: u64,
    /// Rows that there were when it began.
    pub total: u64,
    /// Rows that could not be in the new table when it was tried last, in words.
    pub refused: Option<String>,
    /// Why it can only be aborted: the table, or what is the engine's, was changed.
    pub obstacle: Option<String>,
}

/// What an online rebuild does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum RebuildPhase {
    /// It copies rows.
    Copying,
    /// All are copied, and changed ones again.
    Following,
    /// The new table is there, or the rebuild was aborted; what is left over is deleted.
    Removing,
}

/// What a copy of a table takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of it and of its indexes.
    pub needed: u64,
    /// Bytes that the disk has left.
    pub free: u64,
}

/// What one step has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Rows that were copied, changed ones again.
    pub rows: u64,
    /// Whether as many changed rows as it may take were there.
    pub is_behind: bool,
    /// Whether all rows are copied, but those that have changed.
    pub is_copied: bool,
    /// The keys of rows that cannot be in the new table, and count as changed.
    pub left: Vec<i64>,
    /// SQLite's number of the schema.
    pub schema: i64,
}

fn schema_number(raw: &rusqlite::Connection) -> Result<i64> {
    raw.pragma_query_value(None, "schema_version", |row| row.get(0))
}

/// Gives the keys of changed rows, but those in `left`; more conditions can be behind it.
fn dirty(left: Option<&BTreeSet<i64>>) -> String {
    let left: Vec<_> = left.into_iter().flatten().map(i64::to_string).collect();
    format!("SELECT key FROM main.{DIRTY} WHERE key NOT IN ({})", left.join(", "))
}

/// What a migration declares.
struct Declared<'s> {
    creation: String,
    select: Option<&'s str>,
    indexes: Vec<(String, String)>,
}

impl<'s> Declared<'s> {
    fn read(connection: &Connection, sql: &'s str, table: &str) -> Result<Declared<'s>> {
        let (mut creation, mut select, mut indexes) = (None, None, Vec::new());
        for piece in scan::statements(sql) {
            let created = Creation::read(piece).filter(|it| it.table.eq_ignore_ascii_case(table));
            let index = text::index_of(piece, table);
            if created.is_some() && creation.is_none() && indexes.is_empty() {
                creation = Some(piece.to_owned());
            } else if super::is_query(piece) && creation.is_some() && select.is_none() {
                select = Some(piece);
            } else if let Some(index) = index {
                indexes.push(index);
            } else {
                refuse(Some(format!(
                    "a migration that rebuilds {table} online has only its CREATE TABLE, a SELECT \
                     behind that, and CREATE INDEX … ON {table}; move other statements to a \
                     migration before or behind it: {}",
                    piece.trim()
                )))?;
            }
        }
        let of_now = || {
            let sql = "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND rootpage <> 0 \
                       AND name = ?1 COLLATE NOCASE";
            let found = connection.raw().query_row(sql, [table], |row| row.get(0)).optional()?;
            found.ok_or_else(|| {
                failure(ffi::SQLITE_AUTH, format!("{table} is not rebuilt: there is no such table"))
            })
        };
        let creation = creation.map_or_else(of_now, Ok)?;
        Ok(Declared { creation, select, indexes })
    }

    /// Has the new table get its own indexes, whose names must be free: the exchange writes them
    /// into the schema as they are.
    fn add_indexes(&self, rebuild: &mut Rebuild<'_>) -> Result<()> {
        let find = "SELECT 1 FROM main.sqlite_schema WHERE name = ?1 COLLATE NOCASE";
        let mut find = rebuild.connection.raw().prepare(find)?;
        for (name, sql) in &self.indexes {
            let indexes = &mut rebuild.attached.indexes;
            let is_twice = indexes.iter().any(|it| it.name.eq_ignore_ascii_case(name));
            let why = format!(
                "{} is not rebuilt online: the name of the index {name} exists already; give it \
                 another one, or drop what has it in a migration before",
                rebuild.table
            );
            refuse((is_twice || find.exists([name])?).then_some(why))?;
            indexes.push(Defined { name: name.clone(), sql: sql.clone() });
        }
        Ok(())
    }

    fn creation(&self) -> Result<Creation<'_>> {
        let read = Creation::read(&self.creation);
        read.ok_or_else(|| failure(ffi::SQLITE_AUTH, "the definition of the table is not readable"))
    }
}

impl Online<'_> {
    /// How far the one in the file is; `None` if there is none.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn state(self) -> Result<Option<Rebuilding>> {
        self.0.as_engine(|| {
            let number = match self.get("number")? {
                Some(number) => number,
                // Another program has dropped what is noted, and not all of the rest.
                None if self.schema(SHADOW)?.is_empty() => return Ok(None),
                None => 0,
            };
            let has = |value: Option<i64>| value.unwrap_or(0).unsigned_abs();
            let text = |name: &str| {
                Ok::<String, rusqlite::Error>(self.get(name)?.unwrap_or_else(|| "?".into()))
            };
            let phase = match (self.get::<i64>("removing")?, self.get::<i64>("from")?) {
                (Some(_), _) => RebuildPhase::Removing,
                (None, Some(_)) => RebuildPhase::Copying,
                (None, None) => RebuildPhase::Following,
            };
            let table = text("table")?;
            let is_over = phase == RebuildPhase::Removing;
            Ok(Some(Rebuilding {
                number,
                name: text("name")?,
                checksum: text("checksum")?,
                obstacle: if is_over { None } else { self.obstacle(&table)? },
                table,
                phase,
                rows: has(self.get("rows")?),
                total: has(self.get("total")?),
                refused: self.get("refused")?,
            }))
        })
    }

    /// Whether the object with the definition `sql` is one of a rebuild under way.
    pub(in crate::connection) fn has_made(self, sql: &str) -> Result<bool> {
        let find = || {
            let found =
                format!("SELECT 1 FROM main.{REBUILD} WHERE name GLOB 'object *' AND value = ?1");
            self.0.raw().prepare(&found)?.exists([sql])
        };
        match self.0.as_engine(find) {
            Err(error) if is_missing(&error) => Ok(false),
            found => found,
        }
    }

    pub(in crate::connection) fn is_rebuilding(self, table: &str) -> Result<bool> {
        if self.0.raw().table_exists(Some("main"), REBUILD) == Ok(false) {
            return Ok(false);
        }
        let state = self.state()?.filter(|it| it.phase != RebuildPhase::Removing);
        Ok(state.is_some_and(|it| it.table.eq_ignore_ascii_case(table)))
    }

    /// What a copy of `table` and its indexes takes; nothing if there is no such table.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn room(self, table: &str) -> Result<Room> {
        let raw = self.0.raw();
        let count = format!("SELECT count(*) FROM main.{}", quoted(table));
        let count = || raw.query_row(&count, (), |row| row.get::<_, i64>(0));
        let rows = match self.0.as_engine(count) {
            Err(error) if is_missing(&error) => 0,
            rows => rows?.unsigned_abs(),
        };
        let free = raw.path().filter(|it| !it.is_empty()).and_then(|path| {
            let at = rustix::fs::statvfs(std::path::Path::new(path).parent()?).ok()?;
            Some(at.f_bavail.saturating_mul(at.f_frsize))
        });
        let sql = "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE aggregate = 1 AND name IN \
            (SELECT \
                   name FROM main.sqlite_schema WHERE tbl_name = ?1 COLLATE NOCASE)";
        let needed = || raw.query_row(sql, [table], |row| row.get::<_, i64>(0));
        let needed = self.0.as_engine(needed)?.unsigned_abs();
        Ok(Room { rows, needed, free: free.unwrap_or(u64::MAX) })
    }

    /// Sees whether the migration `sql` is of the statements that rebuild `table`, which there is,
    /// and has a key.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when it is not; those of SQLite.
    pub fn read(self, sql: &str, table: &str) -> Result<()> {
        self.0.as_engine(|| {
            Declared::read(self.0, sql, table)?;
            let old = Shape::of(self.0.raw(), table)?;
            let key = old.rowid.as_ref().filter(|it| old.column(it).is_some());
            if key.is_some() { Ok(()) } else { Err(without_key(table)) }
        })
    }

    /// Begins to rebuild `table` as the migration `sql` declares it, which has this number, name
    /// and checksum; the table has about `total` rows.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when another one is under way, and for all that cannot be rebuilt online;
    /// those of SQLite. The transaction is to be undone then.
    pub fn begin(
        self,
        (number, name, checksum): (i64, &str, &str),
        (sql, table): (&str, &str),
        total: u64,
    ) -> Result<OnlinePlan> {
        if let Some(other) = self.state()? {
            let Rebuilding { table, name, .. } = other;
            refuse(Some(format!(
                "{table} is being rebuilt online, by {name}; apply that, or abort the rebuild"
            )))?;
        }
        let declared = Declared::read(self.0, sql, table)?;
        if let Some(select) = declared.select {
            self.0.migrations().prepare_query(select)?;
        }
        let creation = declared.creation()?;
        self.0.rebuilding(|| {
            let mut rebuild = Rebuild::begin(self.0, &creation)?;
            let uniques = rebuild.uniques()?;
            let old_keys = keys_of(self.0, &rebuild.table)?;
            declared.add_indexes(&mut rebuild)?;
            let own = creation.renamed(SHADOW);
            rebuild.execute(&own)?;
            let (as_declared, new_keys) =
                (Shape::of(self.0.raw(), SHADOW)?, keys_of(self.0, SHADOW)?);
            rebuild.execute(&format!("DROP TABLE main.{SHADOW}"))?;
            rebuild.execute(&text::without_references(&own))?;
            let new = Shape::of(self.0.raw(), SHADOW)?;
            let is_same = format!("{as_declared:?}") == format!("{new:?}");
            if !is_same || !keys_of(self.0, SHADOW)?.is_empty() {
                rebuild.refuse("foreign keys that are written in an unusual way".into());
            }
            for key in new_keys.iter().filter(|key| !old_keys.contains(key)) {
                rebuild.refuse(format!("a foreign key to {} that is new", key.0));
            }
            let plan = rebuild.plan(&new, declared.select)?;
            rebuild.faults_online()?;
            rebuild.create_indexes(&new)?;
            rebuild.keep_indexes(&new, declared.select)?;
            rebuild.try_to_swap(&new)?;
            let [.., state, dirty] = names::DEFINITIONS;
            rebuild.execute(state)?;
            rebuild.execute(dirty)?;
            triggers(&plan, &uniques).iter().try_for_each(|it| rebuild.execute(it))?;
            self.set("number", number)?;
            for (key, value) in [("name", name), ("checksum", checksum), ("table", &rebuild.table)]
            {
                self.set(key, value)?;
            }
            self.set("total", i64::try_from(total).unwrap_or(i64::MAX))?;
            self.set("from", i64::MIN)?;
            self.set("schema", self.schema(&rebuild.table)?)?;
            self.note_objects()?;
            Ok(plan)
        })
    }

    /// How the one that is under way copies rows, with the same migration.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when the table has changed; those of SQLite.
    pub fn resume(self, (sql, table): (&str, &str)) -> Result<OnlinePlan> {
        let declared = Declared::read(self.0, sql, table)?;
        let creation = declared.creation()?;
        self.0.as_engine(|| {
            self.unset("refused")?;
            self.check_schema(table)?;
            let mut rebuild = Rebuild::begin(self.0, &creation)?;
            declared.add_indexes(&mut rebuild)?;
            let new = Shape::of(self.0.raw(), SHADOW)?;
            rebuild.plan(&new, declared.select)
        })
    }

    /// Notes that rows cannot be in the new table, until it is resumed.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn note_refused(self, rows: &str) -> Result<()> {
        self.0.as_engine(|| self.set("refused", rows))
    }

    /// Copies up to `most` rows that have changed, and, if there are fewer, as many others. Rows
    /// that cannot be in the new table are left as changed ones, and so are those in `left`;
    /// without that, they are an error.
    ///
    /// # Errors
    /// `SQLITE_CONSTRAINT` with the rows that cannot be in the new table; `SQLITE_AUTH` when the
    /// table has changed; those of SQLite. What the step has done is to be undone then.
    pub fn step(self, plan: &OnlinePlan, most: u32, left: Option<&BTreeSet<i64>>) -> Result<Step> {
        self.0.as_engine(|| {
            self.check_schema(&plan.table)?;
            let raw = self.0.raw();
            let from: Option<i64> = self.get("from")?;
            let schema = schema_number(raw)?;
            let mut step = Step { is_copied: from.is_none(), schema, ..Step::default() };
            // Those behind it are copied with all others.
            let before = from.map_or_else(String::new, |it| format!(" AND key < {it}"));
            let dirty = dirty(left);
            let unfit = if left.is_some() { Unfit::Left } else { Unfit::Refused };
            let last = format!("{dirty}{before} ORDER BY key LIMIT 1 OFFSET {most} - 1");
            let nth = raw.query_row(&last, (), |row| row.get::<_, i64>(0)).optional()?;
            step.is_behind = nth.is_some();
            // One bound: of two, SQLite may search by the wider one, through all that have changed.
            let bound = nth.map_or(before, |nth| format!(" AND key <= {nth}"));
            let dirty = dirty + &bound;
            (step.rows, step.left) = self.copy_dirty(plan, &dirty, unfit)?;
            let Some(from) = from.filter(|_| !step.is_behind) else { return Ok(step) };
            let to = plan.nth(raw, from, most)?;
            let only = |key: &str| format!("{key} >= {from} AND {key} <= {to}");
            let (copied, refused) = plan.copy(self.0, &only, unfit)?;
            raw.execute(&format!("DELETE FROM main.{DIRTY} WHERE {}", only("key")), ())?;
            self.note_dirty(&refused)?;
            step.left.extend(refused);
            let next = to.checked_add(1).filter(|_| copied > 0);
            step.rows += copied;
            step.is_copied = next.is_none();
            let rows = self.get::<i64>("rows")?.unwrap_or(0).saturating_add_unsigned(copied);
            self.set("rows", rows)?;
            match next {
                Some(next) => self.set("from", next)?,
                None => self.unset("from")?,
            }
            Ok(step)
        })
    }

    /// Copies those of the rows that have changed whose keys `dirty` gives; gives how many there
    /// are, and which of them were left.
    fn copy_dirty(self, plan: &OnlinePlan, dirty: &str, unfit: Unfit) -> Result<(u64, Vec<i64>)> {
        let raw = self.0.raw();
        if !raw.prepare(dirty)?.exists(())? {
            return Ok((0, Vec::new()));
        }
        let only = |key: &str| format!("{key} IN ({dirty})");
        let clear = |keys: &str| {
            raw.execute(&format!("DELETE FROM main.{DIRTY} WHERE key IN ({keys})"), ())
        };
        let updated = plan.update(raw, &only(&quoted(&plan.key)))?;
        for keys in updated.chunks(KEYS) {
            clear(&list(keys))?;
        }
        let (_, left) = plan.copy(self.0, &only, unfit)?;
        let count = updated.len() + clear(dirty)?;
        self.note_dirty(&left)?;
        Ok((count as u64, left))
    }

    fn note_dirty(self, keys: &[i64]) -> Result<()> {
        let sql = format!("INSERT INTO main.{DIRTY} VALUES (?1) ON CONFLICT DO NOTHING");
        let mut note = self.0.raw().prepare(&sql)?;
        keys.iter().try_for_each(|key| note.execute([key]).map(drop))
    }

    /// Compares up to `most` rows of both tables whose keys are `from` or more, but those that have
    /// changed and are still to be copied; gives the key to go on with. To be called when all rows
    /// are copied, in a transaction that sees one moment.
    ///
    /// # Errors
    /// `SQLITE_CORRUPT` with the first row that is not as it shall be; those of SQLite.
    pub fn verify(self, plan: &OnlinePlan, from: i64, most: u32) -> Result<Option<i64>> {
        let (raw, key) = (self.0.raw(), quoted(&plan.key));
        self.0.as_engine(|| {
            let nth = plan.nth(raw, from, most)?;
            let behind = format!("SELECT 1 FROM main.{} WHERE {key} > {nth}", quoted(&plan.table));
            let goes_on = raw.prepare(&behind)?.exists(())?;
            let to = if goes_on { nth } else { i64::MAX };
            let only = format!(
                " WHERE {key} >= {from} AND {key} <= {to} AND {key} NOT IN (SELECT key FROM \
                 main.{DIRTY})"
            );
            // The sign takes the old column's affinity away, so that it gets the new one's.
            let differs = plan.fill.targets.iter().enumerate().map(|(at, target)| {
                format!("new.{} COLLATE BINARY IS NOT +old.c{at}", quoted(target))
            });
            // By groups: SQLite takes no more than 1,000 in a row.
            let differs: Vec<_> = differs.collect();
            let differs = differs.chunks(100).map(|some| format!("({})", some.join(" OR ")));
            let at = plan.fill.key[0];
            let find = format!(
                "SELECT old.c{at} FROM ({}) AS old LEFT JOIN main.{SHADOW} AS new ON new.{key} = \
                 old.c{at} WHERE new.{key} IS NULL OR {}",
                plan.fill.source(&only),
                differs.collect::<Vec<_>>().join(" OR ")
            );
            let found = raw.query_row(&find, (), |row| row.get::<_, i64>(0)).optional()?;
            let counts = format!(
                "SELECT (SELECT count(*) FROM main.{}{only}), (SELECT count(*) FROM \
                 main.{SHADOW}{only})",
                quoted(&plan.table)
            );
            let of = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
            let (old, new) = raw.query_row(&counts, (), of)?;
            let what = match found {
                Some(row) => format!("the row {} {row} is another one", plan.key),
                None if old != new => format!("{old} rows from {from} to {to} became {new}"),
                None => return Ok(to.checked_add(1).filter(|_| goes_on)),
            };
            let text = format!(
                "the copy of {} is not what it shall be: {what}; a change has gone past the \
                 triggers that note it, or a SELECT does not always give the same for the same \
                 row; abort the rebuild, the table is as it was",
                plan.table
            );
            Err(failure(ffi::SQLITE_CORRUPT, text))
        })
    }

    /// Puts the new table in the place of the old one, if all rows are copied, at most `most` have
    /// changed since, and the schema still has the number `schema`: another schema can have hidden
    /// changes from the triggers while rows were compared. Tells whether it did.
    ///
    /// # Errors
    /// As [`Online::step`], and as [`Online::begin`] for what works no more.
    pub fn swap(
        self,
        plan: &OnlinePlan,
        (sql, table): (&str, &str),
        (most, schema): (u32, i64),
    ) -> Result<bool> {
        let declared = Declared::read(self.0, sql, table)?;
        let creation = declared.creation()?;
        let raw = self.0.raw();
        let is_ready = self.0.as_engine(|| {
            self.check_schema(&plan.table)?;
            let count =
                format!("SELECT count(*) FROM (SELECT 1 FROM main.{DIRTY} LIMIT {most} + 1)");
            let changed: u32 = raw.query_row(&count, (), |row| row.get(0))?;
            let is_copied = self.get::<i64>("from")?.is_none();
            Ok::<_, rusqlite::Error>(is_copied && changed <= most && schema_number(raw)? == schema)
        })?;
        if !is_ready {
            return Ok(false);
        }
        self.0.rebuilding(|| {
            self.copy_dirty(plan, &dirty(None), Unfit::Refused)?;
            let left = raw.prepare(&format!("SELECT 1 FROM main.{DIRTY}"))?.exists(())?;
            assert!(!left, "a row that has changed is not copied");
            self.drop_attached()?;
            let mut rebuild = Rebuild::begin(self.0, &creation)?;
            declared.add_indexes(&mut rebuild)?;
            let new = Shape::of(raw, SHADOW)?;
            rebuild.exchange(&new)?;
            rebuild.look_at_what_hangs_on_it(&new)?;
            rebuild.faults_online()?;
            self.set("removing", 1)?;
            self.note_objects()
        })?;
        Ok(true)
    }

    /// Ends the one that is under way, also where another program has dropped or renamed something
    /// of it. [`Online::clean`] deletes what it has made.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn abort(self) -> Result<()> {
        let [.., state, _] = names::DEFINITIONS;
        self.0.rebuilding(|| {
            self.drop_attached()?;
            let make = state.replacen("TABLE", "TABLE IF NOT EXISTS", 1);
            self.0.raw().execute_batch(&make)?;
            self.set("removing", 1)?;
            self.note_objects()
        })
    }

    /// Deletes up to `most` rows that are left over by a swap or an abort, and in the end the
    /// tables that they were in; tells whether nothing is left. Another program may have dropped
    /// or renamed some of that.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn clean(self, most: u32) -> Result<bool> {
        let raw = self.0.raw();
        let delete = |table: &str, key: &str| {
            let key = quoted(key);
            let sql = format!(
                "DELETE FROM main.{table} WHERE {key} <= coalesce((SELECT {key} FROM main.{table} \
                 ORDER BY {key} LIMIT 1 OFFSET {most} - 1), {})",
                i64::MAX
            );
            match raw.execute(&sql, ()) {
                Err(error) if is_missing(&error) => Ok(true),
                // A generated column of a STRICT table may have a wrong type: they go with their
                // table, however long that takes.
                Err(error) if is_of_row(&error) => Ok(true),
                deleted => Ok::<_, rusqlite::Error>(deleted? < most as usize),
            }
        };
        let is_empty = self.0.as_engine(|| {
            let key = Shape::of(raw, SHADOW)?.rowid;
            let is_empty = key.map_or(Ok(true), |key| delete(SHADOW, &key))?;
            Ok::<_, rusqlite::Error>(is_empty && delete(DIRTY, "key")?)
        })?;
        if is_empty {
            self.0.rebuilding(|| {
                self.drop_attached()?;
                let drop = |it: &&str| format!("DROP TABLE IF EXISTS main.{it};");
                raw.execute_batch(&[SHADOW, DIRTY, REBUILD].iter().map(drop).collect::<String>())
            })?;
        }
        Ok(is_empty)
    }

    /// Drops all triggers and indexes that are ours by their names, but the indexes of the copy,
    /// which go with its rows. If another program has renamed the copy, they are on that.
    fn drop_attached(self) -> Result<()> {
        let raw = self.0.raw();
        let sql = "SELECT format('DROP %s main.\"%w\"', type, name) FROM main.sqlite_schema WHERE \
                   lower(name) GLOB 'monolite_rebuild_*' AND (type = 'trigger' OR type = 'index' \
                   AND tbl_name <> ?1)";
        let drops = all(raw, sql, [SHADOW], |row| row.get::<_, String>(0))?;
        drops.iter().try_for_each(|sql| raw.execute_batch(sql))
    }

    /// What must stay as it is: the table, its indexes and triggers, and all that is ours. The
    /// indexes have numbers by their order.
    fn schema(self, table: &str) -> Result<String> {
        let sql = "SELECT coalesce(group_concat(sql, ';'), '') FROM (SELECT sql FROM \
                   main.sqlite_schema WHERE tbl_name = ?1 COLLATE NOCASE AND type <> 'view' \
                   OR lower(name) GLOB 'monolite_rebuild*' ORDER BY type, \
                   iif(type = 'index', rowid, name))";
        self.0.raw().query_row(sql, [table], |row| row.get(0))
    }

    fn obstacle(self, table: &str) -> Result<Option<String>> {
        let is_same = self.get::<String>("schema")? == Some(self.schema(table)?);
        Ok((!is_same).then(|| {
            format!(
                "{table}, an index or trigger of it or what the engine has made for it was changed \
                 while it is rebuilt online; the table has all its rows: abort the rebuild \
                 (Migrations::abort, or monolite migrate abort), and begin it again"
            )
        }))
    }

    fn check_schema(self, table: &str) -> Result<()> {
        refuse(self.obstacle(table)?)
    }

    fn note_objects(self) -> Result<()> {
        let raw = self.0.raw();
        raw.execute(&format!("DELETE FROM main.{REBUILD} WHERE name GLOB 'object *'"), ())?;
        let note = format!(
            "INSERT INTO main.{REBUILD} SELECT 'object ' || name, sql FROM main.sqlite_schema \
                WHERE \
             lower(name) GLOB '{SHADOW}*' AND name NOT IN ('{REBUILD}', '{DIRTY}') AND sql IS NOT \
             NULL"
        );
        raw.execute(&note, ()).map(drop)
    }

    fn get<T: FromSql>(self, name: &str) -> Result<Option<T>> {
        let sql = format!("SELECT value FROM main.{REBUILD} WHERE name = ?1");
        match self.0.raw().query_row(&sql, [name], |row| row.get(0)).optional() {
            Err(error) if is_missing(&error) => Ok(None),
            found => found,
        }
    }

    fn set(self, name: &str, value: impl ToSql) -> Result<()> {
        let sql = format!("INSERT OR REPLACE INTO main.{REBUILD} VALUES (?1, ?2)");
        self.0.raw().execute(&sql, rusqlite::params![name, value]).map(drop)
    }

    fn unset(self, name: &str) -> Result<()> {
        let sql = format!("DELETE FROM main.{REBUILD} WHERE name = ?1");
        self.0.raw().execute(&sql, [name]).map(drop)
    }
}
