//! What is read of a text, and how it weighs.

use super::*;

/// Long enough to be looked at.
fn of(sql: &str) -> usize {
    names(&format!("{sql} --{}", "-".repeat(SHORT)), &Views::default())
}

#[test]
fn names_count_for_each_select_around_them() {
    for (sql, expected) in [
        ("", 0),
        ("SELECT a, b FROM t WHERE c = 1 AND d IN (1, 2, 3)", 5),
        ("SELECT t.a FROM t", 2),
        ("SELECT (SELECT a FROM t) FROM u", 2 + 2 + 1),
        ("SELECT a FROM t UNION SELECT b FROM u", 4),
        ("SELECT (SELECT a UNION SELECT b), c", 2 + 2 + 1),
        ("INSERT INTO t(a) VALUES (b)", 3),
        ("SELECT 0x1F, 1e5, 12.5e3, .5", 0),
        ("SELECT /* a b c */ d -- e\n, f", 2),
        ("SELECT \"a b\", [c d], `e`, 'f'", 3),
        ("SELECT 'it''s', a", 1),
        ("SELECT 1 FROM a JOIN b USING /**/ ('c', d, \"e\")", 2 + 3),
        ("SELECT t . a, t/**/./**/b FROM t", 3),
        ("SELECT /* never ends", 0),
        ("SELECT 'never ends", 0),
        ("SELECT ä, [never ends", 2),
        ("SELECT 1 FROM a natural join b", 2 + NAMES_OF_NATURAL),
        ("SELECT 1 FROM a \u{feff}NATURAL JOIN b", 2 + NAMES_OF_NATURAL),
        ("INSERT INTO t VALUES (1) RETURNING *, t.*, a * 2, (b) * 2", 5 + 2 * NAMES_OF_STAR),
        ("SELECT 1 FROM a NATURAL/**/JOIN b", 2 + NAMES_OF_NATURAL),
        ("SELECT 'natural' FROM a", 1),
        (")))) SELECT a", 1),
        ("SELECT end, left, like, desc, by, with FROM t", 7),
        ("SELECT a, b; SELECT c; SELECT (SELECT d)", 2),
        ("SELECT a; SELECT b, c, (SELECT d;", 4),
    ] {
        assert_eq!(of(sql), expected, "{sql}");
    }
}

#[test]
fn what_a_view_or_a_common_table_expression_has_counts_wherever_it_is_named() {
    let views = Views::named(&[("v", 10), ("w", 100), ("o\"d", 1_000)]);
    for (sql, expected) in [
        ("SELECT 1 FROM v", 11),
        ("SELECT 1 FROM V, main.\"v\"", 11 + 1_000 + 1),
        ("SELECT (SELECT 1 FROM w)", 2 * 101),
        ("SELECT 't' FROM t", 1_000 + 1),
        ("WITH c AS (SELECT a, b) SELECT 1 FROM c, c", 2 + 2 + 2 * 2),
        ("WITH c(x) AS NOT MATERIALIZED (SELECT a) SELECT 1 FROM c", 3 + 1 + 1),
        ("WITH RECURSIVE c AS (SELECT 1 UNION SELECT a FROM c) SELECT 1 FROM c", 3 + 1 + 2),
        ("WITH a AS (SELECT 1 FROM b), b AS (SELECT x, y) SELECT 1 FROM a", 3 + 1 + 1 + 2),
        ("WITH a AS (SELECT x) SELECT y FROM t WINDOW z AS (ORDER BY p, q, r)", 10),
    ] {
        let found = names(sql, &views);
        assert!(found >= expected && found <= expected + 8, "{sql}: {found}, {expected}");
    }
    let chained: String =
        (1..60).map(|at| format!(", c{at} AS (SELECT a, b FROM c{})", at - 1)).collect();
    let chained = format!("WITH c0 AS (SELECT a){chained} SELECT 1 FROM c59");
    assert!(names(&chained, &views) < 60 * 5, "{}", names(&chained, &views));
    let circle = "WITH a AS (SELECT x FROM b), b AS (SELECT x FROM a) SELECT 1 FROM a";
    assert!(names(circle, &views) > MAX_NAMES);
    let chain: String =
        (1..30).map(|at| format!(", c{at} AS (SELECT 1 FROM c{0}, c{0})", at - 1)).collect();
    let doubled = format!("WITH c0 AS (SELECT a){chain} SELECT 1 FROM c29");
    assert!(names(&doubled, &views) > MAX_NAMES);
}

#[test]
fn views_are_weighed_with_those_that_they_use() {
    let views = |definitions: &[(&str, &str)]| {
        let texts = definitions.iter().map(|(name, sql)| ((*name).into(), (*sql).to_owned()));
        Views::of(&texts.collect())
    };
    let long = format!("CREATE VIEW a AS SELECT {}", vec!["x"; 100].join(","));
    let some = views(&[
        ("c", "CREATE VIEW c AS SELECT 1 FROM b, b"),
        ("a", &long),
        ("b", "CREATE VIEW b AS SELECT 1 FROM A, [a]"),
        ("x1", "CREATE VIEW x1 AS SELECT 1 FROM x2"),
        ("x2", "CREATE VIEW x2 AS SELECT 1 FROM x1"),
    ]);
    let of = |name| names(&format!("SELECT 1 FROM {name}"), &some);
    assert!((100..110).contains(&of("a")), "{}", of("a"));
    assert!((200..220).contains(&of("b")) && (400..440).contains(&of("c")), "{}", of("c"));
    assert!(of("x1") < 10, "which cannot be used");
}

#[test]
fn the_tables_around_a_name_are_counted() {
    for (sql, expected) in [
        ("CREATE VIEW v AS SELECT a, b FROM t, u JOIN w WHERE a IN (1, 2)", 3),
        ("SELECT (SELECT 1 FROM t, u), b FROM t ORDER BY 1, 2", 3),
        ("SELECT 1 FROM t UNION SELECT a, b FROM u", 2),
    ] {
        assert_eq!(tables(sql), expected, "{sql}");
    }
    assert_eq!(columns("CREATE TABLE t(a, b, c)"), 3);
}

#[test]
fn names_that_alter_looks_for_are_counted_in_all_of_a_definition() {
    for (sql, is_table, expected) in [
        ("CREATE VIEW v AS SELECT t.a, b FROM t", false, 7.0 * 7.0),
        ("CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT a; SELECT t.b; END", false, 64.0),
        ("CREATE TABLE t(a, b, PRIMARY KEY (a, b), UNIQUE(b))", true, 0.0),
        ("CREATE TABLE t(a, b AS (a + 1))", true, 5.0),
    ] {
        let all = pairs_of_definition(sql, is_table, &Views::default());
        // Words that are not known as keywords count.
        assert!(all >= expected && all <= 4.0 * expected, "{sql}: {all}");
    }
}

#[test]
fn an_index_has_terms_where_it_is_not_of_columns_alone() {
    for (sql, expected) in [
        ("CREATE UNIQUE INDEX i ON t(a, \"b\" COLLATE nocase DESC, 'c')", 0),
        ("CREATE INDEX i ON t(a + 1, b)", 2),
        ("CREATE INDEX i ON t((a), (b))", 2),
        ("CREATE INDEX i ON t(a IS b, c)", 2),
        ("CREATE INDEX i ON t(a NOTNULL)", 1),
        ("CREATE INDEX i ON t(a collate \"x\" asc, [b] desc)", 0),
        ("CREATE INDEX i ON t(a) WHERE b", 1),
        ("CREATE INDEX i ON t(a) WHERE b = 1 OR b = 2 and c IN (1, 2)", 4),
    ] {
        assert_eq!(terms_of_index(sql), expected, "{sql}");
    }
}

#[test]
fn what_is_planned_is_known_by_words() {
    use Planning::{Defines, Describes, Inserts, Queries};
    for (sql, expected) in [
        ("INSERT INTO t VALUES (1), (2)", Inserts),
        ("/* */ ; insert INTO t VALUES ((SELECT 1))", Queries),
        ("INSERT INTO t SELECT 1", Queries),
        ("REPLACE INTO t VALUES ('select')", Queries),
        ("REPLACE INTO t VALUES (1)", Inserts),
        ("CREATE TABLE t(a)", Defines),
        ("CREATE TABLE t AS SELECT 1", Queries),
        ("CREATE TEMP TABLE t AS SELECT 1", Queries),
        ("CREATE VIEW v AS SELECT 1", Defines),
        ("CREATE INDEX i ON t(a) WHERE a", Defines),
        ("DROP TABLE IF EXISTS t", Queries),
        ("DROP VIEW v", Defines),
        ("DROP INDEX i", Defines),
        ("PRAGMA table_list", Describes),
        ("CREATE \u{feff}TABLE t AS SELECT 1", Queries),
        ("CREATE TABLE t AS VALUES (1 IN v)", Queries),
        ("SELECT 1", Queries),
        ("WITH a AS (VALUES (1)) INSERT INTO t VALUES (2)", Queries),
        ("EXPLAIN CREATE TABLE t(a)", Queries),
        ("UPDATE t SET a = 1", Queries),
        ("", Queries),
    ] {
        assert_eq!(planning(sql), expected, "{sql}");
    }
}

#[test]
fn parameters_and_tables_are_counted() {
    for (sql, expected) in [("?, ?, ?", 0), ("?1, ?22, :a, @b, $c", 5), ("':a', \":b\"", 0)] {
        assert_eq!(named_parameters(sql), expected, "{sql}");
    }
    assert_eq!(mentions("SELECT T.a FROM t, main.t AS x, \"t\", u", "t"), 4);
}

#[test]
fn copies_of_result_columns_are_counted() {
    for (sql, expected) in [
        ("SELECT a, b, c FROM t WHERE a = 1 AND b = 2 ORDER BY c DESC, d ASC", 0),
        ("SELECT a + b x FROM t", 0),
        ("SELECT a + b x FROM t WHERE x AND x", 6),
        ("SELECT a + b AS x FROM t WHERE x = 1", 4),
        ("SELECT c, a + b AS 'x' FROM t WHERE x LIKE \"X\" OR [x] IN (`x`)", 16),
        ("SELECT (a + b) x, ? y, 1 z, 'a' w, :p p FROM t ORDER BY x, y, z, w, p", 5 + 4),
        ("SELECT 1.5 + a b FROM t HAVING b AND b", 6),
        ("SELECT a IS NOT DISTINCT FROM b x FROM t WHERE x", 6),
        ("SELECT CASE WHEN a THEN b END x FROM t ORDER BY max(x)", 6),
        ("SELECT a + NULL x FROM t GROUP BY x", 3),
        ("SELECT a desc FROM t ORDER BY desc DESC, b DESC", 1),
        ("SELECT a + b x FROM t x WHERE x.a = x.b", 0),
        ("SELECT t.a, u.b FROM t LEFT JOIN u ON u.a = t.a LEFT JOIN w x ON x.a = t.b", 0),
        ("SELECT a + b, c FROM t GROUP BY 1, 2", 6),
        ("SELECT a + b, c FROM t ORDER BY (1), +2 LIMIT 5", 6),
        ("SELECT a FROM t WHERE a IN (1, 2, 3)", 0),
        ("SELECT 1 FROM (SELECT a + b x FROM t) WHERE x AND x", 6),
        ("SELECT a + b x UNION SELECT c y ORDER BY x, y", 4),
        ("SELECT (SELECT a + b y FROM t) x FROM t WHERE x", 9),
    ] {
        assert_eq!(copies(sql), expected, "{sql}");
    }
}

#[test]
fn joins_tell_their_columns_or_do_not() {
    for (sql, expected) in [
        ("SELECT 1 FROM t JOIN u ON t.a IN (a, b)", Some(0)),
        ("SELECT 1 FROM t JOIN u USING/**/(a, 'b') JOIN w USING (\"c\") WHERE f(x)", Some(3)),
        ("SELECT 1 FROM t NATURAL LEFT JOIN u", None),
        ("SELECT ?1NATURAL JOIN u", None),
        ("SELECT 'natural'", Some(0)),
    ] {
        assert_eq!(joining_columns(sql), expected, "{sql}");
    }
    let named =
        named_tables("SELECT t.a FROM T JOIN [u] JOIN w", |name| name == "t" || name == "u");
    assert_eq!(named, HashMap::from([("t".into(), 2), ("u".into(), 1)]));
    assert!(is_odd("o\"d") && !is_odd("odd"));
}

#[test]
fn a_parameter_hides_nothing_that_is_behind_it() {
    let statement = "CREATE INDEX IF NOT EXISTS i ON t($a(/*));";
    let script = format!("{statement} SELECT 1 FROM v");
    assert_eq!(statements(&script).next(), Some(statement));
    assert!(is_one(statement) && is_one("SELECT 1; ; -- x") && !is_one(&script));
    let long = "-".repeat(SHORT);
    let joined = format!("SELECT 1 FROM t JOIN u ON ?1NATURAL JOIN w --{long}");
    assert!(names(&joined, &Views::default()) >= NAMES_OF_NATURAL);
    assert_eq!(of("SELECT ?1a, ?b FROM t"), 3);
    for parameter in ["$a(/*)", "@a(')", ":a::b(\")", "#a([)", "$a(/*"] {
        let sql = format!("SELECT {parameter} , a, b FROM t");
        assert_eq!(of(&sql), 3, "{sql}");
    }
}

#[test]
fn many_parentheses_and_bodies_are_weighed_in_no_time() {
    let start = std::time::Instant::now();
    let open = format!("WITH c AS(SELECT 1)SELECT {}{}", "(".repeat(150_000), "c,".repeat(150_000));
    assert!(names(&open, &Views::default()) > MAX_NAMES);
    let bodies = "WITH c AS(SELECT c,".repeat(30_000);
    assert!(names(&bodies, &Views::default()) > MAX_NAMES);
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_script_is_cut_where_sqlite_ends_its_statements() {
    let trigger = "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT CASE WHEN 1 THEN 2 END; \
                   SELECT ';'; /* ; END; */ END;";
    for parts in [
        &["SELECT 1;", " SELECT ';' -- ;\n;", ";", " SELECT 2"][..],
        &[trigger, "SELECT 1;"],
        &[
            "EXPLAIN QUERY PLAN CREATE TEMP TRIGGER r DELETE ON t BEGIN SELECT 1; END;",
            "VALUES (1)",
        ],
        &["CREATE TABLE trigger(a);", "CREATE TABLE [a;b](\"c;\");", "\n"],
        &[";", ";", "SELECT 1"],
    ] {
        let script = parts.concat();
        let cut: Vec<_> = statements(&script).collect();
        assert_eq!(cut.concat(), script);
        let expected: Vec<_> =
            parts.iter().map(|part| part.trim_matches([' ', ';', '\n'])).collect();
        let found: Vec<_> = cut.iter().map(|part| part.trim_matches([' ', ';', '\n'])).collect();
        assert_eq!(found, expected);
    }
    assert_eq!(statements("SELECT 1;\0 SELECT 2").collect::<Vec<_>>(), ["SELECT 1;"]);
    assert_eq!(statements("\u{feff}SELECT 1").collect::<Vec<_>>(), ["SELECT 1"]);
}

#[test]
fn a_short_text_is_not_looked_at() {
    assert_eq!(names("SELECT a FROM t NATURAL JOIN u", &Views::default()), 0);
}
