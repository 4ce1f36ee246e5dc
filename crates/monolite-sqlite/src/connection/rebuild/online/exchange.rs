//! Owns the exchange of both tables in the schema.

use rusqlite::{Result, Row};

use super::super::attached::{Defined, Shape, all};
use super::super::{Creation, Rebuild, SHADOW, text};

impl Rebuild<'_> {
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
        self.with_writable_schema(|| {
            let sql =
                "DELETE FROM main.sqlite_schema WHERE tbl_name COLLATE NOCASE IN (?1, ?2) AND \
                    type <> 'view'";
            raw.execute(sql, [self.table.as_str(), SHADOW])?;
            let mut write =
                raw.prepare("INSERT INTO main.sqlite_schema VALUES (?1, ?2, ?3, ?4, ?5)")?;
            // Each behind its table: SQLite reads them in order.
            for kind in ["table", "index", "trigger"] {
                for it in entries.iter().filter(|it| it.kind == kind) {
                    let to = if it.is_new || kind == "trigger" { table } else { SHADOW };
                    let (name, sql) = self.exchanged(it);
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
            ("index", true) => {
                let at = entry.name[SHADOW.len()..].trim_start_matches('_').parse::<usize>();
                let index = &self.attached.indexes[at.expect("an index of ours has a number")];
                (index.name.clone(), Some(index.sql.clone()))
            }
            ("index", false) => {
                let is_it = |it: &Defined| it.name == entry.name;
                let at = self.attached.indexes.iter().position(is_it);
                let name = format!("{SHADOW}_{}", at.expect("each index of the table is known"));
                let sql = text::index_on(sql, &self.table, SHADOW, &name);
                (name, Some(sql))
            }
            _ => (entry.name.clone(), Some(sql.clone())),
        }
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
