//! Another process, which does what it is told line by line and says what came of it: it can be
//! killed, stopped and starved, and it is somebody else for the locks of a file.
//!
//! # Format
//! The parent says a command and its arguments. The child answers with any number of lines
//! (`acknowledged NUMBER`, `refused TEXT` for an opening, `error TEXT`, `saw TEXT`), then `done`.

use std::cell::RefCell;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use monolite::rusqlite::Connection;
use monolite::{Database, Error, Options, Sharing};
use monolite_testkit::child::{Child, Heard, Program, heard, say};
use monolite_testkit::markers;

use super::{IN_WAL, Scene};
use crate::Setting;

/// The role of the child.
pub(in super::super::super) const ROLE: (&str, fn() -> Result<()>) = ("environment accident", act);

/// No command takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of each part of a transaction.
const FILLING: usize = 2_000;

/// Threads of a load, and how far apart their numbers are.
const LOADERS: i64 = 3;
const APART: i64 = 100_000;

/// The other process, as its parent sees it.
pub(in super::super) struct Actor(Child);

/// Whether it still lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Lives {
    Yes,
    No,
}

impl Actor {
    pub(in super::super) fn start(setting: &Setting<'_>) -> Result<Actor> {
        Actor::start_as(setting.program)
    }

    /// One that a shell has starved: `limit` is what it says before.
    pub(in super::super) fn limited(setting: &Setting<'_>, limit: &str) -> Result<Actor> {
        let script = format!("{limit} && exec \"$@\"");
        Actor::start_as(&setting.program.clone().under(&["sh", "-c", &script, "sh"]))
    }

    /// One that has the scene's database open, with something in its WAL.
    pub(in super::super) fn with_a_wal(scene: &mut Scene<'_>, sharing: &str) -> Result<Actor> {
        scene.make(&Options::new())?;
        let mut actor = Actor::start(scene.setting)?;
        let path = scene.file()?.to_owned();
        actor.must(scene, &format!("open {sharing} {path}"))?;
        let (first, last) = (IN_WAL.start(), IN_WAL.end());
        scene.note_write();
        actor.must(scene, &format!("put {first} {last}"))?;
        Ok(actor)
    }

    pub(in super::super) fn start_as(program: &Program) -> Result<Actor> {
        let mut child = program.spawn(ROLE.0, &[])?;
        child.await_word("ready")?;
        Ok(Actor(child))
    }

    /// Tells it to do something and notes in the scene what comes of it.
    pub(in super::super) fn ask(&mut self, scene: &mut Scene<'_>, command: &str) -> Result<Lives> {
        if self.0.tell(command).is_err() {
            return Ok(Lives::No);
        }
        self.finish(scene)
    }

    /// As [`Actor::ask`] of a child that must not end.
    pub(in super::super) fn must(&mut self, scene: &mut Scene<'_>, command: &str) -> Result<()> {
        ensure!(self.ask(scene, command)? == Lives::Yes, "it ended: {command}");
        Ok(())
    }

    /// Tells it to do something that goes on, and hears the first `lines` of what comes of it.
    pub(in super::super) fn begin(
        &mut self,
        scene: &mut Scene<'_>,
        command: &str,
        lines: u32,
    ) -> Result<()> {
        self.0.tell(command)?;
        self.more(scene, lines)
    }

    /// Hears so many lines more of what goes on.
    pub(in super::super) fn more(&mut self, scene: &mut Scene<'_>, lines: u32) -> Result<()> {
        for _ in 0..lines {
            self.hear(scene)?.context("it ended")?;
        }
        Ok(())
    }

    /// Tells it to do something that may take its time, see [`Actor::finish`].
    pub(in super::super) fn tell_later(&mut self, command: &str) -> Result<()> {
        self.0.tell(command)
    }

    /// Hears the rest of what it was told to do.
    pub(in super::super) fn finish(&mut self, scene: &mut Scene<'_>) -> Result<Lives> {
        loop {
            match self.hear(scene)? {
                Some(line) if line == "done" => return Ok(Lives::Yes),
                Some(_) => {}
                None => return Ok(Lives::No),
            }
        }
    }

    fn hear(&mut self, scene: &mut Scene<'_>) -> Result<Option<String>> {
        let line = match self.0.listen(PATIENCE) {
            Heard::Line(line) => line,
            Heard::End => return Ok(None),
            Heard::Silence => bail!("it says nothing"),
        };
        if let Some(id) = line.strip_prefix("acknowledged ") {
            scene.acknowledged.insert(id.parse()?);
        } else if let Some(text) = line.strip_prefix("refused ") {
            scene.refusals.push(text.into());
        } else if let Some(text) = line.strip_prefix("error ") {
            scene.errors.push(text.into());
        }
        Ok(Some(line))
    }

    pub(in super::super) fn signal(&self, name: &str) -> Result<()> {
        let killed = Command::new("kill").args([name, &self.0.id().to_string()]).status()?;
        ensure!(killed.success(), "kill {name}");
        Ok(())
    }

    /// Kills it and hears what it had said.
    pub(in super::super) fn kill(mut self) -> Result<()> {
        self.0.kill()
    }

    /// As [`Actor::kill`], of one under load.
    pub(in super::super) fn kill_and_hear(mut self, scene: &mut Scene<'_>) -> Result<()> {
        self.0.kill()?;
        while self.hear(scene)?.is_some() {}
        Ok(())
    }

    /// Waits for the end of one that ends by itself, and says how it ended.
    pub(in super::super) fn end(mut self, scene: &mut Scene<'_>) -> Result<String> {
        self.0.go_on();
        while self.hear(scene)?.is_some() {}
        Ok(self.0.end()?.status.to_string())
    }
}

thread_local! {
    static KEPT: RefCell<Option<Database>> = const { RefCell::new(None) };
}

/// The child: does what it is told.
fn act() -> Result<()> {
    say("ready");
    let mut db = None;
    for line in heard() {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match *words {
            ["open", sharing, path] => db = opened(sharing, path),
            ["convert", path] => refused(Options::new().add_page_checksums(path)),
            ["put", from, to] => put(open(&db)?, from.parse()?, to.parse()?),
            ["load"] => load(open(&db)?),
            ["read"] => note(read(open(&db)?)),
            ["close"] => note(open(&db)?.close()),
            ["slurp", path] => _ = fs::read(path)?,
            ["plain", path, sql] => plain(path, sql),
            ["fork", what] => forked(open(&db)?, what)?,
            ["thread-local"] => {
                let kept = db.take();
                // What it does at its end, the thread does while its values are dropped.
                thread::spawn(move || KEPT.set(kept)).join().unwrap_or(());
            }
            ["hog"] => hog(),
            ["start", ..] => _ = Command::new("sleep").arg("2").spawn()?,
            ["exit"] => std::process::exit(0),
            _ => bail!("what is {line:?}?"),
        }
        say("done");
    }
    Ok(())
}

fn open(db: &Option<Database>) -> Result<&Database> {
    db.as_ref().context("nothing is open")
}

fn note(result: Result<(), Error>) {
    if let Err(error) = result {
        say(&format!("error {:?}: {error}", error.kind()));
    }
}

fn refused(result: Result<(), Error>) {
    if let Err(error) = result {
        say(&format!("refused {:?}: {error}", error.kind()));
    }
}

fn opened(sharing: &str, path: &str) -> Option<Database> {
    let sharing = if sharing == "shared" { Sharing::Shared } else { Sharing::Exclusive };
    let opened = Options::new().sharing(sharing).readers(2).open(path);
    let db = opened.map_err(|error| refused(Err(error))).ok()?;
    note(markers::create(&db));
    Some(db)
}

fn put_one(db: &Database, id: i64) -> Result<(), Error> {
    db.write(move |tx| markers::put_filled(tx, id, &[3; FILLING])).wait()?;
    say(&format!("acknowledged {id}"));
    Ok(())
}

fn put(db: &Database, from: i64, to: i64) {
    (from..=to).for_each(|id| note(put_one(db, id)));
}

/// Writes for as long as the process lives.
fn load(db: &Database) {
    for loader in 1..=LOADERS {
        let db = db.clone();
        thread::spawn(move || (loader * APART..).try_for_each(|id| put_one(&db, id)));
    }
}

fn read(db: &Database) -> Result<(), Error> {
    let sql = "SELECT count(*), sum(length(filling)) FROM part";
    let count: i64 = db.read(|tx| tx.query_row(sql, (), |row| row.get(0))).wait()?;
    say(&format!("saw {count}"));
    Ok(())
}

/// Stock SQLite, which waits for nobody.
fn plain(path: &str, sql: &str) {
    let ran = Connection::open(path).and_then(|connection| {
        connection.busy_timeout(Duration::ZERO)?;
        connection.query_row("SELECT count(*) FROM whole", (), |_| Ok(()))?;
        connection.execute_batch(sql)
    });
    if let Err(error) = ran {
        say(&format!("refused {error}"));
    }
}

/// Takes every descriptor that there is to be had, for ever.
fn hog() {
    while let Ok(file) = fs::File::open("/dev/null") {
        std::mem::forget(file);
    }
}

/// A forked process, which writes or opens the database again.
fn forked(db: &Database, what: &str) -> Result<()> {
    match fork::fork().context("no process can be forked")? {
        fork::Fork::Parent(pid) => {
            fork::waitpid(pid).context("the child cannot be waited for")?;
        }
        fork::Fork::Child => {
            let told = match what {
                "write" => db.write(|tx| markers::put_filled(tx, -1, &[])).wait(),
                path => Database::open(path).map(drop),
            };
            refused(told);
            std::process::exit(0);
        }
    }
    Ok(())
}
