//! Optional drivers: databases that are no dependency of this program. What they need comes from
//! package registries through their ordinary clients, and is built at run time in a scratch folder.
//!
//! # Algorithm
//! 1. The sources of a driver, which are texts in this program, are written into
//!    `DATA/drivers/NAME`, and built there: with cargo, whose crates are fetched; of a C source, in
//!    what `npm pack` or `apt-get source` has brought.
//! 2. A trial starts the driver as a process of its own with its work as arguments. The driver
//!    keeps the time, verifies its work, and answers with one line of JSON.
//! 3. What cannot be fetched or built is a gap with its reason, and not the end of the run. What
//!    was built stays in the folder, and is used again.
//!
//! # Invariants
//! A reason names no directory and no server: those are in the `build.log` beside the driver.

mod build;

use crate::drivers::{Absent, Round};
use crate::progress::{Interrupt, Progress};
use crate::statistics::Latencies;
use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// An optional driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Optional {
    /// The branch of SQLite with `BEGIN CONCURRENT` and WAL2.
    Concurrent,
    /// Turso, a rewrite of SQLite.
    Turso,
    /// redb.
    Redb,
    /// LMDB.
    Lmdb,
    /// SQLite's own `kvtest` and `speedtest1`.
    SqliteTools,
}

impl Optional {
    /// All, in the order of the help.
    pub const ALL: [Optional; 5] = [
        Optional::Concurrent,
        Optional::Turso,
        Optional::Redb,
        Optional::Lmdb,
        Optional::SqliteTools,
    ];

    /// Returns its name, as `--with` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Optional::Concurrent => "concurrent",
            Optional::Turso => "turso",
            Optional::Redb => "redb",
            Optional::Lmdb => "lmdb",
            Optional::SqliteTools => "sqlite-tools",
        }
    }

    /// Returns what it is, and where it comes from.
    pub fn about(self) -> &'static str {
        match self {
            Optional::Concurrent => {
                "SQLite's branch with BEGIN CONCURRENT and WAL2, for begin: the C source in the \
                 npm package @rocicorp/zero-sqlite3 1.1.0"
            }
            Optional::Turso => "Turso, for begin: the crate turso 0.9.0-pre.2",
            Optional::Redb => "redb, for kv: the crate redb 4.6",
            Optional::Lmdb => "LMDB, for kv: the crate lmdb-rkv 0.14, which has its C source",
            Optional::SqliteTools => {
                "SQLite's kvtest, for kv, and speedtest1, for others: Debian's source package \
                 sqlite3"
            }
        }
    }

    /// Returns the suites in which it takes part.
    fn suites(self) -> &'static [&'static str] {
        match self {
            Optional::Concurrent | Optional::Turso => &["begin"],
            Optional::Redb | Optional::Lmdb => &["kv"],
            Optional::SqliteTools => &["kv", "others"],
        }
    }

    /// Returns the driver of this name.
    pub fn named(name: &str) -> Option<Optional> {
        Optional::ALL.into_iter().find(|driver| driver.name() == name)
    }
}

impl fmt::Display for Optional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a driver's programs are, or why there are none.
type Built = Result<PathBuf, Absent>;

/// The optional drivers of a run.
#[derive(Clone, Debug, Default)]
pub struct With {
    wanted: Vec<Optional>,
    built: Arc<Mutex<HashMap<Optional, Built>>>,
}

impl With {
    /// Those that are asked for.
    pub fn new(wanted: Vec<Optional>) -> With {
        With { wanted, built: Arc::default() }
    }

    /// Whether a driver is asked for.
    pub fn wants(&self, driver: Optional) -> bool {
        self.wanted.contains(&driver)
    }

    /// Returns their names.
    pub fn names(&self) -> Vec<String> {
        self.wanted.iter().map(ToString::to_string).collect()
    }

    /// Fetches and builds what a suite needs, unless that was done, and says what came of it.
    ///
    /// # Errors
    /// When the user interrupts.
    pub fn build(
        &self,
        suite: &str,
        data: &Path,
        progress: &dyn Progress,
        interrupt: &Interrupt,
    ) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for driver in self.wanted.iter().filter(|driver| driver.suites().contains(&suite)) {
            if self.found(*driver).is_none() {
                let what = format!("getting the driver {driver} ready, which is built once");
                progress.begin(&what, None);
                let folder = data.join("drivers").join(driver.name());
                let built = match build::build(*driver, &folder, interrupt) {
                    Ok(programs) => Ok(programs),
                    Err(error) => Err(error.downcast::<Absent>()?),
                };
                self.lock().insert(*driver, built);
            }
            lines.push(match self.found(*driver) {
                Some(Err(Absent(reason))) => format!("{driver}: not there: {reason}"),
                _ => format!("{driver}: {}", driver.about()),
            });
            let line = lines.last().expect("it was pushed");
            if line.contains("not there") {
                progress.note(line);
            }
        }
        Ok(lines)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Optional, Built>> {
        self.built.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self, driver: Optional) -> Option<Built> {
        self.lock().get(&driver).cloned()
    }

    /// Returns the folder of a driver's programs.
    ///
    /// # Errors
    /// [`Absent`], when they could not be built.
    pub fn programs(&self, driver: Optional) -> Result<PathBuf> {
        let found = self.found(driver).unwrap_or_else(|| Err(Absent("it was not built".into())));
        Ok(found?)
    }

    /// Has a driver work through a round.
    ///
    /// # Errors
    /// [`Absent`] with its words, when it is not there or cannot do this; and when the user
    /// interrupts.
    pub fn round(
        &self,
        driver: Optional,
        arguments: &[(&str, String)],
        interrupt: &Interrupt,
    ) -> Result<Round> {
        let program = self.programs(driver)?.join(program(driver));
        let mut command = Command::new(program);
        command.args(arguments.iter().map(|(key, value)| format!("{key}={value}")));
        let output = run(&mut command, interrupt)?;
        if !output.status.success() {
            return Err(Absent(complaint(driver.name(), &output)).into());
        }
        parse(&output.stdout)
    }
}

fn program(driver: Optional) -> String {
    format!("monolite-bench-{driver}")
}

/// What a program said last, without what it says of files and servers.
pub(crate) fn complaint(name: &str, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let words: Vec<&str> = last.split(' ').filter(|word| !word.contains('/')).collect();
    let mut words = words.join(" ");
    words.truncate(words.char_indices().nth(160).map_or(words.len(), |(at, _)| at));
    if words.is_empty() { format!("{name} ended with {}", output.status) } else { words }
}

/// What a driver says it did.
#[derive(Debug, Deserialize)]
struct Said {
    operations: u64,
    retries: u64,
    seconds: f64,
    wal_bytes_max: u64,
    /// Nanoseconds, and how often.
    latencies: Vec<(u64, u64)>,
}

fn parse(text: &[u8]) -> Result<Round> {
    let said: Said = serde_json::from_slice(text).context("a driver answered something else")?;
    ensure!(said.operations > 0 && said.seconds > 0.0, "a driver did nothing");
    let mut latencies = Latencies::default();
    said.latencies.iter().for_each(|(ns, count)| latencies.record_many(*ns, *count));
    Ok(Round {
        operations: said.operations,
        taken: said.operations,
        retries: said.retries,
        elapsed: Duration::from_secs_f64(said.seconds),
        latencies,
        wal_bytes_max: said.wal_bytes_max,
        ..Round::default()
    })
}

/// Time between two looks at a program, and at whether the user has interrupted.
const LOOK: Duration = Duration::from_millis(10);

/// Runs a program to its end, or until the user interrupts.
///
/// # Errors
/// When it cannot be started, and when the user interrupts.
pub(crate) fn run(command: &mut Command, interrupt: &Interrupt) -> Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let name = command.get_program().to_string_lossy().into_owned();
    let name = Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let child = command.spawn().map_err(|_| Absent(format!("{name} is not there")))?;
    let end = |child: &mut Child| {
        let _ = child.kill();
        let _ = child.wait();
    };
    let (send, ended) = std::sync::mpsc::channel();
    let child = Arc::new(Mutex::new(Some(child)));
    let pipes = {
        let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
        let child = child.as_mut().expect("it was just started");
        (child.stdout.take(), child.stderr.take())
    };
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    };
    let stdout = pipes.0.map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>);
    let stderr = pipes.1.map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>);
    let errors = std::thread::spawn(move || read(stderr));
    let output = std::thread::spawn(move || {
        let bytes = read(stdout);
        let _ = send.send(());
        bytes
    });
    while ended.recv_timeout(LOOK) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        if let Err(interrupted) = interrupt.check() {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            child.take().iter_mut().for_each(end);
            return Err(interrupted.into());
        }
    }
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    let status = child.take().expect("nobody has taken it").wait()?;
    let join = |thread: std::thread::JoinHandle<Vec<u8>>| {
        thread.join().map_err(|_| anyhow!("a reader panicked"))
    };
    Ok(Output { status, stdout: join(output)?, stderr: join(errors)? })
}

#[cfg(test)]
mod tests;
