//! Owns how requests are read from JSON.
//!
//! # Algorithm
//! 1. A request is read in one pass and without a tree: first the fields of all types that an object
//!    can be of, in any order, then what its type makes of them.
//! 2. If that fails, it is read again by a slower reader that knows where it is, to name the field.
//!    It reads the requests of a pipeline one by one: in one whose type is not known here, the other
//!    fields may be anything.
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

use crate::hrana::ProtocolError;
use crate::hrana::request::{
    Batch, ClientMessage, Condition, Kind, MAX_ARGUMENTS, MAX_REQUESTS, MAX_STEPS, PipelineRequest,
    SocketRequest, Stmt, StreamRequest, Value, Wrong, unknown,
};

/// Base64 as clients send it: some with padding, some without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads all of `bytes`.
pub(in crate::hrana) fn whole<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Wrong> {
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

#[derive(Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de>"))]
struct Pipeline<R> {
    baton: Option<String>,
    #[serde(deserialize_with = "list::<_, _, MAX_REQUESTS>")]
    requests: Vec<R>,
}

pub(in crate::hrana) fn pipeline(bytes: &[u8]) -> Result<PipelineRequest, Wrong> {
    if let Ok(Pipeline { baton, requests }) = serde_json::from_slice(bytes) {
        return Ok(PipelineRequest { baton, requests });
    }
    let Pipeline { baton, requests: texts } = located::<Pipeline<&RawValue>>(bytes)?;
    let mut requests = Vec::with_capacity(texts.len());
    for (index, text) in texts.into_iter().enumerate() {
        let request = request(text, StreamRequest::Invalid);
        requests.push(request.map_err(|it| it.within(&format!("requests[{index}]")))?);
    }
    Ok(PipelineRequest { baton, requests })
}

/// Reads one request, which may be anything behind a type that is not known.
fn request<'de, R: Deserialize<'de>>(
    text: &'de RawValue,
    invalid: fn(ProtocolError) -> R,
) -> Result<R, Wrong> {
    #[derive(Deserialize)]
    struct Type {
        #[serde(rename = "type")]
        kind: Kind,
    }
    let bytes = text.get().as_bytes();
    located(bytes).or_else(|wrong| match serde_json::from_slice(bytes) {
        Ok(Type { kind: Kind::Unknown(name) }) => Ok(invalid(unknown(&name))),
        _ => Err(wrong),
    })
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum MessageKind {
    Hello,
    Request,
    Unknown(String),
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de>"))]
struct Message<R> {
    #[serde(rename = "type")]
    kind: MessageKind,
    jwt: Option<String>,
    request_id: Option<i32>,
    request: Option<R>,
}

pub(in crate::hrana) fn client_message(bytes: &[u8]) -> Result<ClientMessage, Wrong> {
    let message = serde_json::from_slice::<Message<SocketRequest>>(bytes).or_else(|_| {
        let Message { kind, jwt, request_id, request: text } =
            located::<Message<&RawValue>>(bytes)?;
        let request = text.map(|text| request(text, SocketRequest::Invalid)).transpose();
        let request = request.map_err(|it| it.within("request"))?;
        Ok(Message { kind, jwt, request_id, request })
    })?;
    match (message.kind, message.request_id, message.request) {
        (MessageKind::Hello, ..) => Ok(ClientMessage::Hello { jwt: message.jwt }),
        (MessageKind::Request, Some(request_id), Some(request)) => {
            Ok(ClientMessage::Request { request_id, request })
        }
        (MessageKind::Request, None, _) => Err(Wrong::new("missing field `request_id`")),
        (MessageKind::Request, _, None) => Err(Wrong::new("missing field `request`")),
        (MessageKind::Unknown(name), ..) => {
            Err(Wrong::new(format!("unknown message type `{name}`")))
        }
    }
}

/// The body of `/v1/execute`.
#[derive(Deserialize)]
pub(in crate::hrana) struct V1Execute {
    pub(in crate::hrana) stmt: Stmt,
}

/// The body of `/v1/batch`.
#[derive(Deserialize)]
pub(in crate::hrana) struct V1Batch {
    pub(in crate::hrana) batch: Batch,
}

pub(in crate::hrana) fn yes() -> bool {
    true
}

pub(in crate::hrana) fn yes_unless_false<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(true))
}

pub(in crate::hrana) fn named_args<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(String, Value)>, D::Error> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
        value: Value,
    }
    let named = list::<Named, D, MAX_ARGUMENTS>(deserializer)?;
    Ok(named.into_iter().map(|it| (it.name, it.value)).collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ConditionKind {
    Ok,
    Error,
    Not,
    And,
    Or,
    IsAutocommit,
}

/// A condition as a client wrote it: its type, and the fields of all types.
#[derive(Deserialize)]
pub(in crate::hrana) struct FlatCondition {
    #[serde(rename = "type")]
    kind: ConditionKind,
    step: Option<u32>,
    cond: Option<Box<Condition>>,
    #[serde(default, deserialize_with = "conditions")]
    conds: Option<Vec<Condition>>,
}

fn conditions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<Condition>>, D::Error> {
    list::<_, _, MAX_STEPS>(deserializer).map(Some)
}

impl TryFrom<FlatCondition> for Condition {
    type Error = &'static str;

    fn try_from(flat: FlatCondition) -> Result<Condition, &'static str> {
        let step = flat.step.ok_or("missing field `step`");
        let conds = flat.conds.ok_or("missing field `conds`");
        Ok(match flat.kind {
            ConditionKind::Ok => Condition::Ok(step?),
            ConditionKind::Error => Condition::Error(step?),
            ConditionKind::Not => Condition::Not(flat.cond.ok_or("missing field `cond`")?),
            ConditionKind::And => Condition::And(conds?),
            ConditionKind::Or => Condition::Or(conds?),
            ConditionKind::IsAutocommit => Condition::IsAutocommit,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ValueKind {
    Null,
    Integer,
    Float,
    Text,
    Blob,
}

/// A value as a client wrote it.
#[derive(Deserialize)]
struct FlatValue<'a> {
    #[serde(rename = "type")]
    kind: ValueKind,
    #[serde(borrow)]
    value: Option<Scalar<'a>>,
    #[serde(borrow)]
    base64: Option<Scalar<'a>>,
}

enum Scalar<'a> {
    Text(Cow<'a, str>),
    Number(f64),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        let flat = FlatValue::deserialize(deserializer)?;
        match (flat.kind, flat.value, flat.base64) {
            (ValueKind::Null, ..) => Ok(Value::Null),
            (ValueKind::Integer, Some(Scalar::Text(digits)), _) => {
                let integer = digits.parse().map(Value::Integer);
                integer.map_err(|_| Error::custom("not the decimal digits of a 64-bit integer"))
            }
            (ValueKind::Integer, ..) => {
                Err(Error::custom("the `value` of an integer is a string of decimal digits"))
            }
            (ValueKind::Float, Some(Scalar::Number(number)), _) => Ok(Value::Float(number)),
            (ValueKind::Float, ..) => Err(Error::custom("the `value` of a float is a number")),
            (ValueKind::Text, Some(Scalar::Text(text)), _) => Ok(Value::Text(text.into_owned())),
            (ValueKind::Text, ..) => Err(Error::custom("the `value` of a text is a string")),
            (ValueKind::Blob, _, Some(Scalar::Text(base64))) => {
                let blob = BASE64.decode(base64.as_bytes()).map(Value::Blob);
                blob.map_err(|error| Error::custom(format!("`base64` is none: {error}")))
            }
            (ValueKind::Blob, ..) => Err(Error::custom("the `base64` of a blob is a string")),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar<'a>, D::Error> {
        struct ScalarVisitor<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for ScalarVisitor<'a> {
            type Value = Scalar<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a number")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Scalar<'a>, E> {
                Ok(Scalar::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Scalar<'a>, E> {
                Ok(Scalar::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar<'a>, E> {
                Ok(Scalar::Number(number as f64))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar<'a>, E> {
                Ok(Scalar::Number(number as f64))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar<'a>, E> {
                Ok(Scalar::Number(number))
            }
        }

        deserializer.deserialize_any(ScalarVisitor(PhantomData))
    }
}

/// Reads a list of at most `MAX` things, or null as an empty one.
pub(in crate::hrana) fn list<'de, T, D, const MAX: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct ListVisitor<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E: Error>(self) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                if list.len() == MAX {
                    return Err(Error::custom(format!("more than {MAX} entries")));
                }
                list.push(item);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_any(ListVisitor::<T, MAX>(PhantomData))
}
