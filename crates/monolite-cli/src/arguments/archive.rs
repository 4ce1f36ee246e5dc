//! What may be said of commands that work on an archive.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use monolite::archive::ArchiveToken;
use monolite_archive::{Error, ErrorKind, Target};
use monolite_ltx::{Timestamp, Txid};

pub(super) const ARCHIVE_HELP: &str = "\
Look at an archive, or tend it: a database's history in a directory or a bucket, as Litestream \
v0.5 writes it.

URL is s3://bucket/prefix?endpoint=…, gs://bucket/prefix, az://container/prefix, \
file:///directory or a path. Credentials come from the environment, as for other programs of \
these services, or from the file that --config names. All but `compact` and `adopt` change \
nothing, and all but `adopt` let a program that writes to the archive go on meanwhile.";

const STATUS_HELP: &str = "\
Show what is there: files and bytes by level, the newest moment, the primary.

With --max-lag the exit code says whether the archive keeps up: 0 if it does, 1 if it is behind or \
its primary is gone. From the store alone that is judged by the age of the newest file, by the \
clock of this machine; and a primary that has nothing to archive writes nothing, so it looks like \
one that is gone, and the exit code is 1. With --database, on the primary's machine, no clock is \
looked at: the files of the database say whether a commit is not archived, and one that is not \
must be within the time, for which the command waits; the system's table of locks says whether a \
process has the database open (in a container, run it inside).";

const COMPACT_HELP: &str = "\
Merge files into fewer: what was written in each 30 seconds, 5 minutes and hour that are over, by \
the times of the files. A span is over when a later file is there; no clock is looked at.

Nothing is deleted. A restore needs fewer requests afterwards, and a primary may delete what is \
merged. Any process may do it at any time; what two do at once is equal. Ctrl-C stops, and what \
was made stays.";

const ADOPT_HELP: &str = "\
Take an archive over whose primary is gone, or that Litestream has written.

Takes the next epoch and puts a fence behind the newest transaction: an earlier primary \
archives nothing more, and its writes end with `Fenced`. Then the next primary can claim it. \
Litestream cannot be fenced: stop it for good before.

With --database the file, which was restored from the archive, is next: its program goes on with \
it when it opens it, and uploads a copy first. It is compared with the newest state before, page \
by page, and refused if it is another one.";

pub(super) const RESTORE_HELP: &str = "\
Restore a database from an archive, as it is now or as it was.

Finds the files that are needed, reads each to its end with its checksums, writes \
FILE.monolite-part, and gives it its name when it is whole and on disk. Nothing is overwritten. \
URL is as in `monolite archive`.

A restore that was stopped, by Ctrl-C, a kill or a store that is away for more than five minutes, \
leaves FILE.monolite-part once it has run for some seconds, and the same command goes on with it: \
if it needs the same files, which must be the same objects. The newest state of an archive that \
grows is another one each time; with --txid it stays. Otherwise it begins anew.";

pub(super) const FOLLOW_HELP: &str = "\
Keep a file up to date with an archive, for reads by any program on this machine.

A FILE that is not there is restored first; one that has followed the archive before goes on, also \
after a kill. What the primary archives is there a second or two later. Other programs open FILE \
with SQLite as usual, in WAL mode, and each of their transactions sees one state of the primary. \
They must not write to it: that is noticed, and undone by a full copy, unless this was killed: \
then remove FILE and what is beside it.

It prints how far it is, at the beginning, every ten seconds while something comes, and when \
something goes wrong. Where the archive has a gap that its files do not bridge, it puts a full \
copy in place. It ends with exit code 0 at Ctrl-C or SIGTERM, and with 1 when it cannot go on: the \
archive has another database's history, or pages of another size. URL is as in `monolite archive`.

A FILE that was a primary's follows its successor. What it alone had is written to \
FILE.orphan-EPOCH-TXID.ltx first, which is said: `monolite restore --orphan` restores that.

With --takeover the file becomes the primary's when the primary is closed, or was silent for its \
lease (`Archive::lease`); one without a lease is never replaced so. No other program can open FILE \
meanwhile. The command then ends, with --exec after running that: FILE is the primary's, for the \
program that opens it with the archive.";

pub(super) const PROMOTE_HELP: &str = "\
Have a file that follows be the primary's, at once: an operator says so.

The primary, if it is alive, is fenced: it archives nothing more, and its writes end with \
`Fenced`. FILE gets everything that is archived, and goes on when its program opens it with the \
archive, without uploading a copy. A FILE that is not there is restored. `monolite follow` must \
not run with it. Where it fails, FILE follows as before, and the same command goes on; the primary \
may be fenced by then.";

#[derive(Debug, Subcommand)]
pub(crate) enum Archive {
    /// Show what is there: files and bytes by level, the newest moment, the primary
    #[command(long_about = STATUS_HELP)]
    Status(Status),
    /// List the files, oldest first
    List(Listed),
    /// Read every file to its end, and look for holes between them
    Verify(Archived),
    /// Restore the newest state to a scratch file, check it, and delete it
    Drill(Drill),
    /// Merge files into fewer
    #[command(long_about = COMPACT_HELP)]
    Compact(Compact),
    /// Take it over for the next primary
    #[command(long_about = ADOPT_HELP)]
    Adopt(Adopt),
}

#[derive(Args, Debug)]
pub(crate) struct Archived {
    /// The archive
    #[arg(value_name = "URL", value_parser = url)]
    pub(crate) url: String,

    /// How to reach the bucket: a TOML file with the URL's options in a table s3, gs or az
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An address that can be an archive's; nothing is looked at there.
fn url(text: &str) -> Result<String, Error> {
    match monolite_archive::Archive::at(text) {
        Err(error) if error.kind() == ErrorKind::Invalid => Err(error),
        // What is wrong with the service or the credentials is told when they are used.
        _ => Ok(text.to_owned()),
    }
}

/// A TXID, or a token, which has three parts.
fn state(text: &str) -> Result<Target, String> {
    if text.contains('-') {
        let token: Result<ArchiveToken, _> = text.parse();
        return token.map(Target::Token).map_err(|error| error.to_string());
    }
    let txid: Result<Txid, _> = text.parse();
    txid.map(Target::Txid).map_err(|error| error.to_string())
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) archive: Archived,

    /// Fail if the archive is farther behind, as in 30s, 5m or 1h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) max_lag: Option<Duration>,

    /// The archived database, on this machine: whether it has commits that are not archived
    #[arg(long, value_name = "FILE", requires = "max_lag", value_parser = super::files::file())]
    pub(crate) database: Option<PathBuf>,
}

/// A length of time with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let duration: jiff::SignedDuration = text.parse().map_err(|it: jiff::Error| it.to_string())?;
    Duration::try_from(duration).map_err(|error| error.to_string())
}

#[derive(Args, Debug)]
pub(crate) struct Listed {
    #[command(flatten)]
    pub(crate) archive: Archived,

    /// Tell the time of each file, which takes a request for each
    #[arg(long)]
    pub(crate) times: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Drill {
    #[command(flatten)]
    pub(crate) archive: Archived,

    /// Directory for the scratch file, which is as large as the database
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) scratch: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Compact {
    #[command(flatten)]
    pub(crate) archive: Archived,

    /// Make a snapshot of the newest state, too: a restore begins there
    #[arg(long)]
    pub(crate) snapshot: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Adopt {
    #[command(flatten)]
    pub(crate) archive: Archived,

    /// The file that was restored and is to go on with the archive
    #[arg(long, value_name = "FILE", value_parser = super::files::file())]
    pub(crate) database: Option<PathBuf>,

    /// Also when a primary has it: it is gone for good, or is to be stopped by this
    #[arg(long)]
    pub(crate) take_over: bool,

    /// Also when writes were acknowledged that only its replicas have (Durability::Replicated)
    #[arg(long, requires = "take_over")]
    pub(crate) lose_replicated: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Follow {
    #[command(flatten)]
    pub(crate) archive: Archived,

    /// The file that follows
    #[arg(value_name = "FILE", value_parser = super::files::file())]
    pub(crate) file: PathBuf,

    /// Stream from the primary, if it does. SECRET is a file with the secret that both sides have,
    /// 16 bytes or more, without white space at its end
    #[arg(long, value_name = "SECRET")]
    pub(crate) stream: Option<PathBuf>,

    /// Become the primary's file when the primary is closed or silent
    #[arg(long)]
    pub(crate) takeover: bool,

    /// The lease of the new primary, as in 3s: until its program has opened FILE, for which others
    /// wait so long
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = lease)]
    #[arg(requires = "takeover")]
    pub(crate) lease: Duration,

    /// Where clients will find the new primary
    #[arg(long, value_name = "TEXT", requires = "takeover")]
    pub(crate) address: Option<String>,

    /// Run this with `sh -c` after a takeover, with MONOLITE_ROLE=primary, MONOLITE_EPOCH,
    /// MONOLITE_ADDRESS and MONOLITE_FILE in its environment
    #[arg(long, value_name = "COMMAND", requires = "takeover")]
    pub(crate) exec: Option<String>,
}

pub(super) fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    let is_fit = (Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&lease);
    is_fit.then_some(lease).ok_or_else(|| "a lease has 1 s to 1 h".into())
}

#[derive(Args, Debug)]
pub(crate) struct Promote {
    #[command(flatten)]
    pub(crate) archive: Archived,

    /// The file that follows
    #[arg(value_name = "FILE", value_parser = super::files::file())]
    pub(crate) file: PathBuf,

    /// Where clients will find the new primary
    #[arg(long, value_name = "TEXT")]
    pub(crate) address: Option<String>,

    /// Also when writes were acknowledged that only other followers have (Durability::Replicated)
    #[arg(long)]
    pub(crate) lose_replicated: bool,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("target"))]
pub(crate) struct Restore {
    #[command(flatten)]
    pub(crate) archive: Archived,

    /// The database to write, which must not exist yet
    #[arg(short, long, value_name = "FILE", value_parser = super::files::file())]
    pub(crate) output: PathBuf,

    /// As it was before this time, as in 2026-11-25T07:04:28Z; where that state was merged with
    /// others, the last one before them, and the result says so
    #[arg(long, value_name = "TIME", group = "target")]
    pub(crate) timestamp: Option<Timestamp>,

    /// Refuse a state that may not be the one of --timestamp
    #[arg(long, requires = "timestamp")]
    pub(crate) exact: bool,

    /// As it was after this TXID, 16 hexadecimal digits as in the names of files; or with all that
    /// a token (of `Database::archive_token`, as LINEAGE-EPOCH-TXID) names
    #[arg(long, value_name = "TXID", value_parser = state, group = "target")]
    pub(crate) txid: Option<Target>,

    /// What a former primary alone had: the .orphan-EPOCH-TXID.ltx beside its file
    #[arg(long, value_name = "FILE", group = "target", value_parser = super::files::file())]
    pub(crate) orphan: Option<PathBuf>,

    /// Do nothing, and succeed, when FILE exists
    #[arg(long)]
    pub(crate) if_not_exists: bool,
}
