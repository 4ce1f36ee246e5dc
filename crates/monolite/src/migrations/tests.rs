//! Names, directives and comparisons, without a database.

use super::*;

fn applied(migrations: &Migrations) -> Vec<AppliedMigration> {
    let of = |it: &Arc<Migration>| AppliedMigration {
        number: it.number,
        name: it.name.clone(),
        checksum: it.checksum.clone(),
        applied: 0,
    };
    migrations.list.iter().map(of).collect()
}

#[test]
fn a_name_is_a_number_and_a_name() {
    for (name, number) in [
        ("0001_a.sql", Some(1)),
        ("7_b_c.sql", Some(7)),
        ("20261124120000_x.sql", Some(20_261_124_120_000)),
        ("0001.sql", None),
        ("0001_.sql", None),
        ("_a.sql", None),
        ("a_1.sql", None),
        ("+1_a.sql", None),
        ("0001_a.SQL", None),
        ("99999999999999999999_a.sql", None),
    ] {
        assert_eq!(number_of(name), number, "{name}");
    }
}

#[test]
fn they_are_in_the_order_of_their_numbers_which_are_different() {
    let all = Migrations::new().with("10_b.sql", "").unwrap().with("dir/9_a.sql", "").unwrap();
    assert_eq!(all.compared_with(&[]).pending, ["9_a.sql", "10_b.sql"]);
    let twice = all.with("0010_c.sql", "").unwrap_err().to_string();
    assert!(twice.contains("10_b.sql and 0010_c.sql have the same number"), "{twice}");
}

#[test]
fn directives_are_found_before_the_first_statement() {
    let of = |sql: &str| directives::read("1_a.sql", sql).map(|it| it.foreign_keys);
    for sql in [
        "",
        "SELECT 1",
        "-- why\nSELECT '-- monolite: foreign_keys=off'",
        "-- monolite_x",
        "-- why: rebuild a",
        "-- PRAGMA foreign_keys=off",
    ] {
        assert_eq!(of(sql).unwrap(), ForeignKeys::On, "{sql}");
    }
    let line = "-- monolite: foreign_keys=off";
    for before in ["", "-- why\n", "\n\n", "\u{feff}", "/* a licence\n * of some lines */\n", " \t"]
    {
        assert_eq!(
            of(&format!("{before}{line}\nSELECT 1")).unwrap(),
            ForeignKeys::Off,
            "{before:?}"
        );
    }
    assert_eq!(of("-- monolite:foreign_keys=off").unwrap(), ForeignKeys::Off);
    let two = "-- monolite: rebuild=a\n-- monolite: rebuild=\"b c\"\nSELECT 1";
    let two = directives::read("1_a.sql", two).unwrap();
    assert_eq!(
        (two.foreign_keys, two.rebuilds),
        (ForeignKeys::Off, vec!["a".into(), "b c".into()])
    );
    for (said, table) in [("b online", "b"), ("[b] ONLINE", "b"), ("\"online\" Online", "online")] {
        let read = directives::read("1_a.sql", &format!("-- monolite: rebuild={said}")).unwrap();
        assert_eq!((read.online.as_deref(), read.rebuilds.len()), (Some(table), 0), "{said}");
    }
    let read = directives::read("1_a.sql", "-- monolite: rebuild=\"order\"").unwrap();
    assert_eq!(read.rebuilds, ["order"]);
}

#[test]
fn what_looks_like_a_directive_and_is_none_is_refused() {
    for sql in [
        "-- monolite: foreign_keys=of\n",
        "--monolite: foreign_keys=off\n",
        "-- monolite: rebuild=\n",
        "-- monolite: rebuild=b onlin\n",
        "-- monolite: rebuild=b c online\n",
        "-- monolite: rebuild=\"b\n",
        "-- monolite: rebuilds=a\n",
        "-- Monolite: foreign_keys=off\n",
        "-- monolite foreign_keys=off\n",
        "/* monolite: foreign_keys=off */",
        "CREATE TABLE t(v);\n-- monolite: foreign_keys=off\n",
        "SELECT 'it''s'; -- monolite: foreign_keys=off",
        "SELECT [a'b]; --  MONOLITE",
        "-- monolit: rebuild=a\n",
        "-- Monoltie:Rebuild=a online\n",
        "-- rebuild=a\n",
        "-- foreign_keys=off\n",
    ] {
        let error = directives::read("1_a.sql", sql).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("looks like a directive"), "{sql}: {error}");
    }
    assert!(Migration::new("1_a.sql", "\0C\0R").unwrap_err().to_string().contains("UTF-8"));
}

#[test]
fn a_comment_without_an_end_is_refused() {
    for (sql, line) in [
        ("CREATE TABLE a(v);\n\n/* old:\nCREATE TABLE b(v);", 3),
        ("/*", 1),
        ("SELECT 1; /*/ SELECT 2;", 1),
        ("-- why\nSELECT '/*'; /* * / ", 2),
    ] {
        let error = Migration::new("1_a.sql", sql).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let told = format!("1_a.sql:{line} has a comment that begins with /* and does not end");
        assert!(error.to_string().contains(&told), "{sql}: {error}");
    }
    for sql in ["/**/", "SELECT '/*', \"/*\", [/*], `/*` -- /*", "/* /* */ SELECT 1 /***/ -- x"] {
        Migration::new("1_a.sql", sql).unwrap();
    }
}

#[test]
fn a_file_whose_ending_is_in_another_case_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let read = || Migrations::from_directory(directory.path());
    for (name, text) in [("0001_a.sql", ""), ("notes.txt", ""), ("sql", ""), ("a.sql~", "")] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    assert_eq!(read().unwrap().compared_with(&[]).pending, ["0001_a.sql"]);
    std::fs::write(directory.path().join("0002_b.SQL"), "").unwrap();
    let error = read().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("\"0002_b.SQL\" is no name of a migration"), "{error}");
}

#[test]
fn line_endings_do_not_count_and_everything_else_does() {
    let sum = |sql| Migration::new("1_a.sql", sql).unwrap().checksum;
    assert_eq!(sum("SELECT 1;\nSELECT 2;\n"), sum("SELECT 1;\r\nSELECT 2;\r\n"));
    assert_ne!(sum("SELECT 1;"), sum("SELECT 2;"));
    assert_ne!(sum("SELECT 1;"), sum("SELECT 1; "));
    // It is in files, and never changes.
    assert_eq!(sum("SELECT 1;"), SELECT_1);
}

const SELECT_1: &str = "849d7623c244a4765dbcea96b90806c2";

#[test]
fn what_was_applied_is_compared_by_number_text_and_name() {
    let of = |all: &[(&str, &str)]| {
        all.iter().fold(Migrations::new(), |all, (name, sql)| all.with(name, sql).unwrap())
    };
    let old = of(&[("1_a.sql", "a"), ("3_c.sql", "c")]);
    let seen = applied(&old);
    for (now, problem, pending) in [
        (&[("1_a.sql", "a"), ("3_c.sql", "c"), ("4_d.sql", "d")][..], None, &["4_d.sql"][..]),
        (&[("1_a.sql", "A"), ("3_c.sql", "c")], Some("1_a.sql was edited"), &[]),
        (&[("1_a.sql", "a")], Some("3_c.sql was applied to this database and is missing"), &[]),
        (&[("1_b.sql", "a"), ("3_c.sql", "c")], Some("1_b.sql was called 1_a.sql"), &[]),
        (
            &[("1_a.sql", "a"), ("2_b.sql", "b"), ("3_c.sql", "c")],
            Some("2_b.sql is pending and comes before 3_c.sql"),
            &["2_b.sql"],
        ),
    ] {
        let status = of(now).compared_with(&seen);
        assert_eq!(status.pending, pending);
        match problem {
            None => assert_eq!(status.problems, [] as [&str; 0]),
            Some(problem) => assert!(status.problems[0].contains(problem), "{status:?}"),
        }
    }
}
