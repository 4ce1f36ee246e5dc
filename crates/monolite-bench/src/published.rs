//! The figures of the article whose benchmark `bench tps` repeats: data, never a comparison.
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
