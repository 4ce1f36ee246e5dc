//! Runs the models of the engine's schedules, the `models` modules of `monolite`.
//!
//! They are unit tests of a build in which some modules have shuttle's locks in place of those of
//! `std`. Only that crate is told so (`cargo rustc`): in `RUSTFLAGS`, `--cfg shuttle` would have
//! SQLite and all else built once more.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use cargo_metadata::Message;

use crate::command::cargo_path;

/// What the names of all models have in common.
pub(crate) const ALL: &str = "models::";

/// Builds the models; what it returns runs those whose names contain `name`.
pub(crate) fn command(root: &Path, name: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(build(root)?);
    command.current_dir(root).arg(name);
    Ok(command)
}

fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(cargo_path());
    command
        .current_dir(root)
        .args(["rustc", "--package", "monolite", "--lib", "--profile", "test", "--locked"])
        .args(["--message-format", "json-render-diagnostics"])
        // Clippy does not see them.
        .args(["--", "--cfg", "shuttle", "--deny", "warnings"])
        .stderr(Stdio::inherit());
    let output = command.output().context("cannot start cargo rustc")?;
    if !output.status.success() {
        bail!("the models cannot be built ({})", output.status);
    }
    let program = Message::parse_stream(&*output.stdout).find_map(|message| match message {
        Ok(Message::CompilerArtifact(built)) if built.profile.test => built.executable,
        _ => None,
    });
    Ok(program.context("cargo rustc names no program")?.into())
}
