//! Owns how many characters SQLite compares when it looks for a name among those of a text that
//! look alike.
//!
//! # Why
//! SQLite compares two names character by character only where the sums of their characters are
//! equal but for multiples of 256. Names that somebody has made up to have one sum and one
//! beginning are compared nearly to the end, at every place where one is looked for: 490 columns
//! of 1,950 characters, joined sixty times, took 20 ms for each name (SQLite 3.54.1, x86-64), and
//! held the writer for 9 s where `ALTER TABLE` or `pragma_table_info` looked at a view of them.
//!
//! # Algorithm
//! The names with one sum are put in order. What each has in common with the one before it, all
//! together, is the most that a further name can have in common with all of them, but for itself.

use std::collections::{BTreeSet, HashMap};

use super::{Planning, Scan, Token, is_keyword, planning};

/// The most characters by which the names in a text may be alike: 0.5 µs for each table around a
/// name, with 0.35 µs that 500 columns of any name take.
pub(crate) const MAX_ALIKE: usize = 1_500;

/// By how many characters the names of the statement of `sql` are alike whose names are it most.
/// What a definition has of texts may be names, too.
pub(crate) fn alike(sql: &str) -> usize {
    if sql.len() <= MAX_ALIKE {
        return 0;
    }
    let defines = planning(sql) == Planning::Defines;
    let (mut by_sum, mut most) = (HashMap::<u8, BTreeSet<Vec<u8>>>::new(), 0);
    let mut scan = Scan::of(sql);
    while let Some(token) = scan.next() {
        let mut name = match token {
            Token::Word(word) if !is_keyword(word) => word.to_owned(),
            Token::Quoted(name) => name.to_owned(),
            Token::Text(name) if defines => name.to_owned(),
            Token::Semicolon => {
                most = most.max(most_in_common(&by_sum));
                by_sum.clear();
                continue;
            }
            _ => continue,
        };
        append_doubled(&mut name, &mut scan, sql);
        let name = name.into_bytes().to_ascii_lowercase();
        let sum = name.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        by_sum.entry(sum).or_default().insert(name);
    }
    most.max(most_in_common(&by_sum))
}

/// Appends to a `name` of `sql`, which `scan` has taken last, what stands there behind quotes that
/// are doubled: one of them each time, and what is up to the next.
fn append_doubled(name: &mut String, scan: &mut Scan<'_>, sql: &str) {
    while let Some(quote @ ('"' | '`' | '\'')) = scan.rest.chars().next()
        && sql[..sql.len() - scan.rest.len()].ends_with(quote)
        && let Some(Token::Quoted(more) | Token::Text(more)) = scan.next()
    {
        name.push(quote);
        name.push_str(more);
    }
}

fn most_in_common(by_sum: &HashMap<u8, BTreeSet<Vec<u8>>>) -> usize {
    let of = |names: &BTreeSet<Vec<u8>>| -> usize {
        names.iter().zip(names.iter().skip(1)).map(|(one, next)| in_common(one, next)).sum()
    };
    by_sum.values().map(of).max().unwrap_or(0)
}

fn in_common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names with one sum: each number stands there with its complement.
    fn made_up(count: usize, length: usize) -> Vec<String> {
        let beginning = "p".repeat(length - 6);
        (0..count).map(|at| format!("{beginning}{at:03}{:03}", 999 - at)).collect()
    }

    #[test]
    fn names_with_one_sum_and_one_beginning_are_alike() {
        let table = |names: &[String]| format!("CREATE TABLE t({})", names.join(","));
        let (names, common) = (made_up(100, 200), 99 * 194);
        assert!(alike(&table(&names)) >= common);
        assert!(alike(&table(&names).to_uppercase()) >= common);
        for quotes in ["\"", "'", "`"] {
            let quoted: Vec<_> = names.iter().map(|it| format!("{quotes}{it}{quotes}")).collect();
            assert!(alike(&table(&quoted)) >= common, "{quotes}");
        }
        for quote in ["\"", "'", "`"] {
            let doubled = |name: &String| {
                let (beginning, end) = name.split_at(194);
                format!("{quote}{beginning}{quote}{quote}{end}{quote}")
            };
            let doubled: Vec<_> = names.iter().map(doubled).collect();
            assert!(alike(&table(&doubled)) >= common, "{quote}{quote}");
        }
        assert!(alike(&table(&made_up(7, 200))) <= MAX_ALIKE);
        // One alone, however often.
        assert_eq!(alike(&table(&vec!["p".repeat(1_000); 100])), 0);
    }

    #[test]
    fn names_that_people_give_and_values_are_not_too_much_alike() {
        let numbered = |name: &str| {
            let columns: Vec<_> = (0..500).map(|at| format!("{name}{at}")).collect();
            alike(&format!("CREATE TABLE t({})", columns.join(", ")))
        };
        for name in ["c", "column_", "measurement_of_sensor_"] {
            let alike = numbered(name);
            assert!((1..MAX_ALIKE).contains(&alike), "{name}: {alike}");
        }
        let values: Vec<_> = made_up(100, 200).iter().map(|it| format!("('{it}')")).collect();
        assert_eq!(alike(&format!("INSERT INTO t VALUES {}", values.join(","))), 0);
        let statements: Vec<_> =
            made_up(100, 200).iter().map(|it| format!("DROP TABLE {it}")).collect();
        assert!(alike(&statements.join("; ")) <= MAX_ALIKE);
    }
}
