//! Notes over HTTP with actix-web: `cargo run --package actix [FILE] [ADDRESS]`.
//!
//! `PUT /notes/NAME` with a text adds a note, once; `GET /notes/NAME` gives it.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

#[cfg(test)]
mod tests;

use std::fmt;

use actix_web::http::{StatusCode, header};
use actix_web::web::{self, Data, Path, ServiceConfig};
use actix_web::{App, HttpResponse, HttpServer, ResponseError};
use monolite::{Database, ErrorKind};

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "notes.db".into());
    let address = std::env::args().nth(2).unwrap_or_else(|| "127.0.0.1:8080".into());
    let db = Database::open(path)?;
    create_schema(&db).await?;

    // Each worker runs the closure; all handles are of one database.
    let shared = db.clone();
    let app = move || App::new().configure(|service| routes(service, shared.clone()));
    println!("listening on http://{address}");
    // On Ctrl-C or SIGTERM it finishes open requests, for ten seconds at most.
    HttpServer::new(app).bind(address)?.shutdown_timeout(10).run().await?;
    Ok(web::block(move || db.close()).await??) // waits for the disk
}

async fn create_schema(db: &Database) -> monolite::Result<()> {
    let sql = "CREATE TABLE IF NOT EXISTS note(name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT";
    db.write(move |tx| tx.execute_batch(sql)).await
}

fn routes(service: &mut ServiceConfig, db: Database) {
    service
        .app_data(Data::new(db))
        .route("/notes/{name}", web::put().to(add))
        .route("/notes/{name}", web::get().to(text));
}

async fn add(db: Data<Database>, name: Path<String>, text: String) -> Result<String, Failure> {
    let name = name.into_inner();
    db.write(move |tx| tx.execute("INSERT INTO note VALUES (?1, ?2)", (&name, &text))).await?;
    Ok("added".into())
}

async fn text(db: Data<Database>, name: Path<String>) -> Result<String, Failure> {
    let (name, sql) = (name.into_inner(), "SELECT text FROM note WHERE name = ?1");
    Ok(db.read(move |tx| tx.query_row(sql, [name], |row| row.get(0))).await?)
}

/// Allows `?` on the database in a handler.
#[derive(Debug)]
struct Failure(monolite::Error);

impl From<monolite::Error> for Failure {
    fn from(error: monolite::Error) -> Failure {
        Failure(error)
    }
}

/// A text for clients; the error's own message goes to the log.
impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.status_code().canonical_reason().unwrap_or("failed"))
    }
}

impl ResponseError for Failure {
    fn status_code(&self) -> StatusCode {
        match self.0.kind() {
            ErrorKind::NoRows => StatusCode::NOT_FOUND,
            ErrorKind::Constraint if self.0.is_unique_violation() => StatusCode::CONFLICT,
            ErrorKind::Constraint => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Conflict
            | ErrorKind::Overloaded
            | ErrorKind::Timeout
            | ErrorKind::Fenced
            | ErrorKind::Poisoned
            | ErrorKind::Closed => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        let status = self.status_code();
        if status.is_server_error() {
            eprintln!("{:?}: {}", self.0.kind(), self.0);
        }
        let mut response = HttpResponse::build(status);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.insert_header((header::RETRY_AFTER, "1"));
        }
        response.body(self.to_string())
    }
}
