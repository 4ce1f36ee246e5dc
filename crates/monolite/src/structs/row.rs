//! Owns the deserializer of a row: a struct or a map by the names of columns, a tuple by their
//! order, and anything else from the only column.

use monolite_sqlite::rusqlite;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::Problem;

pub(super) struct RowDeserializer<'r, 's> {
    row: &'r Row<'s>,
    columns: usize,
    next: usize,
}

impl<'r, 's> RowDeserializer<'r, 's> {
    pub(super) fn new(row: &'r Row<'s>) -> RowDeserializer<'r, 's> {
        let columns = AsRef::<rusqlite::Statement<'_>>::as_ref(row).column_count();
        RowDeserializer { row, columns, next: 0 }
    }

    fn name(&self, index: usize) -> &'r str {
        let statement: &'r rusqlite::Statement<'_> = self.row.as_ref();
        statement.column_name(index).unwrap_or("?")
    }

    fn column(&self, index: usize) -> Result<ColumnDeserializer<'r>, Problem> {
        self.row.get_ref(index).map(ColumnDeserializer).map_err(Problem::new)
    }

    fn only(&self) -> Result<ColumnDeserializer<'r>, Problem> {
        if self.columns == 1 {
            return self.column(0);
        }
        let columns = self.columns;
        Err(Problem(format!("one value is wanted, and the row has {columns} columns")))
    }

    fn seed<S: DeserializeSeed<'r>>(&self, index: usize, seed: S) -> Result<S::Value, Problem> {
        let value = self.column(index).and_then(|column| seed.deserialize(column));
        value.map_err(|problem| problem.of("column", self.name(index)))
    }
}

impl<'r> Deserializer<'r> for RowDeserializer<'r, '_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        let value = self.only().and_then(|column| column.deserialize_any(visitor));
        value.map_err(|problem| problem.of("column", self.name(0)))
    }

    fn deserialize_option<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.only()?.deserialize_option(visitor)
    }

    fn deserialize_bool<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.only()?.deserialize_bool(visitor)
    }

    fn deserialize_bytes<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.only()?.deserialize_bytes(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.only()?.deserialize_bytes(visitor)
    }

    fn deserialize_f32<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.only()?.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.only()?.deserialize_f64(visitor)
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.only()?.deserialize_enum(name, variants, visitor)
    }

    /// The row may be what the newtype holds: a struct, a tuple, a value.
    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'r>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_unit()
    }

    fn deserialize_seq<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_seq(self)
    }

    fn deserialize_tuple<V: Visitor<'r>>(
        self,
        wanted: usize,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        if wanted != self.columns {
            let columns = self.columns;
            return Err(Problem(format!(
                "a tuple of {wanted} is wanted, and the row has {columns} columns"
            )));
        }
        visitor.visit_seq(self)
    }

    fn deserialize_tuple_struct<V: Visitor<'r>>(
        self,
        _: &'static str,
        wanted: usize,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.deserialize_tuple(wanted, visitor)
    }

    fn deserialize_map<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_map(self)
    }

    fn deserialize_struct<V: Visitor<'r>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        <W: Visitor<'r>>
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string identifier ignored_any
    }
}

impl<'r> MapAccess<'r> for RowDeserializer<'r, '_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'r>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Problem> {
        if self.next == self.columns {
            return Ok(None);
        }
        seed.deserialize(BorrowedStrDeserializer::new(self.name(self.next))).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<S::Value, Problem> {
        self.next += 1;
        self.seed(self.next - 1, seed)
    }
}

impl<'r> SeqAccess<'r> for RowDeserializer<'r, '_> {
    type Error = Problem;

    fn next_element_seed<S: DeserializeSeed<'r>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Problem> {
        if self.next == self.columns {
            return Ok(None);
        }
        self.next += 1;
        self.seed(self.next - 1, seed).map(Some)
    }
}

/// One value.
struct ColumnDeserializer<'r>(ValueRef<'r>);

impl<'r> ColumnDeserializer<'r> {
    fn text(&self) -> Result<Option<&'r str>, Problem> {
        match self.0 {
            ValueRef::Text(text) => std::str::from_utf8(text).map(Some).map_err(Problem::new),
            _ => Ok(None),
        }
    }
}

impl<'r> Deserializer<'r> for ColumnDeserializer<'r> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        if let Some(text) = self.text()? {
            return visitor.visit_borrowed_str(text);
        }
        match self.0 {
            ValueRef::Null => visitor
                .visit_unit()
                .map_err(|_: Problem| Problem::new("the value is NULL; make the field an Option")),
            ValueRef::Integer(number) => visitor.visit_i64(number),
            ValueRef::Real(number) => visitor.visit_f64(number),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => visitor.visit_borrowed_bytes(bytes),
        }
    }

    fn deserialize_bool<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            ValueRef::Integer(number @ (0 | 1)) => visitor.visit_bool(number == 1),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f32<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            #[expect(clippy::cast_precision_loss, reason = "as SQLite does")]
            ValueRef::Integer(number) => visitor.visit_f64(number as f64),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_bytes<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => visitor.visit_borrowed_bytes(bytes),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            ValueRef::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self.text()? {
            Some(text) => {
                BorrowedStrDeserializer::new(text).deserialize_enum(name, variants, visitor)
            }
            None => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        <W: Visitor<'r>>
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}
