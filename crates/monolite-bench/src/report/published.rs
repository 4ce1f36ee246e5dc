//! The figures of `published.md`, which were measured on other hardware: data, never a comparison.

use super::render::Table;

/// Returns the tables of a suite.
pub fn of(suite: &str) -> impl Iterator<Item = Table> {
    include_str!("published.md").split("\n## ").filter_map(move |section| {
        let (title, body) = section.split_once('\n')?;
        let title = title.strip_prefix(suite)?.strip_prefix(": ")?;
        let mut rows = body.lines().filter(|line| line.starts_with('|')).map(cells);
        let header = rows.next()?;
        let notes = body.lines().filter_map(|line| line.strip_prefix("- "));
        let notes = notes.map(str::to_owned).collect();
        Some(Table { title: title.into(), header, rows: rows.skip(1).collect(), notes })
    })
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}
