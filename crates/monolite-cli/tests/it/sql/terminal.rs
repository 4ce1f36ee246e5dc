//! The shell on a pseudo-terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{SLOW, Served, place, run, said};

/// A shell whose user is the test.
struct Terminal {
    process: Child,
    keys: File,
    seen: Arc<Mutex<Vec<u8>>>,
    /// What was waited for before.
    done: usize,
    state: tempfile::TempDir,
}

impl Terminal {
    fn start(words: &[&str]) -> Terminal {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there is one");
        grantpt(&keys).and_then(|()| unlockpt(&keys)).expect("it is ours");
        let name = ptsname(&keys, Vec::new()).expect("it has a name");
        let size = Winsize { ws_row: 24, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(keys.as_fd(), size).expect("it has a size");
        let other = || {
            let name = name.to_str().expect("it is plain");
            File::options().read(true).write(true).open(name).expect("it opens")
        };
        let state = tempfile::tempdir().expect("it works");
        // So that Ctrl-C is a signal for it.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_monolite"), "sql"]).args(words);
        command.env("XDG_STATE_HOME", state.path()).env("TERM", "xterm");
        let process = command.stdin(other()).stdout(other()).stderr(other()).spawn();
        let (keys, seen) = (File::from(keys), Arc::new(Mutex::new(Vec::new())));
        let (mut screen, into) = (keys.try_clone().expect("it works"), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                into.lock().expect("no panic").extend_from_slice(&bytes[..count]);
            }
        });
        Terminal { process: process.expect("it starts"), keys, seen, done: 0, state }
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("no panic")).into_owned()
    }

    /// Waits until `text` comes behind what was waited for before.
    fn sees(&mut self, text: &str) {
        self.sees_within(text, |_| {});
    }

    /// Types Ctrl-C until `text` comes: before the statement runs it does nothing.
    fn interrupts(&mut self, text: &str) {
        self.sees_within(text, |terminal| terminal.types("\u{3}"));
    }

    fn sees_within(&mut self, text: &str, meanwhile: impl Fn(&mut Terminal)) {
        let began = Instant::now();
        loop {
            let screen = self.screen();
            if let Some(at) = screen[self.done..].find(text) {
                self.done += at + text.len();
                return;
            }
            let is_late = began.elapsed() > Duration::from_secs(60);
            assert!(!is_late, "no {text:?} in {:?}", &screen[self.done..]);
            meanwhile(self);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it is read");
    }

    /// Types each line when `prompt` is there.
    fn at(&mut self, prompt: &str, line: &str) {
        self.sees(prompt);
        self.types(&format!("{line}\r"));
    }

    /// Ends it by Ctrl-D at `prompt`.
    fn end(&mut self, prompt: &str) -> ExitStatus {
        self.sees(prompt);
        self.types("\u{4}");
        self.process.wait().expect("it ends")
    }
}

#[test]
fn a_user_sees_where_a_statement_and_a_transaction_are() {
    let (_directory, file) = place();
    let mut terminal = Terminal::start(&[&file]);
    terminal.at("shop> ", "CREATE TABLE t(v);");
    terminal.at("shop> ", "INSERT INTO t");
    let long = "a text that is cut to the width of the terminal, since it is long";
    terminal.at("...> ", &format!("VALUES (NULL), (''), ('{long}');"));
    terminal.sees("3 rows changed");
    terminal.at("shop> ", "SELEC;");
    terminal.sees("error: near");
    terminal.at("shop> ", "BEGIN;");
    terminal.at("shop*> ", "DELETE FROM t;");
    terminal.at("shop*> ", "ROLLBACK;");
    terminal.at("shop> ", "SELECT 7 AS seven, v FROM t;");
    terminal.sees("NULL");
    terminal.sees("…");
    // It is drawn again and again.
    terminal.at("shop> ", "\\watch 0.05");
    terminal.sees("\u{1b}[2J");
    terminal.sees("\u{1b}[2J");
    terminal.types("\u{3}");
    // A line is taken back; tables and commands are completed.
    terminal.sees("shop> ");
    terminal.types("SELECT 1 FROM nothing\u{3}");
    terminal.sees("shop> ");
    terminal.types("CREATE TABLE orders(v);\r");
    terminal.sees("shop> ");
    terminal.types("SELECT count(*) AS counted FROM ord\t;\r");
    terminal.sees("counted");
    terminal.sees("shop> ");
    terminal.types(" SELECT 'secret';\r");
    terminal.sees("shop> ");
    terminal.types(".tab\t\r");
    terminal.sees("orders");
    assert_eq!(terminal.end("shop> ").code(), Some(0));
    let history = terminal.state.path().join("monolite/sql_history");
    let kept = std::fs::read_to_string(&history).expect("it is there");
    assert!(kept.contains("INSERT INTO t") && kept.contains(".tables"), "{kept}");
    assert!(!kept.contains("nothing") && !kept.contains("secret"), "{kept}");
    let mode = std::fs::metadata(&history).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o077, 0, "others can read it: {mode:o}");
}

#[test]
fn what_is_behind_a_lost_transaction_does_not_run_outside_of_it() {
    let (_directory, file) = place();
    let (_other, of_server) = place();
    let served = Served::start(&[&of_server]);
    for target in [&file, &served.url] {
        run(target, "CREATE TABLE t(v); INSERT INTO t VALUES (1)");
        let mut terminal = Terminal::start(&[target]);
        terminal.at("> ", "BEGIN; DELETE FROM t;");
        terminal.at("*> ", "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT 1 FROM c)");
        terminal.at("...> ", "SELECT count(*) FROM c;");
        terminal.interrupts("interrupted");
        terminal.at("!> ", "INSERT INTO t VALUES (2);");
        terminal.sees("nothing runs until you say ROLLBACK");
        terminal.at("!> ", "ROLLBACK;");
        terminal.at("> ", "INSERT INTO t VALUES (3);");
        terminal.sees("1 row changed");
        assert_eq!(terminal.end("> ").code(), Some(0));
        assert_eq!(said(&run(target, "SELECT v FROM t ORDER BY v")), "1\n3\n");
    }
    // Nor when the server is gone, perhaps to come back.
    let mut terminal = Terminal::start(&[&served.url]);
    terminal.at("> ", "BEGIN; DELETE FROM t;");
    terminal.sees("*> ");
    drop(served);
    terminal.types("SELECT 1;\r");
    terminal.sees("error: the server is not reached");
    terminal.at("!> ", "DELETE FROM t;");
    terminal.sees("nothing runs until you say ROLLBACK");
    assert_eq!(terminal.end("!> ").code(), Some(0));
}

#[test]
fn a_write_that_was_interrupted_does_not_keep_the_shell() {
    let (_directory, file) = place();
    let mut terminal = Terminal::start(&[&file]);
    terminal.at("> ", "CREATE TABLE t(v);");
    terminal.at("> ", &format!("{SLOW};"));
    terminal.interrupts("interrupted");
    terminal.at("> ", ".mode line");
    terminal.at("> ", ".who");
    terminal.sees("has the writer");
    terminal.at("> ", ".quit");
    terminal.interrupts("stopped");
    assert_eq!(terminal.process.wait().expect("it ends").code(), Some(130));
    assert_eq!(said(&run(&file, "SELECT count(*) FROM t")), "0\n");
}

#[test]
fn what_a_database_holds_does_not_command_the_terminal() {
    let (_directory, file) = place();
    let hostile = "'\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}'";
    let sql = format!("SELECT {hostile} AS \"\u{1b}]0;owned\u{7}\";\n");
    for mode in ["table", "csv", "json", "line", "list"] {
        let mut terminal = Terminal::start(&[&file, "--mode", mode, "-c", &sql]);
        assert_eq!(terminal.process.wait().expect("it ends").code(), Some(0));
        terminal.sees("]0;owned");
        let screen = terminal.screen();
        assert!(!screen.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{mode}: {screen:?}");
    }
    let sql = "SELECT * FROM \"\u{1b}]0;owned\u{7}\"";
    let mut terminal = Terminal::start(&[&file, "-c", sql]);
    assert_eq!(terminal.process.wait().expect("it ends").code(), Some(1));
    terminal.sees("]0;owned");
    let screen = terminal.screen();
    assert!(!screen.contains(['\u{1b}', '\u{7}']), "{screen:?}");
    // A file gets what is there.
    assert_eq!(
        said(&run(&file, &format!("SELECT {hostile}"))),
        format!("{}\n", &hostile[1..hostile.len() - 1])
    );
}
