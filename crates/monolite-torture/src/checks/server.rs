//! A server that is killed, stopped or handed over, and whose clients are cut off: what was
//! acknowledged is there once, and all of it in one order.
//!
//! # Algorithm
//! 1. A child serves one database. Clients reach it through a proxy ([`wire`]), which cuts each
//!    connection after some bytes and sends requests again.
//! 2. A client gives itself tasks. A task is a transaction that reads and raises the versions of
//!    some keys, notes each raise, and notes the task as done; its attempts have numbers. The
//!    client tries again until it knows that the task is done. The note has a primary key, so a
//!    second attempt fails if one before it was committed and only its answer was lost. One client
//!    in [`KEYED`] has no such row: its requests have idempotency keys, and are sent again.
//! 3. The child is killed, stopped, or hands over at a random moment; the next one serves the file.
//! 4. Behind some children, the file is judged ([`history`]).

mod clients;
mod history;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use monolite_client::Client;
use monolite_server::{Config, Server};
use monolite_testkit::child::{Child, await_parent, say, variable};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use super::lanes::{self, book, side_by_side};
use super::wrong::{Wrong, keep, verdict};
use crate::{Amount, Check, Outcome, Setting};
use clients::keyed::Repeating;
use clients::{End, Guard, Habit, Seen};
use wire::Proxy;

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "server",
    about: "End a server N times (SIGKILL, stop, hand-over), and cut its clients off",
    unit: "ends of a server",
    amount: Amount::Number,
    modest: 40,
    total: |amount| amount,
    run,
    roles: &[(ROLE, play)],
};

const ROLE: &str = "serves a database";

/// Ends of servers of one file.
const ENDS_A_FILE: u64 = 10;

/// Files that are worked on at once.
const AT_ONCE: u64 = 2;

/// The name of a file in its directory.
const FILE: &str = "db";

const CLIENTS: u64 = 16;

/// One client in so many has idempotency keys.
const KEYED: u64 = 4;

/// Keys whose versions are raised: few, so that transactions meet.
const KEYS: i64 = 30;

/// Tasks that a client may give itself.
const TASKS_A_CLIENT: i64 = 1 << 32;

/// How long a server serves at most.
const MOST_MS: u64 = 1_200;

/// Files within which a client with a bad habit has to be noticed.
const CONTROL_FILES: u64 = 5;

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let outcome = std::sync::Mutex::new(CHECK.outcome());
    let runtime = Runtime::new().context("the clients' threads do not start")?;
    for (name, habit) in [
        ("a statement behind a failed transaction runs by itself", Habit::GoesOn),
        ("a lost answer is taken for an acknowledgement", Habit::Believes),
        ("a request is sent again with another key", Habit::Renews),
    ] {
        lanes::control(setting, name, CONTROL_FILES, &outcome, |number| {
            // Numbers that no case of the run has.
            let mut case = Case::new(setting, u64::MAX - number, habit)?;
            let judged = verdict(case.run(&runtime, ENDS_A_FILE))?;
            Ok(judged.err().map(|wrong| wrong.to_string()))
        })?;
    }
    let (attempts, cuts, repeated) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (reads, replayed) = (AtomicU64::new(0), AtomicU64::new(0));
    side_by_side(AT_ONCE, amount.div_ceil(ENDS_A_FILE), |number| {
        if setting.watch.is_stopped() {
            return Ok(());
        }
        let ends = ENDS_A_FILE.min(amount - number * ENDS_A_FILE);
        let mut case = Case::new(setting, number, Habit::Good)?;
        let judged = verdict(case.run(&runtime, ends))?;
        setting.watch.done(ends);
        attempts.fetch_add(case.seen.len() as u64, Relaxed);
        cuts.fetch_add(case.proxy.cuts(), Relaxed);
        repeated.fetch_add(case.proxy.repeated(), Relaxed);
        replayed.fetch_add(case.replayed.load(Relaxed), Relaxed);
        let committed = || case.seen.iter().filter(|it| it.end == End::Committed);
        reads.fetch_add(committed().map(|it| it.reads.len() as u64).sum(), Relaxed);
        let mut outcome = book(&outcome)?;
        outcome.attempted += ends;
        outcome.acknowledged += committed().count() as u64;
        if let Err(wrong) = judged {
            let evidence = setting.evidence(case.seed)?;
            let history = format!("{wrong}\n{:#?}\n", case.seen);
            keep(case.directory.path(), &evidence, "server", &history)?;
            wrong.book(&mut outcome, Some(evidence), setting.reproduce(ends, case.seed));
        }
        Ok(())
    })?;
    let (mut outcome, reads) = (outcome.into_inner()?, reads.into_inner());
    ensure!(
        reads > 0 || outcome.acknowledged == 0,
        "no transaction read a row: nothing was judged"
    );
    outcome.notes.push(format!(
        "{} attempts, {reads} rows read by committed ones, {} connections cut, {} requests sent \
         twice, {} answers given again for a key",
        attempts.into_inner(),
        cuts.into_inner(),
        repeated.into_inner(),
        replayed.into_inner()
    ));
    Ok(outcome)
}

/// One file, and what its clients have seen.
struct Case<'s> {
    setting: &'s Setting<'s>,
    habit: Habit,
    seed: u64,
    rng: fastrand::Rng,
    directory: tempfile::TempDir,
    proxy: Proxy,
    /// The server to which another one has handed over.
    heir: Option<Child>,
    seen: Vec<Seen>,
    /// Answers that were given again for a key.
    replayed: Arc<AtomicU64>,
}

impl<'s> Case<'s> {
    fn new(setting: &'s Setting<'s>, number: u64, habit: Habit) -> Result<Case<'s>> {
        let seed = setting.case_seed(number);
        let directory = tempfile::tempdir_in(setting.scratch())
            .with_context(|| format!("no directory in {}", setting.scratch().display()))?;
        history::create(&directory.path().join(FILE))?;
        let rng = fastrand::Rng::with_seed(seed);
        Ok(Case {
            setting,
            habit,
            seed,
            rng,
            directory,
            proxy: Proxy::default(),
            heir: None,
            seen: Vec::new(),
            replayed: Arc::default(),
        })
    }

    /// Ends one server after the other, and judges what they have left.
    fn run(&mut self, runtime: &Runtime, ends: u64) -> Result<()> {
        let url = runtime.block_on(self.proxy.listen())?;
        let client = Client::new(&url, None)?;
        let rest = clients::Rest::default();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let first = 1 + number as i64 * TASKS_A_CLIENT;
                let rng = self.rng.fork();
                let (habit, rest) = (self.habit, rest.clone());
                let is_keyed = number % KEYED == 0;
                let guard = if is_keyed { Guard::Key } else { Guard::Row };
                let client =
                    if is_keyed { self.keyed(&url, number, &rest) } else { client.clone() };
                runtime.spawn(clients::work(client, rest, (habit, guard), first, rng))
            })
            .collect();
        for _ in 0..ends {
            if self.setting.watch.is_stopped() {
                break;
            }
            self.serve()?;
        }
        rest.begin();
        // So that each client hears of an end, and none waits for one.
        for client in clients {
            self.seen.extend(runtime.block_on(client).context("a client panicked")?);
        }
        drop(self.heir.take());
        history::judge(&self.directory.path().join(FILE), &self.seen)
    }

    /// A client whose requests have keys.
    fn keyed(&self, url: &str, number: u64, rest: &clients::Rest) -> Client {
        let way = Repeating {
            url: url.to_owned(),
            rest: rest.clone(),
            habit: self.habit,
            number,
            replayed: Arc::clone(&self.replayed),
            requests: AtomicU64::default(),
            connection: Mutex::default(),
        };
        way.client()
    }

    /// One server, from its start to its end.
    fn serve(&mut self) -> Result<()> {
        let mut child = match self.heir.take() {
            Some(heir) => heir,
            None => self.start()?,
        };
        std::thread::sleep(Duration::from_millis(self.rng.u64(1..=MOST_MS)));
        match self.rng.u8(..4) {
            0 => {
                self.proxy.lead_to(None);
                stop(child)
            }
            1 => {
                self.heir = Some(self.start()?);
                // It relays what comes on old connections.
                std::thread::sleep(Duration::from_millis(self.rng.u64(..=200)));
                stop(child)
            }
            _ => {
                self.proxy.lead_to(None);
                child.kill()
            }
        }
    }

    /// Starts a server, to which the one that serves hands over.
    fn start(&self) -> Result<Child> {
        let file = self.directory.path().join(FILE);
        let file = file.to_str().context("the directory is not text")?;
        let mut child = self.setting.program.spawn(ROLE, &[("FILE", file)])?;
        let address = child.await_word("serves ")?;
        self.proxy.lead_to(Some(address.parse().context("a child says no address")?));
        Ok(child)
    }
}

/// Has it end as `SIGTERM` would.
fn stop(mut child: Child) -> Result<()> {
    let ended = child.end()?;
    if !ended.status.success() {
        return Err(Wrong::Other(format!("a server that was stopped ended with {ended}")).into());
    }
    Ok(())
}

/// Plays the role, until it is killed or told to go on.
fn play() -> Result<()> {
    let file: PathBuf = variable("FILE")?;
    let mut config = Config::default();
    config.handover = Some(file.with_extension("handover"));
    config.file = Some(file);
    config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Runtime::new()?.block_on(async {
        let server = Server::new(&config)?;
        let listening = server.listen().await?;
        say(&format!("serves {}", listening.address()?));
        let stopped = tokio::task::spawn_blocking(await_parent);
        server.serve(listening, async { drop(stopped.await) }).await;
        Ok(())
    })
}
