//! Owns the JSON of requests and answers: *SQL over HTTP*, version 3.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{NO_PAD, STANDARD_NO_PAD};
use base64::engine::{DecodePaddingMode, GeneralPurpose};
use monolite::Value;
use serde::{Deserialize, Serialize};

use crate::{Answer, Error};

#[derive(Serialize)]
pub(crate) struct Pipeline<'a> {
    pub(crate) baton: Option<&'a str>,
    pub(crate) requests: &'a [Request<'a>],
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Request<'a> {
    Execute { stmt: Statement<'a> },
    Batch { batch: Batch<'a> },
    Sequence { sql: &'a str },
    GetAutocommit,
    Close,
}

#[derive(Serialize)]
pub(crate) struct Statement<'a> {
    sql: &'a str,
    args: Vec<Cell>,
}

#[derive(Serialize)]
pub(crate) struct Batch<'a> {
    steps: Vec<Step<'a>>,
}

#[derive(Serialize)]
struct Step<'a> {
    stmt: Statement<'a>,
    condition: Option<Condition>,
}

/// Of a step, by the number of an earlier one.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Condition {
    Ok { step: usize },
    Error { step: usize },
}

/// A value as the wire has it.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Cell {
    Null,
    Integer { value: String },
    Float { value: Option<f64> },
    Text { value: String },
    Blob { base64: String },
}

pub(crate) fn execute<'a>(sql: &'a str, parameters: &[Value]) -> Request<'a> {
    Request::Execute { stmt: Statement::of(sql, parameters) }
}

/// All statements in one transaction: each step if the one before it was done, and then the commit.
pub(crate) fn batch<'a>(statements: &[(&'a str, &[Value])]) -> Request<'a> {
    let begin = Step { stmt: Statement::of("BEGIN", &[]), condition: None };
    let commit = statements.len() + 1;
    let last = [("COMMIT", &[][..])];
    let inner = statements.iter().chain(&last).enumerate();
    let inner = inner.map(|(step, (sql, parameters))| Step {
        stmt: Statement::of(sql, parameters),
        condition: Some(Condition::Ok { step }),
    });
    let condition = Some(Condition::Error { step: commit });
    let rollback = Step { stmt: Statement::of("ROLLBACK", &[]), condition };
    let steps = std::iter::once(begin).chain(inner).chain([rollback]).collect();
    Request::Batch { batch: Batch { steps } }
}

pub(crate) fn sequence(sql: &str) -> Request<'_> {
    Request::Sequence { sql }
}

pub(crate) fn get_autocommit() -> Request<'static> {
    Request::GetAutocommit
}

pub(crate) fn close() -> Request<'static> {
    Request::Close
}

impl<'a> Statement<'a> {
    fn of(sql: &'a str, parameters: &[Value]) -> Statement<'a> {
        Statement { sql, args: parameters.iter().map(Cell::of).collect() }
    }
}

impl Cell {
    fn of(value: &Value) -> Cell {
        match value {
            Value::Null => Cell::Null,
            Value::Integer(value) => Cell::Integer { value: value.to_string() },
            Value::Real(value) => Cell::Float { value: Some(*value) },
            Value::Text(value) => Cell::Text { value: value.clone() },
            Value::Blob(value) => Cell::Blob { base64: STANDARD_NO_PAD.encode(value) },
        }
    }

    fn value(self) -> Result<Value, Error> {
        Ok(match self {
            Cell::Null => Value::Null,
            Cell::Integer { value } => Value::Integer(value.parse().map_err(not_hrana)?),
            // JSON has no infinity.
            Cell::Float { value } => Value::Real(value.unwrap_or(f64::NAN)),
            Cell::Text { value } => Value::Text(value),
            Cell::Blob { base64 } => Value::Blob(ANY_PAD.decode(base64).map_err(not_hrana)?),
        })
    }
}

/// Some servers pad, others do not.
const ANY_PAD: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, NO_PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent));

fn not_hrana(error: impl ToString) -> Error {
    Error::NotHrana(error.to_string())
}

#[derive(Deserialize)]
struct PipelineAnswer {
    baton: Option<String>,
    results: Vec<Outcome>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Outcome {
    Ok { response: Response },
    Error { error: Refusal },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Response {
    Execute { result: Rows },
    Batch { result: Steps },
    Sequence,
    GetAutocommit { is_autocommit: bool },
    Close,
}

#[derive(Deserialize)]
pub(crate) struct Rows {
    cols: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    affected_row_count: u64,
    last_insert_rowid: Option<String>,
}

/// An answer or an error for each step; neither for one that was left out.
#[derive(Deserialize)]
pub(crate) struct Steps {
    step_results: Vec<Option<Rows>>,
    step_errors: Vec<Option<Refusal>>,
}

#[derive(Deserialize)]
struct Column {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
    code: Option<String>,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::Refused { code: refusal.code.unwrap_or_default(), message: refusal.message }
    }
}

/// One for each request of a pipeline.
pub(crate) type Responses = Vec<Result<Response, Error>>;

/// The next baton and the responses in `body`, of which there must be `count`.
pub(crate) fn responses(body: &[u8], count: usize) -> Result<(Option<String>, Responses), Error> {
    let answer: PipelineAnswer = serde_json::from_slice(body).map_err(not_hrana)?;
    if answer.results.len() != count {
        let found = answer.results.len();
        return Err(not_hrana(format!("{found} answers to {count} requests")));
    }
    let responses = answer.results.into_iter().map(|outcome| match outcome {
        Outcome::Ok { response } => Ok(response),
        Outcome::Error { error } => Err(error.into()),
    });
    Ok((answer.baton, responses.collect()))
}

impl Response {
    pub(crate) fn answer(self) -> Result<Answer, Error> {
        match self {
            Response::Execute { result } => result.answer(),
            _ => Err(not_hrana("another response than that of a statement")),
        }
    }

    /// The answers to the statements of a [`batch`], if it is committed.
    pub(crate) fn answers(self) -> Result<Vec<Answer>, Error> {
        let Response::Batch { result: Steps { mut step_results, step_errors } } = self else {
            return Err(not_hrana("another response than that of a batch"));
        };
        if let Some(refusal) = step_errors.into_iter().flatten().next() {
            return Err(refusal.into());
        }
        // Those of the rollback and the commit.
        step_results.truncate(step_results.len().saturating_sub(2));
        step_results.into_iter().skip(1).flatten().map(Rows::answer).collect()
    }

    pub(crate) fn autocommit(self) -> Result<bool, Error> {
        match self {
            Response::GetAutocommit { is_autocommit } => Ok(is_autocommit),
            _ => Err(not_hrana("another response than was asked for")),
        }
    }
}

impl Rows {
    fn answer(self) -> Result<Answer, Error> {
        let rows = self.rows.into_iter().map(|row| row.into_iter().map(Cell::value).collect());
        let last_rowid = self.last_insert_rowid.map(|it| it.parse().map_err(not_hrana));
        Ok(Answer {
            columns: self.cols.into_iter().map(|it| it.name.unwrap_or_default()).collect(),
            rows: rows.collect::<Result<_, _>>()?,
            changes: self.affected_row_count,
            last_rowid: last_rowid.transpose()?,
        })
    }
}

/// The error in the body of an answer whose `status` is no success.
pub(crate) fn refusal(status: u16, body: &[u8]) -> Error {
    match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => refusal.into(),
        Err(_) => Error::NotHrana(format!("status {status}")),
    }
}
