//! Owns the user's terminal: lines with a history, and the completion of words.

use std::path::PathBuf;

use anyhow::Result;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::connection::Names;
use super::input::{Input, Next};

/// Where a statement can go on.
const KEYWORDS: &str = "ABORT ADD ALTER ANALYZE AND AS ASC BEGIN BETWEEN BY CASE CHECK COLLATE \
    COLUMN COMMIT CONFLICT CONSTRAINT CREATE CROSS DEFAULT DEFERRABLE DEFERRED DELETE DESC \
    DISTINCT DROP ELSE END ESCAPE EXCEPT EXISTS EXPLAIN FOREIGN FROM GENERATED GLOB GROUP HAVING \
    IMMEDIATE IN INDEX INNER INSERT INTERSECT INTO IS JOIN KEY LEFT LIKE LIMIT MATCH NOT NOTHING \
    NULL OFFSET ON OR ORDER OUTER OVER PARTITION PLAN PRAGMA PRIMARY QUERY REFERENCES REINDEX \
    RELEASE RENAME REPLACE RETURNING RIGHT ROLLBACK ROW SAVEPOINT SELECT SET STRICT TABLE THEN TO \
    TRANSACTION TRIGGER UNION UNIQUE UPDATE USING VALUES VIEW VIRTUAL WHEN WHERE WINDOW WITH \
    WITHOUT";

/// Lines that are kept.
const HISTORY: usize = 10_000;

/// A terminal.
pub(crate) struct Terminal {
    editor: Editor<Words, FileHistory>,
    history: Option<PathBuf>,
}

impl Terminal {
    pub(crate) fn new(names: Names, commands: Vec<&'static str>) -> Result<Terminal> {
        let config = Config::builder().completion_type(CompletionType::List);
        // As in other shells, a space before it keeps a line out of the history.
        let config = config.max_history_size(HISTORY)?.history_ignore_space(true);
        let mut editor = Editor::with_config(config.build())?;
        editor.set_helper(Some(Words { names, commands }));
        let history = history_file();
        if let Some(file) = &history {
            // The first time there is none.
            let _ = editor.load_history(file);
        }
        Ok(Terminal { editor, history })
    }
}

impl Input for Terminal {
    fn next(&mut self, prompt: &str) -> Result<Next> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Next::Line(line + "\n")),
            Err(ReadlineError::Interrupted) => Ok(Next::TakenBack),
            Err(ReadlineError::Eof) => Ok(Next::End),
            Err(error) => Err(error.into()),
        }
    }

    fn remember(&mut self, statement: &str) {
        // A history that cannot be kept is no reason to end.
        let _ = self.editor.add_history_entry(statement.trim_end());
        if let Some(file) = &self.history {
            let _ = self.editor.append_history(file);
        }
    }

    fn is_interactive(&self) -> bool {
        true
    }
}

/// In the user's directory for state; rustyline lets the user alone read it.
fn history_file() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    let directory = state?.join("monolite");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("sql_history"))
}

/// The words that can complete one.
struct Words {
    names: Names,
    commands: Vec<&'static str>,
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        end: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let is_part = |sign: char| sign.is_alphanumeric() || sign == '_';
        let start = line[..end].trim_end_matches(is_part).len();
        let begun = &line[start..end];
        let begins = |word: &str| {
            word.get(..begun.len()).is_some_and(|first| first.eq_ignore_ascii_case(begun))
        };
        let words: Vec<String> = if line[..start] == *"." {
            self.commands.iter().map(|&name| name.to_owned()).collect()
        } else {
            let keywords = KEYWORDS.split_whitespace().map(str::to_owned);
            (self.names)().into_iter().chain(keywords).collect()
        };
        Ok((start, words.into_iter().filter(|word| begins(word)).collect()))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}
impl Validator for Words {}
impl Helper for Words {}
