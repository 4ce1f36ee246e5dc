//! Owns what must be known of a table for its keys to be given, and what follows from that: the
//! second form of a statement, and the questions about its keys.

use rusqlite::{OptionalExtension as _, Result};

use super::insert::{Insert, Key, leaves_new_rows_alone};
use crate::names::{self, quoted};

/// The names of a key that has none, where no column has them.
const HIDDEN: [&str; 3] = ["rowid", "_rowid_", "oid"];

/// An `INSERT` in its second form, and its table.
#[derive(Debug)]
pub(crate) struct Second {
    /// As the schema has its name.
    pub(crate) table: String,
    pub(crate) text: String,
    /// Rows that it inserts at most.
    pub(crate) rows: u32,
    /// Whether the table has `AUTOINCREMENT`.
    pub(crate) never_reuses: bool,
    /// Asks for the largest rowid that SQLite heeds when it chooses the next.
    pub(crate) largest: String,
    /// Asks whether there is a row from `?1` to `?2`.
    pub(crate) is_taken: String,
}

impl Second {
    /// The second form of `sql` with the schema that `connection` has in memory; `None` when it has
    /// none.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn of(connection: &rusqlite::Connection, sql: &str) -> Result<Option<Second>> {
        let Some(insert) = Insert::read(sql).filter(|it| !names::is_ours(&it.table)) else {
            return Ok(None);
        };
        let Some(table) = Table::of(connection, &insert.table)? else { return Ok(None) };
        if !table.lets_keys_be_given(&insert) {
            return Ok(None);
        }
        let names: Vec<&str> = table.key.iter().map(String::as_str).collect();
        let key = Key { names: &names, columns: &table.columns };
        let (text, rows) = (insert.with_key(sql, key), u32::try_from(insert.rows()));
        Ok(text.zip(rows.ok()).map(|(text, rows)| table.second(text, rows)))
    }
}

/// What is to be known of a table.
pub(crate) struct Table {
    name: String,
    /// The columns that get a value where none is named.
    columns: Vec<String>,
    /// The names of its key.
    pub(crate) key: Vec<String>,
    pub(crate) is_autoincrement: bool,
    /// Definitions of its triggers.
    triggers: Vec<String>,
    /// Whether there are triggers in the schema.
    has_triggers_somewhere: bool,
}

impl Table {
    /// The table `name`; `None` when it is none with rowids of its own.
    pub(crate) fn of(connection: &rusqlite::Connection, name: &str) -> Result<Option<Table>> {
        // Not `pragma_table_list`, which has SQLite look at every view there is.
        let sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND rootpage <> 0 AND \
                   lower(name) = lower(?1)";
        let name = connection.query_row(sql, [name], |row| row.get::<_, String>(0)).optional()?;
        let Some(name) = name else { return Ok(None) };
        if names::begins(&name, "sqlite_") {
            return Ok(None);
        }
        let mut ask = connection.prepare(
            "SELECT name, type, pk, hidden FROM pragma_table_xinfo(?1, 'main') ORDER BY cid",
        )?;
        let columns = ask
            .query_map([&name], |row| {
                Ok(Column {
                    name: row.get(0)?,
                    is_integer: row.get::<_, String>(1)?.eq_ignore_ascii_case("INTEGER"),
                    is_key: row.get(2)?,
                    is_hidden: row.get::<_, i64>(3)? != 0,
                })
            })?
            .collect::<Result<Vec<Column>>>()?;
        // `INTEGER PRIMARY KEY DESC` is no rowid and has an index.
        let sql = "SELECT EXISTS(SELECT 1 FROM pragma_index_list(?1, 'main') WHERE origin = 'pk')";
        let has_key_index: bool = connection.query_row(sql, [&name], |row| row.get(0))?;
        let mut keys = columns.iter().filter(|column| column.is_key);
        let alias = match (keys.next(), keys.next()) {
            (Some(key), None) if key.is_integer && !has_key_index => Some(key.name.clone()),
            _ => None,
        };
        let is_autoincrement = match &alias {
            Some(column) => {
                connection.column_metadata(Some("main"), name.as_str(), column.as_str())?.4
            }
            None => false,
        };
        let is_column = |name: &&str| columns.iter().any(|it| it.name.eq_ignore_ascii_case(name));
        let hidden: Vec<_> =
            HIDDEN.into_iter().filter(|name| !is_column(name)).map(str::to_owned).collect();
        if let Some(rowid) = hidden.first()
            && connection.prepare(&format!("SELECT {rowid} FROM main.{}", quoted(&name))).is_err()
        {
            // A table WITHOUT ROWID; one with a column of each of these names has an index.
            return Ok(None);
        }
        let key = alias.into_iter().chain(hidden).collect();
        let mut ask = connection.prepare(
            "SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND lower(tbl_name) = \
             lower(?1) AND lower(name) NOT GLOB 'monolite_*'",
        )?;
        let triggers = ask.query_map([&name], |row| row.get(0))?.collect::<Result<_>>()?;
        // Those of an online rebuild heed no key.
        let sql = "SELECT EXISTS(SELECT 1 FROM main.sqlite_schema WHERE type = 'trigger' AND \
                   lower(name) NOT GLOB 'monolite_*')";
        let has_triggers_somewhere = connection.query_row(sql, [], |row| row.get(0))?;
        let columns = columns.into_iter().filter(|it| !it.is_hidden).map(|it| it.name).collect();
        let table =
            Table { name, columns, key, is_autoincrement, triggers, has_triggers_somewhere };
        Ok(Some(table))
    }

    /// Whether nothing but the chosen numbers is another thing when `insert` gets them from here.
    ///
    /// A trigger that runs before sees the number, and -1 where SQLite is to choose. One that
    /// inserts into the table itself has SQLite choose a number that the next row of the statement
    /// may have been given, or takes the place of what a `REPLACE` has found.
    fn lets_keys_be_given(&self, insert: &Insert) -> bool {
        let is_safe_with_triggers = insert.rows() == 1 || self.triggers.is_empty();
        let is_safe_with_others = !insert.may_change_others || !self.has_triggers_somewhere;
        self.triggers.iter().all(|it| leaves_new_rows_alone(it))
            && is_safe_with_triggers
            && is_safe_with_others
            && !self.key.is_empty()
    }

    fn second(self, text: String, rows: u32) -> Second {
        let (table, key) = (quoted(&self.name), quoted(&self.key[0]));
        let largest = if self.is_autoincrement {
            let name = self.name.replace('\'', "''");
            format!(
                "SELECT max(coalesce((SELECT max({key}) FROM main.{table}), 0), coalesce((SELECT \
                 max(CAST(seq AS INTEGER)) FROM main.sqlite_sequence WHERE name = '{name}'), 0))"
            )
        } else {
            format!("SELECT max({key}) FROM main.{table}")
        };
        let is_taken =
            format!("SELECT EXISTS(SELECT 1 FROM main.{table} WHERE {key} BETWEEN ?1 AND ?2)");
        Second {
            table: self.name,
            text,
            rows,
            never_reuses: self.is_autoincrement,
            largest,
            is_taken,
        }
    }
}

/// A column of a table.
struct Column {
    name: String,
    is_integer: bool,
    is_key: bool,
    is_hidden: bool,
}
