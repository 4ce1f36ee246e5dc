//! A memory cgroup for a child: only the child is killed when it takes more than its limit.
//!
//! Version 1 of the interface (`memory/memory.limit_in_bytes`) and version 2 (`memory.max`) are
//! both known. Making one needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use monolite_testkit::child::variable;

/// Where Linux distributions mount the hierarchies.
const ROOT: &str = "/sys/fs/cgroup";

/// How often the removal of a group is tried again: the kernel lets go of a dead process's memory
/// a moment after its parent was told.
const TRIES: u32 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A group, as a child sees it that is in it.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
    version: Version,
}

/// A group of this process's own; removed when dropped.
#[derive(Debug)]
pub(super) struct Temporary(pub(super) Cgroup);

impl Temporary {
    /// A new group that may hold `limit` bytes, page cache included.
    pub(super) fn new(limit: u64) -> Result<Temporary> {
        let name = format!("monolite-torture-{}-{}", std::process::id(), fastrand::u32(..));
        let one = Path::new(ROOT).join("memory");
        if one.join("memory.limit_in_bytes").exists() {
            let group = create(&one.join(name), Version::One)?;
            group.0.set("memory.limit_in_bytes", limit)?;
            // Exists only where swap is accounted for; without it there may be swap.
            let _ = group.0.set("memory.memsw.limit_in_bytes", limit);
            return Ok(group);
        }
        if Path::new(ROOT).join("cgroup.controllers").exists() {
            // Harmless where it is on already; where it is refused, the limit below says so.
            let _ = fs::write(Path::new(ROOT).join("cgroup.subtree_control"), "+memory");
            let group = create(&Path::new(ROOT).join(name), Version::Two)?;
            group.0.set("memory.max", limit)?;
            let _ = group.0.set("memory.swap.max", 0);
            return Ok(group);
        }
        bail!("no memory cgroup is mounted at {ROOT}")
    }
}

fn create(path: &Path, version: Version) -> Result<Temporary> {
    fs::create_dir(path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(Temporary(Cgroup { path: path.to_owned(), version }))
}

impl Drop for Temporary {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            if fs::remove_dir(&self.0.path).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Cgroup {
    /// The group at this path.
    pub(super) fn at(path: &Path) -> Cgroup {
        let is_one = path.join("memory.limit_in_bytes").exists();
        let version = if is_one { Version::One } else { Version::Two };
        Cgroup { path: path.to_owned(), version }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the calling process into it.
    pub(super) fn join(&self) -> Result<()> {
        self.set("cgroup.procs", u64::from(std::process::id()))
    }

    /// Most bytes that were ever charged to it, page cache included; 0 where it is not told.
    pub(super) fn peak_bytes(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Bytes charged to it now that are no page cache.
    pub(super) fn anonymous_bytes(&self) -> u64 {
        let name = match self.version {
            Version::One => "total_rss",
            Version::Two => "anon",
        };
        self.figure("memory.stat", name)
    }

    /// How many of its processes the kernel killed as memory ran out.
    pub(super) fn kills(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        self.figure(file, "oom_kill")
    }

    fn figure(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        named(&text, name)
    }

    fn set(&self, file: &str, value: u64) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value.to_string())
            .with_context(|| format!("cannot write to {}", path.display()))
    }
}

/// In a child: joins the cgroup that the parent made, if it could.
pub(super) fn enter() -> Result<Option<Cgroup>> {
    let path: String = variable("CGROUP")?;
    if path.is_empty() {
        return Ok(None);
    }
    let cgroup = Cgroup::at(Path::new(&path));
    cgroup.join()?;
    Ok(Some(cgroup))
}

/// The figure in the line of `text` that begins with the word `name`; 0 when there is none.
fn named(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|figure| figure.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn a_figure_is_found_by_its_whole_name() {
    let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
    assert_eq!(named(text, "oom_kill"), 3);
    assert_eq!(named(text, "anon"), 0);
}
