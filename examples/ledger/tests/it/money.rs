//! The money under load: 64 clients, some of whose transfers fail, while the program is handed over
//! to its successor and later killed. Whatever was acknowledged is there, once; nothing else is.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use monolite_archive::{Archive, Target};
use serde_json::json;

use crate::client::{Answer, Client};
use crate::server::{Program, Service};

const ACCOUNTS: i64 = 40;
const OPENING: i64 = 500;

/// How long a client retries without an answer; more than a start of the program takes.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a client pauses after it was turned away.
const PAUSE: Duration = Duration::from_millis(20);

/// How many clients, and how many requests of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) clients: usize,
    pub(crate) requests: usize,
}

impl Load {
    pub(crate) fn all(self) -> usize {
        self.clients * self.requests
    }
}

const LOAD: Load = Load { clients: 64, requests: 50 };

/// From, to and amount of each acknowledged transfer, by its id.
type Acknowledged = BTreeMap<String, (i64, i64, i64)>;

/// What a client asks for.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Transfer,
    TooMuch,
    Unknown,
    Malformed,
}

/// What one client saw.
#[derive(Default)]
struct Seen {
    acknowledged: Acknowledged,
    repeated: usize,
    /// Requests without an answer, or with "later".
    failed: usize,
    insufficient: usize,
    unknown: usize,
    malformed: usize,
}

#[test]
fn money_survives_load_failures_hand_over_and_kill() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("ledger.db");
    let mut program = Program::start(&database, "127.0.0.1:0");
    let base = program.listening();
    open_accounts(&Client::new(&base));

    let (program, seen) = thread::scope(|scope| {
        let (clients, progress) = start_clients(scope, seed, &base, LOAD, 0);
        wait_for(&progress, LOAD.all() / 3);
        let program = hand_over(program, &database, &base);
        wait_for(&progress, LOAD.all() / 3);
        let program = kill_and_restart(program, &database, &base);
        (program, clients.into_iter().map(|client| client.join().unwrap()).collect())
    });

    let acknowledged = sum_up(seen, LOAD);
    assert_eq!(audit(&Client::new(&base), &acknowledged), Ok(()));
    program.tell_to_stop();
    program.ended();
    check_in_file(&database, acknowledged.len());
}

#[test]
fn no_connection_is_refused_while_a_new_version_takes_over_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("ledger.db");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut program = Program::start_on(&database, &socket);
    program.listening();
    open_accounts(&Client::new(&format!("http://{address}")));
    let is_over = AtomicBool::new(false);
    let (done, progress) = channel();
    let program = thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let (done, is_over) = (done.clone(), &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        // A connection of its own, as a new client has it.
                        let answer = match one_request(address) {
                            // The old process had taken it, and stopped before it read anything.
                            Err(error) if error.kind() == ErrorKind::ConnectionReset => continue,
                            answer => answer.unwrap(),
                        };
                        let is_whole = answer.starts_with("HTTP/1.1 200 ");
                        assert!(is_whole || answer.is_empty(), "{answer:?}");
                        let _ = done.send(());
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            wait_for(&progress, 100);
            let mut next = Program::start_on(&database, &socket);
            program.tell_to_stop();
            program.ended();
            next.listening();
            program = next;
        }
        wait_for(&progress, 100);
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
        program
    });
    program.tell_to_stop();
    program.ended();
}

fn one_request(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /accounts/1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn nothing_answered_is_lost_with_the_machine() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive").into_os_string().into_string().unwrap();
    let machine = folder.path().join("machine");
    fs::create_dir(&machine).unwrap();
    let database = machine.join("ledger.db");
    let mut program = Program::start_with(&database, "127.0.0.1:0", &["--archive", &archive]);
    let base = program.listening();
    open_accounts(&Client::new(&base));

    let (program, seen) = thread::scope(|scope| {
        let (clients, progress) = start_clients(scope, seed, &base, LOAD, 0);
        wait_for(&progress, LOAD.all() / 2);
        program.kill();
        fs::remove_dir_all(&machine).unwrap();
        let database = folder.path().join("restored.db");
        let copy = Archive::at(&archive).unwrap();
        copy.restore(Target::Latest, &database).unwrap();
        let listen = base.strip_prefix("http://").unwrap();
        let more = ["--archive", &archive, "--take-over"];
        let mut program = Program::start_with(&database, listen, &more);
        assert_eq!(program.listening(), base);
        (program, clients.into_iter().map(|client| client.join().unwrap()).collect())
    });

    let acknowledged = sum_up(seen, LOAD);
    assert_eq!(audit(&Client::new(&base), &acknowledged), Ok(()));
    program.tell_to_stop();
    program.ended();
    check_in_file(&folder.path().join("restored.db"), acknowledged.len());
}

/// Runs the clients on a service, while `meanwhile` hears of each request that has ended; then
/// counts the money.
pub(crate) fn run_and_audit(base: &str, load: Load, meanwhile: impl FnOnce(&Progress)) {
    let mut money = Money::new(base, load);
    money.run(base, meanwhile);
    assert_eq!(money.audit(base), Ok(()));
}

/// What the clients of several runs were told.
pub(crate) struct Money {
    seed: u64,
    load: Load,
    runs: usize,
    acknowledged: Acknowledged,
}

impl Money {
    pub(crate) fn new(base: &str, load: Load) -> Money {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        open_accounts(&Client::new(base));
        Money { seed, load, runs: 0, acknowledged: Acknowledged::new() }
    }

    /// Runs the clients once; how many requests have failed, and were sent again.
    pub(crate) fn run(&mut self, base: &str, meanwhile: impl FnOnce(&Progress)) -> usize {
        let (first, load) = (self.runs * self.load.clients, self.load);
        let seen: Vec<Seen> = thread::scope(|scope| {
            let (clients, progress) = start_clients(scope, self.seed, base, load, first);
            meanwhile(&progress);
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        self.runs += 1;
        let failed = seen.iter().map(|it| it.failed).sum();
        self.acknowledged.extend(sum_up(seen, load));
        failed
    }

    pub(crate) fn audit(&self, base: &str) -> Result<(), String> {
        audit(&Client::new(base), &self.acknowledged)
    }
}

/// Tells of each request that has ended, and when, if it was a transfer that was made.
pub(crate) type Progress = Receiver<Option<Instant>>;

/// The clients at work, with numbers from `first`.
fn start_clients<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    seed: u64,
    base: &'env str,
    load: Load,
    first: usize,
) -> (Vec<ScopedJoinHandle<'scope, Seen>>, Progress) {
    let (done, progress) = channel();
    let client = |who| {
        let done = done.clone();
        scope.spawn(move || run_client(who, seed, base, load, &done))
    };
    ((first..first + load.clients).map(client).collect(), progress)
}

fn open_accounts(client: &Client) {
    for id in 1..=ACCOUNTS {
        let body = json!({ "owner": format!("owner {id}"), "opening_balance": OPENING });
        let answer = client.post("/accounts", &body.to_string()).unwrap();
        assert_eq!((answer.status, answer.body["id"].as_i64()), (201, Some(id)));
    }
}

pub(crate) fn wait_for<T>(progress: &Receiver<T>, requests: usize) {
    assert_eq!(progress.iter().take(requests).count(), requests);
}

/// A deployment: the successor waits for the database while the old process finishes.
fn hand_over(old: Program, database: &Path, base: &str) -> Program {
    let mut new = Program::start(database, base.strip_prefix("http://").unwrap());
    old.tell_to_stop();
    old.ended();
    assert_eq!(new.listening(), base);
    new
}

fn kill_and_restart(old: Program, database: &Path, base: &str) -> Program {
    old.kill();
    let mut new = Program::start(database, base.strip_prefix("http://").unwrap());
    assert_eq!(new.listening(), base);
    new
}

fn run_client(
    who: usize,
    seed: u64,
    base: &str,
    load: Load,
    done: &Sender<Option<Instant>>,
) -> Seen {
    let client = Client::new(base);
    let mut random = Rng::with_seed(seed ^ who as u64);
    let mut seen = Seen::default();
    for request in 0..load.requests {
        let (id, made) = (format!("client {who} request {request}"), seen.acknowledged.len());
        match random.u8(0..10) {
            0 => ask(&client, &mut random, &mut seen, Wish::TooMuch, id),
            1 => ask(&client, &mut random, &mut seen, Wish::Unknown, id),
            2 => ask(&client, &mut random, &mut seen, Wish::Malformed, id),
            _ => ask(&client, &mut random, &mut seen, Wish::Transfer, id),
        }
        // The receiver is gone towards the end.
        let _ = done.send((seen.acknowledged.len() > made).then(Instant::now));
    }
    seen
}

/// Sends one request until it has a final answer, and checks that answer.
fn ask(client: &Client, random: &mut Rng, seen: &mut Seen, wish: Wish, id: String) {
    let from = random.i64(1..=ACCOUNTS);
    let to = (from + random.i64(1..ACCOUNTS) - 1) % ACCOUNTS + 1;
    let amount = random.i64(1..=OPENING / 4);
    let body = match wish {
        Wish::Transfer => json!({ "id": id, "from": from, "to": to, "amount": amount }),
        Wish::TooMuch => {
            let amount = ACCOUNTS * OPENING + 1;
            json!({ "id": id, "from": from, "to": to, "amount": amount })
        }
        Wish::Unknown => json!({ "id": id, "from": from, "to": ACCOUNTS + 1, "amount": 1 }),
        Wish::Malformed => json!({ "id": id, "from": from, "to": from, "amount": "all" }),
    };
    let body = body.to_string();
    let answer = insist(client, &body, &mut seen.failed);
    match (wish, answer.status, answer.code()) {
        (Wish::Transfer, 200 | 201, _) => {
            seen.acknowledged.insert(id, (from, to, amount));
            if random.u8(0..10) == 0 {
                assert_eq!(insist(client, &body, &mut seen.failed).status, 200);
                seen.repeated += 1;
            }
        }
        (Wish::Transfer | Wish::TooMuch, 409, "insufficient_funds") => seen.insufficient += 1,
        (Wish::Unknown, 404, "unknown_account") => seen.unknown += 1,
        (Wish::Malformed, 400, "invalid_request") => seen.malformed += 1,
        _ => panic!("{wish:?} was answered with {answer:?}"),
    }
}

/// Sends a transfer until the answer is neither silence nor "later".
fn insist(client: &Client, body: &str, failed: &mut usize) -> Answer {
    let start = Instant::now();
    loop {
        match client.post("/transfers", body) {
            Ok(answer) if answer.status != 503 => return answer,
            Ok(answer) => assert!(answer.retry_after.is_some(), "{answer:?}"),
            Err(error) => assert!(start.elapsed() < DEADLINE, "no answer: {error}"),
        }
        assert!(start.elapsed() < DEADLINE, "turned away for {DEADLINE:?}");
        *failed += 1;
        thread::sleep(PAUSE);
    }
}

/// Joins what the clients saw; each kind of outcome has to have happened, or nothing was tested.
fn sum_up(seen: Vec<Seen>, load: Load) -> Acknowledged {
    let sum = |count: fn(&Seen) -> usize| seen.iter().map(count).sum::<usize>();
    let made = sum(|it| it.acknowledged.len());
    let repeated = sum(|it| it.repeated);
    let failed = [sum(|it| it.insufficient), sum(|it| it.unknown), sum(|it| it.malformed)];
    println!("{made} made, {repeated} repeated, {failed:?} insufficient, unknown, malformed");
    assert_eq!(made + failed.iter().sum::<usize>(), load.all());
    assert!(made > 0 && repeated > 0 && failed.iter().all(|count| *count > 0));
    let acknowledged: Acknowledged = seen.into_iter().flat_map(|it| it.acknowledged).collect();
    assert_eq!(acknowledged.len(), made, "ids are different");
    acknowledged
}

/// Compares the accounts and their statements with what the clients were told; says what is wrong.
fn audit(client: &Client, acknowledged: &Acknowledged) -> Result<(), String> {
    let mut total = 0;
    let mut booked = BTreeMap::<String, Vec<(i64, i64)>>::new();
    for id in 1..=ACCOUNTS {
        let balance = client.get(&format!("/accounts/{id}")).unwrap().body["balance"].as_i64();
        let entries = whole_statement(client, id);
        let sum: i64 = entries.iter().map(|(_, amount, _)| amount).sum();
        let last = entries.last().map(|(_, _, balance)| *balance);
        if (balance, balance) != (Some(sum), last) {
            return Err(format!("account {id} holds {balance:?}, booked {sum}, last {last:?}"));
        }
        total += sum;
        for (transfer, amount, _) in entries {
            if let Some(transfer) = transfer {
                booked.entry(transfer).or_default().push((id, amount));
            }
        }
    }
    if total != ACCOUNTS * OPENING {
        return Err(format!("the total is {total}"));
    }
    compare(&booked, acknowledged)
}

/// Every acknowledged transfer is booked once on either side, and no other is booked at all.
fn compare(
    booked: &BTreeMap<String, Vec<(i64, i64)>>,
    acknowledged: &Acknowledged,
) -> Result<(), String> {
    if let Some(id) = booked.keys().find(|id| !acknowledged.contains_key(*id)) {
        return Err(format!("{id:?} was booked and never acknowledged"));
    }
    for (id, (from, to, amount)) in acknowledged {
        let mut expected = vec![(*from, -amount), (*to, *amount)];
        expected.sort_unstable();
        if booked.get(id) != Some(&expected) {
            return Err(format!("{id:?} was acknowledged; booked is {:?}", booked.get(id)));
        }
    }
    Ok(())
}

#[test]
fn the_audit_notices_what_it_should() {
    for (sql, word) in [
        ("UPDATE account SET balance = balance + 1 WHERE id = 3", "account 3 holds"),
        ("DELETE FROM entry WHERE transfer = 'kept' AND account = 1", "account 1 holds"),
        ("UPDATE entry SET transfer = 'lost' WHERE transfer = 'kept'", "never acknowledged"),
        ("UPDATE entry SET transfer = NULL WHERE transfer = 'kept'", "\"kept\" was acknowledged"),
        (
            "UPDATE entry SET amount = amount + 1, balance = balance + 1 WHERE account = 4;
             UPDATE account SET balance = balance + 1 WHERE id = 4",
            "the total is",
        ),
    ] {
        let db = monolite::Database::open(":memory:").unwrap();
        let service = Service::start(&db);
        let client = Client::new(&service.base);
        open_accounts(&client);
        let body = json!({ "id": "kept", "from": 1, "to": 2, "amount": 7 }).to_string();
        assert_eq!(insist(&client, &body, &mut 0).status, 201);
        // A transfer for entries to point at that no client knows.
        let other = "INSERT INTO transfer VALUES ('lost', 1, 2, 7)";
        db.write(move |tx| tx.execute(other, ())).wait().unwrap();
        let acknowledged = Acknowledged::from([("kept".to_owned(), (1, 2, 7))]);
        assert_eq!(audit(&client, &acknowledged), Ok(()));
        db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
        let noticed = audit(&client, &acknowledged).unwrap_err();
        assert!(noticed.contains(word), "{sql}: {noticed}");
    }
}

/// All entries of an account, page by page: transfer, amount and balance.
fn whole_statement(client: &Client, account: i64) -> Vec<(Option<String>, i64, i64)> {
    let (mut entries, mut after) = (Vec::new(), Some(0));
    while let Some(start) = after {
        let path = format!("/accounts/{account}/statement?limit=20&after={start}");
        let page = client.get(&path).unwrap().body;
        for entry in page["entries"].as_array().unwrap() {
            let transfer = entry["transfer"].as_str().map(str::to_owned);
            let number = |name: &str| entry[name].as_i64().unwrap();
            entries.push((transfer, number("amount"), number("balance")));
        }
        after = page["next"].as_i64();
    }
    entries
}

/// Looks into the file once the program has ended, as an auditor would.
fn check_in_file(database: &Path, acknowledged: usize) {
    let db = monolite::Database::open(database).unwrap();
    let count = |sql: &'static str| {
        db.read(move |tx| tx.query_row(sql, (), |row| row.get::<_, i64>(0))).wait().unwrap()
    };
    let transfers = count("SELECT count(*) FROM transfer");
    assert_eq!(usize::try_from(transfers).unwrap(), acknowledged);
    assert_eq!(count("SELECT sum(balance) FROM account"), ACCOUNTS * OPENING);
    assert_eq!(count("SELECT count(*) FROM pragma_foreign_key_check"), 0);
    let sound = db.read(|tx| {
        tx.query_row("SELECT * FROM pragma_integrity_check", (), |row| row.get::<_, String>(0))
    });
    assert_eq!(sound.wait().unwrap(), "ok");
    db.close().unwrap();
}
