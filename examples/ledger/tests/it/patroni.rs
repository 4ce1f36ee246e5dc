//! A PostgreSQL pair that Patroni keeps: two servers with a Patroni each, and the etcd in which
//! these agree on the leader. All of it is on loopback and below one temporary directory.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use monolite_testkit::postgres::{as_owner, find_binaries, owner, temporary};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Client;

/// Seconds after which a leader that says nothing has lost its place, and between two rounds of
/// Patroni: 20 is the least that Patroni's documents allow, and 30 and 10 are its defaults.
const TTL: u32 = 20;
const ROUND: u32 = 5;

/// Several rounds of Patroni and a copy of an empty database.
const START_PATIENCE: Duration = Duration::from_secs(90);

const PAUSE: Duration = Duration::from_millis(100);

/// The directory of PostgreSQL's programs, Patroni and etcd.
pub(crate) type Programs = [PathBuf; 3];

pub(crate) fn find_programs() -> anyhow::Result<Programs> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| {
        let mut places = std::env::split_paths(&path).map(|place| place.join(name));
        let hint = "is not installed (Debian: apt install patroni etcd-server)";
        places.find(|place| place.is_file()).with_context(|| format!("{name} {hint}"))
    };
    Ok([find_binaries()?, find("patroni")?, find("etcd")?])
}

/// A running pair, stopped when dropped.
pub(crate) struct Pair {
    etcd: Child,
    nodes: [Node; 2],
    // Removed last.
    _directory: TempDir,
}

/// A Patroni and its server.
struct Node {
    patroni: Child,
    data: PathBuf,
    /// Of the server, and of Patroni's HTTP.
    ports: [u16; 2],
}

impl Pair {
    /// Starts it; returns when each commit waits for the standby, which may become the leader.
    pub(crate) fn start([postgresql, patroni, etcd]: &Programs) -> Pair {
        let directory = temporary(&std::env::temp_dir(), owner().unwrap()).unwrap();
        // All at once, so that they differ.
        let free = [(); 6].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let free = free.map(|it| it.local_addr().unwrap().port());
        let place = directory.path().canonicalize().unwrap();
        let (client, peer) = (format!("http://{}", at(free[0])), format!("http://{}", at(free[1])));
        let arguments = format!(
            "--data-dir {}/etcd --listen-client-urls {client} --advertise-client-urls {client} \
             --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} \
             --initial-cluster default={peer}",
            place.display()
        );
        let arguments: Vec<_> = arguments.split(' ').collect();
        let etcd = spawn(etcd, &arguments, &place, "etcd");
        let node = |name: &str, ports: [u16; 2]| {
            let file = place.join(name).with_extension("yml");
            // JSON is YAML.
            let text = configuration(name, [ports[0], ports[1], free[0]], postgresql, &place);
            fs::write(&file, text.to_string()).unwrap();
            let patroni = spawn(patroni, &[file.to_str().unwrap()], &place, name);
            Node { patroni, data: place.join(name), ports }
        };
        let nodes = [node("one", [free[2], free[3]]), node("two", [free[4], free[5]])];
        let pair = Pair { etcd, nodes, _directory: directory };
        wait_until(&place, || pair.leader().is_some());
        pair
    }

    /// The ports of its servers.
    pub(crate) fn ports(&self) -> [u16; 2] {
        [self.nodes[0].ports[0], self.nodes[1].ports[0]]
    }

    /// Which node leads, while the other one is its synchronous standby.
    fn leader(&self) -> Option<usize> {
        let patroni = Client::new(&format!("http://{}", at(self.nodes[0].ports[1])));
        // There is none before it has begun.
        let members = patroni.get("/cluster").ok()?.body["members"].take();
        let roles = [&members[0], &members[1]].map(|member| member["role"].as_str());
        match roles {
            [Some("leader"), Some("sync_standby")] => Some(0),
            [Some("sync_standby"), Some("leader")] => Some(1),
            _ => None,
        }
    }

    /// `kill -9` of the leader: of its Patroni, and of the first process of its server, without
    /// which the others end.
    pub(crate) fn kill_leader(&mut self) {
        let leader = self.leader().expect("it has a standby");
        self.nodes[leader].end(Signal::KILL);
    }
}

impl Node {
    /// Kills its Patroni, sends the server a signal, and waits for its end.
    fn end(&mut self, signal: Signal) {
        let _ = self.patroni.kill();
        let _ = self.patroni.wait();
        while let Some(server) = self.server() {
            let _ = kill_process(server, signal);
            thread::sleep(PAUSE);
        }
    }

    /// The first process of the server: the file may be left of one that is gone.
    fn server(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        let id = text.lines().next()?.trim();
        let is_its_own =
            fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|place| place == self.data);
        Pid::from_raw(id.parse().ok()?).filter(|_| is_its_own)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SIGQUIT is PostgreSQL's immediate shutdown.
        self.nodes.iter_mut().for_each(|node| node.end(Signal::QUIT));
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

fn at(port: u16) -> String {
    format!("{}:{port}", Ipv4Addr::LOCALHOST)
}

/// Starts a program as the user that PostgreSQL may run as.
fn spawn(program: &Path, arguments: &[&str], place: &Path, name: &str) -> Child {
    let log = File::create(place.join(name).with_extension("log")).unwrap();
    let mut command = as_owner(program, owner().unwrap());
    command.args(arguments).env("HOME", place).process_group(0).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

fn wait_until(place: &Path, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > START_PATIENCE {
            for name in ["etcd", "one", "two"] {
                println!(
                    "{name}: {:?}",
                    fs::read_to_string(place.join(name).with_extension("log"))
                );
            }
            panic!("the pair is not there after {START_PATIENCE:?}");
        }
        thread::sleep(PAUSE);
    }
}

fn configuration(
    name: &str,
    [server, http, etcd]: [u16; 3],
    postgresql: &Path,
    place: &Path,
) -> Value {
    json!({
        "scope": "ledger",
        "name": name,
        "restapi": { "listen": at(http), "connect_address": at(http) },
        "etcd3": { "host": at(etcd) },
        "watchdog": { "mode": "off" },
        "bootstrap": {
            "dcs": {
                "ttl": TTL, "loop_wait": ROUND, "retry_timeout": ROUND, "synchronous_mode": true,
            },
            "initdb": [{ "encoding": "UTF8" }, { "locale": "C" }],
        },
        "postgresql": {
            "listen": at(server),
            "connect_address": at(server),
            "bin_dir": postgresql,
            "data_dir": place.join(name),
            "pgpass": place.join(name).with_extension("pgpass"),
            "parameters": { "unix_socket_directories": place },
            "authentication": {
                "superuser": { "username": "monolite" },
                "replication": { "username": "follower" },
            },
        },
    })
}
