//! What `archive` and `restore` make of an archive in a directory.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use monolite::{Database, Durability, Options};
use monolite_archive::{
    Archive, DirectoryStore, Layout, Store as _,
    internals::{Catalog, Fault, FaultyStore, Level, compact_level},
};
use monolite_ltx::{BaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp, Txid, TxidRange};
use serde_json::Value;

use crate::{complaint, monolite};

const PAGE: usize = 4_096;

/// The times of the TXIDs, 2026-11-25T07:00:00Z and each a second later.
const FIRST_MILLIS: i64 = 1_795_590_000_000;

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary directory has a plain name")
}

/// The pages of a database that was closed.
fn pages(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).expect("it is there");
    bytes.chunks(PAGE).map(<[u8]>::to_vec).collect()
}

/// Puts the pages of `now` that are not in `before` into the archive, as TXID `number`.
fn put(archive: &Path, number: u64, before: &[Vec<u8>], now: &[Vec<u8>]) {
    let txids = TxidRange::single(Txid::new(number).expect("it is not 0"));
    let header = Header {
        page_size: PageSize::new(PAGE as u32).expect("it is a power of two"),
        commit: now.len() as u32,
        txids,
        timestamp: Timestamp::from_millis(FIRST_MILLIS + 1_000 * (number as i64 - 1)),
        base: BaseChecksum::Untracked,
        wal: None,
        node_id: 0,
    };
    let mut encoder = Encoder::new(Vec::new(), header).expect("the header is right");
    for (at, page) in now.iter().enumerate().filter(|(at, page)| before.get(*at) != Some(page)) {
        let pgno = Pgno::new(at as u32 + 1).expect("it is not 0");
        encoder.page(pgno, page).expect("pages come in order");
    }
    let body = encoder.finish(None).expect("it is whole").output;
    let level = if number == 1 { Level::SNAPSHOTS } else { Level::SLOTS };
    let key = Layout::directory().file(level, txids);
    DirectoryStore::new(archive).create(&key, &body, None).expect("nobody was first");
}

/// An archive, and the states that it has.
fn archive(directory: &Path) -> (PathBuf, Vec<PathBuf>) {
    let (file, archive) = (directory.join("shop.db"), directory.join("archive"));
    let (mut states, mut before) = (Vec::new(), Vec::new());
    for number in 1..=3 {
        let db = Database::open(&file).expect("it opens");
        let sql = format!("CREATE TABLE t{number}(v); INSERT INTO t{number} VALUES ({number})");
        db.write(move |tx: &monolite::Tx<'_>| tx.execute_batch(&sql)).wait().expect("it commits");
        db.close().expect("it closes");
        let now = pages(&file);
        put(&archive, number, &before, &now);
        let state = directory.join(format!("state{number}.db"));
        fs::copy(&file, &state).expect("it is copied");
        states.push(state);
        before = now;
    }
    (archive, states)
}

fn json(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

#[test]
fn each_moment_is_restored_byte_for_byte() {
    let directory = tempfile::tempdir().expect("it works");
    let (archive, states) = archive(directory.path());
    let url = format!("file://{}", text(&archive));
    let targets: [(&[&str], usize); 4] = [
        (&[], 2),
        (&["--txid", "0000000000000002"], 1),
        (&["--timestamp", "2026-11-25T07:00:01.500Z"], 1),
        (&["--timestamp", "2026-11-25T08:00:00.001+01:00"], 0),
    ];
    for (at, (target, state)) in targets.into_iter().enumerate() {
        let out = directory.path().join(format!("out{at}.db"));
        let words = [&["restore", &url, "-o", text(&out), "--json"], target].concat();
        let restored = monolite(&words);
        assert_eq!((restored.status.code(), complaint(&restored)), (Some(0), String::new()));
        assert!(fs::read(&out).unwrap() == fs::read(&states[state]).unwrap(), "{target:?}");
        assert_eq!(json(&restored)["txid"], format!("{:016x}", state + 1));
        assert_eq!(json(&restored)["restored"], true);
        assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
        let check = monolite(&["check", text(&out)]);
        assert_eq!(check.status.code(), Some(0), "{}", complaint(&check));
    }
}

#[test]
fn state_that_was_merged_is_told_and_refused_by_exact() {
    let directory = tempfile::tempdir().expect("it works");
    let (archive, states) = archive(directory.path());
    let (here, out) = (text(&archive), directory.path().join("out.db"));
    let wish = ["restore", here, "-o", text(&out), "--timestamp", "2026-11-25T07:00:01.500Z"];
    let exactly = monolite(&[&wish[..], &["--exact", "--json"]].concat());
    assert_eq!((exactly.status.code(), complaint(&exactly)), (Some(0), String::new()));
    let restored = json(&exactly);
    assert_eq!((&restored["exact"], &restored["earlier_ms"]), (&true.into(), &500.into()));
    assert_eq!(restored["next"]["txid"], "0000000000000003");
    fs::remove_file(&out).expect("it works");
    // TXIDs 2 and 3 are merged, and their slots go.
    assert!(monolite(&["archive", "adopt", here]).status.success());
    assert!(monolite(&["archive", "compact", here]).status.success());
    for number in [2, 3] {
        let slot = format!("ltx/0/{number:016x}-{number:016x}.ltx");
        fs::remove_file(archive.join(slot)).expect("it is there");
    }
    let refused = monolite(&[&wish[..], &["--exact"]].concat());
    assert_eq!(refused.status.code(), Some(1));
    let kept = "TXID 0000000000000001 of 2026-11-25T07:00:00.000Z is, and then 0000000000000003 of \
                2026-11-25T07:00:02.000Z";
    assert!(complaint(&refused).contains(kept), "{}", complaint(&refused));
    assert!(!out.exists());
    let restored = monolite(&wish);
    let said = String::from_utf8_lossy(&restored.stdout).into_owned();
    for told in [
        "TXID 0000000000000001 of 2026-11-25T07:00:00.000Z, ",
        "next state that is kept: 0000000000000003 of 2026-11-25T07:00:02.000Z",
        "not exact: it is 1.5 s earlier",
    ] {
        assert!(restored.status.success() && said.contains(told), "{said}");
    }
    assert!(fs::read(&out).unwrap() == fs::read(&states[0]).unwrap());
    fs::remove_file(&out).expect("it works");
    let restored = json(&monolite(&[&wish[..], &["--json"]].concat()));
    assert_eq!((&restored["exact"], &restored["earlier_ms"]), (&false.into(), &1_500.into()));
    assert_eq!(restored["time"], "2026-11-25T07:00:00.000Z");
    assert_eq!(restored["next"]["time"], "2026-11-25T07:00:02.000Z");
    let alone = monolite(&["restore", here, "-o", text(&out), "--exact"]);
    assert_eq!(alone.status.code(), Some(2), "it says something of a time");
}

#[test]
fn what_is_there_is_not_overwritten() {
    let directory = tempfile::tempdir().expect("it works");
    let (archive, _) = archive(directory.path());
    let out = directory.path().join("out.db");
    fs::write(&out, "mine").expect("it works");
    let restore = ["restore", text(&archive), "-o", text(&out)];
    let refused = monolite(&restore);
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("out.db exists"), "{}", complaint(&refused));
    let there = monolite(&[&restore[..], &["--if-not-exists"]].concat());
    assert!(there.status.success() && there.stdout.is_empty());
    assert!(complaint(&there).contains("out.db is there already"), "{}", complaint(&there));
    let there = monolite(&[&restore[..], &["--if-not-exists", "--json"]].concat());
    assert_eq!((there.status.code(), complaint(&there)), (Some(0), String::new()));
    assert_eq!(
        (&json(&there)["restored"], &json(&there)["file"]),
        (&false.into(), &text(&out).into())
    );
    assert_eq!(fs::read(&out).unwrap(), b"mine");
    fs::remove_file(&out).expect("it works");
    assert!(monolite(&[&restore[..], &["--if-not-exists"]].concat()).status.success());
    assert!(fs::metadata(&out).unwrap().len() > 1_000);
}

#[test]
fn what_cannot_be_restored_is_named_and_leaves_nothing() {
    let directory = tempfile::tempdir().expect("it works");
    let (archive, _) = archive(directory.path());
    let (out, here) = (directory.path().join("out.db"), text(&archive));
    let names = || -> BTreeSet<_> {
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    let before = names();
    let ends = "the oldest is 0000000000000001, the newest 0000000000000003";
    let times = "the oldest is of 2026-11-25T07:00:00.000Z, the newest of 2026-11-25T07:00:02.000Z";
    let token = format!("{:032x}-{:016x}-{:016x}", 0, 1, 2);
    for (words, code, said) in [
        (&[here, "--txid", "0000000000000009"][..], 1, "0000000000000009 is not there yet"),
        (&[here, "--txid", "0000000000000009"], 1, ends),
        (&[here, "--txid", "9"], 2, "\"9\""),
        (&[here, "--txid", "1-2"], 2, "\"1-2\" is no token of an archive"),
        (&[here, "--txid", &token], 1, "there is no leader record"),
        (&[here, "--timestamp", "yesterday"], 2, "\"yesterday\""),
        (&[here, "--timestamp", "2020-01-01T00:00:00Z"], 1, "from before 2020-01-01"),
        (&[here, "--timestamp", "2020-01-01T00:00:00Z"], 1, times),
        (&["/nowhere/at/all"], 1, "no files"),
        (&["ftp://host/place"], 2, "ftp"),
    ] {
        let words = [&["restore", "-o", text(&out)], words].concat();
        let failed = monolite(&words);
        assert_eq!(failed.status.code(), Some(code), "{words:?}");
        assert!(complaint(&failed).contains(said), "{words:?}: {}", complaint(&failed));
        assert_eq!(names(), before, "{words:?}");
    }
}

#[test]
fn an_archive_is_shown_and_verified_and_its_damage_is_found() {
    let directory = tempfile::tempdir().expect("it works");
    let (archive, _) = archive(directory.path());
    let here = text(&archive);
    let status = json(&monolite(&["archive", "status", here, "--json"]));
    assert_eq!(status["newest_txid"], "0000000000000003");
    assert_eq!(status["newest_time"], "2026-11-25T07:00:02.000Z");
    assert_eq!(status["oldest_snapshot_txid"], "0000000000000001");
    assert!(status["hole"].is_null());
    assert_eq!(status["levels"].as_array().map(Vec::len), Some(2));
    let shown = monolite(&["archive", "status", here]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("newest TXID 0000000000000003"));
    let listed = json(&monolite(&["archive", "list", here, "--times", "--json"]));
    let times: Vec<_> = listed.as_array().unwrap().iter().map(|file| &file["time"]).collect();
    assert_eq!(times[1], "2026-11-25T07:00:01.000Z");
    let drill = monolite(&["archive", "drill", here, "--scratch", text(directory.path())]);
    assert_eq!((drill.status.code(), complaint(&drill)), (Some(0), String::new()));
    let said = String::from_utf8_lossy(&drill.stdout).into_owned();
    assert!(said.contains("checked and deleted") && !said.contains(" 0.0 s"), "{said}");
    let verified = monolite(&["archive", "verify", here, "--json"]);
    assert!(verified.status.success() && json(&verified)["files"] == 3);
    let said = monolite(&["archive", "verify", here]).stdout;
    assert!(String::from_utf8_lossy(&said).contains(": 3 files, "));
    // A byte of the second TXID, and then all of it.
    let second = archive.join("ltx/0/0000000000000002-0000000000000002.ltx");
    let mut bytes = fs::read(&second).expect("it is there");
    bytes[150] ^= 1;
    fs::write(&second, &bytes).expect("it works");
    for named in ["0000000000000002-0000000000000002", "continues TXID 0000000000000001"] {
        let verified = monolite(&["archive", "verify", here]);
        assert_eq!(verified.status.code(), Some(1));
        let said = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert!(said.contains("problem  ") && said.contains(named), "{said}");
        assert!(complaint(&verified).contains("open the database with it"), "{verified:?}");
        assert!(!monolite(&["archive", "drill", here, "--scratch", here]).status.success());
        let _ = fs::remove_file(&second);
    }
    let status = monolite(&["archive", "status", here, "--json"]);
    assert!(status.status.code() == Some(1) && json(&status)["hole"].is_string());
    let status = monolite(&["archive", "status", here]);
    assert_eq!(status.status.code(), Some(1));
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(said.contains("hole: ") && said.contains("open the database with it"), "{said}");
}

#[test]
fn damaged_file_is_gone_around_and_named() {
    let directory = tempfile::tempdir().expect("it works");
    let (archive, states) = archive(directory.path());
    let here = text(&archive);
    let (store, layout) = (DirectoryStore::new(&archive), Layout::directory());
    let mut catalog = Catalog::read(&store, &layout).expect("it is there");
    let merged = compact_level(&store, &layout, &mut catalog, Level::FIRST, None);
    let merged = merged.expect("it works").expect("there is something to merge").txids;
    let key = layout.file(Level::FIRST, merged);
    let mut bytes = fs::read(archive.join(&key)).expect("it is there");
    bytes[150] ^= 1;
    fs::write(archive.join(&key), &bytes).expect("it works");
    let out = directory.path().join("out.db");
    let restored = monolite(&["restore", here, "-o", text(&out), "--json"]);
    assert_eq!((restored.status.code(), complaint(&restored)), (Some(0), String::new()));
    assert_eq!(fs::read(&out).ok(), fs::read(&states[2]).ok());
    let around = json(&restored)["around"].clone();
    assert!(around[0].as_str().is_some_and(|said| said.contains(&key)), "{around}");
    let drill = monolite(&["archive", "drill", here, "--scratch", text(directory.path())]);
    assert_eq!(drill.status.code(), Some(1));
    let said = String::from_utf8_lossy(&drill.stdout).into_owned();
    assert!(said.contains(&format!("went around a file: {key}")), "{said}");
    assert!(complaint(&drill).contains("can be restored all the same"), "{drill:?}");
    assert_eq!(monolite(&["archive", "status", here]).status.code(), Some(0));
    let adopted = monolite(&["archive", "adopt", here, "--database", text(&out)]);
    assert_eq!((adopted.status.code(), complaint(&adopted)), (Some(0), String::new()));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let directory = tempfile::tempdir().expect("it works");
    let (archive, _) = archive(directory.path());
    for words in
        [&["archive", "list", text(&archive)][..], &["archive", "status", text(&archive), "--json"]]
    {
        let (read, write) = std::io::pipe().expect("it works");
        drop(read);
        let command = Command::new(env!("CARGO_BIN_EXE_monolite"))
            .args(words)
            .stdin(Stdio::null())
            .stdout(write)
            .output()
            .expect("the command starts");
        assert_eq!((command.status.code(), complaint(&command)), (Some(141), String::new()));
    }
}

/// What `archive status` says of the primary.
fn primary(url: &str) -> Value {
    json(&monolite(&["archive", "status", url, "--json"]))["primary"].take()
}

#[test]
fn archive_of_another_program_is_adopted_and_merged() {
    let directory = tempfile::tempdir().expect("it works");
    let (archive, states) = archive(directory.path());
    let here = text(&archive);
    let refused = monolite(&["archive", "compact", here]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("archive adopt"), "{}", complaint(&refused));
    let adopted = monolite(&["archive", "adopt", here, "--json"]);
    assert_eq!((adopted.status.code(), complaint(&adopted)), (Some(0), String::new()));
    let adopted = json(&adopted);
    assert_eq!((&adopted["epoch"], &adopted["before"]), (&Value::from(1), &Value::Null));
    assert_eq!(adopted["fence"], "0000000000000004");
    assert_eq!(primary(here)["state"], "released");
    let merged = json(&monolite(&["archive", "compact", here, "--snapshot", "--json"]));
    let made = merged["made"].as_array().expect("files were made");
    assert_eq!(made[0]["level"], 1, "{merged}");
    assert_eq!(made[0]["first_txid"], "0000000000000002");
    let last = made.last().expect("there is one");
    // Under the fence's name the next primary may bring a copy.
    assert_eq!((&last["level"], &last["last_txid"]), (&Value::from(9), &"0000000000000003".into()));
    let again = monolite(&["archive", "compact", here, "--snapshot"]);
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(again.status.success() && said.contains("0 files made"), "{said}");
    let out = directory.path().join("out.db");
    let restored = json(&monolite(&["restore", here, "-o", text(&out), "--json"]));
    assert_eq!(restored["files"], 1, "the snapshot has everything");
    assert!(fs::read(&out).unwrap() == fs::read(&states[2]).unwrap());
    assert!(monolite(&["archive", "verify", here]).status.success());
}

fn open_archived(file: &Path, here: &str) -> monolite::Result<Database> {
    let archive = monolite_archive::Archive::at(here).expect("it is a directory");
    let options = monolite::Options::new().durability(monolite::Durability::Archived);
    options.archive(archive).open(file)
}

fn write(db: &Database, sql: &'static str) -> monolite::Result<()> {
    db.write(move |tx| tx.execute_batch(sql)).wait()
}

#[test]
fn archive_of_a_primary_that_is_there_is_taken_over_by_word_alone() {
    let directory = tempfile::tempdir().expect("it works");
    let (file, archive) = (directory.path().join("shop.db"), directory.path().join("archive"));
    let here = text(&archive);
    let open = |file: &Path| open_archived(file, here);
    let old = open(&file).expect("it opens");
    write(&old, "CREATE TABLE t(v); INSERT INTO t VALUES (1)").expect("it is archived");
    let refused = monolite(&["archive", "adopt", here]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("--take-over"), "{}", complaint(&refused));
    write(&old, "INSERT INTO t VALUES (2)").expect("nothing has happened");
    let out = directory.path().join("new.db");
    assert!(monolite(&["restore", here, "-o", text(&out)]).status.success());
    let words = ["archive", "adopt", here, "--take-over", "--database", text(&out)];
    let adopted = monolite(&words);
    assert_eq!((adopted.status.code(), complaint(&adopted)), (Some(0), String::new()));
    assert!(write(&old, "INSERT INTO t VALUES (3)").is_err(), "it is fenced");
    let new = open(&out).expect("it goes on");
    write(&new, "INSERT INTO t VALUES (4)").expect("it is archived");
    new.close().expect("it closes");
    let _ = old.close();
    let again = directory.path().join("again.db");
    assert!(monolite(&["restore", here, "-o", text(&again)]).status.success());
    let db = monolite::rusqlite::Connection::open(&again).expect("it opens");
    let sum: i64 = db.query_row("SELECT sum(v) FROM t", (), |row| row.get(0)).expect("it is whole");
    assert_eq!(sum, 7);
}

#[test]
fn refused_opening_leaves_nothing_that_blocks_the_adoption_which_it_advises() {
    let directory = tempfile::tempdir().expect("it works");
    let (file, archive) = (directory.path().join("shop.db"), directory.path().join("archive"));
    let here = text(&archive);
    let open = |file: &Path| open_archived(file, here);
    let old = open(&file).expect("it opens");
    write(&old, "CREATE TABLE t(v); INSERT INTO t VALUES (1)").expect("it is archived");
    old.close().expect("it closes");
    let out = directory.path().join("new.db");
    assert!(monolite(&["restore", here, "-o", text(&out)]).status.success());
    for _ in 0..2 {
        let refused = open(&out).map(drop).expect_err("it is another file").to_string();
        assert!(refused.contains("monolite archive adopt URL --database FILE"), "{refused}");
    }
    let adopted = monolite(&["archive", "adopt", here, "--database", text(&out)]);
    assert_eq!((adopted.status.code(), complaint(&adopted)), (Some(0), String::new()));
    let new = open(&out).expect("it goes on");
    write(&new, "INSERT INTO t VALUES (2)").expect("it is archived");
    new.close().expect("it closes");
    // It is archived now, and is not taken for new a second time.
    let again = monolite(&["archive", "adopt", here, "--database", text(&out)]);
    assert_eq!(again.status.code(), Some(1));
    assert!(complaint(&again).contains("is archived already"), "{}", complaint(&again));
}

#[test]
fn what_cannot_be_adopted_is_named() {
    let directory = tempfile::tempdir().expect("it works");
    let (archive, states) = archive(directory.path());
    let here = text(&archive);
    for (words, code, said) in [
        (&["/nowhere/at/all"][..], 1, "no files"),
        (&[here, "--database", "/nowhere.db"], 1, "restore it first"),
        (&["ftp://host/place"], 2, "ftp"),
        (&[], 2, "URL"),
    ] {
        let failed = monolite(&[&["archive", "adopt"], words].concat());
        assert_eq!(failed.status.code(), Some(code), "{words:?}");
        assert!(complaint(&failed).contains(said), "{words:?}: {}", complaint(&failed));
        assert_eq!(primary(here), Value::Null, "nothing was done");
    }
    assert_eq!(states.len(), 3);
}

#[test]
fn file_of_options_is_read_and_what_is_wrong_in_it_is_named() {
    let directory = tempfile::tempdir().expect("it works");
    let (archive, _) = archive(directory.path());
    let file = directory.path().join("archive.toml");
    fs::write(&file, "[s3]\nregion = 'eu-central-1'\n").expect("it works");
    let config = ["--config", text(&file)];
    let status =
        |url: &str, config: &[&str]| monolite(&[&["archive", "status", url], config].concat());
    assert!(status(text(&archive), &config).status.success(), "it says nothing of directories");
    fs::write(&file, "[s3]\nsecret_access_key = hunter2\n").expect("it works");
    let failed = status(text(&archive), &config);
    assert_eq!(failed.status.code(), Some(1));
    let said = complaint(&failed);
    assert!(said.contains("archive.toml") && said.contains("line 2"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    let failed = status(text(&archive), &["--config", "/nowhere.toml"]);
    assert!(complaint(&failed).contains("/nowhere.toml"), "{}", complaint(&failed));
}

/// That `status --max-lag` ends with `code` and says why.
fn judged(here: &str, words: &[&str], code: i32, says: &str) {
    let output = monolite(&[&["archive", "status", here], words].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &complaint(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    assert!(said.contains(says), "{words:?}: {said}");
}

#[test]
fn status_tells_an_idle_primary_from_one_that_is_behind_or_gone() {
    let directory = tempfile::tempdir().expect("it works");
    let [file, archive, copies] =
        ["shop.db", "archive", "copies"].map(|name| directory.path().join(name));
    for made in [&archive, &copies] {
        fs::create_dir(made).expect("it is new");
    }
    let (here, is_away) = (text(&archive), Arc::new(AtomicBool::new(false)));
    let faulty = FaultyStore::new(DirectoryStore::new(&archive), {
        let is_away = Arc::clone(&is_away);
        move |_| if is_away.load(Ordering::Relaxed) { Fault::LostRequest } else { Fault::None }
    });
    let to = Archive::of(Arc::new(faulty), Layout::directory());
    let options = Options::new().archive(to).durability(Durability::Archived);
    let db = options.open(&file).expect("it opens");
    db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait().expect("it is archived");
    let beside = ["--max-lag", "100ms", "--database", text(&file)];
    judged(here, &beside, 0, "has archived everything");
    judged(here, &["--max-lag", "1h"], 0, "healthy: the newest file is 0 s old");
    judged(here, &["--max-lag", "0s"], 1, "by this machine's clock: its primary has nothing");

    // Files that no process has open: those of a primary that is gone. Another process copies them,
    // as closing them here would drop our locks.
    let copy = |name: &str| {
        let all = format!("cp -r {0} {0}-wal {0}-archive {1}", text(&file), text(&copies));
        assert!(Command::new("sh").args(["-c", &all]).status().expect("it starts").success());
        copies.join(name)
    };
    let gone = copy("shop.db");
    let beside_gone = ["--max-lag", "100ms", "--database", text(&gone)];
    judged(here, &beside_gone, 1, "no process has");

    is_away.store(true, Ordering::Relaxed);
    let waiting = db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ()));
    while db.stats().wal_bytes == 0 || db.stats().archive.is_none_or(|it| it.lag_ms == 0) {
        std::thread::yield_now();
    }
    judged(here, &beside, 1, "has commits that were not archived within 0.1 s (pid");
    copy("shop.db");
    judged(here, &beside_gone, 1, "(and no process has it open)");
    is_away.store(false, Ordering::Relaxed);
    waiting.wait().expect("the store is back");
    judged(here, &beside, 0, "has archived everything");
    let other = ["--max-lag", "1s", "--database", text(&archive)];
    judged(here, &other, 1, "is not the database of this archive");
    db.close().expect("it closes");
    judged(here, &["--max-lag", "0s"], 0, "healthy: the primary has closed");
}
