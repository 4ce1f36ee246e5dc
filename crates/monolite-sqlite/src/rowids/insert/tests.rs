//! What is read as a simple `INSERT`, and what its second form is.

use super::*;

fn form(sql: &str) -> Option<String> {
    let columns = ["id", "a", "b"].map(String::from);
    let key = Key { names: &["id", "rowid"], columns: &columns };
    Insert::read(sql)?.with_key(sql, key)
}

#[test]
fn the_key_is_said_where_it_is_left_to_sqlite() {
    for (sql, expected) in [
        ("INSERT INTO t VALUES (NULL, 1, 2)", "INSERT INTO t VALUES (monolite_rowid(NULL), 1, 2)"),
        ("INSERT INTO t VALUES (?, ?, ?)", "INSERT INTO t VALUES (monolite_rowid(?), ?, ?)"),
        (
            "insert into t(a) values(f(1,2))",
            "insert into t(\"id\", a) values(monolite_rowid(NULL), f(1,2))",
        ),
        (
            "REPLACE INTO main.\"t\" AS x (a, ID) VALUES ((1), $k);",
            "REPLACE INTO main.\"t\" AS x (a, ID) VALUES ((1), monolite_rowid($k));",
        ),
        (
            "INSERT OR IGNORE INTO t DEFAULT /* all */ VALUES RETURNING id+1",
            "INSERT OR IGNORE INTO t (\"id\") VALUES (monolite_rowid(NULL)) RETURNING id+1",
        ),
        (
            "INSERT INTO t(a)VALUES('VALUES (''),(')ON CONFLICT DO NOTHING -- x",
            "INSERT INTO t(\"id\", a)VALUES(monolite_rowid(NULL), 'VALUES (''),(')ON CONFLICT DO \
             NOTHING -- x",
        ),
        (
            "INSERT INTO t(rowid) VALUES (null)",
            "INSERT INTO t(rowid) VALUES (monolite_rowid(null))",
        ),
    ] {
        assert_eq!(form(sql).as_deref(), Some(expected), "{sql}");
    }
}

#[test]
fn what_is_not_certain_is_left_alone() {
    for sql in [
        "",
        "INSERT",
        "SELECT 1",
        "INSERT INTO t VALUES (1, 2, 3)",
        "INSERT INTO t VALUES (NULL, 1, 2), (7, 1, 2)",
        "INSERT INTO t(id, a) VALUES (?, 1), (?, 2)",
        "INSERT INTO t(id, rowid) VALUES (NULL, NULL)",
        "INSERT INTO t(a) SELECT 1",
        "INSERT INTO t(a) VALUES (1) UNION SELECT 2",
        "INSERT INTO t(a) VALUES (1) ORDER BY 1",
        "WITH c AS (SELECT 1) INSERT INTO t(a) VALUES (1)",
        "EXPLAIN INSERT INTO t(a) VALUES (1)",
        "INSERT INTO temp.t(a) VALUES (1)",
        "INSERT INTO t(a) VALUES (1); DELETE FROM t",
        "INSERT INTO t(a) VALUES ($a(1,2))",
        "INSERT INTO t(a) VALUES ($a::b)",
        "INSERT INTO t(a) VALUES (1) /* no end",
        "INSERT INTO t(a) VALUES ('no end)",
        "INSERT INTO t(a) VALUES (1\0)",
        "INSERT INTO t(a) VALUES (\u{feff}1)",
        "INSERT INTO t(a) VALUES (monolite_ROWID(1))",
        "INSERT INTO t(a) VALUES ()",
        "INSERT INTO t(a) VALUES (1,)",
        "INSERT INTO t() VALUES (1)",
    ] {
        assert_eq!(form(sql), None, "{sql}");
    }
}

#[test]
fn a_trigger_is_known_by_its_time() {
    for (sql, leaves_alone) in [
        ("CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END", true),
        ("CREATE TRIGGER \"BEFORE\" AFTER INSERT ON t BEGIN SELECT 1; END", true),
        ("CREATE TRIGGER r BEFORE UPDATE ON t BEGIN SELECT 1; END", true),
        ("CREATE TRIGGER r DELETE ON t BEGIN SELECT 1; END", true),
        ("CREATE TRIGGER r BEFORE INSERT ON t BEGIN SELECT 1; END", false),
        ("CREATE TRIGGER after INSERT ON t BEGIN SELECT 1; END", false),
        ("CREATE TRIGGER main.r INSERT ON t BEGIN SELECT 1; END", false),
    ] {
        assert_eq!(leaves_new_rows_alone(sql), leaves_alone, "{sql}");
    }
}

const PIECES: &str = r#"
    INSERT REPLACE OR INTO t main . ( ) , VALUES DEFAULT NULL ? ?1 :a $b @c id a "a" [a] `a`
    'a' -- /* */ ; ON RETURNING AS é ' " [ 1 - x'00' rowid IGNORE
"#;

#[test]
fn any_text_is_read_and_nothing_is_taken_out_of_it() {
    let mut seed = 1_u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut read = 0;
    let pieces: Vec<&str> = PIECES.split_whitespace().chain(["\n", "\u{feff}"]).collect();
    for round in 0..200_000 {
        let mut sql = match round % 3 {
            0 => String::new(),
            1 => "INSERT INTO t(a) VALUES (".into(),
            _ => "REPLACE INTO t VALUES (NULL, ".into(),
        };
        for _ in 0..draw(12) {
            sql.push_str(pieces[draw(pieces.len())]);
            if draw(2) == 0 {
                sql.push(' ');
            }
        }
        let _ = leaves_new_rows_alone(&sql);
        let Some(form) = form(&sql) else { continue };
        read += 1;
        if sql.to_ascii_uppercase().contains("DEFAULT") {
            // Its words are replaced.
            continue;
        }
        let mut rest = form.chars();
        assert!(sql.chars().all(|sign| rest.any(|it| it == sign)), "{sql}: {form}");
    }
    assert!(read > 200, "{read}");
}
