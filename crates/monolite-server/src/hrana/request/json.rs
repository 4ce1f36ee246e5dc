//! Owns how requests are read from JSON.
//!
//! # Algorithm
//! 1. A request is read in one pass, without a tree: first the fields of all types that an object
//!    can be of, in any order; then its type takes its own.
//! 2. If that fails, it is read again by a slower reader that knows where it is, to name the field.
//!    That one reads the requests of a pipeline one by one: if the type of a request is not known
//!    here, its other fields may be anything.
//!
//! `serde_json` itself refuses what is nested deeper than 128.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Condition, Fields, Message, Pipeline, Value, Wrong, is_known};

/// Base64 as clients send it: some with padding, some without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads all of `bytes`.
pub(super) fn whole<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Wrong> {
    serde_json::from_slice(bytes).or_else(|_| located(bytes))
}

/// Does the same slowly, and names the field of an error.
fn located<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Wrong> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let wrong = Wrong::new(error.into_inner().to_string());
        if path == "." { wrong } else { wrong.within(&path) }
    })?;
    reader.end().map_err(|error| Wrong::new(error.to_string()))?;
    Ok(value)
}

pub(super) fn pipeline(bytes: &[u8]) -> Result<Pipeline<Fields<'_>>, Wrong> {
    serde_json::from_slice(bytes).or_else(|_| {
        let Pipeline { baton, requests: texts } = located::<Pipeline<&RawValue>>(bytes)?;
        let mut requests = Vec::with_capacity(texts.len());
        for (index, text) in texts.into_iter().enumerate() {
            requests.push(fields(text).map_err(|it| it.within(&format!("requests[{index}]")))?);
        }
        Ok(Pipeline { baton, requests })
    })
}

pub(super) fn message(bytes: &[u8]) -> Result<Message<Fields<'_>>, Wrong> {
    serde_json::from_slice(bytes).or_else(|_| {
        let Message { kind, jwt, request_id, request } = located::<Message<&RawValue>>(bytes)?;
        let request = request.map(fields).transpose().map_err(|it| it.within("request"))?;
        Ok(Message { kind, jwt, request_id, request })
    })
}

/// Reads one request. Behind a type that is not known its fields may be anything.
fn fields(text: &RawValue) -> Result<Fields<'_>, Wrong> {
    #[derive(Deserialize)]
    struct Type {
        #[serde(rename = "type")]
        kind: String,
    }
    let bytes = text.get().as_bytes();
    located(bytes).or_else(|wrong| match serde_json::from_slice(bytes) {
        Ok(Type { kind }) if !is_known(&kind) => {
            Ok(Fields { kind: kind.into(), ..Fields::default() })
        }
        _ => Err(wrong),
    })
}

/// Reads a list of at most `MAX` entries: some take far more room in memory than in the request.
pub(super) fn at_most<'de, D, T, const MAX: usize>(reader: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(entry) = entries.next_element()? {
                if list.len() == MAX {
                    return Err(Error::invalid_length(MAX + 1, &self));
                }
                list.push(entry);
            }
            Ok(list)
        }
    }

    reader.deserialize_seq(List::<T, MAX>(PhantomData))
}

pub(super) fn yes() -> bool {
    true
}

pub(super) fn yes_unless_false<'de, D: Deserializer<'de>>(reader: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(reader)?.unwrap_or(true))
}

pub(super) fn named_args<'de, D>(reader: D) -> Result<Vec<(String, Value)>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    struct Named {
        name: String,
        value: Value,
    }
    let named = Vec::<Named>::deserialize(reader)?;
    Ok(named.into_iter().map(|it| (it.name, it.value)).collect())
}

/// A condition as a client wrote it: its type, and the fields of all types.
#[derive(Deserialize)]
pub(super) struct FlatCondition {
    #[serde(rename = "type")]
    kind: String,
    step: Option<u32>,
    cond: Option<Box<Condition>>,
    conds: Option<Vec<Condition>>,
}

impl TryFrom<FlatCondition> for Condition {
    type Error = String;

    fn try_from(flat: FlatCondition) -> Result<Condition, String> {
        let step = flat.step.ok_or("missing field `step`");
        let conds = flat.conds.ok_or("missing field `conds`");
        Ok(match &*flat.kind {
            "ok" => Condition::Ok(step?),
            "error" => Condition::Error(step?),
            "not" => Condition::Not(flat.cond.ok_or("missing field `cond`")?),
            "and" => Condition::And(conds?),
            "or" => Condition::Or(conds?),
            "is_autocommit" => Condition::IsAutocommit,
            kind => return Err(format!("unknown type `{kind}` of a condition")),
        })
    }
}

/// A value as a client wrote it.
#[derive(Deserialize)]
struct FlatValue<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    value: Option<Scalar<'a>>,
    #[serde(borrow)]
    base64: Option<Scalar<'a>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "not a string or a number")]
enum Scalar<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Number(f64),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Value, D::Error> {
        let flat = FlatValue::deserialize(reader)?;
        match (&*flat.kind, flat.value, flat.base64) {
            ("null", ..) => Ok(Value::Null),
            ("integer", Some(Scalar::Text(digits)), _) => digits
                .parse()
                .map(Value::Integer)
                .map_err(|_| Error::custom("the `value` is no 64-bit integer")),
            ("float", Some(Scalar::Number(number)), _) => Ok(Value::Float(number)),
            ("text", Some(Scalar::Text(text)), _) => Ok(Value::Text(text.into_owned())),
            ("blob", _, Some(Scalar::Text(base64))) => BASE64
                .decode(base64.as_bytes())
                .map(Value::Blob)
                .map_err(|error| Error::custom(format!("the `base64` is none: {error}"))),
            // The Go driver leaves out the `base64` of an empty one.
            ("blob", None, None) => Ok(Value::Blob(Vec::new())),
            ("integer", ..) => {
                Err(Error::custom("the `value` of an integer is a string of digits"))
            }
            ("float", ..) => Err(Error::custom("the `value` of a float is a number")),
            ("text", ..) => Err(Error::custom("the `value` of a text is a string")),
            ("blob", ..) => Err(Error::custom("the `base64` of a blob is a string")),
            (kind, ..) => Err(Error::custom(format!("unknown type `{kind}` of a value"))),
        }
    }
}
