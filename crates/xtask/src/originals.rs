//! Litestream and its VFS, beside which tests of the archive run: `scripts/originals` builds them
//! from the published module into `target/originals`, where they stay.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::Context as _;

use crate::clients::{is_installed, is_older};

/// Builds them, now or before; says why they cannot be had.
pub(crate) fn build(root: &Path) -> anyhow::Result<Option<String>> {
    let missing =
        is_older("go", "version", (1, 21)).or_else(|| is_older("gcc", "--version", (4, 0)));
    if missing.is_some() {
        return Ok(missing);
    }
    let place = place(root);
    fs::create_dir_all(&place)?;
    fs::copy(root.join("scripts/originals"), place.join("originals"))?;
    let build = "sh originals . litestream";
    Ok((!is_installed(&place, "originals", &[build])).then(|| format!("{build} failed")))
}

/// The value of `PATH` with which tests find them.
pub(crate) fn path(root: &Path) -> anyhow::Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let all = [place(root)].into_iter().chain(env::split_paths(&path));
    env::join_paths(all).context("no PATH can name the folder of this checkout")
}

fn place(root: &Path) -> PathBuf {
    root.join("target/originals")
}
