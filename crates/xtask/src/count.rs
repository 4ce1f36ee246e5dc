//! What the repository weighs, as `cargo xtask count [CHECKOUT]`: lines by crate and kind, words,
//! public names, options, assertions.
//!
//! A line is code, comment or blank. Test code is what stands under `#[cfg(test)]` or `#[test]`, in
//! a `tests` folder, a `tests.rs` or a `models.rs`, and all of the crates in [`TEST_CRATES`].
//! Pages in `docs/results` are records and do not count as words.

use std::collections::BTreeMap;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

use crate::tidy::shape::{is_test_module, span_lines};
use crate::tidy::tree::{File, Tree};

/// Crates that users install or link; the lines of all others serve tests or measurements.
const PRODUCT: [&str; 5] =
    ["monolite", "monolite-sqlite", "monolite-archive", "monolite-ltx", "monolite-cli"];
/// Crates that are test code as a whole.
const TEST_CRATES: [&str; 3] = ["monolite-testkit", "monolite-tests", "monolite-torture"];
/// Words that hide which mechanism acts.
const VAGUE: [&str; 3] = ["nobody", "whoever", "somebody"];

/// Lines of one crate, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    comments: usize,
    tests: usize,
    all: usize,
}

/// Prints the tables for the checkout at `root`.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let tree = Tree::read(root)?;
    let mut by_crate: BTreeMap<&str, Lines> = BTreeMap::new();
    let mut assertions = 0;
    let mut vague = 0;
    for file in tree.rust() {
        let name = crate_of(&file.path);
        let (lines, product) = weigh(file);
        by_crate.entry(name).or_default().add(lines);
        if PRODUCT.contains(&name) && !is_test_code(file) {
            assertions += count_assertions(&product);
            vague += count_vague(&product);
        }
    }
    println!("| crate | code | comments | tests | all lines |\n|---|--:|--:|--:|--:|");
    let (mut product, mut total) = (Lines::default(), Lines::default());
    for (name, lines) in &by_crate {
        row(name, *lines);
        total.add(*lines);
        if PRODUCT.contains(name) {
            product.add(*lines);
        }
    }
    row("**product**", product);
    row("**all**", total);
    let pages = || tree.files().iter().filter(|it| is_page(&it.path));
    let words: usize = pages().map(|it| it.text.split_whitespace().count()).sum();
    vague += pages().map(|it| count_vague(&it.text)).sum::<usize>();
    println!("\n| what | number |\n|---|--:|");
    println!("| words of documentation | {words} |");
    println!("| {} in documentation and product source | {vague} |", VAGUE.join(", "));
    println!("| assertions in product code | {assertions} |");
    for name in ["monolite", "monolite-archive"] {
        let names = tree.get(&format!("crates/{name}/src/lib.rs")).map_or(0, public_names);
        println!("| public names at the root of {name} | {names} |");
    }
    let options = tree
        .get("docs/options.md")
        .map_or(0, |page| page.text.lines().filter(|line| line.starts_with("| `")).count());
    println!("| options | {options} |");
    Ok(())
}

fn row(name: &str, lines: Lines) {
    let Lines { code, comments, tests, all } = lines;
    println!("| {name} | {code} | {comments} | {tests} | {all} |");
}

fn crate_of(path: &str) -> &str {
    let mut parts = path.split('/');
    match (parts.next(), parts.next()) {
        (Some("crates"), Some(name)) => name,
        (Some("examples"), Some(_)) => "examples",
        _ => "others",
    }
}

fn is_page(path: &str) -> bool {
    path.ends_with(".md") && !path.starts_with("docs/results/")
}

fn is_test_code(file: &File) -> bool {
    file.is_test() || TEST_CRATES.contains(&crate_of(&file.path))
}

impl Lines {
    fn add(&mut self, other: Lines) {
        self.code += other.code;
        self.comments += other.comments;
        self.tests += other.tests;
        self.all += other.all;
    }
}

/// The lines of `file` by kind, and its text without test modules.
fn weigh(file: &File) -> (Lines, String) {
    let mut lines = Lines { all: file.text.lines().count(), ..Lines::default() };
    let parsed = syn::parse_file(&file.text).ok();
    let tests: Vec<_> = parsed
        .iter()
        .flat_map(|it| &it.items)
        .filter(|item| is_test_module(item) || is_test_item(item))
        .map(span_lines)
        .collect();
    let mut product = String::new();
    for (at, line) in file.text.lines().enumerate() {
        let is_test = is_test_code(file) || tests.iter().any(|span| span.contains(&(at + 1)));
        let line = line.trim();
        if is_test {
            lines.tests += 1;
            continue;
        }
        product.push_str(line);
        product.push('\n');
        if line.starts_with("//") {
            lines.comments += 1;
        } else if !line.is_empty() {
            lines.code += 1;
        }
    }
    (lines, product)
}

/// A test function, or an item under `#[cfg(test)]`, that stands beside the code.
fn is_test_item(item: &syn::Item) -> bool {
    let attrs = match item {
        syn::Item::Fn(it) => &it.attrs,
        syn::Item::Impl(it) => &it.attrs,
        syn::Item::Struct(it) => &it.attrs,
        syn::Item::Const(it) => &it.attrs,
        _ => return false,
    };
    let is_of_tests =
        |attr: &syn::Attribute| attr.parse_args::<syn::Ident>().is_ok_and(|word| word == "test");
    attrs
        .iter()
        .any(|it| it.path().is_ident("test") || (it.path().is_ident("cfg") && is_of_tests(it)))
}

fn count_vague(text: &str) -> usize {
    let words = text.split(|it: char| !it.is_alphanumeric());
    words.filter(|word| VAGUE.iter().any(|vague| vague.eq_ignore_ascii_case(word))).count()
}

/// `assert!`, `assert_eq!` and `assert_ne!`, those of constants included.
fn count_assertions(text: &str) -> usize {
    let lines = text.lines().filter(|line| !line.starts_with("//"));
    let starts = lines.flat_map(|line| line.match_indices("assert").map(move |(at, _)| (line, at)));
    let is_own =
        |line: &str, at: usize| !line[..at].ends_with(|it: char| it.is_alphanumeric() || it == '_');
    let is_macro = |line: &str, at: usize| {
        ["assert!", "assert_eq!", "assert_ne!"].iter().any(|it| line[at..].starts_with(it))
    };
    starts.filter(|(line, at)| is_own(line, *at) && is_macro(line, *at)).count()
}

/// Names that a crate's root offers and does not hide.
fn public_names(file: &File) -> usize {
    let Ok(parsed) = syn::parse_file(&file.text) else { return 0 };
    let mut names = 0;
    for item in &parsed.items {
        let (vis, attrs) = match item {
            syn::Item::Use(it) => (&it.vis, &it.attrs),
            syn::Item::Mod(it) => (&it.vis, &it.attrs),
            syn::Item::Fn(it) => (&it.vis, &it.attrs),
            syn::Item::Struct(it) => (&it.vis, &it.attrs),
            syn::Item::Enum(it) => (&it.vis, &it.attrs),
            syn::Item::Trait(it) => (&it.vis, &it.attrs),
            syn::Item::Type(it) => (&it.vis, &it.attrs),
            syn::Item::Const(it) => (&it.vis, &it.attrs),
            _ => continue,
        };
        if matches!(vis, syn::Visibility::Public(_)) && !attrs.iter().any(is_hiding) {
            names += if let syn::Item::Use(it) = item { leaves(&it.tree) } else { 1 };
        }
    }
    names
}

/// `#[doc(hidden)]`, and `#[cfg(…)]`, which a feature has to open.
fn is_hiding(attr: &syn::Attribute) -> bool {
    let is_hidden = || {
        attr.parse_args::<TokenStream>().is_ok_and(|tokens| {
            tokens.into_iter().any(|it| matches!(it, TokenTree::Ident(word) if word == "hidden"))
        })
    };
    attr.path().is_ident("cfg") || (attr.path().is_ident("doc") && is_hidden())
}

fn leaves(tree: &syn::UseTree) -> usize {
    match tree {
        syn::UseTree::Path(it) => leaves(&it.tree),
        syn::UseTree::Group(it) => it.items.iter().map(leaves).sum(),
        syn::UseTree::Name(_) | syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! Nobody.\n\nfn f() {\n    assert!(true, \"somebody\");\n}\n\n\
                          #[cfg(test)]\nmod tests {\n    fn g() { assert!(true); }\n}\n";

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn lines_are_counted_once_by_kind() {
        let (lines, product) = weigh(&file("crates/monolite/src/a.rs", SOURCE));
        assert_eq!(lines, Lines { code: 3, comments: 1, tests: 4, all: 10 });
        assert_eq!(count_assertions(&product), 1);
        assert_eq!(count_vague(&product), 2);
        let (lines, _) = weigh(&file("crates/monolite-torture/src/a.rs", SOURCE));
        assert_eq!(lines, Lines { tests: 10, all: 10, ..Lines::default() });
    }

    #[test]
    fn tests_beside_the_code_are_no_product() {
        let text = "fn f() {}\n\n#[test]\nfn t() {\n    assert!(true);\n}\n";
        let (lines, product) = weigh(&file("crates/monolite/src/a.rs", text));
        assert_eq!((lines.code, lines.tests, count_assertions(&product)), (1, 4, 0));
    }

    #[test]
    fn names_of_a_root_are_those_that_are_shown() {
        let text = "pub use a::{B, c::D};\npub mod e;\nmod f;\n#[doc(hidden)]\npub mod g;\n\
                    #[cfg(feature = \"x\")]\npub use h::I;\n";
        assert_eq!(public_names(&file("crates/monolite/src/lib.rs", text)), 3);
    }
}
