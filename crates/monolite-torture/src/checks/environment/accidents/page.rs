//! The page `docs/accidents.md`, made from the rows.

use std::fmt::Write as _;

use super::{Fate, Row, TOPICS, Trial, When};

const HEAD: &str = "\
# Accidents

What happens to a database when its files, its directory, its process or its machine have an
accident, and what to do. `monolite torture --environment` tries each accident that is possible on
the machine it runs on, does what the last column says, opens the database again, and compares: a
row that promises too little is as wrong as one that promises too much.

| in the end | means |
|---|---|
| survived | nobody needs to notice; everything acknowledged is there |
| refused | an opening is refused with an error that says why; what is there stays as it is |
| detected | an error says so; with the row's advice everything acknowledged is there |
| lost, and told | something acknowledged is gone; a write, the close or the next opening says so |
| lost, unseen | something acknowledged is gone, and no process can see it |

After *open* come reads and writes, after *idle* only the close; *under load* four threads write.
*Detected* while it is open means an error before anything is acknowledged that would be lost: of
the writes that follow, or of the close. Where no other mode is named, the database is opened with
`Sharing::Exclusive` and `Durability::Synced`, as by default. What a row says of `chattr +i` holds
for every other reason why a file cannot be written.

`cp /proc/PID/fd/N` is for a file that is deleted and still open: `ls -l /proc/PID/fd` shows which.
Copy the database and its WAL to one directory, as `NAME` and `NAME-wal`, before the process ends.

This page is made from the tables in `crates/monolite-torture/src/checks/environment/accidents`, by
`monolite torture --list-accidents > docs/accidents.md`.
";

/// The page of what can happen to a database and what comes of it.
pub(crate) fn accidents_page() -> String {
    let mut page = HEAD.to_owned();
    for topic in &TOPICS {
        let _ = writeln!(page, "\n## {}\n", topic.title);
        let _ = writeln!(page, "| accident | when | in the end | what happens | what to do |");
        let _ = writeln!(page, "|---|---|---|---|---|");
        topic.rows.iter().copied().flatten().for_each(|row| write_row(&mut page, row));
    }
    let rows = super::rows().count();
    let counts: Vec<_> = Fate::ALL
        .iter()
        .map(|fate| (fate, super::rows().filter(|row| row.fate == *fate).count()))
        .map(|(fate, count)| format!("{count} {fate}"))
        .collect();
    let _ = writeln!(page, "\n{rows} accidents: {}.", counts.join("; "));
    page
}

fn write_row(page: &mut String, row: &Row) {
    let Row { accident, when, fate, what, instead, .. } = row;
    let times: Vec<_> = when.iter().copied().map(When::name).collect();
    let tried = match row.trial {
        Trial::File(_) | Trial::Scene(_) => String::new(),
        Trial::Case(name) => format!(" (tried as “{name}”)"),
        Trial::Check(check) => format!(" (tried by `--{}`)", check.name),
        Trial::Untried(why) => format!(" (not tried: {why})"),
    };
    let times = times.join(", ");
    let _ = writeln!(page, "| {accident} | {times} | {fate} | {what}{tried} | {instead} |");
}
