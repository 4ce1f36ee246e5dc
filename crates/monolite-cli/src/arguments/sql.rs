//! The arguments of `monolite sql`.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

pub(crate) const SQL_HELP: &str = "\
Run SQL on a database, at the URL of its server or in a file

On a terminal it asks for statements; .help lists its commands. From a pipe, or with -c, it runs the
statements in order and ends at the first error, with exit status 1.

A file is created if it is not there. While another process has it, use the URL of that server.";

#[derive(Args, Debug)]
pub(crate) struct Sql {
    /// URL of a server (http, https or libsql, with /db/NAME where it has several databases), or a
    /// file
    #[arg(value_name = "URL|FILE")]
    pub(crate) target: OsString,

    /// Run these statements and commands, and end
    #[arg(short, long, value_name = "SQL")]
    pub(crate) command: Option<String>,

    /// How results are printed [default: table on a terminal, list elsewhere]
    #[arg(long)]
    pub(crate) mode: Option<Mode>,

    /// Token for the server; better in the variable MONOLITE_TOKEN, which `ps` does not show
    #[arg(long)]
    pub(crate) token: Option<String>,

    /// URL of the server's dashboard, for .who: http://127.0.0.1:8081
    #[arg(long, value_name = "URL")]
    pub(crate) admin: Option<String>,

    /// Change nothing in the file, which must be there
    #[arg(long)]
    pub(crate) read_only: bool,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Lines and columns, cut to the width of the terminal
    Table,
    /// RFC 4180 with a header; NULL is empty, an empty text is ""
    Csv,
    /// An array of objects
    Json,
    /// One column a line
    Line,
    /// Values with | between, without a header
    List,
}
