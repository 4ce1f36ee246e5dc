//! Owns how results are printed as JSON: whole, or not at all.
//!
//! # Format
//! A name that is no UTF-8 has U+FFFD in the place of what is none: JSON has no other text.

use anyhow::Result;
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

/// Prints `result`, and nothing when it cannot be said.
pub(crate) fn print(out: &mut impl Write, result: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(result)?;
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// The name of a file, as text.
pub(crate) fn name(path: &Path) -> Cow<'_, str> {
    path.to_string_lossy()
}
