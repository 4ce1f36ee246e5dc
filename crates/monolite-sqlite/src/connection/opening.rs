//! Owns the opening of a connection for its role, with its hooks, and what is left when it fails.
//!
//! # Not here
//! Its flags and SQLite's own settings: `setup`.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::hooks::AuthContext;
use rusqlite::{Result, ffi};

use super::{Role, Settings, overlay, setup};
use crate::authorizer::Authorizer;
use crate::codes::failure;
use crate::counts::Counts;
use crate::flag::Flag;
use crate::rowids::Giver;
use crate::stack::Stack;
use crate::untrusted::{self, QueryRules};
use crate::vfs::with_database_locked;
use crate::{additions, format, no_rows, surroundings};

/// Prepared statements kept by a connection; more than most applications have.
pub(super) const STATEMENT_CACHE: usize = 256;

/// What the hooks of a connection share with its user.
pub(super) struct Hooks {
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) may_commit: Arc<Flag>,
    /// Raised when a collation of the application panics.
    pub(super) panics: Arc<Flag>,
    pub(super) counts: Arc<Counts>,
    /// Where rows are numbered.
    pub(super) giver: Option<Arc<Giver>>,
    pub(super) stack: Stack,
}

pub(super) fn open(path: &Path, role: Role, settings: &Settings) -> Result<rusqlite::Connection> {
    let (flags, vfs) = (setup::open_flags(role), settings.vfs.as_str());
    if role == Role::Inspector {
        return rusqlite::Connection::open_with_flags_and_vfs(unchanging(path), flags, vfs);
    }
    rusqlite::Connection::open_with_flags_and_vfs(path, flags, vfs)
}

/// The URI by which SQLite takes the file at `path` for one that does not change. Format:
/// <https://sqlite.org/uri.html>.
fn unchanging(path: &Path) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.') {
            uri.push(byte.into());
        } else {
            uri.push_str(&format!("%{byte:02x}"));
        }
    }
    uri + "?mode=ro&immutable=1"
}

pub(super) fn set_up(
    inner: &mut rusqlite::Connection,
    role: Role,
    settings: &Settings,
) -> Result<Hooks> {
    // What stays until the close, as functions do, has no part of it: it can be given back.
    setup::have_lookaside(inner, 0)?;
    setup::have_large_error(inner);
    if role == Role::Overlay {
        overlay::check_vfs(inner)?;
    }
    inner.busy_timeout(settings.busy_timeout)?;
    inner.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    setup::harden(inner)?;
    if role == Role::Writer && settings.reserved_bytes != 0 {
        setup::reserve_bytes(inner, settings.reserved_bytes)?;
    }
    let set = setup::set_pragmas(inner, role, settings);
    if matches!(role, Role::Writer | Role::Inspector) {
        format::check(inner, set)?
    } else {
        set?
    }
    surroundings::replace_on(inner)?;
    let counts = Counts::install(inner)?;
    if role.inserts() {
        no_rows::add_to(inner)?;
    }
    let rowids = settings.rowids.as_ref().filter(|_| role.inserts());
    let numbers = |rowids| Giver::install(inner, rowids, role == Role::Writer);
    let giver = rowids.map(numbers).transpose()?;
    let is_untrusted = role == Role::Untrusted;
    let authorizer = Arc::new(Authorizer::new(is_untrusted.then(QueryRules::default)));
    let (may_commit, panics) = (Arc::<Flag>::default(), Arc::default());
    additions::add_to(inner, &authorizer, &panics, settings.setup.as_ref())?;
    if is_untrusted {
        untrusted::apply(inner)?;
    }
    let stack = Stack::new().map_err(no_stack)?;
    let passes = Arc::clone(&may_commit);
    inner.commit_hook(Some(move || !passes.is_up()))?;
    let judge = Arc::clone(&authorizer);
    inner.authorizer(Some(move |context: AuthContext<'_>| judge.judge(&context)))?;
    setup::have_lookaside(inner, setup::PIECES)?;
    Ok(Hooks { authorizer, may_commit, panics, counts, giver, stack })
}

/// Whether there is a file where the database at `path` has its WAL.
pub(super) fn has_wal(path: &Path) -> bool {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    fs::symlink_metadata(Path::new(&name)).is_ok()
}

/// Prepares an unusable writer to leave nothing behind; the caller must close it next. Runs `tidy`,
/// unless another process has the database locked, and has the close remove a new WAL.
pub(super) fn give_up(inner: &rusqlite::Connection, is_wal_new: bool, tidy: impl FnOnce()) {
    with_database_locked(inner, tidy);
    if is_wal_new {
        // SQLite removes it only if no other process uses it. One that stays does no harm.
        let _ = inner.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
    }
}

fn no_stack(error: io::Error) -> rusqlite::Error {
    let text = format!(
        "no address space for the stack of a connection: {error}; allow the process more of it, or \
         lower the option readers"
    );
    failure(ffi::SQLITE_CANTOPEN, text)
}
