//! The kernel ends a query that SQLite does not give back, and the database is as it was.

use std::path::Path;
use std::process::{Command, Output};

use monolite::{Database, rusqlite};

fn ask(database: &Path, sql: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_untrusted-child");
    Command::new(program).arg(database).arg(sql).output().expect("the program starts")
}

#[test]
fn a_query_is_answered_and_one_without_an_end_is_ended_by_the_kernel() {
    if rusqlite::version_number() < 3_054_000 {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let db = Database::open(&path).unwrap();
    let setup = "CREATE TABLE t(x); INSERT INTO t VALUES ('tea'), (NULL)";
    db.write(move |tx| tx.execute_batch(setup)).wait().unwrap();
    db.close().unwrap();
    let answered = ask(&path, "SELECT x, rowid AS n FROM t");
    assert_eq!(String::from_utf8_lossy(&answered.stdout), "x\tn\ntea\t1\nNULL\t2\n");
    assert!(answered.status.success());
    let refused = ask(&path, "DELETE FROM t");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stdout).contains("may only query"));
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                   SELECT max(i) FROM n";
    let ended = ask(&path, endless);
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(!ended.status.success() && told.contains("signal"), "{told}");
    assert_eq!(ask(&path, "SELECT count(*) FROM t").stdout, b"count(*)\n2\n");
}
