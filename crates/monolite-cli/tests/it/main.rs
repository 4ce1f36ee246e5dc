//! The command as its users run it: a short torture with a fixed seed, and what it says of wrong
//! words.

#![forbid(unsafe_code)]

mod archive;
mod conform;
mod files;
mod torture;

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

/// Runs `monolite` with `words` to its end, without standard input.
fn monolite<W: AsRef<OsStr>>(words: &[W]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_monolite"))
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the command starts")
}

/// What it has written to standard error.
fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn wrong_words_are_told_with_the_exit_code_of_wrong_usage() {
    for words in [&["torture", "--kills", "some"][..], &["bench", "no-such"], &["conform"], &[]] {
        let output = monolite(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", complaint(&output));
        assert!(complaint(&output).contains("--help"), "{words:?}: {}", complaint(&output));
    }
}
