//! Each way in which one module names another, in a small made-up crate.

use super::super::tree::Tree;
use super::check;

fn findings(files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::of(files)).iter().map(ToString::to_string).collect()
}

const LIB: (&str, &str) = ("crates/m/src/lib.rs", "mod a;\nmod b;\nmod c;\n");

#[test]
fn a_circle_is_found_whichever_way_it_is_said() {
    let ways = [
        "use crate::b::B;\n",
        "use super::b::B;\n",
        "use crate::{b, c};\n",
        "use crate::{\n    b::B,\n    c,\n};\n",
        "fn f() {\n    crate::b::f();\n}\n",
        "fn f(b: &crate::b::B) {}\n",
        "pub(crate) use crate::b;\n",
    ];
    for way in ways {
        let files =
            [LIB, ("crates/m/src/a.rs", way), ("crates/m/src/b/x.rs", "use crate::a::A;\n")];
        let found = findings(&files);
        assert_eq!(found.len(), 1, "{way}: {found:?}");
        assert!(found[0].ends_with("in a circle: a ─► b ─► a"), "{found:?}");
        assert!(findings(&files[..2]).is_empty(), "{way}");
    }
}

#[test]
fn a_long_circle_is_found_and_the_shortest_is_told() {
    let files = [
        LIB,
        ("crates/m/src/a.rs", "use crate::b::B;\n"),
        ("crates/m/src/b.rs", "use crate::c::C;\n"),
        ("crates/m/src/c.rs", "\nuse crate::a::A;\n"),
    ];
    let expected = "crates/m/src/a.rs:1: modules use each other in a circle: a ─► b ─► c ─► a";
    assert_eq!(findings(&files), [expected]);
}

#[test]
fn a_circle_among_children_is_found_where_they_are() {
    let files = [
        ("crates/m/src/a.rs", "mod x;\nmod y;\n"),
        ("crates/m/src/a/x.rs", "use super::y::Y;\n"),
        ("crates/m/src/a/y.rs", "use crate::a::x::X;\n"),
    ];
    let expected = "crates/m/src/a/x.rs:1: modules use each other in a circle: x ─► y ─► x";
    assert_eq!(findings(&files), [expected]);
}

#[test]
fn parents_tests_comments_and_other_crates_are_no_part_of_a_circle() {
    let files = [
        LIB,
        ("crates/m/src/a.rs", "mod x;\nuse x::X;\nuse crate::b::B;\n"),
        ("crates/m/src/a/x.rs", "use super::A;\nuse crate::a::A;\n"),
        (
            "crates/m/src/b.rs",
            "// use crate::a::A;\n/// [`crate::a`]\nstruct B;\n#[cfg(test)]\nuse crate::a::A;\n\
             #[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\nstruct After;\n",
        ),
        ("crates/m/src/b/tests.rs", "use crate::a::A;\n"),
        ("crates/n/src/b.rs", "use crate::a::A;\n"),
        ("crates/n/src/a.rs", "use m::b::B;\n"),
    ];
    assert_eq!(findings(&files), [""; 0]);
    let behind = "#[cfg(test)]\nmod tests {\n}\nuse crate::a::A;\n";
    let mut planted = files.to_vec();
    planted[3].1 = behind;
    assert_eq!(findings(&planted).len(), 1);
}

#[test]
fn a_file_that_no_module_names_is_found() {
    let named = [
        ("crates/m/src/lib.rs", "mod a;\npub mod c;\n"),
        ("crates/m/src/a.rs", "#[cfg(test)]\nmod tests;\n"),
        ("crates/m/src/a/tests.rs", ""),
        ("crates/m/src/c/mod.rs", "pub(crate) mod d;\n"),
        ("crates/m/src/c/d.rs", ""),
        ("crates/m/tests/it/main.rs", "mod e;\n"),
        ("crates/m/tests/it/e.rs", ""),
        ("crates/m/examples/f.rs", ""),
    ];
    let findings = |files: &[(&str, &str)]| super::unnamed(&Tree::of(files));
    assert!(findings(&named).is_empty());
    for parent in [0, 1, 3, 5] {
        let mut lacking = named;
        lacking[parent].1 = "";
        assert!(!findings(&lacking).is_empty(), "{}", named[parent].0);
    }
}
