//! One request at a time: each answer, and each way to be refused.

use std::sync::mpsc::channel;

use monolite::{Database, Error, ErrorKind, Options, Write};
use serde_json::json;

use crate::client::{Answer, Client};
use crate::server::Service;

struct Fixture {
    client: Client,
    db: Database,
    _service: Service,
}

fn fixture(options: Options) -> Fixture {
    let db = options.open(":memory:").unwrap();
    let service = Service::start(&db);
    Fixture { client: Client::new(&service.base), db, _service: service }
}

impl Fixture {
    /// Opens accounts 1, 2, … with the given balances.
    fn with_accounts(self, balances: &[i64]) -> Self {
        for (at, balance) in balances.iter().enumerate() {
            let body = json!({ "owner": format!("owner {at}"), "opening_balance": balance });
            let answer = self.client.post("/accounts", &body.to_string()).unwrap();
            assert_eq!((answer.status, &answer.body["id"]), (201, &json!(at + 1)));
        }
        self
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
fn a_transfer_moves_money_and_shows_on_both_statements() {
    let ledger = fixture(Options::new()).with_accounts(&[100, 5]);
    assert_eq!(ledger.transfer("rent", 1, 2, 40).status, 201);
    assert_eq!((ledger.balance(1), ledger.balance(2)), (60, 45));
    let page = ledger.client.get("/accounts/2/statement").unwrap();
    let entries = page.body["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0]["transfer"], json!(null));
    let rent = json!({ "id": 4, "transfer": "rent", "amount": 40, "balance": 45 });
    assert_eq!((&entries[1], &page.body["next"]), (&rent, &json!(null)));
}

#[test]
fn a_transfer_sent_again_is_made_once() {
    let ledger = fixture(Options::new()).with_accounts(&[100, 0]);
    assert_eq!(ledger.transfer("rent", 1, 2, 40).status, 201);
    let again = ledger.transfer("rent", 1, 2, 40);
    assert_eq!((again.status, &again.body["amount"]), (200, &json!(40)));
    assert_eq!((ledger.balance(1), ledger.balance(2)), (60, 40));
}

#[test]
fn a_transfer_that_is_refused_moves_nothing_and_uses_up_no_id() {
    let most = 1_000_000_000_000_000;
    let ledger = fixture(Options::new()).with_accounts(&[100, 0, 0, most]);
    assert_eq!(ledger.transfer("rent", 1, 2, 40).status, 201);
    for (id, from, to, amount, code) in [
        ("rent", 1, 2, 41, "transfer_id_taken"),
        ("rent", 1, 3, 40, "transfer_id_taken"),
        ("rent", 2, 1, 40, "transfer_id_taken"),
        ("food", 1, 2, 61, "insufficient_funds"),
        ("food", 1, 4, 1, "balance_too_large"),
    ] {
        let answer = ledger.transfer(id, from, to, amount);
        assert_eq!((answer.status, answer.code()), (409, code), "{id} {from} {to} {amount}");
    }
    assert_eq!([1, 2, 3, 4].map(|id| ledger.balance(id)), [60, 40, 0, most]);
    assert_eq!(ledger.transfer("food", 1, 2, 60).status, 201);
}

#[test]
fn an_unknown_account_is_not_found() {
    let ledger = fixture(Options::new()).with_accounts(&[100]);
    for answer in [
        ledger.transfer("a", 1, 9, 1),
        ledger.transfer("b", 9, 1, 1),
        ledger.client.get("/accounts/9").unwrap(),
        ledger.client.get("/accounts/9/statement").unwrap(),
    ] {
        assert_eq!((answer.status, answer.code()), (404, "unknown_account"));
    }
    assert_eq!(ledger.balance(1), 100);
}

#[test]
fn a_statement_comes_in_pages() {
    let ledger = fixture(Options::new()).with_accounts(&[100, 0]);
    for at in 0..9 {
        assert_eq!(ledger.transfer(&format!("t{at}"), 1, 2, 1).status, 201);
    }
    let (mut sizes, mut sum, mut after) = (Vec::new(), 0, json!(0));
    while !after.is_null() {
        let path = format!("/accounts/1/statement?limit=4&after={after}");
        let page = ledger.client.get(&path).unwrap().body;
        let entries = page["entries"].as_array().unwrap();
        sizes.push(entries.len());
        sum += entries.iter().map(|entry| entry["amount"].as_i64().unwrap()).sum::<i64>();
        after = page["next"].clone();
    }
    assert_eq!((sizes, sum), (vec![4, 4, 2], 91));
}

#[test]
fn bad_requests_are_told_what_is_wrong() {
    let ledger = fixture(Options::new()).with_accounts(&[100, 0]);
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
    assert_eq!((ledger.balance(1), ledger.balance(2)), (100, 0));
}

#[test]
fn health_and_stats_are_answered() {
    let ledger = fixture(Options::new()).with_accounts(&[100]);
    assert_eq!(ledger.client.get("/health").unwrap().body, json!({ "status": "ok" }));
    let stats = ledger.client.get("/stats").unwrap();
    assert!(stats.body["transactions"].as_u64().unwrap() >= 2, "{stats:?}");
}

#[test]
fn a_full_queue_turns_clients_away_and_lets_them_come_back() {
    let ledger = fixture(Options::new().queue_capacity(1)).with_accounts(&[100, 0]);
    let (entered, is_entered) = channel();
    let (open_gate, gate) = channel::<()>();
    let blocked: Write<(), Error> = ledger.db.write(move |_| {
        entered.send(()).unwrap();
        gate.recv().unwrap();
        Ok(())
    });
    is_entered.recv().unwrap();
    let waiting = fill_queue(&ledger.db);
    let answer = ledger.transfer("rent", 1, 2, 40);
    assert_eq!((answer.status, answer.code()), (503, "unavailable"));
    assert_eq!(answer.retry_after.as_deref(), Some("1"));
    assert_eq!(ledger.client.get("/health").unwrap().status, 503);
    open_gate.send(()).unwrap();
    blocked.wait().unwrap();
    for write in waiting {
        write.wait().unwrap();
    }
    assert_eq!(ledger.transfer("rent", 1, 2, 40).status, 201);
    assert_eq!((ledger.balance(1), ledger.balance(2)), (60, 40));
}

/// Submits writes until there is no more room.
fn fill_queue(db: &Database) -> Vec<Write<(), Error>> {
    let mut waiting = Vec::new();
    loop {
        match db.try_write(|_| Ok(())) {
            Ok(write) => waiting.push(write),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Overloaded);
                return waiting;
            }
        }
        assert!(waiting.len() < 100, "a queue of one holds {} transactions", waiting.len());
    }
}
