//! The machine a figure was measured on, from `/proc` and `/sys`.
//!
//! Names of hosts, users and directories are left out, so that a record can be published. What a
//! system does not tell is `unknown`.

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Hardware and kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the first CPU.
    pub cpu: String,
    /// CPUs this process may use.
    pub cores: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// Distribution.
    pub system: String,
    /// The disk under the data set.
    pub disk: Disk,
}

/// A disk and its file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// Device name, as `vda`.
    pub device: String,
    /// File system type.
    pub file_system: String,
    /// The device's cache as the kernel sees it: `write back` must be flushed, `write through` not.
    pub write_cache: String,
}

impl Machine {
    /// Looks at this machine, and at the disk under `data`.
    pub fn look(data: &Path) -> Machine {
        Machine {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kibibytes(&field("/proc/meminfo", "MemTotal")),
            kernel: format!("Linux {}", first_line("/proc/sys/kernel/osrelease")),
            system: system_name(),
            disk: Disk::under(data),
        }
    }
}

impl Disk {
    fn under(path: &Path) -> Disk {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let number = fs::metadata(path).map(|file| {
            format!("{}:{}", rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()))
        });
        let (source, file_system) =
            number.ok().and_then(|number| mounted(&mounts, &number)).unwrap_or_default();
        let device = source.rsplit('/').next().unwrap_or_default().to_owned();
        let whole = device.trim_end_matches(|c: char| c.is_ascii_digit());
        let cache = [device.as_str(), whole]
            .iter()
            .map(|name| first_line(&format!("/sys/block/{name}/queue/write_cache")))
            .find(|cache| cache != UNKNOWN);
        Disk {
            device: or_unknown(device),
            file_system: or_unknown(file_system),
            write_cache: cache.unwrap_or_else(|| UNKNOWN.into()),
        }
    }
}

const UNKNOWN: &str = "unknown";

/// Returns source and type of the file system with this device number.
fn mounted(mountinfo: &str, number: &str) -> Option<(String, String)> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        (before.split(' ').nth(2)? == number).then_some(())?;
        let mut after = after.split(' ');
        let file_system = after.next()?.to_owned();
        Some((after.next()?.to_owned(), file_system))
    })
}

/// Returns the bytes an unprivileged user may still write under `path`.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let space = rustix::fs::statvfs(path)
        .with_context(|| format!("cannot ask for the free space of {}", path.display()))?;
    Ok(space.f_bavail * space.f_frsize)
}

/// Writes everything that is still unwritten on the file system of `path` to the device.
pub fn settle(path: &Path) -> Result<()> {
    let file = fs::File::open(path).context("cannot open the data set")?;
    rustix::fs::syncfs(&file).context("cannot sync the file system")
}

/// CPU that this process has used, or used in a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// By all threads of the process.
    pub process_ns: u64,
    /// By the thread of the engine that writes; counted in ticks of the kernel's clock.
    pub writer_ns: u64,
}

impl CpuTime {
    /// Returns what was used since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            process_ns: self.process_ns.saturating_sub(earlier.process_ns),
            writer_ns: self.writer_ns.saturating_sub(earlier.writer_ns),
        }
    }

    /// Returns both together.
    pub fn plus(self, other: CpuTime) -> CpuTime {
        CpuTime {
            process_ns: self.process_ns + other.process_ns,
            writer_ns: self.writer_ns + other.writer_ns,
        }
    }
}

/// What a server that is a process of its own has used, and its clients beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// CPU of the server.
    pub server_ns: u64,
    /// CPU of the clients.
    pub clients_ns: u64,
    /// Memory that the server has in use at the end; what its processes share, once.
    pub server_bytes: u64,
}

impl Processes {
    /// Returns both together.
    pub fn plus(self, other: Processes) -> Processes {
        Processes {
            server_ns: self.server_ns + other.server_ns,
            clients_ns: self.clients_ns + other.clients_ns,
            server_bytes: self.server_bytes.max(other.server_bytes),
        }
    }

    /// Returns CPU and memory of process `id` and of the processes that it has started.
    pub fn of_server(id: u32) -> Processes {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let stats = all.filter_map(|it| fs::read_to_string(it.path().join("stat")).ok());
        let family: Vec<u32> = stats.filter_map(|stat| member(&stat, id)).collect();
        // Pages of the program itself are those of this process, too: one alone has all it maps.
        let share = if family.len() > 1 { "Pss" } else { "Rss" };
        let memory = |id: &u32| kibibytes(&field(&format!("/proc/{id}/smaps_rollup"), share));
        Processes {
            server_ns: family.iter().map(|id| on_cpu_ns(*id)).sum(),
            clients_ns: 0,
            server_bytes: family.iter().map(memory).sum(),
        }
    }
}

/// Returns the number of a process from its `stat`, if it is `parent` or one of its children.
fn member(stat: &str, parent: u32) -> Option<u32> {
    let (before, after) = stat.rsplit_once(')')?;
    let id: u32 = before.split_once(' ')?.0.parse().ok()?;
    let its: u32 = after.split_whitespace().nth(1)?.parse().ok()?;
    (id == parent || its == parent).then_some(id)
}

/// Returns the time that the threads of a process have run. Ticks, as `stat` has them, are too
/// coarse for many processes that each run for a moment.
fn on_cpu_ns(id: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let times = tasks.map(|task| first_line(&task.path().join("schedstat").to_string_lossy()));
    times.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Name of the engine's thread that writes.
const WRITER_THREAD: &str = "monolite-write";

/// Returns the CPU time of this process and of the engine's writer in it, so far.
pub fn cpu_time() -> CpuTime {
    let process = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let process_ns = process.tv_sec.cast_unsigned() * 1_000_000_000 + process.tv_nsec as u64;
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let ticks: u64 = texts.filter_map(|text| thread_ticks(&text, WRITER_THREAD)).sum();
    let writer_ns = ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second();
    CpuTime { process_ns, writer_ns }
}

/// Returns user and system time of a thread from its `stat`, if it has this name.
fn thread_ticks(stat: &str, name: &str) -> Option<u64> {
    let (before, after) = stat.rsplit_once(')')?;
    (before.split_once('(')?.1 == name).then_some(())?;
    // utime and stime are fields 14 and 15, and the name is field 2.
    let mut fields = after.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Lets this process, and what it starts, open as many files as the system allows it: a thousand
/// connections are more than many shells allow by themselves.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, a connection too many says so itself.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Returns the most memory this process has held so far.
pub fn peak_memory_bytes() -> u64 {
    kibibytes(&field("/proc/self/status", "VmHWM"))
}

fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_else(|| UNKNOWN.into())
}

fn kibibytes(text: &str) -> u64 {
    let number: Option<u64> = text.split(' ').next().and_then(|number| number.parse().ok());
    number.unwrap_or(0) * 1024
}

fn first_line(file: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    or_unknown(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn or_unknown(text: String) -> String {
    if text.is_empty() { UNKNOWN.into() } else { text }
}

fn system_name() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    or_unknown(name.unwrap_or_default().trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_is_found_by_device_number() {
        let text = "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 25 0:22 / /tmp rw - tmpfs tmpfs rw\n";
        assert_eq!(mounted(text, "0:22"), Some(("tmpfs".into(), "tmpfs".into())));
        assert_eq!(mounted(text, "8:1"), Some(("/dev/sda1".into(), "ext4".into())));
        assert_eq!(mounted(text, "9:9"), None);
    }

    #[test]
    fn ticks_of_a_thread_are_found_by_its_name() {
        let stat = "7 (monolite-write) S 1 2 3 4 5 6 7 8 9 10 250 31 0 0 20 0 9 0 99 1 1";
        assert_eq!(thread_ticks(stat, WRITER_THREAD), Some(281));
        assert_eq!(thread_ticks(stat, "monolite-sync"), None);
    }

    #[test]
    fn processes_of_a_server_are_found_by_their_parent() {
        let stat = "7 (a (b) c) S 5 2 3 4 5 6 7 8 9 10 250 31 0 0 20 0 9 0 99 1 1";
        assert_eq!(member(stat, 5), Some(7));
        assert_eq!(member(stat, 7), Some(7));
        assert_eq!(member(stat, 2), None);
        let own = Processes::of_server(std::process::id());
        assert!(own.server_bytes > 1 << 20 && own.server_ns > 0, "{own:?}");
    }

    #[test]
    fn this_process_has_used_cpu() {
        let begin = cpu_time();
        while cpu_time().since(begin).process_ns == 0 {}
        assert_eq!(cpu_time().since(begin).writer_ns, 0);
    }

    #[test]
    fn this_machine_has_memory_and_room() {
        assert!(Machine::look(Path::new("/")).memory_bytes > 1 << 20);
        assert!(peak_memory_bytes() > 1 << 20);
        assert!(free_bytes(Path::new("/")).is_ok());
    }
}
