//! Sizes and headers: what keeps a file readable from its first line to its last.

use std::ops::RangeInclusive;

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use super::Finding;
use super::tree::{File, Tree};

/// A file longer than this has two subjects.
const FILE_LINES: usize = 800;
/// A function longer than this does not fit on a screen.
const FUNCTION_LINES: usize = 70;
/// The width at which two files fit side by side.
const COLUMNS: usize = 100;
/// The README is read in five minutes or not at all.
const README_LINES: usize = 120;
/// The map is shorter than any walk through the code.
const ARCHITECTURE_LINES: usize = 300;

/// Checks headers, line widths and the lengths of files, functions and the two first pages.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        header(file, &mut findings);
        columns(file, &mut findings);
        match syn::parse_file(&file.text) {
            Ok(parsed) => {
                file_length(file, &parsed, &mut findings);
                function_lengths(file, &parsed, &mut findings);
            }
            Err(error) => findings.push(Finding::new(
                &file.path,
                error.span().start().line,
                format!("this does not parse: {error}"),
            )),
        }
    }
    page_length(tree, "README.md", README_LINES, &mut findings);
    page_length(tree, "ARCHITECTURE.md", ARCHITECTURE_LINES, &mut findings);
    findings
}

/// The first line says what the file owns.
fn header(file: &File, findings: &mut Vec<Finding>) {
    let first = file.text.lines().next().unwrap_or_default();
    let words = first.strip_prefix("//!").map_or("", str::trim);
    if words.is_empty() {
        let message = "begin the file with `//! ` and a sentence on what it owns";
        findings.push(Finding::new(&file.path, 1, message));
    }
}

/// A line that is one long address cannot be broken and is let through.
fn columns(file: &File, findings: &mut Vec<Finding>) {
    for (at, line) in file.text.lines().enumerate() {
        let wide = line.chars().count();
        if wide > COLUMNS && !line.contains("://") {
            let message = format!("{wide} columns; break the line at {COLUMNS}");
            findings.push(Finding::new(&file.path, at + 1, message));
        }
    }
}

fn file_length(file: &File, parsed: &syn::File, findings: &mut Vec<Finding>) {
    if file.is_test() {
        return;
    }
    let tests: usize = parsed
        .items
        .iter()
        .filter(|item| is_test_module(item))
        .map(|item| span_lines(item).count())
        .sum();
    let long = file.text.lines().count() - tests;
    if long > FILE_LINES {
        let message = format!("{long} lines without tests; split the file below {FILE_LINES}");
        findings.push(Finding::new(&file.path, 1, message));
    }
}

pub(crate) fn is_test_module(item: &syn::Item) -> bool {
    let syn::Item::Mod(module) = item else { return false };
    module.attrs.iter().any(|attr| {
        attr.path().is_ident("cfg") && attr.parse_args::<syn::Ident>().is_ok_and(|it| it == "test")
    })
}

/// The lines on which `item` stands, counted from 1.
pub(crate) fn span_lines(item: &syn::Item) -> RangeInclusive<usize> {
    let span = item.span();
    span.start().line..=span.end().line
}

fn function_lengths(file: &File, parsed: &syn::File, findings: &mut Vec<Finding>) {
    let mut ruler = Ruler { path: &file.path, findings };
    ruler.visit_file(parsed);
}

/// Measures every function from its `fn` to its closing brace.
struct Ruler<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Ruler<'_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let start = signature.fn_token.span.start().line;
        let long = block.brace_token.span.close().end().line - start + 1;
        if long > FUNCTION_LINES {
            let name = &signature.ident;
            let message = format!("`{name}` has {long} lines; split it below {FUNCTION_LINES}");
            self.findings.push(Finding::new(self.path, start, message));
        }
    }
}

impl<'ast> Visit<'ast> for Ruler<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

fn page_length(tree: &Tree, path: &str, most: usize, findings: &mut Vec<Finding>) {
    let long = tree.get(path).map(|file| file.text.lines().count());
    match long {
        None => findings.push(Finding::new(path, 1, "this page is missing")),
        Some(long) if long > most => {
            findings.push(Finding::new(path, 1, format!("{long} lines; at most {most}")));
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests;
