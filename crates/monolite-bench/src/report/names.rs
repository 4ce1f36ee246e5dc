//! Names of cells that both the groups and the tables know.

/// The device, measured in turn with the waiting clients.
pub const APPENDS: &str = "closed/durable/appends";

/// Begins the names of the cells that state the price of the profile for untrusted SQL.
pub const PROFILE: &str = "profile/";

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
