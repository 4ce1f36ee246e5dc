//! `monolite sql`: a shell for a database of a server, or in a file.

mod connection;
mod input;
mod shell;
mod show;
mod terminal;
mod who;

use std::io::{BufReader, Cursor, IsTerminal as _};

use anyhow::Result;

use crate::arguments;
use connection::Connection;
use input::{Input, Script};
use shell::Shell;
use terminal::Terminal;

/// Runs what `-c` or standard input say, or asks a user for it.
pub(crate) fn run(arguments: &arguments::Sql) -> Result<()> {
    let mut connection = Connection::open(arguments)?;
    let mut input: Box<dyn Input> = match &arguments.command {
        Some(command) => Box::new(Script::new(Cursor::new(command.clone()))),
        None if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() => {
            connection.begin_interactive()?;
            Box::new(Terminal::new(connection.completion(), shell::commands().collect())?)
        }
        None => Box::new(Script::new(BufReader::new(std::io::stdin()))),
    };
    let mut shell = Shell::new(connection, arguments.mode)?;
    let ran = shell.run(&mut *input).and_then(|()| shell.leaves_nothing_open());
    let closed = shell.close();
    ran.and(closed)
}

/// Whether the words of the command are wrong.
pub(crate) fn is_usage(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(monolite_client::Error::Unusable(_)))
}
