//! Other processes: this test binary runs itself again, to play a role that is named in its
//! environment. A child ends when its parent does, since it reads from or writes to it.

use std::env;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;

use crate::{kill, sharing, shutdown};

const ROLE: &str = "MONOLITE_TEST_ROLE";

/// A running child. It is killed when this is dropped.
pub(crate) struct Child {
    process: Process,
    input: Option<ChildStdin>,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
}

/// Starts this binary in `role`, with further variables in its environment.
pub(crate) fn spawn(role: &str, variables: &[(&str, &str)]) -> Child {
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["child::plays_the_role_it_was_started_for", "--exact", "--nocapture"])
        .env(ROLE, role)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    Child { input: process.stdin.take(), process, lines }
}

impl Child {
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Reads up to the line that the child says with `word`, and returns the rest of that line.
    pub(crate) fn await_word(&mut self, word: &str) -> String {
        let words = self.lines.by_ref().map_while(Result::ok);
        let said = words.into_iter().find_map(|line| line.strip_prefix(word).map(str::to_owned));
        said.unwrap_or_else(|| panic!("the child ended without saying {word}"))
    }

    /// Tells the child to go on, see [`await_parent`].
    pub(crate) fn go_on(&mut self) {
        drop(self.input.take());
    }

    /// `SIGKILL`, and waits until the process is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits for the end of a child that ends by itself.
    pub(crate) fn succeeds(mut self) {
        self.go_on();
        assert!(self.process.wait().unwrap().success(), "the child failed");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nobody to kill.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In a child: says a line to the parent. Ends the process when nobody listens.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let said = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    if said.is_err() {
        std::process::exit(1);
    }
}

/// In a child: waits for [`Child::go_on`], or for the parent's end.
pub(crate) fn await_parent() {
    let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
}

/// In a child: what the parent put into the environment.
pub(crate) fn variable<T: FromStr>(name: &str) -> T {
    let text = env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    text.parse().unwrap_or_else(|_| panic!("{name} cannot be read: {text}"))
}

/// Does nothing in an ordinary test run.
#[test]
fn plays_the_role_it_was_started_for() {
    let Ok(role) = env::var(ROLE) else { return };
    say("");
    match role.as_str() {
        "writes until killed" => kill::write_until_killed(),
        "holds the file" => shutdown::hold_the_file(),
        "uses plain SQLite" => sharing::use_plain_sqlite(),
        _ => panic!("no such role: {role}"),
    }
    std::process::exit(0);
}
