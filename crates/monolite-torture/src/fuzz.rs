//! What the fuzz targets do with their bytes; `fuzz/` hands them over from libFuzzer, and a test
//! here replays its corpus.
//!
//! Each target returns an error that tells what disagreed; a panic or a hang of the engine is a
//! finding of its own.

mod damaged;
mod options;

pub use damaged::damaged;
pub use options::options;

#[cfg(test)]
mod tests;
