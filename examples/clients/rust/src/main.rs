//! `libsql`: insert, read, batch, and a transaction that is tried again when it was busy.

use std::time::Duration;

use libsql::{named_params, params, Builder, Connection, Transaction, TransactionBehavior};

/// Takes from ann. Between the statements the program decides, so another transaction can come in
/// between.
async fn take(tx: &Transaction, amount: i64) -> libsql::Result<()> {
    let mut rows = tx.query("SELECT balance FROM account WHERE id = 1", ()).await?;
    let balance: i64 = rows.next().await?.expect("ann is there").get(0)?;
    assert!(balance >= amount, "not enough money");
    tx.execute("UPDATE account SET balance = ? WHERE id = 1", params![balance - amount]).await?;
    tx.execute("UPDATE account SET balance = balance + ? WHERE id = 2", params![amount]).await?;
    Ok(())
}

/// Runs `take` in a transaction, again and again while another one changed what it read.
async fn retried(connection: &Connection, amount: i64) -> libsql::Result<()> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).await?;
        let done = match take(&tx, amount).await {
            Ok(()) => tx.commit().await,
            Err(error) => tx.rollback().await.and(Err(error)),
        };
        match done {
            // The error has no code of its own.
            Err(error) if error.to_string().contains("database is locked") && attempt < 10 => {
                tokio::time::sleep(Duration::from_millis(attempt)).await;
            }
            done => return done,
        }
    }
}

#[tokio::main]
async fn main() -> libsql::Result<()> {
    let url = std::env::args().nth(1).unwrap_or("http://127.0.0.1:8080".into());
    let database = Builder::new_remote(url, String::new()).build().await?;
    let connection = database.connect()?;
    let tables = "DROP TABLE IF EXISTS account;
        CREATE TABLE account(id INTEGER PRIMARY KEY, name TEXT, balance INTEGER);";
    connection.execute_batch(tables).await?;
    connection.execute("INSERT INTO account VALUES (1, ?, ?)", params!["ann", 150]).await?;
    let bob = named_params! { ":name": "bob", ":balance": 0 };
    connection.execute("INSERT INTO account VALUES (2, :name, :balance)", bob).await?;
    for _ in 0..5 {
        retried(&connection, 10).await?;
    }
    let mut rows = connection.query("SELECT balance FROM account ORDER BY id", ()).await?;
    let mut balances: Vec<i64> = Vec::new();
    while let Some(row) = rows.next().await? {
        balances.push(row.get(0)?);
    }
    assert_eq!(balances, [100, 50]);
    Ok(())
}
