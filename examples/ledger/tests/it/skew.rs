//! Write skew: two transactions that each read what the other writes. A rule over both rows holds
//! under SERIALIZABLE, and not under snapshot isolation.

use std::sync::Arc;
use std::time::Duration;

use ledger::LedgerError;
use monolite_postgres::{Engine, EngineTransaction as _};
use tokio::sync::Barrier;

/// Two accounts with 100 each, of which 100 have to stay on both together.
const OPENING: i64 = 100;

/// Takes 100 from each of two accounts at once, if the rule allows it, and gives what is left on
/// both: 100, or 0 if the engine lets write skew pass.
pub(crate) async fn left_of_two_accounts<D: Engine<Error = LedgerError>>(db: &D) -> i64 {
    let open = db.transact(async |tx| {
        let sql = "INSERT INTO account (owner, balance) VALUES ('skew', ?1) RETURNING id";
        let one = tx.query_row(sql, [OPENING], |row| row.get::<i64>(0)).await?;
        Ok([one, tx.query_row(sql, [OPENING], |row| row.get::<i64>(0)).await?])
    });
    let [one, two] = open.await.unwrap();
    let have_read = Arc::new(Barrier::new(2));
    let both = [(one, two), (two, one)].map(|(from, other)| {
        let (db, have_read) = (db.clone(), Arc::clone(&have_read));
        tokio::spawn(async move { withdraw(&db, from, other, &have_read).await.unwrap() })
    });
    for withdrawn in both {
        withdrawn.await.unwrap();
    }
    db.read(async |tx| Ok(sum(&tx, one, two).await?)).await.unwrap()
}

async fn sum(
    tx: &impl monolite_postgres::EngineTransaction,
    one: i64,
    two: i64,
) -> monolite::Result<i64> {
    let sql = "SELECT balance FROM account WHERE id = ?1 OR id = ?2";
    let balances = tx.query_map(sql, [one, two], |row| row.get::<i64>(0)).await?;
    Ok(balances.iter().sum())
}

async fn withdraw<D: Engine<Error = LedgerError>>(
    db: &D,
    from: i64,
    other: i64,
    have_read: &Barrier,
) -> Result<(), LedgerError> {
    db.transact(async |tx| {
        let together = sum(&tx, from, other).await?;
        if tx.attempt() == 1 {
            // Both have read before one of them writes; if one cannot, it is not concurrent.
            let _ = tokio::time::timeout(Duration::from_secs(1), have_read.wait()).await;
        }
        if together - OPENING >= OPENING {
            let sql = "UPDATE account SET balance = balance - ?2 WHERE id = ?1";
            tx.execute(sql, [from, OPENING]).await?;
        }
        Ok(())
    })
    .await
}

#[test]
fn write_skew_does_not_pass_on_monolite() {
    let db = monolite::Database::open(":memory:").unwrap().with_error();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let left = runtime.block_on(async {
        ledger::create_schema(&db, ledger::SCHEMA).await.unwrap();
        left_of_two_accounts(&db).await
    });
    assert_eq!(left, OPENING);
}
