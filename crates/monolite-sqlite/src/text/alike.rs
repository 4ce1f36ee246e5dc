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
//!
//! A column of a `SELECT` that is given no name has its own text for one, comments and all. Nobody
//! looks for those of the outermost `SELECT` of a query.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};

use super::{Planning, Scan, Token, is_keyword, is_one_of, planning};

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
    let (mut names, mut most) = (Names::default(), 0);
    let (mut scan, mut lists) = (Scan::of(sql), Lists::new());
    loop {
        let start = sql.len() - scan.rest.len();
        let Some(token) = scan.next() else { break };
        let end = sql.len() - scan.rest.len();
        if let Some(column) = lists.take(token, &sql[..end], start)
            && (defines || lists.is_inner)
        {
            names.insert(column);
        }
        let name = match token {
            Token::Word(word) if !is_keyword(word) => word,
            Token::Quoted(name) => name,
            Token::Text(name) if defines || lists.is_named() => name,
            Token::Semicolon => {
                most = most.max(names.most_in_common());
                names = Names::default();
                continue;
            }
            _ => continue,
        };
        let mut name = name.to_owned();
        append_doubled(&mut name, &mut scan, sql);
        names.insert(&name);
    }
    most.max(names.most_in_common())
}

/// Names, by the sums of their characters. Of each there is its beginning, with a number that tells
/// it from others that begin so: the texts of columns within columns have many times the length of
/// the whole.
#[derive(Default)]
struct Names {
    by_sum: HashMap<u8, BTreeSet<(Vec<u8>, u64)>>,
    /// Makes the numbers. Nobody knows beforehand which.
    numbers: RandomState,
    /// The name that is looked at.
    lower: Vec<u8>,
}

impl Names {
    fn insert(&mut self, name: &str) {
        self.lower.clear();
        self.lower.extend(name.bytes().map(|byte| byte.to_ascii_lowercase()));
        let sum = self.lower.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        let number = self.numbers.hash_one(&self.lower);
        let beginning = &self.lower[..self.lower.len().min(MAX_ALIKE + 1)];
        self.by_sum.entry(sum).or_default().insert((beginning.to_vec(), number));
    }

    fn most_in_common(&self) -> usize {
        let of = |names: &BTreeSet<(Vec<u8>, u64)>| -> usize {
            let next = names.iter().skip(1);
            names.iter().zip(next).map(|((one, _), (next, _))| in_common(one, next)).sum()
        };
        self.by_sum.values().map(of).max().unwrap_or(0)
    }
}

/// A column in the list of a `SELECT`, as far as it was read.
#[derive(Clone, Copy, Default)]
struct Column {
    /// Where it begins, if it does.
    start: Option<usize>,
    /// Whether it is more than the name of a column, which is its name.
    is_expression: bool,
    /// Whether a name follows, or has followed.
    is_named: bool,
    /// Whether there was white space last.
    is_behind_blank: bool,
}

/// The lists of columns of the `SELECT`s of a text.
struct Lists {
    /// The column that is being read in each parenthesis that is open, and outside of them.
    open: Vec<Option<Column>>,
    /// Whether the last column was in parentheses.
    is_inner: bool,
    /// Whether the last word was `DISTINCT`, behind which `FROM` ends no list.
    is_distinct: bool,
}

impl Lists {
    fn new() -> Lists {
        Lists { open: vec![None], is_inner: false, is_distinct: false }
    }

    /// Whether what comes is, or may be, the name that is given to a column.
    fn is_named(&self) -> bool {
        self.open.last().is_some_and(|column| column.is_some_and(|it| it.is_named))
    }

    /// Goes on behind `token`, which begins at `start` and ends with `text`. Gives the text of the
    /// column that has ended there, if it has no name.
    fn take<'s>(&mut self, token: Token<'_>, text: &'s str, start: usize) -> Option<&'s str> {
        let is = |known: &str| matches!(token, Token::Word(it) if it.eq_ignore_ascii_case(known));
        let was_distinct = self.is_distinct;
        self.is_distinct = is("distinct") || (was_distinct && token == Token::Blank);
        self.is_inner = self.open.len() > 1;
        let column = self.open.last_mut()?;
        match token {
            Token::Comma => {
                let ended = column.take()?;
                *column = Some(Column::default());
                ended.name(&text[..start])
            }
            Token::Close => {
                let ended = if self.is_inner { self.open.pop()? } else { column.take() };
                ended?.name(&text[..start])
            }
            Token::Semicolon => {
                let ended = column.take();
                self.open = vec![None];
                ended?.name(&text[..start])
            }
            Token::Word(_) if is("select") => {
                *column = Some(Column::default());
                None
            }
            Token::Word(_) if is("from") && !was_distinct => column.take()?.name(&text[..start]),
            _ => {
                if let Some(column) = column {
                    column.take(token, text, start);
                }
                if token == Token::Open {
                    self.open.push(None);
                }
                None
            }
        }
    }
}

impl Column {
    fn take(&mut self, token: Token<'_>, text: &str, start: usize) {
        let is = |known| matches!(token, Token::Word(it) if is_one_of(known, it));
        match token {
            Token::Blank => {
                self.is_behind_blank = true;
                self.is_expression |= text[start..].starts_with(['-', '/']);
                return;
            }
            Token::Word(_) if self.start.is_none() && is(&["distinct", "all"]) => return,
            Token::Word(_) if is(&["as"]) => self.is_named = true,
            Token::Word(_) | Token::Quoted(_) | Token::Dot => {
                self.is_expression |= self.start.is_some() && self.is_behind_blank;
            }
            _ => self.is_expression = true,
        }
        self.is_behind_blank = false;
        self.start = self.start.or(Some(start));
    }

    /// The name of one that ends with `text`, if that is its own text.
    fn name(self, text: &str) -> Option<&str> {
        let is_own = self.is_expression && !self.is_named;
        self.start.filter(|_| is_own).map(|start| text[start..].trim_end())
    }
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
    fn columns_without_names_have_their_texts() {
        let (names, common) = (made_up(100, 200), 99 * 194);
        let list = |form: &str| -> String {
            let columns: Vec<_> = names.iter().map(|it| form.replace("{}", it)).collect();
            columns.join(", ")
        };
        for form in
            ["'{}'", "1 + '{}'", "1 /*{}*/", "NULL /*{}*/ ISNULL", "1 IS DISTINCT FROM '{}'"]
        {
            let columns = list(form);
            assert!(
                alike(&format!("CREATE VIEW v AS SELECT {columns} FROM t")) >= common,
                "{form}"
            );
            let common_table = format!("WITH c AS (SELECT DISTINCT {columns}) SELECT 1 FROM c");
            assert!(alike(&common_table) >= common, "{form}");
            // Nobody looks for those.
            assert_eq!(alike(&format!("SELECT {columns} FROM t, (SELECT 1)")), 0, "{form}");
        }
        let named = list("1 AS '{}'");
        assert!(alike(&format!("SELECT * FROM (SELECT {named})")) >= common);
        let digits = names.iter().map(|it| it.replace('p', "1")).collect::<Vec<_>>().join(",");
        assert!(alike(&format!("CREATE VIEW v AS SELECT {digits} FROM t")) >= common);
        // Neither these, which have other names, nor what is no column.
        let others: Vec<_> = (0..100).map(|at| format!("'{}' AS c{at}", names[at])).collect();
        assert!(alike(&format!("SELECT 1 FROM (SELECT {})", others.join(","))) <= MAX_ALIKE);
        let values = list("'{}'");
        assert_eq!(alike(&format!("SELECT 1 FROM (SELECT 1 FROM t WHERE a IN ({values}))")), 0);
        assert_eq!(alike(&format!("SELECT coalesce({values}) FROM t")), 0);
    }

    #[test]
    fn of_long_names_the_beginning_is_kept_and_each_counts() {
        let mut names = Names::default();
        let long = "p".repeat(1 << 20);
        for end in ["09", "18", "27", "27"] {
            names.insert(&format!("{long}{end}"));
        }
        let kept: usize = names.by_sum.values().flatten().map(|(kept, _)| kept.len()).sum();
        assert_eq!(kept, 3 * (MAX_ALIKE + 1));
        assert!(names.most_in_common() > MAX_ALIKE);
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
