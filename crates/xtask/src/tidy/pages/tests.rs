//! Broken links, and options that no page explains.

use super::super::tree::Tree;
use super::check;

const OPTIONS: &str = "\
//! Owns.
pub struct Options;
impl Options {
    /// Makes one.
    pub fn new() -> Self { Options }
    /// How many.
    pub fn readers(mut self, n: usize) -> Self { self }
    /// Opens.
    pub fn open(self) -> Result<Database> { fail() }
    fn check(self) -> Self { self }
}
";
const INTERACTIVE: &str = "\
//! Owns.
pub struct InteractiveOptions;
impl InteractiveOptions {
    /// How many.
    pub fn connections(mut self, n: usize) -> InteractiveOptions { self }
}
";

fn findings(changes: &[(&str, &str)]) -> Vec<String> {
    let mut files = vec![
        ("crates/monolite/src/options.rs", OPTIONS),
        ("crates/monolite/src/options/interactive.rs", INTERACTIVE),
        ("docs/options.md", "`readers` `connections`"),
    ];
    files.retain(|(path, _)| changes.iter().all(|(changed, _)| changed != path));
    files.extend(changes.iter().filter(|(_, text)| !text.is_empty()));
    check(&Tree::of(&files)).iter().map(ToString::to_string).collect()
}

fn is_found(changes: &[(&str, &str)], what: &str) {
    let found = findings(changes);
    assert!(found.iter().any(|finding| finding.contains(what)), "{what}: {found:?}");
}

#[test]
fn explained_options_are_fine() {
    assert_eq!(findings(&[]), Vec::<String>::new());
}

#[test]
fn an_option_without_words_is_found() {
    is_found(&[("docs/options.md", "readers")], "docs/options.md:1: explain `readers`");
    is_found(&[("docs/options.md", "")], "explain `readers`");
    is_found(&[("docs/options.md", "`readers`")], "explain `connections`");
    let bare = OPTIONS.replace("    /// How many.\n", "");
    is_found(&[("crates/monolite/src/options.rs", &bare)], "options.rs:6: `readers` has no doc");
}

#[test]
fn a_hidden_option_needs_no_page() {
    let hidden = OPTIONS.replace("/// How many.", "#[doc(hidden)]");
    let changes = [("crates/monolite/src/options.rs", hidden.as_str()), ("docs/options.md", "")];
    assert!(findings(&changes)[0].contains("nothing public found"), "{:?}", findings(&changes));
}

#[test]
fn a_source_that_moved_away_is_found() {
    is_found(&[("crates/monolite/src/options.rs", "")], "options.rs:1: this file is missing");
    is_found(&[("crates/monolite/src/options.rs", "//! Owns.\n")], "nothing public found");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    is_found(&[("docs/a.md", "x\n[b](b.md)")], "docs/a.md:2: `b.md` leads to no file");
    is_found(&[("docs/a.md", "[b][1]\n\n[1]: b.md")], "`b.md` leads to no file");
    is_found(&[("docs/a.md", "![b](b.png)")], "`b.png` leads to no file");
    is_found(&[("docs/a.md", "[b](../../b.md)")], "`../../b.md` leads to no file");
    is_found(&[("docs/a.md", "[b](/etc/passwd)")], "`/etc/passwd` leads to no file");
    is_found(&[("docs/a.md", "[b](#there)\n\n# Here")], "has no heading `#there`");
    is_found(
        &[("docs/a.md", "[b](b.md#there)"), ("docs/b.md", "# Here")],
        "`docs/b.md` has no heading `#there`",
    );
}

#[test]
fn links_that_lead_somewhere_are_fine() {
    let page = "[b](b.md) [c](b.md#what-it-is) [d](#here) [e](../docs) [f](https://example.org/x) \
                [g](../)\n\n`[h](nowhere.md)`\n\n# Here\n";
    let changes = [("docs/a.md", page), ("docs/b.md", "## What *it* `is`?\n")];
    assert_eq!(findings(&changes), Vec::<String>::new());
}

#[test]
fn what_a_test_compares_with_is_not_a_page() {
    let text = "[b](b.md)";
    assert_eq!(findings(&[("crates/a/src/b/golden.md", text)]), Vec::<String>::new());
    is_found(&[("crates/a/README.md", text)], "`b.md` leads to no file");
}
