//! Owns the routes, with the statements that only they need, and the answer to each error.

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router, body::Body, http::StatusCode, response::IntoResponse};
use monolite::{Database, ErrorKind, Parameters, from_row};
use serde::{Deserialize, Serialize};

use crate::checkout::{self, Order};

type Answer<T> = Result<Json<T>, (StatusCode, String)>;

pub(crate) fn router(db: Database) -> Router {
    Router::new()
        .route("/users", post(add_user))
        .route("/products", post(add_product))
        .route("/products/{words}", get(search))
        .route("/orders", post(buy))
        .route("/orders/{key}", get(receipt))
        .route("/report.csv", get(report))
        .route("/backup", post(backup))
        .with_state(db)
}

fn answer<T>(done: monolite::Result<T>) -> Answer<T> {
    done.map(Json).map_err(|error| {
        let status = match error.kind() {
            ErrorKind::NoRows => StatusCode::NOT_FOUND,
            ErrorKind::Constraint => StatusCode::CONFLICT,
            ErrorKind::Overloaded | ErrorKind::Timeout => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, error.to_string())
    })
}

async fn add_user(State(db): State<Database>, Json(name): Json<String>) -> Answer<i64> {
    let sql = "INSERT INTO user (name) VALUES (?1) RETURNING id";
    answer(db.write(move |tx| tx.query_row(sql, [&name], |row| row.get(0))).await)
}

#[derive(Deserialize, Serialize)]
struct Product {
    id: Option<i64>,
    name: String,
    description: String,
    cents: i64,
    stock: i64,
}

async fn add_product(State(db): State<Database>, Json(new): Json<Product>) -> Answer<i64> {
    let sql = "INSERT INTO product (id, name, description, cents, stock)
               VALUES (:id, :name, :description, :cents, :stock) RETURNING id";
    let id = db.write(move |tx| tx.query_row(sql, Parameters::from_struct(&new)?, |it| it.get(0)));
    answer(id.await)
}

/// The best products that have all the words; each is quoted, since FTS5 has a language of its own.
async fn search(State(db): State<Database>, Path(words): Path<String>) -> Answer<Vec<Product>> {
    let words = format!("\"{}\"", words.replace(['"', '\0'], "").replace(' ', "\" \""));
    let sql = "SELECT product.* FROM product_text JOIN product ON id = product_text.rowid
               WHERE product_text MATCH ?1 ORDER BY rank LIMIT 20";
    answer(db.read(move |tx| tx.query_map(sql, [words], from_row)).await)
}

/// In a task of its own: a client that hangs up must not leave a payment half-way.
async fn buy(State(db): State<Database>, Json(order): Json<Order>) -> Answer<Option<String>> {
    answer(tokio::spawn(checkout::buy(db, order)).await.expect("a checkout does not panic"))
}

async fn receipt(State(db): State<Database>, Path(key): Path<String>) -> Answer<Option<String>> {
    answer(checkout::receipt(&db, key).await)
}

/// All that was ordered, at the pace of the client.
async fn report(State(db): State<Database>) -> impl IntoResponse {
    let sql = "SELECT format('%d,%s,%d,%d,%d', purchase, state, product, quantity, cents)
               FROM item JOIN purchase ON id = purchase ORDER BY purchase, product";
    let lines = db.read_stream(sql, (), |row| Ok(row.get::<_, String>(0)? + "\n"));
    ([("content-type", "text/csv")], Body::from_stream(lines))
}

/// For the operator, who names a path on the server; gives the file's length.
async fn backup(State(db): State<Database>, Json(path): Json<String>) -> Answer<u64> {
    answer(db.backup(path).await.map(|made| made.bytes))
}
