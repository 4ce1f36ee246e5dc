//! Part of the optional drivers of `bench begin`: draws transactions as the suite does.

use crate::protocol::Arguments;
use std::collections::HashMap;

/// The parameters of a transaction.
#[derive(Default)]
pub struct Drawn {
    pub scans: Vec<String>,
    /// Row, blob, text.
    pub updates: Vec<(i64, Vec<u8>, String)>,
    pub appends: Vec<(Vec<u8>, String)>,
}

/// What a thread has changed: the last text of each row.
pub type Changes = HashMap<i64, String>;

/// Draws the transactions of a thread.
pub struct Draw<'a> {
    pub random: fastrand::Rng,
    pub number: u64,
    pub arguments: &'a Arguments,
    pub changes: Changes,
}

impl<'a> Draw<'a> {
    pub fn new(number: u64, arguments: &'a Arguments) -> Draw<'a> {
        let seed: u64 = arguments.number("seed");
        let random = fastrand::Rng::with_seed(seed << 32 | number);
        Draw { random, number, arguments, changes: Changes::new() }
    }

    pub fn next(&mut self) -> Drawn {
        let count = |key: &str| self.arguments.number::<u64>(key);
        let (scans, updates, appends) = (count("scans"), count("updates"), count("appends"));
        let (rows, threads) = (count("rows"), count("threads"));
        let mut drawn = Drawn::default();
        drawn.scans.extend((0..scans).map(|_| self.text(16)));
        for _ in 0..updates {
            let slots = (rows - self.number).div_ceil(threads).max(1);
            let row = 1 + self.number + self.random.u64(0..slots) * threads;
            drawn.updates.push((row as i64, self.blob(), self.text(64)));
        }
        drawn.appends.extend((0..appends).map(|_| (self.blob(), self.text(64))));
        drawn
    }

    fn blob(&mut self) -> Vec<u8> {
        let mut blob = vec![0; 200];
        self.random.fill(&mut blob);
        blob
    }

    fn text(&mut self, length: usize) -> String {
        (0..length).map(|_| self.random.digit(16).to_ascii_uppercase()).collect()
    }

    /// Remembers what was acknowledged.
    pub fn keep(&mut self, drawn: Drawn) {
        self.changes.extend(drawn.updates.into_iter().map(|(row, _, text)| (row, text)));
    }
}
