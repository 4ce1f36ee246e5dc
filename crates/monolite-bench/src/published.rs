//! The figures of the article whose benchmark `bench tps` repeats (Anders Murphy, "100000 TPS over
//! a billion rows: the unreasonable effectiveness of SQLite", 2025): data, never a comparison.
//!
//! They were measured on other hardware, with drivers that acknowledged before COMMIT, never
//! checkpointed and did not await their reads.

/// Hardware of the published figures.
pub const HARDWARE: &str = "MacBook Pro, M1 Pro, 16 GB, one billion rows";

/// A published PostgreSQL line, transactions a second.
#[derive(Clone, Copy, Debug)]
pub struct PublishedPostgres {
    /// Pool and isolation.
    pub name: &'static str,
    /// No delay, 1 ms, 5 ms, 10 ms between the statements.
    pub per_second: [u32; 4],
    /// With one more query at 10 ms, where it was published.
    pub third_statement: Option<u32>,
}

/// PostgreSQL, as published.
pub const POSTGRES: [PublishedPostgres; 4] = [
    PublishedPostgres {
        name: "PostgreSQL, pool 8, read committed",
        per_second: [13_756, 5_428, 1_214, 702],
        third_statement: Some(348),
    },
    PublishedPostgres {
        name: "PostgreSQL, pool 8, serializable",
        per_second: [10_026, 4_691, 1_182, 660],
        third_statement: None,
    },
    PublishedPostgres {
        name: "PostgreSQL, pool 64, read committed",
        per_second: [17_399, 8_430, 7_563, 5_574],
        third_statement: None,
    },
    PublishedPostgres {
        name: "PostgreSQL, pool 64, serializable",
        per_second: [10_283, 83, 75, 66],
        third_statement: None,
    },
];

/// SQLite, as published: name, `synchronous = NORMAL`, `synchronous = FULL`, transactions a second.
pub const SQLITE: [(&str, u32, u32); 4] = [
    ("one transaction per commit", 44_096, 20_654),
    ("batch", 186_157, 161_868),
    ("batch, a savepoint each", 121_922, 98_163),
    ("batch, savepoints, and reads", 102_545, 100_405),
];

/// A published table of a suite other than `tps`.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// The suite whose figures it stands beside.
    pub suite: &'static str,
    /// What its figures are.
    pub what: &'static str,
    /// Column names; the hardware is among them, or begins the rows.
    pub header: &'static [&'static str],
    /// Lines.
    pub rows: &'static [&'static [&'static str]],
    /// What one must know to read it.
    pub note: &'static str,
}

/// The tables of all suites.
pub const SUITES: [Published; 3] = [
    Published {
        suite: "micro",
        what: "operations a second",
        header: &["", "M1 Air", "Hetzner CAX31", "Hetzner CPX31"],
        rows: &[
            &["vanilla, reads", "183,150", "94,786", "73,800"],
            &["vanilla, writes", "4,363", "560", "925"],
            &["WAL, reads", "454,338", "238,322", "332,225"],
            &["WAL, writes", "14,401", "3,316", "5,542"],
            &["WAL and NORMAL, reads", "483,558", "275,406", "315,756"],
            &["WAL and NORMAL, writes", "113,684", "46,512", "80,145"],
            &["in memory, reads", "50,000,000", "943,396", "952,380"],
            &["in memory, writes", "981,836", "299,976", "322,695"],
            &["indexes, reads", "440,917", "186,358", "315,357"],
            &["indexes, writes", "47,359", "19,479", "26,469"],
            &["mixed, 80 % reads", "197,012", "75,153", "121,703"],
            &["mixed, 80 % writes", "59,111", "22,801", "36,260"],
        ],
        note: "a million divided by the mean of microseconds that had been cut to whole ones, \
               hence the 50,000,000",
    },
    Published {
        suite: "scan",
        what: "queries a second",
        header: &["", "queries/s"],
        rows: &[
            &["192 cores, 384 threads, 10 billion rows in memory", "about 4,000,000"],
            &["a cloud machine, 128 vCPU", "about 1,500,000"],
            &["SELECT 1, 192 cores", "about 160,000,000"],
        ],
        note: "with private locks, without memory statistics, pinned to NUMA nodes",
    },
    Published {
        suite: "begin",
        what: "updates a second, BEGIN CONCURRENT, 16 threads, read from a chart",
        header: &["", "updates/s"],
        rows: &[&["1 update", "about 12,000"], &["10 updates", "about 19,000"]],
        note: "on tmpfs with synchronous off, more than 1,000 attempts repeated a second; the \
               branch of SQLite that has CONCURRENT is in docs/results/2026-11-25-all",
    },
];
