//! Owns what lines do: statements, and the commands that begin with a dot.

use std::fs::File;
use std::io::{BufReader, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use monolite::Value;
use monolite_client::Answer;

use super::connection::Connection;
use super::input::{Input, Next, Script, is_whole};
use super::show::{printable_lines, render};
use super::who;
use crate::arguments::Mode;
use crate::out::{self, stdout};
use crate::words;

/// The commands: names, arguments, what they do.
const COMMANDS: [(&str, &str, &str); 10] = [
    ("help", "", "list the commands"),
    ("tables", "[NAME]", "list tables and views"),
    ("schema", "[NAME]", "show the SQL of all tables, or of one"),
    ("indexes", "[TABLE]", "list indexes"),
    ("mode", "table|csv|json|line|list", "set how rows are printed"),
    ("timing", "on|off", "say how long each statement takes"),
    ("who", "", "who has the writer, what runs, which transactions are open"),
    ("watch", "SECONDS", "repeat the last query or .who, until Ctrl-C"),
    ("read", "FILE", "run the statements of a file"),
    ("quit", "", "end"),
];

/// What the commands `?1` list, of no tables of SQLite's own; of one table or index if it is `?2`.
const OBJECTS: &str = "\
    SELECT CASE ?1 WHEN 'schema' THEN sql || ';' WHEN 'indexes' THEN name || ' on ' || tbl_name \
               ELSE name END \
    FROM sqlite_schema \
    WHERE CASE ?1 WHEN 'schema' THEN sql IS NOT NULL WHEN 'indexes' THEN type = 'index' \
              ELSE type IN ('table', 'view') END \
        AND name NOT LIKE 'sqlite~_%' ESCAPE '~' \
        AND (?2 = '' OR lower(?2) IN (lower(name), lower(tbl_name))) \
    ORDER BY tbl_name, rowid";

/// The names of the commands.
pub(crate) fn commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, ..)| *name)
}

#[derive(PartialEq)]
enum Transaction {
    None,
    Open,
    Lost,
}

/// In the place of a query.
const WHO: &str = ".who";

/// Most files that `.read` reads within one another.
const READING: usize = 16;

/// Clears the terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// A shell.
pub(crate) struct Shell {
    connection: Connection,
    mode: Mode,
    is_timing: bool,
    /// Whether results go to a terminal.
    is_seen: bool,
    /// That of a user; a script ends at its first error.
    transaction: Transaction,
    /// What `.watch` repeats: a query, or [`WHO`].
    last: Option<String>,
    is_over: bool,
    /// Files that `.read` is reading.
    reading: usize,
}

impl Shell {
    /// One that prints in `mode`. The database is reached if a user waits for it.
    pub(crate) fn new(mut connection: Connection, mode: Option<Mode>) -> Result<Shell> {
        let is_seen = std::io::stdout().is_terminal();
        if connection.is_interactive {
            connection.has_transaction()?;
            writeln!(stdout(), ".help lists the commands")?;
        }
        let mode = mode.unwrap_or(if is_seen { Mode::Table } else { Mode::List });
        let (transaction, is_timing, last, is_over) = (Transaction::None, false, None, false);
        let reading = 0;
        Ok(Shell { connection, mode, is_timing, is_seen, transaction, last, is_over, reading })
    }

    /// Runs what `input` says to its end; to the first error, if no user sees it.
    pub(crate) fn run(&mut self, input: &mut dyn Input) -> Result<()> {
        let (mut text, mut line, mut begin, mut is_empty) = (String::new(), 0, 1, true);
        let is_interactive = input.is_interactive();
        let numbered = |line| (!is_interactive).then_some(line);
        while !self.is_over {
            let is_begun = !text.is_empty();
            match in_line(numbered(line + 1), input.next(&self.prompt(is_begun)))? {
                Next::TakenBack => text.clear(),
                // A user's is not run: it was not ended.
                Next::End if is_interactive => break,
                Next::End => return self.statements(&text, Some(begin)),
                Next::Line(next) => {
                    line += 1;
                    if !is_begun && next.starts_with(['.', '\\']) {
                        input.remember(&next);
                        let done = self.command(&next[1..]);
                        self.done(input, in_line(numbered(line), done))?;
                        continue;
                    }
                    if !is_begun {
                        (begin, is_empty) = (line, true);
                    }
                    text.push_str(&next);
                    // Looked at once it has begun only where it may end: it may have many lines.
                    is_empty = is_empty && monolite::statements(&text).next().is_none();
                    if (next.contains(';') || is_empty) && is_whole(&text) {
                        let whole = std::mem::take(&mut text);
                        input.remember(&whole);
                        let done = self.statements(&whole, numbered(begin));
                        self.done(input, done)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Says an error to a user, and passes it on otherwise.
    fn done(&mut self, input: &dyn Input, done: Result<()>) -> Result<()> {
        match done {
            Err(error) if input.is_interactive() && !out::reader_is_gone(&error) => {
                let _ = writeln!(std::io::stderr(), "error: {error:#}");
                Ok(())
            }
            done => done,
        }
    }

    fn prompt(&self, is_begun: bool) -> String {
        let state = match self.transaction {
            _ if is_begun => return "...> ".to_owned(),
            Transaction::None => "",
            Transaction::Open => "*",
            Transaction::Lost => "!",
        };
        format!("{}{state}> ", self.connection.name)
    }

    /// Runs the statements of `text`, whose first line is the line `begin` of a script.
    fn statements(&mut self, text: &str, begin: Option<usize>) -> Result<()> {
        let mut statements = monolite::statements(text);
        while let Some(statement) = statements.next() {
            let start = text.len() - statements.rest().len() - statement.trim_start().len();
            let line = begin.map(|begin| begin + text[..start].matches('\n').count());
            in_line(line, self.statement(statement.trim()))?;
        }
        Ok(())
    }

    fn statement(&mut self, sql: &str) -> Result<()> {
        let began = Instant::now();
        let answer = self.execute(sql, &[])?;
        let time = began.elapsed();
        self.show(&answer)?;
        if answer.changes > 0 && self.connection.is_interactive {
            self.print(&format!("{} changed\n", words::count(answer.changes, "row")))?;
        } else if !answer.columns.is_empty() {
            self.last = Some(sql.to_owned());
        }
        if self.is_timing {
            self.print(&format!("{}\n", words::seconds(time.as_secs_f64())))?;
        }
        Ok(())
    }

    /// Runs SQL. What a user types behind a transaction that was lost, with its connection or by
    /// Ctrl-C, or did not begin, is meant for it, and must not run outside of it.
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<Answer> {
        let words = sql.trim_end_matches(';').trim().to_ascii_uppercase();
        let is = |of: &[&str]| of.iter().any(|word| words.starts_with(word));
        if self.transaction == Transaction::Lost {
            if words != "ROLLBACK" {
                bail!("the transaction is lost, and nothing runs until you say ROLLBACK");
            }
            self.transaction = Transaction::None;
            self.connection.renew();
            return Ok(Answer::default());
        }
        let ran = self.connection.execute(sql, parameters);
        if self.connection.is_interactive {
            let was_meant = match self.transaction {
                Transaction::Open => !is(&["COMMIT", "END", "RELEASE", "ROLLBACK"]),
                _ => is(&["BEGIN", "SAVEPOINT"]),
            };
            self.transaction = match self.connection.has_transaction() {
                Ok(true) => Transaction::Open,
                _ if was_meant && ran.is_err() => Transaction::Lost,
                _ => Transaction::None,
            };
            if self.transaction == Transaction::None {
                self.connection.renew();
            }
        }
        ran
    }

    fn command(&mut self, line: &str) -> Result<()> {
        let line = line.trim();
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        match name {
            "help" => {
                let help = COMMANDS.map(|(name, argument, does)| {
                    format!(".{:32} {does}\n", format!("{name} {argument}"))
                });
                self.print(&help.concat())
            }
            "tables" | "schema" | "indexes" => {
                let parameters = [name, argument].map(|it| Value::Text(it.to_owned()));
                let found = self.execute(OBJECTS, &parameters)?;
                self.print(&render(&found, Mode::List, None))
            }
            "mode" => {
                let mode = Mode::from_str(argument, true).ok();
                self.mode = mode.context("the modes are table, csv, json, line and list")?;
                Ok(())
            }
            "timing" => {
                self.is_timing = match argument {
                    "on" => true,
                    "off" => false,
                    _ => bail!("say .timing on or .timing off"),
                };
                Ok(())
            }
            "who" => self.who(),
            "watch" => self.watch(argument),
            "read" => self.read(argument),
            "quit" => {
                self.is_over = true;
                Ok(())
            }
            _ => {
                let nearest = commands().min_by_key(|known| strsim::levenshtein(known, name));
                let nearest = nearest.unwrap_or_default();
                bail!("there is no command .{name}; did you mean .{nearest}? .help lists all")
            }
        }
    }

    fn who(&mut self) -> Result<()> {
        let answer = who::table(&self.connection.now()?);
        self.last = Some(WHO.to_owned());
        if answer.rows.is_empty() && self.mode == Mode::Table {
            self.print("nothing runs, and no transaction is open: the writer is free\n")
        } else {
            self.show(&answer)
        }
    }

    fn watch(&mut self, argument: &str) -> Result<()> {
        let pause = argument.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
        let pause =
            pause.filter(|it| !it.is_zero()).context("say .watch and a number of seconds")?;
        let last = self.last.clone().context("there is no query to repeat; run one first")?;
        loop {
            if self.is_seen {
                stdout().write_all(CLEAR.as_bytes())?;
            }
            if last == WHO { self.who() } else { self.statement(&last) }?;
            if self.connection.wait(pause).is_none() {
                return Ok(());
            }
        }
    }

    fn read(&mut self, name: &str) -> Result<()> {
        if self.reading == READING {
            bail!("{name}: {READING} files read one another already");
        }
        let file = File::open(name).with_context(|| name.to_owned())?;
        self.reading += 1;
        let ran = self.run(&mut Script::new(BufReader::new(file)));
        self.reading -= 1;
        ran.with_context(|| name.to_owned())
    }

    fn show(&self, answer: &Answer) -> Result<()> {
        if answer.columns.is_empty() {
            return Ok(());
        }
        self.print(&render(answer, self.mode, self.width()))
    }

    /// That of the terminal.
    fn width(&self) -> Option<u16> {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        size.ok().map(|size| size.ws_col).filter(|width| self.is_seen && *width > 0)
    }

    fn print(&self, text: &str) -> Result<()> {
        let mut out = stdout();
        if self.is_seen {
            out.write_all(printable_lines(text).as_bytes())?;
        } else {
            out.write_all(text.as_bytes())?;
        }
        Ok(out.flush()?)
    }

    /// Fails if a script has left its transaction open: what it changed would be lost in silence.
    pub(crate) fn leaves_nothing_open(&mut self) -> Result<()> {
        if !self.connection.is_interactive && self.connection.has_transaction()? {
            bail!("the transaction was not committed, and is rolled back");
        }
        Ok(())
    }

    /// Ends the shell.
    pub(crate) fn close(self) -> Result<()> {
        self.connection.close()
    }
}

/// What was done, with the line of a script in its error.
fn in_line<T>(line: Option<usize>, done: Result<T>) -> Result<T> {
    match line {
        Some(line) => done.with_context(|| format!("line {line}")),
        None => done,
    }
}
