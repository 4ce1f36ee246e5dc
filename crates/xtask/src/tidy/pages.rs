//! The pages: links that lead somewhere, and every option explained.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use syn::{Attribute, FnArg, ImplItem, Item, ReturnType, Visibility};

use super::Finding;
use super::tree::{File, Tree};

/// Sources of options, and the type that each has.
const OPTIONS: [(&str, &str); 2] = [
    ("crates/monolite/src/options.rs", "Options"),
    ("crates/monolite/src/options/interactive.rs", "InteractiveOptions"),
];
const OPTIONS_PAGE: &str = "docs/options.md";

/// Checks the links of every page, and that options are documented.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in tree.files().iter().filter(|file| is_page(&file.path)) {
        links(tree, page, &mut findings);
    }
    for (source, name) in OPTIONS {
        let list = |file: &syn::File| option_methods(file, name);
        explained(tree, source, OPTIONS_PAGE, list, &mut findings);
    }
    findings
}

/// Something public that a page has to explain.
struct Public {
    name: String,
    line: usize,
    documented: bool,
}

fn explained(
    tree: &Tree,
    source: &str,
    page: &str,
    list: impl Fn(&syn::File) -> Vec<Public>,
    findings: &mut Vec<Finding>,
) {
    let Some(file) = tree.get(source) else {
        findings.push(Finding::new(source, 1, "this file is missing; tidy reads it"));
        return;
    };
    // A file that does not parse is reported by `shape`.
    let Ok(parsed) = syn::parse_file(&file.text) else { return };
    let found = list(&parsed);
    if found.is_empty() {
        findings.push(Finding::new(source, 1, "nothing public found here; tidy reads this file"));
    }
    let text = tree.get(page).map_or("", |page| &page.text);
    for item in found {
        if !item.documented {
            let message = format!("`{}` has no doc comment", item.name);
            findings.push(Finding::new(source, item.line, message));
        }
        if !text.contains(&format!("`{}`", item.name)) {
            let message = format!("explain `{}` of {source}", item.name);
            findings.push(Finding::new(page, 1, message));
        }
    }
}

/// Public methods of the builder `name` that take it and give it back.
fn option_methods(file: &syn::File, name: &str) -> Vec<Public> {
    let mut found = Vec::new();
    for item in &file.items {
        let Item::Impl(block) = item else { continue };
        if block.trait_.is_some() || !is_type(&block.self_ty, &[name]) {
            continue;
        }
        for item in &block.items {
            let ImplItem::Fn(method) = item else { continue };
            let public = matches!(method.vis, Visibility::Public(_));
            if public && is_builder(&method.sig, name) && !is_hidden(&method.attrs) {
                found.push(Public {
                    name: method.sig.ident.to_string(),
                    line: method.sig.fn_token.span.start().line,
                    documented: is_documented(&method.attrs),
                });
            }
        }
    }
    found
}

/// Whether a method goes from `self` to `Self`.
fn is_builder(signature: &syn::Signature, name: &str) -> bool {
    let takes_self = matches!(signature.inputs.first(), Some(FnArg::Receiver(_)));
    let gives_self = match &signature.output {
        ReturnType::Type(_, output) => is_type(output, &["Self", name]),
        ReturnType::Default => false,
    };
    takes_self && gives_self
}

/// Whether a type is one of the given names, with or without `&mut` and generics.
fn is_type(found: &syn::Type, names: &[&str]) -> bool {
    match found {
        syn::Type::Path(path) => {
            let last = path.path.segments.last();
            last.is_some_and(|last| names.iter().any(|name| last.ident == name))
        }
        syn::Type::Reference(reference) => is_type(&reference.elem, names),
        _ => false,
    }
}

/// Whether an item says `#[doc(hidden)]` or `#[cfg(feature = "testing")]`: it is for our own tests,
/// not for users.
fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let says = |text: &str| {
            attribute.parse_args::<TokenStream>().is_ok_and(|it| it.to_string() == text)
        };
        (attribute.path().is_ident("doc") && says("hidden"))
            || (attribute.path().is_ident("cfg") && says(r#"feature = "testing""#))
    })
}

/// Whether an item has a doc comment, which is `#[doc = "…"]` to the parser.
fn is_documented(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("doc") && attribute.meta.require_name_value().is_ok()
    })
}

/// Whether a file is for readers; Markdown beside sources is what a test compares with.
fn is_page(path: &str) -> bool {
    path.ends_with(".md") && !path.split('/').any(|folder| folder == "src" || folder == "tests")
}

/// A relative link must lead to a file of the repository, and its `#anchor` to a heading.
fn links(tree: &Tree, page: &File, findings: &mut Vec<Finding>) {
    let parser = Parser::new_ext(&page.text, Options::ENABLE_TABLES).into_offset_iter();
    for (event, range) in parser {
        let (Event::Start(Tag::Link { dest_url, .. }) | Event::Start(Tag::Image { dest_url, .. })) =
            event
        else {
            continue;
        };
        if dest_url.contains("://") || dest_url.starts_with("mailto:") {
            continue;
        }
        if let Some(message) = broken(tree, page, &dest_url) {
            let line = page.text[..range.start].matches('\n').count() + 1;
            findings.push(Finding::new(&page.path, line, message));
        }
    }
}

/// Says what is wrong with a relative link, if anything.
fn broken(tree: &Tree, page: &File, link: &str) -> Option<String> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(p, a)| (p, Some(a)));
    let target = if path.is_empty() { Some(page.path.clone()) } else { join(&page.path, path) };
    let Some(target) = target.filter(|target| target.is_empty() || tree.has(target)) else {
        return Some(format!("`{link}` leads to no file of this repository"));
    };
    let anchor = anchor.filter(|_| target.ends_with(".md"))?;
    let headings = tree.get(&target).map(|file| anchors(&file.text)).unwrap_or_default();
    (!headings.contains(anchor)).then(|| format!("`{target}` has no heading `#{anchor}`"))
}

/// The path of `link` as seen from `page`, or `None` if it leaves the repository.
fn join(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    if link.starts_with('/') {
        return None;
    }
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors that code hosts make of a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                found.extend(heading.take().map(|words| anchor(&words)));
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            _ => {}
        }
    }
    found
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests;
