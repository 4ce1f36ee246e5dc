//! Owns what a database's schema is, as SQLite itself tells it; what no pragma tells comes from
//! [`clauses`].

use super::clauses::{self, Clauses, Reference};
use super::translate::quoted;
use anyhow::Result;
use monolite::{ReadTx, Row, rusqlite};

/// Everything in a database.
pub(super) struct Schema {
    pub(super) tables: Vec<Table>,
    /// Names, texts and columns, in the order in which they were made.
    pub(super) views: Vec<View>,
    /// Triggers, and the tables that they are of.
    pub(super) triggers: Vec<(String, String)>,
    /// Virtual tables, and their modules.
    pub(super) virtual_tables: Vec<(String, String)>,
}

pub(super) struct View {
    pub(super) name: String,
    pub(super) sql: String,
    /// Or why SQLite cannot read it here: a table or a function of the application is missing.
    pub(super) columns: Result<Vec<String>, String>,
}

/// A table with rows of its own.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) is_strict: bool,
    pub(super) has_rowid: bool,
    pub(super) columns: Vec<Column>,
    /// The columns of the primary key, in its order.
    pub(super) primary: Vec<usize>,
    /// The primary key's collations, where it has an index.
    pub(super) primary_index: Option<Index>,
    /// The column that is the rowid.
    pub(super) rowid: Option<usize>,
    /// The last number that `AUTOINCREMENT` gave.
    pub(super) sequence: Option<i64>,
    pub(super) keys: Vec<ForeignKey>,
    pub(super) indexes: Vec<Index>,
    pub(super) clauses: Clauses,
}

pub(super) struct Column {
    pub(super) name: String,
    pub(super) declared: String,
    pub(super) is_not_null: bool,
    pub(super) default: Option<String>,
    pub(super) is_generated: bool,
    pub(super) is_virtual: bool,
}

pub(super) struct ForeignKey {
    pub(super) parent: String,
    pub(super) columns: Vec<String>,
    /// Those of the parent; none stands for its primary key.
    pub(super) parents: Vec<String>,
    pub(super) on_update: String,
    pub(super) on_delete: String,
    pub(super) reference: Reference,
}

pub(super) struct Index {
    pub(super) name: String,
    pub(super) is_unique: bool,
    /// Whether it is that of a constraint in the table's text.
    pub(super) is_constraint: bool,
    pub(super) parts: Vec<Part>,
    /// The condition of a partial index.
    pub(super) condition: Option<String>,
}

pub(super) struct Part {
    /// A column's number, or the text of an expression.
    pub(super) of: Result<usize, String>,
    pub(super) is_descending: bool,
    pub(super) collation: String,
}

impl Table {
    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name))
    }
}

/// All but SQLite's own, the engine's, and those of `--follow`.
const TABLES: &str = "SELECT l.name, l.type, l.strict, l.wr, s.sql FROM pragma_table_list l \
    JOIN sqlite_schema s ON s.name = l.name AND s.type IN ('table', 'view') \
    WHERE l.schema = 'main' AND l.type <> 'shadow' AND l.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
    AND l.name NOT LIKE 'monolite\\_%' ESCAPE '\\' AND l.name NOT GLOB 'monolite export *' \
    ORDER BY s.rowid";

/// Reads it.
pub(super) fn read(tx: &ReadTx<'_>) -> Result<Schema> {
    let mut schema = Schema {
        tables: Vec::new(),
        views: Vec::new(),
        triggers: tx.query_map(
            "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger' \
             AND name NOT GLOB 'monolite export *' AND name NOT GLOB 'monolite_*' ORDER BY rowid",
            (),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?,
        virtual_tables: Vec::new(),
    };
    let of = |row: &Row<'_>| {
        let kind: String = row.get(1)?;
        let flags: (bool, bool) = (row.get(2)?, row.get(3)?);
        Ok((row.get::<_, String>(0)?, kind, flags, row.get::<_, String>(4)?))
    };
    for (name, kind, (is_strict, is_without_rowid), sql) in tx.query_map(TABLES, (), of)? {
        match kind.as_str() {
            "view" => {
                let columns = columns(tx, &name).map_err(|error| error.message().to_owned());
                let columns = columns.map(|(all, _)| all.into_iter().map(|it| it.name).collect());
                schema.views.push(View { columns, name, sql });
            }
            "virtual" => schema.virtual_tables.push((name, clauses::module(&sql))),
            _ => schema.tables.push(table(tx, name, is_strict, !is_without_rowid, &sql)?),
        }
    }
    Ok(schema)
}

fn table(
    tx: &ReadTx<'_>,
    name: String,
    is_strict: bool,
    has_rowid: bool,
    sql: &str,
) -> Result<Table> {
    let clauses = clauses::of_table(sql);
    let (columns, primary) = columns(tx, &name)?;
    let mut indexes = indexes(tx, &name)?;
    let at = indexes.iter().position(|(_, origin)| origin == "pk");
    let primary_index = at.map(|at| indexes.remove(at).0);
    let is_alias = has_rowid && primary.len() == 1 && primary_index.is_none();
    let sequence = match clauses.is_autoincrement {
        true => {
            tx.query_optional("SELECT seq FROM sqlite_sequence WHERE name = ?1", [&name], |row| {
                row.get(0)
            })?
        }
        false => None,
    };
    Ok(Table {
        keys: keys(tx, &name, &clauses)?,
        indexes: indexes.into_iter().map(|(index, _)| index).collect(),
        rowid: is_alias.then(|| primary[0]),
        name,
        is_strict,
        has_rowid,
        columns,
        primary,
        primary_index,
        sequence,
        clauses,
    })
}

fn columns(tx: &ReadTx<'_>, table: &str) -> monolite::Result<(Vec<Column>, Vec<usize>)> {
    let sql = "SELECT name, type, \"notnull\", dflt_value, hidden, pk FROM pragma_table_xinfo(?1)";
    let of = |row: &Row<'_>| {
        let hidden: i64 = row.get(4)?;
        let column = Column {
            name: row.get(0)?,
            declared: row.get(1)?,
            is_not_null: row.get(2)?,
            default: row.get(3)?,
            is_generated: hidden >= 2,
            is_virtual: hidden == 2,
        };
        Ok((column, row.get::<_, u16>(5)?))
    };
    let found = tx.query_map(sql, [table], of)?;
    let mut primary: Vec<(u16, usize)> =
        found.iter().enumerate().map(|(at, (_, place))| (*place, at)).collect();
    primary.retain(|(place, _)| *place > 0);
    primary.sort_unstable();
    let primary = primary.into_iter().map(|(_, at)| at).collect();
    Ok((found.into_iter().map(|(column, _)| column).collect(), primary))
}

/// The indexes, and where each is from.
fn indexes(tx: &ReadTx<'_>, table: &str) -> Result<Vec<(Index, String)>> {
    let sql = "SELECT i.name, i.\"unique\", i.origin, s.sql FROM pragma_index_list(?1) i \
               LEFT JOIN sqlite_schema s ON s.name = i.name AND s.type = 'index' \
               ORDER BY i.seq DESC";
    let of = |row: &Row<'_>| {
        Ok((row.get::<_, String>(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get(3)?))
    };
    let listed: Vec<(String, bool, String, Option<String>)> = tx.query_map(sql, [table], of)?;
    let mut indexes = Vec::new();
    for (name, is_unique, origin, sql) in listed {
        let (expressions, condition) = sql.as_deref().map(clauses::of_index).unwrap_or_default();
        let part = |row: &Row<'_>| -> rusqlite::Result<_> {
            Ok((row.get::<_, u16>(0)?, row.get::<_, i64>(1)?, row.get(2)?, row.get(3)?))
        };
        let sql = "SELECT seqno, cid, \"desc\", coll FROM pragma_index_xinfo(?1) WHERE key";
        let parts = tx.query_map(sql, [&name], part)?.into_iter();
        let parts = parts.map(|(at, column, is_descending, collation)| Part {
            of: usize::try_from(column)
                .map_err(|_| expressions.get(usize::from(at)).cloned().unwrap_or_default()),
            is_descending,
            collation,
        });
        let parts = parts.collect();
        let is_constraint = origin != "c";
        indexes.push((Index { name, is_unique, is_constraint, parts, condition }, origin));
    }
    Ok(indexes)
}

fn keys(tx: &ReadTx<'_>, table: &str, clauses: &Clauses) -> Result<Vec<ForeignKey>> {
    let sql = "SELECT id, \"table\", \"from\", \"to\", on_update, on_delete \
               FROM pragma_foreign_key_list(?1) ORDER BY id DESC, seq";
    let of = |row: &Row<'_>| {
        Ok((
            row.get::<_, i64>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, String>(2)?,
            row.get::<_, Option<String>>(3)?,
            (row.get::<_, String>(4)?, row.get::<_, String>(5)?),
        ))
    };
    let (mut keys, mut last): (Vec<ForeignKey>, _) = (Vec::new(), None);
    // The last in the text is number 0.
    let mut references = clauses.references.iter().copied();
    for (id, parent, from, to, (on_update, on_delete)) in tx.query_map(sql, [table], of)? {
        if last.replace(id) != Some(id) {
            let reference = references.next().unwrap_or_default();
            let (columns, parents) = (Vec::new(), Vec::new());
            keys.push(ForeignKey { parent, columns, parents, on_update, on_delete, reference });
        }
        let key = keys.last_mut().expect("one was pushed");
        key.columns.push(from);
        key.parents.extend(to);
    }
    Ok(keys)
}

/// A name for the key of a row that no column has: that of the rowid.
pub(super) fn rowid_name(table: &Table) -> Option<&'static str> {
    let free = |name: &&str| table.column(name).is_none();
    ["rowid", "_rowid_", "oid"].into_iter().find(free).filter(|_| table.has_rowid)
}

/// What names a row to a user: its primary key, or its rowid.
pub(super) fn row_key(table: &Table) -> Vec<(String, String)> {
    if table.primary.is_empty() {
        return rowid_name(table).map(|name| (name.into(), name.into())).into_iter().collect();
    }
    let names = table.primary.iter().map(|at| &table.columns[*at].name);
    names.map(|name| (name.clone(), quoted(name))).collect()
}
