//! Owns what clients ask: the requests of all versions and transports, decoded and checked.

use super::ProtocolError;

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
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// Its text, unless `sql_id` is there.
    pub sql: Option<String>,
    /// The number under which `store_sql` stored its text.
    pub sql_id: Option<i32>,
    /// Arguments by position.
    pub args: Vec<Value>,
    /// Arguments by name, with or without the sigil.
    pub named_args: Vec<(String, Value)>,
    /// Whether the client wants its rows: true unless it says otherwise. Without them the statement
    /// runs to its end all the same, and its columns are told.
    pub want_rows: bool,
}

/// Statements that run one after the other, each under its condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// In the order in which they run.
    pub steps: Vec<Step>,
}

/// One statement of a [`Batch`].
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Skips the statement if it does not hold.
    pub condition: Option<Condition>,
    /// The statement.
    pub stmt: Stmt,
}

/// When a [`Step`] runs. Steps are counted from 0.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
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
