//! `monolite follow`: keeps a file up to date with an archive until it is stopped, and says how far
//! it is.

use crate::archive::options;
use crate::arguments;
use crate::interrupt;
use crate::out::stdout;
use anyhow::{Context as _, Result, bail};
use monolite::{Options, Sharing};
use monolite_archive::{Archive, FollowerStats, Txid};
use sd_notify::NotifyState;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked how far it is.
const LOOK: Duration = Duration::from_millis(100);

/// How often that is said while it goes on.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// What `--json` prints, a line for each.
#[derive(Serialize)]
struct Line<'a> {
    txid: String,
    #[serde(flatten)]
    figures: Figures<'a>,
}

/// All but the TXID, which is as in names of files.
#[derive(Serialize)]
struct Figures<'a> {
    epoch: u64,
    lag_txids: u64,
    lag_bytes: u64,
    lag_ms: u64,
    age_ms: Option<u64>,
    files: u64,
    copies: u64,
    copied_because: Option<&'a str>,
    last_error: Option<&'a str>,
}

/// Follows until the first signal, or until it cannot go on.
pub(crate) fn run(arguments: &arguments::Follow) -> Result<()> {
    let arguments::Follow { archive: archived, file } = arguments;
    let is_stopped = interrupt::flag()?;
    let given = archived.config.as_ref().map(|path| options::read(path, &archived.url));
    let archive = Archive::at_with(&archived.url, &given.transpose()?.unwrap_or_default())?;
    // Other programs are to read it.
    let follower = archive.follow(Options::new().sharing(Sharing::Shared), file)?;
    // Without a service manager, nothing is said.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let (mut said, mut at) = (FollowerStats::default(), Instant::now());
    while !is_stopped.load(Ordering::Relaxed) {
        let stats = follower.stats();
        let is_news = stats.last_error != said.last_error || stats.copies != said.copies;
        if stats.is_over {
            break;
        }
        if is_news || said.txid == 0 || stats.txid != said.txid && at.elapsed() > SAID_EVERY {
            say(&stats, archived.json)?;
            (said, at) = (stats, Instant::now());
        }
        thread::sleep(LOOK);
    }
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    let stats = follower.stats();
    follower.close().context("the file was not closed")?;
    if stats.is_over {
        bail!("{}", stats.last_error.unwrap_or_default());
    }
    say(&stats, archived.json)
}

fn say(stats: &FollowerStats, as_json: bool) -> Result<()> {
    let txid = Txid::new(stats.txid).map_or_else(|| "none".into(), |txid| txid.to_string());
    let lag_txids = stats.newest.saturating_sub(stats.txid);
    if as_json {
        let figures = Figures {
            epoch: stats.epoch,
            lag_txids,
            lag_bytes: stats.lag_bytes,
            lag_ms: stats.lag_ms,
            age_ms: stats.age_ms,
            files: stats.files,
            copies: stats.copies,
            copied_because: stats.copied_because.as_deref(),
            last_error: stats.last_error.as_deref(),
        };
        writeln!(stdout(), "{}", serde_json::to_string(&Line { txid, figures })?)?;
        return Ok(());
    }
    let lag = if stats.last_error.is_some() {
        let age = |ms| format!("it was up to date {:.1?} ago", Duration::from_millis(ms));
        stats.age_ms.map_or_else(|| "not up to date".into(), age)
    } else if stats.lag_ms == 0 {
        "up to date".into()
    } else {
        format!("{lag_txids} TXIDs and {} bytes behind, {} ms", stats.lag_bytes, stats.lag_ms)
    };
    writeln!(stdout(), "TXID {txid} (epoch {}): {lag}", stats.epoch)?;
    if let Some(why) = stats.copied_because.as_ref().filter(|_| stats.copies > 0) {
        writeln!(stdout(), "copies put in place: {}; the last one because {why}", stats.copies)?;
    }
    if let Some(error) = &stats.last_error {
        // A closed standard error leaves no place to report to.
        let _ = writeln!(io::stderr(), "not up to date: {error}");
    }
    Ok(())
}
