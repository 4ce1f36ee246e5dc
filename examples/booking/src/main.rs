//! Owns the commands: `cargo run --package booking -- DISK … -- COMMAND`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::path::Path;

use anyhow::{Result, bail};
use booking::{Tenants, book, booked, migrations};

const USAGE: &str = "usage: booking DISK … -- create TENANT | book TENANT ROOM DAY GUEST | \
                     list TENANT DAY | migrate | move TENANT DISK";

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (disks, command) = match words.iter().position(|word| word == "--") {
        Some(at) if at > 0 => (&words[..at], &words[at + 1..]),
        _ => bail!(USAGE),
    };
    let tenants = Tenants::new(disks.iter().map(Into::into).collect(), migrations()?);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    match command[..] {
        ["create", tenant] => tenants.create(tenant)?,
        ["book", tenant, room, day, guest] => {
            let id = tenants.with(tenant, |db| Ok(book(db, room, day, guest)?))?;
            println!("booking {id}");
        }
        ["list", tenant, day] => {
            for (room, guest) in tenants.with(tenant, |db| Ok(booked(db, day)?))? {
                println!("{room}: {guest}");
            }
        }
        ["migrate"] => {
            for (tenant, error) in tenants.migrate_all(100)? {
                eprintln!("{tenant}: {error:#}");
            }
        }
        ["move", tenant, disk] => tenants.relocate(tenant, Path::new(disk))?,
        _ => bail!(USAGE),
    }
    tenants.close_idle(0)
}
