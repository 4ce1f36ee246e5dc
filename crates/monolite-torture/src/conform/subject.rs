//! Owns what is compared with plain SQLite: a database that runs transactions and tells what each
//! statement said.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Result;
use monolite_testkit::blocking::locked;

use super::content::{Content, Extent};
use super::differences::Observation;
use super::said::{Fault, Said};
use super::script::Unit;
use super::statement::Statement;

/// What came of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// What each statement said.
    pub(crate) said: Vec<Said>,
    /// What a statement that stands alone said when it was asked in other ways.
    pub(crate) also: Vec<(String, Said)>,
    /// Why it was not ended as the script says.
    pub(crate) end: Option<Fault>,
}

/// A database under test. The engine's are in [`super::ours`]; tests have broken ones.
pub(crate) trait Subject: Send {
    /// Runs one transaction.
    fn run(&mut self, unit: &Arc<Unit>) -> Ran;

    /// What each of its readers says to the questions; none where readers are not looked at.
    fn look(&self, extent: Extent, plans: &[String]) -> Vec<Content>;

    /// Everything that it holds.
    fn content(&self) -> Content;

    /// What happened that no statement shows.
    fn observed(&self) -> Vec<Observation> {
        Vec::new()
    }

    /// Closes it, and looks into the file that is left.
    ///
    /// # Errors
    /// When closing fails, or the file cannot be opened.
    fn close(&mut self) -> Result<Content>;
}

/// Where a run is, so that a statement that hangs can be named.
#[derive(Clone)]
pub(crate) struct Heart(Arc<Mutex<Beat>>);

/// What was begun last.
#[derive(Clone, Debug)]
pub(crate) struct Beat {
    pub(crate) at: Instant,
    pub(crate) line: usize,
    pub(crate) sql: Arc<str>,
}

impl Heart {
    pub(crate) fn new() -> Heart {
        let beat = Beat { at: Instant::now(), line: 0, sql: "opening the database".into() };
        Heart(Arc::new(Mutex::new(beat)))
    }

    /// A statement begins.
    pub(crate) fn beat(&self, statement: &Statement) {
        self.tell(statement.line, &statement.sql);
    }

    pub(crate) fn tell(&self, line: usize, sql: &Arc<str>) {
        let beat = Beat { at: Instant::now(), line, sql: Arc::clone(sql) };
        *locked(&self.0) = beat;
    }

    pub(crate) fn last(&self) -> Beat {
        locked(&self.0).clone()
    }
}
