//! Owns what is particular to databases that follow a primary's archive: who may write instead, how
//! fresh they are, and the tokens by which clients see their own writes.
//!
//! # Format
//! The header `Monolite-Token` has an [`ArchiveToken`] as text. A primary sends it with the answer
//! to a request that may have written; `unknown` stands for one that it could not tell.
//!
//! # Algorithm
//! A replica answers a request with the header when it has all that the token names. Its own record
//! of history says so without a request to the store, also that a token is yet to come. Only where
//! it does not is the leader record asked for, [`ASKING`] at once, so that wrong tokens hold up no
//! other request.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use monolite::archive::ArchiveToken;
use monolite::{Database, Options};
use monolite_archive::{Archive, Epoch, ErrorKind, Follower, FollowerStats};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use crate::archives::ArchiveConfig;
use crate::hrana::ProtocolError;

/// What an answer has, or must have.
pub(crate) const TOKEN: HeaderName = HeaderName::from_static("monolite-token");

/// Stands for the token of a write that could not be told.
const UNKNOWN: &str = "unknown";

/// The code of [`unclear`].
pub(crate) const UNCLEAR: &str = "TAKEOVER_UNDER_WAY";

/// How long a request waits for its token: as long as a read of the library.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether it has come: thousands may wait.
const LOOK: Duration = Duration::from_millis(50);

/// How often the leader record is asked for a token.
const ASK: Duration = Duration::from_secs(1);

/// Requests for leader records at once.
pub(crate) const ASKING: usize = 8;

/// How long an opening waits until it has everything, or the store fails: a file that was closed
/// for long has an old state.
const CATCHING_UP: Duration = Duration::from_secs(5);

/// How far it may be behind before the health is bad, if no limit was set.
const LAG_LIMIT: Duration = Duration::from_secs(60);

/// Which archive is followed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FollowConfig {
    /// The address of the primary's archive. Of several databases each has its own below it, at
    /// `URL/NAME`.
    pub url: String,
    /// How many seconds a database may be behind before the health is bad. Default: a minute.
    pub lag_limit_seconds: Option<NonZeroU32>,
    /// A file with the secret of a primary that listens ([`ArchiveConfig::stream_listen`]), to
    /// stream from there. Default: it does not stream.
    pub stream_secret_file: Option<PathBuf>,
}

impl FollowConfig {
    /// One of the archive at `url`.
    pub fn of(url: &str) -> FollowConfig {
        let url = url.to_owned();
        FollowConfig { url, lag_limit_seconds: None, stream_secret_file: None }
    }

    /// The same archive, as its primary has it.
    pub(crate) fn archive(&self) -> ArchiveConfig {
        ArchiveConfig {
            stream_secret_file: self.stream_secret_file.clone(),
            ..ArchiveConfig::of_url(&self.url)
        }
    }

    /// Opens the file at `path`, which follows the archive of `name`. Blocks.
    pub(crate) fn open(
        &self,
        name: Option<&str>,
        options: Options,
        path: &Path,
    ) -> Result<Follower, Box<dyn std::error::Error>> {
        let follower = followed(&self.archive().of(name)?, options, path)?;
        let began = std::time::Instant::now();
        let is_behind = |stats: FollowerStats| stats.age_ms.is_none() && stats.last_error.is_none();
        while is_behind(follower.stats()) && began.elapsed() < CATCHING_UP {
            std::thread::sleep(LOOK);
        }
        Ok(follower)
    }

    fn is_fresh(&self, stats: &FollowerStats) -> bool {
        let limit = self.lag_limit_seconds.map(|it| Duration::from_secs(it.get().into()));
        let limit = limit.unwrap_or(LAG_LIMIT);
        !stats.is_over && stats.age_ms.is_some_and(|age| Duration::from_millis(age) <= limit)
    }
}

/// The file at `path` as a follower of `archive`.
pub(crate) fn followed(
    archive: &Archive,
    options: Options,
    path: &Path,
) -> monolite::Result<Follower> {
    let follower = archive.follow(options, path)?;
    tell_orphan(&follower, path);
    Ok(follower)
}

/// The refusal of a database that another server is just taking over: tried again, it is open.
pub(crate) fn unclear(epoch: Epoch) -> ProtocolError {
    let message = format!(
        "epoch {epoch} has taken over and has not said yet where it begins; this server follows \
         once it has: try again"
    );
    ProtocolError::new(UNCLEAR, message)
}

/// What a load balancer is told while the file is not open and takes its turn with others.
pub(crate) fn not_open() -> ProtocolError {
    let message = "the database is not open: another server is taking over, or this one cannot \
                   open it, and its log says why; try again";
    ProtocolError::new(UNCLEAR, message)
}

/// Tells the operator what the file at `path` alone had when it was a primary's.
fn tell_orphan(follower: &Follower, path: &Path) {
    if let Some(orphan) = follower.stats().orphan {
        let (orphan, path) = (orphan.display(), path.display());
        crate::log::error(&format!(
            "{orphan} has what {path} had and the archive had not; it follows now"
        ));
    }
}

/// How a replica is.
#[derive(Serialize)]
pub(crate) struct Replica {
    pub(crate) is_fresh: bool,
    #[serde(flatten)]
    pub(crate) stats: FollowerStats,
}

impl Replica {
    pub(crate) fn of(follower: &Follower, config: &FollowConfig) -> Replica {
        let stats = follower.stats();
        Replica { is_fresh: config.is_fresh(&stats), stats }
    }
}

/// The refusal of what only the primary does, which is at `address`; empty where that is not known.
pub(crate) fn not_primary(address: &str) -> ProtocolError {
    let at = at(address);
    let message = format!("this server is a replica, which only reads; send this to {at}");
    ProtocolError::new("NOT_PRIMARY", message)
}

fn at(address: &str) -> String {
    match address {
        "" => "its primary; its archive does not say where that is".to_owned(),
        address => format!("its primary, {address}"),
    }
}

/// The header of the answer to a request that may have written to `db`, which has an archive: a
/// moment of that which has all that was acknowledged.
pub(crate) async fn written(db: Database) -> HeaderValue {
    // It may wait for the disk; never for an upload.
    let token = tokio::task::spawn_blocking(move || db.archive_token()).await;
    let token = token.ok().and_then(Result::ok);
    let token = token.and_then(|token| HeaderValue::from_str(&token.to_string()).ok());
    token.unwrap_or_else(unknown)
}

/// The header of a write whose token cannot be told.
pub(crate) fn unknown() -> HeaderValue {
    HeaderValue::from_static(UNKNOWN)
}

/// Waits until `follower` has what `token` names, with a place of `asking` for each request.
pub(crate) async fn wait_for(
    follower: &Follower,
    token: &HeaderValue,
    asking: &Arc<Semaphore>,
) -> Result<(), ProtocolError> {
    let token = read(token)?;
    let until = Instant::now() + PATIENCE;
    let mut asks_at = Instant::now();
    loop {
        match follower.has(token) {
            Some(true) => return Ok(()),
            Some(false) => {}
            None if Instant::now() < asks_at => {}
            None => {
                asks_at = Instant::now() + ASK;
                if asked(follower, token, asking, until).await? {
                    return Ok(());
                }
            }
        }
        let stats = follower.stats();
        if stats.is_over || Instant::now() >= until {
            return Err(late(token, &stats));
        }
        sleep(LOOK).await;
    }
}

/// Whether `follower` has what `token` names, by the leader record as it is now; not if the store
/// does not answer.
async fn asked(
    follower: &Follower,
    token: ArchiveToken,
    asking: &Arc<Semaphore>,
    until: Instant,
) -> Result<bool, ProtocolError> {
    let place = timeout_at(until, Arc::clone(asking).acquire_owned()).await;
    let Ok(Ok(place)) = place else { return Ok(false) };
    let look = follower.look_for(token);
    let looked = tokio::task::spawn_blocking(move || {
        let looked = look();
        drop(place);
        looked
    });
    let Ok(looked) = looked.await else { return Ok(false) };
    looked.or_else(|error| match error.kind() {
        ErrorKind::NotFound => Err(ProtocolError::new("TOKEN_LOST", error.to_string())),
        ErrorKind::Invalid => Err(ProtocolError::new("TOKEN_INVALID", error.to_string())),
        _ => Ok(false),
    })
}

fn read(token: &HeaderValue) -> Result<ArchiveToken, ProtocolError> {
    let text = token.to_str().unwrap_or_default();
    let invalid = |message: String| ProtocolError::new("TOKEN_INVALID", message);
    if text == UNKNOWN {
        let message = "the primary could not tell where the write is in its archive; read at the \
                       primary until it sends a token";
        return Err(invalid(message.into()));
    }
    text.parse().map_err(|error: monolite::Error| invalid(format!("Monolite-Token: {error}")))
}

/// Refuses a `token` of a later primary than `db` is, which has what that names, and of an earlier
/// one that may have lost it.
pub(crate) fn must_be_of(db: &Database, token: &HeaderValue) -> Result<(), ProtocolError> {
    let Some(archive) = db.stats().archive else { return Ok(()) };
    let token = match (read(token), &archive.successor) {
        (Ok(token), _) => token,
        (Err(_), None) => return Ok(()),
        (Err(error), Some(_)) => return Err(error),
    };
    if archive.epoch == 0 || token.epoch <= archive.epoch {
        // Before its term, a later primary has what this one lacks.
        let code = if archive.epoch == 0 { "TOKEN_LATE" } else { "TOKEN_LOST" };
        let lost = db.may_lack(token).map(|why| ProtocolError::new(code, why));
        return lost.map_or(Ok(()), Err);
    }
    let message = format!(
        "this server was the primary until epoch {}, and {token} is of a later one; read at {}",
        archive.epoch,
        at(archive.successor.as_deref().unwrap_or_default())
    );
    Err(ProtocolError::new("TOKEN_LATE", message))
}

fn late(token: ArchiveToken, stats: &FollowerStats) -> ProtocolError {
    // What failed is for the operator.
    let why = if stats.last_error.is_some() { "; it cannot follow its archive now" } else { "" };
    let message = format!(
        "this replica has TXID {:016x} and not {token} yet{why}; try again, or read at the primary",
        stats.txid
    );
    ProtocolError::new("TOKEN_LATE", message)
}

/// Their names, what they are, and what they are now.
pub(crate) fn figures(it: &FollowerStats) -> [(&'static str, &'static str, Option<f64>); 11] {
    let is = |figure: u64| Some(figure as f64);
    let lag_txids = it.newest.saturating_sub(it.txid);
    let age = it.age_ms.map(|age| age as f64 / 1e3);
    let barred = it.barred.is_some().into();
    [
        ("epoch", "Number of the primary's term; 0 without one", is(it.epoch)),
        ("txid", "Number of what was applied last (TXID)", is(it.txid)),
        ("lag_txids", "Known TXIDs that are not applied", is(lag_txids)),
        ("lag_bytes", "Known bytes of the archive that are not applied", is(it.lag_bytes)),
        ("age_seconds", "Since it had everything that the archive had", age),
        ("applied_files_total", "Files of the archive that were applied", is(it.files)),
        ("copies_total", "Full copies that were put in place", is(it.copies)),
        ("is_streaming", "Whether it streams from the primary now", is(it.is_streaming.into())),
        ("streamed_parts_total", "Parts of streams that were applied", is(it.parts)),
        ("is_barred", "Whether it may not or cannot take over", is(barred)),
        ("is_failing", "Whether it does not follow now", is(it.last_error.is_some().into())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::databases::{Data, Databases};

    #[tokio::test(start_paused = true)]
    async fn token_that_does_not_come_is_late() {
        let directory = tempfile::tempdir().expect("a directory");
        let url = directory.path().join("archive").display().to_string();
        let archive = monolite_archive::Archive::at(&url).expect("it is an address");
        let options = Options::new().archive(archive);
        let db = options.open(directory.path().join("one.db")).expect("it opens");
        db.read_archived(|_| Ok(())).wait().expect("it is archived");
        let token = db.archive_token().expect("it has one");
        let data = Data::File(directory.path().join("copy.db"));
        let databases = Databases::new(data, None).following(Some(FollowConfig::of(&url)));
        let replica = databases.get(None, None).await.expect("it opens");
        let follower = replica.follower().expect("it follows");
        let wait = async |token: ArchiveToken| {
            let header = HeaderValue::from_str(&token.to_string()).expect("it is ASCII");
            wait_for(follower, &header, &databases.asking).await
        };
        wait(token).await.expect("it has it");
        let began = Instant::now();
        let late = wait(ArchiveToken { txid: token.txid + 1_000, ..token }).await;
        assert_eq!(late.expect_err("it does not come").code, "TOKEN_LATE");
        assert!((PATIENCE..2 * PATIENCE).contains(&began.elapsed()));
        drop(replica);
        databases.close_all().await;
        db.close().expect("it closes");
    }
}
