//! Owns who may do what: tokens signed by others (JWT), and tokens of the server's own.
//!
//! # Invariants
//! - A token is text of the client's and is never in a message, a log or a figure.
//! - Where there is a configuration, no token is no right.
//! - While the server runs, wrong files change nothing: the keys and tokens of before stay.

mod jwt;
mod tokens;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::files::{Changes, ConfigError};
use crate::log;

pub use tokens::issue_token;

/// Who may use the databases.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AuthConfig {
    /// Public keys of those who sign JWTs: PEM with one or more `PUBLIC KEY` of Ed25519, or one of
    /// 32 bytes in base64url.
    pub jwt_key_file: Option<PathBuf>,
    /// Tokens of the server's own, as `monolite token` writes them.
    pub token_file: Option<PathBuf>,
    /// The right of a JWT that names none. Default: `ro`; that of sqld is `rw`.
    pub token_default: Right,
}

/// What may be done with a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub enum Right {
    /// Its content may be read. `roa` of sqld is the same here, where nothing can be attached.
    #[default]
    #[serde(rename = "ro", alias = "roa")]
    ReadOnly,
    /// Its content and its schema may be changed.
    #[serde(rename = "rw")]
    ReadWrite,
}

/// Who has shown a token.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    /// For logs and figures.
    pub(crate) name: String,
    /// For turns among clients.
    pub(crate) id: u64,
    /// What its uses are counted under: its name. Of a JWT, the key that has signed it: the number
    /// of its names has no bound.
    pub(crate) counted: String,
    kind: Kind,
    grants: Vec<Grant>,
    /// Whether the configuration gives the right, as the token names none.
    is_by_default: bool,
}

/// Whose word for it there is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// No one's: there are no tokens.
    Anyone,
    Signed,
    Issued,
}

/// A right to some databases.
#[derive(Clone, Debug)]
struct Grant {
    right: Right,
    /// `None`: all of them.
    databases: Option<Vec<String>>,
}

impl Principal {
    fn new(kind: Kind, name: &str, grants: Vec<Grant>) -> Principal {
        let hash = digest(&SHA256, name.as_bytes());
        let first = hash.as_ref()[..8].try_into().expect("it has 32 bytes");
        let (name, id) = (name.to_owned(), u64::from_be_bytes(first));
        Principal { counted: name.clone(), name, id, kind, grants, is_by_default: false }
    }

    /// The word for its kind of token in figures, where there are tokens.
    pub(crate) fn kind(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Anyone => None,
            Kind::Signed => Some("signed"),
            Kind::Issued => Some("issued"),
        }
    }

    /// Why it may not write, where it may not.
    pub(crate) fn why_read_only(&self) -> &'static str {
        match self.is_by_default {
            false => "the token gives the right to read only",
            true => {
                "the token names no right (a, p), so token_default in the server's [auth] decides, \
                 which is \"ro\""
            }
        }
    }

    /// What tells it from others for a baton: its kind of token, its name and its right.
    pub(crate) fn proof(&self, right: Right) -> String {
        format!("{:?} {right:?} {}", self.kind, self.name)
    }

    /// Whose part of what all share it takes; where there are no tokens, all are one.
    pub(crate) fn holder(&self) -> Option<u64> {
        self.kind().map(|_| self.id)
    }

    /// What it may do with `database`.
    pub(crate) fn right(&self, database: &str) -> Option<Right> {
        let is_of_it = |grant: &&Grant| {
            let databases = grant.databases.as_ref();
            databases.is_none_or(|names| names.iter().any(|name| name == database))
        };
        let rights = self.grants.iter().filter(is_of_it).map(|grant| grant.right);
        rights.max_by_key(|right| *right == Right::ReadWrite)
    }
}

/// Why a token gives no right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Missing,
    Invalid,
    Expired,
    /// Its time has not come yet.
    Early,
}

impl Refusal {
    pub(crate) fn code(self) -> &'static str {
        match self {
            Refusal::Missing => "AUTH_JWT_MISSING",
            Refusal::Invalid | Refusal::Early => "AUTH_JWT_INVALID",
            Refusal::Expired => "AUTH_JWT_EXPIRED",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Missing => "the request has no token; give the client its authToken",
            Refusal::Invalid => {
                "the token is not one of this server; it must be signed with Ed25519 (EdDSA) by a \
                 key that the server has, or be issued by `monolite token`"
            }
            Refusal::Expired => "the token has expired; get a new one",
            Refusal::Early => "the token is not valid yet (nbf); are the clocks right?",
        })
    }
}

/// Tells who has shown a token.
pub(crate) enum Authenticator {
    /// Without tokens: everyone who reaches the address may do everything.
    Open,
    Tokens(Box<Keeper>),
}

/// Keys and tokens, and the files that they come from.
pub(crate) struct Keeper {
    config: AuthConfig,
    known: Mutex<Arc<Known>>,
    changes: Changes,
}

#[derive(Default)]
struct Known {
    keys: jwt::Keys,
    tokens: tokens::Tokens,
}

impl Authenticator {
    /// That of `config`.
    pub(crate) fn load(config: &AuthConfig) -> Result<Authenticator, ConfigError> {
        let files = [&config.jwt_key_file, &config.token_file];
        let files: Vec<PathBuf> = files.into_iter().flatten().cloned().collect();
        if files.is_empty() {
            let message = "[auth] has neither jwt_key_file nor token_file, so no token is good";
            return Err(ConfigError(message.into()));
        }
        let changes = Changes::of(files);
        let known = Mutex::new(Arc::new(Known::read(config)?));
        Ok(Authenticator::Tokens(Box::new(Keeper { config: config.clone(), known, changes })))
    }

    /// Whether there are no tokens.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Authenticator::Open)
    }

    /// Who `token` belongs to.
    pub(crate) fn authenticate(&self, token: Option<&str>) -> Result<Principal, Refusal> {
        self.authenticate_at(now(), token)
    }

    fn authenticate_at(&self, now: SystemTime, token: Option<&str>) -> Result<Principal, Refusal> {
        let Authenticator::Tokens(keeper) = self else {
            let all = Grant { right: Right::ReadWrite, databases: None };
            return Ok(Principal::new(Kind::Anyone, "anyone", vec![all]));
        };
        let token = token.ok_or(Refusal::Missing)?;
        let known = Arc::clone(&keeper.known());
        match token.starts_with(tokens::PREFIX) {
            true => known.tokens.find(token, now),
            false => known.keys.verify(token, now, keeper.config.token_default),
        }
    }

    /// Reads the files again if they have changed.
    pub(crate) fn reload(&self) {
        let Authenticator::Tokens(keeper) = self else { return };
        if keeper.changes.happened() {
            match Known::read(&keeper.config) {
                Ok(known) => *keeper.known() = Arc::new(known),
                Err(error) => log::error(&format!("the old tokens stay: {error}")),
            }
        }
    }
}

impl Keeper {
    fn known(&self) -> std::sync::MutexGuard<'_, Arc<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn read(config: &AuthConfig) -> Result<Known, ConfigError> {
        let keys = config.jwt_key_file.as_deref().map(jwt::Keys::read).transpose()?;
        let tokens = config.token_file.as_deref().map(tokens::Tokens::read).transpose()?;
        let (keys, tokens) = (keys.unwrap_or_default(), tokens.unwrap_or_default());
        Ok(Known { keys, tokens })
    }
}

/// The time by which tokens end: those who sign them know no other.
fn now() -> SystemTime {
    SystemTime::now()
}

/// The text of a file of keys or tokens.
fn text_of(path: &Path) -> Result<String, ConfigError> {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| ConfigError(format!("{} cannot be read: {error}", path.display())))
}

#[cfg(test)]
mod tests;
