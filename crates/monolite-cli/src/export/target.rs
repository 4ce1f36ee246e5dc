//! Owns what a table is in PostgreSQL: its columns with their types.

use super::kind::Kind;
use super::translate::quoted;

/// A table to be.
pub(super) struct Target {
    pub(super) name: String,
    /// What its rows are copied into: it has its name, but for a place of keys.
    pub(super) place: String,
    pub(super) columns: Vec<TargetColumn>,
    /// What to select for its rows; what names a row is behind the columns.
    pub(super) list: String,
    /// What names a row to a user.
    pub(super) key: Vec<String>,
    /// The columns of the primary key.
    pub(super) primary: Vec<usize>,
}

pub(super) struct TargetColumn {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) constraints: &'static str,
    /// The expression that its values come from.
    pub(super) generated: Option<String>,
    pub(super) note: String,
}

impl Target {
    /// The statement that makes it, with the generated columns that `is_generated` says.
    pub(super) fn create(&self, is_generated: impl Fn(usize) -> bool) -> String {
        let definition = |(at, column): (usize, &TargetColumn)| {
            let generated = column.generated.as_ref().filter(|_| is_generated(at));
            let generated = generated
                .map_or_else(String::new, |it| format!(" GENERATED ALWAYS AS ({it}) STORED"));
            let (name, kind) = (quoted(&column.name), column.kind.sql());
            format!("  {name} {kind}{}{generated}", column.constraints)
        };
        let columns: Vec<String> = self.columns.iter().enumerate().map(definition).collect();
        format!("CREATE TABLE {} (\n{}\n)", quoted(&self.name), columns.join(",\n"))
    }

    /// The names of those columns that rows are written with, or of all.
    pub(super) fn names(&self, is_wanted: impl Fn(&TargetColumn) -> bool) -> String {
        let wanted = self.columns.iter().filter(|column| is_wanted(column));
        wanted.map(|column| quoted(&column.name)).collect::<Vec<_>>().join(", ")
    }
}
