//! Bookings of rooms, with one database for each tenant.
//!
//! [`Tenants`] is what a program with one database for each customer needs; the rest uses it.

#![forbid(unsafe_code)]

mod tenants;

use monolite::{Database, Migrations};

pub use tenants::Tenants;

/// The schema of a tenant's database.
///
/// # Errors
/// When a migration is no SQL.
pub fn migrations() -> monolite::Result<Migrations> {
    Migrations::new().with(
        "0001_bookings.sql",
        "CREATE TABLE booking(
             id INTEGER PRIMARY KEY, room TEXT NOT NULL, day TEXT NOT NULL, guest TEXT NOT NULL,
             UNIQUE (room, day)
         ) STRICT;",
    )
}

/// Books `room` on `day`, unless it is taken, and returns the number of the booking.
///
/// # Errors
/// `Constraint` when it is taken.
pub fn book(db: &Database, room: &str, day: &str, guest: &str) -> monolite::Result<i64> {
    let row = (room.to_owned(), day.to_owned(), guest.to_owned());
    let sql = "INSERT INTO booking(room, day, guest) VALUES (?1, ?2, ?3) RETURNING id";
    db.named("book").write(move |tx| tx.query_row(sql, row.clone(), |row| row.get(0))).wait()
}

/// The rooms that are booked on `day`, with their guests.
///
/// # Errors
/// Those of a read.
pub fn booked(db: &Database, day: &str) -> monolite::Result<Vec<(String, String)>> {
    let day = day.to_owned();
    let sql = "SELECT room, guest FROM booking WHERE day = ?1 ORDER BY room";
    db.named("booked")
        .read(move |tx| tx.query_map(sql, [&day], |row| Ok((row.get(0)?, row.get(1)?))))
        .wait()
}
