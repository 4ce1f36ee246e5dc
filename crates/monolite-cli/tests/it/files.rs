//! What `backup`, `check` and `migrate` print of a user's files.

use std::fs;
use std::path::Path;

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
    assert!(String::from_utf8_lossy(&check.stdout).contains("\"problems\": []"));
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
    let db = monolite::Database::open(&file).expect("it works");
    let said = complaint(&monolite(&["check", text(&file)]));
    assert!(said.contains("stop that program") && !said.contains("open_wait"), "{said}");
    db.close().expect("it works");
}
