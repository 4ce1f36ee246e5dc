//! Owns the types of columns in PostgreSQL.

/// A type in PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bigint,
    Double,
    Text,
    Bytea,
    /// Of a column without values alone.
    Numeric,
}

impl Kind {
    /// As a column of it is declared. Texts are compared as SQLite does: by their bytes.
    pub(super) fn sql(self) -> &'static str {
        match self {
            Kind::Bigint => "bigint",
            Kind::Double => "double precision",
            Kind::Text => "text COLLATE \"C\"",
            Kind::Bytea => "bytea",
            Kind::Numeric => "numeric",
        }
    }
}
