//! How a process that has a database open ends or stands still, and what it is not allowed.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use monolite::Options;

use super::scene::Scene;
use super::scene::actor::{Actor, Lives};

/// How many lines of a load are heard before something happens to it.
const HEARD: u32 = 100;

/// How long a process stands still: longer than the engine's own looks at its threads and files.
const STILL: Duration = Duration::from_millis(1_500);

/// Tasks of a process that gets no more: its own, and the first of those that a write needs.
const TASKS: u32 = 2;

pub(super) fn killed(scene: &mut Scene<'_>, is_loaded: bool, signal: &str) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    if is_loaded {
        actor.begin(scene, "load", HEARD)?;
    }
    actor.signal(signal)?;
    actor.end(scene)?;
    Ok(())
}

pub(super) fn stopped(scene: &mut Scene<'_>) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    actor.begin(scene, "load", HEARD)?;
    actor.signal("-STOP")?;
    thread::sleep(STILL);
    actor.signal("-CONT")?;
    actor.more(scene, HEARD * 5)?;
    actor.kill_and_hear(scene)?;
    Ok(())
}

pub(super) fn stopped_and_opened(scene: &mut Scene<'_>) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    actor.signal("-STOP")?;
    scene.opened(Options::new().open(&scene.place.path));
    actor.signal("-CONT")?;
    actor.must(scene, "put 70 75")?;
    actor.must(scene, "close")?;
    Ok(())
}

/// A process with an open database is told what to do.
pub(super) fn told(scene: &mut Scene<'_>, commands: &[&str]) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    commands.iter().try_for_each(|command| actor.must(scene, command))?;
    Ok(())
}

pub(super) fn exits(scene: &mut Scene<'_>, is_loaded: bool, command: &str) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    if is_loaded {
        actor.begin(scene, "load", HEARD)?;
    }
    actor.ask(scene, command)?;
    Ok(())
}

pub(super) fn dropped(scene: &mut Scene<'_>) -> Result<()> {
    drop(scene.open(&Options::new())?);
    Ok(())
}

pub(super) fn forked_and_opened(scene: &mut Scene<'_>) -> Result<()> {
    let command = format!("fork {}", scene.file()?);
    told(scene, &[&command, "put 70 75", "close"])
}

pub(super) fn outlived(scene: &mut Scene<'_>) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    actor.must(scene, "start a program")?;
    actor.kill()?;
    Ok(())
}

/// A process that a shell has limited opens the database and does what it is told.
pub(super) fn limited(scene: &mut Scene<'_>, limit: &str, commands: &[&str]) -> Result<()> {
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
    Ok(())
}

pub(super) fn without_threads(scene: &mut Scene<'_>) -> Result<()> {
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
