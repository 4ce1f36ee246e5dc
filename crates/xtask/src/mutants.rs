//! Mutants of the rooms in which a mistake loses data, through cargo-mutants: one expression after
//! another is replaced in a copy of the tree, and some test of the engine must fail.
//!
//! Mutants that no test can tell from the original are left out by `.cargo/mutants.toml`, each with
//! its reason. It takes most of a day on 2 cores: each mutant is built, and tested like the engine.
//!
//! # Not here
//! Bugs that take more than an expression, and that the torture must find: [`super::planted`].

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::bail;

use crate::command::{cargo_path, succeed};

/// The rooms: the writer's and the interactive transactions'.
pub(crate) const ROOMS: [&str; 2] =
    ["crates/monolite/src/write/**/*.rs", "crates/monolite/src/transaction/**/*.rs"];

/// Tests, and what only runs in models of schedules.
const LEFT_OUT: [&str; 3] = ["**/tests.rs", "**/tests/**", "**/models.rs"];

/// The packages whose tests must notice it: the engine's tests are apart from it.
const TESTED_BY: [&str; 2] = ["monolite", "monolite-tests"];

/// A mutant whose tests take longer than the original's times this hangs, and so is noticed.
const PATIENCE: &str = "3";

/// Has every mutant of the files that match `globs` tested; fails when one is not noticed. Lists of
/// them lie in `target/mutants.out`.
pub(crate) fn run(root: &Path, globs: &[&str]) -> anyhow::Result<()> {
    let mut look = Command::new(cargo_path());
    look.args(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if succeed(&mut look).is_err() {
        bail!("cargo-mutants is missing: cargo install --locked cargo-mutants");
    }
    succeed(Command::new(cargo_path()).current_dir(root).args(words(globs)))
}

fn words<'w>(globs: &[&'w str]) -> Vec<&'w str> {
    let mut words = vec!["mutants", "--package", "monolite", "--output", "target"];
    TESTED_BY.iter().for_each(|package| words.extend(["--test-package", package]));
    words.extend(["--timeout-multiplier", PATIENCE]);
    globs.iter().for_each(|glob| words.extend(["--file", glob]));
    LEFT_OUT.iter().for_each(|glob| words.extend(["--exclude", glob]));
    words.extend(["--", "--locked", "--lib", "--tests"]);
    words
}

#[test]
fn each_room_has_files_and_each_is_asked_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let words = words(&ROOMS);
    for room in ROOMS {
        assert!(words.windows(2).any(|pair| pair == ["--file", room]), "{room}");
        let folder = room.split_once("/**").unwrap().0;
        assert!(root.join(folder).is_dir(), "{folder}");
    }
}
