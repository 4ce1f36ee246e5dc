//! A server that follows another one's archive: it reads, also what a client has just written, and
//! says where to write.

use std::net::TcpListener;
use std::num::NonZeroU8;
use std::path::Path;
use std::time::{Duration, Instant};

use monolite::Options;
use monolite::archive::ArchiveToken;
use monolite_archive::{Archive, Target};
use monolite_server::{ArchiveConfig, FollowConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::admin::{agent, create, delete, get, run};
use crate::served::Served;
use crate::websocket::{Client, execute};

/// How long a test waits for what comes by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the primary says that it is.
const ADDRESS: &str = "https://primary.example.com";

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A primary of one database, with a table, whose archive is in the directory.
fn primary(archive: &Path) -> Served {
    primary_with(archive, |_| ())
}

/// One whose archive `set` has configured.
pub(crate) fn primary_with(archive: &Path, set: impl FnOnce(&mut ArchiveConfig)) -> Served {
    let served = Served::with(|directory, config| {
        config.file = Some(directory.join("one.db"));
        let text = format!("url = '{}'\naddress = '{ADDRESS}'", archive.display());
        let mut archive = toml::from_str(&text).unwrap();
        set(&mut archive);
        config.archive = Some(archive);
    });
    served.stream().execute("CREATE TABLE t(x)").unwrap();
    wait_until("it has a token", || token_of(&served, "UPDATE t SET x = x") != "unknown");
    served
}

fn replica(archive: &Path) -> Served {
    replica_of(archive, |directory| directory.join("copy.db"))
}

fn replica_of(archive: &Path, file: impl FnOnce(&Path) -> std::path::PathBuf) -> Served {
    let text = format!("url = '{}'\nlag_limit_seconds = 2", archive.display());
    Served::with(|directory, config| {
        config.file = Some(file(&directory));
        config.follow = Some(toml::from_str(&text).unwrap());
    })
}

/// A pipeline of one statement: its status, its token, and its one result.
pub(crate) fn ask(served: &Served, token: Option<&str>, sql: &str) -> (u16, Option<String>, Value) {
    let requests = json!([{ "type": "execute", "stmt": { "sql": sql } }]);
    let mut request = agent().post(format!("{}/v2/pipeline", served.url));
    if let Some(token) = token {
        request = request.header("monolite-token", token);
    }
    let mut answer = request.send_json(json!({ "requests": requests })).unwrap();
    let token = answer.headers().get("monolite-token").map(|it| it.to_str().unwrap().to_owned());
    let body: Value = answer.body_mut().read_json().unwrap();
    let result = if body["results"].is_array() { body["results"][0].clone() } else { body };
    (answer.status().as_u16(), token, result)
}

/// The token of a write at the primary.
pub(crate) fn token_of(primary: &Served, sql: &str) -> String {
    let (status, token, result) = ask(primary, None, sql);
    assert_eq!((status, &result["type"]), (200, &json!("ok")), "{result}");
    token.expect("it has an archive")
}

/// The one value of a query at the replica, once it has what `token` names.
fn value(replica: &Served, token: &str, sql: &str) -> Value {
    let (status, _, result) = ask(replica, Some(token), sql);
    assert_eq!((status, &result["type"]), (200, &json!("ok")), "{result}");
    result["response"]["result"]["rows"][0][0]["value"].clone()
}

/// The status and the body of a GET.
pub(crate) fn look(url: &str) -> (u16, Value) {
    let mut answer = agent().get(url).call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_json().unwrap())
}

#[test]
fn replica_reads_and_says_where_to_write() {
    let archive = tempfile::tempdir().unwrap();
    let primary = primary(archive.path());
    let token = token_of(&primary, "INSERT INTO t VALUES (1), (2)");
    let replica = replica(archive.path());
    assert_eq!(value(&replica, &token, "SELECT sum(x) FROM t"), "3");
    assert_eq!(value(&replica, &token, "WITH c(n) AS (SELECT 7) SELECT n FROM c"), "7");
    let is_refusal = |error: &Value| {
        let said = error["message"].as_str().unwrap();
        assert_eq!(error["code"], "NOT_PRIMARY", "{error}");
        assert!(said.contains(ADDRESS), "{said}");
    };
    let insert = "INSERT INTO t VALUES (3)";
    let mut client = replica.stream();
    for sql in [insert, "CREATE TABLE u(x)", "DELETE FROM t RETURNING x", "PRAGMA user_version = 1"]
    {
        is_refusal(&client.execute(sql).unwrap_err());
    }
    is_refusal(&client.one(json!({ "type": "sequence", "sql": insert })).unwrap_err());
    let done = client.batch(&[("SELECT 1", json!(null)), (insert, json!(null))]);
    assert!(done["step_errors"][0].is_null(), "{done}");
    is_refusal(&done["step_errors"][1]);
    let steps = ["BEGIN", insert, "COMMIT"].map(|sql| (sql, json!(null)));
    is_refusal(&client.batch(&steps)["step_errors"][1]);
    let batch = json!({ "batch": { "steps": [{ "stmt": { "sql": insert } }] } });
    is_refusal(&replica.lines("/v3/cursor", &batch)[1]["error"]);
    let (status, answer) = replica.post("/v1/execute", &json!({ "stmt": { "sql": insert } }));
    assert_eq!(status, 400, "{answer}");
    is_refusal(&answer);
    crate::websocket::run(async {
        let (mut client, _) = Client::connect(&replica, "hrana3").await;
        client.send(json!({ "type": "hello" })).await;
        client.receive().await;
        client.answer(1, json!({ "type": "open_stream", "stream_id": 1 })).await;
        let seen = client.answer(2, execute(1, "SELECT sum(x) FROM t")).await;
        assert_eq!(seen["response"]["result"]["rows"][0][0]["value"], "3", "{seen}");
        is_refusal(&client.answer(3, execute(1, insert)).await["error"]);
    });
    assert_eq!(value(&replica, &token, "SELECT count(*) FROM t"), "2");
    // It does not know of a key: what it has may be streamed, and lost later.
    let keyed = |served: &Served| {
        let requests = json!([{ "type": "execute", "stmt": { "sql": insert } }]);
        let request = agent().post(format!("{}/v2/pipeline", served.url));
        let request = request.header("idempotency-key", "k");
        let mut answer = request.send_json(json!({ "requests": requests })).unwrap();
        answer.body_mut().read_json::<Value>().unwrap()["results"][0].clone()
    };
    assert_eq!(keyed(&primary)["type"], "ok");
    let token = token_of(&primary, "INSERT INTO t VALUES (4)");
    assert_eq!(value(&replica, &token, "SELECT count(*) FROM t"), "4");
    is_refusal(&keyed(&replica)["error"]);
}

#[test]
fn transaction_of_a_replica_reads_one_snapshot() {
    let archive = tempfile::tempdir().unwrap();
    let primary = primary(archive.path());
    let token = token_of(&primary, "INSERT INTO t VALUES (1)");
    let replica = replica(archive.path());
    let count = "SELECT count(*) FROM t";
    assert_eq!(value(&replica, &token, count), "1");
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "BEGIN READONLY"] {
        let mut client = replica.stream();
        client.execute(begin).unwrap();
        let before = client.value(count);
        assert_eq!(client.value(count), before);
        let token = token_of(&primary, "INSERT INTO t VALUES (1)");
        let after = value(&replica, &token, count);
        assert_ne!(after, before, "others see it");
        // As elsewhere, after a rest: the same snapshot, or none.
        match client.execute(count) {
            Ok(seen) => assert_eq!(seen["rows"][0][0]["value"], before),
            Err(error) => assert_eq!(error["code"], "SQLITE_BUSY", "{error}"),
        }
        client.execute("ROLLBACK").unwrap();
        client.execute(begin).unwrap();
        assert_eq!(client.value(count), after);
        client.execute("COMMIT").unwrap();
    }
    let mut client = replica.stream();
    client.execute("BEGIN").unwrap();
    let error = client.execute("INSERT INTO t VALUES (1)").unwrap_err();
    assert_eq!(error["code"], "NOT_PRIMARY", "{error}");
    assert_eq!(client.value(count), "4", "the transaction goes on");
    client.execute("COMMIT").unwrap();
}

#[test]
fn clients_see_what_they_wrote_each_time() {
    const CLIENTS: u32 = 100;
    const WRITES: u32 = 10;
    let archive = tempfile::tempdir().unwrap();
    let primary = primary(archive.path());
    token_of(&primary, "CREATE TABLE c(id INTEGER PRIMARY KEY, n)");
    let replica = replica(archive.path());
    std::thread::scope(|scope| {
        let (primary, replica) = (&primary, &replica);
        for id in 0..CLIENTS {
            scope.spawn(move || {
                for n in 0..WRITES {
                    let sql = format!("REPLACE INTO c VALUES ({id}, {n})");
                    let began = Instant::now();
                    let token = token_of(primary, &sql);
                    let took = began.elapsed();
                    assert!(took < Duration::from_secs(10), "an upload was waited for: {took:?}");
                    let sql = format!("SELECT n FROM c WHERE id = {id}");
                    assert_eq!(value(replica, &token, &sql), n.to_string());
                }
            });
        }
    });
    // Without a token what is read may be older; a read has none.
    assert_eq!(ask(&primary, None, "SELECT 1").1, None);
    assert_eq!(ask(&replica, None, "SELECT 1").1, None);
}

#[test]
fn token_that_cannot_come_is_an_error_of_its_own() {
    let archive = tempfile::tempdir().unwrap();
    let url = archive.path().to_str().unwrap();
    let primary = primary(archive.path());
    let token = token_of(&primary, "INSERT INTO t VALUES (1)");
    let replica = replica(archive.path());
    let known: ArchiveToken = token.parse().unwrap();
    let refused = |token: &str| {
        let (status, _, error) = ask(&replica, Some(token), "SELECT 1");
        (status, error["code"].as_str().unwrap_or_default().to_owned())
    };
    let began = Instant::now();
    let stranger = ArchiveToken { lineage: 7, ..known }.to_string();
    let later = ArchiveToken { epoch: 99, ..known }.to_string();
    for wrong in ["7", "unknown", &stranger, &later] {
        assert_eq!(refused(wrong), (400, "TOKEN_INVALID".into()), "{wrong}");
        let at_primary = ask(&primary, Some(wrong), "SELECT 1").0;
        assert_eq!(at_primary, if wrong == later { 503 } else { 200 }, "it has all of its own");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "none is waited for");
    // A write that was not archived when its primary was lost.
    drop(primary);
    let lost = ArchiveToken { txid: known.txid + 100, ..known };
    let restored = archive.path().join("restored.db");
    let of_next = Archive::at(url).unwrap();
    of_next.restore(Target::Latest, &restored).unwrap();
    let next = Options::new().archive(of_next.take_over(true)).open(&restored).unwrap();
    assert_eq!(refused(&lost.to_string()), (410, "TOKEN_LOST".into()));
    assert_eq!(value(&replica, &token, "SELECT count(*) FROM t"), "1", "that was archived");
    next.close().unwrap();
}

#[test]
fn a_cursor_that_writes_and_a_websocket_promise_no_token() {
    let archive = tempfile::tempdir().unwrap();
    let primary = primary(archive.path());
    let token = |steps: &[&str]| {
        let steps: Vec<Value> = steps.iter().map(|sql| json!({ "stmt": { "sql": sql } })).collect();
        let body = json!({ "batch": { "steps": steps } });
        let answer = agent().post(format!("{}/v3/cursor", primary.url)).send_json(body).unwrap();
        answer.headers().get("monolite-token").map(|it| it.to_str().unwrap().to_owned())
    };
    assert_eq!(token(&["BEGIN", "SELECT 1", "COMMIT"]), None);
    assert_eq!(token(&["INSERT INTO t VALUES (1)"]).as_deref(), Some("unknown"));
    let asked = agent()
        .get(&primary.url)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("monolite-token", "unknown");
    assert_eq!(asked.call().unwrap().status(), 400);
}

#[test]
fn replica_serves_what_it_has_while_the_store_is_away() {
    let archive = tempfile::tempdir().unwrap();
    let (place, away) = (archive.path().join("store"), archive.path().join("away"));
    let primary = primary(&place);
    let token = token_of(&primary, "INSERT INTO t VALUES (1)");
    let replica = replica(&place);
    let count = "SELECT count(*) FROM t";
    assert_eq!(value(&replica, &token, count), "1");
    wait_until("it is healthy", || look(&format!("{}/health", replica.url)).0 == 200);
    let (_, health) = look(&format!("{}/health", replica.url));
    assert_eq!((&health["role"], &health["open"]), (&json!("replica"), &json!(1)), "{health}");
    std::fs::rename(&place, &away).unwrap();
    std::fs::write(&place, "no directory").unwrap();
    let is_bad = |url: &str| look(&format!("{url}/health")).0 == 503;
    wait_until("it is behind", || is_bad(&replica.url) && is_bad(&replica.admin));
    let (_, health) = look(&format!("{}/health", replica.admin));
    assert_eq!(health[0]["alarms"], json!(["ReplicaBehind", "ReplicaFailing"]), "{health}");
    // It is started again meanwhile, with nothing there.
    std::fs::remove_file(&place).unwrap();
    let directory = replica.end();
    let again = |_: &Path| directory.path().join("copy.db");
    let replica = replica_of(&place, again);
    assert_eq!(replica.stream().value(count), "1");
    assert!(is_bad(&replica.url));
    std::fs::rename(&away, &place).unwrap();
    let token = token_of(&primary, "INSERT INTO t VALUES (2)");
    assert_eq!(value(&replica, &token, count), "2");
    wait_until("it is healthy again", || !is_bad(&replica.url) && !is_bad(&replica.admin));
}

#[test]
fn role_and_lag_are_told() {
    let archive = tempfile::tempdir().unwrap();
    let primary = primary(archive.path());
    let token = token_of(&primary, "INSERT INTO t VALUES (1)");
    let replica = replica(archive.path());
    assert_eq!(value(&replica, &token, "SELECT count(*) FROM t"), "1");
    assert_eq!(look(&format!("{}/primary", primary.url)), (200, json!({ "role": "primary" })));
    wait_until("it knows its primary", || {
        look(&format!("{}/primary", replica.url)).1["primary"].is_string()
    });
    assert_eq!(look(&format!("{}/primary", replica.url)).0, 503);
    let now = get(&format!("{}/now", replica.admin));
    let shown = &now["databases"][0]["replica"];
    assert!(shown["txid"].as_u64() > Some(0) && shown["epoch"] == 1, "{now}");
    assert!(shown["primary"].is_string() && shown["lag_bytes"].is_u64(), "{now}");
    let metrics = |served: &Served| {
        let answer = agent().get(format!("{}/metrics", served.admin)).call().unwrap();
        answer.into_body().read_to_string().unwrap()
    };
    let text = metrics(&replica);
    for part in [
        "monolite_server_is_primary 0\n",
        "monolite_replica_epoch{database=\"default\"} 1\n",
        "monolite_replica_lag_txids{database=\"default\"} ",
        "monolite_replica_age_seconds{database=\"default\"} ",
        "# TYPE monolite_replica_applied_files_total counter\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let text = metrics(&primary);
    assert!(text.contains("monolite_server_is_primary 1\n") && !text.contains("monolite_replica"));
}

#[test]
fn replica_that_streams_has_writes_before_they_are_archived() {
    let (archive, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&secret, "a secret of tests\n").unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    // By the archive it has what is waited for, and otherwise lags by 10 seconds.
    let interval = Duration::from_secs(10);
    let url = archive.path().to_str().unwrap();
    let primary = Archive::at(url).unwrap().interval(interval);
    let primary = primary.stream_to(&address, b"a secret of tests");
    let db = Options::new().archive(primary).open(directory.path().join("one.db")).unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(x)")).wait().unwrap();
    db.read_archived(|_| Ok(())).wait().unwrap();
    let replica = Served::with(|directory, config| {
        let text = format!("url = '{url}'\nstream_secret_file = '{}'", secret.path().display());
        config.file = Some(directory.join("copy.db"));
        config.follow = Some(toml::from_str(&text).unwrap());
    });
    let metric = |name: &str| {
        let answer = agent().get(format!("{}/metrics", replica.admin)).call().unwrap();
        let text = answer.into_body().read_to_string().unwrap();
        let name = format!("monolite_replica_{name}{{database=\"default\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok())
    };
    let sees = |count: u32| {
        let (status, _, result) = ask(&replica, None, "SELECT count(*) FROM t");
        assert_eq!(status, 200, "{result}");
        result["response"]["result"]["rows"][0][0]["value"] == *count.to_string()
    };
    sees(0);
    wait_until("it streams", || metric("is_streaming") == Some(1));
    let since = Instant::now();
    for count in 1..=20 {
        db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).wait().unwrap();
        wait_until("it has it", || sees(count));
    }
    let took = since.elapsed();
    assert!(took < interval, "20 writes one after the other: {took:?}");
    // Counted once it can be seen.
    wait_until("each came as a part", || metric("streamed_parts_total") >= Some(20));
    drop(replica);
    db.close().unwrap();
}

#[test]
fn server_streams_to_a_server_and_waits_for_it() {
    let archive = tempfile::tempdir().unwrap();
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&secret, "a secret of tests\n").unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let primary = primary_with(archive.path(), |archive| {
        archive.stream_listen = Some(address.clone());
        archive.stream_secret_file = Some(secret.path().into());
        archive.replicated_writes = NonZeroU8::new(1);
    });
    let replica = Served::with(|directory, config| {
        let mut follow = FollowConfig::of(archive.path().to_str().unwrap());
        follow.stream_secret_file = Some(secret.path().into());
        config.file = Some(directory.join("copy.db"));
        config.follow = Some(follow);
    });
    assert_eq!(
        value(&replica, &token_of(&primary, "DELETE FROM t"), "SELECT count(*) FROM t"),
        "0"
    );
    wait_until("it streams", || {
        get(&format!("{}/now", replica.admin))["databases"][0]["replica"]["is_streaming"] == true
    });
    let token = token_of(&primary, "INSERT INTO t VALUES (7)");
    assert_eq!(value(&replica, &token, "SELECT sum(x) FROM t"), "7");
    // It is listed for writes alone that wait.
    wait_until("it is listed", || {
        get(&format!("{}/now", primary.admin))["databases"][0]["stats"]["archive"]["replicas"] == 1
    });
    // Another one, which does not stream, says that it may not take over.
    let other = self::replica(archive.path());
    assert_eq!(ask(&other, None, "SELECT 1").0, 200);
    let health = |of: &Served| look(&format!("{}/health", of.admin)).1[0].clone();
    wait_until("it says so", || health(&other)["alarms"] == json!(["ReplicaBarred"]));
    let listed = health(&replica);
    assert_eq!((&listed["alarms"], &listed["replica"]["barred"]), (&json!([]), &json!(null)));
    assert_eq!(listed["replica"]["replica"].as_str().map(str::len), Some(32), "its name");
}

#[test]
fn each_database_below_the_address_has_its_replica() {
    let archives = TempDir::new().unwrap();
    let url = format!("url = '{}'", archives.path().display());
    let primary = Served::with(|directory, config| {
        config.directory = Some(directory);
        config.archive = Some(toml::from_str(&url).unwrap());
    });
    let replica = Served::with(|directory, config| {
        config.directory = Some(directory);
        config.follow = Some(toml::from_str(&url).unwrap());
    });
    assert_eq!(run(&replica, "one", "SELECT 1").0, 404);
    for name in ["one", "two"] {
        assert_eq!(create(&primary, name), 200);
        assert_eq!(run(&primary, name, &format!("CREATE TABLE of_{name}(x)")).0, 200);
    }
    for name in ["one", "two"] {
        wait_until("it is followed", || {
            let (status, answer) = run(&replica, name, &format!("SELECT * FROM of_{name}"));
            status == 200 && answer["results"][0]["type"] == "ok"
        });
    }
    assert_eq!(run(&replica, "three", "SELECT 1").0, 404);
    assert_eq!([create(&replica, "three"), delete(&replica, "one")], [409, 409]);
    let listed = get(&format!("{}/v1/namespaces", replica.admin));
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    let fork = agent().post(format!("{}/v1/namespaces/one/fork/x", replica.admin)).send_empty();
    assert_eq!(fork.unwrap().status(), 409);
    // What would be written to it would be lost when it follows again.
    let directory = replica.end();
    let other = Served::with(|_, config| config.directory = Some(directory.path().to_owned()));
    let (status, answer) = run(&other, "one", "CREATE TABLE u(x)");
    assert_eq!((status, &answer["code"]), (500, &json!("DATABASE_NOT_OPENED")));
}
