//! The `monolite` command: arguments and output, no logic.
//!
//! Results go to standard output; progress, notes and errors to standard error. Exit codes: 0 done,
//! 1 failed (`lint`: something was found), 2 wrong usage, a verb that this build is without, or
//! (`check`) nothing known, 3 done but for what is named (`export`), 130 stopped by the user, 141
//! the results are not read any more.
#![forbid(unsafe_code)]

#[cfg(not(feature = "developer"))]
mod absent;
mod archive;
mod arguments;
mod backup;
mod bar;
mod check;
#[cfg(feature = "developer")]
mod developer;
mod export;
mod follow;
mod interrupt;
mod json;
mod lint;
mod migrate;
mod out;
mod serve;
mod sql;
mod words;

#[cfg(not(feature = "developer"))]
use absent as developer;
use arguments::{Arguments, Command};
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    developer::play_role();
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Bench(arguments) => developer::bench(&arguments),
        Command::Torture(arguments) => developer::torture(&arguments),
        Command::Conform(arguments) => developer::conform(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Export(command) => export::run(&command),
        Command::Follow(arguments) => follow::run(&arguments),
        Command::Promote(arguments) => follow::promote(&arguments),
        Command::Lint(arguments) => lint::run(&arguments),
        Command::Migrate(command) => migrate::run(&command),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Sql(arguments) => sql::run(&arguments),
        Command::Token(arguments) => serve::run_token(&arguments),
        Command::Archive(command) => archive::run(&command),
        Command::Restore(arguments) => archive::run_restore(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if out::reader_is_gone(&error) => ExitCode::from(out::READER_GONE),
        Err(error) if error.is::<interrupt::Stopped>() => {
            complain(&error.to_string());
            ExitCode::from(130)
        }
        Err(error) if error.is::<lint::Found>() => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
        Err(error) if error.is::<export::Losses>() => {
            complain(&error.to_string());
            ExitCode::from(3)
        }
        Err(error) => {
            complain(&format!("error: {error:#}"));
            let is_usage = error.is::<check::NotChecked>()
                || developer::is_absent(&error)
                || sql::is_usage(&error);
            if is_usage { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn complain(text: &str) {
    // A closed standard error leaves no place to report to.
    let _ = writeln!(std::io::stderr(), "{text}");
}
