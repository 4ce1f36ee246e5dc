//! A page that asks 201 small questions: a list, and four lookups for each of its 50 rows.
//!
//! It is asked in process, and of PostgreSQL over loopback TCP, one statement after the other as
//! such pages do. The private PostgreSQL starts with the first trial that needs it.

use super::shift::Crew;
use super::{Bundle, Entry, Ground, Turn, no_postgres, on_engine};
use crate::drivers::postgres::server::{Reach, Server};
use crate::drivers::{Goal, Part, Round};
use crate::raw_connection::open_bare;
use crate::report::record::Section;
use anyhow::{Result, ensure};
use monolite::{Database, Options};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio_postgres::{NoTls, Statement};

/// Rows of each table.
const ROWS: i64 = 10_000;

/// Rows of a page.
const LISTED: usize = 50;

/// The tables that are looked into for every row.
const TABLES: [&str; 4] = ["author", "score", "label", "state"];

/// What PostgreSQL may need of the disk.
const POSTGRES_BYTES: u64 = 1 << 30;

fn list(placeholder: &str) -> String {
    format!("SELECT id FROM item WHERE id >= {placeholder} ORDER BY id LIMIT {LISTED}")
}

fn look(table: &str, placeholder: &str) -> String {
    format!("SELECT name FROM {table} WHERE id = {placeholder}")
}

fn schema() -> String {
    let tables = std::iter::once("item").chain(TABLES);
    let table = |name| format!("CREATE TABLE {name}(id BIGINT PRIMARY KEY, name TEXT NOT NULL);");
    tables.map(table).collect()
}

fn file(dir: &Path) -> PathBuf {
    dir.join("page.db")
}

/// Loads the tables, and says whether PostgreSQL takes part.
pub fn prepare(ground: &Ground<'_>) -> Result<Vec<String>> {
    let mut connection = open_bare(&file(ground.dir))?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
    // As SQLite names the key of a table that is one B-tree.
    connection.execute_batch(&schema().replace("BIGINT", "INTEGER"))?;
    let batch = connection.transaction()?;
    for table in std::iter::once("item").chain(TABLES) {
        let mut insert = batch.prepare(&format!("INSERT INTO {table} VALUES (?1, ?2)"))?;
        for id in 1..=ROWS {
            insert.execute((id, format!("{table} {id}")))?;
        }
    }
    batch.commit()?;
    Ok(vec![match no_postgres(ground) {
        None => "the page: PostgreSQL is a private server, over loopback TCP".into(),
        Some(reason) => format!("the page: no PostgreSQL: {reason}"),
    }])
}

/// The page, by everybody.
pub fn bundle(ground: &Ground<'_>) -> Bundle {
    type Run = fn(&Path, &Turn<'_>) -> Result<Round>;
    let lines: [(&str, &str, Run); 3] = [
        ("raw", "raw, in process", raw),
        ("monolite-one", "monolite, one read for the page", one_read),
        ("monolite-many", "monolite, a read for each query", many_reads),
    ];
    let mut entries: Vec<Entry> = lines
        .into_iter()
        .map(|(line, name, run)| {
            let path = file(ground.dir);
            Entry::new(line, name, 1, move |turn| run(&path, turn))
        })
        .collect();
    if no_postgres(ground).is_none() {
        let (postgres, data) = (OnceCell::new(), ground.options.data.clone());
        let trial = move |turn: &Turn<'_>| {
            if postgres.get().is_none() {
                // Nothing else sets it: trials run one after another.
                let _ = postgres.set(Postgres::start(&data)?);
            }
            postgres.get().expect("it was set").pages(turn)
        };
        entries.push(Entry::new("postgres", "PostgreSQL, over loopback", 1, trial));
    }
    let meaning = "In process a query costs what it finds; over a connection it costs the way \
                   there and back";
    let section = Section::new("kv/page", "Pages of 201 queries", meaning, ["clients", "pages"]);
    Bundle { section, check: "every page has all of its rows", entries }
}

/// First row of a page.
fn first(random: &mut fastrand::Rng) -> i64 {
    random.i64(1..=ROWS - LISTED as i64)
}

fn check(found: usize) -> Result<()> {
    let all = LISTED * TABLES.len();
    ensure!(found == all, "a page has {found} of its {all} names");
    Ok(())
}

fn raw(path: &Path, turn: &Turn<'_>) -> Result<Round> {
    Crew { threads: 1, sample: 1, turn }.work(|number, shift| {
        let connection = open_bare(path)?;
        let mut random = turn.random(number);
        let mut list = connection.prepare(&list("?1"))?;
        let looks = TABLES.map(|table| connection.prepare(&look(table, "?1")));
        let mut looks = looks.into_iter().collect::<rusqlite::Result<Vec<_>>>()?;
        shift.repeat(|| {
            let ids: Vec<i64> = list
                .query_map([first(&mut random)], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            let mut found = 0;
            for id in ids {
                for look in &mut looks {
                    let name: String = look.query_row([id], |row| row.get(0))?;
                    found += usize::from(!name.is_empty());
                }
            }
            check(found)
        })
    })
}

fn one_read(path: &Path, turn: &Turn<'_>) -> Result<Round> {
    by_engine(path, turn, |db, first, list, looks| {
        let found: monolite::Result<usize> = db
            .read(|tx| {
                let mut statement = tx.prepare_cached(list)?;
                let ids = statement.query_map([first], |row| row.get::<_, i64>(0))?;
                let mut found = 0;
                for id in ids {
                    let id = id?;
                    for look in looks {
                        let name: String = tx.query_row(look, [id], |row| row.get(0))?;
                        found += usize::from(!name.is_empty());
                    }
                }
                Ok(found)
            })
            .wait();
        check(found?)
    })
}

fn many_reads(path: &Path, turn: &Turn<'_>) -> Result<Round> {
    by_engine(path, turn, |db, first, list, looks| {
        let ids: monolite::Result<Vec<i64>> = db
            .read(|tx| {
                let mut statement = tx.prepare_cached(list)?;
                let ids = statement.query_map([first], |row| row.get(0))?;
                Ok(ids.collect::<monolite::rusqlite::Result<_>>()?)
            })
            .wait();
        let mut found = 0;
        for id in ids? {
            for look in looks {
                let name: monolite::Result<String> =
                    db.read(|tx| tx.query_row(look, [id], |row| row.get(0))).wait();
                found += usize::from(!name?.is_empty());
            }
        }
        check(found)
    })
}

/// Has one client ask for pages, each by its first row and the statements.
fn by_engine(
    path: &Path,
    turn: &Turn<'_>,
    page: impl Fn(&Database, i64, &str, &[String; TABLES.len()]) -> Result<()> + Sync,
) -> Result<Round> {
    let (list, looks) = (list("?1"), TABLES.map(|table| look(table, "?1")));
    on_engine(Options::new(), path, |db| {
        Crew { threads: 1, sample: 1, turn }.work(|number, shift| {
            let mut random = turn.random(number);
            shift.repeat(|| page(db, first(&mut random), &list, &looks))
        })
    })
}

/// A private server with the tables, and a connection to it over TCP.
struct Postgres {
    runtime: Runtime,
    client: tokio_postgres::Client,
    list: Statement,
    looks: Vec<Statement>,
    // Stopped last.
    _server: Server,
}

impl Postgres {
    fn start(data: &Path) -> Result<Postgres> {
        let server = Server::start(data, POSTGRES_BYTES, POSTGRES_BYTES, Reach::Loopback)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (client, list, looks) = runtime.block_on(async {
            let (client, connection) = server.config().connect(NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute(&schema()).await?;
            for table in std::iter::once("item").chain(TABLES) {
                let fill = format!(
                    "INSERT INTO {table} SELECT i, '{table} ' || i \
                     FROM generate_series(1, {ROWS}) i"
                );
                client.batch_execute(&fill).await?;
            }
            client.batch_execute("VACUUM (ANALYZE)").await?;
            let list = client.prepare(&list("$1")).await?;
            let mut looks = Vec::new();
            for table in TABLES {
                looks.push(client.prepare(&look(table, "$1")).await?);
            }
            Ok::<_, anyhow::Error>((client, list, looks))
        })?;
        Ok(Postgres { runtime, client, list, looks, _server: server })
    }

    fn pages(&self, turn: &Turn<'_>) -> Result<Round> {
        let goal = Goal { count: u64::MAX, deadline: Some(Instant::now() + turn.length) };
        let mut random = fastrand::Rng::with_seed(turn.seed);
        self.runtime.block_on(async {
            let (mut part, mut done, begin) = (Part::default(), 0, Instant::now());
            while done == 0 || !goal.reached(done) {
                turn.interrupt.check()?;
                let start = Instant::now();
                let mut found = 0;
                for row in self.client.query(&self.list, &[&first(&mut random)]).await? {
                    let id: i64 = row.get(0);
                    for look in &self.looks {
                        let name: String = self.client.query_one(look, &[&id]).await?.get(0);
                        found += usize::from(!name.is_empty());
                    }
                }
                check(found)?;
                part.acknowledged(start);
                done += 1;
            }
            Ok(Round::of(&[part], begin.elapsed()))
        })
    }
}
