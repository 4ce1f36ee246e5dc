//! Databases with archives: what is served comes back, now and of a time, and what is behind shows.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use monolite::Database;
use monolite_archive::{Archive, Target, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::admin::{agent, create, delete, get, run};
use crate::served::Served;

/// How long a test waits for what comes by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// One for many databases, with archives in a directory beside, which must be dropped after it.
fn archived() -> (TempDir, Served) {
    archived_with("")
}

fn archived_with(options: &str) -> (TempDir, Served) {
    let archives = tempfile::tempdir().unwrap();
    let text = format!("url = 'file://{}'\n{options}", archives.path().display());
    let served = Served::with(|directory, config| {
        config.directory = Some(directory);
        config.archive = Some(toml::from_str(&text).unwrap());
    });
    (archives, served)
}

/// The status and the body of a request to the operator's address.
fn ask(served: &Served, path: &str) -> (u16, Value) {
    let mut answer = agent().get(format!("{}{path}", served.admin)).call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_json().unwrap())
}

fn fork(served: &Served, from: &str, to: &str, timestamp: Option<&str>) -> (u16, Value) {
    let url = format!("{}/v1/namespaces/{from}/fork/{to}", served.admin);
    let mut answer = match timestamp {
        Some(timestamp) => agent().post(&url).send_json(json!({ "timestamp": timestamp })).unwrap(),
        None => agent().post(&url).send_empty().unwrap(),
    };
    (answer.status().as_u16(), answer.body_mut().read_json().unwrap())
}

fn execute(served: &Served, database: &str, sql: &str) {
    let (status, answer) = run(served, database, sql);
    assert_eq!((status, &answer["results"][0]["type"]), (200, &json!("ok")), "{sql}: {answer}");
}

/// The one value of a query.
fn value(served: &Served, database: &str, sql: &str) -> Value {
    let (_, answer) = run(served, database, sql);
    answer["results"][0]["response"]["result"]["rows"][0][0]["value"].clone()
}

fn numbers(path: &Path) -> Vec<i64> {
    let db = Database::open(path).unwrap();
    let rows = db.read_stream("SELECT x FROM t ORDER BY x", (), |row| row.get(0));
    rows.wait().collect::<Result<_, _>>().unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until everything committed is archived; a time after that and before all that follows.
fn moment_behind(served: &Served) -> String {
    let is_archived = || {
        let (_, health) = ask(served, "/health");
        let archive = &health[0]["archive"];
        archive["lag_ms"] == 0 && archive["is_restorable"] == true
    };
    wait_until("it is archived", is_archived);
    let then = now_millis() + 2;
    wait_until("a clock goes on", || now_millis() > then);
    Timestamp::from_millis(then).to_string()
}

fn now_millis() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_millis()).unwrap()
}

#[test]
fn what_was_served_is_in_the_archive_of_its_database() {
    let (archives, served) = archived();
    for (name, x) in [("one", 1), ("two", 2)] {
        assert_eq!(create(&served, name), 200);
        execute(&served, name, "CREATE TABLE t(x)");
        execute(&served, name, &format!("INSERT INTO t VALUES ({x})"));
    }
    let (status, health) = ask(&served, "/health");
    assert_eq!((status, &health[1]["database"]), (200, &json!("two")), "{health}");
    let now = get(&format!("{}/now", served.admin));
    assert!(now["databases"][0]["stats"]["archive"]["lag_ms"].is_u64(), "the dashboard's: {now}");
    let metrics = agent().get(format!("{}/metrics", served.admin)).call().unwrap();
    let metrics = metrics.into_body().read_to_string().unwrap();
    assert!(metrics.contains("monolite_archive_lag_seconds{database=\"one\"}"), "{metrics}");
    drop(served);
    for (name, x) in [("one", 1), ("two", 2)] {
        let archive = Archive::at(archives.path().join(name).to_str().unwrap()).unwrap();
        let restored = archives.path().join("restored.db");
        archive.restore(Target::Latest, &restored).unwrap();
        assert_eq!(numbers(&restored), [x]);
        std::fs::remove_file(restored).unwrap();
    }
}

#[test]
fn a_fork_has_what_was_acknowledged_while_writes_go_on() {
    let (_archives, archived) = archived();
    for served in [Served::many(), archived] {
        assert_eq!(create(&served, "live"), 200);
        execute(&served, "live", "CREATE TABLE t(x)");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writes = || {
                for x in 0.. {
                    execute(&served, "live", &format!("INSERT INTO t VALUES ({x}), ({x})"));
                    if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            };
            scope.spawn(writes);
            let count = |name| value(&served, name, "SELECT count(*) FROM t");
            let count = |name| count(name).as_str().unwrap().parse::<u64>().unwrap();
            wait_until("rows are there", || count("live") > 20);
            let before = count("live");
            let (status, answer) = fork(&served, "live", "copy", None);
            let after = count("live");
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(status, 200, "{answer}");
            let forked = count("copy");
            assert!((before..=after).contains(&forked) && forked % 2 == 0, "{forked}");
            execute(&served, "copy", "INSERT INTO t VALUES (-1)");
        });
        assert_eq!(value(&served, "live", "SELECT min(x) FROM t"), "0", "they are two");
        assert_eq!(fork(&served, "live", "copy", None).0, 409, "the name is taken");
        assert_eq!(fork(&served, "none", "other", None).0, 404);
    }
}

#[test]
fn a_fork_of_a_time_has_what_was_there_then() {
    let (_archives, served) = archived();
    assert_eq!(create(&served, "shop"), 200);
    execute(&served, "shop", "CREATE TABLE t(x)");
    execute(&served, "shop", "INSERT INTO t VALUES (1)");
    let then = moment_behind(&served);
    execute(&served, "shop", "DELETE FROM t");
    // What was committed just now is archived first.
    let (status, answer) = fork(&served, "shop", "latest", Some("2999-01-01T00:00:00Z"));
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = fork(&served, "shop", "undone", Some(&then));
    assert_eq!((status, &answer["is_exact"]), (200, &json!(true)), "{answer}");
    assert!(answer["time"].as_str() < Some(&then), "{answer}");
    // As sqld is asked.
    assert_eq!(fork(&served, "shop", "again", Some(then.trim_end_matches('Z'))).0, 200);
    let count = |name| value(&served, name, "SELECT count(*) FROM t");
    assert_eq!(["shop", "undone", "again", "latest"].map(count), ["0", "1", "1", "0"]);
    let (status, answer) = fork(&served, "shop", "early", Some("1999-01-01T00:00:00Z"));
    assert_eq!(status, 404, "{answer}");
    let (status, answer) = fork(&served, "shop", "wrong", Some("yesterday"));
    assert!(status == 400 && answer["message"].as_str().unwrap().contains("yesterday"), "{answer}");
    assert_eq!(run(&served, "early", "SELECT 1").0, 404, "no database is left");
}

#[test]
fn what_is_left_of_a_fork_is_no_database() {
    let (_archives, served) = archived();
    assert_eq!(create(&served, "shop"), 200);
    execute(&served, "shop", "CREATE TABLE t(x)");
    let part = served.directory.path().join("copy.db.monolite-part");
    std::fs::write(part, "half").unwrap();
    assert_eq!(run(&served, "copy", "SELECT 1").0, 404);
    let listed = get(&format!("{}/v1/namespaces", served.admin));
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(fork(&served, "shop", "copy", None).0, 200);
    assert_eq!(value(&served, "copy", "SELECT count(*) FROM t"), "0");
}

#[test]
fn the_archive_of_a_deleted_database_stays_and_is_not_taken_by_another() {
    let (archives, served) = archived();
    assert_eq!(create(&served, "shop"), 200);
    execute(&served, "shop", "CREATE TABLE t(x)");
    execute(&served, "shop", "INSERT INTO t VALUES (7)");
    assert_eq!(delete(&served, "shop"), 200);
    assert_eq!(served.directory.path().read_dir().unwrap().count(), 0, "no file is left");
    let url = format!("{}/v1/namespaces/shop/create", served.admin);
    let mut refused = agent().post(&url).send_json(json!({})).unwrap();
    let message = refused.body_mut().read_to_string().unwrap();
    let place = archives.path().join("shop");
    assert_eq!(refused.status(), 409);
    assert!(message.contains(place.to_str().unwrap()) && message.contains("move"), "{message}");
    assert_eq!(served.directory.path().read_dir().unwrap().count(), 0, "nothing was begun");
    assert_eq!(fork(&served, "shop", "back", None).0, 200);
    assert_eq!(value(&served, "back", "SELECT x FROM t"), "7");
    assert_eq!(fork(&served, "back", "shop", None).0, 409, "a fork takes it neither");
    std::fs::rename(&place, archives.path().join("old-shop")).unwrap();
    assert_eq!(create(&served, "shop"), 200);
    execute(&served, "shop", "CREATE TABLE t(x)");
}

/// One for the file `one.db` of `data`, with an archive in `archives`.
fn of_file(data: &TempDir, archives: &TempDir) -> Served {
    let text = format!("url = '{}'", archives.path().join("one").display());
    Served::with(|_, config| {
        config.file = Some(data.path().join("one.db"));
        config.archive = Some(toml::from_str(&text).unwrap());
    })
}

#[test]
fn a_lost_file_is_not_taken_for_a_new_database() {
    let [data, archives] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let served = of_file(&data, &archives);
    served.stream().execute("CREATE TABLE t(x)").unwrap();
    drop(served);
    let file = data.path().join("one.db");
    std::fs::rename(&file, data.path().join("away.db")).unwrap();
    let served = of_file(&data, &archives);
    let body = json!({ "requests": [{ "type": "execute", "stmt": { "sql": "SELECT 1" } }] });
    assert_eq!(served.post("/v2/pipeline", &body).0, 500);
    assert!(!file.exists(), "nothing is in the way of a restore");
}

#[test]
fn what_a_stop_has_left_is_archived_after_the_next_start_by_itself() {
    let [data, archives] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let served = of_file(&data, &archives);
    served.stream().execute("CREATE TABLE t(x)").unwrap();
    moment_behind(&served);
    let away = Away::begin(&archives.path().join("one"));
    served.stream().execute("INSERT INTO t VALUES (5)").unwrap();
    drop(served);
    away.end();
    let served = of_file(&data, &archives);
    moment_behind(&served);
    let archive = Archive::at(archives.path().join("one").to_str().unwrap()).unwrap();
    let restored = data.path().join("restored.db");
    archive.restore(Target::Latest, &restored).unwrap();
    assert_eq!(numbers(&restored), [5]);
}

/// A store that is away: a file is in its place.
struct Away(PathBuf);

impl Away {
    fn begin(place: &Path) -> Away {
        std::fs::rename(place, place.with_extension("away")).unwrap();
        std::fs::write(place, "no directory").unwrap();
        Away(place.to_owned())
    }

    fn end(self) {
        std::fs::remove_file(&self.0).unwrap();
        std::fs::rename(self.0.with_extension("away"), self.0).unwrap();
    }
}

#[test]
fn a_store_that_is_away_shows_in_the_health() {
    let (archives, served) = archived_with("lag_limit_seconds = 1");
    assert_eq!(create(&served, "shop"), 200);
    execute(&served, "shop", "CREATE TABLE t(x)");
    moment_behind(&served);
    let away = Away::begin(&archives.path().join("shop"));
    execute(&served, "shop", "INSERT INTO t VALUES (1)");
    wait_until("it is behind", || ask(&served, "/health").0 == 503);
    let health = ask(&served, "/health").1[0].clone();
    assert!(health["archive"]["lag_ms"].as_u64() > Some(1_000), "{health}");
    assert!(health["alarms"].as_array().unwrap().contains(&json!("ArchiveBehind")), "{health}");
    assert!(health["archive"]["last_error"].is_string(), "{health}");
    let (_, refused) = run(&served, "shop", "INSERT INTO t VALUES (2)");
    assert_eq!(refused["results"][0]["error"]["code"], "SQLITE_BUSY", "{refused}");
    assert_eq!(create(&served, "other"), 200, "another database is archived");
    away.end();
    wait_until("it is archived", || ask(&served, "/health").0 == 200);
}
