//! `monolite backup`: opens the database, shows progress, prints what was copied.

use crate::arguments;
use crate::bar::Bar;
use crate::interrupt::{self, Stopped};
use crate::out::stdout;
use crate::{json, words};
use anyhow::{Context as _, Result, anyhow, ensure};
use monolite::{Database, Error, ErrorKind, JobMonitor, Options};
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// What `--json` prints.
#[derive(Serialize)]
struct Record<'a> {
    file: Cow<'a, str>,
    backup: Cow<'a, str>,
    pages: u64,
    bytes: u64,
    seconds: f64,
}

/// Makes the backup.
pub(crate) fn run(arguments: &arguments::Backup) -> Result<()> {
    let start = Instant::now();
    let db = open(&arguments.file, "is this the right path?")?;
    let backup = db.backup(&arguments.out);
    let stop = interrupt::flag()?;
    let made = watched("copying pages", &backup.monitor(), &stop, || backup.wait());
    let closed = db.close();
    let made = match made {
        Err(error) if error.kind() == ErrorKind::Aborted => {
            return Err(Stopped("a backup leaves nothing behind").into());
        }
        made => made?,
    };
    closed?;
    let record = Record {
        file: json::name(&arguments.file),
        backup: json::name(&arguments.out),
        pages: made.pages,
        bytes: made.bytes,
        seconds: start.elapsed().as_secs_f64(),
    };
    show(&record, arguments.json)
        .with_context(|| format!("the backup {} was made, and telling so failed", record.backup))
}

fn show(record: &Record<'_>, as_json: bool) -> Result<()> {
    let mut out = stdout();
    if as_json {
        return json::print(&mut out, record);
    }
    let Record { backup, pages, bytes, seconds, .. } = record;
    let (pages, seconds) = (words::count(*pages, "page"), words::seconds(*seconds));
    writeln!(out, "{backup}: {pages}, {bytes} bytes, {seconds}")?;
    Ok(out.flush()?)
}

/// Runs `wait` while a bar shows how far the job is, which does `what`; cancels it when `stop` is
/// set.
pub(crate) fn watched<T>(
    what: &str,
    monitor: &JobMonitor,
    stop: &AtomicBool,
    wait: impl FnOnce() -> T,
) -> T {
    let bar = Bar::patient();
    bar.begin(what, None);
    let is_over = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            let mut total = 0;
            while !is_over.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    monitor.cancel();
                }
                let progress = monitor.progress();
                if std::mem::replace(&mut total, progress.total) != progress.total {
                    bar.begin(what, Some(total));
                }
                bar.advance_to(progress.done);
                thread::park_timeout(TICK);
            }
        });
        let result = wait();
        is_over.store(true, Ordering::Relaxed);
        result
    });
    bar.finish();
    result
}

/// Opens an existing database that no other process has open. The error for a missing one ends with
/// `remedy`.
pub(crate) fn open(file: &Path, remedy: &str) -> Result<Database> {
    open_with(Options::new(), file, remedy)
}

/// The same, with options.
pub(crate) fn open_with(options: Options, file: &Path, remedy: &str) -> Result<Database> {
    ensure!(file.exists(), "{} does not exist; {remedy}", file.display());
    options.open(file).map_err(|error| match error.kind() {
        ErrorKind::Overloaded => held(&error),
        _ => error.into(),
    })
}

/// Tells who has a file that is refused for that.
pub(crate) fn holder(error: &Error) -> String {
    let text = error.to_string();
    // What follows is for programs.
    text.split_once("; close it there").map_or(text.as_str(), |(who, _)| who).to_owned()
}

/// The same, with what to do.
pub(crate) fn held(error: &Error) -> anyhow::Error {
    let who = holder(error);
    anyhow!(
        "{who}; stop that program, or let it do this itself while it runs (Database::backup, \
         Database::check, Migrations::up; for `monolite migrate`, a server's admin address)"
    )
}
