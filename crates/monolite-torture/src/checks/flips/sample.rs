//! Owns the database that is damaged: what is in it, what is asked of it, and the right answers.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use monolite::rusqlite::types::ValueRef;
use monolite::{Database, Error, ErrorKind, Options, ReadTx, Tx};
use monolite_testkit::storage::wal_beside;

/// Tables with a rowid and without, indexes, and values with pages of their own.
const SCHEMA: &str = "
    CREATE TABLE account(
        id INTEGER PRIMARY KEY, owner TEXT NOT NULL, balance INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX account_owner ON account(owner);
    CREATE INDEX account_balance ON account(balance, id);
    CREATE TABLE ledger(
        account INTEGER NOT NULL, number INTEGER NOT NULL, amount INTEGER NOT NULL, reason TEXT,
        PRIMARY KEY (account, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE document(id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
    CREATE TABLE filler(body BLOB);
";

const ACCOUNTS: i64 = 300;

/// Ledger entries of each account at first.
const ENTRIES: i64 = 5;

/// Bytes of a document: five pages and a piece.
const DOCUMENT: usize = 22_000;

/// Transactions that are in the WAL only.
const IN_WAL: i64 = 8;

/// What is asked: full scans, index lookups, aggregates. Each is a read transaction.
const QUESTIONS: [&str; 11] = [
    "SELECT * FROM sqlite_schema ORDER BY rowid",
    "SELECT * FROM account ORDER BY id",
    "SELECT id, owner FROM account INDEXED BY account_owner ORDER BY owner",
    "SELECT id, balance FROM account INDEXED BY account_balance ORDER BY balance, id",
    "SELECT COUNT(*), SUM(balance), MIN(owner), MAX(owner), MIN(balance) FROM account",
    "SELECT * FROM ledger ORDER BY account, number",
    "SELECT account, COUNT(*), SUM(amount) FROM ledger GROUP BY account",
    "SELECT a.id, b.balance FROM account AS a JOIN account AS b ON b.owner = a.owner ORDER BY a.id",
    "SELECT a.id, l.reason FROM account AS a JOIN ledger AS l
        ON l.account = a.id AND l.number = a.id % 5 ORDER BY a.id",
    "SELECT id, body FROM document ORDER BY id",
    "SELECT COUNT(*), SUM(length(body)) FROM document WHERE substr(body, 12000, 1) > x'00'",
];

/// One answer: a digest of the rows, or why there is none.
pub(super) type Answer = Result<u64, Error>;

/// The right digests, in the order of [`QUESTIONS`].
pub(super) type Digests = Vec<u64>;

/// Which files are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    /// The database as a clean end leaves it.
    Closed,
    /// The database and its WAL as a `kill -9` leaves them.
    Live,
}

/// What an image must answer.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// The states that the database was in with each commit in its WAL, the last one last.
    pub(super) states: Vec<Digests>,
    /// After [`write`].
    pub(super) after: Digests,
}

/// The files and the answers to expect of them.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    directory: PathBuf,
    pub(super) closed: Expected,
    pub(super) live: Expected,
}

/// Whether the pages have checksums that are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    Checked,
    /// The broken arrangement.
    Unchecked,
}

/// How the damaged database is opened.
pub(super) fn options(pages: Pages) -> Options {
    let limit = Duration::from_secs(10);
    Options::new()
        .page_checksums(pages == Pages::Checked)
        .readers(1)
        .reader_cache_bytes(1 << 20)
        .writer_cache_bytes(4 << 20)
        .write_time_limit(limit)
        .read_time_limit(limit)
}

impl Sample {
    /// Makes the files in `directory`.
    pub(super) fn make(directory: &Path, pages: Pages) -> Result<Sample> {
        let path = directory.join("making.db");
        let db = options(pages).open(&path)?;
        db.write(create).wait()?;
        db.close()?;
        let closed_path = directory.join(Image::Closed.name());
        fs::copy(&path, &closed_path)?;
        let live_path = directory.join(Image::Live.name());
        let states = make_live(&path, &live_path, pages)?;
        let closed = states.first().context("there is a first state")?.clone();
        let closed = Expected { after: after_write(&closed_path, pages)?, states: vec![closed] };
        let live = Expected { after: after_write(&live_path, pages)?, states };
        Ok(Sample { directory: directory.to_owned(), closed, live })
    }

    /// The pristine file of `image`; its WAL is beside it.
    pub(super) fn path(&self, image: Image) -> PathBuf {
        self.directory.join(image.name())
    }

    pub(super) fn expected(&self, image: Image) -> &Expected {
        match image {
            Image::Closed => &self.closed,
            Image::Live => &self.live,
        }
    }
}

impl Image {
    pub(super) fn name(self) -> &'static str {
        match self {
            Image::Closed => "closed.db",
            Image::Live => "live.db",
        }
    }
}

/// Commits to the database at `path` and copies it with its WAL; returns the states it was in.
fn make_live(path: &Path, copy: &Path, pages: Pages) -> Result<Vec<Digests>> {
    let db = options(pages).open(path)?;
    let mut states = vec![digests(ask(&db))?];
    for number in 0..IN_WAL {
        db.write(move |tx| transfer(tx, number)).wait()?;
        states.push(digests(ask(&db))?);
    }
    fs::copy(path, copy)?;
    fs::copy(wal_beside(path), wal_beside(copy))?;
    db.close()?;
    let wal_bytes = fs::metadata(wal_beside(copy))?.len();
    ensure!(wal_bytes > 4_096 * IN_WAL as u64, "the WAL was copied into the database too early");
    Ok(states)
}

fn create(tx: &Tx<'_>) -> Result<(), Error> {
    tx.execute_batch(SCHEMA)?;
    for id in 0..ACCOUNTS {
        // Prime to the number of accounts, so that the index has another order than the table.
        let owner = format!("owner {:05} of account {id}", id * 7_919 % ACCOUNTS);
        tx.execute("INSERT INTO account VALUES (?1, ?2, ?3)", (id, owner, 1_000 + id % 17))?;
        for number in 0..ENTRIES {
            let reason = format!("entry {number} of {id}");
            let entry = (id, number, 200 + number, reason);
            tx.execute("INSERT INTO ledger VALUES (?1, ?2, ?3, ?4)", entry)?;
        }
    }
    for id in 0..4 {
        tx.execute("INSERT INTO document VALUES (?1, ?2)", (id, document(id)))?;
    }
    for _ in 0..3 {
        tx.execute("INSERT INTO filler VALUES (?1)", [vec![0xAB_u8; DOCUMENT]])?;
    }
    // Free pages.
    tx.execute_batch("DROP TABLE filler")
}

fn document(id: i64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(id as u64);
    // No byte is zero, so that a zeroed sector shows.
    (0..DOCUMENT).map(|_| rng.u8(1..)).collect()
}

fn transfer(tx: &Tx<'_>, number: i64) -> Result<(), Error> {
    let (from, to) = (number * 37 % ACCOUNTS, (number * 91 + 1) % ACCOUNTS);
    let add = "UPDATE account SET balance = balance + ?1 WHERE id = ?2";
    tx.execute(add, (-5, from))?;
    tx.execute(add, (5, to))?;
    let entry = "INSERT INTO ledger VALUES (?1, ?2, 5, 'transfer')";
    tx.execute(entry, (to, ENTRIES + number))?;
    if number % 3 == 0 {
        tx.execute("REPLACE INTO document VALUES (?1, ?2)", (number, document(100 + number)))?;
    }
    Ok(())
}

/// What is written to a damaged database: it takes free pages, and gives some back.
pub(super) fn write(db: &Database) -> Result<(), Error> {
    db.write(|tx| {
        transfer(tx, 99)?;
        tx.execute("INSERT INTO document VALUES (1000, ?1)", [document(1_000)])?;
        tx.execute("DELETE FROM document WHERE id = 2", ())?;
        Ok(())
    })
    .wait()
}

/// The digests after [`write`] to a copy of the undamaged database at `path`.
fn after_write(path: &Path, pages: Pages) -> Result<Digests> {
    let copy = path.with_extension("copy");
    copy_image(path, &copy)?;
    let db = options(pages).open(&copy)?;
    write(&db)?;
    let after = digests(ask(&db))?;
    db.close()?;
    fs::remove_file(copy)?;
    Ok(after)
}

/// Copies a database with its WAL if it has one; none is left beside `to` otherwise.
pub(super) fn copy_image(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    let (from, to) = (wal_beside(from), wal_beside(to));
    if from.exists() {
        fs::copy(from, to)?;
    } else if to.exists() {
        fs::remove_file(to)?;
    }
    Ok(())
}

/// Asks everything.
pub(super) fn ask(db: &Database) -> Vec<Answer> {
    QUESTIONS.iter().map(|sql| db.read(|tx| digest(tx, sql)).wait()).collect()
}

fn digest(tx: &ReadTx<'_>, sql: &str) -> Result<u64, Error> {
    let mut statement = tx.prepare_cached(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query(())?;
    let mut digest = DefaultHasher::new();
    while let Some(row) = rows.next()? {
        for column in 0..columns {
            match row.get_ref(column)? {
                ValueRef::Null => 0_u8.hash(&mut digest),
                ValueRef::Integer(value) => value.hash(&mut digest),
                ValueRef::Real(value) => value.to_bits().hash(&mut digest),
                ValueRef::Text(value) | ValueRef::Blob(value) => value.hash(&mut digest),
            }
        }
        u64::MAX.hash(&mut digest);
    }
    Ok(digest.finish())
}

fn digests(answers: Vec<Answer>) -> Result<Digests> {
    Ok(answers.into_iter().collect::<Result<_, Error>>()?)
}

/// Whether an error says that the file is damaged.
pub(super) fn tells_damage(error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt
}
