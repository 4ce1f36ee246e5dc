//! Every fuzz target for some seconds, through cargo-fuzz on the nightly tool chain.
//!
//! The targets are built without a sanitizer: all `unsafe` lies around SQLite, whose C is not
//! instrumented by cargo-fuzz either way, and the build takes a fraction of the time
//! (`docs/decisions/fuzzing.md`). `--asan` builds them with it.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// The targets, as `fuzz/Cargo.toml` names them.
const TARGETS: [&str; 4] = ["options", "damaged", "ltx", "hrana"];

/// How long each runs unless it is said.
pub(crate) const SECONDS: u64 = 15;

/// An input that takes longer is a hang; the slowest honest one takes a second.
const HANG_SECONDS: u64 = 60;

/// Which checks the targets are built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sanitizer {
    /// None but the engine's and the target's own.
    None,
    /// AddressSanitizer.
    Address,
}

/// Runs every target for `seconds`; fails at the first that finds something.
///
/// Where the tools are missing it runs nothing and returns which, and the command that gets them.
pub(crate) fn run(
    root: &Path,
    seconds: u64,
    sanitizer: Sanitizer,
) -> anyhow::Result<Option<&'static str>> {
    if let Some(missing) = missing() {
        return Ok(Some(missing));
    }
    for target in TARGETS {
        run_one(root, target, seconds, sanitizer).with_context(|| format!("target {target}"))?;
    }
    Ok(None)
}

fn run_one(root: &Path, target: &str, seconds: u64, sanitizer: Sanitizer) -> anyhow::Result<()> {
    let sanitizer = match sanitizer {
        Sanitizer::None => "none",
        Sanitizer::Address => "address",
    };
    // What is found is kept beside the corpus of the tree, which only people add to.
    let grown = root.join("fuzz/target/corpus").join(target);
    std::fs::create_dir_all(&grown)?;
    let mut command = Command::new("cargo");
    command.current_dir(root.join("fuzz")).args(["+nightly", "fuzz", "run", "--sanitizer"]);
    command.arg(sanitizer).arg(target).arg(&grown).arg(root.join("fuzz/corpus").join(target));
    command.arg("--").arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-timeout={HANG_SECONDS}")).arg("-print_final_stats=1");
    let status = command
        // The caller's tool chain is not the one that is asked for.
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .stdin(Stdio::null())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo fuzz ended with {status}; the input lies in fuzz/artifacts/{target}");
    }
    Ok(())
}

/// What is needed and not there, with the command that gets it.
fn missing() -> Option<&'static str> {
    let works = |words: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(words).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !works(&["+nightly", "--version"]) {
        return Some("no nightly tool chain: rustup toolchain install nightly");
    }
    if !works(&["fuzz", "--version"]) {
        return Some("no cargo-fuzz: cargo install cargo-fuzz");
    }
    None
}
