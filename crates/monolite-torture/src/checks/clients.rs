//! Hostile clients of a server: good ones beside them are served all the same, within limited
//! memory, and what the hostile ones held is free when they have left.
//!
//! # Algorithm
//! 1. A child in a memory cgroup of [`LIMIT`] serves one database.
//! 2. Good clients ask at a pace that the server keeps at ease: alone for a tenth of the time, and
//!    then beside the hostile ones ([`hostile`]).
//! 3. The hostile ones leave. Connections, streams and transactions must go back to what the good
//!    ones hold.
//! 4. The control is a server that is stopped for most of the time, and hostile clients that do not
//!    leave. Both must be noticed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use monolite::Value;
use monolite::rusqlite::Connection;
use monolite_client::{Client, Error};
use monolite_server::{Config, Server};
use monolite_testkit::child::{Child, Heard, await_parent, say, variable};
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::cgroup::{self, Temporary};
use super::lanes::status;
use crate::{Amount, Check, Finding, Outcome, Setting};
use hostile::Hostile;

mod hostile;

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "clients",
    about: "Serve good clients beside hostile ones, in limited memory, for T, e.g. 30s",
    unit: "seconds",
    amount: Amount::TimeIfSaid,
    modest: 30,
    total: |amount| amount,
    run,
    roles: &[(ROLE, serve)],
};

const ROLE: &str = "serves hostile clients";

/// What the server may hold, in bytes.
const LIMIT: u64 = 512 << 20;

const GOOD: u64 = 8;

/// How often each of them asks: a debug build keeps up on one core.
const PACE: Duration = Duration::from_millis(50);

/// An answer that comes later is none.
const PATIENCE: Duration = Duration::from_secs(1);

/// The least goodput beside hostile clients, as a share of that without them.
const LEAST: f64 = 0.8;

/// How long a connection without a whole request may live, in milliseconds: the server gives a head
/// 20 s and a body 30 s.
const HELD_MS: u64 = 45_000;

/// Until when what the hostile ones held is free: a stream without a transaction lives for 10 s.
const LEAVING: Duration = Duration::from_secs(15);

const GLANCE: Duration = Duration::from_millis(100);

fn run(setting: &Setting<'_>, seconds: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    if let Err(error) = Temporary::new(LIMIT) {
        outcome.skipped.push(format!("the memory cgroup: {error:#}"));
    }
    let figures = measure(setting, Duration::from_secs(seconds), Arrangement::Sound)?;
    if setting.watch.is_stopped() {
        outcome.skipped.push("all of it: stopped before it had its figures".into());
        return Ok(outcome);
    }
    outcome.attempted = seconds;
    (outcome.acknowledged, outcome.lost) = (figures.acknowledged, figures.lost);
    if !figures.is_at_ease() {
        outcome.skipped.push(format!(
            "goodput: without hostile clients only {:.0} requests a second were answered",
            figures.alone
        ));
    }
    outcome.notes.push(format!(
        "goodput {:.0}/s alone, {:.0}/s beside hostile clients; most memory {} MiB; all was free \
         {:.1} s behind them; {}",
        figures.alone,
        figures.beside,
        figures.peak_bytes >> 20,
        figures.leaving.as_secs_f64(),
        figures.told
    ));
    for what in judge(&figures) {
        outcome.anomalies += 1;
        let seed = setting.case_seed(0);
        let evidence = setting.evidence(seed)?;
        fs::write(evidence.join("outcome.txt"), format!("{what}\n{figures:#?}\n"))?;
        let reproduce = setting.reproduce(seconds, seed);
        outcome.found(Finding { what, evidence: Some(evidence), reproduce });
    }
    let figures = measure(setting, Duration::from_secs(3), Arrangement::Control)?;
    let found = judge(&figures);
    for (name, says) in [
        ("a server that stands still for most of the time", "goodput fell"),
        ("hostile clients that do not leave", "still has"),
    ] {
        let noticed = found.iter().find(|what| what.contains(says));
        outcome.control(name, noticed.is_some(), noticed.map_or("", String::as_str));
    }
    Ok(outcome)
}

/// Whether all is as it should be, or the control's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrangement {
    Sound,
    Control,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
struct Figures {
    /// Requests of good clients that were answered a second.
    alone: f64,
    beside: f64,
    peak_bytes: u64,
    /// How the server ended too early.
    died: Option<String>,
    /// What it wrote to its standard error, if it panicked.
    panicked: Option<String>,
    /// What it has when the hostile clients should have left it.
    left: Option<String>,
    leaving: Duration,
    /// The longest life of a connection without a whole request.
    held_ms: u64,
    /// An answer that a hostile client should not have had.
    wrong: Option<String>,
    acknowledged: u64,
    lost: u64,
    /// How often each kind of hostile client has come.
    told: String,
}

impl Figures {
    fn is_at_ease(&self) -> bool {
        self.alone >= LEAST * GOOD as f64 / PACE.as_secs_f64()
    }
}

/// What the figures say against the promise.
fn judge(figures: &Figures) -> Vec<String> {
    let Figures { alone, beside, peak_bytes, held_ms, lost, .. } = figures;
    let mut found = Vec::new();
    found.extend(figures.died.as_ref().map(|how| format!("the server ended: {how}")));
    found.extend(figures.panicked.as_ref().map(|how| format!("the server panicked: {how}")));
    found.extend(figures.left.as_ref().map(|left| format!("the server still has {left}")));
    found.extend(figures.wrong.clone());
    if figures.is_at_ease() && *beside < LEAST * alone {
        found.push(format!("goodput fell from {alone:.0} to {beside:.0} requests a second"));
    }
    if *peak_bytes > LIMIT {
        found.push(format!("{peak_bytes} bytes of memory were held, the limit is {LIMIT}"));
    }
    if *held_ms > HELD_MS {
        found.push(format!("a connection without a whole request lived for {held_ms} ms"));
    }
    if *lost > 0 {
        found.push(format!("{lost} acknowledged writes were lost"));
    }
    found
}

/// What the good clients have had.
#[derive(Default)]
struct Served {
    answers: AtomicU64,
    writes: AtomicU64,
}

fn measure(setting: &Setting<'_>, time: Duration, arrangement: Arrangement) -> Result<Figures> {
    let is_sound = arrangement == Arrangement::Sound;
    let (mut trial, address, admin) = Trial::start(setting, arrangement)?;
    let runtime = Runtime::new()?;
    let client = Client::new(&format!("http://{address}"), None)?;
    let table = "CREATE TABLE good(id INTEGER PRIMARY KEY, number INTEGER) STRICT";
    runtime.block_on(client.stream().run_script(table))?;
    for number in 0..GOOD {
        runtime.spawn(ask(client.clone(), number, Arc::clone(&trial.served)));
    }
    let alone = time / if is_sound { 10 } else { 3 };
    trial.figures.alone = trial.stay(alone, false)?;
    let hostile = Hostile::begin(address, time - alone)?;
    trial.figures.beside = trial.stay(time - alone, !is_sound)?;
    if is_sound {
        hostile.leave(&mut trial.figures);
        trial.await_freedom(admin, LEAVING)?;
    } else {
        trial.await_freedom(admin, PATIENCE)?;
    }
    drop(runtime);
    trial.end()
}

/// One server, and what was seen of it.
struct Trial<'s> {
    setting: &'s Setting<'s>,
    arrangement: Arrangement,
    group: Option<Temporary>,
    file: PathBuf,
    child: Child,
    served: Arc<Served>,
    figures: Figures,
}

impl<'s> Trial<'s> {
    /// With the addresses for clients and for operators.
    fn start(
        setting: &'s Setting<'s>,
        arrangement: Arrangement,
    ) -> Result<(Trial<'s>, SocketAddr, SocketAddr)> {
        let file = setting.scratch().join(format!("{arrangement:?}"));
        let text = |path: &Path| path.to_str().map(str::to_owned).context("the path is text");
        let group = Temporary::new(LIMIT).ok();
        let path = group.as_ref().map_or(Ok(String::new()), |it| text(it.0.path()))?;
        let variables = [("FILE", &*text(&file)?), ("CGROUP", &path)];
        let mut child = setting.program.spawn(ROLE, &variables)?;
        let said = child.await_word("serves ")?;
        let (address, admin) = said.split_once(' ').context("it serves at two addresses")?;
        let (served, figures) = (Arc::default(), Figures::default());
        let trial = Trial { setting, arrangement, group, file, child, served, figures };
        Ok((trial, address.parse()?, admin.parse()?))
    }

    /// Lets the clients ask for this time, and says how many answers the good ones had a second.
    fn stay(&mut self, time: Duration, stands_still: bool) -> Result<f64> {
        let (began, before) = (Instant::now(), self.served.answers.load(Relaxed));
        let (watch, mut told) = (&self.setting.watch, 0);
        while began.elapsed() < time && !watch.is_stopped() && self.figures.died.is_none() {
            if stands_still {
                self.child.pause()?;
                thread::sleep(GLANCE * 6);
                self.child.resume()?;
            }
            let peak = status(self.child.id(), "VmHWM");
            self.figures.peak_bytes = self.figures.peak_bytes.max(peak);
            if self.child.listen(GLANCE) == Heard::End {
                self.figures.died = Some(self.child.end()?.to_string());
            }
            let seconds = began.elapsed().as_secs().min(time.as_secs());
            if self.arrangement == Arrangement::Sound {
                watch.done(seconds - told);
            }
            told = seconds;
        }
        let answers = self.served.answers.load(Relaxed) - before;
        Ok(answers as f64 / began.elapsed().as_secs_f64())
    }

    /// Waits until the server has nothing of the hostile clients, for this time at most.
    fn await_freedom(&mut self, admin: SocketAddr, patience: Duration) -> Result<()> {
        let began = Instant::now();
        while self.figures.died.is_none() {
            let left = held(admin)?;
            if left.is_none() || began.elapsed() > patience {
                self.figures.left = left;
                break;
            }
            thread::sleep(GLANCE);
        }
        self.figures.leaving = began.elapsed();
        Ok(())
    }

    /// Stops the server, and looks at what it leaves.
    fn end(self) -> Result<Figures> {
        let Trial { group, file, mut child, served, mut figures, .. } = self;
        if figures.died.is_none() {
            let ended = child.end()?;
            figures.died = (!ended.status.success()).then(|| ended.status.to_string());
            figures.panicked = ended.errors.contains("panicked").then_some(ended.errors);
        }
        if group.is_some_and(|it| it.0.kills() > 0) {
            figures.died = Some("it was killed as memory ran out".into());
        }
        figures.acknowledged = served.writes.load(Relaxed);
        let count = "SELECT count(*) FROM good";
        let there: i64 = Connection::open(&file)?.query_row(count, (), |row| row.get(0))?;
        figures.lost = figures.acknowledged.saturating_sub(there as u64);
        Ok(figures)
    }
}

/// A good client.
async fn ask(client: Client, number: u64, served: Arc<Served>) {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (write, number) = ("INSERT INTO good(number) VALUES (?)", [Value::Integer(number as i64)]);
    let read = "SELECT count(*) FROM (SELECT * FROM good ORDER BY id DESC LIMIT 100)";
    for request in 0_u64.. {
        ticks.tick().await;
        let asked = async {
            match request % 4 {
                0 => client.batch(&[(read, &[]), (write, &number)]).await.map(drop)?,
                1 => client.stream().execute(write, &number).await.map(drop)?,
                _ => return client.stream().execute(read, &[]).await.map(drop),
            }
            served.writes.fetch_add(1, Relaxed);
            Ok::<_, Error>(())
        };
        if let Ok(Ok(())) = timeout(PATIENCE, asked).await {
            served.answers.fetch_add(1, Relaxed);
        }
    }
}

/// What the server has beyond what good clients hold, as it tells operators.
fn held(admin: SocketAddr) -> Result<Option<String>> {
    let mut socket = TcpStream::connect(admin)?;
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    let sum = |name: &str| -> u64 {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    };
    let connections = sum("monolite_server_connections");
    let streams = sum("monolite_server_open_streams");
    let transactions = sum("monolite_open_transactions");
    let is_free = connections <= GOOD && streams <= GOOD && transactions == 0;
    Ok((!is_free).then(|| {
        format!("{connections} connections, {streams} streams, {transactions} transactions")
    }))
}

/// Plays the role, until it is told to go on.
fn serve() -> Result<()> {
    // As the command does.
    monolite_sqlite::return_large_blocks();
    cgroup::enter()?;
    let file: PathBuf = variable("FILE")?;
    let mut config = Config::default();
    config.file = Some(file);
    config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.admin = Some(config.listen);
    Runtime::new()?.block_on(async {
        let server = Server::new(&config)?;
        let listening = server.listen().await?;
        let admin = listening.admin_address()?.context("operators have an address")?;
        say(&format!("serves {} {admin}", listening.address()?));
        let stopped = tokio::task::spawn_blocking(await_parent);
        server.serve(listening, async { drop(stopped.await) }).await;
        Ok(())
    })
}

#[test]
fn each_broken_promise_is_noticed() {
    let good = || Figures { alone: 160.0, beside: 150.0, ..Figures::default() };
    assert!(judge(&good()).is_empty());
    type Break = fn(&mut Figures);
    let breaks: [(Break, &str); 8] = [
        (|it| it.beside = 127.0, "goodput fell"),
        (|it| it.peak_bytes = LIMIT + 1, "memory were held"),
        (|it| it.died = Some("signal 9".into()), "ended: signal 9"),
        (|it| it.panicked = Some("at".into()), "panicked: at"),
        (|it| it.left = Some("1 streams".into()), "still has 1 streams"),
        (|it| it.held_ms = HELD_MS + 1, "lived for"),
        (|it| it.wrong = Some("a forged baton".into()), "forged"),
        (|it| it.lost = 1, "1 acknowledged"),
    ];
    for (breaks, says) in breaks {
        let mut figures = good();
        breaks(&mut figures);
        let found = judge(&figures);
        assert!(found.len() == 1 && found[0].contains(says), "{says}: {found:?}");
    }
}
