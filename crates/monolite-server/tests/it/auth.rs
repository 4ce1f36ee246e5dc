//! Tokens: every endpoint, with each kind of token.

use std::time::Duration;

use monolite_server::{AuthConfig, Right, issue_token};
use serde_json::{Value, json};

use crate::served::Served;

#[test]
fn every_endpoint_asks_for_the_right() {
    let mut tokens = Vec::new();
    let served = Served::with(|directory, config| {
        for name in ["shop", "log"] {
            std::fs::write(directory.join(format!("{name}.db")), "").unwrap();
        }
        let file = directory.join("tokens.toml");
        let shop = || Some(vec!["shop".to_owned()]);
        let mut issue = |name: &str, right, databases, expires| {
            tokens.push(issue_token(&file, name, right, databases, expires).unwrap());
        };
        issue("writer", Right::ReadWrite, shop(), None);
        issue("reader", Right::ReadOnly, shop(), None);
        issue("late", Right::ReadWrite, None, Some(Duration::ZERO));
        let mut auth = AuthConfig::default();
        auth.token_file = Some(file);
        (config.directory, config.auth) = (Some(directory), Some(auth));
    });
    let [writer, reader, late] = &tokens[..] else { unreachable!() };
    let create = "CREATE TABLE IF NOT EXISTS t(x)";
    let stmt = json!({ "sql": create });
    let batch = json!({ "steps": [{ "stmt": stmt }] });
    let pipeline = json!({ "requests": [{ "type": "execute", "stmt": stmt }] });
    for (path, body) in [
        ("/v2/pipeline", &pipeline),
        ("/v3/pipeline", &pipeline),
        ("/v3/cursor", &json!({ "batch": batch })),
        ("/v1/execute", &json!({ "stmt": stmt })),
        ("/v1/batch", &json!({ "batch": batch })),
    ] {
        let ask = |token: Option<&str>, database: &str| {
            served.post_as(token, &format!("/db/{database}{path}"), body)
        };
        for (token, database, status, code) in [
            (None, "shop", 401, "AUTH_JWT_MISSING"),
            (Some("mono_wrong"), "shop", 401, "AUTH_JWT_INVALID"),
            (Some("a.b.c"), "shop", 401, "AUTH_JWT_INVALID"),
            (Some(late.as_str()), "shop", 401, "AUTH_JWT_EXPIRED"),
            (Some(writer.as_str()), "log", 403, "SQLITE_AUTH"),
        ] {
            let (answered, error) = ask(token, database);
            assert_eq!((answered, &error["code"]), (status, &json!(code)), "{path} {error}");
            assert!(!error.to_string().contains("mono_"), "{error}");
        }
        assert_eq!(ask(Some(writer), "shop").0, 200, "{path}");
        let (status, answer) = ask(Some(reader), "shop");
        let is_refused = answer.to_string().contains("SQLITE_READONLY");
        assert!(is_refused || path == "/v3/cursor", "{path} {status} {answer}");
    }
    let read = json!({ "stmt": { "sql": "SELECT count(*) FROM sqlite_schema" } });
    let (status, answer) = served.post_as(Some(reader), "/db/shop/v1/execute", &read);
    assert_eq!((status, &answer["result"]["rows"][0][0]["value"]), (200, &json!("1")));
    // Also inside of a transaction, and a transaction that another token has begun is not its own.
    let begin = json!({ "requests": [
        { "type": "execute", "stmt": { "sql": "BEGIN" } },
        { "type": "execute", "stmt": { "sql": "INSERT INTO t VALUES (1)" } },
    ] });
    let (_, answer) = served.post_as(Some(reader), "/db/shop/v2/pipeline", &begin);
    assert_eq!(answer["results"][1]["error"]["code"], "SQLITE_READONLY", "{answer}");
    let (_, answer) = served.post_as(Some(writer), "/db/shop/v2/pipeline", &begin);
    let next = json!({ "baton": answer["baton"], "requests": [] });
    let (status, error) = served.post_as(Some(reader), "/db/shop/v2/pipeline", &next);
    assert_eq!((status, &error["code"]), (404, &json!("STREAM_EXPIRED")));
    assert_eq!(served.post_as(Some(writer), "/db/shop/v2/pipeline", &next).0, 200);
}

#[test]
fn what_clients_probe_needs_no_token() {
    let served = Served::with(|directory, config| {
        let file = directory.join("tokens.toml");
        issue_token(&file, "one", Right::ReadOnly, None, None).unwrap();
        let mut auth = AuthConfig::default();
        auth.token_file = Some(file);
        (config.file, config.auth) = (Some(directory.join("a.db")), Some(auth));
    });
    for path in ["/v2", "/v3", "/v3-protobuf", "/health", "/version"] {
        let mut answer = ureq::get(format!("{}{path}", served.url)).call().unwrap();
        assert_eq!(answer.headers()["content-type"], "text/plain", "{path}");
        assert!(!answer.body_mut().read_to_string().unwrap().is_empty());
    }
    let (status, _) = served.post("/v2/pipeline", &Value::Null);
    assert_eq!(status, 401, "nothing of a body is read before");
}

#[test]
fn a_web_page_cannot_use_a_server_without_tokens() {
    let served = Served::one();
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let body = json!({ "stmt": { "sql": "CREATE TABLE t(x)" } }).to_string();
    let post = || agent.post(format!("{}/v1/execute", served.url)).content_type("text/plain");
    assert_eq!(post().header("origin", &served.url).send(&body).unwrap().status(), 403);
    assert_eq!(served.stream().value("SELECT count(*) FROM sqlite_schema"), "0");
    let upgrade = agent
        .get(&served.url)
        .header("upgrade", "websocket")
        .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==")
        .header("origin", "http://localhost");
    assert_eq!(upgrade.call().unwrap().status(), 403);
    assert_eq!(post().send(&body).unwrap().status(), 200);
}
