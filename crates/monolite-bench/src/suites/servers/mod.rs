//! `bench server`: `monolite serve` beside PostgreSQL, both over loopback, with equal clients.
//!
//! # Algorithm
//! Both servers are processes of their own, and have the same tables. Our own client and
//! PostgreSQL's run in this process, one connection for each client, and send the same statements
//! in the same number of round trips. Clients in other languages are a process each. A client
//! begins its next transaction when the one before is acknowledged, and repeats one that was
//! refused because of another; its latency is from its beginning to its acknowledgement. Before the
//! clock starts, every client has done one transaction.
//!
//! # Invariants
//! What the database holds after a round differs from what it held before by just what was
//! acknowledged.
//!
//! # Not here
//! sqld and D1: there is no binary of the former in the registries, and the latter has batches
//! alone.

mod job;
mod process;
mod session;

use super::stage::Play;
use super::{Bundle, Depth, Entry, Ground, Turn, no_postgres};
use crate::drivers::clients::{Client as _, Sums, Ticket, add, drive};
use crate::drivers::postgres::{config, server::Server};
use crate::drivers::{Absent, Goal, Part, Round};
use crate::machine::{self, Processes, Watched};
use crate::report::record::Section;
use anyhow::{Context, Result, ensure};
use futures::future::{try_join, try_join_all};
use job::{Job, Kind, Worker, sums};
use process::{FOREIGN, Foreign, Serving};
use session::Session;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Clients of all that is not about their number.
const CLIENTS: usize = 64;

/// Clients that write elsewhere while others want one row.
const ELSEWHERE: usize = 16;

/// Accounts of each of many databases.
const IN_EACH: i64 = 100;

/// The application's time in a transaction.
const THINK: Duration = Duration::from_millis(5);

/// The suite.
#[derive(Clone)]
pub struct Servers {
    /// The command that serves.
    pub program: PathBuf,
    /// The directory of the clients in other languages.
    pub clients: PathBuf,
    place: Rc<OnceCell<Place>>,
}

/// What all trials use.
struct Place {
    runtime: Runtime,
    ours: Serving,
    /// With many databases.
    many: Serving,
    postgres: Result<Server, String>,
    missing: [Option<String>; FOREIGN.len()],
    accounts: i64,
}

/// Who serves, and who asks.
#[derive(Clone, Copy, Debug)]
enum Side {
    Ours,
    Postgres,
    Foreign(usize),
}

impl Servers {
    /// A suite that has `program` serve, with the clients of other languages in `clients`.
    pub fn new(program: PathBuf, clients: PathBuf) -> Servers {
        Servers { program, clients, place: Rc::default() }
    }

    fn start(&self, ground: &Ground<'_>, databases: usize) -> Result<Place> {
        machine::allow_open_files();
        let options = ground.options;
        let accounts = options.rows.unwrap_or(options.depth.pick(10_000, 100_000, 100_000));
        let accounts = i64::try_from(accounts).context("--rows is too large")?;
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        let ours = Serving::start(&self.program, &options.data, 1, accounts)?;
        let many = Serving::start(&self.program, &options.data, databases, IN_EACH)?;
        let postgres = match no_postgres(ground) {
            Some(reason) => Err(reason),
            None => process::postgres(&options.data, accounts).map_err(|it| format!("{it:#}")),
        };
        let missing = FOREIGN.map(|client| client.missing(&self.clients));
        Ok(Place { runtime, ours, many, postgres, missing, accounts })
    }

    fn trial(
        &self,
        run: impl Fn(&Place, &Turn<'_>) -> Result<Round> + 'static,
    ) -> impl Fn(&Turn<'_>) -> Result<Round> + 'static {
        let place = Rc::clone(&self.place);
        move |turn| run(place.get().context("nothing was prepared")?, turn)
    }

    /// A section of one kind of transaction, with these numbers of clients.
    fn section(
        &self,
        [key, title]: [&str; 2],
        (kind, think): (Kind, Duration),
        counts: &[usize],
        foreign: &[usize],
    ) -> Bundle {
        let mut entries = Vec::new();
        let others = FOREIGN.iter().enumerate();
        let others = others.map(|(at, it)| (Side::Foreign(at), it.line, it.name));
        for (side, line, name) in BOTH.into_iter().chain(others) {
            let is_foreign = matches!(side, Side::Foreign(_));
            for &clients in if is_foreign { foreign } else { counts } {
                let home = self.clients.clone();
                entries.push(Entry::new(
                    line,
                    name,
                    clients,
                    self.trial(move |place, turn| {
                        let job = Job { kind, think, accounts: place.accounts };
                        match side {
                            Side::Foreign(at) => place.foreign(at, &home, (job, clients), turn),
                            _ => place.run(side, (job, clients), (job, 0), turn),
                        }
                    }),
                ));
            }
        }
        bundle(key, title, MEANING, ["clients", "transactions"], entries)
    }

    /// Updates of other rows, without and with clients that all want one row.
    fn elsewhere(&self) -> Bundle {
        let mut entries = Vec::new();
        for (side, line, name) in BOTH {
            for (x, hot) in [("alone", 0), ("beside 64 on one row", CLIENTS)] {
                let trial = self.trial(move |place, turn| {
                    let job = |kind| Job { kind, think: THINK, accounts: place.accounts };
                    let beside = (job(Kind::HotRow), hot);
                    place.run(side, (job(Kind::Update), ELSEWHERE), beside, turn)
                });
                entries.push(Entry::new(line, name, x, trial));
            }
        }
        let title = "Updates of one row by 16 clients, while others want one row";
        bundle("elsewhere", title, MEANING, ["", "transactions"], entries)
    }

    /// Updates in one and in many databases of a server.
    fn databases(&self, depth: Depth) -> Bundle {
        let counts = [1, many(depth)];
        let entry = |databases| {
            let trial = self.trial(move |place, turn| place.run_in_many(databases, turn));
            Entry::new("monolite", "monolite", databases, trial)
        };
        let title = "Updates of one row by 16 clients, each in a database drawn anew";
        let entries = counts.map(entry).into();
        bundle("databases", title, MEANING, ["databases", "transactions"], entries)
    }

    /// Connections that have asked something once.
    fn idle(&self, ground: &Ground<'_>) -> Bundle {
        let connections = ground.options.depth.pick(200, 1_000, 1_000);
        let mut entries = Vec::new();
        for (side, line, name) in BOTH {
            let (program, data) = (self.program.clone(), ground.options.data.clone());
            let trial = self.trial(move |place, _| match side {
                // One that has done nothing else.
                Side::Ours => {
                    let fresh = Serving::start(&program, &data, 1, 1)?;
                    place.idle(side, connections, (&fresh.url, fresh.id()))
                }
                _ => place.idle(side, connections, ("", place.postgres()?.id())),
            });
            entries.push(Entry::new(line, name, connections, trial));
        }
        let title = "Connections made, one request each, and then idle";
        let meaning = "the memory is that of the server with all of them, new in the case of ours";
        bundle("idle", title, meaning, ["connections", "connections"], entries)
    }
}

/// Databases of a server that has many.
fn many(depth: Depth) -> usize {
    depth.pick(100, 1_000, 1_000)
}

/// What the figures are.
const MEANING: &str = "acknowledged, on disk on both sides; clients wait";

/// Both servers, each with its own client.
const BOTH: [(Side, &str, &str); 2] =
    [(Side::Ours, "monolite", "monolite"), (Side::Postgres, "postgres", "PostgreSQL")];

fn bundle(key: &str, title: &str, meaning: &str, units: [&str; 2], entries: Vec<Entry>) -> Bundle {
    let section = Section::new(format!("server/{key}"), title, meaning, units);
    let check = "the tables hold what was acknowledged, and nothing else";
    Bundle { section, check, entries }
}

impl Play for Servers {
    fn name(&self) -> &'static str {
        "server"
    }

    fn prepare(&self, ground: &Ground<'_>) -> Result<Vec<String>> {
        let databases = many(ground.options.depth);
        let place = self.start(ground, databases)?;
        let mut work = vec![
            format!("account with {} rows, and {databases} databases of {IN_EACH}", place.accounts),
            "sqld is not compared: its binary is in no registry that is used here".to_owned(),
            match &place.postgres {
                Ok(_) => "PostgreSQL: a private server, over loopback, READ COMMITTED with FOR \
                          UPDATE where the client decides on what it has read"
                    .to_owned(),
                Err(reason) => format!("PostgreSQL: {reason}"),
            },
        ];
        let missing = FOREIGN.iter().zip(&place.missing);
        let missing = missing.filter_map(|(it, why)| Some((it.name, why.as_ref()?)));
        work.extend(missing.map(|(name, why)| format!("{name}: {why}")));
        ensure!(self.place.set(place).is_ok(), "the suite is prepared once");
        Ok(work)
    }

    fn sections(&self, ground: &Ground<'_>) -> Vec<Bundle> {
        let quick = ground.options.depth == Depth::Quick;
        let counts: &[usize] = if quick { &[1, 64] } else { &[1, 16, 64, 256, 1_000] };
        let few: &[usize] = if quick { &[64] } else { &[64, 256] };
        let (zero, all) = (Duration::ZERO, [CLIENTS]);
        let foreign: &[usize] = if quick { &[] } else { &all };
        vec![
            self.section(
                ["read", "Reads of one row, autocommit"],
                (Kind::Read, zero),
                &all,
                foreign,
            ),
            self.section(
                ["update", "Updates of one row, autocommit"],
                (Kind::Update, zero),
                &all,
                foreign,
            ),
            self.section(["batch", "Batches of 10 inserts"], (Kind::Batch, zero), &all, &[]),
            self.section(
                ["think-0", "Read a row, decide, write it: interactive"],
                (Kind::Decide, zero),
                counts,
                foreign,
            ),
            self.section(
                ["think-5", "Read a row, decide for 5 ms, write it: interactive"],
                (Kind::Decide, THINK),
                counts,
                few,
            ),
            self.section(
                ["two-updates", "Update a row, 5 ms, update another: interactive"],
                (Kind::TwoUpdates, THINK),
                few,
                &[],
            ),
            self.section(
                ["parent-child", "Insert a parent, 5 ms, insert its child: interactive"],
                (Kind::ParentAndChild, THINK),
                few,
                &[],
            ),
            self.section(
                ["hot-row", "Read one row that all want, decide for 5 ms, write it"],
                (Kind::HotRow, THINK),
                &all,
                &[],
            ),
            self.elsewhere(),
            self.databases(ground.options.depth),
            self.idle(ground),
        ]
    }
}

impl Place {
    /// Works through a round with clients in this process, and others beside that do not count.
    fn run(
        &self,
        side: Side,
        (job, clients): (Job, usize),
        beside: (Job, usize),
        turn: &Turn<'_>,
    ) -> Result<Round> {
        let id = self.server(side)?;
        self.runtime.block_on(async {
            let mut workers = self.workers(side, job, clients).await?;
            let mut witness = self.connect(side).await?;
            let before = sums(&mut witness).await?;
            let once = Goal { count: clients as u64, deadline: None };
            let warm = workers.iter_mut().enumerate().map(|(number, worker)| {
                let ticket = Ticket { index: number as u64, seed: turn.seed };
                async move { worker.transact(ticket, &once).await }
            });
            let mut expected = Sums::default();
            for ended in try_join_all(warm).await? {
                add(&mut expected, ended.sums.unwrap_or_default());
            }
            let first = Ticket { index: clients as u64, seed: turn.seed };
            let others = self.workers(side, beside.0, beside.1).await?;
            let watched = Watched::begin(id);
            let begin = Instant::now();
            let goal = Goal { count: u64::MAX, deadline: Some(begin + turn.length) };
            let measured = async {
                let done = drive(workers, goal, first, turn.interrupt).await?;
                Ok((Round::of(&done.parts, begin.elapsed()), done.sums))
            };
            let others = drive(others, goal, first, turn.interrupt);
            let ((round, changed), others) = try_join(measured, others).await?;
            let processes = Some(watched.used());
            for changed in [changed, others.sums] {
                add(&mut expected, changed);
            }
            compare(before, sums(&mut witness).await?, expected)?;
            Ok(Round { processes, ..round })
        })
    }

    /// The same with a process in another language.
    fn foreign(
        &self,
        at: usize,
        home: &Path,
        work: (Job, usize),
        turn: &Turn<'_>,
    ) -> Result<Round> {
        if let Some(reason) = &self.missing[at] {
            return Err(Absent(reason.clone()).into());
        }
        let client: Foreign = FOREIGN[at];
        let mut witness = self.runtime.block_on(self.connect(Side::Ours))?;
        let before = self.runtime.block_on(sums(&mut witness))?;
        let watched = Watched::begin(self.ours.id());
        let mut round = client.run(home, &self.ours.url, work, turn)?;
        let clients_ns = round.processes.map_or(0, |it| it.clients_ns);
        round.processes = Some(Processes { clients_ns, ..watched.used() });
        let written = if work.0.kind == Kind::Read { 0 } else { round.operations as i64 };
        let after = self.runtime.block_on(sums(&mut witness))?;
        compare(before, after, [written, 0, 0, 0])?;
        Ok(round)
    }

    async fn workers(&self, side: Side, job: Job, clients: usize) -> Result<Vec<Worker>> {
        let connect = |_| async move {
            Ok::<_, anyhow::Error>(Worker { sessions: vec![self.connect(side).await?], job })
        };
        try_join_all((0..clients).map(connect)).await
    }

    /// The same in so many databases, with a connection to each of them.
    fn run_in_many(&self, databases: usize, turn: &Turn<'_>) -> Result<Round> {
        let job = Job { kind: Kind::Update, think: Duration::ZERO, accounts: IN_EACH };
        if databases == 1 {
            return self.run(Side::Ours, (job, ELSEWHERE), (job, 0), turn);
        }
        let id = self.many.id();
        self.runtime.block_on(async {
            let mut workers: Vec<Worker> = Vec::new();
            workers.resize_with(ELSEWHERE, || Worker { sessions: Vec::new(), job });
            let mut before = 0;
            for number in 0..databases {
                let mut session = Session::ours(&self.many.database(number)).await?;
                before += sums(&mut session).await?[0];
                workers[number % ELSEWHERE].sessions.push(session);
            }
            let watched = Watched::begin(id);
            let begin = Instant::now();
            let goal = Goal { count: u64::MAX, deadline: Some(begin + turn.length) };
            let first = Ticket { index: 0, seed: turn.seed };
            let done = drive(workers, goal, first, turn.interrupt).await?;
            let round = Round::of(&done.parts, begin.elapsed());
            let processes = Some(watched.used());
            let mut after = 0;
            for number in 0..databases {
                let mut session = Session::ours(&self.many.database(number)).await?;
                after += sums(&mut session).await?[0];
            }
            compare([before, 0, 0, 0], [after, 0, 0, 0], done.sums)?;
            Ok(Round { processes, ..round })
        })
    }

    /// Connects so often, and looks at the memory of the server.
    fn idle(&self, side: Side, connections: usize, (url, id): (&str, u32)) -> Result<Round> {
        let watched = Watched::begin(id);
        self.runtime.block_on(async {
            let mut part = Part::default();
            let (mut sessions, begin) = (Vec::new(), Instant::now());
            for _ in 0..connections {
                let start = Instant::now();
                sessions.push(match side {
                    Side::Postgres => self.connect(side).await?,
                    _ => Session::ours(url).await?,
                });
                part.acknowledged(start);
            }
            let round = Round::of(&[part], begin.elapsed());
            let processes = Some(watched.used());
            Ok(Round { processes, ..round })
        })
    }

    async fn connect(&self, side: Side) -> Result<Session> {
        match side {
            Side::Postgres => Session::postgres(&config(self.postgres()?)).await,
            _ => Session::ours(&self.ours.url).await,
        }
    }

    fn postgres(&self) -> Result<&Server> {
        self.postgres.as_ref().map_err(|reason| Absent(reason.clone()).into())
    }

    /// The number of the server's first process.
    fn server(&self, side: Side) -> Result<u32> {
        match side {
            Side::Postgres => Ok(self.postgres()?.id()),
            _ => Ok(self.ours.id()),
        }
    }
}

fn compare(before: Sums, after: Sums, expected: Sums) -> Result<()> {
    let mut wanted = before;
    add(&mut wanted, expected);
    ensure!(after == wanted, "{after:?} is there where {wanted:?} was acknowledged");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_or_done_twice_ends_the_run() {
        let (before, acknowledged) = ([5, 0, 2, 2], [3, 10, 1, 1]);
        assert!(compare(before, [8, 10, 3, 3], acknowledged).is_ok());
        for after in [[7, 10, 3, 3], [9, 10, 3, 3], [8, 10, 3, 2]] {
            assert!(compare(before, after, acknowledged).is_err(), "{after:?}");
        }
    }
}
