//! A server whose database another process has taken over: it says so, and where.

use std::num::NonZeroU32;

use monolite::Options;
use monolite::archive::ArchiveToken;
use monolite_archive::{Archive, Takeover};
use monolite_server::ArchiveConfig;
use serde_json::json;

use crate::admin::{agent, get};
use crate::replica::{ask, look, primary_with, token_of, wait_until};
use crate::served::Served;

/// Where the successor says that it is.
const NEXT: &str = "https://next.example.com";

#[test]
fn primary_that_was_replaced_says_so_and_by_whom() {
    let archive = tempfile::tempdir().unwrap();
    let primary = primary_with(archive.path(), |it| {
        it.lease_seconds = NonZeroU32::new(1);
        it.archived_writes = true;
    });
    let (one, two) = (format!("{}/primary", primary.url), format!("{}/health", primary.url));
    let known = token_of(&primary, "INSERT INTO t VALUES (1)");
    let next = Archive::at(archive.path().to_str().unwrap()).unwrap().address(NEXT);
    let record = next.leader().unwrap().unwrap();
    assert!(record.has_lease, "a standby may take over");
    assert_eq!((look(&one).0, primary.health()), (200, 200));
    let now = get(&format!("{}/now", primary.admin));
    let left = &now["databases"][0]["stats"]["archive"]["lease_left_ms"];
    assert!(left.as_u64().is_some_and(|left| left <= 1_000), "{now}");
    let file = archive.path().join("next.db");
    let follower = next.follow(Options::new(), &file).unwrap();
    let claimed = follower.claim(Takeover::Now, &|| true).unwrap().unwrap();
    follower.promote(claimed).unwrap();
    let db = Options::new().archive(next).open(&file).unwrap();
    db.write(|tx| tx.execute("INSERT INTO t VALUES (2)", ())).wait().unwrap();
    let token = db.archive_token().unwrap().to_string();
    let read = |token| ask(&primary, token, "SELECT count(*) FROM t");
    // Also before it knows of its successor.
    assert_eq!((read(Some(&token)).0, &read(Some(&token)).2["code"]), (503, &json!("TOKEN_LATE")));
    wait_until("it knows", || look(&one).0 == 503);
    let said = json!({ "role": "replaced", "primary": NEXT });
    assert_eq!((look(&one), look(&two)), ((503, said.clone()), (503, said)));
    let (status, _, error) = read(Some(&token));
    assert_eq!((status, &error["code"]), (503, &json!("TOKEN_LATE")));
    assert!(error["message"].as_str().unwrap().contains(NEXT), "{error}");
    assert_eq!([read(None).0, read(Some(&known)).0], [200, 200], "it reads what it has");
    assert_eq!(read(Some("unknown")).0, 400);
    let (_, _, refused) = ask(&primary, None, "INSERT INTO t VALUES (3)");
    assert_eq!(refused["error"]["code"], "NOT_PRIMARY", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains(NEXT), "{refused}");
    let metrics = agent().get(format!("{}/metrics", primary.admin)).call().unwrap();
    let metrics = metrics.into_body().read_to_string().unwrap();
    assert!(metrics.contains("monolite_server_is_primary 0\n"), "{metrics}");
    db.close().unwrap();
    // A write that the old primary had not archived is refused as at a replica.
    let known: ArchiveToken = known.parse().unwrap();
    let lost = ArchiveToken { txid: known.txid + 100, ..known }.to_string();
    let next = Served::with(|_, config| {
        config.file = Some(file);
        config.archive = Some(ArchiveConfig::of_url(archive.path().to_str().unwrap()));
    });
    let own = token_of(&next, "INSERT INTO t VALUES (4)");
    let read = |token| ask(&next, Some(token), "SELECT count(*) FROM t");
    let (status, _, error) = read(&lost);
    assert_eq!((status, &error["code"]), (410, &json!("TOKEN_LOST")), "{error}");
    assert_eq!([&known.to_string(), &token, &own].map(|token| read(token).0), [200; 3]);
}

#[test]
fn standby_before_an_empty_archive_does_not_begin_one() {
    let [archive, empty] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let primary = primary_with(archive.path(), |_| ());
    let file = archive.path().join("standby.db");
    let url = archive.path().to_str().unwrap();
    Archive::at(url).unwrap().follow(Options::new(), &file).unwrap().close().unwrap();
    drop(primary);
    let standby = Served::with(|_, config| {
        let mut archive = ArchiveConfig::of_url(empty.path().to_str().unwrap());
        archive.takeover = true;
        (config.file, config.archive) = (Some(file), Some(archive));
    });
    let health = format!("{}/health", standby.url);
    wait_until("it is told", || look(&health).1["is_failing"] == json!(true));
    assert_eq!((look(&health).0, look(&format!("{}/primary", standby.url)).0), (503, 503));
    let (_, _, refused) = ask(&standby, None, "CREATE TABLE u(x)");
    assert_eq!(refused["error"]["code"], "NOT_PRIMARY", "{refused}");
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
}

#[test]
fn health_of_a_database_that_is_not_there_is_an_error() {
    let served = crate::served::Served::many();
    assert_eq!(look(&format!("{}/db/absent/health", served.url)).0, 404);
    assert_eq!(crate::admin::create(&served, "here"), 200);
    assert_eq!(look(&format!("{}/db/here/primary", served.url)).0, 200);
}
