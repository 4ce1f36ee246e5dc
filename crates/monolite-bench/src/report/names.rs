//! Names of cells that both the groups and the tables know.

/// The device, measured in turn with the waiting clients.
pub const APPENDS: &str = "closed/durable/appends";

/// Begins the names of the cells that state what a backup takes from writes.
pub const BACKUPS: &str = "backup/";

/// The one of these without a backup.
pub const BURST_ALONE: &str = "backup/durable/alone";

/// Groups whose transactions want the same rows: how their cells' names begin, and what they do.
pub const CONTESTS: [(&str, &str); 4] = [
    (
        "mixed/",
        "Mixed transactions of 2 to 6 operations with 1 ms after each, half of the accesses on 50 \
         rows of 4,000, durable",
    ),
    (
        "hot-rows/",
        "Four rows, half of them of 50 among 4,000, each read, decided on for 1 ms, and written, \
         durable",
    ),
    ("hot-row/", "One row that all clients read, decide on for 5 ms, and write, durable"),
    (
        "parent-child/",
        "A parent is inserted, and 5 ms later three children in the same transaction, durable",
    ),
];

/// Columns of the delay tables: the end of a cell's name, and its title.
pub const DELAYS: [(&str, &str); 8] = [
    ("0ms", "no delay"),
    ("1ms", "1 ms"),
    ("5ms", "5 ms"),
    ("10ms", "10 ms"),
    ("0ms-third", "third, no delay"),
    ("1ms-third", "third, 1 ms"),
    ("5ms-third", "third, 5 ms"),
    ("10ms-third", "third, 10 ms"),
];
