//! The same promises under `tokio` and `smol`: nothing in the engine knows which runtime awaits.

use std::sync::Arc;

use monolite::{Database, Error, ErrorKind, Options};

use crate::patience::{ends, one};
use monolite_testkit::markers;

const TASKS: i64 = 2_000;

/// More tasks than fit into the queue.
fn database() -> Arc<Database> {
    let db = Options::new().queue_capacity(64).readers(2).open(":memory:").unwrap();
    markers::create(&db).unwrap();
    Arc::new(db)
}

/// What one task does: a write, a read that must see it, and a failure now and then.
async fn task(db: Arc<Database>, id: i64) -> Result<(), Error> {
    let write = db.write(move |tx| {
        markers::put(tx, id)?;
        if id % 10 == 0 { Err(Error::aborted("on purpose")) } else { Ok(()) }
    });
    let written = write.await;
    let found: bool = db
        .read(move |tx| {
            tx.query_row("SELECT EXISTS (SELECT 1 FROM whole WHERE id = ?1)", [id], |row| {
                row.get(0)
            })
        })
        .await?;
    assert_eq!(found, written.is_ok(), "{id}");
    match written {
        Err(error) if error.kind() == ErrorKind::Aborted && id % 10 == 0 => Ok(()),
        other => other,
    }
}

fn check(db: &Database) {
    assert_eq!(one(db, "SELECT n FROM total"), TASKS - TASKS / 10);
    assert_eq!(db.stats().failed_transactions, (TASKS / 10) as u64);
    db.close().unwrap();
}

fn on_tokio(mut runtime: tokio::runtime::Builder) {
    ends("the tasks", move || {
        let runtime = runtime.build().unwrap();
        let db = database();
        runtime.block_on(async {
            let tasks: Vec<_> =
                (0..TASKS).map(|id| tokio::spawn(task(Arc::clone(&db), id))).collect();
            for task in tasks {
                task.await.unwrap().unwrap();
            }
        });
        check(&db);
    });
}

#[test]
fn one_tokio_thread_is_never_blocked() {
    on_tokio(tokio::runtime::Builder::new_current_thread());
}

#[test]
fn thousands_of_smol_tasks_share_a_small_queue() {
    ends("the tasks", || {
        let db = database();
        smol::block_on(async {
            let tasks: Vec<_> =
                (0..TASKS).map(|id| smol::spawn(task(Arc::clone(&db), id))).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        check(&db);
    });
}

#[test]
fn an_awaited_closure_that_panics_panics_in_its_task() {
    let db = database();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let panic = runtime.block_on(async {
        let db = Arc::clone(&db);
        let read = async move {
            let quiet = |_: &monolite::ReadTx<'_>| -> Result<(), Error> {
                std::panic::resume_unwind(Box::new(5_u8))
            };
            db.read(quiet).await
        };
        tokio::spawn(read).await.unwrap_err().into_panic()
    });
    assert_eq!(panic.downcast_ref(), Some(&5_u8));
    assert_eq!(one(&db, "SELECT 1"), 1);
}
