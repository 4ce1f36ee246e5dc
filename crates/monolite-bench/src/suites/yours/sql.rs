//! The user's SQL, cut into statements, with its parameters numbered.
//!
//! It is read only as far as that needs: quotes and comments are passed over, a semicolon ends a
//! statement, and `:name`, `@name` or `$name` is a parameter. What a statement means is for the
//! databases to say.

use anyhow::{Result, ensure};

/// A statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// With `?1`, `?2` … for its parameters.
    pub sqlite: String,
    /// With `$1`, `$2` … for them.
    pub postgres: String,
    /// Names of the parameters, the first one of number 1.
    pub names: Vec<String>,
}

/// Cuts SQL into statements.
pub fn parse(sql: &str) -> Result<Vec<Statement>> {
    let (mut statements, mut open) = (Vec::new(), Statement::default());
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            ';' => {
                finish(&mut statements, &mut open);
                rest = &rest[1..];
                continue;
            }
            '\'' | '"' | '`' => quoted(rest, first, sql)?,
            '[' => quoted(rest, ']', sql)?,
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => {
                let end = rest.find("*/");
                ensure!(end.is_some(), "{sql:?} has a comment without an end; add */");
                end.unwrap_or_default() + 2
            }
            // A cast of PostgreSQL, and a comparison of JSON.
            ':' if rest.starts_with("::") => 2,
            ':' | '@' | '$' if name_length(&rest[1..]) > 0 => {
                let length = 1 + name_length(&rest[1..]);
                open.parameter(&rest[..length]);
                rest = &rest[length..];
                continue;
            }
            '?' => {
                anyhow::bail!("{sql:?} has a parameter without a name; write :name instead of ?")
            }
            _ if first.is_alphanumeric() || first == '_' => name_length(rest).max(1),
            _ => first.len_utf8(),
        };
        let length = rest.char_indices().map(|(at, _)| at).find(|at| *at >= length);
        let length = length.unwrap_or(rest.len());
        open.text(&rest[..length]);
        rest = &rest[length..];
    }
    finish(&mut statements, &mut open);
    ensure!(!statements.is_empty(), "{sql:?} has no statement; write one, as 'SELECT 1'");
    Ok(statements)
}

fn finish(statements: &mut Vec<Statement>, open: &mut Statement) {
    let done = std::mem::take(open);
    if !done.sqlite.trim().is_empty() {
        statements.push(Statement {
            sqlite: done.sqlite.trim().to_owned(),
            postgres: done.postgres.trim().to_owned(),
            names: done.names,
        });
    }
}

/// Length of what begins with a quote; one that is doubled begins again at once.
fn quoted(rest: &str, end: char, sql: &str) -> Result<usize> {
    let close = rest.char_indices().skip(1).find(|(_, c)| *c == end);
    ensure!(close.is_some(), "{sql:?} has a quote without an end; add {end}");
    Ok(close.map_or(rest.len(), |(at, c)| at + c.len_utf8()))
}

fn name_length(text: &str) -> usize {
    text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len())
}

impl Statement {
    fn text(&mut self, text: &str) {
        self.sqlite.push_str(text);
        self.postgres.push_str(text);
    }

    fn parameter(&mut self, name: &str) {
        let known = self.names.iter().position(|known| known == name);
        let number = 1 + known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        self.sqlite.push_str(&format!("?{number}"));
        self.postgres.push_str(&format!("${number}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_and_quotes_passed_over() {
        let sql = "UPDATE t SET a = :a, b = ':a;' -- :c;\n WHERE \"x:y\" = @id AND c = :a::int;";
        let statements = parse(sql).unwrap();
        assert_eq!(statements.len(), 1);
        assert_eq!(statements[0].names, [":a", "@id"]);
        assert!(statements[0].sqlite.starts_with("UPDATE t SET a = ?1, b = ':a;' -- :c;\n"));
        assert!(statements[0].sqlite.ends_with("\"x:y\" = ?2 AND c = ?1::int"));
        assert!(statements[0].postgres.ends_with("\"x:y\" = $2 AND c = $1::int"));
    }

    #[test]
    fn statements_end_at_semicolons_that_are_none_in_quotes() {
        let names = |sql: &str| -> Vec<String> {
            parse(sql).unwrap().into_iter().map(|statement| statement.sqlite).collect()
        };
        assert_eq!(names("SELECT 'it''s; é' ; ; SELECT 2"), ["SELECT 'it''s; é'", "SELECT 2"]);
        assert_eq!(names("SELECT 1 /* ; */"), ["SELECT 1 /* ; */"]);
    }

    #[test]
    fn errors_say_what_is_open() {
        let error = |sql: &str| parse(sql).unwrap_err().to_string();
        assert!(error("SELECT 'a").contains("quote without an end"));
        assert!(error("SELECT /* a").contains("comment without an end"));
        assert!(error("SELECT ?").contains("write :name"));
        assert!(error(" ; ").contains("no statement"));
    }
}
