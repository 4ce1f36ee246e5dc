//! The shop over real HTTP: searches, a sale with more customers than goods, a report, a backup,
//! and `kill -9`.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use monolite::Database;
use serde_json::{Value, json};
use ureq::Agent;

const CUSTOMERS: usize = 20;
const STOCK: usize = 12;

/// The program, killed when dropped.
struct Shop {
    child: Child,
    log: PathBuf,
    base: String,
    agent: Agent,
}

impl Shop {
    /// Starts it in a directory, with its output in the file `log`; returns when it listens.
    fn start(directory: &Path) -> Shop {
        let log = directory.join("log");
        let child = Command::new(env!("CARGO_BIN_EXE_shop"))
            .args([directory.join("shop.db").as_os_str(), "127.0.0.1:0".as_ref()])
            .stdout(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)));
        let agent = config.build().into();
        let mut shop = Shop { child, log, base: String::new(), agent };
        while shop.base.is_empty() {
            assert!(shop.child.try_wait().unwrap().is_none(), "the shop has ended");
            thread::sleep(Duration::from_millis(10));
            let text = fs::read_to_string(&shop.log).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("listening on "));
            shop.base = line.filter(|_| text.ends_with('\n')).unwrap_or_default().to_owned();
        }
        shop
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut answer = self.agent.get(format!("{}{path}", self.base)).call().unwrap();
        let body = answer.body_mut().with_config().limit(1 << 30).read_to_string().unwrap();
        (answer.status().as_u16(), body)
    }

    fn post(&self, path: &str, body: &Value) -> (u16, String) {
        let request = self.agent.post(format!("{}{path}", self.base));
        let mut answer = request.send_json(body).unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }

    /// Posts what has to be done; gives the answer.
    fn done(&self, path: &str, body: &Value) -> Value {
        let (status, body) = self.post(path, body);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn add_user(&self, name: &str) -> i64 {
        self.done("/users", &json!(name)).as_i64().unwrap()
    }

    fn add_product(&self, name: &str, description: &str, stock: usize) -> i64 {
        let product =
            json!({ "name": name, "description": description, "cents": 450, "stock": stock });
        self.done("/products", &product).as_i64().unwrap()
    }

    /// How many lines of its output begin so.
    fn lines(&self, start: &str) -> usize {
        let log = fs::read_to_string(&self.log).unwrap();
        log.lines().filter(|line| line.starts_with(start)).count()
    }

    fn wait_for(&self, start: &str, lines: usize) {
        for _ in 0..1_000 {
            if self.lines(start) == lines {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{} lines begin with {start:?}", self.lines(start));
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

/// Orders that were made long ago, a product in each.
fn fill(path: &Path, orders: i64) {
    let db = Database::open(path).unwrap();
    db.write(move |tx| {
        tx.execute_batch(
            "INSERT INTO user VALUES (1000, 'of old');
             INSERT INTO product VALUES (1000, 'lamp', 'of old', 100, 0);",
        )?;
        tx.execute(
            "INSERT INTO purchase SELECT value, 'old ' || value, 1000, 'paid', 'old'
             FROM generate_series(1001, 1000 + ?1)",
            [orders],
        )?;
        tx.execute("INSERT INTO item SELECT id, 1000, 1, 100 FROM purchase", ())
    })
    .wait()
    .unwrap();
    db.close().unwrap();
}

fn numbers(path: &Path, sql: &'static str) -> Vec<i64> {
    let db = Database::open(path).unwrap();
    let numbers = db.read(|tx| tx.query_map(sql, (), |row| row.get(0))).wait().unwrap();
    db.close().unwrap();
    numbers
}

fn order(key: &str, user: i64, product: i64) -> Value {
    json!({ "key": key, "user": user, "items": [[product, 1]] })
}

fn check_search(shop: &Shop) {
    let found = |words: &str| -> Vec<String> {
        let (status, body) = shop.get(&format!("/products/{words}"));
        assert_eq!(status, 200, "{body}");
        let found: Vec<Value> = serde_json::from_str(&body).unwrap();
        found.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(found("picking%20tea"), ["Green tea"]);
    assert_eq!(found("tea").len(), 2);
    assert!(found("coffee").is_empty());
    assert!(found("tea%22%20OR%20*").is_empty());
}

/// Each customer sends an order twice, at the same time; gives those who were served.
fn sell(shop: &Shop, users: &[i64], product: i64) -> BTreeSet<usize> {
    let answers: Vec<(usize, u16)> = thread::scope(|scope| {
        let buyers: Vec<_> = (0..2 * CUSTOMERS)
            .map(|i| {
                let customer = i % CUSTOMERS;
                let order = order(&format!("key {customer}"), users[customer], product);
                scope.spawn(move || (customer, shop.post("/orders", &order).0))
            })
            .collect();
        buyers.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|(_, status)| [200, 409].contains(status)), "{answers:?}");
    answers.iter().filter(|it| it.1 == 200).map(|it| it.0).collect()
}

#[test]
fn a_day_in_the_shop() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    drop(Shop::start(directory.path()));
    fill(&path, 100_000);

    let shop = Shop::start(directory.path());
    let users: Vec<i64> = (0..CUSTOMERS).map(|i| shop.add_user(&format!("user {i}"))).collect();
    assert_eq!(shop.post("/users", &json!("user 0")).0, 409);
    let tea = shop.add_product("Green tea", "picked \"early\"", STOCK);
    shop.add_product("Pot", "for teas", 1);
    check_search(&shop);

    let served = sell(&shop, &users, tea);
    assert_eq!(served.len(), STOCK);
    assert_eq!(shop.post("/orders", &order("key", users[0], tea)).0, 409);
    assert_eq!(shop.post("/orders", &order("key", users[0], 404)).0, 404);
    assert_eq!(shop.post("/orders", &order("key", 404, tea)).0, 409);
    let (status, report) = shop.get("/report.csv");
    assert_eq!((status, report.lines().count()), (200, 100_000 + STOCK));
    assert!(report.lines().all(|line| line.split(',').count() == 5));

    shop.wait_for("mail: ", STOCK);
    assert_eq!(shop.lines("charge: "), STOCK);
    let copy = directory.path().join("copy.db");
    let bytes = shop.done("/backup", &json!(copy));
    assert_eq!(bytes, fs::metadata(&copy).unwrap().len());
    assert_eq!(shop.post("/backup", &json!(copy)).0, 500);
    drop(shop);

    // All of it is there after `kill -9`, and an order that is sent again is not paid again.
    let shop = Shop::start(directory.path());
    assert_eq!(shop.get("/report.csv").1, report);
    for customer in served {
        let key = format!("key {customer}");
        let receipt = shop.done("/orders", &order(&key, users[customer], tea));
        assert!(receipt.as_str().unwrap().starts_with("receipt-"));
        assert_eq!(shop.get(&format!("/orders/key%20{customer}")).1, receipt.to_string());
    }
    assert_eq!(shop.lines("charge: "), 0);
    drop(shop);
    for file in [&path, &copy] {
        assert_eq!(numbers(file, "SELECT stock FROM product WHERE name = 'Green tea'"), [0]);
        assert_eq!(numbers(file, "SELECT count(*) FROM purchase WHERE state = 'paid'"), [100_012]);
        assert_eq!(numbers(file, "SELECT sum(sent) FROM outbox"), [12]);
    }
}

#[test]
fn an_order_whose_payment_was_cut_off_is_told_and_not_paid_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut shop = Shop::start(directory.path());
    let (user, tea) = (shop.add_user("Ada"), shop.add_product("Tea", "", 1));
    let (agent, url) = (shop.agent.clone(), format!("{}/orders", shop.base));
    let buyer = thread::spawn(move || agent.post(url).send_json(order("cut", user, tea)).is_ok());
    shop.wait_for("charge: ", 1);
    shop.child.kill().unwrap();
    assert!(!buyer.join().unwrap());
    drop(shop);

    let shop = Shop::start(directory.path());
    assert_eq!(shop.lines("1 orders to ask the payment service about: [\"cut\"]"), 1);
    assert_eq!(shop.done("/orders", &order("cut", user, tea)), Value::Null);
    assert_eq!(shop.lines("charge: "), 0);
}
