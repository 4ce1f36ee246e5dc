//! Owns the one public error type and what a caller should do about each kind.

mod constraint;

use std::error::Error as StdError;
use std::fmt;
use std::fs::File;
use std::io;

use monolite_sqlite::rusqlite;
use monolite_sqlite::vfs::{take_file_fault, take_page_fault};
use rusqlite::ErrorCode;
use rustix::io::Errno;

pub use constraint::{Constraint, ConstraintKind};

/// Result of an engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`Error`]. `docs/guides/errors.md` has a row for each: what was
/// committed, whether to try again, and what to alert on; `docs/guides/web.md` has the HTTP status
/// for each.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use monolite::ErrorKind;
/// # let db = monolite::Database::open(":memory:")?;
/// let read = db.read(|tx| tx.query_row("SELECT 1 WHERE 0", (), |row| row.get::<_, i64>(0)));
/// match read.wait() {
///     Err(error) if error.kind() == ErrorKind::NoRows => {} // it is an answer: HTTP 404
///     Err(error) if error.kind() == ErrorKind::Overloaded => {} // later: HTTP 503
///     Err(error) => return Err(error),
///     Ok(_) => unreachable!("there are none"),
/// }
/// # db.close()
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The transaction conflicted with another one. Nothing was changed; run it again.
    Conflict,
    /// The queue, the write lock or the WAL has no room. Nothing was changed; try later, slower.
    Overloaded,
    /// A time limit passed. Nothing was changed; do less in one transaction or raise the limit.
    Timeout,
    /// The closure itself gave up, see [`Error::aborted`]. Nothing was changed.
    Aborted,
    /// A constraint of the schema refused the change. Nothing was changed; correct the data.
    Constraint,
    /// A query that must return a row returned none. Nothing was changed by it; use
    /// [`ReadTx::query_optional`](crate::ReadTx::query_optional) where there may be none.
    NoRows,
    /// The statement, a parameter or an option is wrong. Nothing was changed; correct the program.
    Invalid,
    /// The file system refused: disk full, I/O error, permission. Nothing was changed; mend the
    /// system, then try again.
    Storage,
    /// Whether the transaction committed is not known. Ask the database before trying again.
    CommitUnknown,
    /// A sync failed, or the files are not what they were, so nothing more is acknowledged. Whether
    /// a transaction that was under way committed is not known. Reads go on; reopen the database.
    Poisoned,
    /// Another process is the primary of this history now ([`Options::archive`]), so nothing is
    /// acknowledged here any more. Go to the new primary: what it does not have is not in history.
    ///
    /// [`Options::archive`]: crate::Options::archive
    Fenced,
    /// The file is damaged or no database. Restore a backup.
    Corrupt,
    /// The database was closed. Nothing was changed.
    Closed,
    /// A defect in Monolite. Nothing was acknowledged; please report it.
    Internal,
}

impl ErrorKind {
    /// Whether an interactive transaction can go on after a statement that failed so: the error
    /// tells about the data and the statement, which would fail so again, and SQLite has undone it.
    pub(crate) fn leaves_transaction(self) -> bool {
        matches!(self, ErrorKind::Constraint | ErrorKind::NoRows | ErrorKind::Invalid)
    }
}

/// What went wrong: a kind to act upon, a sentence to read, the statement that failed, and SQLite's
/// own code and error.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let error = db.write(|tx| tx.execute("INSERT INTO missing VALUES (1)", ())).wait().unwrap_err();
/// assert_eq!(error.kind(), monolite::ErrorKind::Invalid); // for the program
/// assert_eq!(error.message(), "no such table: missing"); // for people
/// assert_eq!(error.sql(), Some("INSERT INTO missing VALUES (1)"));
/// let whole = "no such table: missing (in `INSERT INTO missing VALUES (1)`)";
/// assert_eq!(error.to_string(), whole);
/// assert_eq!(error.extended_code(), Some(1)); // SQLite's own
/// # db.close()
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    extended_code: Option<i32>,
    source: Option<rusqlite::Error>,
    statement: Option<usize>,
    sql: Option<Sql>,
}

/// The statement that failed.
#[derive(Clone)]
struct Sql {
    text: Box<str>,
    /// Where in it SQLite found what is wrong, in bytes.
    offset: Option<usize>,
}

impl Sql {
    /// The statement `text`; where it is wrong, `source` may tell.
    fn new(text: &str, source: Option<&rusqlite::Error>) -> Sql {
        let offset = source.and_then(|source| offset_in(text, source));
        Sql { text: text.into(), offset }
    }
}

/// Where in `text` something is wrong, if `source` tells. SQLite may have been given a longer piece
/// or a shorter one, or another text that stands for it.
fn offset_in(text: &str, source: &rusqlite::Error) -> Option<usize> {
    let rusqlite::Error::SqlInputError { sql: given, offset, .. } = source else { return None };
    let offset = usize::try_from(*offset).ok()?;
    match text.find(given.as_str()) {
        Some(before) => Some(before + offset),
        None => offset.checked_sub(given.find(text)?),
    }
}

/// Longest piece of a statement in a message, in characters.
const SHOWN_SQL: usize = 200;

/// A piece of `sql` for a message, on one line; one that has the byte `at`.
pub(crate) fn excerpt(sql: &str, at: usize) -> String {
    let mut from = at.saturating_sub(SHOWN_SQL / 2);
    while !sql.is_char_boundary(from) {
        from -= 1;
    }
    let mut words = String::with_capacity(SHOWN_SQL);
    // No more than can be shown, which a long literal would be.
    for word in sql[from..].split_ascii_whitespace().take(SHOWN_SQL) {
        let space = if words.is_empty() { "" } else { " " };
        words.extend(space.chars().chain(word.chars().take(SHOWN_SQL + 1)));
    }
    let before = if from > 0 { "…" } else { "" };
    match words.char_indices().nth(SHOWN_SQL) {
        Some((end, _)) => format!("{before}{}…", &words[..end]),
        None => format!("{before}{words}"),
    }
}

impl Error {
    /// An error as the engine makes it: for other engines of the same transactions
    /// (`monolite-postgres`), and for tests of what a program does about each kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let message = message.into();
        Error(Box::new(Inner {
            kind,
            message,
            extended_code: None,
            source: None,
            statement: None,
            sql: None,
        }))
    }

    /// An error for a closure that gives up: its transaction is rolled back, and its caller gets
    /// this error with [`ErrorKind::Aborted`].
    pub fn aborted(reason: impl Into<String>) -> Error {
        Error::new(ErrorKind::Aborted, reason)
    }

    pub(crate) fn closed() -> Error {
        Error::new(ErrorKind::Closed, "the database is closed; open it again to use it")
    }

    pub(crate) fn without_archive(what: &str) -> Error {
        let message = format!("{what} needs an archive; open the database with Options::archive");
        Error::new(ErrorKind::Invalid, message)
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The sentence to read, without the statement that failed: of an error of SQLite, the same
    /// for every statement that fails so.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The SQL of the statement that failed, if one did and its text is known; of a batch or a
    /// migration, that statement alone. The error of a statement from
    /// [`ReadTx::prepare`](crate::ReadTx::prepare) that was prepared does not tell. Parameters are
    /// not in it, and what is written into the text is.
    pub fn sql(&self) -> Option<&str> {
        self.0.sql.as_ref().map(|sql| &*sql.text)
    }

    /// Where in [`Error::sql`] SQLite found what is wrong, in bytes of UTF-8 from its beginning,
    /// which is a boundary of characters. `None` where SQLite does not say: it does of syntax and
    /// of names of columns and functions, not of tables, nor of errors while the statement ran.
    pub fn sql_offset(&self) -> Option<usize> {
        self.0.sql.as_ref()?.offset
    }

    /// The same error of the statement `sql`.
    #[must_use]
    pub fn in_statement(mut self, sql: &str) -> Error {
        self.0.sql = Some(Sql::new(sql, self.0.source.as_ref()));
        self
    }

    /// SQLite's extended result code (<https://sqlite.org/rescode.html>), where SQLite said so.
    pub fn extended_code(&self) -> Option<i32> {
        self.0.extended_code
    }

    /// The error of `rusqlite` underneath, if one is the cause.
    pub fn sqlite(&self) -> Option<&rusqlite::Error> {
        self.0.source.as_ref()
    }

    /// Of a [`Conflict`](ErrorKind::Conflict): the number of the transaction's statement that would
    /// answer otherwise now, from 1 on.
    pub fn conflicting_statement(&self) -> Option<usize> {
        self.0.statement
    }

    pub(crate) fn at_statement(mut self, number: usize) -> Error {
        self.0.statement = Some(number);
        self
    }

    /// Whether a query that must return a row returned none ([`ErrorKind::NoRows`]).
    pub fn is_no_rows(&self) -> bool {
        self.0.kind == ErrorKind::NoRows
    }

    /// Which constraint refused the change, and what it is on; `None` when it was no constraint.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// let db = monolite::Database::open(":memory:")?;
    /// db.write(|tx| tx.execute_batch("CREATE TABLE users(id INTEGER PRIMARY KEY, mail UNIQUE)"))
    ///     .wait()?;
    /// let add = || db.write(|tx| tx.execute("INSERT INTO users(mail) VALUES ('a@b.c')", ()));
    /// add().wait()?;
    /// let error = add().wait().unwrap_err();
    /// assert!(error.is_unique_violation());
    /// let constraint = error.constraint().expect("it is one");
    /// assert_eq!((constraint.table, &constraint.columns[..]), (Some("users"), &["mail"][..]));
    /// # db.close()
    /// # }
    /// ```
    pub fn constraint(&self) -> Option<Constraint<'_>> {
        Constraint::of(self.0.extended_code?, self.said())
    }

    /// Whether a row with that key is there already: `UNIQUE`, `PRIMARY KEY`, a rowid.
    pub fn is_unique_violation(&self) -> bool {
        self.violates(ConstraintKind::Unique)
    }

    /// Whether a row refers to one that is not there, at once or at the end of the transaction.
    pub fn is_foreign_key_violation(&self) -> bool {
        self.violates(ConstraintKind::ForeignKey)
    }

    /// Whether a `CHECK` refused the change.
    pub fn is_check_violation(&self) -> bool {
        self.violates(ConstraintKind::Check)
    }

    /// Whether a value is missing: `NOT NULL`.
    pub fn is_not_null_violation(&self) -> bool {
        self.violates(ConstraintKind::NotNull)
    }

    fn violates(&self, kind: ConstraintKind) -> bool {
        self.constraint().is_some_and(|constraint| constraint.kind == kind)
    }

    /// What SQLite said, where it is the cause.
    pub(crate) fn said(&self) -> &str {
        match &self.0.source {
            Some(rusqlite::Error::SqliteFailure(_, Some(text))) => text,
            Some(rusqlite::Error::SqlInputError { msg, .. }) => msg,
            _ => &self.0.message,
        }
    }

    /// The same verdict for one more caller.
    pub(crate) fn repeated(&self) -> Error {
        let mut repeated = Error::new(self.kind(), self.message());
        (repeated.0.statement, repeated.0.sql) = (self.0.statement, self.0.sql.clone());
        repeated
    }

    /// Puts what was being done before the message.
    pub(crate) fn context(mut self, doing: impl fmt::Display) -> Error {
        self.0.message = format!("{doing}: {}", self.0.message);
        self
    }

    /// The authorizer's reason in place of SQLite's "not authorized".
    pub(crate) fn denied(self, reason: Option<String>) -> Error {
        match reason {
            Some(reason) if self.is_auth() => {
                Error(Box::new(Inner { message: reason, kind: ErrorKind::Invalid, ..*self.0 }))
            }
            _ => self,
        }
    }

    /// As the answer to a member whose `COMMIT` failed. When the write of the commit frame reported
    /// an I/O error, its bytes may have reached the file all the same, and a crash before the next
    /// commit overwrites them would bring them back.
    pub(crate) fn of_commit(mut self) -> Error {
        if self.0.kind == ErrorKind::Storage
            && self.0.extended_code.is_some_and(|code| code & 0xff == rusqlite::ffi::SQLITE_IOERR)
        {
            self.0.kind = ErrorKind::CommitUnknown;
        }
        self.context("the commit failed")
    }

    /// A refused function is reported with the general code, and only its text says so.
    fn is_auth(&self) -> bool {
        self.0.extended_code.is_some_and(|code| code & 0xff == rusqlite::ffi::SQLITE_AUTH)
            || self.0.message.starts_with("not authorized")
    }

    /// Whether a sync failed, after which no page of the file can be trusted to be on disk, or the
    /// WAL is shorter than what was written to it.
    pub(crate) fn is_lost_write(&self) -> bool {
        use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC, SQLITE_IOERR_SHORT_READ};
        let lost = [SQLITE_IOERR_FSYNC, SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_SHORT_READ];
        self.0.extended_code.is_some_and(|code| lost.contains(&code))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.sql {
            Some(Sql { text, offset: Some(at) }) => {
                write!(f, " (in `{}`, at byte {at})", excerpt(text, *at))
            }
            Some(Sql { text, offset: None }) => write!(f, " (in `{}`)", excerpt(text, 0)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("extended_code", &self.0.extended_code)
            .field("sql", &self.sql())
            .field("source", &self.0.source)
            .finish()
    }
}

/// Has no source: what SQLite said is in the message, and [`Error::sqlite`] has the rest.
impl StdError for Error {}

impl From<rusqlite::Error> for Error {
    fn from(source: rusqlite::Error) -> Error {
        let extended_code = extended_code_of(&source);
        if extended_code == Some(rusqlite::ffi::SQLITE_IOERR_DATA) {
            return of_sqlite(ErrorKind::Corrupt, damaged_page(), source);
        }
        let code = source.sqlite_error_code();
        // Without more, a statement that writes where only reads may be.
        let is_file_closed = code == Some(ErrorCode::ReadOnly)
            && extended_code != Some(rusqlite::ffi::SQLITE_READONLY);
        let kind = match code {
            Some(_) if is_file_closed => ErrorKind::Storage,
            Some(code) => kind_of(code),
            None if matches!(source, rusqlite::Error::QueryReturnedNoRows) => ErrorKind::NoRows,
            None => ErrorKind::Invalid,
        };
        let message = if code == Some(ErrorCode::OutOfMemory) {
            // SQLite's own text is often another one, or only a file's name.
            "SQLite was refused memory; free some, then try again".into()
        } else if let rusqlite::Error::SqlInputError { msg, .. } = &source {
            // Without the place in the text, which is not known of a statement that was prepared
            // before: the same refusal is told in the same words.
            with_remedy(msg)
        } else {
            in_our_words(without_code(source.to_string()))
        };
        let (kind, message) = with_fault(kind, message, extended_code);
        let message = match code {
            Some(ErrorCode::CannotOpen) => without_descriptors(message),
            _ => message,
        };
        of_sqlite(kind, message, source)
    }
}

fn of_sqlite(kind: ErrorKind, message: String, source: rusqlite::Error) -> Error {
    let extended_code = extended_code_of(&source);
    let sql = match &source {
        rusqlite::Error::SqlInputError { sql, .. } => Some(Sql::new(sql, Some(&source))),
        _ => None,
    };
    let (source, statement) = (Some(source), None);
    Error(Box::new(Inner { kind, message, extended_code, source, statement, sql }))
}

fn extended_code_of(source: &rusqlite::Error) -> Option<i32> {
    match source {
        rusqlite::Error::SqlInputError { error, .. } => Some(error.extended_code),
        _ => source.sqlite_error().map(|error| error.extended_code),
    }
}

/// What SQLite says of an I/O error or a full disk, with the file and what the system has said of
/// it. A limit of the engine's own is no full disk.
fn with_fault(kind: ErrorKind, said: String, extended_code: Option<i32>) -> (ErrorKind, String) {
    use rusqlite::ffi::{SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_IOERR};
    let is_of_files =
        |code: &i32| matches!(*code, SQLITE_FULL | SQLITE_CANTOPEN) || code & 0xff == SQLITE_IOERR;
    match extended_code.filter(is_of_files).and_then(take_file_fault) {
        Some(fault) if fault.limit_bytes.is_some() => (ErrorKind::Invalid, fault.to_string()),
        Some(fault) => (kind, format!("{said}: {fault}")),
        None => (kind, said),
    }
}

/// What SQLite says of a file that it cannot open, of which it does not tell the reason, with that
/// if it is the one that is met with any file: there are no descriptors left.
fn without_descriptors(said: String) -> String {
    let error = File::open("/dev/null").err();
    let remedy = error.as_ref().map_or("", remedy_of);
    match error.filter(|_| !remedy.is_empty()) {
        Some(error) => format!("{said}: {error}{remedy}"),
        None => said,
    }
}

/// What to do about an error of the system, to be added to it, where that is not said elsewhere.
pub(crate) fn remedy_of(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => {
            "; this process has no descriptors left: raise its limit (ulimit -n, LimitNOFILE= of \
             systemd), or open fewer files and connections at once"
        }
        Some(Errno::NFILE) => {
            "; this machine has no descriptors left: raise its limit (sysctl fs.file-max)"
        }
        _ => "",
    }
}

/// What SQLite says of a statement that it cannot prepare, and what to do when that is for want of
/// something that applications add.
fn with_remedy(said: &str) -> String {
    if is_not_added(said) {
        return format!(
            "{said}; one of the application is added by Options::connection_setup, each time that \
             the database is opened"
        );
    }
    said.to_owned()
}

/// Whether SQLite has missed something that applications add.
fn is_not_added(said: &str) -> bool {
    // The second of an expression in an index, which was there before.
    ["no such function: ", "unknown function: ", "no such collation sequence: "]
        .iter()
        .any(|it| said.starts_with(it))
}

/// The words alone, of what `rusqlite` calls `Error code 13: …`.
fn without_code(said: String) -> String {
    let rest = said.strip_prefix("Error code ").and_then(|rest| rest.split_once(": "));
    rest.map(|(_, words)| words.to_owned()).unwrap_or(said)
}

/// What to do about what SQLite says, where it does not say that.
fn in_our_words(said: String) -> String {
    if said.contains("attempt to write a readonly database") {
        return format!("{said}; a read changes nothing: use Database::write or a transaction");
    }
    if said.contains("database or disk is full") {
        return "database or disk is full: nothing that was acknowledged is lost; free some space, \
                or raise the limit on the size of files (ulimit -f) or the user's quota (with \
                AUTOINCREMENT it can also be that the largest rowid was used: then no row can be \
                added to that table any more)"
            .into();
    }
    if said.starts_with("Execute returned results") {
        return "the statement returns rows, and execute() takes one that returns none; use \
                query_row(), query_optional(), or query_map()"
            .into();
    }
    if is_not_added(&said) {
        return with_remedy(&said);
    }
    if said == "Query returned no rows" {
        return "the query returned no rows; use query_optional() where there may be none".into();
    }
    if said == "Query returned more than one row" {
        return "the query returned more than one row; add LIMIT 1 (query_row() takes the first), \
                or use query_map() for all of them"
            .into();
    }
    if said == "file is not a database" {
        return "file is not a database; is this the right path? if it is, restore a backup".into();
    }
    if said == "Multiple statements provided" {
        return "the text has several statements, and only execute_batch() takes more than one"
            .into();
    }
    if said == "bad parameter or other API misuse" {
        return "there is no statement to run (the text is empty or only a comment; execute_batch() \
                takes it), or SQLite was called in a way that it does not allow"
            .into();
    }
    if said.starts_with("Invalid column type Null") {
        return format!("{said}; the value is NULL: read it as an Option");
    }
    if said.starts_with("cannot VACUUM") {
        return "VACUUM is refused: it rewrites the whole file outside of every transaction; use \
                Database::vacuum, which does that while reads go on, or Database::backup for a copy"
            .into();
    }
    said
}

/// What the engine's own files say about a page with a wrong checksum; SQLite has no words for it.
fn damaged_page() -> String {
    let fault = take_page_fault().map(|fault| fault.to_string());
    let fault = fault.unwrap_or_else(|| "a page is damaged: its checksum is wrong".into());
    format!(
        "{fault}; restore a backup, or open the database without the option page_checksums to \
         save what can still be read"
    )
}

fn kind_of(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::ConstraintViolation => ErrorKind::Constraint,
        ErrorCode::DiskFull
        | ErrorCode::SystemIoFailure
        | ErrorCode::CannotOpen
        | ErrorCode::OutOfMemory
        | ErrorCode::PermissionDenied => ErrorKind::Storage,
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => ErrorKind::Corrupt,
        ErrorCode::OperationInterrupted => ErrorKind::Timeout,
        // The last one after many attempts, each of which met a lock or a conflict.
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed => ErrorKind::Overloaded,
        _ => ErrorKind::Invalid,
    }
}

#[test]
fn what_sqlite_says_is_told_in_words_and_not_by_a_number() {
    use rusqlite::ffi;
    for (code, words) in [
        (ffi::SQLITE_FULL, "database or disk is full: nothing that was acknowledged is lost"),
        (ffi::SQLITE_IOERR_WRITE, "disk I/O error"),
        (ffi::SQLITE_CORRUPT, "database disk image is malformed"),
    ] {
        let said = Error::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(said.to_string().starts_with(words), "{said}");
        assert_eq!(said.extended_code(), Some(code));
    }
}

#[test]
fn a_piece_of_a_statement_is_on_one_line_and_has_the_place() {
    assert_eq!(excerpt("SELECT 1\n   FROM t;", 9), "SELECT 1 FROM t;");
    let (names, long) = ("column, ".repeat(100), "ä".repeat(1_000));
    let sql = format!("SELECT {names}wrong, {names}");
    let shown = excerpt(&sql, sql.find("wrong").unwrap());
    assert!(shown.starts_with('…') && shown.ends_with('…') && shown.contains(", wrong, c"));
    assert_eq!(shown.chars().count(), SHOWN_SQL + 2);
    let shown = excerpt(&sql, 0);
    assert!(shown.starts_with("SELECT column") && shown.ends_with('…'));
    for at in [0, 1, 501, 999, 2_000] {
        assert!(excerpt(&long, at).chars().count() <= SHOWN_SQL + 2);
    }
}

#[test]
fn the_place_is_that_in_the_text_that_the_caller_knows() {
    let error = |given: &str| {
        let error = rusqlite::ffi::Error::new(1);
        let (msg, sql) = (String::new(), given.to_owned());
        rusqlite::Error::SqlInputError { error, msg, sql, offset: 4 }
    };
    let place = |text: &str, given: &str| offset_in(text, &error(given));
    assert_eq!(place("SELECT x", "SELECT x"), Some(4));
    assert_eq!(place("  SELECT x ", "SELECT x"), Some(6), "it was trimmed");
    assert_eq!(place("SELECT x", "; SELECT x;"), Some(2), "it is one of several");
    assert_eq!(place("SELECT x", "SELECT y"), None, "another one stands for it");
}

/// Whether an option's value is in its range.
pub(crate) fn within<V>(name: &str, value: V, low: V, high: V) -> Result<()>
where
    V: PartialOrd + std::fmt::Debug,
{
    if low <= value && value <= high {
        return Ok(());
    }
    let message = format!("option {name} is {value:?}; it must be from {low:?} to {high:?}");
    Err(Error::new(ErrorKind::Invalid, message))
}
