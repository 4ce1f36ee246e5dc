//! Owns what the generator knows of the live schema: enough to write statements that mean
//! something. It is read from the oracle after each committed change, and followed by guesses while
//! a transaction is open.

use monolite::rusqlite::{self, Connection};

use super::excuses::{is_engines_own, is_shadow};

#[derive(Clone, Debug, Default)]
pub(super) struct Schema {
    pub(super) tables: Vec<Table>,
    pub(super) indexes: Vec<Index>,
    pub(super) triggers: Vec<String>,
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
    ///
    /// # Errors
    /// SQLite's.
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
                "index" => schema.indexes.push(Index::load(plain, name, table)?),
                "trigger" => schema.triggers.push(name),
                _ => {
                    let kind = kind_of(&kind, &name, &sql);
                    if matches!(kind, Kind::Text | Kind::Boxes) {
                        virtual_tables.push(name.clone());
                    }
                    found.push((name, kind));
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

fn kind_of(kind: &str, name: &str, sql: &str) -> Kind {
    match kind {
        "view" => Kind::View,
        _ if sql.contains("fts5") && sql.starts_with("CREATE VIRTUAL") => Kind::Text,
        _ if sql.starts_with("CREATE VIRTUAL") => Kind::Boxes,
        _ if name.starts_with('c') => Kind::RandomValue,
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

impl Schema {
    /// Guesses what a statement does to the schema, if it succeeds.
    pub(super) fn follow(&mut self, sql: &str) {
        let words: Vec<&str> = sql.split_ascii_whitespace().collect();
        match *words.as_slice() {
            ["CREATE", "TABLE", ..] => self.follow_table(sql),
            ["CREATE", "INDEX", name, "ON", target, ..] => self.follow_index(name, target, false),
            ["CREATE", "UNIQUE", "INDEX", name, "ON", target, ..] => {
                self.follow_index(name, target, true);
            }
            ["DROP", "TABLE", name] => self.tables.retain(|table| table.name != name),
            ["DROP", "INDEX", name] => self.indexes.retain(|index| index.name != name),
            ["DROP", "TRIGGER", name] => self.triggers.retain(|trigger| trigger != name),
            ["ALTER", "TABLE", name, ref rest @ ..] => self.follow_alter(name, rest),
            _ => {}
        }
    }

    fn follow_table(&mut self, sql: &str) {
        let Some((head, body)) = sql.split_once('(') else { return };
        let Some(name) = head.split_ascii_whitespace().last() else { return };
        if self.table(name).is_some() || sql.starts_with("CREATE TABLE IF") {
            return;
        }
        let names = parts(body).into_iter().filter_map(|part| {
            let mut words = part.split([' ', ')']);
            let (name, type_name) = (words.next()?, words.next().unwrap_or_default());
            let is_name =
                name.len() <= 2 && name.starts_with(|sign: char| sign.is_ascii_lowercase());
            is_name.then(|| Column {
                name: name.into(),
                type_name: type_name.into(),
                is_key: part.contains("PRIMARY KEY"),
                is_generated: part.contains(" AS ("),
            })
        });
        let kind = if sql.contains("WITHOUT ROWID") { Kind::Keyed } else { Kind::Rows };
        let columns = names.collect();
        self.tables.push(Table { name: name.into(), kind, columns, rows: 0 });
    }

    fn follow_index(&mut self, name: &str, target: &str, is_unique: bool) {
        let (table, first) = target.split_once('(').unwrap_or((target, ""));
        let first = first.trim_end_matches([',', ')']).to_owned();
        let (name, table) = (name.to_owned(), table.to_owned());
        let columns = vec![first];
        self.indexes.push(Index { name, table, columns, is_unique, is_partial: false });
    }

    fn follow_alter(&mut self, name: &str, rest: &[&str]) {
        let Some(table) = self.tables.iter_mut().find(|table| table.name == name) else { return };
        match *rest {
            ["ADD", "COLUMN", column, ..] | ["ADD", column, ..] => {
                let type_name = rest.last().copied().unwrap_or_default().to_owned();
                let name = column.to_owned();
                let is_generated = rest.contains(&"AS");
                table.columns.push(Column { name, type_name, is_key: false, is_generated });
            }
            ["DROP", "COLUMN", column] => table.columns.retain(|it| it.name != column),
            ["RENAME", "TO", other] => other.clone_into(&mut table.name),
            ["RENAME", "COLUMN", old, "TO", new] | ["RENAME", old, "TO", new] => {
                for column in table.columns.iter_mut().filter(|it| it.name == old) {
                    new.clone_into(&mut column.name);
                }
            }
            _ => {}
        }
    }
}

/// What stands between the commas of a list, but for those in brackets.
fn parts(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, sign) in list.char_indices() {
        match sign {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[begin..at].trim_start());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[begin..].trim_start());
    parts
}
