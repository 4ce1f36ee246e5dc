//! Runs a hostile query in a process of its own, on a backup. SQLite cannot be interrupted while it
//! plans a statement; the kernel can end a process.
//!
//! ```sh
//! untrusted-child shop.db 'SELECT name FROM product'
//! ```
//!
//! The parent has the database. It makes a backup, starts itself as a child with the query, and
//! prints the child's answer, or how it ended.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints")]

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use monolite::{Database, UntrustedLimits, Value};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Seconds of a core that a child may take.
const CPU_SECONDS: u64 = 2;

/// Bytes of address space that a child may take: its stacks are reserved and not used.
const ADDRESS_SPACE: u64 = 2 << 30;

/// The child's first argument, before the backup and the query.
const CHILD: &str = "--child";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [CHILD, backup, sql] => answer(Path::new(backup), sql),
        [database, sql] => ask(Path::new(database), sql),
        _ => bail!("usage: untrusted-child DATABASE SQL"),
    }
}

/// The parent: backs the database up, and has a child answer.
fn ask(database: &Path, sql: &str) -> Result<ExitCode> {
    // A child that is ended leaves the files of its database behind.
    let directory = database.with_extension(format!("query-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let backup = directory.join("query.db");
    let db = Database::open(database)?;
    db.backup(&backup).wait()?;
    let child = Command::new(env::current_exe()?)
        .args([CHILD.as_ref(), backup.as_os_str(), sql.as_ref()])
        .stdin(Stdio::null())
        .output()
        .context("the child cannot be started")?;
    std::fs::remove_dir_all(&directory)?;
    db.close()?;
    print!("{}", String::from_utf8_lossy(&child.stdout));
    if child.status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "the query failed: {}; {}",
        child.status,
        String::from_utf8_lossy(&child.stderr).trim()
    );
    Ok(ExitCode::FAILURE)
}

/// The child: limits its own resources, and answers.
fn answer(backup: &Path, sql: &str) -> Result<ExitCode> {
    let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Cpu, limit(CPU_SECONDS))?;
    setrlimit(Resource::As, limit(ADDRESS_SPACE))?;
    setrlimit(Resource::Core, limit(0))?;
    let db = Database::open(backup)?;
    let limits = UntrustedLimits::new().time(Duration::from_secs(60));
    let answer = db.query_untrusted(sql, (), &limits).wait()?;
    println!("{}", answer.columns.join("\t"));
    for row in &answer.rows {
        println!("{}", row.iter().map(shown).collect::<Vec<_>>().join("\t"));
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text.escape_default().to_string(),
        Value::Blob(bytes) => format!("{} bytes", bytes.len()),
    }
}
