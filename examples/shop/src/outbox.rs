//! Owns the outbox: a mail is queued in the transaction of its order, and sent at least once.

use monolite::{Database, Result};

pub(crate) async fn deliver(db: Database) {
    while let Err(error) = try_to_deliver(&db).await {
        eprintln!("the outbox begins again: {error}");
    }
}

async fn try_to_deliver(db: &Database) -> Result<()> {
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let sql = "SELECT id, text FROM outbox WHERE sent = 0 ORDER BY id LIMIT 100";
        let read = db.read_durable(|tx| tx.query_map(sql, (), |row| row.try_into()));
        let mails: Vec<(i64, String)> = read.await?;
        for (id, text) in mails {
            println!("mail: {text}"); // stands for a mail server
            db.write(move |tx| tx.execute("UPDATE outbox SET sent = 1 WHERE id = ?", [id])).await?;
        }
    }
}
