//! Syncs that fail in the kernel: after one, nothing more is acknowledged.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use monolite::{Database, Options};
use monolite_testkit::child::{say, variable};
use monolite_testkit::markers;

use super::Case;

/// The syncs that are made to fail, one in each run: those of the opening, of lonely writes, of
/// batches, and of checkpoints.
const FAILING: [u32; 8] = [1, 2, 3, 5, 8, 13, 21, 34];

/// Writes that are tried after the first refusal.
const AFTERWARDS: u32 = 20;

/// The role that writes until it is refused, and a little longer.
pub(super) fn write_until_refused() -> Result<()> {
    say("");
    let path: PathBuf = variable("FILE")?;
    let db = Options::new().wal_limit_bytes(8 << 20).open(path)?;
    markers::create(&db)?;
    let mut refused = 0;
    for id in 1..400 {
        // Every other write comes with company, so that both ways to sync are used.
        let company = db.write(move |tx| markers::put_filled(tx, id * 2 + 1, &[1; 9_000]));
        let write = db.write(move |tx| markers::put_filled(tx, id * 2, &[1; 9_000]));
        for (id, write) in [(id * 2 + 1, company), (id * 2, write)] {
            match write.wait() {
                Ok(()) => say(&format!("acknowledged {id}")),
                Err(error) => {
                    say(&format!("refused {:?}", error.kind()));
                    refused += 1;
                }
            }
        }
        if refused > AFTERWARDS {
            break;
        }
    }
    let closed = db.close().err().map_or("Ok".into(), |error| format!("{:?}", error.kind()));
    say(&format!("closed {closed}"));
    Ok(())
}

/// The N-th `fdatasync` of a child fails in the kernel.
pub(super) fn failed_sync(case: &mut Case<'_>) -> Result<()> {
    if let Err(reason) = strace_works() {
        case.skip(reason);
        return Ok(());
    }
    let mut poisoned = 0;
    for number in FAILING {
        case.tried += 1;
        let path = case.directory().join(format!("sync-{number}"));
        let file = path.to_str().context("the path is text")?.to_owned();
        let inject = format!("inject=fdatasync:error=EIO:when={number}");
        let under =
            ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", &inject];
        let program = case.setting.program.clone().under(&under);
        let mut child = program.spawn("environment writer", &[("FILE", &file)])?;
        let (mut acknowledged, mut was_poisoned, mut late) = (BTreeSet::new(), false, 0);
        while let Some(line) = child.next_line() {
            if let Some(id) = line.strip_prefix("acknowledged ") {
                acknowledged.insert(id.parse::<i64>()?);
                late += u32::from(was_poisoned);
            } else if let Some(kind) = line.strip_prefix("refused ") {
                case.expect(kind == "Poisoned", || format!("sync {number}: refused as {kind}"));
                was_poisoned |= kind == "Poisoned";
            }
        }
        poisoned += u32::from(was_poisoned);
        case.expect(late == 0, || {
            format!("{late} were acknowledged after sync {number} had failed")
        });
        if path.exists() {
            reopened(case, &path, &acknowledged)?;
        }
    }
    case.expect(poisoned > 0, || "no failed sync was noticed".into());
    case.note(format!("{poisoned} of {} failed syncs stopped all writes", FAILING.len()));
    Ok(())
}

/// Nothing that was acknowledged may be missing once the database is opened again, and it works.
fn reopened(case: &mut Case<'_>, path: &Path, acknowledged: &BTreeSet<i64>) -> Result<()> {
    let db = Database::open(path)?;
    markers::create(&db)?;
    db.write(|tx| markers::put_filled(tx, 1_000_000, &[])).wait()?;
    db.close()?;
    case.verify(path, acknowledged);
    Ok(())
}

fn strace_works() -> Result<(), String> {
    let tried = Command::new("strace").args(["-f", "-qq", "-o", "/dev/null", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("strace: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("strace cannot be started: {error}")),
    }
}
