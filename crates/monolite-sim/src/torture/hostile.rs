//! Not built yet.

use anyhow::{Result, bail};

use super::{Outcome, Setting};

pub(super) fn run(_: &Setting<'_>) -> Result<Outcome> {
    bail!("not built yet")
}
