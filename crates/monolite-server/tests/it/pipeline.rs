//! Streams over `/v2/pipeline`.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::admin::get;
use crate::served::{Client, Served};

fn with_table() -> Served {
    let served = Served::one();
    let create = "CREATE TABLE t(id INTEGER PRIMARY KEY, x UNIQUE)";
    served.stream().execute(create).unwrap();
    served
}

/// As `@libsql/client` sends a transaction: each step if the one before was done, and a rollback if
/// the commit was not.
fn transactional(steps: &[&str]) -> Vec<(String, Value)> {
    let ok = |step: usize| json!({ "type": "ok", "step": step });
    let mut all = vec![("BEGIN IMMEDIATE".to_owned(), Value::Null)];
    for sql in steps.iter().copied().chain(["COMMIT"]) {
        all.push((sql.to_owned(), ok(all.len() - 1)));
    }
    let is_open = json!({ "type": "not", "cond": ok(all.len() - 1) });
    all.push(("ROLLBACK".to_owned(), is_open));
    all
}

fn batch(client: &mut Client<'_>, steps: &[(String, Value)]) -> Value {
    let steps: Vec<_> = steps.iter().map(|(sql, condition)| (&**sql, condition.clone())).collect();
    client.batch(&steps)
}

#[test]
fn a_result_has_what_clients_read() {
    let served = with_table();
    let mut client = served.stream();
    let inserted = client.execute("INSERT INTO t(x) VALUES ('a'), (x'00ff')").unwrap();
    assert_eq!(inserted["affected_row_count"], 2);
    assert_eq!(inserted["last_insert_rowid"], "2");
    let read = client.execute("SELECT id, x, 1.5 AS r, NULL FROM t ORDER BY id").unwrap();
    assert_eq!(read["cols"][0], json!({ "name": "id", "decltype": "INTEGER" }));
    assert_eq!(read["cols"][2], json!({ "name": "r", "decltype": null }));
    let first = json!([
        { "type": "integer", "value": "1" }, { "type": "text", "value": "a" },
        { "type": "float", "value": 1.5 }, { "type": "null" },
    ]);
    assert_eq!(read["rows"][0], first);
    assert_eq!(read["rows"][1][1], json!({ "type": "blob", "base64": "AP8" }));
    assert_eq!(
        (&read["affected_row_count"], &read["last_insert_rowid"]),
        (&json!(0), &json!(null))
    );
}

#[test]
fn a_second_statement_is_refused_in_the_words_that_clients_look_for() {
    let served = with_table();
    let error = served.stream().execute("SELECT 1; SELECT 2").unwrap_err();
    assert_eq!(error["code"], "SQL_MANY_STATEMENTS");
    assert!(error["message"].as_str().unwrap().contains("more than one statement"), "{error}");
}

#[test]
fn values_that_do_not_fit_the_statement_have_a_code_of_their_own() {
    let served = with_table();
    let one = json!({ "type": "integer", "value": "1" });
    for stmt in [
        json!({ "sql": "SELECT ?, ?", "args": [one] }),
        json!({ "sql": "SELECT ?" }),
        json!({ "sql": "SELECT :a, ?", "named_args": [{ "name": "a", "value": one }] }),
    ] {
        let error = served.stream().one(json!({ "type": "execute", "stmt": stmt })).unwrap_err();
        assert_eq!(error["code"], "ARGS_INVALID", "{stmt}: {error}");
    }
}

#[test]
fn a_stream_without_state_goes_on_with_any_server() {
    let (first, second) = (with_table(), with_table());
    let mut client = first.stream();
    client.execute("BEGIN").unwrap();
    client.execute("COMMIT").unwrap();
    let baton = client.baton.clone().expect("Go takes the lack of one for a dead connection");
    // Good more than once, since a new stream comes of it each time.
    for server in [&first, &first, &second] {
        let mut client = server.stream();
        client.baton = Some(baton.clone());
        client.execute("BEGIN").unwrap();
        assert_ne!(client.baton.as_ref(), Some(&baton), "a transaction has state");
        client.execute("COMMIT").unwrap();
    }
    client.one(json!({ "type": "close" })).unwrap();
    assert_eq!(client.baton, None, "it is closed");
}

#[test]
fn a_stream_outlives_a_cursor_that_the_client_leaves() {
    let served = with_table();
    let mut client = served.stream();
    client.one(json!({ "type": "store_sql", "sql_id": 7, "sql": "SELECT 'kept'" })).unwrap();
    // More than the buffers between server and client hold.
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
                SELECT hex(zeroblob(4000)) FROM n";
    let step = json!({ "stmt": { "sql": many, "want_rows": true } });
    let body = json!({ "baton": client.baton, "batch": { "steps": [step] } });
    let head = served.first_line("/v3/cursor", &body);
    client.baton = head["baton"].as_str().map(str::to_owned);
    let stored = json!({ "type": "execute", "stmt": { "sql_id": 7 } });
    for _ in 0..2 {
        let told = client.one(stored.clone()).unwrap();
        assert_eq!(told["result"]["rows"][0][0]["value"], "kept");
    }
}

#[test]
fn a_cursor_sends_the_rows_of_a_query_and_of_a_write() {
    let served = with_table();
    let steps =
        ["SELECT 7 AS n", "INSERT INTO t(x) VALUES (1), (2) RETURNING id", "SELECT 1 WHERE 0"];
    let steps: Vec<Value> =
        steps.iter().map(|sql| json!({ "stmt": { "sql": sql, "want_rows": true } })).collect();
    let lines = served.lines("/v3/cursor", &json!({ "batch": { "steps": steps } }));
    assert!(lines[0]["baton"].is_string());
    let kinds: Vec<&str> = lines[1..].iter().map(|line| line["type"].as_str().unwrap()).collect();
    let query = ["step_begin", "row", "step_end"];
    let write = ["step_begin", "row", "row", "step_end"];
    let empty = ["step_begin", "step_end", "replication_index"];
    assert_eq!(kinds, [&query[..], &write, &empty].concat());
    assert_eq!(lines[2]["row"], json!([{ "type": "integer", "value": "7" }]));
}

#[test]
fn arguments_are_bound_by_place_and_by_name() {
    let served = with_table();
    let mut client = served.stream();
    let integer = |n: i64| json!({ "type": "integer", "value": n.to_string() });
    for args in [
        json!({ "sql": "SELECT ?1 + ?2", "args": [integer(40), integer(2)] }),
        json!({ "sql": "SELECT :a + $b", "named_args": [
            { "name": "a", "value": integer(40) }, { "name": "$b", "value": integer(2) },
        ] }),
    ] {
        let response = client.one(json!({ "type": "execute", "stmt": args })).unwrap();
        assert_eq!(response["result"]["rows"][0][0]["value"], "42");
    }
    let missing = json!({ "sql": "SELECT ?1, ?2", "args": [integer(1)] });
    assert!(client.one(json!({ "type": "execute", "stmt": missing })).is_err());
}

#[test]
fn a_transaction_spans_requests_and_holds_nothing_up() {
    let served = with_table();
    let (mut client, mut other) = (served.stream(), served.stream());
    client.execute("BEGIN").unwrap();
    client.execute("INSERT INTO t(x) VALUES ('mine')").unwrap();
    assert_eq!(client.value("SELECT x FROM t WHERE x = 'mine'"), "mine");
    other.execute("INSERT INTO t(x) VALUES ('theirs')").unwrap();
    assert_eq!(other.value("SELECT count(*) FROM t"), "1", "the other is not committed");
    let open = client.one(json!({ "type": "get_autocommit" })).unwrap();
    assert_eq!(open["is_autocommit"], false);
    client.execute("COMMIT").unwrap();
    assert_eq!(client.baton.as_deref(), Some("none"));
    assert_eq!(client.value("SELECT count(*) FROM t"), "2");
    client.execute("BEGIN").unwrap();
    client.execute("DELETE FROM t").unwrap();
    client.execute("ROLLBACK").unwrap();
    assert_eq!(client.value("SELECT count(*) FROM t"), "2");
    assert!(client.execute("COMMIT").unwrap_err()["message"].as_str().unwrap().contains("no tra"));
}

#[test]
fn what_follows_a_dead_transaction_never_runs_in_autocommit() {
    let served = with_table();
    let (mut client, mut other) = (served.stream(), served.stream());
    other.execute("INSERT INTO t VALUES (1, 'a')").unwrap();
    client.execute("BEGIN").unwrap();
    assert_eq!(client.value("SELECT x FROM t WHERE id = 1"), "a");
    client.execute("UPDATE t SET x = 'b' WHERE id = 1").unwrap();
    other.execute("UPDATE t SET x = 'c' WHERE id = 1").unwrap();
    let conflict = client.execute("COMMIT").unwrap_err();
    assert_eq!(conflict["code"], "SQLITE_BUSY");
    assert!(conflict["message"].as_str().unwrap().starts_with("database is locked"));

    // The same in the middle: this transaction is ended by its own statement.
    client.execute("BEGIN").unwrap();
    let ends = client.execute("INSERT OR ROLLBACK INTO t VALUES (1, 'd')").unwrap_err();
    assert_eq!(ends["code"], "SQLITE_CONSTRAINT", "{ends}");
    assert!(client.execute("INSERT INTO t VALUES (2, 'e')").is_err(), "it was for the transaction");
    let open = client.one(json!({ "type": "get_autocommit" })).unwrap();
    assert_eq!(open["is_autocommit"], false);
    client.execute("ROLLBACK").unwrap();
    assert_eq!(other.value("SELECT group_concat(x) FROM t"), "c");
}

#[test]
fn a_baton_is_good_once_and_the_stream_lives_on() {
    let served = with_table();
    let mut client = served.stream();
    client.execute("BEGIN").unwrap();
    let first = client.baton.clone();
    client.execute("INSERT INTO t(x) VALUES (1)").unwrap();
    let again = json!({ "baton": first, "requests": [{ "type": "get_autocommit" }] });
    let (status, error) = served.post("/v2/pipeline", &again);
    assert_eq!((status, error["code"].as_str()), (400, Some("BATON_REUSED")));
    client.execute("COMMIT").unwrap();
    assert_eq!(client.value("SELECT count(*) FROM t"), "1");
    for baton in ["", "AAAA", "!", &"A".repeat(75)] {
        let forged = json!({ "baton": baton, "requests": [] });
        let (status, error) = served.post("/v2/pipeline", &forged);
        assert_eq!((status, error["code"].as_str()), (404, Some("STREAM_EXPIRED")), "{baton}");
    }
}

#[test]
fn a_batch_is_one_transaction_or_none() {
    let served = with_table();
    let mut client = served.stream();
    let steps = transactional(&["INSERT INTO t(x) VALUES (1)", "SELECT count(*) FROM t"]);
    let done = batch(&mut client, &steps);
    assert_eq!(done["step_results"][2]["rows"][0][0]["value"], "1");
    assert!(done["step_results"][3].is_object() && done["step_results"][4].is_null());
    let steps = transactional(&[
        "INSERT INTO t(x) VALUES (2)",
        "INSERT INTO t(x) VALUES (1)",
        "INSERT INTO t(x) VALUES (3)",
    ]);
    let failed = batch(&mut client, &steps);
    assert_eq!(failed["step_errors"][2]["code"], "SQLITE_CONSTRAINT");
    assert!(failed["step_results"][3].is_null() && failed["step_errors"][3].is_null());
    assert!(failed["step_results"][4].is_null(), "it was not committed");
    assert!(failed["step_results"][5].is_object(), "it was rolled back");
    assert_eq!(client.baton.as_deref(), Some("none"));
    assert_eq!(client.value("SELECT count(*) FROM t"), "1");
}

#[test]
fn without_begin_each_step_of_a_batch_is_for_itself() {
    let served = with_table();
    let mut client = served.stream();
    let insert = |x: &str| (format!("INSERT INTO t(x) VALUES ({x})"), Value::Null);
    let done = batch(&mut client, &[insert("1"), insert("1"), insert("2")]);
    assert_eq!(done["step_errors"][1]["code"], "SQLITE_CONSTRAINT");
    assert!(done["step_results"][2].is_object());
    assert_eq!(client.value("SELECT count(*) FROM t"), "2");
    // As one transaction, the second would have spoilt them all.
    let deferred = "CREATE TABLE c(p REFERENCES t DEFERRABLE INITIALLY DEFERRED)";
    client.execute(deferred).unwrap();
    let steps = [insert("3"), ("INSERT INTO c VALUES (99)".into(), Value::Null), insert("4")];
    let done = batch(&mut client, &steps);
    assert_eq!(done["step_errors"][1]["code"], "SQLITE_CONSTRAINT", "{done}");
    assert_eq!(client.value("SELECT count(*) FROM t"), "4");
    assert_eq!(client.value("SELECT count(*) FROM c"), "0");
}

#[test]
fn a_batch_that_leaves_its_transaction_open_goes_on() {
    let served = with_table();
    let mut client = served.stream();
    let none = Value::Null;
    let done = batch(
        &mut client,
        &[("BEGIN".into(), none.clone()), ("INSERT INTO t(x) VALUES (1)".into(), none)],
    );
    assert!(done["step_results"][1].is_object());
    assert!(client.baton.is_some());
    assert_eq!(served.stream().value("SELECT count(*) FROM t"), "0");
    client.execute("COMMIT").unwrap();
    assert_eq!(served.stream().value("SELECT count(*) FROM t"), "1");
}

#[test]
fn a_script_runs_up_to_its_first_error() {
    let served = with_table();
    let mut client = served.stream();
    let script = |sql: &str| json!({ "type": "sequence", "sql": sql });
    let trigger = "CREATE TRIGGER r AFTER INSERT ON t WHEN new.x = 1 BEGIN \
                   INSERT INTO t(x) VALUES (';'); END; INSERT INTO t(x) VALUES (1);";
    client.one(script(trigger)).unwrap();
    assert_eq!(client.value("SELECT count(*) FROM t"), "2");
    let failed = client.one(script("INSERT INTO t(x) VALUES (5); SELEC 1; DELETE FROM t"));
    assert_eq!(failed.unwrap_err()["code"], "SQL_INPUT_ERROR");
    assert_eq!(client.value("SELECT count(*) FROM t"), "3");
    client.one(script("BEGIN; DELETE FROM t; COMMIT; INSERT INTO t(x) VALUES (9)")).unwrap();
    assert_eq!(client.value("SELECT count(*) FROM t"), "1");
}

#[test]
fn savepoints_nest_and_the_outermost_commits() {
    let served = with_table();
    let mut client = served.stream();
    for sql in [
        "SAVEPOINT a",
        "INSERT INTO t(x) VALUES (1)",
        "SAVEPOINT b",
        "INSERT INTO t(x) VALUES (2)",
        "ROLLBACK TO b",
        "RELEASE b",
    ] {
        client.execute(sql).unwrap();
    }
    assert_eq!(served.stream().value("SELECT count(*) FROM t"), "0");
    client.execute("RELEASE A").unwrap();
    assert_eq!(client.baton.as_deref(), Some("none"));
    assert_eq!(served.stream().value("SELECT count(*) FROM t"), "1");
    assert!(client.execute("RELEASE a").is_err());
}

#[test]
fn databases_have_names_and_strangers_none() {
    let served = Served::many();
    std::fs::write(served.directory.path().join("shop.db"), "").unwrap();
    let body = json!({ "requests": [{ "type": "execute", "stmt": { "sql": "SELECT 42" } }] });
    for path in ["/db/shop/v2/pipeline", "//db//shop//v3/pipeline"] {
        let (status, answer) = served.post(path, &body);
        let value = &answer["results"][0]["response"]["result"]["rows"][0][0]["value"];
        assert_eq!((status, value.as_str()), (200, Some("42")), "{path}: {answer}");
    }
    for path in ["/v2/pipeline", "/db/shop", "/db/none/v2/pipeline", "/db/..%2Fx/v2/pipeline"] {
        let (status, answer) = served.post(path, &body);
        assert!((400..500).contains(&status), "{path}: {answer}");
        assert!(answer["error"].is_string() && answer["code"].is_string(), "{path}: {answer}");
    }
}

#[test]
fn a_url_that_lacks_the_slash_behind_a_database_is_told_of_it() {
    let served = Served::many();
    // Clients put the version in the place of what is behind the last slash: the name.
    for path in ["/db/v2/pipeline", "/db/v3-protobuf/cursor", "/db/shop"] {
        let (status, answer) = served.post(path, &json!({}));
        let message = answer["message"].as_str().unwrap();
        assert_eq!(status, 404, "{path}");
        assert!(message.contains(path) && message.ends_with("slash: /db/NAME/"), "{message}");
    }
}

#[test]
fn what_the_server_decides_is_said() {
    let served = with_table();
    let mut client = served.stream();
    assert_eq!(client.value("PRAGMA foreign_keys"), "1");
    client.execute("PRAGMA busy_timeout = 5000").unwrap();
    client.execute("PRAGMA journal_mode = WAL").unwrap();
    client.execute("PRAGMA defer_foreign_keys = OFF").unwrap();
    for sql in ["ATTACH 'x' AS y", "PRAGMA journal_mode = DELETE", "CREATE TEMP TABLE x(a)"] {
        assert_eq!(client.execute(sql).unwrap_err()["code"], "BLOCKED", "{sql}");
    }
    for (sql, code) in [("", "SQL_NO_STATEMENT"), ("SELECT 1; SELECT 2", "SQL_MANY_STATEMENTS")] {
        assert_eq!(client.execute(sql).unwrap_err()["code"], code, "{sql}");
    }
}

const PARENT_AND_CHILDREN: &str = "CREATE TABLE p(id INTEGER PRIMARY KEY, x);
    CREATE TABLE c(p REFERENCES p ON DELETE CASCADE);
    INSERT INTO p VALUES (1, 'a'); INSERT INTO c VALUES (1), (1);";

const REBUILD: [&str; 4] = [
    "CREATE TABLE q(id INTEGER PRIMARY KEY, x TEXT)",
    "INSERT INTO q SELECT * FROM p",
    "DROP TABLE p",
    "ALTER TABLE q RENAME TO p",
];

#[test]
fn a_rebuild_without_foreign_keys_keeps_the_children() {
    let served = Served::one();
    let mut client = served.stream();
    client.one(json!({ "type": "sequence", "sql": PARENT_AND_CHILDREN })).unwrap();
    // In requests, as Django sends it; and others keep their keys.
    client.execute("PRAGMA foreign_keys = OFF").unwrap();
    assert!(client.baton.is_some(), "it is a setting of the stream");
    assert_eq!(client.value("PRAGMA foreign_keys"), "0");
    client.execute("BEGIN").unwrap();
    client.execute("PRAGMA foreign_keys = ON").unwrap();
    for sql in REBUILD {
        client.execute(sql).unwrap();
        let violation = served.stream().execute("INSERT INTO c VALUES (7)").unwrap_err();
        assert_eq!(violation["extended_code"], "SQLITE_CONSTRAINT_FOREIGNKEY");
    }
    client.execute("COMMIT").unwrap();
    client.execute("PRAGMA foreign_keys = ON").unwrap();
    assert_eq!(client.baton.as_deref(), Some("none"));
    assert_eq!(client.value("SELECT count(*) FROM c"), "2");
    // In one batch, as `migrate()` of `@libsql/client`.
    let mut steps = vec![("PRAGMA foreign_keys=off".to_owned(), Value::Null)];
    steps.extend(transactional(&REBUILD).into_iter().map(|(sql, _)| (sql, Value::Null)));
    steps.pop();
    steps.push(("PRAGMA foreign_keys=on".to_owned(), Value::Null));
    let done = batch(&mut client, &steps);
    assert!(done["step_errors"].as_array().unwrap().iter().all(Value::is_null), "{done}");
    assert_eq!(client.value("SELECT count(*) FROM c"), "2");
    // With keys on, a deletion cascades, as in SQLite.
    client.execute("DELETE FROM p").unwrap();
    assert_eq!(client.value("SELECT count(*) FROM c"), "0");
}

#[test]
fn a_parent_is_not_dropped_where_foreign_keys_are_on() {
    let served = Served::one();
    let mut client = served.stream();
    client.one(json!({ "type": "sequence", "sql": PARENT_AND_CHILDREN })).unwrap();
    let assert_told = |error: &Value, what: &str| {
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(what) && message.contains("before BEGIN"), "{error}");
    };
    for begin in ["BEGIN", "SAVEPOINT s"] {
        client.execute(begin).unwrap();
        client.execute("PRAGMA foreign_keys = OFF").unwrap();
        assert_eq!(client.value("PRAGMA foreign_keys"), "1");
        client.execute(REBUILD[0]).unwrap();
        assert_told(&client.execute(REBUILD[2]).unwrap_err(), "DROP TABLE p is refused");
        let replace = client.execute("REPLACE INTO p VALUES (1, 'b')").unwrap_err();
        assert_told(&replace, "REPLACE of rows of p is refused");
        client.execute("ROLLBACK").unwrap();
    }
    // In one batch, and in a script, as a migrator that wraps its file in a transaction.
    let mut all = vec!["PRAGMA foreign_keys=OFF"];
    all.extend(REBUILD);
    let done = batch(&mut client, &transactional(&all));
    assert_told(&done["step_errors"][4], "DROP TABLE p is refused");
    let script = format!("BEGIN; {}; COMMIT", all.join("; "));
    let failed = client.one(json!({ "type": "sequence", "sql": script })).unwrap_err();
    assert_told(&failed, "DROP TABLE p is refused");
    client.execute("ROLLBACK").unwrap();
    // Each statement on a stream of its own, as `execute()` of `@libsql/client` sends it, also if
    // another client opens and closes its connection meanwhile.
    served.stream().execute("PRAGMA foreign_keys = OFF").unwrap();
    served.stream().execute(REBUILD[0]).unwrap();
    served.stream().execute("PRAGMA foreign_keys = ON").unwrap();
    assert_told(&served.stream().execute(REBUILD[2]).unwrap_err(), "DROP TABLE p is refused");
    let done = batch(&mut served.stream(), &transactional(&[REBUILD[2]]));
    assert_told(&done["step_errors"][1], "DROP TABLE p is refused");
    client.execute("BEGIN").unwrap();
    assert_told(&client.execute(REBUILD[2]).unwrap_err(), "DROP TABLE p is refused");
    client.execute("ROLLBACK").unwrap();
    assert_eq!(client.value("SELECT count(*) FROM c"), "2");
}

#[test]
fn an_answer_has_a_largest_size_and_a_write_beyond_it_changes_nothing() {
    let served = with_table();
    let mut client = served.stream();
    let large = "SELECT hex(zeroblob(6000000))";
    assert_eq!(client.execute(large).unwrap_err()["code"], "RESPONSE_TOO_LARGE");
    let half = json!({ "type": "execute", "stmt": { "sql": "SELECT hex(zeroblob(3000000))" } });
    let results = client.send(&[half.clone(), half]);
    assert_eq!(results[0]["type"], "ok", "it fits");
    assert_eq!(results[1]["error"]["code"], "RESPONSE_TOO_LARGE", "together they do not");
    let insert = "INSERT INTO t(x) VALUES (1) RETURNING hex(zeroblob(6000000))";
    assert_eq!(client.execute(insert).unwrap_err()["code"], "RESPONSE_TOO_LARGE");
    assert_eq!(client.value("SELECT count(*) FROM t"), "0");
    let steps = transactional(&["INSERT INTO t(x) VALUES (2)", insert]);
    let done = batch(&mut client, &steps);
    assert_eq!(done["step_errors"][2]["code"], "RESPONSE_TOO_LARGE");
    assert_eq!(client.value("SELECT count(*) FROM t"), "0");
}

#[test]
fn figures_of_the_statement_before_are_those_of_the_stream() {
    let served = with_table();
    let mut client = served.stream();
    let execute = |sql: &str| json!({ "type": "execute", "stmt": { "sql": sql } });
    let results = client.send(&[
        execute("INSERT INTO t VALUES (41, 1), (42, 2)"),
        execute("SELECT last_insert_rowid() || ' ' || changes()"),
        execute("INSERT INTO t(id, x) VALUES (last_insert_rowid() + 100, 3)"),
        execute("UPDATE t SET x = x WHERE id = 0"),
        execute("SELECT last_insert_rowid() || ' ' || changes()"),
    ]);
    let value =
        |at: usize| results[at]["response"]["result"]["rows"][0][0]["value"].as_str().unwrap();
    assert_eq!((value(1), value(4)), ("42 2", "142 0"));
    let requests = [execute("INSERT INTO t VALUES (7, 7)"), execute("BEGIN")];
    let asks = [execute("INSERT INTO t(x) VALUES (last_insert_rowid())"), execute("ROLLBACK")];
    let results = client.send(&[requests, asks].concat());
    assert_eq!(results[2]["error"]["code"], "BLOCKED", "{results:?}");
}

#[test]
fn a_statement_that_is_told_to_have_failed_changes_nothing() {
    let served = with_table();
    let mut client = served.stream();
    let execute = |sql: &str| json!({ "type": "execute", "stmt": { "sql": sql } });
    let wide = format!("SELECT 1 AS \"{}\"", "x".repeat(1_000_000));
    let mut requests = vec![execute("BEGIN")];
    requests.extend((0..11).map(|_| execute(&wide)));
    requests.push(execute("INSERT INTO t VALUES (1, 1)"));
    let returning =
        format!("INSERT INTO t VALUES (2, 2) RETURNING 1 AS \"{}\"", "x".repeat(900_000));
    requests.push(execute(&returning));
    let results = client.send(&requests);
    assert_eq!(results[11]["error"]["code"], "RESPONSE_TOO_LARGE");
    assert_eq!(results[12]["type"], "ok", "it adds nothing");
    assert_eq!(results[13]["error"]["code"], "RESPONSE_TOO_LARGE");
    assert!(client.execute("COMMIT").is_err(), "its last change could not be undone alone");
    assert_eq!(client.value("SELECT count(*) FROM t"), "0");
    client.execute("INSERT INTO t VALUES (1, 1)").unwrap();
    let rolled_back = client.execute("INSERT OR ROLLBACK INTO t VALUES (1, 2)").unwrap_err();
    assert_eq!(rolled_back["code"], "SQLITE_CONSTRAINT", "{rolled_back}");
}

#[test]
fn sql_with_a_nul_is_refused_and_nothing_of_it_runs() {
    let served = with_table();
    let mut client = served.stream();
    let script = "INSERT INTO t(x) VALUES (1);\0 INSERT INTO t(x) VALUES (2)";
    for request in [
        json!({ "type": "sequence", "sql": script }),
        json!({ "type": "execute", "stmt": { "sql": "SELECT 1 \0 FROM t" } }),
        json!({ "type": "describe", "sql": "SELECT 1\0" }),
    ] {
        let error = client.one(request).unwrap_err();
        assert_eq!(error["code"], "SQL_INPUT_ERROR", "{error}");
    }
    assert_eq!(client.value("SELECT count(*) FROM t"), "0");
}

#[test]
fn an_error_is_for_a_client_and_not_for_a_program_in_rust() {
    let served = with_table();
    let error = served.stream().execute("SELECT no_such(1)").unwrap_err();
    assert_eq!(error["message"], "no such function: no_such (at offset 7)", "{error}");
}

/// The most memory that this process has had, in bytes.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_cursor_that_is_not_read_takes_few_of_its_rows() {
    let served = with_table();
    let sql = "SELECT hex(zeroblob(2000000)) FROM generate_series(1, 500)";
    let body = json!({ "batch": { "steps": [{ "stmt": { "sql": sql } }] } }).to_string();
    let before = most_memory();
    let mut socket = TcpStream::connect(served.url.trim_start_matches("http://")).unwrap();
    let head = format!("POST /v3/cursor HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
    socket.write_all((head + &body).as_bytes()).unwrap();
    // A reader that waits for its client shows no statement: it is stalled, or the rows are there.
    let end = Instant::now() + Duration::from_secs(60);
    let runs = || get(&format!("{}/now", served.admin))["databases"][0]["running"][0].is_object();
    while !runs() {
        assert!(Instant::now() < end, "it does not begin");
    }
    while runs() {
        assert!(Instant::now() < end, "it does not end");
    }
    let took = most_memory() - before;
    // Other tests take some, too; 256 rows would be a GB.
    assert!(took < 512 << 20, "{took} bytes for rows of 4 MB");
}
