//! Owns how another program is run.

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// The cargo that runs us, so that one tool chain makes the whole run.
pub(crate) fn cargo_path() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Runs a command without standard input and turns a bad exit into an error that names it.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !status.success() {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        bail!("cargo {} ended with {status}", words.join(" "));
    }
    Ok(())
}
