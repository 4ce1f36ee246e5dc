//! `monolite follow`: keeps a file up to date with an archive until it is stopped or has taken over
//! from the primary, and says how far it is. `monolite promote`: takes over because an operator
//! says so.

use crate::archive::options;
use crate::arguments;
use crate::interrupt;
use crate::json;
use crate::out::stdout;
use anyhow::{Context as _, Result, bail, ensure};
use monolite::{Options, Sharing};
use monolite_archive::internals::{Turn, turn};
use monolite_archive::{Archive, Follower, FollowerStats, State, Succession, Takeover, Txid};
use sd_notify::NotifyState;
use serde::Serialize;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
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
    is_streaming: bool,
    replica: Option<&'a str>,
    barred: Option<&'a str>,
    parts: u64,
    stream_error: Option<&'a str>,
    last_error: Option<&'a str>,
}

/// Says how far a follower is.
struct Reporter<'a> {
    follower: &'a Follower,
    as_json: bool,
    said: FollowerStats,
    at: Instant,
    failed: Option<anyhow::Error>,
}

impl Reporter<'_> {
    /// Says what is new; whether it follows on.
    fn look(&mut self) -> bool {
        let stats = self.follower.stats();
        let said = &self.said;
        let is_news = stats.last_error != said.last_error
            || stats.copies != said.copies
            || (&stats.barred, &stats.replica) != (&said.barred, &said.replica)
            || stats.stream_error != said.stream_error;
        let is_due = stats.txid != said.txid && self.at.elapsed() > SAID_EVERY;
        // Before it has looked, it does not know how far it is.
        let is_first = said.txid == 0 && stats.age_ms.is_some();
        if !stats.is_over && (is_news || is_first || is_due) {
            self.failed = say(&stats, self.as_json).err();
            (self.said, self.at) = (stats, Instant::now());
            return self.failed.is_none();
        }
        !stats.is_over
    }
}

/// Follows until the first signal, a takeover, or until it cannot go on.
pub(crate) fn run(arguments: &arguments::Follow) -> Result<()> {
    let arguments::Follow { archive: archived, file, takeover, .. } = arguments;
    let is_stopped = interrupt::flag()?;
    let mut archive = options::open(archived)?;
    if *takeover {
        archive = archive.lease(Some(arguments.lease));
    }
    if let Some(address) = &arguments.address {
        archive = archive.address(address);
    }
    if let Some(file) = &arguments.stream {
        let secret = fs::read(file).with_context(|| format!("read {}", file.display()))?;
        archive = archive.stream_from(None, secret.trim_ascii_end());
    }
    // Other programs are to read it, and what they could write would cost a copy at a takeover.
    let sharing = if *takeover { Sharing::Exclusive } else { Sharing::Shared };
    let follower = archive.follow(Options::new().sharing(sharing), file)?;
    tell_orphan(&follower, file)?;
    // Without a service manager, nothing is said.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let (said, at, as_json) = (FollowerStats::default(), Instant::now(), archived.json);
    let reporter = Reporter { follower: &follower, as_json, said, at, failed: None };
    let reporter = RefCell::new(reporter);
    let goes_on = || reporter.borrow_mut().look() && !is_stopped.load(Ordering::Relaxed);
    let mut claimed = None;
    if *takeover {
        claimed = follower.claim(Takeover::WhenVacant, &goes_on)?;
    } else {
        while goes_on() {
            thread::sleep(LOOK);
        }
    }
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    if let Some(error) = reporter.into_inner().failed {
        return Err(error);
    }
    if let Some(claimed) = claimed {
        let epoch = lead(follower, claimed, archived, file)?;
        return arguments.exec.as_ref().map_or(Ok(()), |exec| execute(exec, arguments, epoch));
    }
    let stats = follower.stats();
    follower.close().context("the file was not closed")?;
    if stats.is_over {
        bail!("{}", stats.last_error.unwrap_or_default());
    }
    say(&stats, archived.json)
}

/// Says where the pages are that the file had, if it has been set back.
fn tell_orphan(follower: &Follower, file: &Path) -> Result<()> {
    let Some(orphan) = follower.stats().orphan else { return Ok(()) };
    let (orphan, file) = (orphan.display(), file.display());
    Ok(writeln!(
        io::stderr(),
        "{orphan} has what {file} had and the archive had not; it follows now"
    )?)
}

/// Has a file be the primary's, because an operator says so.
pub(crate) fn promote(arguments: &arguments::Promote) -> Result<()> {
    let arguments::Promote { archive: archived, file, address, lose_replicated } = arguments;
    let is_stopped = interrupt::flag()?;
    let mut archive = options::open(archived)?;
    if let Some(address) = address {
        archive = archive.address(address);
    }
    if turn(&archive, file)? == Turn::Leads {
        if *lose_replicated {
            return keep(archive, archived, file);
        }
        // As an earlier run has left it: its program has not opened it yet.
        let taken = archive.leader()?.filter(|record| record.state == State::Taking);
        if let Some(record) = taken {
            return promoted(archived, file, record.epoch.0);
        }
    }
    let follower = archive.follow(Options::new(), file)?;
    tell_orphan(&follower, file)?;
    let said = RefCell::new(None);
    let goes_on = || {
        let barred = follower.stats().barred.filter(|_| !lose_replicated);
        if let Some(why) = barred.as_ref().filter(|_| *said.borrow() != barred) {
            let _ = writeln!(io::stderr(), "{why}");
            said.replace(barred);
        }
        !is_stopped.load(Ordering::Relaxed)
    };
    let when = if *lose_replicated { Takeover::Forced } else { Takeover::Now };
    let Some(claimed) = follower.claim(when, &goes_on)? else {
        bail!("stopped; a primary that was there may have been fenced: the same command goes on");
    };
    lead(follower, claimed, archived, file).map(drop)
}

/// Has the primary's own file go on with what it has, which may lack writes that replicas had.
fn keep(archive: Archive, archived: &arguments::Archived, file: &Path) -> Result<()> {
    let options = Options::new().must_exist().archive(archive.take_over(true));
    let db = options.open(file)?;
    let epoch = db.stats().archive.map_or(0, |archive| archive.epoch);
    db.close()?;
    promoted(archived, file, epoch)
}

/// Says that the file is the primary's; the epoch.
fn lead(
    follower: Follower,
    claimed: Succession,
    archived: &arguments::Archived,
    file: &Path,
) -> Result<u64> {
    let (epoch, path) = (claimed.epoch(), json::name(file));
    follower.promote(claimed).with_context(|| {
        format!(
            "{path} follows as before, and the old primary is fenced: run the same command again, \
             or promote another follower"
        )
    })?;
    promoted(archived, file, epoch)?;
    Ok(epoch)
}

fn promoted(archived: &arguments::Archived, file: &Path, epoch: u64) -> Result<()> {
    let file = json::name(file);
    if archived.json {
        return json::print(&mut stdout(), &Promoted { url: &archived.url, file, epoch });
    }
    writeln!(
        stdout(),
        "{file}: the primary's from now on (epoch {epoch}); it goes on when its program opens it \
         with the archive"
    )?;
    Ok(())
}

/// What `promote --json` prints, and `follow --takeover --json` at its end.
#[derive(Serialize)]
struct Promoted<'a> {
    url: &'a str,
    file: Cow<'a, str>,
    epoch: u64,
}

fn execute(exec: &str, arguments: &arguments::Follow, epoch: u64) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", exec]).env("MONOLITE_ROLE", "primary");
    command.env("MONOLITE_EPOCH", epoch.to_string()).env("MONOLITE_FILE", &arguments.file);
    command.env("MONOLITE_ADDRESS", arguments.address.as_deref().unwrap_or_default());
    let status = command.status().with_context(|| format!("{exec:?} cannot be run"))?;
    ensure!(status.success(), "{exec:?} has failed after the takeover: {status}");
    Ok(())
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
            is_streaming: stats.is_streaming,
            replica: stats.replica.as_deref(),
            barred: stats.barred.as_deref(),
            parts: stats.parts,
            stream_error: stats.stream_error.as_deref(),
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
    let replica = stats.replica.as_ref().map_or_else(String::new, |it| format!(", replica {it}"));
    writeln!(stdout(), "TXID {txid} (epoch {}{replica}): {lag}", stats.epoch)?;
    if let Some(why) = stats.copied_because.as_ref().filter(|_| stats.copies > 0) {
        writeln!(stdout(), "copies put in place: {}; the last one because {why}", stats.copies)?;
    }
    if let Some(error) = &stats.stream_error {
        let _ = writeln!(io::stderr(), "it goes on by the archive: {error}");
    }
    if let Some(why) = &stats.barred {
        let _ = writeln!(io::stderr(), "{why}");
    }
    if let Some(error) = &stats.last_error {
        // A closed standard error leaves no place to report to.
        let _ = writeln!(io::stderr(), "not up to date: {error}");
    }
    Ok(())
}
