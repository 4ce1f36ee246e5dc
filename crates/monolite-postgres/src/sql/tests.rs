//! Each place where a sign that looks like a parameter is none, and each where it is one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn integers(numbers: &[i64]) -> Parameters {
    Parameters::Positional(numbers.iter().copied().map(Value::Integer).collect())
}

fn text(sql: &str, parameters: &Parameters) -> String {
    rewrite(sql, parameters).unwrap().text
}

#[test]
fn parameters_are_numbered_without_gaps_as_sqlite_numbers_them() {
    for (sql, numbers, expected, values) in [
        ("?, ?", vec![1, 2], "$1, $2", vec![1, 2]),
        ("?2, ?1, ?2", vec![1, 2], "$1, $2, $1", vec![2, 1]),
        ("?3", vec![1, 2, 3], "$1", vec![3]),
        ("?2, ?", vec![1, 2, 3], "$1, $2", vec![2, 3]),
        (":a, :b, :a", vec![1, 2], "$1, $2, $1", vec![1, 2]),
        ("?||'x'", vec![1], "$1||'x'", vec![1]),
        ("?::text", vec![1], "$1::text", vec![1]),
        (":a::text", vec![1], "$1::text", vec![1]),
        ("(?1)", vec![1], "($1)", vec![1]),
    ] {
        let values = values.into_iter().map(Value::Integer).collect();
        let expected = Statement { text: expected.into(), values };
        assert_eq!(rewrite(sql, &integers(&numbers)).unwrap(), expected, "{sql}");
    }
}

#[test]
fn what_only_looks_like_a_parameter_is_copied() {
    for sql in [
        "'?' || ':a' || '''?'",
        "\"a?\" || \"b\"\":c\"",
        r"E'\'?' || e'\\'",
        "-- ? :a\n1",
        "/* ? /* :a */ ? */ 1",
        "$$ ? :a $$ || $x$ $$ ? $x$",
        "x::text::int",
        "a[1:2]",
        "f(a := 1)",
        "a$1",
        "'unended ?",
        "/* unended ?",
        "$q$ unended ?",
        "'é?' || \"ß:a\"",
        "1.5e3",
        "a @> b",
    ] {
        assert_eq!(text(sql, &integers(&[])), sql);
    }
}

#[test]
fn a_quote_ends_where_postgresql_ends_it() {
    for (sql, expected) in [
        (r"'\' || ?", r"'\' || $1"),
        (r"E'\\' || ?", r"E'\\' || $1"),
        (r"type'\' || ?", r"type'\' || $1"),
        ("/* /* */ */ ?", "/* /* */ */ $1"),
        ("/**/?", "/**/$1"),
        ("/*/ */?", "/*/ */$1"),
        ("$a$ $b$ $a$ ?", "$a$ $b$ $a$ $1"),
        ("'a'':b' || ?", "'a'':b' || $1"),
        ("--\n?", "--\n$1"),
    ] {
        assert_eq!(text(sql, &integers(&[1])), expected);
    }
}

#[test]
fn names_are_found_with_and_without_their_sigil() {
    let pairs = |names: &[&str]| {
        names
            .iter()
            .map(|name| ((*name).to_owned(), Value::Text((*name).into())))
            .collect::<Vec<_>>()
    };
    let statement = rewrite(":b, :a, ?1", &Parameters::Named(pairs(&["a", ":b"]))).unwrap();
    assert_eq!(statement.text, "$1, $2, $1");
    assert_eq!(statement.values, [Value::Text(":b".into()), Value::Text("a".into())]);
    for (sql, names) in [(":a", vec!["a", "b"]), (":a, :b", vec!["a"]), ("?", vec!["a"])] {
        assert!(rewrite(sql, &Parameters::Named(pairs(&names))).is_err(), "{sql}");
    }
    assert_eq!(text(":a", &Parameters::Fields(pairs(&["a", "b"]))), "$1");
}

#[test]
fn wrong_numbers_and_the_sessions_statements_are_refused() {
    for (sql, given) in [("?", 0), ("?", 2), ("?2", 1), ("1", 1), ("?0", 0), ("$1", 1), ("a=$1", 1)]
    {
        assert!(rewrite(sql, &integers(&vec![1; given])).is_err(), "{sql}");
    }
    for sql in [
        "COMMIT",
        " /* a */ -- b\n rollback",
        "SELECT 1; commit",
        "SAVEPOINT a",
        "set transaction isolation level read committed",
        ";;Begin",
    ] {
        assert!(rewrite(sql, &integers(&[])).is_err(), "{sql}");
        assert!(check_batch(sql).is_err(), "{sql}");
    }
    for sql in ["SELECT 'x; COMMIT'", "UPDATE a SET b = 1", "SELECT begin FROM a; DELETE FROM a"] {
        assert!(check_batch(sql).is_ok(), "{sql}");
    }
    assert!(check_batch("SELECT ?").is_err());
}
