//! How a process that has a database open ends or stands still, and what it is not allowed.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use monolite::Options;

use super::scene::Scene;
use super::scene::actor::{Actor, Lives};
use super::{Fate, Row, Trial, When};
use crate::checks::{closures, environment, kills, overload};

/// How many lines of a load are heard before something happens to it.
const HEARD: u32 = 100;

/// How long a process stands still: longer than the engine's own looks at its threads and files.
const STILL: Duration = Duration::from_millis(1_500);

/// Tasks of a process that gets no more: those of an open database are eight, and its own.
const TASKS: u32 = 4;

pub(super) const ROWS: &[Row] = &[
    Row {
        accident: "`kill -9`",
        when: &[When::Idle, When::Load],
        fate: Fate::Survived,
        says: "",
        what: "the next opening recovers the WAL",
        instead: "nothing",
        trial: Trial::Scene(|scene, when| killed(scene, when, "-KILL")),
    },
    Row {
        accident: "`kill` (SIGTERM), which it does not handle",
        when: &[When::Idle, When::Load],
        fate: Fate::Survived,
        says: "",
        what: "as after `kill -9`",
        instead: "nothing",
        trial: Trial::Scene(|scene, when| killed(scene, when, "-TERM")),
    },
    Row {
        accident: "`kill -9` while it opens, checkpoints or closes",
        when: &[When::Opening, When::Close],
        fate: Fate::Survived,
        says: "",
        what: "as after any other",
        instead: "nothing",
        trial: Trial::Check(&kills::CHECK),
    },
    Row {
        accident: "stopped for seconds (SIGSTOP, a laptop that sleeps, a machine that is moved)",
        when: &[When::Load],
        fate: Fate::Survived,
        says: "",
        what: "it goes on; closures that ran meanwhile may be out of time",
        instead: "nothing",
        trial: Trial::Scene(stopped),
    },
    Row {
        accident: "stopped, and another process opens the file",
        when: &[When::Idle],
        fate: Fate::Refused,
        says: "is held by pid",
        what: "refused with `Overloaded`: who is stopped still holds the file",
        instead: "end what is stopped",
        trial: Trial::Scene(stopped_and_opened),
    },
    Row {
        accident: "ends without a close (`exit`)",
        when: &[When::Idle, When::Load],
        fate: Fate::Survived,
        says: "",
        what: "as after `kill -9`; writes that were not waited for may be there or not",
        instead: "close it: then there is no WAL to recover",
        trial: Trial::Scene(exits),
    },
    Row {
        accident: "the last handle is dropped without a close",
        when: &[When::Idle],
        fate: Fate::Survived,
        says: "",
        what: "that closes it, but tells nobody of an error",
        instead: "close it, to be told",
        trial: Trial::Scene(dropped),
    },
    Row {
        accident: "the last handle is dropped in a `thread_local!`, at the end of its thread",
        when: &[When::Idle],
        fate: Fate::Survived,
        says: "",
        what: "as above",
        instead: "as above",
        trial: Trial::Scene(|scene, _| told(scene, "exclusive", &["thread-local"])),
    },
    Row {
        accident: "forked, and the child uses the database",
        when: &[When::Idle],
        fate: Fate::Refused,
        says: "forked",
        what: "each call of the child is refused with `Invalid`; the parent goes on",
        instead: "open databases after `fork()`",
        trial: Trial::Scene(|scene, _| {
            told(scene, "exclusive", &["fork write", "put 70 75", "close"])
        }),
    },
    Row {
        accident: "forked, and the child opens the database again",
        when: &[When::Idle],
        fate: Fate::Refused,
        says: "forked",
        what: "refused with `Invalid`: SQLite in the child takes the locks of the parent for its \
               own",
        instead: "start another program (`exec`) that opens it, with `Sharing::Shared` in both",
        trial: Trial::Scene(forked_and_opened),
    },
    Row {
        accident: "a program that it has started lives longer than it",
        when: &[When::Idle],
        fate: Fate::Survived,
        says: "",
        what: "that has neither its descriptors nor its locks",
        instead: "nothing",
        trial: Trial::Scene(outlived),
    },
    Row {
        accident: "a descriptor of the database or its WAL is closed by other code of the process \
                   (one that is closed twice), and the next file that is opened gets its number",
        when: &[When::Idle, When::Open],
        fate: Fate::Detected,
        says: "",
        what: "nothing is written to the other file, as far as the system tells in time: which \
               file it is, is looked at before each write. Writes fail with `CommitUnknown` or \
               `Poisoned`, the close with `Storage` or `Poisoned`. What is read meanwhile may be \
               damaged (`Corrupt`) or of the other file, and the close closes that",
        instead: "mend that code, end the process, and open the database again",
        trial: Trial::Untried(
            "tried by `nothing_is_written_to_a_file_that_took_over_the_descriptor`",
        ),
    },
    Row {
        accident: "the same happens to the descriptor of the `-shm` file, `Sharing::Shared`",
        when: &[When::Idle, When::Open],
        fate: Fate::Detected,
        says: "",
        what: "no write of this process begins any more, as others would not see its locks: which \
               file it is, is looked at before each. Writes and the close fail with `Storage`; \
               everything acknowledged is in the files",
        instead: "as above",
        trial: Trial::Untried(
            "tried by `nothing_is_locked_in_a_file_that_took_over_the_descriptor_of_the_wal_index`",
        ),
    },
    Row {
        accident: "a closure panics, fails or overruns its time, at every step",
        when: &[When::Load],
        fate: Fate::Survived,
        says: "",
        what: "it alone is undone, and its caller is told",
        instead: "nothing",
        trial: Trial::Case("every fault at every step of a member"),
    },
    Row {
        accident: "a future is dropped at any stage",
        when: &[When::Load],
        fate: Fate::Survived,
        says: "",
        what: "what was handed over is done; nobody else notices",
        instead: "nothing",
        trial: Trial::Case("a future dropped at every stage"),
    },
    Row {
        accident: "a closure blocks, nests, closes the database, or keeps a statement for ever",
        when: &[When::Load],
        fate: Fate::Survived,
        says: "",
        what: "the others go on, or are told why not, within the limits of time",
        instead: "see `Database::close`",
        trial: Trial::Check(&closures::CHECK),
    },
];

pub(super) const LIMITS: &[Row] = &[
    Row {
        accident: "no more threads (`pids.max`, `ulimit -u`)",
        when: &[When::Opening],
        fate: Fate::Refused,
        says: "cannot be started",
        what: "opening is refused with `Storage`, and what it had is given back",
        instead: "raise the limit; fewer `readers`",
        trial: Trial::Scene(without_threads),
    },
    Row {
        accident: "no more descriptors (`ulimit -n`)",
        when: &[When::Opening],
        fate: Fate::Refused,
        says: "Storage",
        what: "opening is refused with `Storage`, and what it had is given back",
        instead: "raise the limit; fewer `readers`",
        trial: Trial::Scene(|scene, _| limited(scene, "ulimit -n 8", &[])),
    },
    Row {
        accident: "no more descriptors (others of the process have them)",
        when: &[When::Open],
        fate: Fate::Survived,
        says: "",
        what: "writes and reads go on; what needs a new connection, as the first interactive \
               transaction does, is refused with `Storage` for as long",
        instead: "raise the limit",
        trial: Trial::Scene(|scene, _| {
            told(scene, "exclusive", &["hog", "put 70 75", "read", "close"])
        }),
    },
    Row {
        accident: "a limit on the size of files (`ulimit -f`)",
        when: &[When::Open],
        fate: Fate::Detected,
        says: "ulimit -f",
        what: "what does not fit fails with `Storage` (a process that does not ignore SIGXFSZ is \
               ended by it); smaller writes and reads go on",
        instead: "raise the limit, or set `wal_limit_bytes` below it",
        trial: Trial::Scene(|scene, _| {
            let limit = "trap '' XFSZ && ulimit -f 1000";
            limited(scene, limit, &["put 100 250", "read", "close"])
        }),
    },
    Row {
        accident: "a limit on the size of files that kills (SIGXFSZ)",
        when: &[When::Open],
        fate: Fate::Detected,
        says: "signal",
        what: "as `kill -9`",
        instead: "raise the limit, or set `wal_limit_bytes` below it",
        trial: Trial::Scene(|scene, _| limited(scene, "ulimit -f 1000", &["put 100 250"])),
    },
    Row {
        accident: "no more memory (`memory.max` of a container)",
        when: &[When::Load],
        fate: Fate::Survived,
        says: "",
        what: "caches and queues are bounded; if the kernel kills it all the same, it is `kill -9`",
        instead: "smaller caches",
        trial: Trial::Check(&overload::CHECK),
    },
    Row {
        accident: "an allocation of SQLite fails, any",
        when: &[When::Opening, When::Load],
        fate: Fate::Detected,
        says: "",
        what: "who needed it fails with `Storage`; nobody else does",
        instead: "free some memory",
        trial: Trial::Check(&environment::CHECK),
    },
];

fn killed(scene: &mut Scene<'_>, when: When, signal: &str) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    if when == When::Load {
        actor.begin(scene, "load", HEARD)?;
    }
    actor.signal(signal)?;
    actor.end(scene)?;
    scene.settle();
    Ok(())
}

fn stopped(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    actor.begin(scene, "load", HEARD)?;
    actor.signal("-STOP")?;
    thread::sleep(STILL);
    actor.signal("-CONT")?;
    actor.more(scene, HEARD * 5)?;
    actor.kill_and_hear(scene)?;
    scene.settle();
    Ok(())
}

fn stopped_and_opened(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    actor.signal("-STOP")?;
    scene.opened(Options::new().open(&scene.place.path));
    actor.signal("-CONT")?;
    actor.must(scene, "put 70 75")?;
    actor.must(scene, "close")?;
    scene.settle();
    Ok(())
}

/// A process with an open database is told what to do.
fn told(scene: &mut Scene<'_>, sharing: &str, commands: &[&str]) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, sharing)?;
    commands.iter().try_for_each(|command| actor.must(scene, command))?;
    scene.settle();
    Ok(())
}

fn exits(scene: &mut Scene<'_>, when: When) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    if when == When::Load {
        actor.begin(scene, "load", HEARD)?;
    }
    actor.ask(scene, "exit")?;
    scene.settle();
    Ok(())
}

fn dropped(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    drop(scene.open(&Options::new())?);
    scene.settle();
    Ok(())
}

fn forked_and_opened(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    let command = format!("fork {}", scene.file()?);
    told(scene, "exclusive", &[&command, "put 70 75", "close"])
}

fn outlived(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    actor.must(scene, "start a program")?;
    actor.kill()?;
    scene.settle();
    Ok(())
}

/// A process that a shell has limited opens the database and does what it is told.
fn limited(scene: &mut Scene<'_>, limit: &str, commands: &[&str]) -> Result<()> {
    scene.make(&Options::new())?;
    let mut actor = Actor::limited(scene.setting, limit)?;
    let path = scene.file()?.to_owned();
    actor.must(scene, &format!("open exclusive {path}"))?;
    for command in commands {
        if actor.ask(scene, command)? == Lives::No {
            let ended = actor.end(scene)?;
            scene.errors.push(ended);
            break;
        }
    }
    scene.settle();
    Ok(())
}

fn without_threads(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    let Some(group) = Tasks::new() else {
        scene.skipped = Some("no pids cgroup can be made (needs root)".into());
        return Ok(());
    };
    let group = group.0.display();
    let limit = format!("echo {TASKS} > {group}/pids.max && echo $$ > {group}/cgroup.procs");
    limited(scene, &limit, &[])
}

/// A cgroup that limits threads; removed when dropped.
struct Tasks(PathBuf);

impl Tasks {
    fn new() -> Option<Tasks> {
        let name = format!("monolite-torture-{}-{}", std::process::id(), fastrand::u32(..));
        ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].iter().find_map(|root| {
            let group = Tasks(Path::new(root).join(&name));
            fs::create_dir(&group.0).ok()?;
            group.0.join("pids.max").exists().then_some(group)
        })
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // The kernel lets go of a dead process's group a moment after its parent was told.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
