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
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use monolite::archive::ArchiveToken;
use monolite::{Database, Options};
use monolite_archive::{ErrorKind, Follower, FollowerStats};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use crate::answers::{Body, with_type};
use crate::archives::ArchiveConfig;
use crate::hrana::ProtocolError;

/// What an answer has, or must have.
pub(crate) const TOKEN: HeaderName = HeaderName::from_static("monolite-token");

/// Stands for the token of a write that could not be told.
const UNKNOWN: &str = "unknown";

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
}

impl FollowConfig {
    /// One of the archive at `url`.
    pub fn of(url: &str) -> FollowConfig {
        FollowConfig { url: url.to_owned(), lag_limit_seconds: None }
    }

    /// The same archive, as its primary has it.
    pub(crate) fn archive(&self) -> ArchiveConfig {
        ArchiveConfig { url: self.url.clone(), lag_limit_seconds: None, address: None }
    }

    /// Opens the file at `path`, which follows the archive of `name`. Blocks.
    pub(crate) fn open(
        &self,
        name: Option<&str>,
        options: Options,
        path: &Path,
    ) -> Result<Follower, Box<dyn std::error::Error>> {
        let follower = self.archive().of(name)?.follow(options, path)?;
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
    let at = match address {
        "" => "its primary; its archive does not say where that is".to_owned(),
        address => format!("its primary, {address}"),
    };
    let message = format!("this server is a replica, which only reads; send this to {at}");
    ProtocolError::new("NOT_PRIMARY", message)
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

fn late(token: ArchiveToken, stats: &FollowerStats) -> ProtocolError {
    // What failed is for the operator.
    let why = if stats.last_error.is_some() { "; it cannot follow its archive now" } else { "" };
    let message = format!(
        "this replica has TXID {:016x} and not {token} yet{why}; try again, or read at the primary",
        stats.txid
    );
    ProtocolError::new("TOKEN_LATE", message)
}

/// For a load balancer: whether one of the replicas that are open is fresh enough. One that is not
/// open will be when it is asked.
pub(crate) fn health(all: &[(String, Replica)]) -> Response<Body> {
    let all: Vec<&Replica> = all.iter().map(|(_, replica)| replica).collect();
    let fresh = all.iter().filter(|replica| replica.is_fresh).count();
    let ages: Option<Vec<u64>> = all.iter().map(|replica| replica.stats.age_ms).collect();
    let body = json!({
        "role": "replica",
        "open": all.len(),
        "fresh": fresh,
        "age_ms": ages.map(|ages| ages.into_iter().max()),
        "lag_txids": all.iter().map(|it| it.stats.newest.saturating_sub(it.stats.txid)).max(),
        "is_failing": all.iter().any(|replica| replica.stats.last_error.is_some()),
    });
    with_status(all.is_empty() || fresh > 0, &body)
}

/// For a load balancer: whether writes are taken here, and where else.
pub(crate) fn primary(all: Option<&[(String, Replica)]>) -> Response<Body> {
    let Some(all) = all else { return with_status(true, &json!({ "role": "primary" })) };
    let primary = primary_of(all);
    let primary = (!primary.is_empty()).then_some(primary);
    with_status(false, &json!({ "role": "replica", "primary": primary }))
}

/// Where the primary is, as one of the replicas knows; empty if none does.
pub(crate) fn primary_of(all: &[(String, Replica)]) -> &str {
    let mut all = all.iter().map(|(_, replica)| &*replica.stats.primary);
    all.find(|primary| !primary.is_empty()).unwrap_or_default()
}

fn with_status(is_good: bool, body: &serde_json::Value) -> Response<Body> {
    let status = if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    with_type(status, "application/json", body.to_string())
}

/// The figures of the replicas that are open, as Prometheus reads them; of a primary there are
/// none.
pub(crate) fn prometheus(all: Option<&[(String, Replica)]>) -> String {
    let (name, is) = ("monolite_server_is_primary", u8::from(all.is_none()));
    let mut text =
        format!("# HELP {name} Whether it takes writes\n# TYPE {name} gauge\n{name} {is}\n");
    let all: Vec<_> =
        all.unwrap_or_default().iter().map(|it| (&it.0, figures(&it.1.stats))).collect();
    let names = all.first().map_or_else(Vec::new, |(_, figures)| figures.to_vec());
    for (at, (name, help, _)) in names.into_iter().enumerate() {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let name = format!("monolite_replica_{name}");
        text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (database, figures) in &all {
            if let Some(is) = figures[at].2 {
                text += &format!("{name}{{database=\"{database}\"}} {is}\n");
            }
        }
    }
    text
}

/// Their names, what they are, and what they are now.
fn figures(it: &FollowerStats) -> [(&'static str, &'static str, Option<f64>); 8] {
    let is = |figure: u64| Some(figure as f64);
    let lag_txids = it.newest.saturating_sub(it.txid);
    let age = it.age_ms.map(|age| age as f64 / 1e3);
    [
        ("epoch", "Number of the primary's term; 0 without one", is(it.epoch)),
        ("txid", "Number of what was applied last (TXID)", is(it.txid)),
        ("lag_txids", "Known TXIDs that are not applied", is(lag_txids)),
        ("lag_bytes", "Known bytes of the archive that are not applied", is(it.lag_bytes)),
        ("age_seconds", "Since it had everything that the archive had", age),
        ("applied_files_total", "Files of the archive that were applied", is(it.files)),
        ("copies_total", "Full copies that were put in place", is(it.copies)),
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
