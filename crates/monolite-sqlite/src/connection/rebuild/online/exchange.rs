//! Owns the exchange of both tables in the schema.
//!
//! # Invariants
//! - An index that is *kept* goes from the old table to the new one with its entries. An entry has
//!   the values of some columns, and the key. Those are the same in both tables: the columns have
//!   the same type, the copy gets their values as they are and must store them as they are, the
//!   index compares them alike on both, and no row is dirty at the exchange.

use rusqlite::{Result, Row};

use super::super::attached::{Defined, Shape, all};
use super::super::{Creation, Rebuild, SHADOW, text};

impl Rebuild<'_> {
    /// Drops those indexes of the new table that the old one has with the same entries: they are
    /// kept.
    pub(super) fn keep_indexes(&self, new: &Shape, select: Option<&str>) -> Result<()> {
        let raw = self.connection.raw();
        let same = self.same_columns(new, select);
        let is_same = |name: &str| same.iter().any(|it| it.eq_ignore_ascii_case(name));
        let entries = |table: &str, index: &str| {
            let sql = "SELECT lower(part.name), part.\"desc\", part.coll FROM \
                       pragma_index_list(?1, 'main') AS list, \
                       pragma_index_xinfo(list.name, 'main') AS part WHERE list.name = ?2 AND \
                       NOT list.partial AND part.key ORDER BY part.seqno";
            let of = |row: &Row<'_>| {
                let name: Option<String> = row.get(0)?;
                Ok((name, row.get::<_, bool>(1)?, row.get::<_, String>(2)?))
            };
            all(raw, sql, [table, index], of)
        };
        for (at, index) in self.attached.indexes[..self.carried].iter().enumerate() {
            let copy = format!("{SHADOW}_{at}");
            let (old, new) = (entries(&self.table, &index.name)?, entries(SHADOW, &copy)?);
            let is_of_same = old.iter().all(|(name, ..)| name.as_deref().is_some_and(&is_same));
            if !old.is_empty() && old == new && is_of_same {
                self.execute(&format!("DROP INDEX main.{copy}"))?;
            }
        }
        Ok(())
    }

    /// Sees what will not work when the tables are exchanged, and exchanges them again.
    pub(super) fn try_to_swap(&mut self, new: &Shape) -> Result<()> {
        let raw = self.connection.raw();
        raw.execute_batch("SAVEPOINT monolite_try")?;
        let tried = self.exchange(new).and_then(|()| self.look_at_what_hangs_on_it(new));
        raw.execute_batch("ROLLBACK TO monolite_try; RELEASE monolite_try")?;
        raw.execute_batch("PRAGMA writable_schema = RESET")?;
        tried?;
        self.faults_online()
    }

    /// Exchanges the new table and the old one in the schema, with all indexes; the triggers are
    /// those of the new one then.
    pub(super) fn exchange(&self, new: &Shape) -> Result<()> {
        let raw = self.connection.raw();
        let last = |name: &str| match raw
            .prepare("SELECT max(seq) FROM main.sqlite_sequence WHERE name = ?1")
        {
            Ok(mut find) => find.query_row([name], |row| row.get::<_, Option<i64>>(0)),
            // No table has AUTOINCREMENT.
            Err(_) => Ok(None),
        };
        let before = last(&self.table)?.max(last(SHADOW)?);
        let entries = "SELECT type, name, tbl_name = ?2, rootpage, sql FROM main.sqlite_schema \
            WHERE \
                       tbl_name COLLATE NOCASE IN (?1, ?2) AND type <> 'view' ORDER BY rowid";
        let of = |row: &Row<'_>| {
            Ok(Entry {
                kind: row.get(0)?,
                name: row.get(1)?,
                is_new: row.get(2)?,
                root: row.get(3)?,
                sql: row.get(4)?,
            })
        };
        let entries = all(raw, entries, [self.table.as_str(), SHADOW], of)?;
        let table = self.creation.table.as_str();
        let is_kept = |it: &Entry| {
            let is_copied = |at| entries.iter().any(|it| it.is_new && self.number_of(it) == at);
            let at = self.number_of(it).filter(|at| !it.is_new && *at < self.carried);
            at.is_some_and(|at| !self.failed.contains(&at)) && !is_copied(at)
        };
        self.with_writable_schema(|| {
            let sql =
                "DELETE FROM main.sqlite_schema WHERE tbl_name COLLATE NOCASE IN (?1, ?2) AND \
                    type <> 'view'";
            raw.execute(sql, [self.table.as_str(), SHADOW])?;
            let mut write =
                raw.prepare("INSERT INTO main.sqlite_schema VALUES (?1, ?2, ?3, ?4, ?5)")?;
            // Each behind its table: SQLite reads them in order.
            for kind in ["table", "index", "trigger"] {
                let mut some: Vec<_> = entries.iter().filter(|it| it.kind == kind).collect();
                // An index that is kept stays among the others: SQLite may choose by their order.
                some.sort_by_key(|it| self.number_of(it));
                for it in some {
                    let stays = kind == "trigger" || is_kept(it);
                    let to = if it.is_new || stays { table } else { SHADOW };
                    let (name, sql) = match stays {
                        true => (it.name.clone(), it.sql.clone()),
                        false => self.exchanged(it),
                    };
                    write.execute((&it.kind, name, to, it.root, sql))?;
                }
            }
            Ok(())
        })?;
        if let Some(last) = before {
            let sql = "DELETE FROM main.sqlite_sequence WHERE name IN (?1, ?2)";
            raw.execute(sql, [self.table.as_str(), SHADOW])?;
            if new.is_autoincrement {
                let sql = "INSERT INTO main.sqlite_sequence(name, seq) VALUES (?1, ?2)";
                raw.execute(sql, (table, last))?;
            }
        }
        Ok(())
    }

    /// The name and the definition that an entry of the schema gets.
    fn exchanged(&self, entry: &Entry) -> (String, Option<String>) {
        let table = self.creation.table.as_str();
        let (from, to) = if entry.is_new { (SHADOW, table) } else { (&*self.table, SHADOW) };
        let Some(sql) = &entry.sql else {
            // One of UNIQUE or PRIMARY KEY.
            let number = entry.name.get("sqlite_autoindex_".len() + from.len()..).unwrap_or("");
            return (format!("sqlite_autoindex_{to}{number}"), None);
        };
        match (entry.kind.as_str(), entry.is_new) {
            ("table", true) => (table.into(), Some(self.creation.definition())),
            ("table", false) => {
                let old = Creation::read(sql).map_or_else(|| sql.clone(), |it| it.renamed(SHADOW));
                (SHADOW.into(), Some(text::without_references(&old)))
            }
            (_, is_new) => {
                let at = self.number_of(entry).expect("each index of either table has a number");
                if is_new {
                    let index = &self.attached.indexes[at];
                    return (index.name.clone(), Some(index.sql.clone()));
                }
                let name = format!("{SHADOW}_{at}");
                let sql = text::index_on(sql, &self.table, SHADOW, &name);
                (name, Some(sql))
            }
        }
    }

    /// Which of the indexes with a definition it is, or shall be.
    fn number_of(&self, entry: &Entry) -> Option<usize> {
        if entry.kind != "index" {
            return None;
        }
        if entry.is_new {
            return entry.name.strip_prefix(SHADOW)?.strip_prefix('_')?.parse().ok();
        }
        self.attached.indexes.iter().position(|it: &Defined| it.name == entry.name)
    }
}

/// An entry in the schema.
struct Entry {
    kind: String,
    name: String,
    is_new: bool,
    root: i64,
    sql: Option<String>,
}
