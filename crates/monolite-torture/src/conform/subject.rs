//! Owns what is compared with plain SQLite: a database that runs transactions and tells what each
//! statement said.

use std::sync::Arc;

use anyhow::Result;

use super::content::Content;
use super::said::{Fault, Said};
use super::script::Unit;

/// What came of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// What each statement said.
    pub(crate) said: Vec<Said>,
    /// What a statement that stands alone said when it was awaited.
    pub(crate) awaited: Option<Said>,
    /// Why it was not ended as the script says.
    pub(crate) end: Option<Fault>,
}

/// A database under test. The engine's are in [`super::ours`]; tests have broken ones.
pub(crate) trait Subject: Send {
    /// Runs one transaction.
    fn run(&mut self, unit: &Arc<Unit>) -> Ran;

    /// Everything that it holds.
    fn content(&self) -> Content;

    /// Closes it, and looks into the file that is left.
    ///
    /// # Errors
    /// When closing fails, or the file cannot be opened.
    fn close(&mut self) -> Result<Content>;
}
