//! Checks of this repository that no other tool makes, as `cargo xtask tidy`.
//!
//! Each check is a plain function from what it looks at to a list of [`Finding`]s, so that its test
//! can hand it a tree in which the rule is broken: a check that cannot fail checks nothing.
//!
//! # Not here
//! Formatting and lints: `cargo fmt` and `cargo clippy` in [`crate::ci`].

mod crates;
mod modules;
mod pages;
pub(crate) mod shape;
pub(crate) mod tree;
mod wall_clock;
mod words;
mod workspace;

use std::fmt;
use std::path::Path;

use anyhow::bail;

use tree::Tree;
use workspace::Workspace;

/// One broken rule, at a place that an editor can jump to.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Runs every check on the checkout at `root` and prints what it found.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let tree = Tree::read(root)?;
    let workspace = Workspace::read(root)?;
    let mut findings = Vec::new();
    findings.extend(shape::check(&tree));
    findings.extend(words::check(&tree));
    findings.extend(wall_clock::check(&tree));
    findings.extend(crates::check(&tree, &workspace)?);
    findings.extend(modules::check(&tree));
    findings.extend(modules::unnamed(&tree));
    findings.extend(pages::check(&tree));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            let (files, packages) = (tree.files().len(), workspace.packages.len());
            println!("tidy: {files} files and {packages} packages are in order");
            Ok(())
        }
        n => bail!("tidy found {n} things to mend"),
    }
}
