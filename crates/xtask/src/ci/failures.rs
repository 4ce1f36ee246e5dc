//! Owns what is told of tests that failed: their names, and the first words of each panic, short
//! enough for the last lines of a log, which may be all that is kept of it.

use std::path::Path;
use std::{fs, io};

/// Of the lines that a panic prints, no more are kept, as one.
const LINES: usize = 4;

/// What comes behind the message of a panic.
const BEHIND: [&str; 3] = ["stack backtrace:", "note: ", "---- "];

/// Where a run of the tests leaves what failed, for the gate behind it, relative to the root.
const FILE: &str = "target/failed-tests.txt";

/// What failed, in the order in which it was told.
#[derive(Debug, Default)]
pub(super) struct Failures {
    told: Vec<String>,
    /// So many of the next lines belong to a panic.
    of_a_panic: usize,
    /// Whether what tests have printed is being listed, which libtest does of those that failed.
    listing: bool,
}

impl Failures {
    /// Adds one line of the output of `cargo test`.
    pub(super) fn add(&mut self, line: &str) {
        if line.starts_with("test result: ") || line.starts_with("     Running ") {
            self.listing = false;
        } else if line == "failures:" {
            self.listing = true;
        } else if names_a_failure(line) {
            self.told.push(line.trim().to_owned());
        } else if self.listing && line.starts_with("thread '") && line.contains(" panicked at ") {
            self.of_a_panic = LINES;
        }
        if BEHIND.iter().any(|it| line.starts_with(it)) {
            self.of_a_panic = 0;
        }
        match (self.of_a_panic, self.told.last_mut()) {
            (0, _) => return,
            (1..LINES, Some(told)) => told.extend([" ", line.trim()]),
            _ => self.told.push(format!("  {line}")),
        }
        self.of_a_panic -= 1;
    }

    pub(super) fn told(&self) -> String {
        self.told.join("\n")
    }
}

/// Whether a line names a test that failed, or a test program that died.
fn names_a_failure(line: &str) -> bool {
    (line.starts_with("test ") && line.ends_with("FAILED"))
        || line.contains("process didn't exit successfully")
}

/// Leaves what the tests' run came to for [`of_the_last_tests`].
pub(super) fn keep(root: &Path, ran: &anyhow::Result<()>) -> io::Result<()> {
    let told = ran.as_ref().err().map_or_else(String::new, |error| format!("{error:#}\n"));
    fs::write(root.join(FILE), told)
}

/// What failed when the tests were last run here; nothing when all passed, or they never were run.
pub(super) fn of_the_last_tests(root: &Path) -> String {
    fs::read_to_string(root.join(FILE)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    const OUTPUT: &str = "\
test a::good ... ok
test a::bad ... FAILED

failures:

---- a::bad stdout ----
some words

thread 'a::bad' (17) panicked at crates/a/src/lib.rs:3:5:
assertion `left == right` failed
  left: 1
 right: 2
stack backtrace:

---- a::worse stdout ----
thread 'a::worse' (18) panicked at crates/a/src/lib.rs:9:5:
told
stack backtrace:
   0: main

failures:
    a::bad

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
thread 'other' panicked at elsewhere:1:1:
";

    #[test]
    fn failed_tests_are_named_with_the_first_words_of_their_panics() {
        let mut failures = Failures::default();
        OUTPUT.lines().for_each(|line| failures.add(line));
        let told = failures.told();
        let expected = "test a::bad ... FAILED\n  \
                        thread 'a::bad' (17) panicked at crates/a/src/lib.rs:3:5: \
                        assertion `left == right` failed left: 1 right: 2\n  \
                        thread 'a::worse' (18) panicked at crates/a/src/lib.rs:9:5: told";
        assert_eq!(told, expected);
    }

    #[test]
    fn programs_that_died_are_named_and_what_passed_is_not() {
        let died = "  process didn't exit successfully: `target/it-1234` (signal: 6, SIGABRT)";
        assert!(names_a_failure("test some::name ... FAILED") && names_a_failure(died));
        assert!(!names_a_failure("test some::name ... ok"));
        assert!(!names_a_failure("test result: FAILED. 3 passed; 1 failed; 0 ignored"));
    }

    #[test]
    fn what_failed_is_kept_until_the_tests_are_run_again() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        fs::create_dir(root.path().join("target"))?;
        assert_eq!(of_the_last_tests(root.path()), "");
        keep(root.path(), &Err(anyhow!("a::bad")))?;
        assert_eq!(of_the_last_tests(root.path()), "a::bad\n");
        keep(root.path(), &Ok(()))?;
        assert_eq!(of_the_last_tests(root.path()), "");
        Ok(())
    }
}
