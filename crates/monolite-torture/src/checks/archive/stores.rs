//! Stores in bad weather, and away for longer than what may be kept beside the database: writes go
//! on, memory and disk stay bounded, and afterwards nothing is missing.
//!
//! # Algorithm
//! 1. A child writes for a while in bad weather.
//! 2. The store goes away while the child writes several times what it may keep. Meanwhile its
//!    memory and the directory beside its database are looked at.
//! 3. Where gaps are refused, it refuses writes, and no copy of the database is needed later.
//!    Elsewhere all writes are accepted, and a copy closes the gap.
//! 4. The store is back, and the child writes no more until all is archived. When it has closed,
//!    what is restored is the file, byte by byte.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use monolite::Durability;
use monolite_testkit::child::{Child, Heard};

use super::case::Case;
use super::child::{REST, Status, WAL_LIMIT_BYTES};
use super::weather::Weather;
use super::{control, play_all};
use crate::checks::writing::Look;
use crate::checks::wrong::Wrong;
use crate::{Outcome, Setting};

/// Bytes in each of the three parts of a transaction.
const FILLING: usize = 8_000;

/// What may be kept beside the database: less than three WALs.
const STAGED_LIMIT: u64 = 20 << 20;

/// Transactions in bad weather.
const IN_BAD_WEATHER: usize = 400;

/// Transactions that are answered, or refused, while the store is away: twice the limit.
const AWAY: usize = 2_400;

/// What a child may hold beyond what it had when the store went away: a WAL that is read, and
/// compressed, and what the allocator keeps of it. Far less than it writes meanwhile.
const MEMORY_BYTES: u64 = 40 << 20;

/// What else may be beside the database besides a WAL, a part of which is archived already: the
/// position, and names.
const BESIDE_BYTES: u64 = 1 << 20;

/// How often a child's memory and disk are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How a child takes that it may keep no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// Writes are refused.
    Refuses,
    /// A copy of the database follows.
    GivesUp,
    /// There is no limit: only the control has none.
    Unbounded,
}

pub(super) fn run(setting: &Setting<'_>, amount: u64, outcome: &Mutex<Outcome>) -> Result<()> {
    let name = "an archive that keeps whatever the store does not take";
    control(setting, name, 1, outcome, &|case| case.endure(Full::Unbounded))?;
    play_all(setting, "stores", amount, outcome, &|case| {
        let full = if case.rng.bool() { Full::Refuses } else { Full::GivesUp };
        case.endure(full)
    })
}

/// What was seen while the store was away.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    memory: u64,
    beside: u64,
    wal: u64,
}

impl Seen {
    /// What is wrong with it, of a child that had `before` in memory.
    fn judge(self, before: u64) -> Result<(), Wrong> {
        let grown = self.memory.saturating_sub(before);
        let bounds = [
            (
                "were kept beside the database",
                self.beside,
                STAGED_LIMIT + WAL_LIMIT_BYTES + BESIDE_BYTES,
            ),
            ("more were in memory than before", grown, MEMORY_BYTES),
            ("were in the WAL", self.wal, WAL_LIMIT_BYTES),
        ];
        match bounds.into_iter().find(|(_, is, may)| is > may) {
            Some((what, is, may)) => {
                Err(Wrong::Other(format!("{is} bytes {what} while the store was away, not {may}")))
            }
            None => Ok(()),
        }
    }
}

impl Case<'_> {
    fn endure(&mut self, full: Full) -> Result<Result<(), Wrong>> {
        let mut orders = self.orders(Durability::Synced);
        (orders.filling, orders.refuses_gaps) = (FILLING, full == Full::Refuses);
        if full != Full::Unbounded {
            orders.staged_limit = STAGED_LIMIT;
        }
        self.may_refuse = full == Full::Refuses;
        let mut child = orders.spawn(self.setting.program)?;
        let is_ready = |status: &Status| status.is_restorable && !status.copies;
        let ready = self.await_status(&mut child, "it can be restored", is_ready)?;
        child.tell(Weather::Bad.word())?;
        if let Some(wrong) = ready.or(self.hear_some(&mut child, IN_BAD_WEATHER)?) {
            return Ok(Err(wrong));
        }
        let copies = self.copies()?;
        child.tell(Weather::Away.word())?;
        if let Err(wrong) = self.look_on(&mut child)? {
            return Ok(Err(wrong));
        }
        child.tell(REST)?;
        child.tell(Weather::Fair.word())?;
        let has_all = |status: &Status| status.staged_bytes == 0 && !status.copies;
        let back = self.await_status(&mut child, "it has caught up", has_all)?;
        if let Some(wrong) = back.or_else(|| self.close(&mut child)) {
            return Ok(Err(wrong));
        }
        let (more, refused) = (self.copies()? - copies, self.refused.len());
        if (full == Full::Refuses) != (more == 0) || (full == Full::Refuses) != (refused > 0) {
            let text = format!("{full:?}: {refused} writes were refused, {more} copies followed");
            return Ok(Err(Wrong::Other(text)));
        }
        self.is_the_same(Look::Thorough)
    }

    /// Hears and sees a child whose store is away.
    fn look_on(&mut self, child: &mut Child) -> Result<Result<(), Wrong>> {
        let [beside, wal] = ["-archive", "-wal"].map(|ending| {
            let mut name = self.file().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        });
        let before = memory_of(child)?;
        let (mut seen, mut looked) = (Seen::default(), Instant::now());
        let answers = |case: &Case<'_>| case.acknowledged.len() + case.refused.len();
        let until = answers(self) + AWAY;
        while answers(self) < until {
            match child.listen(LOOK) {
                Heard::Line(line) => {
                    if let Some(wrong) = self.hear(&line) {
                        return Ok(Err(wrong));
                    }
                }
                Heard::Silence => {}
                Heard::End => return Ok(Err(Wrong::Other("a child has ended by itself".into()))),
            }
            if looked.elapsed() > LOOK {
                seen.memory = seen.memory.max(memory_of(child)?);
                seen.beside = seen.beside.max(bytes_in(&beside));
                seen.wal = seen.wal.max(fs::metadata(&wal).map_or(0, |meta| meta.len()));
                looked = Instant::now();
            }
        }
        Ok(seen.judge(before))
    }
}

/// The bytes of a process that are in memory.
fn memory_of(child: &Child) -> Result<u64> {
    let path = format!("/proc/{}/status", child.id());
    let text = fs::read_to_string(&path).context("no memory of a child is told")?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.context("no memory of a child is told")?.parse::<u64>()? << 10)
}

/// Bytes that the files in a directory take, but for the copy that is about to be uploaded. Files
/// may go meanwhile, and have holes.
fn bytes_in(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let others = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"copy"));
    others.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
}

#[test]
fn what_grows_beyond_its_bound_is_noticed() {
    let seen = Seen { memory: 70 << 20, beside: 1 << 20, wal: 8 << 20 };
    assert_eq!(seen.judge(60 << 20), Ok(()));
    assert!(seen.judge(1 << 20).unwrap_err().to_string().contains("in memory"));
    let beside = Seen { beside: STAGED_LIMIT * 2, ..seen };
    assert!(beside.judge(60 << 20).unwrap_err().to_string().contains("beside"));
    let wal = Seen { wal: WAL_LIMIT_BYTES + 1, ..seen };
    assert!(wal.judge(60 << 20).unwrap_err().to_string().contains("WAL"));
}
