//! The operators' address: figures, what runs, and which databases there are.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use prometheus_parse::{Scrape, Value as Figure};
use serde_json::{Value, json};
use ureq::Agent;

use crate::served::Served;

pub(crate) fn agent() -> Agent {
    Agent::config_builder().http_status_as_error(false).build().new_agent()
}

pub(crate) fn get(url: &str) -> Value {
    agent().get(url).call().unwrap().body_mut().read_json().unwrap()
}

/// The status of a GET with one more header.
fn status_with(url: &str, name: &str, value: &str) -> u16 {
    agent().get(url).header(name, value).call().unwrap().status().as_u16()
}

pub(crate) fn create(served: &Served, name: &str) -> u16 {
    let url = format!("{}/v1/namespaces/{name}/create", served.admin);
    agent().post(&url).send_json(json!({})).unwrap().status().as_u16()
}

pub(crate) fn delete(served: &Served, name: &str) -> u16 {
    let url = format!("{}/v1/namespaces/{name}", served.admin);
    agent().delete(&url).call().unwrap().status().as_u16()
}

/// Runs a statement on `database`; its result has the type "ok" or "error".
pub(crate) fn run(served: &Served, database: &str, sql: &str) -> (u16, Value) {
    let requests = json!([{ "type": "execute", "stmt": { "sql": sql } }]);
    let path = format!("/db/{database}/v2/pipeline");
    served.post(&path, &json!({ "requests": requests }))
}

#[test]
fn figures_of_the_server_and_its_databases_are_read_by_prometheus() {
    let served = Served::one();
    served.stream().execute("CREATE TABLE t(x)").unwrap();
    let url = format!("{}/metrics", served.admin);
    let mut answer = agent().get(&url).call().unwrap();
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    assert_eq!(kind, "text/plain; version=0.0.4");
    let text = answer.body_mut().read_to_string().unwrap();
    let lines = text.lines().map(|line| Ok(line.to_owned()));
    let samples = Scrape::parse(lines).unwrap().samples;
    let find = |name: &str, label: &str, value: &str| {
        let found =
            samples.iter().find(|it| it.metric == name && it.labels.get(label) == Some(value));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).value.clone()
    };
    let transactions = find("monolite_transactions_total", "database", "default");
    assert!(matches!(transactions, Figure::Counter(n) if n >= 1.0), "{transactions:?}");
    let requests = find("monolite_server_requests_total", "endpoint", "/pipeline");
    // Its type is that of OpenMetrics, which has no `_total` in it.
    assert!(matches!(requests, Figure::Counter(1.0) | Figure::Untyped(1.0)), "{requests:?}");
    let samples_of_text = text.lines().filter(|it| !it.starts_with('#') && !it.is_empty()).count();
    assert!(samples_of_text >= samples.len() && samples.len() > 50);
}

#[test]
fn what_is_under_way_is_shown_by_database() {
    let served = Served::one();
    assert_eq!(get(&format!("{}/now", served.admin)), json!({ "databases": [], "others": [] }));
    let mut client = served.stream();
    client.execute("CREATE TABLE t(x)").unwrap();
    client.execute("BEGIN").unwrap();
    client.execute("INSERT INTO t VALUES (1)").unwrap();
    let now = get(&format!("{}/now", served.admin));
    let one = &now["databases"][0];
    assert_eq!((&one["database"], &one["open"]), (&json!("default"), &json!(1)));
    assert_eq!(one["open_transactions"][0]["statements"], 1, "{one}");
    assert!(one["file_bytes"].as_u64() > Some(0) && one["wal_limit_bytes"].as_u64() > Some(0));
    assert!(one["stats"]["transactions"].as_u64() > Some(0), "{one}");
    assert!(one["stats"]["commit_seconds"]["buckets"][0][0].is_number(), "{one}");
    client.execute("ROLLBACK").unwrap();
}

#[test]
fn of_many_databases_the_rest_is_only_counted() {
    let served = Served::many();
    for at in 0..45 {
        let name = format!("db-{at:02}");
        assert_eq!(create(&served, &name), 200);
        let (status, answer) = run(&served, &name, "CREATE TABLE t(x)");
        assert_eq!(status, 200, "{answer}");
    }
    run(&served, "db-07", "SELECT 1");
    let now = get(&format!("{}/now", served.admin));
    let lengths = |now: &Value| ["databases", "others"].map(|it| now[it].as_array().unwrap().len());
    assert_eq!(lengths(&now), [40, 5]);
    assert_eq!(now["databases"][0]["database"], "db-07", "the busiest is the first");
    let rest = now["others"][4].clone();
    assert!(rest["calls"].as_u64() > Some(0) && rest["stats"].is_null(), "{rest}");
    let name = rest["database"].as_str().unwrap();
    let now = get(&format!("{}/now?of={name},no-such", served.admin));
    assert_eq!(now["databases"][0]["database"], name, "what is asked for is the first");
    assert_eq!(lengths(&now), [40, 5]);
}

#[test]
fn databases_are_created_listed_and_deleted() {
    let served = Served::many();
    let list = || get(&format!("{}/v1/namespaces", served.admin));
    assert_eq!(list(), json!([]));
    assert_eq!([create(&served, "shop"), create(&served, "shop")], [200, 409]);
    for name in ["UP", "..%2fx", "a.b", "%00"] {
        assert!(create(&served, name) >= 400, "{name}");
    }
    let listed = list()[0].clone();
    assert_eq!((&listed["name"], &listed["is_open"]), (&json!("shop"), &json!(true)), "{listed}");
    assert_eq!(list().as_array().unwrap().len(), 1);
    assert_eq!(run(&served, "shop", "CREATE TABLE t(x)").0, 200);
    assert!(list()[0]["bytes"].is_u64());
    assert_eq!([delete(&served, "shop"), delete(&served, "shop")], [200, 404]);
    assert_eq!(list(), json!([]));
    assert_eq!(run(&served, "shop", "SELECT 1").0, 404);
    assert_eq!(served.directory.path().read_dir().unwrap().count(), 0, "no file is left");
}

/// What the server answers of the migrations of its database.
fn migrations(served: &Served, verb: &str, texts: &Value) -> (u16, Value) {
    let path = format!("/v1/namespaces/default/migrations/{verb}");
    Served::post_to(&served.admin, None, &path, texts)
}

#[test]
fn migrations_are_applied_while_clients_go_on() {
    let served = Served::one();
    let first = "CREATE TABLE t(id INTEGER PRIMARY KEY, n);
        INSERT INTO t WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT 60000)
        SELECT i, i FROM x";
    let mut texts = json!({ "0001_t.sql": first });
    let (status, plan) = migrations(&served, "plan", &texts);
    assert_eq!((status, &plan[0]["name"]), (200, &json!("0001_t.sql")));
    assert_eq!(migrations(&served, "dry-run", &texts), (200, json!(["0001_t.sql"])));
    let (status, error) = migrations(&served, "verify", &texts);
    assert_eq!((status, &error["code"]), (400, &json!("MIGRATION_FAILED")), "{error}");
    assert_eq!(migrations(&served, "up", &texts), (200, json!(["0001_t.sql"])));
    assert_eq!(migrations(&served, "verify", &texts), (200, Value::Null));
    assert_eq!(migrations(&served, "down", &texts).0, 404);
    assert_eq!(migrations(&served, "up", &json!({ "t.sql": "" })).0, 400);
    assert_eq!(migrations(&served, "up", &json!([])).0, 400);

    texts["0002_n.sql"] = json!(
        "-- monolite: rebuild=t online
         CREATE TABLE t(id INTEGER PRIMARY KEY, n INT NOT NULL, more TEXT)"
    );
    let rebuilding = |served: &Served| migrations(served, "status", &texts).1["rebuilding"].clone();
    // When its client leaves it is paused.
    let mut client = TcpStream::connect(served.admin.trim_start_matches("http://")).unwrap();
    let body = texts.to_string();
    let head = "POST /v1/namespaces/default/migrations/up HTTP/1.1\r\nhost: localhost\r\n";
    write!(client, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    while rebuilding(&served)["rows"].as_u64().is_none_or(|rows| rows == 0) {}
    served.stream().execute("UPDATE t SET n = -1 WHERE id = 1").unwrap();
    drop(client);
    let mut now = rebuilding(&served);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let before = std::mem::replace(&mut now, rebuilding(&served));
        if before == now {
            break;
        }
    }
    assert_eq!((&now["table"], &now["phase"]), (&json!("t"), &json!("copying")), "{now}");
    assert_eq!(migrations(&served, "abort", &json!({})), (200, json!("0002_n.sql")));
    assert_eq!(rebuilding(&served), Value::Null);

    // When the server stops, too.
    let mut served = served;
    let admin = served.admin.clone();
    let again = texts.clone();
    let up = std::thread::spawn(move || {
        Served::post_to(&admin, None, "/v1/namespaces/default/migrations/up", &again)
    });
    while rebuilding(&served)["rows"].as_u64().is_none_or(|rows| rows == 0) {}
    served.begin_stop();
    let (status, error) = up.join().unwrap();
    assert_eq!((status, &error["code"]), (503, &json!("DRAINING")), "{error}");
    let directory = served.end();
    let db = monolite::Database::open(directory.path().join("one.db")).unwrap();
    let texts = texts.as_object().unwrap().iter();
    let all = texts.fold(monolite::Migrations::new(), |all, (name, sql)| {
        all.with(name, sql.as_str().unwrap()).unwrap()
    });
    assert!(all.status(&db).unwrap().rebuilding.is_some_and(|it| it.rows > 0));
    assert_eq!(all.up(&db).wait().unwrap(), ["0002_n.sql"]);
    db.close().unwrap();
}

#[test]
fn pages_of_other_sites_are_refused() {
    let served = Served::many();
    let port = served.admin.rsplit_once(':').unwrap().1;
    for path in ["/", "/now", "/metrics", "/v1/namespaces"] {
        let url = format!("{}{path}", served.admin);
        assert_eq!(status_with(&url, "host", &format!("localhost:{port}")), 200, "{path}");
        assert_eq!(status_with(&url, "origin", &served.admin), 200, "{path}");
        let other_port = served.url.clone();
        for origin in ["http://evil.example", "null", "http://localhost", &other_port] {
            assert_eq!(status_with(&url, "origin", origin), 403, "{path} from {origin}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80"] {
            assert_eq!(status_with(&url, "host", host), 403, "{path} as {host}");
        }
    }
    let url = format!("{}/v1/namespaces/shop/create", served.admin);
    let created = agent().post(&url).header("origin", "http://evil.example").send_json(json!({}));
    assert_eq!(created.unwrap().status(), 403);
    assert_eq!(get(&format!("{}/v1/namespaces", served.admin)), json!([]));
}

#[test]
fn the_page_may_run_its_own_script_alone() {
    let served = Served::one();
    let answer = agent().get(&served.admin).call().unwrap();
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(!policy.contains("unsafe"), "{policy}");
    for part in ["default-src 'none'", "connect-src 'self'", "require-trusted-types-for 'script'"] {
        assert!(policy.contains(part), "{policy}");
    }
}

/// The status of a POST, which is answered at once.
fn status_at_once(served: &Served, path: &str) -> u16 {
    let within = Some(std::time::Duration::from_secs(10));
    let agent = Agent::config_builder().http_status_as_error(false).timeout_global(within);
    let answer = agent.build().new_agent().post(format!("{}{path}", served.admin)).send_empty();
    answer.unwrap().status().as_u16()
}

#[test]
fn a_name_that_is_taken_is_refused_while_it_is_in_use() {
    let served = Served::many();
    create(&served, "a");
    create(&served, "b");
    let begin = json!({ "requests": [{ "type": "execute", "stmt": { "sql": "BEGIN" } }] });
    assert_eq!(served.post("/db/b/v2/pipeline", &begin).0, 200);
    for path in ["b/create", "a/fork/b", "b/fork/b", "none/fork/none"] {
        assert_eq!(status_at_once(&served, &format!("/v1/namespaces/{path}")), 409, "{path}");
    }
    assert_eq!(run(&served, "b", "SELECT 1").0, 200);
}
