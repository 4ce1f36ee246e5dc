//! Each forbidden word, left in and in places where it does no harm.

use super::super::tree::Tree;
use super::check;

fn findings(source: &str) -> Vec<String> {
    findings_at("crates/a/src/lib.rs", source)
}

fn findings_at(path: &str, source: &str) -> Vec<String> {
    check(&Tree::of(&[(path, source)])).iter().map(ToString::to_string).collect()
}

fn is_found(source: &str, what: &str) {
    assert!(findings(source).iter().any(|finding| finding.contains(what)), "{source}");
}

fn is_fine(source: &str) {
    assert_eq!(findings(source), Vec::<String>::new(), "{source}");
}

#[test]
fn notes_to_oneself_are_found_even_inside_macros() {
    is_found("fn f() {\n    dbg!(1);\n}", "lib.rs:2: `dbg!`");
    is_found("fn f() { todo!() }", "`todo!`");
    is_found("fn f() { unimplemented!(\"later\") }", "`unimplemented!`");
    is_found("fn f() { assert!(dbg!(true)); }", "`dbg!`");
    is_fine("fn todo() {} // todo!()\nconst A: &str = \"dbg!()\";");
}

#[test]
fn a_word_left_in_a_comment_is_found() {
    is_found(concat!("// FIX", "ME: wrong\n"), "mend it");
    is_fine("// fixed\n");
}

#[test]
fn an_ignored_test_is_found() {
    is_found("#[test]\n#[ignore]\nfn t() {}", "lib.rs:2: only the gate runs");
    is_found("#[ignore = \"slow\"]\nfn t() {}", "only the gate runs");
    is_fine("#[ignore = \"long: the gate runs it\"]\nfn t() {}");
    is_fine("/// #[ignore]\n#[cfg(ignored)]\nfn t() {}");
}

#[test]
fn a_matches_that_asserts_nothing_is_found() {
    is_found("fn f() { matches!(a, B); }", "asserts nothing");
    is_found("fn f() { let a = 1; matches!(a, 1); }", "asserts nothing");
    is_found("fn f() { if a {} std::matches!(a, 1); }", "asserts nothing");
    is_found("proptest! { fn f() { matches!(a, 1); } }", "asserts nothing");
}

#[test]
fn a_matches_whose_value_is_used_is_fine() {
    is_fine("fn f() -> bool { matches!(a, B) }");
    is_fine("fn f() { let b = matches!(a, B); }");
    is_fine("fn f() { let b = c && matches!(a, B); return matches!(a, B); }");
    is_fine("fn f() { assert!(matches!(a, B)); }");
}

#[test]
fn unsafe_is_found_outside_its_crate() {
    is_found("fn f() { unsafe { g() } }", "`unsafe` belongs");
    is_fine("#![forbid(unsafe_code)] // unsafe");
    let at_home = findings_at("crates/monolite-sqlite/src/vfs.rs", "unsafe fn f() {}");
    assert_eq!(at_home, Vec::<String>::new());
}

#[test]
fn a_path_of_one_machine_is_found() {
    for home in ["root", "work", "home"] {
        for before in ["", "see ", "(", "\"", "file://", "PATH="] {
            let text = format!("fine\n{before}/{home}/me/x");
            let found = findings_at("docs/a.md", &text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with("docs/a.md:2: "), "{found:?}");
        }
    }
}

#[test]
fn a_relative_path_or_an_address_is_fine() {
    for text in ["a/root/b", "../home/x", "$DIR/work/x", "https://example.org/home/x", "/rooted/"] {
        assert_eq!(findings_at("docs/a.md", text), Vec::<String>::new(), "{text}");
    }
}
