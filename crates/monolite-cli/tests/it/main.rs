//! The command as its users run it: a short torture with a fixed seed, and what it says of wrong
//! words.

#![forbid(unsafe_code)]

mod archive;
#[cfg(feature = "developer")]
mod bench;
#[cfg(feature = "developer")]
mod conform;
mod export;
mod failover;
mod files;
mod follow;
mod handover;
mod lint;
mod serve;
mod sql;
#[cfg(feature = "developer")]
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
    let developer: &[&[&str]] = match cfg!(feature = "developer") {
        true => &[&["torture", "--kills", "some"], &["bench", "no-such"], &["conform"]],
        false => &[],
    };
    for words in [developer, &[&["backup", "one"], &["no-such"], &[]]].concat() {
        let output = monolite(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", complaint(&output));
        assert!(complaint(&output).contains("--help"), "{words:?}: {}", complaint(&output));
    }
}

/// A build without the feature has the verbs in its help, and says how to get them.
#[cfg(not(feature = "developer"))]
#[test]
fn verbs_of_developers_say_how_to_get_them() {
    let help = monolite(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for verb in ["bench", "torture", "conform"] {
        assert!(help.contains(&format!("  {verb} ")), "{help}");
        for words in [&[verb][..], &[verb, "--help"], &[verb, "tps", "--rows", "7"]] {
            let output = monolite(words);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {}", complaint(&output));
            assert!(complaint(&output).contains("--features developer"), "{words:?}");
        }
    }
}
