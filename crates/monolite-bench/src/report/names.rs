//! Names of cells that both the groups and the tables know.

/// The device, measured in turn with the waiting clients.
pub const APPENDS: &str = "closed/durable/appends";

/// Columns of the delay table: the end of a cell's name, and its title.
pub const DELAYS: [(&str, &str); 5] = [
    ("0ms", "no delay"),
    ("1ms", "1 ms"),
    ("5ms", "5 ms"),
    ("10ms", "10 ms"),
    ("10ms-third", "10 ms, third statement"),
];
