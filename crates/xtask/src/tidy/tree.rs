//! The text files of the checkout, as Git sees them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

/// A text file and its path below the root, with `/` between the parts.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the whole file is test code: a `tests.rs` or `models.rs` sibling, or a file below a
    /// `tests` folder.
    pub(crate) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| ["tests", "tests.rs", "models.rs"].contains(&part))
    }
}

/// All files that are tracked, or would be if they were added now.
pub(crate) struct Tree {
    files: Vec<File>,
    others: Vec<String>,
}

impl Tree {
    /// Reads the checkout; what Git ignores is not looked at.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let listing = Command::new("git")
            .current_dir(root)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .context("cannot run git; tidy checks the files that Git tracks")?;
        if !listing.status.success() {
            bail!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr).trim());
        }
        let mut tree = Tree { files: Vec::new(), others: Vec::new() };
        let mut paths: Vec<String> =
            String::from_utf8(listing.stdout)?.split_terminator('\0').map(str::to_owned).collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            tree.add(root, path)?;
        }
        Ok(tree)
    }

    /// Adds one file; one that was deleted but is still in the index is passed over.
    fn add(&mut self, root: &Path, path: String) -> anyhow::Result<()> {
        let full = root.join(&path);
        if !full.is_file() {
            return Ok(());
        }
        let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
        match String::from_utf8(bytes) {
            Ok(text) => self.files.push(File { path, text }),
            Err(_) => self.others.push(path),
        }
        Ok(())
    }

    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether `path` is a file or a folder with a file in it.
    pub(crate) fn has(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let all = self.files.iter().map(|file| &file.path).chain(&self.others);
        all.into_iter().any(|known| known == path || known.starts_with(&below))
    }

    /// A tree out of thin air, for the tests of the checks.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file =
            |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        Tree { files: files.iter().map(file).collect(), others: Vec::new() }
    }
}
