//! Owns the checkout: reserve the goods, pay outside of every transaction, settle. The payment
//! service has no keys, so only the request that has reserved calls it. An operator looks at orders
//! that stay reserved.

use monolite::{Committed, Database, Result, Transaction};

/// What a customer sends; with the same key when it is sent again.
#[derive(serde::Deserialize)]
pub(crate) struct Order {
    key: String,
    user: i64,
    items: Vec<(i64, u32)>, // products and quantities
}

/// Buys, unless an order of this key was made before; gives the receipt, as [`receipt`] does.
pub(crate) async fn buy(db: Database, order: Order) -> Result<Option<String>> {
    let reserve = async |tx| Ok((reserve(tx, &order).await?, []));
    let reserved = db.transact_once(format!("order {}", order.key), reserve).await?;
    if let Committed::Now { value: (id, cents), .. } = reserved {
        let receipt = charge(id, cents).await;
        db.write(move |tx| {
            let sql = "UPDATE purchase SET state = 'paid', receipt = ?2 WHERE id = ?1";
            tx.execute(sql, (id, &receipt))?;
            let sql = "INSERT INTO outbox (purchase, text) VALUES (?1, ?2)";
            tx.execute(sql, (id, format!("order {id} is paid: {receipt}")))
        })
        .await?;
    }
    receipt(&db, order.key).await
}

/// Takes goods off the shelf, if there are enough (a CHECK); gives the order's id and price.
async fn reserve(tx: Transaction, order: &Order) -> Result<(i64, i64)> {
    let sql = "INSERT INTO purchase (key, user, state) VALUES (?1, ?2, 'reserved') RETURNING id";
    let id = tx.query_row(sql, (&order.key, order.user), |row| row.get(0)).await?;
    let mut total = 0;
    for &(product, quantity) in &order.items {
        let sql = "UPDATE product SET stock = stock - ?2 WHERE id = ?1 RETURNING cents * ?2";
        let cents: i64 = tx.query_row(sql, (product, quantity), |row| row.get(0)).await?;
        let sql = "INSERT INTO item (purchase, product, quantity, cents) VALUES (?1, ?2, ?3, ?4)";
        tx.execute(sql, (id, product, quantity, cents)).await?;
        total += cents;
    }
    Ok((id, total))
}

async fn charge(order: i64, cents: i64) -> String {
    println!("charge: order {order}, {cents} cents");
    tokio::time::sleep(std::time::Duration::from_millis(200)).await; // a slow service
    format!("receipt-{order}")
}

/// The receipt of an order; none while it is being paid.
pub(crate) async fn receipt(db: &Database, key: String) -> Result<Option<String>> {
    let sql = "SELECT receipt FROM purchase WHERE key = ?1";
    db.read(move |tx| tx.query_row(sql, [key], |row| row.get(0))).await
}
