//! Names, directives and comparisons, without a database.

use super::*;

fn made(migrations: &Migrations) -> Vec<AppliedMigration> {
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
fn directives_are_the_first_comments_and_known() {
    let of = |sql| foreign_keys_of("1_a.sql", sql);
    assert_eq!(of("SELECT 1; -- monolite: foreign_keys=off").unwrap(), ForeignKeys::On);
    assert_eq!(of("-- monolite: foreign_keys=off\nSELECT 1").unwrap(), ForeignKeys::Off);
    assert_eq!(of("-- why\n-- monolite:foreign_keys=off\n").unwrap(), ForeignKeys::Off);
    assert!(of("-- monolite: foreign_keys=of\n").unwrap_err().to_string().contains("not known"));
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
fn what_was_made_is_compared_by_number_text_and_name() {
    let of = |all: &[(&str, &str)]| {
        all.iter().fold(Migrations::new(), |all, (name, sql)| all.with(name, sql).unwrap())
    };
    let old = of(&[("1_a.sql", "a"), ("3_c.sql", "c")]);
    let seen = made(&old);
    for (now, problem, pending) in [
        (&[("1_a.sql", "a"), ("3_c.sql", "c"), ("4_d.sql", "d")][..], None, &["4_d.sql"][..]),
        (&[("1_a.sql", "A"), ("3_c.sql", "c")], Some("1_a.sql was edited"), &[]),
        (&[("1_a.sql", "a")], Some("3_c.sql was made in this database and is missing"), &[]),
        (&[("1_b.sql", "a"), ("3_c.sql", "c")], Some("1_b.sql was called 1_a.sql"), &[]),
        (
            &[("1_a.sql", "a"), ("2_b.sql", "b"), ("3_c.sql", "c")],
            Some("2_b.sql was not made and comes before 3_c.sql"),
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
