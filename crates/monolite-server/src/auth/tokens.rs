//! Owns tokens of the server's own, for those who have no one to sign theirs.
//!
//! # Format
//! A token is [`PREFIX`] and 32 random bytes in base64url. The file, of TOML, has its SHA-256:
//!
//! ```toml
//! [[token]]
//! name = "checkout"
//! sha256 = "…"
//! right = "rw"
//! databases = ["shop"] # all of them, without it
//! expires = 1800000000 # seconds since 1970; never, without it
//! ```

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

use super::{Grant, Kind, Principal, Refusal, Right, now, text_of};
use crate::files::ConfigError;

pub(super) const PREFIX: &str = "mono_";

/// The content of a file.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tokens {
    #[serde(default, rename = "token")]
    entries: Vec<Entry>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    #[serde(default)]
    right: Right,
    #[serde(skip_serializing_if = "Option::is_none")]
    databases: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

fn hash(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, token.as_bytes()))
}

impl Tokens {
    pub(super) fn read(path: &Path) -> Result<Tokens, ConfigError> {
        Tokens::of(&text_of(path)?, path)
    }

    fn of(text: &str, path: &Path) -> Result<Tokens, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError(format!("{}: {error}", path.display())))
    }

    /// Whose token it is. Only hashes are compared: how long that takes tells of a hash, from which
    /// no token can be made.
    pub(super) fn find(&self, token: &str, now: SystemTime) -> Result<Principal, Refusal> {
        let hash = hash(token);
        let entry = self.entries.iter().find(|entry| entry.sha256 == hash);
        let entry = entry.ok_or(Refusal::Invalid)?;
        let expires = entry.expires.map(Duration::from_secs);
        let expires = expires.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time));
        if expires.is_some_and(|expires| expires < now) {
            return Err(Refusal::Expired);
        }
        let grant = Grant { right: entry.right, databases: entry.databases.clone() };
        Ok(Principal::new(Kind::Issued, &entry.name, vec![grant]))
    }
}

/// Makes a token, and adds it to `file`, which is created if it is not there. The file keeps what
/// recognises the token, and not the token itself: it is returned, and shown nowhere else. The file
/// keeps its comments, owner and mode. Calls at the same time take turns, also those of processes.
///
/// `databases` are those that it is for, or `None` for all. It ends after the time `lasts`, by the
/// clock of the wall, or never. A server that has the file takes notice within some seconds.
///
/// # Errors
/// When the name is in use, when the file is wrong, or cannot be read or written.
pub fn issue_token(
    file: &Path,
    name: &str,
    right: Right,
    databases: Option<Vec<String>>,
    lasts: Option<Duration>,
) -> Result<String, ConfigError> {
    let shown = file.display();
    let wrong = |error: io::Error| ConfigError(format!("{shown}: {error}"));
    let held = hold(file).map_err(wrong)?;
    let mut text = text_of(file)?;
    if Tokens::of(&text, file)?.entries.iter().any(|entry| entry.name == name) {
        let message =
            format!("{shown} has a token {name:?}; take its entry out, or choose another");
        return Err(ConfigError(message));
    }
    let mut random = [0; 32];
    SystemRandom::new().fill(&mut random).expect("the system gives random numbers");
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
    let (name, sha256) = (name.to_owned(), hash(&token));
    let end = lasts.and_then(|lasts| now().checked_add(lasts));
    let end = end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok());
    let expires = end.map(|end| end.as_secs());
    let added = Tokens { entries: vec![Entry { name, sha256, right, databases, expires }] };
    if !text.is_empty() {
        text += if text.ends_with('\n') { "\n" } else { "\n\n" };
    }
    text += &toml::to_string(&added).expect("an entry is TOML");
    // Whatever is in the file, the server must be able to read it with the new entry.
    Tokens::of(&text, file)?;
    held.metadata().and_then(|old| replace(file, &old, &text)).map_err(wrong)?;
    Ok(token)
}

/// The file, locked, and created for its owner alone if it is not there.
fn hold(file: &Path) -> io::Result<File> {
    loop {
        let mut options = OpenOptions::new();
        let held = options.read(true).append(true).create(true).mode(0o600).open(file)?;
        held.lock()?;
        // Who had the lock before has put another file in its place.
        if fs::metadata(file).is_ok_and(|now| held.metadata().is_ok_and(|it| it.ino() == now.ino()))
        {
            return Ok(held);
        }
    }
}

/// Whole or not at all, and with the owner and the mode of `old`: the server may be another user.
fn replace(file: &Path, old: &Metadata, text: &str) -> io::Result<()> {
    let mut beside = file.to_owned().into_os_string();
    beside.push(".new");
    let mut options = OpenOptions::new();
    let mut new = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    // Also where a run that was cut off has left one.
    fchown(&new, Some(old.uid()), Some(old.gid()))?;
    new.set_permissions(old.permissions())?;
    new.write_all(text.as_bytes())?;
    new.sync_all()?;
    fs::rename(&beside, file)
}
