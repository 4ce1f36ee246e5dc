//! Turns: of the ledgers with one archive and a lease one is the primary. The others follow it and
//! serve reads, until one of them takes over.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use monolite::{Database, ErrorKind, Options};
use monolite_archive::{Archive, Takeover};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How often the primary looks whether another ledger has taken over.
const LOOK: Duration = Duration::from_millis(100);

/// How long reads that are under way may take when this ledger takes over.
const DRAIN: Duration = Duration::from_secs(1);

/// Serves reads while another ledger is the primary. Returns when the file is the primary's, which
/// [`monolite::Options::open`] goes on with, or after a stop.
pub(crate) async fn stand_by(
    archive: Archive,
    path: PathBuf,
    listener: &TcpListener,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let shown = path.display().to_string();
    let following = spawn_blocking(move || {
        if archive.leader()?.is_none() {
            return anyhow::Ok(None);
        }
        match archive.follow(Options::new(), path) {
            // It is the file of the primary, which was this ledger.
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
            followed => Ok(Some(followed?)),
        }
    });
    let following = tokio::select! {
        following = following => following?,
        // The thread that restores the file cannot be stopped.
        () = crate::stopped(stop.clone()) => return Ok(()),
    };
    let following = following.with_context(|| format!("{shown} cannot follow"))?;
    let Some(follower) = following else { return Ok(()) };
    if let Some(orphan) = follower.stats().orphan {
        eprintln!("ledger: {} has what {shown} alone had; it follows now", orphan.display());
    }
    let db = follower.database().with_error();
    let (primary, told) = watch::channel(follower.stats().primary);
    let claiming = spawn_blocking(move || {
        let claimed = follower.claim(Takeover::WhenVacant, &|| {
            primary.send_replace(follower.stats().primary);
            !*stop.borrow()
        });
        // It is over for those that were told.
        drop(primary);
        (follower, claimed)
    });
    let mut is_over = told.clone();
    let is_over = async move { while is_over.changed().await.is_ok() {} };
    crate::serve(listener, ledger::standby(db, told), is_over, DRAIN).await?;
    let (follower, claimed) = claiming.await?;
    let promoting = spawn_blocking(move || match claimed? {
        Some(succession) => follower.promote(succession),
        None => follower.close(),
    });
    promoting.await?.with_context(|| format!("{shown} does not take over, and follows on"))
}

/// Ends when another ledger is the primary.
pub(crate) async fn is_replaced(db: Database) {
    while successor(&db).is_none() {
        sleep(LOOK).await;
    }
}

/// Where the primary is that has taken over.
pub(crate) fn successor(db: &Database) -> Option<String> {
    db.stats().archive?.successor
}
