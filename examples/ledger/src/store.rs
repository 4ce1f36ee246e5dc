//! The ledger's schema and transactions.
//!
//! # Invariants
//! Checked by the schema or by the tests:
//! 1. No balance is below zero or above [`MAX_BALANCE`].
//! 2. An account's balance is the sum of its entries, and the balance of its newest entry.
//! 3. A transfer has two entries that cancel each other out; so transfers change no total.
//! 4. A transfer id is used once.
//!
//! # Not here
//! Locks and retries: each function runs as if alone, and either all of it happens or nothing.

use monolite::{ReadTx, Tx, params};
use serde::Serialize;

use crate::error::LedgerError;

type Result<T> = std::result::Result<T, LedgerError>;

/// The largest balance; far from where sums of 64-bit integers would overflow.
pub(crate) const MAX_BALANCE: i64 = 1_000_000_000_000_000;

/// The longest id a client may give a transfer, in bytes.
pub(crate) const MAX_ID_BYTES: usize = 64;

/// The longest name of an owner, in bytes.
pub(crate) const MAX_OWNER_BYTES: usize = 200;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account (
        id      INTEGER PRIMARY KEY,
        owner   TEXT    NOT NULL CHECK (owner <> ''),
        balance INTEGER NOT NULL CHECK (balance BETWEEN 0 AND 1000000000000000)
    ) STRICT;

    CREATE TABLE IF NOT EXISTS transfer (
        id           TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
        from_account INTEGER NOT NULL REFERENCES account (id),
        to_account   INTEGER NOT NULL REFERENCES account (id),
        amount       INTEGER NOT NULL CHECK (amount > 0),
        CHECK (from_account <> to_account)
    ) STRICT, WITHOUT ROWID;

    -- An entry without a transfer is an opening balance.
    CREATE TABLE IF NOT EXISTS entry (
        id       INTEGER PRIMARY KEY,
        account  INTEGER NOT NULL REFERENCES account (id),
        transfer TEXT    REFERENCES transfer (id),
        amount   INTEGER NOT NULL,
        balance  INTEGER NOT NULL
    ) STRICT;

    CREATE INDEX IF NOT EXISTS entry_by_account ON entry (account, id);
";

/// An account as clients see it.
#[derive(Debug, Serialize)]
pub(crate) struct Account {
    pub(crate) id: i64,
    pub(crate) owner: String,
    pub(crate) balance: i64,
}

/// A transfer that makes sense: different accounts, an amount above zero, an id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Transfer {
    pub(crate) id: String,
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) amount: i64,
}

/// Whether a transfer was made now or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Now,
    Before,
}

/// One line of a statement.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) id: i64,
    pub(crate) transfer: Option<String>,
    pub(crate) amount: i64,
    pub(crate) balance: i64,
}

/// A page of a statement, oldest entry first.
#[derive(Debug, Serialize)]
pub(crate) struct Statement {
    pub(crate) account: i64,
    pub(crate) entries: Vec<Entry>,
    /// What to send as `after` for the next page; `None` on the last one.
    pub(crate) next: Option<i64>,
}

/// Creates the tables where they are missing; to be run once after opening the database.
///
/// # Errors
/// Those of [`Tx::execute_batch`].
pub fn create_schema(tx: &Tx<'_>) -> monolite::Result<()> {
    tx.execute_batch(SCHEMA)
}

pub(crate) fn open_account(tx: &Tx<'_>, owner: &str, opening_balance: i64) -> Result<Account> {
    tx.execute("INSERT INTO account (owner, balance) VALUES (?1, ?2)", (owner, opening_balance))?;
    let id = tx.last_insert_rowid();
    add_entry(tx, id, None, opening_balance, opening_balance)?;
    Ok(Account { id, owner: owner.to_owned(), balance: opening_balance })
}

pub(crate) fn account(tx: &ReadTx<'_>, id: i64) -> Result<Account> {
    let sql = "SELECT owner, balance FROM account WHERE id = ?1";
    let found = tx.query_optional(sql, [id], |row| {
        Ok(Account { id, owner: row.get(0)?, balance: row.get(1)? })
    });
    found?.ok_or(LedgerError::UnknownAccount(id))
}

/// Moves money, unless a transfer of this id was made before. The id is written in the same
/// transaction as the money, so a client that lost the answer can send the request again.
pub(crate) fn transfer(tx: &Tx<'_>, wanted: &Transfer) -> Result<Made> {
    if let Some(made) = made_before(tx, &wanted.id)? {
        return if made == *wanted {
            Ok(Made::Before)
        } else {
            Err(LedgerError::TransferIdTaken(made.id))
        };
    }
    let from = account(tx, wanted.from)?;
    let to = account(tx, wanted.to)?;
    if from.balance < wanted.amount {
        let (account, balance, amount) = (from.id, from.balance, wanted.amount);
        return Err(LedgerError::InsufficientFunds { account, balance, amount });
    }
    if to.balance > MAX_BALANCE - wanted.amount {
        return Err(LedgerError::BalanceTooLarge(to.id));
    }
    tx.execute(
        "INSERT INTO transfer (id, from_account, to_account, amount) VALUES (?1, ?2, ?3, ?4)",
        params![wanted.id, from.id, to.id, wanted.amount],
    )?;
    book(tx, &from, &wanted.id, -wanted.amount)?;
    book(tx, &to, &wanted.id, wanted.amount)?;
    Ok(Made::Now)
}

fn made_before(tx: &ReadTx<'_>, id: &str) -> Result<Option<Transfer>> {
    let sql = "SELECT from_account, to_account, amount FROM transfer WHERE id = ?1";
    let found = tx.query_optional(sql, [id], |row| {
        Ok(Transfer { id: id.to_owned(), from: row.get(0)?, to: row.get(1)?, amount: row.get(2)? })
    });
    Ok(found?)
}

fn book(tx: &Tx<'_>, account: &Account, transfer: &str, amount: i64) -> Result<()> {
    let balance = account.balance + amount;
    tx.execute("UPDATE account SET balance = ?2 WHERE id = ?1", [account.id, balance])?;
    add_entry(tx, account.id, Some(transfer), amount, balance)
}

fn add_entry(
    tx: &Tx<'_>,
    account: i64,
    transfer: Option<&str>,
    amount: i64,
    balance: i64,
) -> Result<()> {
    tx.execute(
        "INSERT INTO entry (account, transfer, amount, balance) VALUES (?1, ?2, ?3, ?4)",
        params![account, transfer, amount, balance],
    )?;
    Ok(())
}

/// At most `limit` entries of an account that are newer than the entry `after`.
pub(crate) fn statement(tx: &ReadTx<'_>, id: i64, after: i64, limit: u32) -> Result<Statement> {
    account(tx, id)?;
    let mut query = tx.prepare_cached(
        "SELECT id, transfer, amount, balance FROM entry
         WHERE account = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
    )?;
    // One more than asked for tells whether there is another page.
    let wanted = i64::from(limit) + 1;
    let rows = query.query_map([id, after, wanted], |row| {
        Ok(Entry {
            id: row.get(0)?,
            transfer: row.get(1)?,
            amount: row.get(2)?,
            balance: row.get(3)?,
        })
    });
    let rows = rows.map_err(monolite::Error::from)?;
    let mut entries: Vec<Entry> =
        rows.collect::<std::result::Result<_, _>>().map_err(monolite::Error::from)?;
    let is_more = entries.len() as i64 == wanted;
    entries.truncate(limit as usize);
    let next = entries.last().filter(|_| is_more).map(|last| last.id);
    Ok(Statement { account: id, entries, next })
}
