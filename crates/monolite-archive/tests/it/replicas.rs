//! Three nodes, each the primary or a replica, killed, stopped and cut off at any moment, with
//! clocks a day apart: what was acknowledged as replicated is in the file of each later primary,
//! and no primary acknowledges more once it has a successor. `MONOLITE_REPLICA_KILLS` says how
//! often.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use monolite::rusqlite::Connection;
use monolite::{Durability, Options};
use monolite_archive::{Archive, DirectoryStore, Layout, Takeover, internals::leader};
use monolite_ltx::Timestamp;
use rustix::process::Signal;

use crate::wire::{SECRET, Wire, free_address};

const CHILD: &str = "MONOLITE_REPLICAS_CHILD";

/// Longer than a test: the archive has next to nothing of what is acknowledged.
const INTERVAL: Duration = Duration::from_secs(600);

/// How long it may take until a write is acknowledged again.
const PATIENCE: Duration = Duration::from_secs(40);

/// By how much the clock of a node is ahead of that of the one before.
const DAY: Duration = Duration::from_secs(86_400);

/// Threads of a primary that write.
const WRITERS: i64 = 4;

struct Node {
    /// Of this node to the primary.
    wire: Wire,
    child: Option<Child>,
}

struct Cluster {
    directory: PathBuf,
    nodes: Vec<Node>,
}

impl Cluster {
    fn new(directory: &Path, count: usize) -> Cluster {
        let node = |_| {
            let archive = directory.join("archive");
            let there = move || {
                let record = leader(&DirectoryStore::new(&archive), &Layout::directory());
                record.ok()??.stream.parse().ok()
            };
            Node { wire: Wire::leading(free_address(), there), child: None }
        };
        Cluster { directory: directory.to_owned(), nodes: (0..count).map(node).collect() }
    }

    fn start(&mut self, at: usize) {
        self.start_with(at, "streams");
    }

    fn start_with(&mut self, at: usize, role: &str) {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "replicas::node", "--nocapture"]);
        let log = self.directory.join(format!("log{at}"));
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        child.stdout(Stdio::null()).stderr(log);
        let Wire { primary, proxy, .. } = &self.nodes[at].wire;
        let told = format!("{at} {role} {primary} {proxy} {}", self.directory.display());
        self.nodes[at].child = Some(child.env(CHILD, told).spawn().unwrap());
    }

    fn signal(&self, at: usize, signal: Signal) {
        let pid = self.nodes[at].child.as_ref().unwrap().id();
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn kill(&mut self, at: usize) {
        let mut child = self.nodes[at].child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// What happens to a primary, and perhaps to others.
    fn suffers(&mut self, fault: u32, primary: usize) {
        let [one, other] = [(primary + 1) % 3, (primary + 2) % 3];
        match fault {
            // A replica dies before. It comes back, cannot stream, and lacks what comes meanwhile.
            0 => {
                self.kill(one);
                self.goes_on();
                self.start_with(one, "deaf");
                self.goes_on();
                self.kill(primary);
            }
            // One is slow, and is the only one that is left.
            1 => {
                self.signal(one, Signal::STOP);
                thread::sleep(Duration::from_millis(400));
                self.kill(primary);
                self.kill(other);
                self.signal(one, Signal::CONT);
                self.start(other);
            }
            2 => {
                // Not while it holds the lock of the directory, which has all wait for it. Each of
                // its threads has the signal then.
                let lock = fs::File::open(self.directory.join("archive/monolite/lock")).unwrap();
                lock.lock().unwrap();
                self.signal(primary, Signal::STOP);
                thread::sleep(Duration::from_millis(10));
            }
            // All die, the primary first: it would take one that is gone off its record. One
            // replica alone comes back, and knows what it has by its marker.
            3 => {
                [primary, one, other].into_iter().for_each(|at| self.kill(at));
                self.start(one);
            }
            // One is cut off. The primary goes on without it, or dies before it knows. Then that
            // one is the only one that is left.
            4 | 5 => {
                self.nodes[one].wire.loses(true);
                match fault {
                    4 => self.goes_on(),
                    _ => rest(1 << fastrand::u32(3..9)),
                }
                self.kill(primary);
                self.kill(other);
                self.start(other);
            }
            // Both are, for a moment.
            6 => {
                let loses = |is| [one, other].map(|at| self.nodes[at].wire.loses(is));
                loses(true);
                rest(3_000);
                loses(false);
                rest(300);
                self.kill(primary);
            }
            // An operator promotes one, while the primary writes.
            7 => fs::write(self.directory.join(format!("promote{one}")), "").unwrap(),
            _ => self.kill(primary),
        }
    }

    fn acknowledged(&self) -> usize {
        acknowledged(&self.directory).len()
    }

    /// How many answers a primary has noted, at most, since a later one has noted its first.
    fn late(&self) -> usize {
        let (mut late, mut last) = (BTreeMap::new(), None);
        for opening in acknowledged(&self.directory).iter().map(|id| id >> 20) {
            match late.get_mut(&opening) {
                Some(count) => *count += usize::from(last != Some(opening)),
                None => {
                    late.insert(opening, 0);
                    last = Some(opening);
                }
            }
        }
        late.into_values().max().unwrap_or(0)
    }

    /// Who said last that it is the primary.
    fn primary(&self) -> Option<usize> {
        let text = fs::read_to_string(self.directory.join("primaries")).unwrap_or_default();
        text.lines().last()?.parse().ok()
    }

    fn waits_until(&self, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "nothing happens any more: {}", self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Which replica a node is, if its file follows.
    fn replica(&self, at: usize) -> Option<String> {
        let place = self.directory.join(format!("{at}.db-archive/follows.json"));
        let place = fs::read_to_string(place).ok()?;
        let (_, id) = place.split_once("\"replica\":\"")?;
        id.split('"').next().map(str::to_owned)
    }

    /// Waits until the record lists the two others.
    fn lists_both(&self) {
        let archive = self.directory.join("archive");
        let (store, layout) = (DirectoryStore::new(&archive), Layout::directory());
        self.waits_until(|| {
            let replicas: BTreeSet<_> = (0..3).filter_map(|at| self.replica(at)).collect();
            let record = leader(&store, &layout).unwrap().unwrap();
            let listed = record.replicas.iter().map(|replica| replica.to_string());
            replicas.len() == 2 && listed.collect::<BTreeSet<_>>() == replicas
        });
    }

    /// Waits until more is acknowledged.
    fn goes_on(&self) {
        let had = self.acknowledged();
        self.waits_until(|| self.acknowledged() > had + 20);
    }

    fn logs(&self) -> String {
        let log = |at| fs::read_to_string(self.directory.join(format!("log{at}")));
        let record = fs::read_to_string(self.directory.join("archive/monolite/leader"));
        let record = format!("{record:?}");
        record
            + &(0..3)
                .map(|at| format!("\n{at}: {}", log(at).unwrap_or_default()))
                .collect::<String>()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(mut child) = node.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// No test: one of the processes.
#[test]
fn node() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let told: Vec<&str> = told.splitn(5, ' ').collect();
    let [name, role, address, wire, directory] = told[..] else { panic!("{told:?}") };
    let directory = Path::new(directory);
    let archive = Archive::at(directory.join("archive").to_str().unwrap()).unwrap();
    let archive = archive.interval(INTERVAL).time_limit(Duration::from_secs(5));
    let archive = archive.lease(Some(Duration::from_secs(1))).address(address);
    let archive = archive.stream_to(address, SECRET);
    let archive = if role == "deaf" { archive } else { archive.stream_from(Some(wire), SECRET) };
    let ahead = DAY * name.parse().unwrap();
    let archive = archive.clock(move || {
        let since = (SystemTime::now() + ahead).duration_since(UNIX_EPOCH).unwrap();
        Timestamp::from_millis(since.as_millis() as i64)
    });
    let (file, is_begun) = (directory.join(format!("{name}.db")), directory.join("begun").exists());
    let promote = directory.join(format!("promote{name}"));
    let db = loop {
        let leads = if is_begun { takes_over(&archive, &file, &promote) } else { Ok(()) };
        let options = Options::new().readers(1).archive(archive.clone());
        let options = options.durability(Durability::Replicated(1));
        match leads.and_then(|()| options.open(&file)) {
            Ok(db) => break db,
            Err(error) => eprintln!("{name}: {error}"),
        }
        thread::sleep(Duration::from_millis(100));
    };
    let synced = db.with_durability(Durability::Synced);
    synced
        .write(|tx| tx.execute_batch("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY)"))
        .wait()
        .unwrap();
    let ids = db.read(|tx| tx.query_map("SELECT id FROM t", (), |row| row.get::<_, i64>(0)));
    let missing = missing(directory, &ids.wait().unwrap().into_iter().collect());
    if missing > 0 {
        append(&directory.join("missing"), &format!("{missing} at {name}"));
    }
    eprintln!("{name}: is the primary");
    append(&directory.join("begun"), name);
    append(&directory.join("primaries"), name);
    let first = fastrand::i64(0..1 << 40) << 20;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || {
                for n in 0.. {
                    let id = first + n * WRITERS + writer;
                    match db.write(move |tx| tx.execute("INSERT INTO t VALUES (?)", [id])).wait() {
                        Ok(_) => append(&directory.join("acknowledged"), &id.to_string()),
                        Err(error) => {
                            eprintln!("{name}: {error}");
                            thread::sleep(Duration::from_millis(100));
                        }
                    }
                    // As a checkpoint at any time.
                    if fastrand::u32(0..400) == 0 {
                        let _ = db.checkpoint().wait();
                    }
                }
            });
        }
    });
}

/// Follows until it is vacant, or is told to take over.
fn takes_over(archive: &Archive, file: &Path, promote: &Path) -> monolite::Result<()> {
    let following = archive.clone().interval(Duration::from_millis(50));
    let follower = following.follow(Options::new().readers(1), file)?;
    let succession = match follower.claim(Takeover::WhenVacant, &|| !promote.exists())? {
        None => follower.claim(Takeover::Now, &|| true)?.unwrap(),
        Some(succession) => succession,
    };
    follower.promote(succession)
}

fn append(file: &Path, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Rests for up to so many milliseconds.
fn rest(most: u64) {
    thread::sleep(Duration::from_millis(fastrand::u64(..most)));
}

fn kills() -> u32 {
    std::env::var("MONOLITE_REPLICA_KILLS").map_or(3, |kills| kills.parse().unwrap())
}

#[test]
fn what_is_acknowledged_as_replicated_is_in_the_file_of_each_later_primary() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(directory.path(), 3);
    cluster.start(0);
    cluster.waits_until(|| cluster.primary().is_some());
    cluster.start(1);
    cluster.start(2);
    cluster.lists_both();
    for kill in 0..kills() {
        rest(600);
        let primary = cluster.primary().unwrap();
        let fault = fastrand::u32(0..9);
        eprintln!("fault {fault} of {primary}");
        cluster.suffers(fault, primary);
        cluster.waits_until(|| cluster.primary() != Some(primary));
        if let 2 | 7 = fault {
            cluster.signal(primary, Signal::CONT);
            thread::sleep(Duration::from_millis(300));
            cluster.kill(primary);
            let promote = cluster.directory.join(format!("promote{}", (primary + 1) % 3));
            let _ = fs::remove_file(promote);
        }
        cluster.nodes.iter().for_each(|node| node.wire.loses(false));
        let (now, late) = (cluster.primary().unwrap(), cluster.late());
        eprintln!("kill {kill}: {primary} → {now}, {}, {late} late", cluster.acknowledged());
        assert!(!cluster.directory.join("missing").exists(), "{}", cluster.logs());
        assert!(late <= WRITERS as usize, "each thread can note one late: {}", cluster.logs());
        for at in 0..3 {
            if cluster.nodes[at].child.is_none() {
                cluster.start(at);
            }
        }
        if fault == 0 {
            let deaf = (primary + 1) % 3;
            cluster.kill(deaf);
            cluster.start(deaf);
        }
        // Both of the others may be next.
        cluster.goes_on();
        cluster.lists_both();
    }
    let primary = cluster.primary().unwrap();
    (0..3).for_each(|at| cluster.kill(at));
    let file = Connection::open(cluster.directory.join(format!("{primary}.db"))).unwrap();
    let mut ids = file.prepare("SELECT id FROM t").unwrap();
    let ids = ids.query_map([], |row| row.get(0)).unwrap().flatten().collect();
    let missing = missing(&cluster.directory, &ids);
    assert_eq!(missing, 0, "of {} are missing: {}", cluster.acknowledged(), cluster.logs());
}

#[test]
fn follower_that_becomes_a_replica_while_it_waits_takes_over() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let mut cluster = Cluster::new(directory.path(), 1);
    let archive = Archive::at(at("archive").to_str().unwrap()).unwrap();
    let archive = archive.interval(Duration::from_millis(50));
    let leads = archive.clone().lease(Some(Duration::from_secs(1)));
    let db = Options::new().readers(1).archive(leads).open(at("0.db")).unwrap();
    db.read_archived(|_| Ok(())).wait().unwrap();
    let follows = archive.stream_from(None, SECRET);
    let follower = follows.follow(Options::new().readers(1), at("1.db")).unwrap();
    cluster.waits_until(|| follower.stats().epoch > 0);
    let (asked, rest) = (AtomicU32::new(0), Mutex::new(()));
    let goes_on = || {
        drop(rest.lock().unwrap());
        asked.fetch_add(1, Ordering::Relaxed) < 500
    };
    let claimed = thread::scope(|scope| {
        let claiming = scope.spawn(|| follower.claim(Takeover::WhenVacant, &goes_on));
        cluster.waits_until(|| asked.load(Ordering::Relaxed) > 10);
        let resting = rest.lock().unwrap();
        db.close().unwrap();
        cluster.start(0);
        cluster.goes_on();
        cluster.kill(0);
        drop(resting);
        claiming.join().unwrap().unwrap()
    });
    assert!(claimed.is_some(), "the record lists it");
}

/// How many acknowledged rows are not among these.
fn missing(directory: &Path, ids: &BTreeSet<i64>) -> usize {
    acknowledged(directory).iter().filter(|id| !ids.contains(id)).count()
}

/// In the order in which it was noted.
fn acknowledged(directory: &Path) -> Vec<i64> {
    let text = fs::read_to_string(directory.join("acknowledged")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}
