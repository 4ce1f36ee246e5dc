//! What a statement takes from outside of the database is the same at commit as the application
//! saw it.

use monolite::Options;

use super::accounts;

#[test]
fn time_and_random_values_are_at_commit_what_the_application_saw() {
    let (_directory, db) = accounts(Options::new());
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE stamped(id INTEGER PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP, \
             lot INTEGER DEFAULT (random()))",
        )
    })
    .wait()
    .unwrap();
    let tx = db.transaction().unwrap();
    let text = |row: &monolite::Row<'_>| row.get::<_, String>(0);
    let now = "SELECT datetime('now', 'subsec') || random() || hex(randomblob(8))";
    let seen = tx.query_row(now, (), text).wait().unwrap();
    let insert = "INSERT INTO stamped DEFAULT VALUES RETURNING at || lot";
    let returned = tx.query_row(insert, (), text).wait().unwrap();
    let keep = "INSERT INTO entry(text) VALUES (datetime('now', 'subsec')) RETURNING text";
    let kept = tx.query_row(keep, (), text).wait().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    tx.commit().wait().unwrap();
    let read = |sql: &'static str| db.read(move |tx| tx.query_row(sql, (), text)).wait().unwrap();
    assert_eq!(read("SELECT at || lot FROM stamped"), returned);
    assert_eq!(read("SELECT text FROM entry"), kept);
    assert_ne!(read(now), seen);
    assert_eq!(db.stats().transaction_conflicts, 0);
}
