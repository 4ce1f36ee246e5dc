//! Transactions that collide take turns, and nobody else waits.

use std::time::Duration;

use monolite::{Database, Error, Options};

use super::{BALANCE, SET, accounts, balance};

/// Reads an account, decides for a while, and writes it.
async fn decide(db: &Database, account: i64, time: Duration) -> Result<(), Error> {
    db.transact(|tx| async move {
        let seen: i64 = tx.query_row(BALANCE, [account], |row| row.get(0)).await?;
        tokio::time::sleep(time).await;
        tx.execute(SET, (account, seen + 1)).await?;
        Ok(())
    })
    .await
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn many_clients_of_one_row_finish_with_few_conflicts() {
    let (_directory, db) = accounts(Options::new());
    let runtime = runtime();
    runtime.block_on(async {
        let clients: Vec<_> = (0..64)
            .map(|_| {
                let db = db.clone();
                tokio::spawn(async move {
                    for _ in 0..5 {
                        decide(&db, 1, Duration::from_millis(2)).await.unwrap();
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
    assert_eq!(balance(&db, 1), 100 + 320);
    let stats = db.stats();
    // All of the first ones meet, and after that nobody does.
    assert!(stats.transaction_conflicts < 96, "{stats:?}");
    assert_eq!(stats.transactions_exclusive, 0);
}
