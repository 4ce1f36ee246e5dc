//! `monolite export postgres` into a real PostgreSQL: what other tools get wrong, whose rows it
//! cannot take, and what it leaves behind.

mod features;
mod follow;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use monolite::rusqlite::Connection;
use monolite_bench::drivers::postgres::server::{Reach, Server, find_binaries};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::{complaint, monolite};

/// A server, with a database for each test, and a directory.
pub(crate) struct Ground {
    directory: TempDir,
    runtime: Runtime,
    server: Server,
}

impl Ground {
    /// Says in the list of the gate that `test` could not run, where there is no PostgreSQL.
    pub(crate) fn of(test: &str) -> Option<Ground> {
        if let Err(reason) = find_binaries() {
            if let Some(list) = std::env::var_os("MONOLITE_SKIPS") {
                let file = std::fs::OpenOptions::new().append(true).create(true).open(list);
                writeln!(file.expect("it opens"), "{test}: {reason}").expect("it can be written");
            }
            return None;
        }
        let directory = tempfile::tempdir().expect("it works");
        let server = Server::start(directory.path(), 1 << 28, 1 << 28, Reach::Loopback);
        let runtime = Runtime::new().expect("it starts");
        Some(Ground { directory, runtime, server: server.expect("it starts") })
    }

    /// A SQLite file that holds what `sql` says.
    pub(crate) fn source(&self, name: &str, sql: &str) -> PathBuf {
        monolite_sqlite::initialize().expect("it works");
        let file = self.directory.path().join(name);
        let plain = Connection::open(&file).expect("it works");
        plain.execute_batch(sql).expect(sql);
        file
    }

    /// Makes an empty database, and gives its URL.
    pub(crate) fn database(&self, name: &str) -> String {
        self.ask("postgres", &format!("CREATE DATABASE {name}")).expect("it works");
        let port = self.server.port();
        format!("postgres://monolite@127.0.0.1:{port}/{name}")
    }

    fn client(&self, database: &str) -> Client {
        let config: Config = self.server.address(database).parse().expect("it is one");
        let _runtime = self.runtime.enter();
        let (client, connection) = self.runtime.block_on(config.connect(NoTls)).expect("it works");
        self.runtime.spawn(connection);
        client
    }

    /// The first value that a statement gives, or PostgreSQL's complaint.
    fn ask(&self, database: &str, sql: &str) -> Result<String, String> {
        Ok(self.all(database, sql)?.into_iter().next().unwrap_or_default())
    }

    /// All values that it gives, row by row.
    pub(crate) fn all(&self, database: &str, sql: &str) -> Result<Vec<String>, String> {
        let client = self.client(database);
        let answer = self.runtime.block_on(client.simple_query(sql));
        let answer = answer.map_err(|error| {
            error.as_db_error().map_or_else(|| error.to_string(), |it| it.message().to_owned())
        })?;
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let of = |row: &tokio_postgres::SimpleQueryRow| -> Vec<String> {
            (0..row.len()).map(|at| row.get(at).unwrap_or("NULL").to_owned()).collect()
        };
        Ok(rows.flat_map(of).collect())
    }
}

/// The engine's own, as `monolite migrate` makes it.
pub(crate) const OF_ENGINE: &str = "CREATE TABLE monolite_migrations(number INTEGER PRIMARY KEY, \
    name TEXT NOT NULL, checksum TEXT NOT NULL, applied INTEGER NOT NULL) STRICT, WITHOUT ROWID";

pub(crate) fn export(source: &Path, to: &str, words: &[&str]) -> Output {
    let source = source.to_str().expect("the name is plain");
    monolite(&[&["export", "postgres", source, "--to", to], words].concat())
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", complaint(output)))
}

#[test]
fn values_that_postgresql_cannot_take_are_named_with_their_rows_and_nothing_is_written() {
    let Some(ground) = Ground::of("export: refused values") else { return };
    let url = ground.database("refused");
    let source = ground.source(
        "refused.db",
        "CREATE TABLE a(id INTEGER PRIMARY KEY, t TEXT) STRICT;
         INSERT INTO a VALUES (1, 'fine'), (2, 'nul' || char(0)), (3, CAST(x'ff' AS TEXT));
         CREATE TABLE b(k TEXT, n, PRIMARY KEY(k, n)) WITHOUT ROWID;
         INSERT INTO b VALUES ('x' || char(0), 7);
         CREATE TABLE c(t TEXT); INSERT INTO c VALUES ('a'), (char(0));",
    );
    let refused = export(&source, &url, &[]);
    assert_eq!(refused.status.code(), Some(1), "{}", complaint(&refused));
    let said = complaint(&refused);
    for line in [
        "a row id=2, t: a text with a NUL byte",
        "a row id=3, t: a text that is no UTF-8",
        "b row k=\"x\\0\", n=7, k: a text with a NUL byte",
        "c row rowid=2, t: a text with a NUL byte",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let directory = ground.directory.path().join("files");
    let into_files = export(&source, directory.to_str().expect("it is plain"), &[]);
    assert_eq!(into_files.status.code(), Some(1));
    assert!(!directory.exists());
    let left = std::fs::read_dir(ground.directory.path()).expect("it works");
    let left = left.filter(|it| it.as_ref().is_ok_and(|it| it.path().is_dir())).count();
    // PostgreSQL's own.
    assert_eq!(left, 1);
    assert_eq!(
        ground.ask("refused", "SELECT count(*) FROM pg_class WHERE relname = 'a'"),
        Ok("0".into())
    );
}

#[test]
fn columns_of_several_types_are_refused_or_made_texts() {
    let Some(ground) = Ground::of("export: mixed columns") else { return };
    let url = ground.database("mixed");
    let source = ground.source(
        "mixed.db",
        "CREATE TABLE m(id INTEGER PRIMARY KEY, v ANY, big ANY) STRICT;
         INSERT INTO m VALUES (1, 5, 9007199254740993), (2, 'five', 0.5), (3, x'0a', 1),
                              (4, 1.5, 2);",
    );
    let refused = export(&source, &url, &[]);
    assert_eq!(refused.status.code(), Some(1));
    let said = complaint(&refused);
    assert!(said.contains("m.v holds integers and reals and texts and blobs"), "{said}");
    assert!(said.contains("m.big holds integers and reals") && said.contains("--mixed"), "{said}");
    let made = export(&source, &url, &["--mixed", "text", "--json"]);
    assert_eq!(made.status.code(), Some(0), "{}", complaint(&made));
    let all = "SELECT string_agg(v || '/' || big, ' ' ORDER BY id) FROM m";
    let expected = r"5/9007199254740993 five/0.5 \x0A/1 1.5/2";
    assert_eq!(ground.ask("mixed", all), Ok(expected.into()));
}

#[test]
fn a_place_with_tables_is_refused_and_another_schema_is_taken() {
    let Some(ground) = Ground::of("export: a place in use") else { return };
    let url = ground.database("used");
    let source =
        ground.source("used.db", "CREATE TABLE t(a INTEGER) STRICT; INSERT INTO t VALUES (1)");
    ground.ask("used", "CREATE TABLE theirs(a int); CREATE SCHEMA mine").expect("it works");
    let refused = export(&source, &url, &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("is not empty: it has theirs"), "{}", complaint(&refused));
    let made = export(&source, &format!("{url}?options=-csearch_path%3Dmine"), &[]);
    assert_eq!(made.status.code(), Some(0), "{}", complaint(&made));
    assert_eq!(ground.ask("used", "SELECT a FROM mine.t"), Ok("1".into()));
    let nowhere = export(&source, "postgres://monolite@127.0.0.1:1/none", &[]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(complaint(&nowhere).contains("cannot connect"), "{}", complaint(&nowhere));
    let taken = export(&source, ground.directory.path().to_str().expect("it is plain"), &[]);
    assert!(complaint(&taken).contains("is not an empty directory"), "{}", complaint(&taken));
}

#[test]
fn no_password_is_shown() {
    let Some(ground) = Ground::of("export: passwords") else { return };
    let url = ground.database("secret");
    let source = ground.source("secret.db", "CREATE TABLE t(a INTEGER) STRICT;");
    for (target, said) in [
        ("postgres://u:s3cret@127.0.0.1:1/d", "cannot connect"),
        ("host=127.0.0.1 port=1 user=u password=s3cret", "cannot connect"),
        ("host=127.0.0.1 password=big s3cret", "it is not shown"),
        ("postgres://u@127.0.0.1:1/d?password=x&s3cret=1", "it is not shown"),
        ("POSTGRES://u:s3cret@127.0.0.1/d", "it is not shown"),
        ("u:s3cret@127.0.0.1/d", "it is not shown"),
    ] {
        let refused = export(&source, target, &[]);
        let complaint = complaint(&refused);
        assert_eq!(refused.status.code(), Some(1), "{target}: {complaint}");
        assert!(complaint.contains(said) && !complaint.contains("s3cret"), "{complaint}");
    }
    let made = export(&source, &format!("{url}?password=s3cret"), &[]);
    assert_eq!(made.status.code(), Some(0), "{}", complaint(&made));
    let said = format!("{}{}", String::from_utf8_lossy(&made.stdout), complaint(&made));
    assert!(said.contains("PostgreSQL: 1 table") && !said.contains("s3cret"), "{said}");
}

#[test]
fn names_that_postgresql_cannot_have_are_refused_before_anything_is_written() {
    let Some(ground) = Ground::of("export: names") else { return };
    let url = ground.database("names");
    let long = "é".repeat(31);
    let columns: Vec<String> = (0..1_601).map(|at| format!("c{at}")).collect();
    for (at, (sql, said)) in [
        (format!("CREATE TABLE {long}xa(a); CREATE VIEW {long}xb AS SELECT 1"), "become éé"),
        (format!("CREATE TABLE t({long}xa, {long}xb)"), "two columns of t become éé"),
        ("CREATE TABLE t(ctid, ctid_)".into(), "two columns of t become ctid_"),
        ("CREATE TABLE pg_class(a)".into(), "pg_class begins as its catalogs do"),
        (format!("CREATE TABLE t({})", columns.join(", ")), "t has more than 1600 columns"),
    ]
    .into_iter()
    .enumerate()
    {
        let source = ground.source(&format!("names{at}.db"), &sql);
        let directory = ground.directory.path().join("names");
        for to in [&url, directory.to_str().expect("it is plain")] {
            let refused = export(&source, to, &[]);
            assert_eq!(refused.status.code(), Some(1), "{sql}");
            assert!(complaint(&refused).contains(said), "{}", complaint(&refused));
        }
        assert!(!directory.exists());
    }
}

#[test]
fn a_comparison_notices_a_changed_a_lost_and_a_doubled_row() {
    let Some(ground) = Ground::of("export: comparison") else { return };
    let url = ground.database("compared");
    let source = ground.source(
        "compared.db",
        "CREATE TABLE t(a INTEGER, b REAL, c TEXT, d BLOB) STRICT;
         WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO t SELECT i, i / 3.0, 'row ' || i, x'00ff' FROM n;",
    );
    assert_eq!(export(&source, &url, &[]).status.code(), Some(0));
    let compare = || export(&source, &url, &["--verify"]);
    assert_eq!(compare().status.code(), Some(0));
    for (harm, remedy, said) in [
        (
            "UPDATE t SET c = 'row  7' WHERE a = 7",
            "UPDATE t SET c = 'row 7' WHERE a = 7",
            "checksums",
        ),
        (
            "UPDATE t SET b = b + 1e-13 WHERE a = 7",
            "UPDATE t SET b = 7 / 3.0 WHERE a = 7",
            "checksums",
        ),
        (
            "UPDATE t SET d = NULL WHERE a = 7",
            "UPDATE t SET d = '\\x00ff' WHERE a = 7",
            "checksums",
        ),
        // Unlike an exclusive or, a sum sees a row that is there twice.
        (
            "DELETE FROM t WHERE a = 7",
            "INSERT INTO t VALUES (7, 7 / 3.0, 'row 7', '\\x00ff')",
            "999 in",
        ),
        (
            "UPDATE t SET (a, b, c) = (8, 8 / 3.0, 'row 8') WHERE a = 7",
            "UPDATE t SET (a, b, c) = (7, 7 / 3.0, 'row 7')
             WHERE ctid = (SELECT max(ctid) FROM t WHERE a = 8)",
            "checksums",
        ),
    ] {
        ground.ask("compared", harm).expect(harm);
        let compared = compare();
        assert_eq!(compared.status.code(), Some(1), "{harm}");
        assert!(complaint(&compared).contains(said), "{harm}: {}", complaint(&compared));
        ground.ask("compared", remedy).expect(remedy);
        let compared = compare();
        assert_eq!(compared.status.code(), Some(0), "{remedy}: {}", complaint(&compared));
    }
}

#[test]
fn views_that_answer_otherwise_are_named() {
    let Some(ground) = Ground::of("export: views") else { return };
    let url = ground.database("views");
    let source = ground.source(
        "views.db",
        "CREATE TABLE a(id INTEGER PRIMARY KEY, x INTEGER, r REAL, b BLOB) STRICT;
         INSERT INTO a VALUES (1, 5, 0.1, x'00'), (2, 0, 0.7, NULL), (3, -7, 1e300, x'ff');
         CREATE VIEW rows AS SELECT * FROM a;
         CREATE VIEW rounded AS SELECT sum(v) FROM
             (SELECT 0.1 AS v FROM a AS p, a AS q UNION ALL SELECT 0.1) AS z;
         CREATE VIEW tiny AS SELECT id FROM a WHERE r > 1e-5 AND r < 1.5E+3;
         CREATE VIEW sums AS SELECT avg(x) AS m, sum(x) AS s, sum(r) / 3 AS t, 'x' AS c FROM a;
         CREATE VIEW flags AS SELECT x > 1 AS f FROM a;
         CREATE VIEW texts AS SELECT q || '' AS w FROM (SELECT x > 1 AS q FROM a) AS z;
         CREATE VIEW fewer AS SELECT w FROM texts WHERE w = '1';
         CREATE VIEW broken AS SELECT x * 4611686018427387904 AS big FROM a;",
    );
    let notes = |words: &[&str], code: i32| {
        let made = export(&source, &url, &[words, &["--json"]].concat());
        assert_eq!(made.status.code(), Some(code), "{}", complaint(&made));
        let items = report(&made)["items"].as_array().cloned().expect("they are listed");
        let views = items.into_iter().filter(|it| it["kind"] == "view");
        let note = |it: Value| (it["name"].to_string(), it["note"].as_str().map(str::to_owned));
        views.map(note).collect::<std::collections::BTreeMap<_, _>>()
    };
    for words in [&[][..], &["--verify"]] {
        let notes = notes(words, 0);
        let has = |view: &str, text: &str| {
            let note = notes[&format!("{view:?}")].as_deref().unwrap_or_default();
            assert!(note.contains(text), "{words:?}, {view}: {note}");
        };
        has("texts", "it answers otherwise: 3 rows, some with other values");
        has("fewer", "it answers otherwise: 1 rows here, and 0 in PostgreSQL");
        has("broken", "not compared: PostgreSQL does not answer it");
        has("broken", "bigint out of range");
        for view in ["rows", "rounded", "tiny", "sums", "flags"] {
            let note = notes[&format!("{view:?}")].as_deref().unwrap_or_default();
            assert!(!note.contains("otherwise") && !note.contains("compared"), "{view}: {note}");
        }
    }
    ground.ask("views", "DROP VIEW sums").expect("it is there");
    let notes = notes(&["--verify"], 3);
    assert_eq!(notes["\"sums\""].as_deref(), Some("PostgreSQL does not have it"));
}

#[test]
fn an_export_that_is_killed_or_stopped_leaves_nothing() {
    let Some(ground) = Ground::of("export: killed") else { return };
    let url = ground.database("killed");
    let source = ground.source(
        "killed.db",
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT) STRICT;
         WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
         INSERT INTO t SELECT i, 'row ' || i FROM n;",
    );
    let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    let of_ours =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'monolite export'";
    for (signal, code) in [("KILL", None), ("INT", Some(130))] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_monolite"))
            .args(["export", "postgres", source.to_str().expect("plain"), "--to", &url])
            .spawn()
            .expect("it starts");
        let is_copying = format!("{of_ours} AND query LIKE 'COPY%FROM STDIN%'");
        while ground.ask("killed", &is_copying) != Ok("1".into()) {
            assert_eq!(child.try_wait().expect("it works"), None, "it was too quick to be stopped");
        }
        let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(kill.expect("it starts").success());
        assert_eq!(child.wait().expect("it works").code(), code);
        while ground.ask("killed", of_ours) != Ok("0".into()) {}
        assert_eq!(ground.ask("killed", tables), Ok("0".into()), "{signal}");
    }
    let made = export(&source, &url, &[]);
    assert_eq!(made.status.code(), Some(0), "{}", complaint(&made));
}

/// Loads a directory as a user does.
fn load(ground: &Ground, directory: &Path, database: &str) -> Output {
    let port = ground.server.port().to_string();
    let psql = find_binaries().expect("it is there").join("psql");
    let mut command = Command::new(if psql.exists() { psql } else { "psql".into() });
    command.args(["-h", "127.0.0.1", "-p", &port, "-U", "monolite", "-q", "-X", database, "-f"]);
    command.arg(directory.join("load.sql")).output().expect("psql starts")
}
