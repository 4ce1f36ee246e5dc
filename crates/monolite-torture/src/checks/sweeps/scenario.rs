//! The scenarios: short programs of an application, each with the files it starts from.

use monolite::{Durability, Sharing};

/// What an application does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// One write, and its answer.
    Put,
    /// One write with so many bytes three times.
    PutFilled(usize),
    /// One write with a large value of so many bytes.
    PutLarge(usize),
    /// A write whose closure may run once only.
    Once,
    /// Several writes in one batch, some of which fail in this way.
    Batch(u32, Failing),
    /// Writes of which nobody awaits the answer.
    Forget(u32),
    /// A change of the schema or the data that is not a marker.
    Sql(&'static str),
    /// A read of what is committed.
    Read,
    /// A read of what is on disk.
    ReadDurable,
    /// A read that keeps its snapshot until [`Step::ReleaseRead`].
    HoldRead,
    /// Ends it.
    ReleaseRead,
    /// Waits until the WAL is copied, if that comes soon.
    AwaitCheckpoint,
    /// Lets the next checkpoint commit a write of somebody else before its first page.
    CommitInCheckpoint,
    /// Closes the database.
    Close,
    /// Opens it again.
    Open,
}

/// How members of a batch fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    Nobody,
    /// One gives up after it wrote.
    OneAborts,
    /// Every other one violates a constraint after it wrote.
    EveryOther,
    /// One rolls back the transaction of all.
    OneRollsBack,
    /// One panics after it wrote.
    OnePanics,
    /// One may run once only.
    OneRunsOnce,
    /// One violates a deferred foreign key.
    OneDefers,
}

/// What the files are like before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// There are none.
    Fresh,
    /// A closed database.
    Closed,
    /// A closed database whose pages are the largest there are, so that a checkpoint takes few
    /// calls.
    LargePages,
    /// A closed database that shrinks when something is deleted.
    AutoVacuum,
    /// What a process left that was killed: the WAL is whole.
    Killed,
    /// What a power cut left: the WAL is torn.
    Cut,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) start: Start,
    pub(super) sharing: Sharing,
    pub(super) durability: Durability,
    pub(super) steps: &'static [Step],
}

const fn scenario(name: &'static str, start: Start, steps: &'static [Step]) -> Scenario {
    let (sharing, durability) = (Sharing::Exclusive, Durability::Synced);
    Scenario { name, start, sharing, durability, steps }
}

const fn shared(scenario: Scenario) -> Scenario {
    Scenario { sharing: Sharing::Shared, ..scenario }
}

const fn buffered(scenario: Scenario) -> Scenario {
    Scenario { durability: Durability::Buffered, ..scenario }
}

use Failing::*;
use Start::*;
use Step::*;

/// A page of the largest size, three times.
const PAGES: usize = 64 << 10;

/// Enough that a checkpoint begins: a quarter of the smallest limit of the WAL.
const FILLS_WAL: usize = 2_200_000;

/// All of them, the most telling ones first.
pub(super) const ALL: &[Scenario] = &[
    scenario("single writes", Closed, &[Put, Put, Put]),
    scenario("a batch of which one member fails", Closed, &[Batch(8, OneAborts), Put]),
    scenario(
        "a checkpoint and a new start of the WAL",
        LargePages,
        &[Put, PutLarge(FILLS_WAL), AwaitCheckpoint, Put, Put],
    ),
    scenario("recovery after a kill", Killed, &[Read, Put]),
    scenario("a batch of many pages", Closed, &[PutFilled(40_000), Put]),
    scenario("a new file", Fresh, &[Put]),
    scenario(
        "a commit at the entry of a checkpoint",
        LargePages,
        &[PutLarge(FILLS_WAL), CommitInCheckpoint, Put, AwaitCheckpoint, Put, AwaitCheckpoint, Put],
    ),
    scenario("close and open again", Closed, &[Put, Close, Open, Put]),
    scenario("recovery after a power cut", Cut, &[Put, Close]),
    shared(scenario("shared with others", Closed, &[Put, Batch(4, OneAborts), Read])),
    buffered(scenario("buffered durability", Closed, &[Put, Put, Close])),
    scenario("a batch whose member rolls back all", Closed, &[Batch(6, OneRollsBack), Put]),
    scenario("closures that run once only", Closed, &[Once, Batch(5, OneRunsOnce), Once]),
    scenario(
        "a transaction larger than what is gathered",
        LargePages,
        &[Put, PutLarge(4_600_000), Put],
    ),
    scenario(
        "a reader during a checkpoint",
        LargePages,
        &[HoldRead, PutLarge(FILLS_WAL), AwaitCheckpoint, Put, ReleaseRead, Put],
    ),
    scenario(
        "a new table and an index",
        Closed,
        &[
            Sql("CREATE TABLE added(a TEXT, b BLOB); CREATE INDEX added_a ON added(a)"),
            Sql("INSERT INTO added VALUES ('x', zeroblob(9000)), ('y', x'00')"),
            Put,
            Sql("ALTER TABLE added RENAME COLUMN a TO c"),
            Close,
        ],
    ),
    scenario(
        "a dropped table",
        Closed,
        &[
            PutFilled(9_000),
            Sql("CREATE TABLE gone AS SELECT * FROM part; DROP TABLE gone"),
            Put,
            Close,
        ],
    ),
    scenario(
        "a file that shrinks",
        AutoVacuum,
        &[PutLarge(60_000), Sql("DELETE FROM large"), Put, Close],
    ),
    scenario("durable reads", Closed, &[Put, ReadDurable, Put, ReadDurable]),
    scenario("reads alone", Killed, &[Read, ReadDurable, Read]),
    scenario("a batch whose member panics", Closed, &[Batch(6, OnePanics), Put]),
    scenario("a batch of which many fail", Closed, &[Batch(10, EveryOther), Put]),
    scenario("a deferred foreign key", Closed, &[Batch(5, OneDefers), Put]),
    scenario("answers that nobody awaits", Closed, &[Forget(4), Put, Forget(2), Close]),
    scenario(
        "three generations of the WAL",
        LargePages,
        &[
            PutLarge(FILLS_WAL),
            AwaitCheckpoint,
            PutLarge(FILLS_WAL),
            AwaitCheckpoint,
            PutLarge(FILLS_WAL),
            AwaitCheckpoint,
            Put,
        ],
    ),
    shared(scenario("shared, closed and recovered", Killed, &[Put, Close, Open, Put])),
    buffered(scenario(
        "buffered with a checkpoint",
        LargePages,
        &[Put, PutLarge(FILLS_WAL), AwaitCheckpoint, Put, Close],
    )),
    scenario("pages of the largest size", LargePages, &[PutFilled(PAGES), Put, Close]),
    scenario("a new file, closed and opened again", Fresh, &[Put, Close, Open, Put, Close]),
    scenario(
        "a rebuilt index",
        Closed,
        &[Sql("CREATE INDEX part_number ON part(number)"), Put, Sql("REINDEX"), Put],
    ),
];
