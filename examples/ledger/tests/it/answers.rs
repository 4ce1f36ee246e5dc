//! One request at a time: each answer, and each way to be refused. The functions of [`SUITE`] run
//! on every engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use monolite::{Database, Durability, InteractiveOptions, Options};
use monolite_archive::internals::{Call, Fault, FaultyStore};
use monolite_archive::{Archive, Layout, MemoryStore};
use serde_json::json;

use crate::client::{Answer, Client};
use crate::server::Service;

/// What each engine has to pass, on an empty ledger each time.
pub(crate) const SUITE: [(&str, Test); 6] = [
    ("a transfer moves money", a_transfer_moves_money_and_shows_on_both_statements),
    ("a transfer sent again", a_transfer_sent_again_is_made_once),
    ("a refused transfer", a_transfer_that_is_refused_moves_nothing_and_uses_up_no_id),
    ("an unknown account", an_unknown_account_is_not_found),
    ("pages of a statement", a_statement_comes_in_pages),
    ("bad requests", bad_requests_are_told_what_is_wrong),
];

type Test = fn(&Fixture);

/// An empty ledger.
pub(crate) struct Fixture {
    pub(crate) client: Client,
    _service: Service,
}

impl Fixture {
    pub(crate) fn on(service: Service) -> Fixture {
        Fixture { client: Client::new(&service.base), _service: service }
    }

    /// Opens an account for each balance, and gives their numbers, which may have gaps.
    fn accounts<const N: usize>(&self, balances: [i64; N]) -> [i64; N] {
        balances.map(|balance| {
            let body =
                json!({ "owner": format!("owner of {balance}"), "opening_balance": balance });
            let answer = self.client.post("/accounts", &body.to_string()).unwrap();
            assert_eq!((answer.status, &answer.body["balance"]), (201, &json!(balance)));
            answer.body["id"].as_i64().unwrap()
        })
    }

    fn transfer(&self, id: &str, from: i64, to: i64, amount: i64) -> Answer {
        let body = json!({ "id": id, "from": from, "to": to, "amount": amount });
        self.client.post("/transfers", &body.to_string()).unwrap()
    }

    fn balance(&self, id: i64) -> i64 {
        self.client.get(&format!("/accounts/{id}")).unwrap().body["balance"].as_i64().unwrap()
    }
}

#[test]
fn the_suite_passes_on_monolite() {
    for (name, test) in SUITE {
        println!("{name}");
        let db = Database::open(":memory:").unwrap();
        test(&Fixture::on(Service::start(&db)));
    }
}

fn a_transfer_moves_money_and_shows_on_both_statements(ledger: &Fixture) {
    let [one, two] = ledger.accounts([100, 5]);
    assert_eq!(ledger.transfer("rent", one, two, 40).status, 201);
    assert_eq!((ledger.balance(one), ledger.balance(two)), (60, 45));
    let page = ledger.client.get(&format!("/accounts/{two}/statement")).unwrap();
    let entries = page.body["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0]["transfer"], json!(null));
    let rent = [&entries[1]["transfer"], &entries[1]["amount"], &entries[1]["balance"]];
    assert_eq!(rent, [&json!("rent"), &json!(40), &json!(45)]);
    assert!(entries[0]["id"].as_i64() < entries[1]["id"].as_i64());
    assert_eq!(page.body["next"], json!(null));
}

fn a_transfer_sent_again_is_made_once(ledger: &Fixture) {
    let [one, two] = ledger.accounts([100, 0]);
    assert_eq!(ledger.transfer("rent", one, two, 40).status, 201);
    let again = ledger.transfer("rent", one, two, 40);
    assert_eq!((again.status, &again.body["amount"]), (200, &json!(40)));
    assert_eq!((ledger.balance(one), ledger.balance(two)), (60, 40));
}

fn a_transfer_that_is_refused_moves_nothing_and_uses_up_no_id(ledger: &Fixture) {
    let most = 1_000_000_000_000_000;
    let [one, two, three, four] = ledger.accounts([100, 0, 0, most]);
    assert_eq!(ledger.transfer("rent", one, two, 40).status, 201);
    for (id, from, to, amount, code) in [
        ("rent", one, two, 41, "transfer_id_taken"),
        ("rent", one, three, 40, "transfer_id_taken"),
        ("rent", two, one, 40, "transfer_id_taken"),
        ("food", one, two, 61, "insufficient_funds"),
        ("food", one, four, 1, "balance_too_large"),
    ] {
        let answer = ledger.transfer(id, from, to, amount);
        assert_eq!((answer.status, answer.code()), (409, code), "{id} {from} {to} {amount}");
    }
    let balances = [one, two, three, four].map(|id| ledger.balance(id));
    assert_eq!(balances, [60, 40, 0, most]);
    assert_eq!(ledger.transfer("food", one, two, 60).status, 201);
}

fn an_unknown_account_is_not_found(ledger: &Fixture) {
    let [one] = ledger.accounts([100]);
    for answer in [
        ledger.transfer("a", one, 999, 1),
        ledger.transfer("b", 999, one, 1),
        ledger.client.get("/accounts/999").unwrap(),
        ledger.client.get("/accounts/999/statement").unwrap(),
    ] {
        assert_eq!((answer.status, answer.code()), (404, "unknown_account"));
    }
    assert_eq!(ledger.balance(one), 100);
}

fn a_statement_comes_in_pages(ledger: &Fixture) {
    let [one, two] = ledger.accounts([100, 0]);
    for at in 0..9 {
        assert_eq!(ledger.transfer(&format!("t{at}"), one, two, 1).status, 201);
    }
    let (mut sizes, mut sum, mut after) = (Vec::new(), 0, json!(0));
    while !after.is_null() {
        let path = format!("/accounts/{one}/statement?limit=4&after={after}");
        let page = ledger.client.get(&path).unwrap().body;
        let entries = page["entries"].as_array().unwrap();
        sizes.push(entries.len());
        sum += entries.iter().map(|entry| entry["amount"].as_i64().unwrap()).sum::<i64>();
        after = page["next"].clone();
    }
    assert_eq!((sizes, sum), (vec![4, 4, 2], 91));
}

fn bad_requests_are_told_what_is_wrong(ledger: &Fixture) {
    let [one, two] = ledger.accounts([100, 0]);
    for (path, body, word) in [
        ("/accounts", "", "EOF"),
        ("/accounts", "{", "EOF"),
        ("/accounts", "{}", "owner"),
        ("/accounts", r#"{"owner": " "}"#, "owner"),
        ("/accounts", r#"{"owner": "a", "opening_balance": -1}"#, "opening_balance"),
        ("/accounts", r#"{"owner": "a", "opening_balance": 1.5}"#, "opening_balance"),
        ("/accounts", r#"{"owner": "a", "balance": 1}"#, "balance"),
        ("/transfers", r#"{"id": "a", "from": 1, "to": 1, "amount": 1}"#, "different"),
        ("/transfers", r#"{"id": "a", "from": 1, "to": 2, "amount": 0}"#, "amount"),
        ("/transfers", r#"{"id": "a", "from": 1, "to": 2, "amount": -5}"#, "amount"),
        ("/transfers", r#"{"id": "", "from": 1, "to": 2, "amount": 1}"#, "id"),
        ("/transfers", r#"{"from": 1, "to": 2, "amount": 1}"#, "id"),
    ] {
        let answer = ledger.client.post(path, body).unwrap();
        assert_eq!((answer.status, answer.code()), (400, "invalid_request"), "{path} {body}");
        let message = answer.body["error"]["message"].as_str().unwrap();
        assert!(message.contains(word), "{path} {body}: {message}");
    }
    for path in ["/accounts/one", "/accounts/1/statement?limit=0", "/accounts/1/statement?aft=1"] {
        assert_eq!(ledger.client.get(path).unwrap().status, 400, "{path}");
    }
    assert_eq!(ledger.client.get("/account").unwrap().status, 404);
    assert_eq!(ledger.client.get("/transfers").unwrap().status, 405);
    assert_eq!((ledger.balance(one), ledger.balance(two)), (100, 0));
}

#[test]
fn health_and_stats_are_answered() {
    let db = Database::open(":memory:").unwrap();
    let ledger = Fixture::on(Service::start(&db));
    ledger.accounts([100]);
    assert_eq!(ledger.client.get("/health").unwrap().body, json!({ "status": "ok" }));
    let stats = ledger.client.get("/stats").unwrap();
    assert!(stats.body["transactions"].as_u64().unwrap() >= 2, "{stats:?}");
}

#[test]
fn too_many_transactions_turn_clients_away_and_let_them_come_back() {
    let interactive = InteractiveOptions::default().max_open(1);
    let db = Options::new().interactive(interactive).open(":memory:").unwrap();
    let ledger = Fixture::on(Service::start(&db));
    let [one, two] = ledger.accounts([100, 0]);
    let in_the_way = db.transaction().unwrap();
    let answer = ledger.transfer("rent", one, two, 40);
    assert_eq!((answer.status, answer.code()), (503, "unavailable"));
    assert_eq!(answer.retry_after.as_deref(), Some("1"));
    drop(in_the_way);
    assert_eq!(ledger.transfer("rent", one, two, 40).status, 201);
    assert_eq!((ledger.balance(one), ledger.balance(two)), (60, 40));
}

#[test]
fn a_repetition_is_answered_once_the_transfer_is_archived() {
    let (is_away, directory) = (Arc::<AtomicBool>::default(), tempfile::tempdir().unwrap());
    let asked = Arc::clone(&is_away);
    let fault =
        move |_: Call<'_>| if asked.load(Ordering::Relaxed) { Fault::Busy } else { Fault::None };
    let store = FaultyStore::new(MemoryStore::new(), fault);
    let archive = Archive::of(Arc::new(store), Layout::directory());
    let archive = archive.time_limit(Duration::from_secs(1)).close_time(Duration::ZERO);
    let options = Options::new().archive(archive).durability(Durability::Archived);
    let db = options.open(directory.path().join("ledger.db")).unwrap();
    let ledger = Fixture::on(Service::start(&db));
    let [one, two] = ledger.accounts([100, 0]);
    is_away.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let answer = ledger.transfer("rent", one, two, 40);
        assert_eq!((answer.status, answer.code()), (503, "unavailable"));
    }
    is_away.store(false, Ordering::Relaxed);
    while ledger.transfer("rent", one, two, 40).status != 200 {}
    assert_eq!((ledger.balance(one), ledger.balance(two)), (60, 40));
}
