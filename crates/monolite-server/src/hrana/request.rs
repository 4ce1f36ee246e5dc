//! Owns what clients ask: the requests of all versions and transports, decoded and checked.

use std::fmt;

use serde::Deserialize;

use super::decode::{json, protobuf};
use super::{Encoding, ProtocolError};

/// The requests of a pipeline at most.
pub const MAX_REQUESTS: usize = 1_000;
/// The steps of a batch at most, and the conditions of an `and` or `or`.
pub const MAX_STEPS: usize = 10_000;
/// The arguments of a statement at most: SQLite's own limit.
pub const MAX_ARGUMENTS: usize = 32_766;
/// How many conditions may be inside each other, the innermost included.
pub const MAX_CONDITION_DEPTH: usize = 32;

/// A value of SQLite.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `NULL`.
    Null,
    /// In JSON a string of decimal digits, never a number.
    Integer(i64),
    /// In JSON always finite.
    Float(f64),
    /// Text.
    Text(String),
    /// In JSON base64 of the standard alphabet, padded or not.
    Blob(Vec<u8>),
}

/// The text of a statement or script: one of the two.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sql {
    /// The text itself.
    pub sql: Option<String>,
    /// The number under which `store_sql` stored it.
    pub sql_id: Option<i32>,
}

/// A statement with its arguments.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Stmt {
    /// Its text, unless `sql_id` is there.
    pub sql: Option<String>,
    /// The number under which `store_sql` stored its text.
    pub sql_id: Option<i32>,
    /// Arguments by position.
    #[serde(default, deserialize_with = "json::list::<_, _, MAX_ARGUMENTS>")]
    pub args: Vec<Value>,
    /// Arguments by name, with or without the sigil.
    #[serde(default, deserialize_with = "json::named_args")]
    pub named_args: Vec<(String, Value)>,
    /// Whether the client wants its rows: true unless it says otherwise. Without them the statement
    /// runs to its end all the same, and its columns are told.
    #[serde(default = "json::yes", deserialize_with = "json::yes_unless_false")]
    pub want_rows: bool,
}

/// Statements that run one after the other, each under its condition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Batch {
    /// In the order in which they run.
    #[serde(deserialize_with = "json::list::<_, _, MAX_STEPS>")]
    pub steps: Vec<Step>,
}

/// One statement of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Step {
    /// Skips the statement if it does not hold.
    pub condition: Option<Condition>,
    /// The statement.
    pub stmt: Stmt,
}

/// When a [`Step`] runs. Steps are counted from 0.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "json::FlatCondition")]
pub enum Condition {
    /// The step has run and has not failed.
    Ok(u32),
    /// Not [`Ok`](Condition::Ok): the step has failed or was skipped.
    Error(u32),
    /// The other does not hold.
    Not(Box<Condition>),
    /// All hold, as all of none do.
    And(Vec<Condition>),
    /// One holds at least, unlike of none.
    Or(Vec<Condition>),
    /// The stream has no transaction at that moment.
    IsAutocommit,
}

/// A request on a stream.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub enum StreamRequest {
    /// Ends the stream. The last of its pipeline.
    Close,
    /// Runs a statement.
    Execute(Stmt),
    /// Runs a batch.
    Batch(Batch),
    /// Runs a script, whose rows are dropped.
    Sequence(Sql),
    /// Asks what a statement would be.
    Describe(Sql),
    /// Stores a text under a number; a number in use gets the new text.
    StoreSql {
        /// The client's number.
        sql_id: i32,
        /// The text.
        sql: String,
    },
    /// Forgets a stored text; no error if there is none.
    CloseSql {
        /// The client's number.
        sql_id: i32,
    },
    /// Asks whether the stream has no transaction.
    GetAutocommit,
    /// A request of no type that is known here: it gets this error, and the others run.
    Invalid(ProtocolError),
}

/// The body of `/v2/pipeline` and `/v3/pipeline`. A `close` is its last request or there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineRequest {
    /// The stream; `None` opens one.
    pub baton: Option<String>,
    /// All run, also after an error.
    pub requests: Vec<StreamRequest>,
}

/// The body of `/v3/cursor`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CursorRequest {
    /// The stream; `None` opens one.
    pub baton: Option<String>,
    /// What runs.
    pub batch: Batch,
}

/// A message that a client sends over WebSocket.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientMessage {
    /// The first message, and later ones that renew the token.
    Hello {
        /// The token.
        jwt: Option<String>,
    },
    /// A request, answered under its number.
    Request {
        /// The client's number, which means nothing here.
        request_id: i32,
        /// What it asks.
        request: SocketRequest,
    },
}

/// A request over WebSocket.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub enum SocketRequest {
    /// Opens a stream under a number of the client's.
    OpenStream {
        /// The stream.
        stream_id: i32,
    },
    /// Closes a stream, also one that failed to open.
    CloseStream {
        /// The stream.
        stream_id: i32,
    },
    /// `execute`, `batch`, `sequence`, `describe` or `get_autocommit`.
    Stream {
        /// The stream.
        stream_id: i32,
        /// What it asks.
        request: StreamRequest,
    },
    /// Stores a text for all streams of the connection.
    StoreSql {
        /// The client's number.
        sql_id: i32,
        /// The text.
        sql: String,
    },
    /// Forgets a stored text; no error if there is none.
    CloseSql {
        /// The client's number.
        sql_id: i32,
    },
    /// Runs a batch whose entries are fetched.
    OpenCursor {
        /// The stream.
        stream_id: i32,
        /// The client's number.
        cursor_id: i32,
        /// What runs.
        batch: Batch,
    },
    /// Closes a cursor, also one that failed to open.
    CloseCursor {
        /// The cursor.
        cursor_id: i32,
    },
    /// Asks for the next entries of a cursor.
    FetchCursor {
        /// The cursor.
        cursor_id: i32,
        /// How many at most.
        max_count: u32,
    },
    /// A request of no type that is known here, or a batch whose conditions are wrong: it gets this
    /// error, and the connection lives on.
    Invalid(ProtocolError),
}

impl PipelineRequest {
    /// Reads the body of a pipeline.
    ///
    /// # Errors
    /// If the body is malformed, a `close` is not the last request, or a condition is wrong: the
    /// whole request fails before anything runs.
    pub fn decode(bytes: &[u8], encoding: Encoding) -> Result<PipelineRequest, ProtocolError> {
        let pipeline = match encoding {
            Encoding::Json => json::pipeline(bytes)?,
            Encoding::Protobuf => protobuf::pipeline(bytes)?,
        };
        for (index, request) in pipeline.requests.iter().enumerate() {
            let checked = match request {
                StreamRequest::Batch(batch) => batch.check().map_err(|it| it.within("batch")),
                StreamRequest::Close if index + 1 < pipeline.requests.len() => {
                    Err(Wrong::new("`close` must be the last request of its pipeline"))
                }
                _ => Ok(()),
            };
            checked.map_err(|it| it.within(&format!("requests[{index}]")))?;
        }
        Ok(pipeline)
    }
}

impl CursorRequest {
    /// Reads the body of a cursor's request.
    ///
    /// # Errors
    /// If the body is malformed or a condition is wrong.
    pub fn decode(bytes: &[u8], encoding: Encoding) -> Result<CursorRequest, ProtocolError> {
        let request = match encoding {
            Encoding::Json => json::whole::<CursorRequest>(bytes)?,
            Encoding::Protobuf => protobuf::cursor(bytes)?,
        };
        request.batch.check().map_err(|it| it.within("batch"))?;
        Ok(request)
    }
}

impl ClientMessage {
    /// Reads a message from a WebSocket: a text frame for JSON, a binary one for Protobuf.
    ///
    /// # Errors
    /// If it is malformed: the connection closes.
    pub fn decode(bytes: &[u8], encoding: Encoding) -> Result<ClientMessage, ProtocolError> {
        let mut message = match encoding {
            Encoding::Json => json::client_message(bytes)?,
            Encoding::Protobuf => protobuf::client_message(bytes)?,
        };
        if let ClientMessage::Request { request, .. } = &mut message {
            let checked = match request {
                SocketRequest::OpenCursor { batch, .. }
                | SocketRequest::Stream { request: StreamRequest::Batch(batch), .. } => {
                    batch.check().map_err(|it| it.within("request.batch"))
                }
                _ => Ok(()),
            };
            if let Err(wrong) = checked {
                *request = SocketRequest::Invalid(wrong.into());
            }
        }
        Ok(message)
    }
}

/// Reads the body of `/v1/execute`, which is JSON.
///
/// # Errors
/// If it is malformed.
pub fn decode_v1_execute(bytes: &[u8]) -> Result<Stmt, ProtocolError> {
    Ok(json::whole::<json::V1Execute>(bytes)?.stmt)
}

/// Reads the body of `/v1/batch`, which is JSON.
///
/// # Errors
/// If it is malformed or a condition is wrong.
pub fn decode_v1_batch(bytes: &[u8]) -> Result<Batch, ProtocolError> {
    let batch = json::whole::<json::V1Batch>(bytes)?.batch;
    batch.check().map_err(|it| it.within("batch"))?;
    Ok(batch)
}

impl Batch {
    /// Checks the conditions: how deep they are, and that they ask for earlier steps alone.
    fn check(&self) -> Result<(), Wrong> {
        for (index, step) in self.steps.iter().enumerate() {
            let Some(condition) = &step.condition else { continue };
            condition
                .check(index, MAX_CONDITION_DEPTH)
                .map_err(|it| it.within(&format!("steps[{index}].condition")))?;
        }
        Ok(())
    }
}

impl Condition {
    fn check(&self, step: usize, depth: usize) -> Result<(), Wrong> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Wrong::new(format!(
                "more than {MAX_CONDITION_DEPTH} conditions are inside each other"
            )));
        };
        match self {
            Condition::Ok(other) | Condition::Error(other) if *other as usize >= step => {
                Err(Wrong::new(format!("step {other} is not before this step {step}")))
            }
            Condition::Ok(_) | Condition::Error(_) | Condition::IsAutocommit => Ok(()),
            Condition::Not(condition) => condition.check(step, depth),
            Condition::And(conditions) | Condition::Or(conditions) => {
                conditions.iter().try_for_each(|it| it.check(step, depth))
            }
        }
    }

    /// Whether it holds now. `succeeded` tells of each step before this one whether it has run and
    /// has not failed; `is_autocommit`, whether the stream has no transaction.
    pub fn holds(&self, succeeded: &[bool], is_autocommit: bool) -> bool {
        let ok = |step: u32| succeeded.get(step as usize) == Some(&true);
        match self {
            Condition::Ok(step) => ok(*step),
            Condition::Error(step) => !ok(*step),
            Condition::Not(condition) => !condition.holds(succeeded, is_autocommit),
            Condition::And(all) => all.iter().all(|it| it.holds(succeeded, is_autocommit)),
            Condition::Or(any) => any.iter().any(|it| it.holds(succeeded, is_autocommit)),
            Condition::IsAutocommit => is_autocommit,
        }
    }
}

/// The type of a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
pub(super) enum Kind {
    Close,
    Execute,
    Batch,
    Sequence,
    Describe,
    StoreSql,
    CloseSql,
    GetAutocommit,
    OpenStream,
    CloseStream,
    OpenCursor,
    CloseCursor,
    FetchCursor,
    Unknown(String),
}

/// A request as a client wrote it: its type, and the fields of all types.
#[derive(Debug, Deserialize)]
pub(super) struct Fields {
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    pub(super) stmt: Option<Stmt>,
    pub(super) batch: Option<Batch>,
    pub(super) sql: Option<String>,
    pub(super) sql_id: Option<i32>,
    pub(super) stream_id: Option<i32>,
    pub(super) cursor_id: Option<i32>,
    pub(super) max_count: Option<u32>,
}

fn present<T>(field: Option<T>, name: &str) -> Result<T, Wrong> {
    field.ok_or_else(|| Wrong::new(format!("missing field `{name}`")))
}

impl TryFrom<Fields> for StreamRequest {
    type Error = Wrong;

    fn try_from(fields: Fields) -> Result<StreamRequest, Wrong> {
        let Fields { kind, stmt, batch, sql, sql_id, .. } = fields;
        Ok(match kind {
            Kind::Close => StreamRequest::Close,
            Kind::Execute => StreamRequest::Execute(present(stmt, "stmt")?),
            Kind::Batch => StreamRequest::Batch(present(batch, "batch")?),
            Kind::Sequence => StreamRequest::Sequence(Sql { sql, sql_id }),
            Kind::Describe => StreamRequest::Describe(Sql { sql, sql_id }),
            Kind::StoreSql => StreamRequest::StoreSql {
                sql_id: present(sql_id, "sql_id")?,
                sql: present(sql, "sql")?,
            },
            Kind::CloseSql => StreamRequest::CloseSql { sql_id: present(sql_id, "sql_id")? },
            Kind::GetAutocommit => StreamRequest::GetAutocommit,
            Kind::Unknown(name) => StreamRequest::Invalid(unknown(&name)),
            Kind::OpenStream
            | Kind::CloseStream
            | Kind::OpenCursor
            | Kind::CloseCursor
            | Kind::FetchCursor => StreamRequest::Invalid(
                Wrong::new("requests of this type exist over WebSocket alone").into(),
            ),
        })
    }
}

impl TryFrom<Fields> for SocketRequest {
    type Error = Wrong;

    fn try_from(fields: Fields) -> Result<SocketRequest, Wrong> {
        let stream_id = present(fields.stream_id, "stream_id");
        let cursor_id = present(fields.cursor_id, "cursor_id");
        Ok(match fields.kind {
            Kind::OpenStream => SocketRequest::OpenStream { stream_id: stream_id? },
            Kind::CloseStream => SocketRequest::CloseStream { stream_id: stream_id? },
            Kind::OpenCursor => SocketRequest::OpenCursor {
                stream_id: stream_id?,
                cursor_id: cursor_id?,
                batch: present(fields.batch, "batch")?,
            },
            Kind::CloseCursor => SocketRequest::CloseCursor { cursor_id: cursor_id? },
            Kind::FetchCursor => SocketRequest::FetchCursor {
                cursor_id: cursor_id?,
                max_count: present(fields.max_count, "max_count")?,
            },
            Kind::Close => SocketRequest::Invalid(
                Wrong::new("requests of this type exist over HTTP alone").into(),
            ),
            _ => match StreamRequest::try_from(fields)? {
                StreamRequest::StoreSql { sql_id, sql } => SocketRequest::StoreSql { sql_id, sql },
                StreamRequest::CloseSql { sql_id } => SocketRequest::CloseSql { sql_id },
                StreamRequest::Invalid(error) => SocketRequest::Invalid(error),
                request => SocketRequest::Stream { stream_id: stream_id?, request },
            },
        })
    }
}

/// The error of a request whose type is not known.
pub(super) fn unknown(name: &str) -> ProtocolError {
    Wrong::new(format!("unknown request type `{name}`")).into()
}

/// What is wrong with which field of a request.
#[derive(Debug)]
pub(super) struct Wrong {
    path: String,
    what: String,
}

impl Wrong {
    pub(super) fn new(what: impl Into<String>) -> Wrong {
        Wrong { path: String::new(), what: what.into() }
    }

    /// The same, of a field inside of the field `outer`.
    pub(super) fn within(mut self, outer: &str) -> Wrong {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path.insert_str(0, dot);
        self.path.insert_str(0, outer);
        self
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.path, self.what)
    }
}

impl From<Wrong> for ProtocolError {
    fn from(wrong: Wrong) -> ProtocolError {
        ProtocolError::new("PROTOCOL_ERROR", wrong.to_string())
    }
}
