//! Tables as text for a terminal and as Markdown for a document, and how figures are written.

use crate::statistics::Spread;
use comfy_table::presets::{UTF8_FULL_CONDENSED, UTF8_HORIZONTAL_ONLY};
use comfy_table::{CellAlignment, ContentArrangement};

/// A table before it has a form. The first column is text, the others are figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Column names.
    pub header: Vec<String>,
    /// Lines; each as long as the header.
    pub rows: Vec<Vec<String>>,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

impl Table {
    /// An empty table.
    pub fn new(title: impl Into<String>, header: &[&str]) -> Table {
        Table {
            title: title.into(),
            header: header.iter().map(ToString::to_string).collect(),
            ..Table::default()
        }
    }

    /// Returns the table drawn with lines.
    pub fn to_text(&self) -> String {
        let mut drawn = comfy_table::Table::new();
        let preset = if self.header.len() > 2 { UTF8_FULL_CONDENSED } else { UTF8_HORIZONTAL_ONLY };
        drawn.load_style(preset).set_content_arrangement(ContentArrangement::Disabled);
        drawn.set_header(&self.header);
        self.rows.iter().for_each(|row| {
            drawn.add_row(row);
        });
        for column in drawn.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("{}\n{drawn}\n", self.title);
        self.notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
        text
    }

    /// Returns the table as a Markdown section.
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = format!("## {}\n\n{}", self.title, line(&self.header));
        let rules: Vec<String> = (0..self.header.len())
            .map(|column| if column == 0 { "---".into() } else { "---:".into() })
            .collect();
        text.push_str(&line(&rules));
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        if !self.notes.is_empty() {
            text.push('\n');
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("- {note}\n")));
        text
    }
}

/// Writes a whole number with separators, as `12,345`.
pub fn count(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a median with its extremes, as `12,345 (11,000–13,000)`.
pub fn spread(spread: Spread) -> String {
    format!("{} ({}–{})", count(spread.median), count(spread.min), count(spread.max))
}

/// Writes a duration in nanoseconds with three digits, as `1.23 ms`.
pub fn nanoseconds(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    match value {
        v if v < 10.0 => format!("{v:.2} {unit}"),
        v if v < 100.0 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

/// Writes a size in binary units, as `64.0 MiB`.
pub fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b >= (1_u64 << 30) as f64 => format!("{:.1} GiB", b / (1_u64 << 30) as f64),
        b if b >= (1_u64 << 20) as f64 => format!("{:.1} MiB", b / (1_u64 << 20) as f64),
        b => format!("{:.1} KiB", b / 1024.0),
    }
}

/// Writes a ratio, as `0.85`; from ten on with one digit.
pub fn ratio(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.1}") } else { format!("{ratio:.2}") }
}

/// A line of a summary: ours, and each other side with our ratio to it.
pub fn line(name: &str, ours: f64, others: [Option<f64>; 2]) -> Vec<String> {
    let mut row = vec![name.to_owned(), count(ours)];
    for other in others {
        row.push(other.map_or("–".into(), count));
        row.push(other.map_or("–".into(), |other| ratio(ours / other)));
    }
    row
}

/// Writes a share, as `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!(count(1_234_567.4), "1,234,567");
        assert_eq!(count(12.0), "12");
        assert_eq!(nanoseconds(999), "999 ns");
        assert_eq!(nanoseconds(1_234), "1.23 µs");
        assert_eq!(nanoseconds(45_600_000), "45.6 ms");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(percent(0.1234), "12.3 %");
        assert_eq!((ratio(0.853), ratio(43.21)), ("0.85".into(), "43.2".into()));
    }

    #[test]
    fn markdown_aligns_figures_right() {
        let mut table = Table::new("T", &["a", "b"]);
        table.rows.push(vec!["x".into(), "1".into()]);
        table.notes.push("n".into());
        assert_eq!(table.to_markdown(), "## T\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n\n- n\n");
    }
}
