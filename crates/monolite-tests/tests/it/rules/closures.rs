//! What closures may use: their own error types, statements, blobs; and what they may forget.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::mem;

use anyhow::Context as _;
use monolite::{Error, ErrorKind, Options, ReadTx, Tx, rusqlite};

use super::{create, database, ids, insert};
use crate::patience::{as_one_batch, ends};

#[derive(Debug)]
enum Refusal {
    Poor { has: i64 },
    Database(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Database(error)
    }
}

#[test]
fn an_applications_own_error_comes_back_as_it_was() {
    let plain = database();
    let db = plain.with_error::<Refusal>();
    let refused = db.write(|tx| {
        tx.execute("INSERT INTO t(id) VALUES (1)", ())?;
        let has = tx.query_row("SELECT COUNT(*) FROM t", (), |row| row.get(0))?;
        if has < 2 {
            return Err(Refusal::Poor { has });
        }
        Ok(())
    });
    assert!(matches!(refused.wait(), Err(Refusal::Poor { has: 1 })));
    let wrong = db.write(|tx| Ok(tx.execute("SELECT nothing", ())?));
    let Err(Refusal::Database(error)) = wrong.wait() else { panic!("it was no database error") };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(ids(&plain).is_empty());
}

#[test]
fn anyhow_carries_the_engines_error() {
    let db = database().with_error::<anyhow::Error>();
    let failed = db.write(|tx| {
        tx.execute("INSERT INTO t(id) VALUES (1)", ())?;
        tx.execute("INSERT INTO t(id) VALUES (1)", ()).context("the second insert")?;
        Ok(())
    });
    let error = failed.wait().unwrap_err();
    assert_eq!(error.to_string(), "the second insert");
    assert_eq!(error.downcast_ref::<Error>().unwrap().kind(), ErrorKind::Constraint);
    let told = "the second insert: UNIQUE constraint failed: t.id (in `INSERT INTO t(id) VALUES \
                (1)`)";
    assert_eq!(format!("{error:#}"), told, "once, and not again as the source of itself");
    let read = db.read(|tx| {
        anyhow::ensure!(tx.query_row("SELECT 1", (), |row| row.get::<_, i64>(0))? == 2, "not two");
        Ok(2)
    });
    assert_eq!(read.wait().unwrap_err().to_string(), "not two");
}

#[test]
fn blobs_are_written_and_read_in_pieces_and_rolled_back_with_their_transaction() {
    let db = database();
    db.write(|tx| tx.execute("INSERT INTO t VALUES (1, zeroblob(100000))", ())).wait().unwrap();
    db.write(|tx| {
        let mut blob = tx.blob_open_mut("t", "x", 1)?;
        blob.seek(SeekFrom::Start(99_996)).unwrap();
        blob.write_all(b"tail").unwrap();
        Ok::<_, Error>(())
    })
    .wait()
    .unwrap();
    let (before, failing) = as_one_batch(&db, || {
        let before = insert(&db, 2);
        let failing = db.write(|tx| {
            let mut blob = tx.blob_open_mut("t", "x", 1)?;
            blob.write_all(b"head").unwrap();
            Err::<(), _>(Error::aborted("on purpose"))
        });
        (before, failing)
    });
    assert_eq!(failing.wait().unwrap_err().kind(), ErrorKind::Aborted);
    before.wait().unwrap();
    let bytes = db.read(|tx| {
        assert_eq!(tx.query_row("SELECT COUNT(*) FROM t", (), |row| row.get::<_, i64>(0))?, 2);
        let mut bytes = Vec::new();
        tx.blob_open("t", "x", 1)?.read_to_end(&mut bytes).unwrap();
        Ok::<_, Error>(bytes)
    });
    let bytes = bytes.wait().unwrap();
    assert_eq!((&bytes[..4], &bytes[99_996..]), (&[0; 4][..], &b"tail"[..]));
}

#[test]
fn nobody_writes_to_a_blob_of_what_others_keep() {
    let db = database();
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE mine(id INTEGER PRIMARY KEY AUTOINCREMENT, x BLOB);
             INSERT INTO mine(x) VALUES (zeroblob(9));
             CREATE VIRTUAL TABLE words USING fts5(x); INSERT INTO words VALUES ('red')",
        )
    })
    .wait()
    .unwrap();
    let kept = [
        ("sqlite_master", "sql"),
        ("SQLITE_SCHEMA", "name"),
        ("sqlite_sequence", "name"),
        ("words_data", "block"),
        ("Words_Content", "c0"),
    ];
    for (table, column) in kept {
        let opened = |tx: &Tx<'_>| tx.blob_open_mut(table, column, 1).map(drop);
        let refused = db.write(move |tx| opened(tx)).wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains("cannot be written to"), "{refused}");
    }
    db.write(|tx| tx.blob_open_mut("mine", "x", 1).map(drop)).wait().unwrap();
    db.write(|tx| tx.blob_open("sqlite_master", "name", 1).map(drop)).wait().unwrap();
    db.close().unwrap();
}

#[test]
fn a_write_statement_forgotten_half_way_harms_nobody() {
    let db = database();
    let forgetting = db.write(|tx| {
        let statement = tx.prepare("INSERT INTO t(id) VALUES (1), (2), (3) RETURNING id")?;
        let statement = mem::ManuallyDrop::new(Box::new(statement));
        let statement = Box::leak(mem::ManuallyDrop::into_inner(statement));
        let mut rows = statement.query(())?;
        assert!(rows.next()?.is_some());
        mem::forget(rows);
        Ok::<_, Error>(())
    });
    let outcome = forgetting.wait();
    insert(&db, 10).wait().unwrap();
    insert(&db, 11).wait().unwrap();
    let expected: &[i64] = if outcome.is_ok() { &[1, 2, 3, 10, 11] } else { &[10, 11] };
    assert_eq!(ids(&db), expected);
    ends("closing", move || db.close()).unwrap();
}

fn forget_half_way(tx: &ReadTx<'_>) -> Result<(), Error> {
    let statement = Box::leak(Box::new(tx.prepare("SELECT id FROM t")?));
    let mut rows = statement.query(())?;
    assert!(rows.next()?.is_some());
    mem::forget(rows);
    Ok(())
}

#[test]
fn a_query_forgotten_half_way_in_a_write_lets_the_wal_restart() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().wal_limit_bytes(8 << 20);
    let db = options.open(directory.path().join("db")).unwrap();
    create(&db);
    (1..4).for_each(|id| assert_eq!(insert(&db, id).wait().unwrap(), 1));
    db.write(|tx| forget_half_way(tx)).wait().unwrap();
    for round in 0..60 {
        db.write(move |tx| {
            tx.execute("INSERT OR REPLACE INTO t VALUES (100, randomblob(300000 + ?1))", [round])
        })
        .wait()
        .unwrap();
    }
    assert!(db.stats().checkpoints_completed > 0);
}

#[test]
fn a_query_forgotten_half_way_in_a_read_shows_nobody_an_old_snapshot() {
    let db = Options::new().readers(1).open(":memory:").unwrap();
    create(&db);
    (1..4).for_each(|id| assert_eq!(insert(&db, id).wait().unwrap(), 1));
    db.read(forget_half_way).wait().unwrap();
    insert(&db, 4).wait().unwrap();
    assert_eq!(ids(&db), [1, 2, 3, 4]);
    ends("closing", move || db.close()).unwrap();
}

#[test]
fn what_is_never_dropped_keeps_the_file_and_the_close_says_so() {
    let directory = tempfile::tempdir().unwrap();
    for (name, in_write) in [("write", true), ("read", false)] {
        let path = directory.path().join(name);
        let db = Options::new().open(&path).unwrap();
        create(&db);
        insert(&db, 1).wait().unwrap();
        if in_write {
            db.write(|tx| tx.prepare("SELECT 1").map(mem::forget)).wait().unwrap();
        } else {
            db.read(|tx| tx.prepare("SELECT 1").map(mem::forget)).wait().unwrap();
        }
        insert(&db, 2).wait().unwrap();
        let closed = ends("closing", move || db.close()).unwrap_err();
        let again = Options::new().open(&path).unwrap_err();
        for error in [closed, again] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("never dropped"), "{error}");
        }
        let copy = directory.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        assert_eq!(ids(&Options::new().open(&copy).unwrap()), [1, 2], "all is in the file");
        std::fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn a_want_of_memory_is_called_so_whatever_sqlite_says() {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOMEM);
    let error = Error::from(rusqlite::Error::SqliteFailure(code, Some("/some/file.db".into())));
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert!(error.to_string().contains("refused memory"), "{error}");
}
