//! The child that is attacked: runs cases in a database with neighbours, and looks at everything
//! that must not have changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use monolite::rusqlite::{self, Connection};
use monolite::{Database, Error, ErrorKind, Options, Tx, Untrusted, Write};
use monolite_testkit::child::{say, variable};

use super::cases::{self, Case, Must};
use super::machine::patience;
use super::{Guard, Way};

/// The child's role.
pub(in crate::checks) const ROLE: &str = "hostile";

pub(super) const DIRECTORY: &str = "MONOLITE_DIRECTORY";
pub(super) const GUARD: &str = "MONOLITE_GUARD";
pub(super) const WAY: &str = "MONOLITE_WAY";
pub(super) const CASES: &str = "MONOLITE_CASES";

/// How long a transaction may take; enough for a neighbour on a busy machine.
const LIMIT: Duration = Duration::from_millis(200);

/// By how much it may be late: one instruction takes tenths of a second at worst, and 20 of them
/// are run between two looks at the clock; views of views are expanded without a look, until
/// memory or SQLite's own limit (65,535 of one table) ends it. Without optimisation all of that is
/// slow.
pub(super) const SLACK: Duration = Duration::from_secs(if cfg!(debug_assertions) { 15 } else { 3 });

/// What a transaction may allocate beside its page cache.
const MEMORY: u64 = 16 << 20;

/// What the process may grow by: the budget, that of the dry run, the page caches, and what the
/// case's own text, the parser's Rust side and the allocator's slack take.
const GROWTH_KIB: u64 = 2 * (MEMORY >> 10) + 48 * 1_024;

/// What must not change.
const SETTINGS: [&str; 7] = [
    "foreign_keys",
    "synchronous",
    "journal_mode",
    "wal_autocheckpoint",
    "query_only",
    "cache_size",
    "temp_store",
];

/// What is there besides the victim table.
const BESIDE: &str = "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema
     WHERE tbl_name IN ('bystander', 'big') AND name NOT IN ('z') ORDER BY name)";

/// The role of the child.
pub(in crate::checks) fn play() -> Result<()> {
    let text = |name| variable::<String>(name);
    let (directory, list) = (text(DIRECTORY)?, text(CASES)?);
    let guard = named(&Guard::ALL, &text(GUARD)?).context("no such guard")?;
    let way = named(&Way::ALL, &text(WAY)?).context("no such way")?;
    // File names in the cases are relative.
    std::env::set_current_dir(&directory)?;
    prepare(Path::new("good.db"))?;
    let cases = cases::all();
    let watchman = Watchman::start();
    for number in list.split(',') {
        let case = cases.get(number.parse::<usize>()?).context("no such case")?;
        say(&format!("case {number}"));
        watchman.begin();
        let seen = match guard {
            Guard::Nobody => alone(case),
            Guard::Profile | Guard::Engine => guarded(case, guard, way, &watchman),
        };
        watchman.end();
        // What the check cannot do any more is an escape, too: the database is not what it was.
        for what in seen.unwrap_or_else(|error| vec![format!("afterwards: {error:#}")]) {
            say(&format!("escape {}", what.replace('\n', " ")));
        }
        say("done");
    }
    Ok(())
}

fn named<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    all.iter().find(|(known, _)| *known == name).map(|(_, it)| *it)
}

/// How often the watchman looks.
const GLANCE: Duration = Duration::from_millis(50);

/// Ends the process when a case does not end. It counts its own glances: when the machine stands
/// still, so does it.
struct Watchman {
    /// How many more glances the running case has; `u64::MAX` while there is none.
    left: Arc<AtomicU64>,
}

impl Watchman {
    fn start() -> Watchman {
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let watched = Arc::clone(&left);
        thread::spawn(move || {
            loop {
                thread::sleep(GLANCE);
                let next = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(1));
                let before = watched.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
                if before == Ok(0) {
                    say("escape it does not end");
                    std::process::exit(1);
                }
            }
        });
        Watchman { left }
    }

    fn set(&self, patience: Duration) {
        let glances = patience.as_millis() / GLANCE.as_millis();
        self.left.store(u64::try_from(glances).unwrap_or(u64::MAX - 1), Ordering::SeqCst);
    }

    /// A case begins, with its preparations.
    fn begin(&self) {
        self.set(LIMIT + SLACK * 8);
    }

    /// The hostile transaction itself begins.
    fn attack(&self) {
        self.set(LIMIT + SLACK);
    }

    fn end(&self) {
        self.left.store(u64::MAX, Ordering::SeqCst);
    }
}

fn prepare(path: &Path) -> Result<()> {
    let db = Options::new().open(path)?;
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE victim(id INTEGER PRIMARY KEY, x);
             INSERT INTO victim VALUES (1, 1), (2, 2);
             CREATE TABLE bystander(n INTEGER PRIMARY KEY);
             INSERT INTO bystander VALUES (0);
             CREATE TABLE big(x);
             INSERT INTO big WITH RECURSIVE n(i) AS
                 (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT i FROM n;
             PRAGMA user_version = 7",
        )
    })
    .wait()?;
    let tx = db.transaction()?;
    tx.execute("UPDATE victim SET x = x WHERE id = 1", ()).wait()?;
    tx.commit_once("paid", "receipt").wait()?;
    db.close()?;
    // Not before: the engine must be the first to use SQLite.
    let other = Connection::open("other.db")?;
    other.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES ('secret')")?;
    Ok(())
}

/// A fresh database under the name `db`.
fn fresh() -> Result<()> {
    for name in ["db-wal", "db-shm", "new.db"] {
        match fs::remove_file(name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    fs::copy("good.db", "db")?;
    Ok(())
}

fn open(guard: Guard) -> Result<Database, Error> {
    let options = Options::new()
        .readers(2)
        .writer_cache_bytes(1 << 20)
        .reader_cache_bytes(1 << 20)
        .wal_limit_bytes(16 << 20);
    match guard {
        Guard::Profile => options
            .write_time_limit(LIMIT)
            .read_time_limit(LIMIT)
            .untrusted(Untrusted::new().memory_limit_bytes(MEMORY))
            .open("db"),
        Guard::Engine | Guard::Nobody => options.open("db"),
    }
}

/// What the directory holds besides the database's own files, and how long each file is.
fn files() -> Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(".")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !["db", "db-wal", "db-shm"].contains(&name.as_str()) {
            found.insert(name, entry.metadata()?.len());
        }
    }
    Ok(found)
}

/// A case through the engine.
fn guarded(case: &Case, guard: Guard, way: Way, watchman: &Watchman) -> Result<Vec<String>> {
    fresh()?;
    let db = open(guard)?;
    nest(&db)?;
    let setup = case.setup.clone();
    let prepared = db.write(move |tx| tx.execute_batch(&setup)).wait();
    let (files_before, before) = (files()?, settings(&db)?);
    let version = value(&db, "PRAGMA user_version")?;
    reset_peak();
    let peak = peak_kib();
    watchman.attack();
    let (outcome, neighbours) = attack(&db, case, way)?;
    watchman.begin();
    let grown = peak_kib().saturating_sub(peak);
    let mut seen = judge(case, way, prepared.is_ok(), &outcome);
    seen.extend(neighbours);
    if grown > GROWTH_KIB {
        seen.push(format!("the process grew by {grown} KiB"));
    }
    if settings(&db)? != before || value(&db, "PRAGMA user_version")? != version {
        seen.push(format!("settings changed: {before} became {}", settings(&db)?));
    }
    close(&db)?;
    seen.extend(afterwards(&files_before)?);
    Ok(seen)
}

/// Closes a database when SQLite has returned from the plan that it may be in the midst of.
pub(super) fn close(db: &Database) -> Result<(), Error> {
    loop {
        match db.close() {
            Err(error) if error.kind() == ErrorKind::Timeout => {}
            closed => return closed,
        }
    }
}

/// Has the engine prepare what it says by itself, for others to find by its text: the savepoints of
/// an interactive transaction, in the writer too.
fn nest(db: &Database) -> Result<(), Error> {
    let tx = db.transaction()?;
    for name in ["sp", "inner"] {
        tx.savepoint(name).wait()?;
        tx.execute("UPDATE victim SET x = x WHERE id = 1", ()).wait()?;
    }
    tx.rollback_to("inner").wait()?;
    tx.release("inner").wait()?;
    tx.release("sp").wait()?;
    tx.commit().wait().map(drop)
}

/// A case through SQLite alone, in a transaction as the engine's would be.
fn alone(case: &Case) -> Result<Vec<String>> {
    fresh()?;
    let files_before = files()?;
    let db = Connection::open("db")?;
    // It may be one that cannot run in a transaction.
    if !case.sql.starts_with("VACUUM") && !case.sql.starts_with("ATTACH") {
        db.execute_batch("BEGIN IMMEDIATE")?;
    }
    let result = db.execute_batch(&case.sql).map_err(Error::from);
    let mut seen = judge(case, Way::Write, true, &result);
    drop(db);
    seen.extend(afterwards(&files_before)?);
    Ok(seen)
}

/// What is wrong with the answer.
fn judge(case: &Case, way: Way, prepared: bool, outcome: &Result<(), Error>) -> Vec<String> {
    let mut seen = Vec::new();
    match (outcome, case.must) {
        // A closure that swallows errors may succeed; what it ran failed all the same.
        (Ok(()), Must::BeRefused | Must::Fail) if way != Way::Swallow && prepared => {
            seen.push("it was allowed".into());
        }
        (Err(error), Must::BeRefused) if prepared && way != Way::Swallow => {
            let late = error.kind() == ErrorKind::Timeout;
            if error.kind() != ErrorKind::Invalid && !late {
                seen.push(format!("it was refused as {:?}: {error}", error.kind()));
            }
        }
        _ => {}
    }
    if let Err(error) = outcome {
        let kinds = [ErrorKind::Internal, ErrorKind::Corrupt, ErrorKind::Poisoned];
        if kinds.contains(&error.kind()) {
            seen.push(format!("the error is of kind {:?}: {error}", error.kind()));
        }
    }
    seen
}

type Attack = (Result<(), Error>, Vec<String>);

/// Runs the case between two neighbours of its batch, or as a read.
fn attack(db: &Database, case: &Case, way: Way) -> Result<Attack> {
    if way == Way::Read {
        let outcome = db.read(|tx| execute(tx, &case.sql)).wait();
        let neighbours = [1, 2].map(|n| neighbour(db, n).wait());
        return Ok((outcome, complaints(&neighbours)));
    }
    if way == Way::Transaction {
        let before = neighbour(db, 1).wait();
        let outcome = interactive(db, &case.sql);
        return Ok((outcome, complaints(&[before, neighbour(db, 2).wait()])));
    }
    let (open_gate, gate) = mpsc::channel::<()>();
    let (arrive, arrived) = mpsc::channel::<()>();
    let holding = db.write_once(move |_| {
        // Either end of these channels lives until both have been used.
        let _ = arrive.send(());
        let _ = gate.recv_timeout(LIMIT / 4);
        Ok::<_, Error>(())
    });
    arrived.recv().map_err(|_| anyhow!("the writer did not begin"))?;
    let before = neighbour(db, 1);
    let attacking = submit(db, case, way);
    let after = neighbour(db, 2);
    let start = Instant::now();
    let _ = open_gate.send(());
    holding.wait()?;
    let outcome = attacking.wait();
    let may_refuse = start.elapsed() > patience(LIMIT);
    let neighbours = [(1, before), (2, after)].map(|(n, write)| match write.wait() {
        // On a machine with more to do. It comes again, as the error says.
        Err(error) if may_refuse && error.kind() == ErrorKind::Overloaded => {
            neighbour(db, n).wait()
        }
        ended => ended,
    });
    Ok((outcome, complaints(&neighbours)))
}

/// Runs the case as an interactive transaction, a single query to its last row.
fn interactive(db: &Database, sql: &str) -> Result<(), Error> {
    let tx = db.transaction()?;
    tx.execute_batch(sql).wait()?;
    // Another one might not be what it was when it is run twice.
    let is_query = ["SELECT", "WITH", "VALUES"].iter().any(|word| sql.starts_with(word));
    if is_query && !sql.contains(';') {
        tx.query_map(sql, (), |_| Ok(())).wait()?;
    }
    tx.commit().wait().map(drop)
}

fn submit(db: &Database, case: &Case, way: Way) -> Write<(), Error> {
    let sql = case.sql.clone();
    let swallowing = move |tx: &Tx<'_>| {
        let result = execute(tx, &sql);
        if way == Way::Swallow { Ok(()) } else { result }
    };
    if way == Way::WriteOnce { db.write_once(swallowing) } else { db.write(swallowing) }
}

/// Runs the statements, and reads all rows of a single one that only reads. A single one that is
/// refused is tried once more as one that is kept prepared: it may be found there.
fn execute(tx: &Tx<'_>, sql: &str) -> Result<(), Error> {
    match tx.execute_batch(sql) {
        Err(error) if error.kind() == ErrorKind::Invalid && !sql.contains(';') => {
            return tx.execute(sql, ()).map_err(|_| error).map(drop);
        }
        ended => ended?,
    }
    let Ok(mut statement) = tx.prepare(sql) else { return Ok(()) };
    if statement.readonly() && statement.column_count() > 0 {
        let mut rows = statement.query(())?;
        while rows.next()?.is_some() {}
    }
    Ok(())
}

fn neighbour(db: &Database, n: i64) -> Write<usize, Error> {
    db.write(move |tx| tx.execute("INSERT INTO bystander VALUES (?1)", [n]))
}

fn complaints(neighbours: &[Result<usize, Error>]) -> Vec<String> {
    let failed = neighbours.iter().filter_map(|it| it.as_ref().err());
    failed.map(|error| format!("a neighbour failed: {error}")).collect()
}

/// The settings of the writer's connection and of a reader's.
fn settings(db: &Database) -> Result<String> {
    let ask = |tx: &Tx<'_>| {
        let mut values = Vec::new();
        for name in SETTINGS {
            let sql = format!("PRAGMA {name}");
            let value = tx.query_row(&sql, (), |row| row.get::<_, rusqlite::types::Value>(0))?;
            values.push(format!("{name}={value:?}"));
        }
        Ok::<_, Error>(values.join(" "))
    };
    Ok(format!("{} | {}", db.write(ask).wait()?, db.read(ask).wait()?))
}

fn value(db: &Database, sql: &str) -> Result<i64, Error> {
    db.read(|tx| tx.query_row(sql, (), |row| row.get(0))).wait()
}

/// Looks at the files with SQLite alone.
fn afterwards(files_before: &BTreeMap<String, u64>) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    let files = files()?;
    if files != *files_before {
        seen.push(format!("files changed: {files:?}"));
    }
    let db = Connection::open("db")?;
    let good = Connection::open("good.db")?;
    let text = |db: &Connection, sql: &str| db.query_row(sql, (), |row| row.get::<_, String>(0));
    let (was, is) = (text(&good, BESIDE)?, text(&db, BESIDE)?);
    if was != is {
        seen.push(format!("the schema changed: {is}"));
    }
    let rows = text(&db, "SELECT group_concat(n) FROM (SELECT n FROM bystander ORDER BY n)")?;
    if rows != "0,1,2" {
        seen.push(format!("the neighbours' rows are {rows}"));
    }
    let sum = text(&db, "SELECT count(*) || ' ' || sum(x) FROM big")?;
    if sum != "300 45150" {
        seen.push(format!("another table changed: {sum}"));
    }
    // The row without a key has the time by which the others expire.
    let keys = "SELECT group_concat(key || CAST(outcome AS TEXT)) FROM monolite_idempotency \
                WHERE key <> ''";
    let keys = text(&db, keys).unwrap_or_else(|error| error.to_string());
    if keys != "paidreceipt" {
        seen.push(format!("the idempotency keys are {keys}"));
    }
    let integrity = text(&db, "PRAGMA integrity_check")?;
    if integrity != "ok" {
        seen.push(format!("integrity: {integrity}"));
    }
    Ok(seen)
}

/// Lets the system measure the peak of memory anew, where it can.
pub(super) fn reset_peak() {
    // Without it the peak so far is taken, which finds less.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

pub(super) fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|it| it.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
