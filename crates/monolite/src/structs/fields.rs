//! Owns the serializer of a struct into named values.

use monolite_sqlite::rusqlite;
use rusqlite::types::Value;
use serde::ser::{Impossible, Serialize, SerializeMap, SerializeStruct, Serializer};

use super::Problem;

/// The fields by their names.
type Fields = Vec<(String, Value)>;

/// Makes named values of a struct or a map.
pub(super) struct FieldsSerializer;

/// The fields so far.
#[derive(Default)]
pub(super) struct Named {
    fields: Fields,
    key: Option<String>,
}

impl Named {
    fn put<T: Serialize + ?Sized>(&mut self, name: String, value: &T) -> Result<(), Problem> {
        let value = value.serialize(ValueSerializer).map_err(|it| it.of("field", &name))?;
        self.fields.push((name, value));
        Ok(())
    }
}

impl SerializeStruct for Named {
    type Ok = Fields;
    type Error = Problem;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Problem> {
        self.put(name.into(), value)
    }

    fn end(self) -> Result<Fields, Problem> {
        Ok(self.fields)
    }
}

impl SerializeMap for Named {
    type Ok = Fields;
    type Error = Problem;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Problem> {
        let Value::Text(key) = key.serialize(ValueSerializer)? else {
            return Err(Problem::new("the names of parameters are texts"));
        };
        self.key = Some(key);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Problem> {
        let key = self.key.take().ok_or_else(|| Problem::new("a value without a name"))?;
        self.put(key, value)
    }

    fn end(self) -> Result<Fields, Problem> {
        Ok(self.fields)
    }
}

/// Makes one value.
struct ValueSerializer;

fn no_struct<T>() -> Result<T, Problem> {
    Err(Problem::new("parameters are made of a struct, or a map with names for keys"))
}

fn no_value<T>() -> Result<T, Problem> {
    Err(Problem::new("a column holds a number, a text, bytes or NULL; write it as one of these"))
}

/// The methods that serialize to something that cannot be.
macro_rules! refused {
    ($error:ident; $($method:ident($($argument:ident: $type:ty),*) -> $of:ty;)*) => {$(
        fn $method(self, $(_: $type),*) -> Result<$of, Problem> {
            $error()
        }
    )*};
}

impl Serializer for FieldsSerializer {
    type Ok = Fields;
    type Error = Problem;
    type SerializeSeq = Impossible<Fields, Problem>;
    type SerializeTuple = Impossible<Fields, Problem>;
    type SerializeTupleStruct = Impossible<Fields, Problem>;
    type SerializeTupleVariant = Impossible<Fields, Problem>;
    type SerializeMap = Named;
    type SerializeStruct = Named;
    type SerializeStructVariant = Impossible<Fields, Problem>;

    refused! { no_struct;
        serialize_bool(v: bool) -> Fields;
        serialize_i8(v: i8) -> Fields;
        serialize_i16(v: i16) -> Fields;
        serialize_i32(v: i32) -> Fields;
        serialize_i64(v: i64) -> Fields;
        serialize_u8(v: u8) -> Fields;
        serialize_u16(v: u16) -> Fields;
        serialize_u32(v: u32) -> Fields;
        serialize_u64(v: u64) -> Fields;
        serialize_f32(v: f32) -> Fields;
        serialize_f64(v: f64) -> Fields;
        serialize_char(v: char) -> Fields;
        serialize_str(v: &str) -> Fields;
        serialize_bytes(v: &[u8]) -> Fields;
        serialize_none() -> Fields;
        serialize_unit() -> Fields;
        serialize_unit_struct(name: &'static str) -> Fields;
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str) -> Fields;
        serialize_seq(len: Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(len: usize) -> Self::SerializeTuple;
        serialize_tuple_struct(name: &'static str, len: usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(
            name: &'static str, index: u32, variant: &'static str, len: usize
        ) -> Self::SerializeTupleVariant;
        serialize_struct_variant(
            name: &'static str, index: u32, variant: &'static str, len: usize
        ) -> Self::SerializeStructVariant;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Fields, Problem> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Fields, Problem> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Fields, Problem> {
        no_struct()
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Named, Problem> {
        Ok(Named::default())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Named, Problem> {
        Ok(Named::default())
    }
}

/// The methods for what becomes a value by a conversion.
macro_rules! converted {
    ($($method:ident($type:ty) => $make:expr;)*) => {$(
        fn $method(self, value: $type) -> Result<Value, Problem> {
            Ok($make(value))
        }
    )*};
}

impl Serializer for ValueSerializer {
    type Ok = Value;
    type Error = Problem;
    type SerializeSeq = Impossible<Value, Problem>;
    type SerializeTuple = Impossible<Value, Problem>;
    type SerializeTupleStruct = Impossible<Value, Problem>;
    type SerializeTupleVariant = Impossible<Value, Problem>;
    type SerializeMap = Impossible<Value, Problem>;
    type SerializeStruct = Impossible<Value, Problem>;
    type SerializeStructVariant = Impossible<Value, Problem>;

    converted! {
        serialize_bool(bool) => |it: bool| Value::Integer(it.into());
        serialize_i8(i8) => |it: i8| Value::Integer(it.into());
        serialize_i16(i16) => |it: i16| Value::Integer(it.into());
        serialize_i32(i32) => |it: i32| Value::Integer(it.into());
        serialize_i64(i64) => Value::Integer;
        serialize_u8(u8) => |it: u8| Value::Integer(it.into());
        serialize_u16(u16) => |it: u16| Value::Integer(it.into());
        serialize_u32(u32) => |it: u32| Value::Integer(it.into());
        serialize_f32(f32) => |it: f32| Value::Real(it.into());
        serialize_f64(f64) => Value::Real;
        serialize_char(char) => |it: char| Value::Text(it.into());
        serialize_str(&str) => |it: &str| Value::Text(it.into());
        serialize_bytes(&[u8]) => |it: &[u8]| Value::Blob(it.into());
    }

    refused! { no_value;
        serialize_seq(len: Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(len: usize) -> Self::SerializeTuple;
        serialize_tuple_struct(name: &'static str, len: usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(
            name: &'static str, index: u32, variant: &'static str, len: usize
        ) -> Self::SerializeTupleVariant;
        serialize_map(len: Option<usize>) -> Self::SerializeMap;
        serialize_struct(name: &'static str, len: usize) -> Self::SerializeStruct;
        serialize_struct_variant(
            name: &'static str, index: u32, variant: &'static str, len: usize
        ) -> Self::SerializeStructVariant;
    }

    fn serialize_u64(self, value: u64) -> Result<Value, Problem> {
        let number = i64::try_from(value);
        number.map(Value::Integer).map_err(|_| {
            Problem(format!("{value} is larger than the largest integer of SQLite ({})", i64::MAX))
        })
    }

    fn serialize_none(self) -> Result<Value, Problem> {
        Ok(Value::Null)
    }

    fn serialize_unit(self) -> Result<Value, Problem> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Problem> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Value, Problem> {
        Ok(Value::Text(variant.into()))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Problem> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Value, Problem> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Value, Problem> {
        no_value()
    }
}
