//! Stores in bad weather, and away for longer than what may be kept beside the database: writes go
//! on, memory and disk stay bounded, and afterwards nothing is missing.
//!
//! # Algorithm
//! 1. A child writes for a while, in bad weather where what it may keep is limited.
//! 2. The store goes away while the child writes several times what its WAL may hold, and what it
//!    may keep. Meanwhile its memory and the directory beside its database are looked at.
//! 3. Where gaps are refused, it refuses writes, and no copy of the database is needed later.
//!    Elsewhere all writes are accepted; a copy closes the gap, or without a limit there is none,
//!    although every other time the child is killed and another goes on with the file.
//! 4. The store is back, and the child writes no more until all is archived. When it has closed,
//!    what is restored is the file, byte by byte.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use monolite::Durability;
use monolite_testkit::child::{Child, Heard};

use super::case::Case;
use super::child::{Arrangement, REST};
use super::weather::Weather;
use super::{control, play_all};
use crate::checks::lanes::status;
use crate::checks::writing::{Ledger, Look, WAL_LIMIT_BYTES};
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

/// Databases without a gate within which something has to be missed.
const CONTROLS: u64 = 3;

/// How a child takes that it may keep no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// Writes are refused.
    Refuses,
    /// A copy of the database follows.
    GivesUp,
    /// There is no limit: each group of the WAL is kept.
    Unbounded,
}

pub(super) fn run(setting: &Setting<'_>, amount: u64, outcome: &Mutex<Outcome>) -> Result<()> {
    let name = "an archive that keeps whatever the store does not take";
    control(setting, name, 1, outcome, &|case| {
        let seen = case.endure(Full::Unbounded, Arrangement::Sound)?;
        Ok(seen.judge()?)
    })?;
    let name = "a WAL that begins anew without the archive having read it";
    control(setting, name, CONTROLS, outcome, &|case| {
        case.endure(Full::Unbounded, Arrangement::WithoutGate).map(drop)
    })?;
    play_all(setting, "stores", amount, outcome, &|case| {
        let all = [Full::Refuses, Full::GivesUp, Full::Unbounded, Full::Unbounded];
        let full = case.rng.choice(all).unwrap_or(Full::Refuses);
        let seen = case.endure(full, Arrangement::Sound)?;
        if full == Full::Unbounded { Ok(()) } else { Ok(seen.judge()?) }
    })
}

/// What was seen while the store was away.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// By what the memory has grown.
    grown: u64,
    beside: u64,
    wal: u64,
}

impl Seen {
    /// What is wrong with it.
    fn judge(self) -> Result<(), Wrong> {
        let bounds = [
            (
                "were kept beside the database",
                self.beside,
                STAGED_LIMIT + WAL_LIMIT_BYTES + BESIDE_BYTES,
            ),
            ("more were in memory than before", self.grown, MEMORY_BYTES),
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
    /// What was seen while its store was away.
    fn endure(&mut self, full: Full, arrangement: Arrangement) -> Result<Seen> {
        self.ledger.may_refuse = full == Full::Refuses;
        let mut child = self.begin(full, arrangement)?;
        self.await_status(&mut child, "it can be restored", |status| {
            status.is_restorable && !status.copies
        })?;
        if full != Full::Unbounded {
            child.tell(Weather::Bad.word())?;
            self.hear_some(&mut child, IN_BAD_WEATHER)?;
        }
        let copies = self.copies()?;
        child.tell(Weather::Away.word())?;
        let seen = self.look_on(&mut child)?;
        if full == Full::Unbounded && self.rng.bool() {
            child.kill()?;
            self.ledger.hear_rest(&mut child)?;
            child = self.begin(full, arrangement)?;
            self.hear_some(&mut child, 1)?;
        }
        child.tell(REST)?;
        child.tell(Weather::Fair.word())?;
        self.await_status(&mut child, "it has caught up", |status| {
            status.staged_bytes == 0 && !status.copies
        })?;
        self.close(&mut child)?;
        let (more, refused) = (self.copies()? - copies, self.ledger.refused.len());
        if (full == Full::GivesUp) == (more == 0) || (full == Full::Refuses) != (refused > 0) {
            let text = format!("{full:?}: {refused} writes were refused, {more} copies followed");
            bail!(Wrong::Other(text));
        }
        self.is_the_same(Look::Thorough)?;
        Ok(seen)
    }

    fn begin(&mut self, full: Full, arrangement: Arrangement) -> Result<Child> {
        let mut orders = self.orders(Durability::Synced);
        (orders.filling, orders.arrangement) = (FILLING, arrangement);
        orders.refuses_gaps = full == Full::Refuses;
        if full != Full::Unbounded {
            orders.staged_limit = STAGED_LIMIT;
        }
        orders.spawn(self.setting.program)
    }

    /// Hears and sees a child whose store is away.
    fn look_on(&mut self, child: &mut Child) -> Result<Seen> {
        let [beside, wal] = ["-archive", "-wal"].map(|ending| {
            let mut name = self.file().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        });
        let memory = |child: &Child| status(child.id(), "RssAnon");
        let before = memory(child);
        let (mut seen, mut looked) = (Seen::default(), Instant::now());
        let answers = |ledger: &Ledger| ledger.acknowledged.len() + ledger.refused.len();
        let until = answers(&self.ledger) + AWAY;
        while answers(&self.ledger) < until {
            match child.listen(LOOK) {
                Heard::Line(line) => self.ledger.hear(&line)?,
                Heard::Silence => {}
                Heard::End => bail!(Wrong::Other("a child has ended by itself".into())),
            }
            if looked.elapsed() > LOOK {
                let grown = memory(child).saturating_sub(before);
                seen.grown = seen.grown.max(grown);
                seen.beside = seen.beside.max(bytes_in(&beside));
                seen.wal = seen.wal.max(fs::metadata(&wal).map_or(0, |meta| meta.len()));
                looked = Instant::now();
            }
        }
        Ok(seen)
    }
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
    let seen = Seen { grown: 10 << 20, beside: 1 << 20, wal: 8 << 20 };
    let judged = |seen: Seen| seen.judge().map_err(|wrong| wrong.to_string());
    assert_eq!(judged(seen), Ok(()));
    let memory = Seen { grown: 69 << 20, ..seen };
    assert!(judged(memory).unwrap_err().contains("in memory"));
    let beside = Seen { beside: STAGED_LIMIT * 2, ..seen };
    assert!(judged(beside).unwrap_err().contains("beside"));
    let wal = Seen { wal: WAL_LIMIT_BYTES + 1, ..seen };
    assert!(judged(wal).unwrap_err().contains("WAL"));
}
