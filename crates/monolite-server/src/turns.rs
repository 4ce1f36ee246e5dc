//! Owns whose turn it is: of the servers with one archive one is the primary. The others follow it,
//! and one of them takes over when it is closed or silent.
//!
//! # Algorithm
//! 1. A file that was the last primary's is opened as that; any other one follows.
//! 2. A follower claims the next epoch when the primary's lease has passed. It serves reads.
//! 3. Then work ends as for another process, the file is promoted and opened, and work goes on.
//! 4. A primary that learns of its successor is closed likewise, and opened again, which is 1.
//!
//! # Invariants
//! - A claim is work: it has entered, and ends when the server is about to do something else.
//! - Who has changed the phase from `Serving` changes it back, unless the server stops meanwhile.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use monolite_archive::{Succession, Takeover};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::archives::ArchiveConfig;
use crate::databases::InUse;
use crate::life::Phase;
use crate::replicas::UNCLEAR;
use crate::{Shared, log};

/// How often a primary is asked whether it has a successor, and a file is opened that could not be.
const LOOK: Duration = Duration::from_millis(500);

/// How long after a failure a follower tries again to take over.
const AGAIN: Duration = Duration::from_secs(5);

/// How long what is under way may take when the role changes: reads of a replica, which can be run
/// again, or what a primary acknowledges no more.
const DRAIN: Duration = Duration::from_secs(1);

const REPLICA: &str = "replica";

/// Has the one database be the primary's when it can be, and follow while another one is, until the
/// server stops.
pub(crate) async fn take(shared: Arc<Shared>, config: ArchiveConfig) {
    let (mut told, mut is_unclear) = (None, false);
    loop {
        let Ok(entered) = shared.life.enter(Phase::Stops).await else { return };
        let used = match shared.databases.get(None, Some(entered)).await {
            Ok(used) => used,
            // What else fails is in the log.
            Err(error) => {
                let was_unclear = std::mem::replace(&mut is_unclear, error.code == UNCLEAR);
                if is_unclear && !was_unclear {
                    log::error(&error.message);
                }
                sleep(LOOK).await;
                continue;
            }
        };
        is_unclear = false;
        let stats = used.database().stats();
        let role = if used.follower().is_some() { REPLICA } else { "primary" };
        if told != Some(role) {
            let epoch = epoch_of(&used).await;
            // A primary without a term may have a successor of which its archive has not told it.
            if epoch > 0 || role == REPLICA {
                told = Some(role);
                tell(&config, role, epoch, used.path());
            }
        }
        if used.follower().is_some() {
            match claim(&shared, used).await {
                Ok(Some(succession)) => promote(&shared, succession).await,
                Ok(None) => sleep(LOOK).await,
                Err(error) => {
                    log::error(&format!("no takeover: {error}"));
                    sleep(AGAIN).await;
                }
            }
        } else if stats.archive.is_some_and(|archive| archive.successor.is_some()) {
            drop(used);
            resign(&shared).await;
        } else {
            drop(used);
            sleep(LOOK).await;
        }
    }
}

/// The term, as soon as a follower that was just opened has read it; 0 while the store is away.
async fn epoch_of(used: &InUse) -> u64 {
    let until = Instant::now() + LOOK;
    loop {
        let epoch = match used.follower() {
            Some(follower) => follower.stats().epoch,
            None => used.database().stats().archive.map_or(0, |archive| archive.epoch),
        };
        if epoch > 0 || Instant::now() >= until {
            return epoch;
        }
        sleep(LOOK / 50).await;
    }
}

/// Waits until the follower may take over, and takes the next epoch. `None` when the server does
/// something else.
async fn claim(shared: &Arc<Shared>, used: InUse) -> monolite::Result<Option<Succession>> {
    let shared = Arc::clone(shared);
    let claims = spawn_blocking(move || {
        let goes_on = || shared.life.phase() == Phase::Serving;
        let Some(follower) = used.follower() else { return Ok(None) };
        follower.claim(Takeover::WhenVacant, &goes_on)
    });
    claims.await.unwrap_or(Ok(None))
}

/// Has the file be the primary's, and opens it.
async fn promote(shared: &Arc<Shared>, succession: Succession) {
    if !shared.life.change(Phase::Serving, Phase::HandsOver) {
        return;
    }
    let ended = shared.end_work_within(DRAIN).await;
    // Another process may have the file now. It claims when the lease of this claim has passed.
    if ended.is_none()
        && let Some(follower) = shared.databases.take_follower().await
    {
        let promoted = spawn_blocking(move || follower.promote(succession)).await;
        if let Ok(Err(error)) = promoted {
            log::error(&format!("no takeover, the file follows: {error}"));
        }
        // What fails is in the log, and tried again.
        drop(shared.databases.get(None, None).await);
    }
    drop(ended);
    shared.life.change(Phase::HandsOver, Phase::Serving);
}

/// Closes the file, which has a successor.
async fn resign(shared: &Arc<Shared>) {
    if shared.life.change(Phase::Serving, Phase::HandsOver) {
        let ended = shared.end_work_within(DRAIN).await;
        shared.databases.close_all().await;
        drop(ended);
        shared.life.change(Phase::HandsOver, Phase::Serving);
    }
}

/// Tells the operator, and what the configuration names, of a new role.
fn tell(config: &ArchiveConfig, role: &'static str, epoch: u64, path: &Path) {
    log::error(&format!("{}: a {role} from now on (epoch {epoch})", path.display()));
    let Some(exec) = config.exec.clone() else { return };
    let mut command = Command::new("sh");
    command.args(["-c", &exec]).env("MONOLITE_ROLE", role).env("MONOLITE_FILE", path);
    command.env("MONOLITE_EPOCH", epoch.to_string());
    command.env("MONOLITE_ADDRESS", config.address.as_deref().unwrap_or_default());
    spawn_blocking(move || match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => log::error(&format!("{exec:?} has failed: {status}")),
        Err(error) => log::error(&format!("{exec:?} cannot be run: {error}")),
    });
}
