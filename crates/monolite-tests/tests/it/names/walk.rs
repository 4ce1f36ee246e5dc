//! A walk through SQLite's grammar: a name of the engine in every place in which a name can stand,
//! in every spelling, in every way in which SQL gets to the engine. What denotes the engine's table
//! is refused. Nothing else shows or changes a row of it, nor leaves one elsewhere.
//!
//! # Algorithm
//! The productions are those of `productions.txt`. Each is shown to mean something: with the name
//! of an ordinary table of the same form, plain SQLite runs it. Behind each statement that did not
//! fail, within its transaction and behind it, every table that a user can read is searched for
//! what the engine keeps ([`CANARIES`]), and the key is asked for.

use std::sync::{Arc, Mutex};

use monolite::rusqlite::types::ValueRef;
use monolite::rusqlite::{self, Connection, Row};
use monolite::{Database, Durability, Error, Options, ReadTx, Tx};
use monolite_testkit::scratch::in_memory;

const TABLE: &str = "monolite_idempotency";
const INDEX: &str = "monolite_idempotency_expires";

/// The key and the outcome that the engine keeps.
const CANARIES: [&str; 2] = ["canary-key", "canary-outcome"];

/// What users have.
const USERS: &str = "CREATE TABLE t(x); CREATE TABLE u(x UNIQUE);
                     INSERT INTO t VALUES (1), (2); INSERT INTO u VALUES (1)";

/// A table as the engine's, for the controls.
const ORDINARY: &str = "CREATE TABLE ordinary(key TEXT PRIMARY KEY, outcome BLOB NOT NULL,
                            expires INTEGER NOT NULL) STRICT, WITHOUT ROWID;
                        CREATE INDEX ordinary_expires ON ordinary(expires);
                        INSERT INTO ordinary VALUES ('canary-key', x'00', 9)";

struct Production {
    setup: &'static str,
    sql: &'static str,
    is_refused: bool,
    has_control: bool,
}

fn productions() -> Vec<Production> {
    let (mut is_refused, mut has_control, mut found) = (false, false, Vec::new());
    for line in include_str!("productions.txt").lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('[') {
            is_refused = line.contains("refused");
            has_control = line == "[refused]";
            continue;
        }
        let (setup, sql) = line.split_once(" => ").unwrap_or(("", line));
        found.push(Production { setup, sql, is_refused, has_control });
    }
    found
}

/// How names are written in one statement.
#[derive(Clone, Copy, Debug)]
struct Spelling {
    schema: &'static str,
    quotes: (&'static str, &'static str),
    letters: fn(&str) -> String,
}

fn mixed(name: &str) -> String {
    let alternate = |(at, letter): (usize, char)| match at % 2 {
        0 => letter.to_ascii_uppercase(),
        _ => letter,
    };
    name.chars().enumerate().map(alternate).collect()
}

fn spellings() -> Vec<Spelling> {
    let mut all = Vec::new();
    let quotes = [("", ""), ("\"", "\""), ("[", "]"), ("`", "`"), ("'", "'")];
    let schemas = ["", "main.", "MAIN.", "\"main\".", "main/*.*/ . --.\n", "[Main]/**/."];
    let letters: [fn(&str) -> String; 3] = [str::to_owned, str::to_uppercase, mixed];
    for (number, schema) in schemas.into_iter().enumerate() {
        for (at, quotes) in quotes.into_iter().enumerate() {
            // Each pair of them once, each letter in turn.
            let letters = letters[(number + at) % 3];
            all.push(Spelling { schema, quotes, letters });
        }
    }
    all
}

impl Spelling {
    fn name(&self, name: &str) -> String {
        format!("{}{}{}", self.quotes.0, (self.letters)(name), self.quotes.1)
    }

    fn write(&self, text: &str, table: &str, index: &str) -> String {
        let argument = |name: &str| {
            let quote = if ["\"", "'"].contains(&self.quotes.0) { self.quotes.0 } else { "'" };
            format!("{quote}{}{quote}", (self.letters)(name))
        };
        text.replace("{T}", &format!("{}{}", self.schema, self.name(table)))
            .replace("{N}", &self.name(table))
            .replace("{Y}", &format!("{}{}", self.schema, self.name(index)))
            .replace("{X}", &self.name(index))
            .replace("{S}", &argument(table))
            .replace("{Z}", &argument(index))
    }
}

/// Whether a row has something in it of what the engine keeps.
fn is_canary(row: &Row<'_>) -> bool {
    (0..row.as_ref().column_count()).any(|column| match row.get_ref_unwrap(column) {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => has_canary(bytes),
        _ => false,
    })
}

fn has_canary(bytes: &[u8]) -> bool {
    let has = |canary: &&str| bytes.windows(canary.len()).any(|part| part == canary.as_bytes());
    CANARIES.iter().any(has)
}

/// What a statement gave, but for the row that was asked for by the key itself.
fn run(tx: &ReadTx<'_>, sql: &str, cached: bool) -> Result<bool, Error> {
    let mut shown = false;
    let mut see = |rows: &mut rusqlite::Rows<'_>| {
        while let Some(row) = rows.next()? {
            shown |= is_canary(row);
        }
        Ok::<_, rusqlite::Error>(())
    };
    if cached {
        see(&mut tx.prepare_cached(sql)?.query(())?)?;
    } else {
        see(&mut tx.prepare(sql)?.query(())?)?;
    }
    Ok(shown)
}

/// Tables of users and of SQLite in which a row of the engine's stands now, or whose names are the
/// engine's.
fn copies(tx: &ReadTx<'_>) -> Result<Vec<String>, Error> {
    let mut names: Vec<String> = Vec::new();
    let mut list = tx.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    let mut rows = list.query(())?;
    while let Some(row) = rows.next()? {
        names.push(row.get(0)?);
    }
    let mut found = Vec::new();
    for name in names.into_iter().chain(["sqlite_schema".into()]) {
        if name.starts_with("monolite_") {
            if name != TABLE {
                found.push(name);
            }
            continue;
        }
        // A table of a module that was left out cannot be read by anybody.
        if run(tx, &format!("SELECT * FROM \"{name}\""), false).unwrap_or(false) {
            found.push(name);
        }
    }
    Ok(found)
}

/// The ways in which SQL gets to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Batch,
    Prepare,
    Cached,
    Execute,
    Read,
    Interactive,
    InteractiveBatch,
}

const WAYS: [Way; 7] = [
    Way::Batch,
    Way::Prepare,
    Way::Cached,
    Way::Execute,
    Way::Read,
    Way::Interactive,
    Way::InteractiveBatch,
];

/// What came of a statement.
struct Seen {
    ended: Result<(), Error>,
    /// What was read or copied of the engine's rows.
    escaped: Vec<String>,
}

impl Way {
    fn is_read(self) -> bool {
        self == Way::Read
    }

    fn run(self, db: &Database, setup: &str, sql: &str) -> Seen {
        match self {
            Way::Interactive | Way::InteractiveBatch => self.run_interactive(db, setup, sql),
            _ => self.run_closure(db, setup, sql),
        }
    }

    fn run_closure(self, db: &Database, setup: &str, sql: &str) -> Seen {
        let escaped = Arc::new(Mutex::new(Vec::new()));
        let (setup, read, told) = (setup.to_owned(), sql.to_owned(), Arc::clone(&escaped));
        let sql = read.clone();
        let one = move |tx: &Tx<'_>| match self {
            Way::Batch => tx.execute_batch(&format!("{setup};{sql}")).map(|()| false),
            _ => {
                tx.execute_batch(&setup)?;
                match self {
                    Way::Execute => tx.execute(&sql, ()).map(|_| false),
                    way => run(tx, &sql, way == Way::Cached),
                }
            }
        };
        let see = move |tx: &ReadTx<'_>, ran: Result<bool, Error>| {
            let mut told = told.lock().unwrap();
            told.clear();
            let shown = ran.inspect_err(|error| {
                // Not the statement, which has the key that it asks for.
                if has_canary(error.message().as_bytes()) {
                    told.push("the error tells it".into());
                }
            })?;
            if shown {
                told.push("its rows were read".into());
            }
            told.extend(copies(tx).unwrap_or_default());
            Ok(())
        };
        let ended = if self.is_read() {
            db.read(|tx| see(tx, run(tx, &read, false))).wait()
        } else {
            db.write(move |tx| see(tx, one(tx))).wait()
        };
        let escaped = std::mem::take(&mut *escaped.lock().unwrap());
        Seen { ended, escaped }
    }

    fn run_interactive(self, db: &Database, setup: &str, sql: &str) -> Seen {
        let tx = db.transaction().unwrap();
        let shown = Arc::new(Mutex::new(false));
        let told = Arc::clone(&shown);
        let see = move |row: &Row<'_>| {
            *told.lock().unwrap() |= is_canary(row);
            Ok(())
        };
        let ran = if self == Way::Interactive {
            let prepared = if setup.is_empty() { Ok(()) } else { tx.execute_batch(setup).wait() };
            prepared.and_then(|()| tx.query_map(sql, (), see).wait()).map(drop)
        } else {
            tx.execute_batch(&format!("{setup};{sql}")).wait()
        };
        let ended = ran.and_then(|()| tx.commit().wait()).map(drop);
        let mut escaped = Vec::new();
        if *shown.lock().unwrap() {
            escaped.push("its rows were read".into());
        }
        Seen { ended, escaped }
    }
}

struct Walk {
    directory: tempfile::TempDir,
    db: Database,
    /// Whether the engine has its table already.
    exists: bool,
}

impl Walk {
    fn begin(exists: bool) -> Walk {
        let directory = in_memory(&std::env::temp_dir()).unwrap();
        let options = Options::new().durability(Durability::Buffered).readers(1);
        let db = options.open(directory.path().join("db")).unwrap();
        db.write(|tx| tx.execute_batch(USERS)).wait().unwrap();
        let walk = Walk { directory, db, exists };
        if exists {
            let tx = walk.db.transaction().unwrap();
            tx.execute("UPDATE t SET x = x", ()).wait().unwrap();
            let committed = tx.commit_once(CANARIES[0], CANARIES[1]).wait().unwrap();
            assert!(!committed.is_repeated());
        }
        walk
    }

    /// Whether it may come to nothing without an error.
    fn is_nothing(&self, production: &Production) -> bool {
        let condition = if self.exists { "IF NOT EXISTS" } else { "IF EXISTS" };
        production.sql.contains(condition)
    }

    /// What is wrong with how a statement ended, if anything.
    fn wrong(&self, production: &Production, seen: &Seen) -> Option<String> {
        if !seen.escaped.is_empty() {
            return Some(format!("escaped: {:?}", seen.escaped));
        }
        if production.is_refused && !self.is_nothing(production) && seen.ended.is_ok() {
            return Some("was not refused".into());
        }
        let expected = self.exists.then(|| CANARIES[1].as_bytes().to_vec());
        let look = |tx: &ReadTx<'_>| Ok::<_, Error>((tx.outcome_of(CANARIES[0])?, copies(tx)?));
        match self.db.read(look).wait() {
            Ok((outcome, copies)) if outcome == expected && copies.is_empty() => None,
            found => Some(format!("left {found:?}")),
        }
    }

    /// Compares the rows of the engine, whole.
    fn end(self) {
        let path = self.directory.path().join("db");
        self.db.close().unwrap();
        let plain = Connection::open(path).unwrap();
        if self.exists {
            let row = plain.query_row(&format!("SELECT * FROM {TABLE}"), (), |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
            });
            assert_eq!(row.unwrap(), (CANARIES[0].into(), CANARIES[1].into()));
        }
        let count = if self.exists { 2 } else { 0 };
        let ours = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'monolite%'";
        let found: i64 = plain.query_row(ours, (), |row| row.get(0)).unwrap();
        assert_eq!(found, count);
    }
}

/// Walks with every `nth` spelling of each production, and another one for the next production.
fn walk(exists: bool, nth: usize) {
    let (mut walk, mut wrong) = (Walk::begin(exists), Vec::new());
    for (at, production) in productions().into_iter().enumerate() {
        let spellings = spellings().into_iter().enumerate();
        for (number, spelling) in spellings.filter(|(number, _)| (number + at) % nth == 0) {
            let write = |text| spelling.write(text, TABLE, INDEX);
            let (setup, sql) = (write(production.setup), write(production.sql));
            // Each way with a few spellings; each spelling in a few ways.
            for (at, way) in WAYS.into_iter().enumerate() {
                if (number + at) % 3 != 0 && number != 0 {
                    continue;
                }
                let seen = way.run(&walk.db, &setup, &sql);
                if let Some(what) = walk.wrong(&production, &seen) {
                    wrong.push(format!("{way:?}, {setup} => {sql}: {what}"));
                }
                if seen.ended.is_ok() && !way.is_read() {
                    std::mem::replace(&mut walk, Walk::begin(exists)).end();
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} escapes:\n{}", wrong.len(), wrong.join("\n"));
    walk.end();
}

#[test]
fn no_production_of_the_grammar_reaches_the_keys_or_takes_their_names() {
    walk(true, 30);
    walk(false, 30);
}

#[test]
#[ignore = "long: the gate runs it"]
fn no_spelling_of_a_production_reaches_the_keys_or_takes_their_names() {
    walk(true, 1);
    walk(false, 1);
}

/// The walk means something: with another name, the same statements run.
#[test]
fn each_production_runs_with_the_name_of_an_ordinary_table() {
    Database::open(":memory:").unwrap();
    let mut failed = Vec::new();
    for production in productions().iter().filter(|it| it.has_control) {
        for spelling in spellings().iter().filter(|it| it.quotes.0 != "'") {
            let plain = Connection::open_in_memory().unwrap();
            plain.execute_batch(&format!("{USERS}; {ORDINARY}")).unwrap();
            let write = |text| spelling.write(text, "ordinary", "ordinary_expires");
            let (setup, sql) = (write(production.setup), write(production.sql));
            let ran = plain.execute_batch(&format!("{setup};{sql}"));
            let text = ran.as_ref().err().map(ToString::to_string).unwrap_or_default();
            // Qualified names are for the outermost statement alone.
            if ran.is_err() && !text.contains("qualified") {
                failed.push(format!("{setup} => {sql}: {text}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// And it notices an escape: where nobody refuses anything, rows are read and changed.
#[test]
fn the_walk_notices_what_an_ordinary_table_shows() {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    db.write(|tx| tx.execute_batch(&format!("{USERS}; {ORDINARY}"))).wait().unwrap();
    let seen = Way::Read.run(&db, "", "SELECT * FROM ordinary");
    assert_eq!(seen.escaped, ["its rows were read", "ordinary"]);
    let seen = Way::Interactive.run(&db, "", "SELECT key FROM ordinary");
    assert_eq!(seen.escaped, ["its rows were read"]);
    let samples = "SELECT * FROM sqlite_stat4 WHERE tbl = 'ordinary'";
    let seen = Way::Prepare.run(&db, "ANALYZE", samples);
    assert_eq!(seen.escaped, ["its rows were read", "ordinary", "sqlite_stat4"]);
}

#[test]
fn a_rename_that_was_prepared_and_kept_is_refused_when_it_is_found_again() {
    let rename = "ALTER TABLE u RENAME TO monolite_users";
    for end in ["returns", "fails", "panics"] {
        let walk = Walk::begin(true);
        let first = walk.db.write(move |tx| {
            drop(tx.prepare_cached(rename)?);
            match end {
                "returns" => Ok(()),
                "fails" => Err(Error::from(rusqlite::Error::InvalidQuery)),
                _ => panic!("on purpose"),
            }
        });
        let caught = std::panic::AssertUnwindSafe(|| first.wait());
        assert_eq!(std::panic::catch_unwind(caught).is_err(), end == "panics");
        for _ in 0..2 {
            let run = |tx: &Tx<'_>| Ok(tx.prepare_cached(rename)?.execute(()).map(drop)?);
            let error: Error = walk.db.write(run).wait().unwrap_err();
            assert!(error.to_string().contains("belong to the engine"), "{end}: {error}");
        }
        walk.end();
    }
}

#[test]
fn no_blob_of_the_keys_can_be_opened() {
    let walk = Walk::begin(true);
    for column in ["key", "outcome", "expires"] {
        let open = move |tx: &ReadTx<'_>| tx.blob_open(TABLE, column, 1).map(drop);
        assert!(walk.db.write(move |tx| open(tx)).wait().is_err());
        assert!(walk.db.read(open).wait().is_err());
    }
    walk.end();
}
