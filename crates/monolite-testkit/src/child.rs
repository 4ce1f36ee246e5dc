//! Other processes: a program that tortures runs itself again, to play a role that is named in its
//! environment, so that it can be killed, starved or cut off while its parent goes on.
//!
//! # Invariants
//! - A child ends when its parent does: its standard input is a pipe from the parent.
//! - What a child says goes through a pipe line by line; a line that the parent has read was said.
//!
//! # Threads and locks
//! Two threads in the parent read each child's pipes: one what it says, so that the parent can wait
//! for a line with a deadline, one the end of what it writes to its standard error, for
//! [`Child::end`]. They end with the child, or with the [`Child`].

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child as Process, ChildStdin, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};

const ROLE: &str = "MONOLITE_ROLE";

/// Lines that wait for the parent before a child that says more has to wait as well.
const LINES_AHEAD: usize = 1_024;

/// The bytes that are kept of the end of a child's standard error.
const ERRORS_KEPT: usize = 16 << 10;

/// How long the end of a child's standard error is waited for: a grandchild may hold the pipe.
const ERRORS_PATIENCE: Duration = Duration::from_secs(5);

/// How to start the running program again.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    /// Programs to start it under, as `strace -f`.
    under: Vec<OsString>,
}

impl Program {
    /// The running program, without arguments; its `main` calls [`play`] before anything else.
    pub fn this() -> Result<Program> {
        let path = env::current_exe().context("cannot find this program's own file")?;
        Ok(Program { path, arguments: Vec::new(), under: Vec::new() })
    }

    /// The running test binary, which has a test of this full name that calls [`play`].
    pub fn this_test(name: &str) -> Result<Program> {
        let arguments = [name, "--exact", "--nocapture"].map(OsString::from).to_vec();
        Ok(Program { arguments, ..Program::this()? })
    }

    /// The same program, started by `command`, as `["strace", "-f"]`.
    #[must_use]
    pub fn under(mut self, command: &[&str]) -> Program {
        self.under = command.iter().map(OsString::from).collect();
        self
    }

    /// Starts it in `role`, with further variables in its environment.
    pub fn spawn(&self, role: &str, variables: &[(&str, &str)]) -> Result<Child> {
        let mut words = self.under.iter().cloned().chain([self.path.clone().into()]);
        let first = words.next().context("a program has a path")?;
        let mut process = Command::new(&first)
            .args(words)
            .args(&self.arguments)
            .env(ROLE, role)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Of its own, so that a Ctrl-C meant for the parent does not end the child.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", first.display()))?;
        let output = process.stdout.take().context("the child's output is piped")?;
        let (to_parent, lines) = sync_channel(LINES_AHEAD);
        thread::spawn(move || {
            let said = BufReader::new(output).lines().map_while(Result::ok);
            // Fails once the parent has dropped the child and nobody listens.
            let _ = said.map(|line| to_parent.send(line)).find(Result::is_err);
        });
        let written = process.stderr.take().context("the child's errors are piped")?;
        let (to_parent, errors) = sync_channel(1);
        // Fails when the parent has dropped the child.
        thread::spawn(move || to_parent.send(tail(written)));
        Ok(Child { input: process.stdin.take(), process, lines, errors })
    }
}

/// Reads to the end and keeps the last of it.
fn tail(mut from: impl Read) -> String {
    let (mut kept, mut read) = (Vec::new(), [0; 4 << 10]);
    while let Ok(count @ 1..) = from.read(&mut read) {
        kept.extend_from_slice(&read[..count]);
        kept.drain(..kept.len().saturating_sub(ERRORS_KEPT));
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// A running child. It is killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    process: Process,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

/// How a child ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code or the signal that ended it.
    pub status: ExitStatus,
    /// The end of what it wrote to its standard error.
    pub errors: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors.trim() {
            "" => write!(f, "{}", self.status),
            errors => write!(f, "{}: {errors}", self.status),
        }
    }
}

/// What a child says within some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A line.
    Line(String),
    /// Nothing yet.
    Silence,
    /// It has ended, and everything it said was heard.
    End,
}

impl Child {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next whole line it said; `None` once it has ended and everything is read.
    pub fn next_line(&mut self) -> Option<String> {
        self.lines.recv().ok()
    }

    /// The next whole line it says within `patience`.
    pub fn listen(&mut self, patience: Duration) -> Heard {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Heard::Line(line),
            Err(RecvTimeoutError::Timeout) => Heard::Silence,
            Err(RecvTimeoutError::Disconnected) => Heard::End,
        }
    }

    /// Reads up to the line that the child says with `word`, and returns the rest of that line.
    pub fn await_word(&mut self, word: &str) -> Result<String> {
        let mut said = self.lines.iter();
        said.find_map(|line| line.strip_prefix(word).map(str::to_owned))
            .ok_or_else(|| anyhow!("the child ended without saying {word:?}"))
    }

    /// Says a line to the child, which [`heard`] gives there.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the child was told to go on")?;
        input.write_all(format!("{line}\n").as_bytes()).context("the child does not listen")
    }

    /// Tells the child to go on, see [`await_parent`].
    pub fn go_on(&mut self) {
        drop(self.input.take());
    }

    /// `SIGKILL`, and waits until the process is gone. What it said before can still be read.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill().context("cannot kill the child")?;
        self.process.wait().context("cannot wait for the child")?;
        Ok(())
    }

    /// Has the process stand still where it is (`SIGSTOP`), until [`Child::resume`].
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP).context("cannot stop the child")
    }

    /// Lets it go on after [`Child::pause`].
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT).context("cannot let the child go on")
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(id.context("a process has an id")?, signal)?)
    }

    /// Waits for the end of a child that ends by itself, and says how it ended.
    pub fn end(&mut self) -> Result<Ended> {
        self.go_on();
        let status = self.process.wait().context("cannot wait for the child")?;
        let errors = self.errors.recv_timeout(ERRORS_PATIENCE).unwrap_or_default();
        Ok(Ended { status, errors })
    }

    /// Waits for the end of a child that ends by itself.
    pub fn succeeds(mut self) -> Result<()> {
        let ended = self.end()?;
        ensure!(ended.status.success(), "the child ended with {ended}");
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nobody to kill.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a child does, by the name of its role.
pub type Roles<'a> = &'a [(&'a str, fn() -> Result<()>)];

/// Plays the role this process was started for and ends the process; returns when there is none.
pub fn play(roles: Roles<'_>) {
    let Ok(role) = env::var(ROLE) else { return };
    let played = match roles.iter().find(|(name, _)| *name == role) {
        Some((_, act)) => act(),
        None => Err(anyhow!("no such role: {role}")),
    };
    match played {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            say(&format!("failed {error:#}"));
            std::process::exit(1);
        }
    }
}

/// In a child: says a line to the parent. Ends the process when nobody listens.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let said = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    if said.is_err() {
        std::process::exit(1);
    }
}

/// In a child: waits for [`Child::go_on`], or for the parent's end.
pub fn await_parent() {
    let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
}

/// In a child: each line that the parent says, until its end.
pub fn heard() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}

/// In a child: what the parent put into the environment.
pub fn variable<T: FromStr>(name: &str) -> Result<T> {
    let text = env::var(name).with_context(|| format!("{name} is not set"))?;
    text.parse().map_err(|_| anyhow!("{name} cannot be read: {text}"))
}
