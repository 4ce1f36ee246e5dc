//! Owns the format of sqllogictest, in which SQLite's own suite of queries is written.
//!
//! # Format
//! Records with empty lines between them (<https://sqlite.org/sqllogictest/doc/trunk/about.wiki>):
//! `statement ok`, `statement error`, `query TYPES [SORT] [LABEL]` with the expected values behind
//! `----`, `hash-threshold N`, `halt`, and `skipif NAME`, `onlyif NAME` before a record. Lines that
//! begin with `#` are comments, and so is what follows the name in a condition.
//!
//! The crate `sqllogictest` reads another dialect: it refuses the comments behind conditions that
//! the public suite is full of, and would add fifty crates.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};

use super::super::said::{Cell, Said};
use super::super::statement::Statement;
use super::Script;

/// What a file says that a statement answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Ok,
    Error,
    Rows { types: String, sort: Sort, values: Vec<String> },
}

/// In which order the values of a query are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    None,
    Rows,
    Values,
}

/// The name by which conditions know SQLite.
const OURS: &str = "sqlite";

/// Reads the text of a `.test` file.
///
/// # Errors
/// A record that is none, with its line.
pub(crate) fn parse(text: &str) -> Result<Script> {
    let mut script = Script::default();
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end())).peekable();
    let mut is_ours = true;
    while let Some((at, line)) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let rest = |lines: &mut dyn Iterator<Item = (usize, &str)>| -> Vec<String> {
            lines.take_while(|(_, line)| !line.is_empty()).map(|(_, line)| line.into()).collect()
        };
        let expected = match words.as_slice() {
            [] | ["hash-threshold", _, ..] => continue,
            [first, ..] if first.starts_with('#') => continue,
            ["skipif", name, ..] => {
                is_ours &= *name != OURS;
                continue;
            }
            ["onlyif", name, ..] => {
                is_ours &= *name == OURS;
                continue;
            }
            ["halt", ..] if is_ours => break,
            ["halt", ..] => {
                is_ours = true;
                continue;
            }
            ["statement", "ok", ..] => Expected::Ok,
            ["statement", "error", ..] => Expected::Error,
            ["query", types, options @ ..] => {
                let values = Vec::new();
                Expected::Rows { types: (*types).to_owned(), sort: sort(options), values }
            }
            _ => bail!("line {at}: `{line}` is no record"),
        };
        let record = rest(&mut lines);
        if !std::mem::replace(&mut is_ours, true) {
            script.left_out += 1;
            continue;
        }
        let (sql, expected) = body(&record, expected);
        if sql.is_empty() {
            bail!("line {at}: a record without SQL");
        }
        script.statements.push(Statement::new(at + 1, &sql));
        script.expected.push(expected);
    }
    Ok(script)
}

fn sort(options: &[&str]) -> Sort {
    match options.first() {
        Some(&"rowsort") => Sort::Rows,
        Some(&"valuesort") => Sort::Values,
        _ => Sort::None,
    }
}

/// Splits a record into its SQL and what is expected.
fn body(record: &[String], expected: Expected) -> (String, Expected) {
    let end = record.iter().position(|line| line == "----");
    let sql = record[..end.unwrap_or(record.len())].join("\n");
    let after = || end.map_or(Vec::new(), |end| record[end + 1..].to_vec());
    let expected = match expected {
        Expected::Rows { types, sort, .. } => Expected::Rows { types, sort, values: after() },
        other => other,
    };
    (sql, expected)
}

impl Expected {
    /// Says in what the answer of plain SQLite is not what the file expects.
    ///
    /// # Errors
    /// When the file's own text cannot be understood.
    pub(crate) fn differs(&self, said: &Said) -> Result<Option<String>> {
        let (types, sort, values) = match (self, &said.fault) {
            (Expected::Error, None) => return Ok(Some("an error was expected".into())),
            (Expected::Error, Some(_)) | (Expected::Ok, None) => return Ok(None),
            (Expected::Ok | Expected::Rows { .. }, Some(fault)) => {
                return Ok(Some(format!("no error was expected: {}", fault.text)));
            }
            (Expected::Rows { types, sort, values }, None) => (types, *sort, values),
        };
        let found = shown(said, types, sort);
        let is_same = match values.as_slice() {
            [line] if line.contains(" values hashing to ") => {
                let (count, sum) = line.split_once(" values hashing to ").unwrap_or_default();
                let count: usize = count.parse().context("a number of values")?;
                count == found.len() && sum.trim() == hash(&found)
            }
            _ => *values == found,
        };
        let shown = || found.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
        Ok((!is_same).then(|| format!("{} values: {}", found.len(), shown())))
    }
}

/// The values as the format writes them, in its order.
fn shown(said: &Said, types: &str, sort: Sort) -> Vec<String> {
    let types: Vec<char> = types.chars().collect();
    let as_text = |row: &Vec<Cell>| -> Vec<String> {
        let of = |(at, cell): (usize, &Cell)| value(cell, types.get(at).copied().unwrap_or('T'));
        row.iter().enumerate().map(of).collect()
    };
    let mut rows: Vec<Vec<String>> = said.rows.iter().map(as_text).collect();
    if sort == Sort::Rows {
        rows.sort();
    }
    let mut values: Vec<String> = rows.into_iter().flatten().collect();
    if sort == Sort::Values {
        values.sort();
    }
    values
}

fn value(cell: &Cell, kind: char) -> String {
    let text = |bytes: &[u8]| {
        let visible =
            |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '@' };
        let text: String = bytes.iter().map(visible).collect();
        if text.is_empty() { "(empty)".to_owned() } else { text }
    };
    let leading = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let end = text.find(|sign: char| !"+-.eE0123456789".contains(sign));
        text[..end.unwrap_or(text.len())].parse::<f64>().unwrap_or(0.0)
    };
    // SQLite's conversion from a real cuts off what is behind the point.
    #[expect(clippy::cast_possible_truncation, reason = "it is what the format does")]
    match (kind, cell) {
        (_, Cell::Null) => "NULL".into(),
        ('I', Cell::Integer(number)) => number.to_string(),
        ('I', Cell::Real(bits)) => (f64::from_bits(*bits) as i64).to_string(),
        ('I', Cell::Text(bytes) | Cell::Blob(bytes)) => (leading(bytes) as i64).to_string(),
        ('R', Cell::Integer(number)) => format!("{:.3}", *number as f64),
        ('R', Cell::Real(bits)) => format!("{:.3}", f64::from_bits(*bits)),
        ('R', Cell::Text(bytes) | Cell::Blob(bytes)) => format!("{:.3}", leading(bytes)),
        (_, Cell::Integer(number)) => number.to_string(),
        (_, Cell::Real(bits)) => f64::from_bits(*bits).to_string(),
        (_, Cell::Text(bytes) | Cell::Blob(bytes)) => text(bytes),
    }
}

fn hash(values: &[String]) -> String {
    let mut all = String::new();
    for value in values {
        let _ = writeln!(all, "{value}");
    }
    format!("{:x}", md5::compute(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "hash-threshold 8\n\n# a comment\nskipif sqlite # not here\nstatement ok\n\
        SELECT now()\n\nonlyif sqlite # here\nstatement ok\nCREATE TABLE t(a,\n  b)\n\n\
        query IT rowsort label-1\nSELECT 2, 'b' UNION ALL SELECT 1, ''\n----\n1\n(empty)\n2\nb\n\n\
        onlyif mysql\nhalt\n\nstatement error\nSELECT\n\nhalt\n\nstatement ok\nNEVER\n";

    fn rows(rows: &[&[Cell]]) -> Said {
        Said { rows: rows.iter().map(|row| row.to_vec()).collect(), ..Said::default() }
    }

    #[test]
    fn conditions_and_the_end_are_honoured() {
        let script = parse(FILE).unwrap();
        let lines: Vec<_> = script.statements.iter().map(|statement| statement.line).collect();
        assert_eq!(lines, [10, 14, 25]);
        assert_eq!(script.left_out, 1);
        assert_eq!(&*script.statements[0].sql, "CREATE TABLE t(a,\n  b)");
        assert_eq!(script.expected[2], Expected::Error);
        assert!(parse("stament ok\nSELECT 1\n").is_err());
    }

    #[test]
    fn values_are_compared_in_the_order_that_the_file_says() {
        let expected = &parse(FILE).unwrap().expected[1];
        let (one, two) = (Cell::Integer(1), Cell::Integer(2));
        let (empty, b) = (Cell::Text(vec![]), Cell::Text(b"b".to_vec()));
        let said = rows(&[&[two.clone(), b], &[one, empty]]);
        assert_eq!(expected.differs(&said).unwrap(), None);
        assert!(expected.differs(&rows(&[&[two, Cell::Null]])).unwrap().is_some());
    }

    #[test]
    fn long_results_are_compared_by_their_hash() {
        let values = vec!["9 values hashing to 22e400a2ddbb013acf2a5852d6ab69fc".to_owned()];
        let expected = Expected::Rows { types: "I".into(), sort: Sort::None, values };
        let nine: Vec<Vec<Cell>> = (1..=9).map(|number| vec![Cell::Integer(number)]).collect();
        let said = Said { rows: nine, ..Said::default() };
        // `seq 9 | md5sum` says so.
        assert!(expected.differs(&said).unwrap().is_none(), "{}", hash(&["1".into()]));
    }
}
