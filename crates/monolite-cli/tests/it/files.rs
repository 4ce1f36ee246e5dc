//! What `backup`, `check` and `migrate` print of a user's files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output};

use monolite::{Options, Sharing};
use serde_json::Value;

use crate::{complaint, monolite};

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary directory has a plain name")
}

fn shop(directory: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let (file, migrations) = (directory.join("shop.db"), directory.join("migrations"));
    fs::create_dir(&migrations).expect("it works");
    fs::write(migrations.join("0001_t.sql"), "CREATE TABLE t(v); INSERT INTO t VALUES (1);")
        .expect("it works");
    (file, migrations)
}

#[test]
fn a_backup_prints_nothing_but_its_result_and_is_checked() {
    let directory = tempfile::tempdir().expect("it works");
    let (file, migrations) = shop(directory.path());
    let up = monolite(&["migrate", "up", text(&file), "--dir", text(&migrations), "--json"]);
    assert!(up.status.success(), "{}", complaint(&up));
    let said = String::from_utf8_lossy(&up.stdout);
    assert!(said.contains("\"applied\": [\n") && said.contains("0001_t.sql"), "{said}");
    let copy = directory.path().join("copy.db");
    let backup = monolite(&["backup", text(&file), text(&copy)]);
    assert!(backup.status.success());
    assert_eq!(complaint(&backup), "");
    let check = monolite(&["check", text(&copy), "--json"]);
    assert_eq!((check.status.code(), complaint(&check)), (Some(0), String::new()));
    let record = json(&check);
    assert_eq!((&record["problems"], &record["violations"]), (&empty(), &empty()));
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

fn empty() -> Value {
    Value::Array(Vec::new())
}

#[test]
fn what_cannot_be_checked_is_not_called_damaged_and_not_made() {
    let directory = tempfile::tempdir().expect("it works");
    let file = directory.path().join("shop.db");
    for content in [None, Some(""), Some("short"), Some(&*"a text of some length ".repeat(99))] {
        content.iter().for_each(|content| fs::write(&file, content).expect("it works"));
        for words in [&["check", text(&file)][..], &["check", text(&file), "--json"]] {
            let check = monolite(words);
            assert_eq!(check.status.code(), Some(2), "{content:?}");
            let said = complaint(&check);
            assert!(said.starts_with("error: not checked: "), "{said}");
            assert!(said.contains("is this the right path?"), "{said}");
            if words.len() > 2 {
                assert!(json(&check)["error"].is_string());
            } else {
                assert!(check.stdout.is_empty());
            }
        }
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), content);
    }
}

#[test]
fn violated_foreign_keys_alone_are_no_damage() {
    let directory = tempfile::tempdir().expect("it works");
    let file = directory.path().join("shop.db");
    let plain = monolite::rusqlite::Connection::open(&file).expect("it works");
    let sql = "CREATE TABLE parent(id INTEGER PRIMARY KEY);
               CREATE TABLE child(id INTEGER PRIMARY KEY, parent REFERENCES parent(id));
               CREATE TABLE other(v); INSERT INTO other VALUES (1);
               PRAGMA foreign_keys = OFF; INSERT INTO child VALUES (7, 70);";
    plain.execute_batch(sql).expect("it works");
    let of_other = "SELECT rootpage FROM sqlite_schema WHERE name = 'other'";
    let page: u32 = plain.query_row(of_other, (), |row| row.get(0)).expect("it works");
    drop(plain);
    let check = monolite(&["check", text(&file)]);
    assert_eq!(check.status.code(), Some(1));
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(said.contains("row 7 of child has no parent in parent"), "{said}");
    let said = complaint(&check);
    assert!(said.contains("is not damaged") && said.contains("docs/guides/files.md"), "{said}");
    assert!(!said.contains("restore"), "{said}");
    // A page that is none is told as JSON, too, and what else there is beside it.
    let mut bytes = fs::read(&file).expect("it works");
    bytes[(page as usize - 1) * 4096..][..4096].fill(0xff);
    fs::write(&file, bytes).expect("it works");
    let check = monolite(&["check", text(&file), "--json"]);
    assert_eq!(check.status.code(), Some(1));
    assert!(complaint(&check).contains("restore a backup"), "{}", complaint(&check));
    let record = json(&check);
    assert_eq!(record["tables"], 3);
    assert_ne!(record["problems"], empty());
    assert_eq!(record["violations"][0], "row 7 of child has no parent in parent");
}

#[test]
fn a_check_tells_what_could_not_be_checked_and_what_is_to_be_rebuilt() {
    let directory = tempfile::tempdir().expect("it works");
    let file = directory.path().join("check.db");
    let plain = monolite::rusqlite::Connection::open(&file).expect("it works");
    let sql = "CREATE VIRTUAL TABLE found USING fts5(text); INSERT INTO found VALUES ('tea');
               UPDATE found_data SET block = x'00' WHERE id > 10;";
    plain.execute_batch(sql).expect("it works");
    let check = monolite(&["check", text(&file)]);
    assert_eq!(check.status.code(), Some(1));
    let said = complaint(&check);
    assert!(said.contains("rebuild the index") && !said.contains("restore"), "{said}");
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(said.contains("VALUES ('rebuild')") && said.contains(", 1 problem, 0 v"), "{said}");

    drop(plain);

    let file = directory.path().join("added.db");
    let options =
        monolite::Options::new().connection_setup(|it| it.collation("odd", |a, b| b.cmp(a)));
    let db = options.open(&file).expect("it works");
    let sql = "CREATE TABLE t(v COLLATE odd UNIQUE)";
    db.write(move |tx| tx.execute_batch(sql)).wait().expect("it works");
    db.close().expect("it works");
    let check = monolite(&["check", text(&file), "--json"]);
    assert_eq!(check.status.code(), Some(2), "{}", complaint(&check));
    assert!(complaint(&check).contains("Options::check_file"), "{}", complaint(&check));
    let record = json(&check);
    assert_eq!((&record["problems"], &record["violations"]), (&empty(), &empty()));
    let unchecked = record["unchecked"][0].as_str().expect("it is a text");
    assert!(unchecked.starts_with("table t: no such collation sequence: odd"), "{unchecked}");

    let file = directory.path().join("one.db");
    let plain = monolite::rusqlite::Connection::open(&file).expect("it works");
    plain.execute_batch("CREATE TABLE t(v)").expect("it works");
    drop(plain);
    let said = monolite(&["check", text(&file)]).stdout;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains(": 1 table, 0 problems, 0 violated foreign keys, "), "{said}");
}

#[test]
fn a_name_that_is_no_text_is_told_as_json_all_the_same() {
    let directory = tempfile::tempdir().expect("it works");
    let (file, migrations) = shop(directory.path());
    assert!(monolite(&["migrate", "up", text(&file), "--dir", text(&migrations)]).status.success());
    let copy = directory.path().join(OsStr::from_bytes(b"copy-\xff.db"));
    let words = [OsStr::new("backup"), file.as_os_str(), copy.as_os_str(), OsStr::new("--json")];
    let backup = monolite(&words);
    assert!(backup.status.success(), "{}", complaint(&backup));
    let name = json(&backup)["backup"].as_str().expect("it is a text").to_owned();
    assert!(name.ends_with("copy-\u{fffd}.db"), "{name}");
    let check = monolite(&[OsStr::new("check"), copy.as_os_str(), OsStr::new("--json")]);
    assert!(check.status.success(), "{}", complaint(&check));
    assert!(json(&check)["file"].is_string());
}

#[test]
fn a_rebuild_is_planned_tried_and_made_and_one_that_cannot_be_is_named() {
    let directory = tempfile::tempdir().expect("it works");
    let (file, migrations) = shop(directory.path());
    let migrate = |words: &[&str]| {
        monolite(&[&["migrate"], words, &[text(&file), "--dir", text(&migrations)]].concat())
    };
    // A dry run creates no database.
    assert!(migrate(&["up", "--dry-run"]).status.success());
    assert!(!file.exists());
    assert!(migrate(&["up"]).status.success());
    let sql = "-- monolite: rebuild=t\nCREATE TABLE t(v INT NOT NULL, w) STRICT";
    fs::write(migrations.join("0002_bad.sql"), sql).expect("it works");
    let sql = "-- monolite: rebuild=t\nCREATE TABLE t(v INT NOT NULL, w TEXT) STRICT; \
               SELECT rowid, v FROM t";
    let schema = || {
        let plain = monolite::rusqlite::Connection::open(&file).expect("it works");
        let sql = "SELECT sql FROM sqlite_schema WHERE name = 't'";
        plain.query_row(sql, [], |row| row.get::<_, String>(0)).expect("it works")
    };
    for (words, code) in [(&["up", "--dry-run"][..], 1), (&["up"], 1)] {
        let refused = migrate(words);
        assert_eq!(refused.status.code(), Some(code));
        let said = complaint(&refused);
        assert!(said.contains("0002_bad.sql:2:1: missing datatype for t.w"), "{said}");
        assert_eq!(schema(), "CREATE TABLE t(v)");
    }
    fs::remove_file(migrations.join("0002_bad.sql")).expect("it works");
    fs::write(migrations.join("0002_good.sql"), sql).expect("it works");
    let plan = migrate(&["plan"]);
    let said = String::from_utf8_lossy(&plan.stdout);
    assert!(said.contains("rebuilds t: 1 rows, 0 indexes; writes wait for about 0.0 s"), "{said}");
    let plan = json(&migrate(&["plan", "--json"]));
    assert_eq!(
        (&plan["pending"][0], &plan["rebuilds"][0]["rows"]),
        (&"0002_good.sql".into(), &1.into())
    );
    let tried = migrate(&["up", "--dry-run"]);
    assert_eq!((tried.status.code(), schema().as_str()), (Some(0), "CREATE TABLE t(v)"));
    assert!(String::from_utf8_lossy(&tried.stdout).contains("0002_good.sql: it would be applied"));
    assert!(migrate(&["up"]).status.success());
    assert_eq!(schema(), "CREATE TABLE t(v INT NOT NULL, w TEXT) STRICT");
    fs::write(migrations.join("0001_t.sql"), "CREATE TABLE edited(v)").expect("it works");
    let edited = migrate(&["up", "--dry-run"]);
    assert_eq!(edited.status.code(), Some(1));
    assert!(complaint(&edited).contains("was edited"), "{}", complaint(&edited));
}

#[test]
fn a_result_that_cannot_be_printed_is_told_to_be_there() {
    let directory = tempfile::tempdir().expect("it works");
    let (file, migrations) = shop(directory.path());
    let copy = directory.path().join("copy.db");
    let full = |words: &[&str]| {
        let full = fs::File::options().write(true).open("/dev/full").expect("it works");
        let command =
            Command::new(env!("CARGO_BIN_EXE_monolite")).args(words).stdout(full).output();
        command.expect("the command starts")
    };
    let up = full(&["migrate", "up", text(&file), "--dir", text(&migrations)]);
    assert_eq!(up.status.code(), Some(1));
    assert!(complaint(&up).contains("applied now: 0001_t.sql, "), "{}", complaint(&up));
    for last in [&[][..], &["--json"]] {
        let _ = fs::remove_file(&copy);
        let backup = full(&[&["backup", text(&file), text(&copy)], last].concat());
        assert_eq!(backup.status.code(), Some(1));
        let said = complaint(&backup);
        assert!(said.contains("copy.db was made, and telling so failed"), "{said}");
        assert!(copy.exists());
    }
    let check = full(&["check", text(&copy)]);
    assert_eq!(check.status.code(), Some(2), "{}", complaint(&check));
}

#[test]
fn a_database_in_memory_is_refused_by_all_verbs() {
    let directory = tempfile::tempdir().expect("it works");
    let (file, migrations) = shop(directory.path());
    let (file, dir) = (text(&file), text(&migrations));
    assert!(monolite(&["migrate", "up", file, "--dir", dir]).status.success());
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
        command.current_dir(directory.path()).args(words).output().expect("the command starts")
    };
    for words in [
        &["check", ":memory:"][..],
        &["backup", file, ":memory:"],
        &["backup", ":memory:", "x.db"],
        &["migrate", "up", ":memory:", "--dir", dir],
        &["migrate", "status", ":memory:", "--dir", dir],
    ] {
        let refused = run(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {}", complaint(&refused));
        assert!(complaint(&refused).contains("./:memory: is one"), "{}", complaint(&refused));
    }
    for words in [&["backup", file, "./:memory:"][..], &["check", "./:memory:"]] {
        let output = run(words);
        assert!(output.status.success(), "{words:?}: {}", complaint(&output));
    }
    assert!(directory.path().join(":memory:").exists());
}

#[test]
fn a_damaged_database_is_told_with_the_exit_code() {
    let directory = tempfile::tempdir().expect("it works");
    let (file, migrations) = shop(directory.path());
    let sql = "-- monolite: foreign_keys=off\nCREATE TABLE u(v UNIQUE CHECK (v > 0)); \
               INSERT INTO u VALUES (77777777777);";
    fs::write(migrations.join("0002_u.sql"), sql).expect("it works");
    assert!(monolite(&["migrate", "up", text(&file), "--dir", text(&migrations)]).status.success());
    // The row, and not its place in the index, says something else.
    let mut bytes = fs::read(&file).expect("it works");
    let number = 77_777_777_777_u64.to_be_bytes();
    let at = bytes.windows(6).position(|it| it == &number[2..]).expect("the row is in the file");
    bytes[at + 5] ^= 1;
    fs::write(&file, bytes).expect("it works");
    let check = monolite(&["check", text(&file)]);
    assert_eq!(check.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&check.stdout).contains("problem  "));
    assert!(complaint(&check).contains("restore a backup"), "{}", complaint(&check));
}

#[test]
fn what_is_not_there_or_wrong_is_told_once_with_a_remedy() {
    let directory = tempfile::tempdir().expect("it works");
    let (file, migrations) = shop(directory.path());
    let migrate = |what| monolite(&["migrate", what, text(&file), "--dir", text(&migrations)]);
    assert!(complaint(&migrate("plan")).contains("`monolite migrate up` creates it"));
    let none = monolite(&["check", text(&file)]);
    assert!(complaint(&none).contains("does not exist; is this the right path?"));
    assert!(migrate("up").status.success());
    fs::write(migrations.join("0001_t.sql"), "CREATE TABLE edited(v)").expect("it works");
    let up = migrate("up");
    assert_eq!(up.status.code(), Some(1));
    let said = String::from_utf8_lossy(&up.stdout).into_owned() + &complaint(&up);
    assert_eq!(said.matches("was edited").count(), 1, "{said}");
    assert!(!said.contains("(as 0001_t.sql)"), "{said}");
    let garbage = directory.path().join("text.db");
    fs::write(&garbage, "no database, but a text of some length".repeat(100)).expect("it works");
    let backup = monolite(&["backup", text(&garbage), "x.db"]);
    let said = complaint(&backup);
    assert!(said.contains("file is not a database; is this the right path?"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn who_holds_a_file_is_to_be_stopped() {
    let directory = tempfile::tempdir().expect("it works");
    let file = directory.path().join("shop.db");
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let db = Options::new().sharing(sharing).open(&file).expect("it works");
        for (words, code) in
            [(&["check", text(&file)][..], 2), (&["backup", text(&file), "copy.db"], 1)]
        {
            let refused = monolite(words);
            assert_eq!(refused.status.code(), Some(code));
            let said = complaint(&refused);
            assert!(said.contains("stop that program") && !said.contains("open_wait"), "{said}");
        }
        db.close().expect("it works");
    }
}
