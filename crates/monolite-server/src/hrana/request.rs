//! Owns what clients ask: the requests of all versions and transports, decoded and checked.
//!
//! # Algorithm
//! Both encodings are read into the fields of all types of requests ([`Fields`]), from which the
//! type then takes its own.

mod json;
mod protobuf;

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;

use super::{Encoding, ProtocolError};

/// The requests of a pipeline at most.
const MAX_REQUESTS: usize = 1_000;
/// The steps of a batch at most.
const MAX_STEPS: usize = 10_000;
/// What a statement takes in memory until it has run, beside its texts. In Protobuf it can have
/// four bytes.
const STATEMENT_BYTES: usize = 512;
/// What a value or a condition takes.
const PART_BYTES: usize = 64;

const _: () = assert!(STATEMENT_BYTES >= size_of::<Step>() + size_of::<StreamRequest>());
const _: () = assert!(PART_BYTES >= size_of::<Value>() && PART_BYTES >= size_of::<Condition>());

/// How many conditions may be inside each other, the innermost included.
const MAX_CONDITION_DEPTH: usize = 32;

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
    #[serde(default)]
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
    #[serde(deserialize_with = "json::at_most::<_, _, MAX_STEPS>")]
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
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
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
        let Pipeline { baton, requests: all } = match encoding {
            Encoding::Json => json::pipeline(bytes)?,
            Encoding::Protobuf => protobuf::pipeline(bytes)?,
        };
        let (count, mut requests) = (all.len(), Vec::new());
        check_steps(&all)?;
        for (index, fields) in all.into_iter().enumerate() {
            let request = fields.stream().and_then(|request| match &request {
                StreamRequest::Batch(batch) => batch.check().map(|()| request),
                StreamRequest::Close if index + 1 < count => {
                    Err(Wrong::new("`close` must be the last request of its pipeline"))
                }
                _ => Ok(request),
            });
            requests.push(request.map_err(|it| it.within(&format!("requests[{index}]")))?);
        }
        Ok(PipelineRequest { baton, requests })
    }
}

/// Refuses a pipeline with more steps than one batch may have.
fn check_steps(requests: &[Fields<'_>]) -> Result<(), Wrong> {
    let steps = |request: &Fields<'_>| request.batch.as_ref().map_or(0, |it| it.steps.len());
    match requests.iter().map(steps).sum::<usize>() {
        0..=MAX_STEPS => Ok(()),
        steps => {
            let much = format!("its batches have {steps} steps; {MAX_STEPS} are allowed together");
            Err(Wrong::new(much).within("requests"))
        }
    }
}

impl CursorRequest {
    /// Reads the body of a cursor's request.
    ///
    /// # Errors
    /// If the body is malformed or a condition is wrong.
    pub fn decode(bytes: &[u8], encoding: Encoding) -> Result<CursorRequest, ProtocolError> {
        let request: CursorRequest = match encoding {
            Encoding::Json => json::whole(bytes)?,
            Encoding::Protobuf => protobuf::cursor(bytes)?,
        };
        request.batch.check()?;
        Ok(request)
    }
}

impl StreamRequest {
    /// Bytes that it takes until it has run, beside those of its texts and blobs.
    pub(crate) fn weight(&self) -> usize {
        match self {
            StreamRequest::Execute(stmt) => stmt.weight(),
            StreamRequest::Batch(batch) => batch.weight(),
            StreamRequest::Sequence(Sql { sql: Some(sql), .. }) => script_weight(sql),
            _ => STATEMENT_BYTES,
        }
    }
}

/// What the statements of a script take, beside their texts.
pub(crate) fn script_weight(script: &str) -> usize {
    STATEMENT_BYTES * (1 + script.bytes().filter(|byte| *byte == b';').count())
}

impl SocketRequest {
    /// As [`StreamRequest::weight`].
    pub(crate) fn weight(&self) -> usize {
        match self {
            SocketRequest::Stream { request, .. } => request.weight(),
            SocketRequest::OpenCursor { batch, .. } => batch.weight(),
            _ => STATEMENT_BYTES,
        }
    }
}

impl Condition {
    fn weight(&self) -> usize {
        let inside = match self {
            Condition::Not(condition) => condition.weight(),
            Condition::And(all) | Condition::Or(all) => all.iter().map(Condition::weight).sum(),
            _ => 0,
        };
        PART_BYTES + inside
    }
}

impl Stmt {
    fn weight(&self) -> usize {
        STATEMENT_BYTES + PART_BYTES * (self.args.len() + 2 * self.named_args.len())
    }

    /// Reads the body of `/v1/execute`, of JSON.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn decode_v1(bytes: &[u8]) -> Result<Stmt, ProtocolError> {
        #[derive(Deserialize)]
        struct Body {
            stmt: Stmt,
        }
        Ok(json::whole::<Body>(bytes)?.stmt)
    }
}

impl Batch {
    /// As [`StreamRequest::weight`].
    pub(crate) fn weight(&self) -> usize {
        let of =
            |step: &Step| step.stmt.weight() + step.condition.as_ref().map_or(0, Condition::weight);
        self.steps.iter().map(of).sum()
    }

    /// Reads the body of `/v1/batch`, of JSON.
    ///
    /// # Errors
    /// If it is malformed or a condition is wrong.
    pub fn decode_v1(bytes: &[u8]) -> Result<Batch, ProtocolError> {
        // As that of a cursor, without a baton.
        Ok(CursorRequest::decode(bytes, Encoding::Json)?.batch)
    }

    /// Checks how deep the conditions are, and that they ask for earlier steps alone.
    fn check(&self) -> Result<(), Wrong> {
        for (index, step) in self.steps.iter().enumerate() {
            let checked = step.condition.as_ref().map_or(Ok(()), |it| it.check(index, 1));
            checked.map_err(|it| it.within(&format!("batch.steps[{index}].condition")))?;
        }
        Ok(())
    }
}

impl ClientMessage {
    /// Reads a message from a WebSocket: a text frame for JSON, a binary one for Protobuf.
    ///
    /// # Errors
    /// If it is malformed: the connection closes.
    pub fn decode(bytes: &[u8], encoding: Encoding) -> Result<ClientMessage, ProtocolError> {
        let Message { kind, jwt, request_id, request } = match encoding {
            Encoding::Json => json::message(bytes)?,
            Encoding::Protobuf => protobuf::message(bytes)?,
        };
        match &*kind {
            "hello" => Ok(ClientMessage::Hello { jwt }),
            "request" => {
                let request = present(request, "request")?.socket();
                let request = request.map_err(|it| it.within("request"))?;
                Ok(ClientMessage::Request {
                    request_id: present(request_id, "request_id")?,
                    request,
                })
            }
            _ => Err(Wrong::new(format!("unknown message type `{kind}`")).into()),
        }
    }
}

impl Condition {
    fn check(&self, step: usize, depth: usize) -> Result<(), Wrong> {
        if depth > MAX_CONDITION_DEPTH {
            let deep = format!("more than {MAX_CONDITION_DEPTH} conditions are inside each other");
            return Err(Wrong::new(deep));
        }
        match self {
            Condition::Ok(other) | Condition::Error(other) if *other as usize >= step => {
                Err(Wrong::new(format!("step {other} is not before this step {step}")))
            }
            Condition::Ok(_) | Condition::Error(_) | Condition::IsAutocommit => Ok(()),
            Condition::Not(condition) => condition.check(step, depth + 1),
            Condition::And(conditions) | Condition::Or(conditions) => {
                conditions.iter().try_for_each(|it| it.check(step, depth + 1))
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

/// The types of the requests of a pipeline, from Protobuf's field 1 on.
const STREAM_TYPES: &str =
    "close execute batch sequence describe store_sql close_sql get_autocommit";
/// The types of the requests over WebSocket, from Protobuf's field 2 on.
const SOCKET_TYPES: &str = "open_stream close_stream execute batch open_cursor close_cursor \
     fetch_cursor sequence describe store_sql close_sql get_autocommit";

/// A [`PipelineRequest`] as a client wrote it.
#[derive(Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de>"))]
struct Pipeline<R> {
    baton: Option<String>,
    #[serde(deserialize_with = "json::at_most::<_, _, MAX_REQUESTS>")]
    requests: Vec<R>,
}

/// A [`ClientMessage`] as a client wrote it.
#[derive(Deserialize)]
struct Message<R> {
    #[serde(rename = "type")]
    kind: String,
    jwt: Option<String>,
    request_id: Option<i32>,
    request: Option<R>,
}

/// A request as a client wrote it: its type, and the fields of all types.
#[derive(Default, Deserialize)]
struct Fields<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    stmt: Option<Stmt>,
    batch: Option<Batch>,
    sql: Option<String>,
    sql_id: Option<i32>,
    stream_id: Option<i32>,
    cursor_id: Option<i32>,
    max_count: Option<u32>,
}

impl Fields<'_> {
    fn stream(self) -> Result<StreamRequest, Wrong> {
        let Fields { kind, stmt, batch, sql, sql_id, .. } = self;
        Ok(match &*kind {
            "close" => StreamRequest::Close,
            "execute" => StreamRequest::Execute(present(stmt, "stmt")?),
            "batch" => StreamRequest::Batch(present(batch, "batch")?),
            "sequence" => StreamRequest::Sequence(Sql { sql, sql_id }),
            "describe" => StreamRequest::Describe(Sql { sql, sql_id }),
            "store_sql" => {
                let sql_id = present(sql_id, "sql_id")?;
                StreamRequest::StoreSql { sql_id, sql: present(sql, "sql")? }
            }
            "close_sql" => StreamRequest::CloseSql { sql_id: present(sql_id, "sql_id")? },
            "get_autocommit" => StreamRequest::GetAutocommit,
            _ => {
                StreamRequest::Invalid(Wrong::new(format!("unknown request type `{kind}`")).into())
            }
        })
    }

    fn socket(mut self) -> Result<SocketRequest, Wrong> {
        let stream_id = present(self.stream_id, "stream_id");
        let cursor_id = present(self.cursor_id, "cursor_id");
        if let Some(Err(wrong)) = self.batch.as_ref().map(Batch::check) {
            return Ok(SocketRequest::Invalid(wrong.within("request").into()));
        }
        Ok(match &*self.kind {
            "open_stream" => SocketRequest::OpenStream { stream_id: stream_id? },
            "close_stream" => SocketRequest::CloseStream { stream_id: stream_id? },
            "open_cursor" => SocketRequest::OpenCursor {
                stream_id: stream_id?,
                cursor_id: cursor_id?,
                batch: present(self.batch.take(), "batch")?,
            },
            "close_cursor" => SocketRequest::CloseCursor { cursor_id: cursor_id? },
            "fetch_cursor" => SocketRequest::FetchCursor {
                cursor_id: cursor_id?,
                max_count: present(self.max_count, "max_count")?,
            },
            _ => match self.stream()? {
                StreamRequest::StoreSql { sql_id, sql } => SocketRequest::StoreSql { sql_id, sql },
                StreamRequest::CloseSql { sql_id } => SocketRequest::CloseSql { sql_id },
                StreamRequest::Invalid(error) => SocketRequest::Invalid(error),
                // Only pipelines close like this.
                StreamRequest::Close => {
                    SocketRequest::Invalid(Wrong::new("unknown request type `close`").into())
                }
                request => SocketRequest::Stream { stream_id: stream_id?, request },
            },
        })
    }
}

fn is_known(kind: &str) -> bool {
    STREAM_TYPES.split(' ').chain(SOCKET_TYPES.split(' ')).any(|known| known == kind)
}

fn present<T>(field: Option<T>, name: &str) -> Result<T, Wrong> {
    field.ok_or_else(|| Wrong::new(format!("missing field `{name}`")))
}

/// What is wrong with which field of a request.
#[derive(Debug)]
struct Wrong {
    path: String,
    what: String,
}

impl Wrong {
    fn new(what: impl Into<String>) -> Wrong {
        Wrong { path: String::new(), what: what.into() }
    }

    /// The same, of a field inside of the field `outer`.
    fn within(self, outer: &str) -> Wrong {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Wrong { path: format!("{outer}{dot}{}", self.path), ..self }
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
