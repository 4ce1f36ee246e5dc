//! Each limit, kept and broken.

use super::super::tree::Tree;
use super::check;

/// Findings in a tree that has the two first pages and one source file.
fn findings(source: &str) -> Vec<String> {
    findings_at("crates/a/src/lib.rs", source)
}

fn findings_at(path: &str, source: &str) -> Vec<String> {
    let pages = [("README.md", "# a\n"), ("ARCHITECTURE.md", "# a\n"), (path, source)];
    check(&Tree::of(&pages)).iter().map(ToString::to_string).collect()
}

fn has(findings: &[String], what: &str) -> bool {
    findings.iter().any(|finding| finding.contains(what))
}

fn function_of(lines: usize) -> String {
    let body = "    let _ = 1;\n".repeat(lines - 2);
    format!("fn long() {{\n{body}}}\n")
}

#[test]
fn a_short_file_with_a_header_is_fine() {
    assert_eq!(findings("//! Owns nothing.\nfn f() {}\n"), Vec::<String>::new());
}

#[test]
fn a_file_without_a_header_is_found() {
    for source in ["fn f() {}\n", "// plain\n", "//!\n//! late\n", ""] {
        assert!(has(&findings(source), "lib.rs:1: begin the file"), "{source:?}");
    }
}

#[test]
fn a_wide_line_is_found_unless_it_is_an_address() {
    let wide = format!("//! Owns.\n// {}\n", "x".repeat(98));
    assert!(has(&findings(&wide), "lib.rs:2: 101 columns"));
    let address = format!("//! Owns.\n// https://{}\n", "x".repeat(98));
    assert_eq!(findings(&address), Vec::<String>::new());
}

#[test]
fn a_long_file_is_found_and_its_tests_do_not_count() {
    let line = "const A: () = ();\n";
    let long = format!("//! Owns.\n{}", line.repeat(800));
    assert!(has(&findings(&long), "801 lines without tests"));
    assert_eq!(findings_at("crates/a/src/lib/tests.rs", &long), Vec::<String>::new());
    let split = format!(
        "//! Owns.\n{}#[cfg(test)]\nmod tests {{\n{}}}\n",
        line.repeat(500),
        line.repeat(500)
    );
    assert_eq!(findings(&split), Vec::<String>::new());
}

#[test]
fn a_long_function_is_found_wherever_it_hides() {
    let long = function_of(71);
    for source in [
        long.clone(),
        format!("mod m {{\n{long}}}"),
        format!("struct S;\nimpl S {{\n{long}}}"),
        format!("trait T {{\n{long}}}"),
        format!("fn outer() {{\n{}\n}}\n", function_of(71)),
    ] {
        let source = format!("//! Owns.\n{source}");
        assert!(has(&findings(&source), "`long` has 71 lines"), "{source}");
    }
    assert_eq!(findings(&format!("//! Owns.\n{}", function_of(70))), Vec::<String>::new());
}

#[test]
fn a_file_that_does_not_parse_is_found() {
    assert!(has(&findings("//! Owns.\nfn {\n"), "does not parse"));
}

#[test]
fn long_or_missing_first_pages_are_found() {
    let long = "x\n".repeat(301);
    let tree = Tree::of(&[("ARCHITECTURE.md", long.as_str())]);
    let findings: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert!(has(&findings, "README.md:1: this page is missing"));
    assert!(has(&findings, "ARCHITECTURE.md:1: 301 lines"));
}
