//! Owns what the generator knows of the live schema: enough to write statements that mean
//! something. It is read from the oracle after each committed change, and from an empty copy while
//! a transaction is open.

use monolite::rusqlite::{self, Connection};

use super::asking::changes_schema;
use super::excuses::{is_engines_own, is_shadow};

#[derive(Clone, Debug, Default)]
pub(super) struct Schema {
    pub(super) tables: Vec<Table>,
    pub(super) indexes: Vec<Index>,
    pub(super) triggers: Vec<String>,
    /// What makes all of it.
    sqls: Vec<String>,
}

/// A table, or what can be queried like one.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) columns: Vec<Column>,
    /// About how many rows it has.
    pub(super) rows: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With rowids.
    Rows,
    /// `WITHOUT ROWID`.
    Keyed,
    View,
    /// FTS5.
    Text,
    /// R-tree.
    Boxes,
    /// Whose rows are left to a random number or time; it has productions of its own.
    RandomValue,
}

#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) type_name: String,
    pub(super) is_key: bool,
    pub(super) is_generated: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Index {
    pub(super) name: String,
    pub(super) table: String,
    /// The columns, where all of its terms are columns.
    pub(super) columns: Vec<String>,
    pub(super) is_unique: bool,
    pub(super) is_partial: bool,
}

impl Table {
    /// Whether rows can be put into it by ordinary statements.
    pub(super) fn is_stored(&self) -> bool {
        matches!(self.kind, Kind::Rows | Kind::Keyed)
    }

    /// The columns that a statement may set.
    pub(super) fn settable(&self) -> Vec<&Column> {
        self.columns.iter().filter(|column| !column.is_generated).collect()
    }
}

impl Schema {
    /// What `plain` holds.
    pub(super) fn load(plain: &Connection) -> rusqlite::Result<Schema> {
        let mut schema = Schema::default();
        let mut found: Vec<(String, Kind)> = Vec::new();
        let mut virtual_tables = Vec::new();
        let mut statement =
            plain.prepare("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (kind, name, table, sql): (String, String, String, String) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            match kind.as_str() {
                _ if is_engines_own(&name) || is_engines_own(&table) => {}
                _ if name.starts_with("sqlite_") && kind != "index" => {}
                "index" => {
                    schema.indexes.push(Index::load(plain, name, table)?);
                    schema.sqls.push(sql);
                }
                "trigger" => {
                    schema.triggers.push(name);
                    schema.sqls.push(sql);
                }
                _ => {
                    let kind = kind_of(&kind, &name, &sql);
                    if matches!(kind, Kind::Text | Kind::Boxes) {
                        virtual_tables.push(name.clone());
                    }
                    found.push((name, kind));
                    schema.sqls.push(sql);
                }
            }
        }
        found.retain(|(name, _)| !is_shadow(name, &virtual_tables));
        for (name, kind) in found {
            let columns = columns(plain, &name).unwrap_or_default();
            schema.tables.push(Table { name, kind, columns, rows: 0 });
        }
        schema.count_rows(plain);
        Ok(schema)
    }

    /// Looks how many rows each table has.
    pub(super) fn count_rows(&mut self, plain: &Connection) {
        for table in self.tables.iter_mut().filter(|table| table.kind != Kind::View) {
            let sql = format!("SELECT count(*) FROM \"{}\"", table.name);
            let rows = plain.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap_or(0);
            table.rows = rows.cast_unsigned();
        }
    }

    /// What it is once the changes of the schema in `sql` have run: they do, on an empty copy.
    pub(super) fn followed_by(&self, sql: &str) -> rusqlite::Result<Schema> {
        let copy = Connection::open_in_memory()?;
        for sql in &self.sqls {
            // Fails for what a virtual table has made.
            let _ = copy.execute_batch(sql);
        }
        sql.split(";\n")
            .filter(|sql| changes_schema(sql))
            .try_for_each(|sql| copy.execute_batch(sql))?;
        let mut schema = Schema::load(&copy)?;
        for table in &mut schema.tables {
            table.rows = self.table(&table.name).map_or(0, |before| before.rows);
        }
        Ok(schema)
    }

    pub(super) fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }
}

impl Index {
    fn load(plain: &Connection, name: String, table: String) -> rusqlite::Result<Index> {
        let mut columns = Vec::new();
        let mut statement = plain.prepare_cached("SELECT name FROM pragma_index_info(?1)")?;
        let mut rows = statement.query([&name])?;
        let mut are_columns = true;
        while let Some(row) = rows.next()? {
            match row.get::<_, Option<String>>(0)? {
                Some(column) => columns.push(column),
                None => are_columns = false,
            }
        }
        let sql = "SELECT \"unique\", partial FROM pragma_index_list(?1) WHERE name = ?2";
        let mut statement = plain.prepare_cached(sql)?;
        let (is_unique, is_partial) =
            statement.query_row([&table, &name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if !are_columns {
            columns.clear();
        }
        Ok(Index { name, table, columns, is_unique, is_partial })
    }
}

/// Whether this is a table whose rows are left to a random number or time.
pub(super) fn leaves_to_random(table: &str) -> bool {
    table.starts_with('c')
}

fn kind_of(kind: &str, name: &str, sql: &str) -> Kind {
    match kind {
        "view" => Kind::View,
        _ if sql.contains("fts5") && sql.starts_with("CREATE VIRTUAL") => Kind::Text,
        _ if sql.starts_with("CREATE VIRTUAL") => Kind::Boxes,
        _ if leaves_to_random(name) => Kind::RandomValue,
        _ if sql.contains("WITHOUT ROWID") => Kind::Keyed,
        _ => Kind::Rows,
    }
}

fn columns(plain: &Connection, table: &str) -> rusqlite::Result<Vec<Column>> {
    let sql = "SELECT name, type, pk, hidden FROM pragma_table_xinfo(?1)";
    let mut statement = plain.prepare_cached(sql)?;
    let mut rows = statement.query([table])?;
    let mut columns = Vec::new();
    while let Some(row) = rows.next()? {
        let (pk, hidden): (i64, i64) = (row.get(2)?, row.get(3)?);
        // A hidden column of a virtual table is none that a statement names.
        if hidden == 1 {
            continue;
        }
        let is_generated = hidden > 1;
        let (name, type_name) = (row.get(0)?, row.get(1)?);
        columns.push(Column { name, type_name, is_key: pk > 0, is_generated });
    }
    Ok(columns)
}
