//! Owns which archive a database has, and whether that has the history of another one.

use std::num::{NonZeroU8, NonZeroU32};
use std::path::{Path, PathBuf};
use std::time::Duration;

use monolite::Durability;
use monolite_archive::{Archive, Error, ErrorKind};
use serde::Deserialize;

use crate::hrana::ProtocolError;

/// The lease where servers take turns, if none was said.
const LEASE: Duration = Duration::from_secs(10);

/// Where the databases are archived.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ArchiveConfig {
    /// The address, as `monolite archive` takes it. Of several databases each has its own archive
    /// below it, at `URL/NAME`.
    pub url: String,
    /// How many seconds a commit may wait for the archive before writes are refused and the health
    /// is bad. Default: writes are never refused, and the health is bad after a minute.
    pub lag_limit_seconds: Option<NonZeroU32>,
    /// Where clients find this server: replicas say it to those who write. At most 1,024 bytes.
    /// Default: the name of the host, and the number of the process.
    pub address: Option<String>,
    /// For how many seconds this server may be silent before a follower takes over by itself, 1 to
    /// 3,600. Default: for ever.
    pub lease_seconds: Option<NonZeroU32>,
    /// Whether a write is answered once it is archived. Default: once it is on this disk.
    #[serde(default)]
    pub archived_writes: bool,
    /// On the disks of how many other servers a write is before it is answered, at least, unless it
    /// is archived before ([`Durability::Replicated`]). Needs `stream_listen`.
    pub replicated_writes: Option<NonZeroU8>,
    /// Whether servers with this archive take turns: one is the primary, and the others follow it
    /// until they take over. For one file; the lease is 10 s if none is said.
    #[serde(default)]
    pub takeover: bool,
    /// Run with `sh -c` when the server has begun to be the primary or a replica.
    /// `MONOLITE_ROLE`, `MONOLITE_EPOCH`, `MONOLITE_ADDRESS` and `MONOLITE_FILE` are in its
    /// environment.
    pub exec: Option<String>,
    /// Where this server, as the primary, listens for followers that stream, as `10.0.0.1:7001`:
    /// in a private network, as nothing is encrypted. For one file. Default: nowhere.
    pub stream_listen: Option<String>,
    /// A file with the secret of all who stream, 16 random bytes or more. A server that follows
    /// streams from where the primary listens.
    pub stream_secret_file: Option<PathBuf>,
}

impl ArchiveConfig {
    /// One of the archive at `url`.
    pub fn of_url(url: &str) -> ArchiveConfig {
        ArchiveConfig {
            url: url.to_owned(),
            lag_limit_seconds: None,
            address: None,
            lease_seconds: None,
            archived_writes: false,
            replicated_writes: None,
            takeover: false,
            exec: None,
            stream_listen: None,
            stream_secret_file: None,
        }
    }

    /// The archive of the database `name`; without a name, that of the only one.
    pub(crate) fn of(&self, name: Option<&str>) -> Result<Archive, Error> {
        let mut archive = Archive::at(&self.url_of(name))?;
        if let Some(address) = &self.address {
            archive = archive.address(address);
        }
        if let Some(limit) = self.lag_limit() {
            archive = archive.lag_limit(limit);
        }
        if let Some(file) = &self.stream_secret_file {
            let unread = |error| {
                let message = format!("stream_secret_file = {}: {error}", file.display());
                Error::new(ErrorKind::Invalid, message)
            };
            let secret = std::fs::read(file).map_err(unread)?;
            let secret = secret.trim_ascii_end();
            if let Some(address) = &self.stream_listen {
                archive = archive.stream_to(address, secret);
            }
            archive = archive.stream_from(None, secret);
            archive.check_stream()?;
        }
        let default = self.takeover.then_some(LEASE);
        Ok(archive.lease(self.lease_seconds.map(seconds).or(default)))
    }

    pub(crate) fn url_of(&self, name: Option<&str>) -> String {
        let Some(name) = name else { return self.url.clone() };
        // In a path a question mark is one of its signs.
        let is_bucket = self.url.contains("://") && !self.url.starts_with("file://");
        let options = self.url.find('?').filter(|_| is_bucket).unwrap_or(self.url.len());
        let (place, options) = self.url.split_at(options);
        format!("{}/{name}{options}", place.trim_end_matches('/'))
    }

    /// The directory that has all of them, if they are in no bucket.
    pub(crate) fn directory(&self) -> Option<&Path> {
        let path = self.url.strip_prefix("file://").unwrap_or(&self.url);
        (!path.contains("://")).then_some(Path::new(path))
    }

    /// What the answer to a write means.
    pub(crate) fn durability(&self) -> Durability {
        match self.replicated_writes {
            Some(count) => Durability::Replicated(count.get()),
            None if self.archived_writes => Durability::Archived,
            None => Durability::Synced,
        }
    }

    pub(crate) fn lag_limit(&self) -> Option<Duration> {
        self.lag_limit_seconds.map(seconds)
    }

    /// Sees that the archive of `name`, a database that begins, has no history of another one: that
    /// stays, and the new one's would not be taken.
    pub(crate) fn must_be_free(&self, name: Option<&str>) -> Result<(), ProtocolError> {
        let url = self.url_of(name);
        let (code, message) = match self.of(name).and_then(|archive| archive.leader()) {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => (
                "ARCHIVE_EXISTS",
                format!(
                    "{url} has the history of an earlier database; bring that back by `monolite \
                 restore` and `monolite archive adopt`, or move the archive away"
                ),
            ),
            Err(error) => (
                "ARCHIVE_NOT_READ",
                format!(
                    "it is not known whether {url} has the history of an earlier database: {error}"
                ),
            ),
        };
        Err(ProtocolError::new(code, message))
    }
}

fn seconds(seconds: NonZeroU32) -> Duration {
    Duration::from_secs(seconds.get().into())
}

#[cfg(test)]
mod tests {
    use super::ArchiveConfig;

    #[test]
    fn each_database_has_a_place_of_its_own() {
        for (url, expected) in [
            ("file:///var/archive", "file:///var/archive/shop"),
            ("/var/what?/", "/var/what?/shop"),
            ("s3://bucket", "s3://bucket/shop"),
            ("s3://bucket/all/?region=a/b", "s3://bucket/all/shop?region=a/b"),
        ] {
            let config = ArchiveConfig::of_url(url);
            assert_eq!(config.url_of(Some("shop")), expected);
            assert_eq!(config.url_of(None), url);
        }
    }
}
