//! Owns which statements the server answers by itself: those that begin and end transactions, and
//! pragmas. All others are SQLite's.
//!
//! The first word of a statement is exact in SQLite's grammar for each of them. What
//! `sqlite3_stmt_readonly` says is not: it is true for `BEGIN`, `COMMIT` and `ATTACH`.

use monolite_sqlite::{Scan, TokenKind};

/// A statement that the server answers by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Begin {
        is_read_only: bool,
    },
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    /// Sets the stream's foreign keys on or off, or asks which they are.
    ForeignKeys(Option<bool>),
    /// A pragma that is accepted, and has no effect and no rows.
    Nothing,
    /// A pragma whose answer is that of this query.
    Instead(String),
    /// What is refused, and what to do instead.
    Blocked(&'static str),
}

/// `PRAGMA name`, `PRAGMA name = value` or `PRAGMA name(value)`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pragma {
    /// In lower case.
    name: String,
    /// Without quotes, in lower case.
    value: Option<String>,
}

impl Pragma {
    /// What the server answers; `None` if SQLite does.
    ///
    /// Frameworks set what a server decides for its own, and a refusal would end their start.
    fn control(self) -> Option<Control> {
        let number = |name| Some(Control::Instead(format!("SELECT {} AS {name}", self.number())));
        match (&*self.name, self.value.as_deref()) {
            ("foreign_keys", None) => Some(Control::ForeignKeys(None)),
            ("foreign_keys", Some(value)) => Some(Control::ForeignKeys(Some(self.is_on(value)))),
            // The last line of each of Prisma's migrations. What was deferred stays so to the end.
            ("defer_foreign_keys", Some(value)) if !self.is_on(value) => Some(Control::Nothing),
            ("busy_timeout", _) => number("timeout"),
            ("mmap_size" | "wal_autocheckpoint" | "journal_size_limit" | "threads", Some(_)) => {
                number(&self.name)
            }
            ("cache_size" | "temp_store", Some(_)) => Some(Control::Nothing),
            // SQLAlchemy asks at its first connection. Without a shared cache it means nothing.
            ("read_uncommitted", None) => {
                Some(Control::Instead("SELECT 0 AS read_uncommitted".into()))
            }
            ("read_uncommitted", Some(_)) => Some(Control::Nothing),
            ("journal_mode", Some("wal")) => {
                Some(Control::Instead("SELECT 'wal' AS journal_mode".into()))
            }
            ("synchronous", Some("full" | "2")) => Some(Control::Nothing),
            ("locking_mode", None | Some("normal")) => {
                Some(Control::Instead("SELECT 'normal' AS locking_mode".into()))
            }
            ("journal_mode" | "synchronous" | "locking_mode", Some(_)) => {
                Some(Control::Blocked("the operator of the server decides how the file is kept"))
            }
            _ => None,
        }
    }

    /// Whether `value`, which is its own, switches something on.
    fn is_on(&self, value: &str) -> bool {
        ["on", "true", "yes"].contains(&value) || self.number() != 0
    }

    /// The value as a number; 0 if it is none, as SQLite takes it.
    fn number(&self) -> i64 {
        let value = self.value.as_deref().unwrap_or_default();
        let number = match value.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => value.parse().ok(),
        };
        number.unwrap_or(0)
    }
}

impl Control {
    /// What `sql`, which is one statement, is; `None` if it is SQLite's, or no statement of these
    /// that SQLite would take.
    pub(crate) fn of(sql: &str) -> Option<Control> {
        let mut words = Words(Scan::of(sql));
        match &*words.next()?.to_ascii_uppercase() {
            "BEGIN" => begin(words),
            "COMMIT" | "END" => ends(words).then_some(Control::Commit),
            "ROLLBACK" => rollback(words),
            "SAVEPOINT" => name_at_end(words).map(Control::Savepoint),
            "RELEASE" => name_behind_savepoint(words).map(Control::Release),
            "PRAGMA" => pragma(words)?.control(),
            "ATTACH" | "DETACH" => Some(Control::Blocked(
                "ATTACH and DETACH are refused: a transaction is durable in one database only; \
                 open the other one by its own URL",
            )),
            "VACUUM" => Some(Control::Blocked(
                "VACUUM is refused over the network: it rewrites the whole file; stop the server, \
                 and vacuum the file with sqlite3",
            )),
            _ => None,
        }
    }
}

/// The tokens of a statement but for blanks, with empty statements at both ends left out.
struct Words<'s>(Scan<'s>);

impl<'s> Words<'s> {
    fn next_token(&mut self) -> Option<monolite_sqlite::Token<'s>> {
        self.0.find(|token| !matches!(token.kind, TokenKind::Blank | TokenKind::Sign(b';')))
    }
}

impl<'s> Iterator for Words<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        self.next_token().map(|token| token.text)
    }
}

fn is(word: &str, of: &[&str]) -> bool {
    of.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Whether nothing is left but `TRANSACTION`, which may have a name.
fn ends(words: Words<'_>) -> bool {
    let left: Vec<&str> = words.collect();
    left.is_empty() || (is(left[0], &["TRANSACTION"]) && left.len() <= 2)
}

/// `BEGIN READONLY` is of the Rust client and `BEGIN CONCURRENT` of Turso's; both are no SQL.
/// `BEGIN TRANSACTION READONLY`, of the JavaScript client, names a transaction.
fn begin(words: Words<'_>) -> Option<Control> {
    let left: Vec<&str> = words.collect();
    let modes = ["DEFERRED", "IMMEDIATE", "EXCLUSIVE", "CONCURRENT", "READONLY"];
    let is_read_only = left.iter().any(|word| is(word, &["READONLY"]));
    let behind = &left[usize::from(left.first().is_some_and(|word| is(word, &modes)))..];
    let is_whole = match behind {
        [] => true,
        [first, ..] => is(first, &["TRANSACTION"]) && behind.len() <= 2,
    };
    is_whole.then_some(Control::Begin { is_read_only })
}

fn rollback(mut words: Words<'_>) -> Option<Control> {
    let mut word = words.next();
    if word.is_some_and(|word| is(word, &["TRANSACTION"])) {
        word = words.next();
    }
    match word {
        None => Some(Control::Rollback),
        Some(word) if is(word, &["TO"]) => name_behind_savepoint(words).map(Control::RollbackTo),
        // The name of a transaction.
        Some(_) => words.next().is_none().then_some(Control::Rollback),
    }
}

fn name_at_end(mut words: Words<'_>) -> Option<String> {
    let name = words.next_token()?.name()?;
    words.next().is_none().then_some(name)
}

/// `SAVEPOINT` may be left out before the name, and may be the name.
fn name_behind_savepoint(mut words: Words<'_>) -> Option<String> {
    let first = words.next_token()?;
    match words.next_token() {
        None => first.name(),
        Some(name) if first.is_word("SAVEPOINT") => {
            words.next().is_none().then_some(name.name()).flatten()
        }
        Some(_) => None,
    }
}

fn pragma(mut words: Words<'_>) -> Option<Pragma> {
    let mut name = words.next_token()?.name()?;
    let mut sign = words.next();
    if sign == Some(".") {
        name = words.next_token()?.name()?;
        sign = words.next();
    }
    let value = match sign {
        None => None,
        Some("=" | "(") => {
            let mut token = words.next_token()?;
            let is_negative = token.text == "-";
            if is_negative || token.text == "+" {
                token = words.next_token()?;
            }
            let text = token.name().unwrap_or_else(|| token.text.to_owned());
            Some(format!("{}{text}", if is_negative { "-" } else { "" }).to_ascii_lowercase())
        }
        Some(_) => return None,
    };
    Some(Pragma { name: name.to_ascii_lowercase(), value })
}

#[test]
fn the_words_of_control_are_read_to_their_end() {
    let begin = |is_read_only| Some(Control::Begin { is_read_only });
    let instead = |sql: &str| Some(Control::Instead(sql.into()));
    for (sql, control) in [
        ("BEGIN", begin(false)),
        ("  /* */ begin; ", begin(false)),
        ("BEGIN IMMEDIATE TRANSACTION", begin(false)),
        ("BEGIN DEFERRED", begin(false)),
        ("BEGIN CONCURRENT", begin(false)),
        ("BEGIN TRANSACTION", begin(false)),
        ("BEGIN READONLY", begin(true)),
        ("BEGIN TRANSACTION READONLY", begin(true)),
        ("BEGIN QUICKLY", None),
        ("COMMIT", Some(Control::Commit)),
        ("END TRANSACTION;", Some(Control::Commit)),
        ("COMMIT AND CHAIN", None),
        ("ROLLBACK", Some(Control::Rollback)),
        ("ROLLBACK TRANSACTION", Some(Control::Rollback)),
        ("rollback to a", Some(Control::RollbackTo("a".into()))),
        ("ROLLBACK TRANSACTION TO SAVEPOINT \"a b\"", Some(Control::RollbackTo("a b".into()))),
        ("SAVEPOINT a", Some(Control::Savepoint("a".into()))),
        ("RELEASE SAVEPOINT a", Some(Control::Release("a".into()))),
        ("RELEASE savepoint", Some(Control::Release("savepoint".into()))),
        ("RELEASE a b", None),
        ("PRAGMA foreign_keys", Some(Control::ForeignKeys(None))),
        ("pragma Main.Foreign_Keys = 'on'", Some(Control::ForeignKeys(Some(true)))),
        ("PRAGMA foreign_keys(off)", Some(Control::ForeignKeys(Some(false)))),
        ("PRAGMA foreign_keys = 0x1", Some(Control::ForeignKeys(Some(true)))),
        ("PRAGMA foreign_keys = 2", Some(Control::ForeignKeys(Some(true)))),
        ("PRAGMA table_info('t')", None),
        ("PRAGMA user_version = 3", None),
        ("PRAGMA cache_size=-2000;", Some(Control::Nothing)),
        ("PRAGMA busy_timeout(5000)", instead("SELECT 5000 AS timeout")),
        ("PRAGMA threads = -7", instead("SELECT -7 AS threads")),
        ("PRAGMA read_uncommitted", instead("SELECT 0 AS read_uncommitted")),
        ("PRAGMA read_uncommitted = 1", Some(Control::Nothing)),
        ("PRAGMA journal_mode=WAL", instead("SELECT 'wal' AS journal_mode")),
        ("PRAGMA", None),
        ("SELECT 1", None),
        ("beginning", None),
        ("EXPLAIN COMMIT", None),
        ("", None),
    ] {
        assert_eq!(Control::of(sql), control, "{sql}");
    }
    for sql in ["ATTACH 'x' AS y", "PRAGMA journal_mode(delete)"] {
        assert!(matches!(Control::of(sql), Some(Control::Blocked(_))), "{sql}");
    }
}
