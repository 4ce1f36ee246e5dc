//! The shell as its users run it: from a pipe, with `-c`, and on a terminal.

mod terminal;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::complaint;

/// Has the writer until the server's limit of a write, five seconds.
const SLOW: &str = "INSERT INTO t WITH RECURSIVE c(n) AS \
                    (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1e12) SELECT sum(n) FROM c";

fn shell(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
    command.arg("sql").args(words).stdin(Stdio::null());
    command
}

/// Runs the shell on `target` with `-c`.
fn run(target: &str, sql: &str) -> Output {
    shell(&[target, "-c", sql]).output().expect("it runs")
}

/// Runs it with `script` in its standard input.
fn piped(target: &str, script: &str) -> Output {
    let mut child = shell(&[target]);
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("it is a pipe");
    // One that ends early reads no more.
    let _ = input.write_all(script.as_bytes());
    drop(input);
    child.wait_with_output().expect("it ends")
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("it is UTF-8")
}

/// A directory, and the path of a database in it.
fn place() -> (TempDir, String) {
    let directory = tempfile::tempdir().expect("it works");
    let file = directory.path().join("shop.db").to_str().expect("the name is plain").to_owned();
    (directory, file)
}

/// `monolite serve`, killed when this is dropped.
pub(crate) struct Served {
    pub(crate) process: Child,
    url: String,
    pub(crate) admin: String,
}

impl Served {
    pub(crate) fn start<W: AsRef<OsStr>>(words: &[W]) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
        let command = command.args(["serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0"]);
        // A user who has set it for the shell can start a server.
        let command = command.args(words).env("MONOLITE_TOKEN", "one").stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().expect("it is a pipe")).lines();
        let mut url = |before: &str| {
            let line = lines.next().expect("it says where").expect("it is text");
            line.strip_prefix(before).expect(&line).to_owned()
        };
        let (url, admin) = (url("serving "), url("figures and dashboard at "));
        Served { process, url, admin }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn statements_run_in_order_to_the_first_error_and_its_line_is_told() {
    let (_directory, file) = place();
    let script = "CREATE TABLE t(v);\n\nINSERT INTO t\nVALUES (';'); SELECT v FROM t;\n\
                  SELECT\n  absent;\nDELETE FROM t;\n";
    let output = piped(&file, script);
    assert_eq!((output.status.code(), &*said(&output)), (Some(1), ";\n"));
    let told = complaint(&output);
    assert!(told.starts_with("error: line 5: no such column: absent"), "{told}");
    let output = run(&file, "SELECT count(*), NULL, 'a|b' FROM t");
    assert_eq!((output.status.code(), &*said(&output)), (Some(0), "1||a|b\n"));
}

#[test]
fn a_trigger_is_one_statement_and_a_file_of_statements_is_read() {
    let (directory, file) = place();
    let script = directory.path().join("schema.sql");
    let sql = "CREATE TABLE t(v); CREATE TRIGGER twice AFTER INSERT ON t WHEN new.v < 2 BEGIN\n\
               INSERT INTO t VALUES (new.v + 1);\nEND;\nCREATE INDEX t_v ON t(v);\nSELEC;\n";
    std::fs::write(&script, sql).expect("it works");
    let read = piped(&file, &format!(".read {}\n", script.display()));
    assert_eq!(read.status.code(), Some(1));
    let told = complaint(&read);
    assert!(told.contains("line 1: ") && told.contains("schema.sql: line 5: near"), "{told}");
    let sql = "INSERT INTO t VALUES (1); SELECT sum(v) FROM t;\n.tables\n.indexes\n.schema T_V\n\
               .mode json\nSELECT 1 AS one;\n.quit\n.no\n";
    let output = piped(&file, sql);
    let expected = "3\nt\nt_v on t\nCREATE INDEX t_v ON t(v);\n[{\"one\":1}]\n";
    assert_eq!((output.status.code(), &*said(&output)), (Some(0), expected));
    std::fs::write(&script, format!(".read {}\n", script.display())).expect("it works");
    let endless = piped(&file, &format!(".read {}\n", script.display()));
    assert_eq!(endless.status.code(), Some(1));
    assert!(complaint(&endless).contains("16 files read one another"), "{}", complaint(&endless));
    let output = piped(&file, "SELECT\n1;\n.tabels\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        complaint(&output).contains("line 3: there is no command .tabels; did you mean .tables?"),
        "{}",
        complaint(&output)
    );
}

#[test]
fn csv_is_quoted() {
    let (_directory, file) = place();
    let sql = "SELECT 'a,\"b\"' AS \"x,y\", NULL AS n, '' AS e, x'00ff' AS b, 0.5 AS r";
    let output = shell(&[&file, "--mode", "csv", "-c", sql]).output().expect("it runs");
    assert_eq!(said(&output), "\"x,y\",n,e,b,r\n\"a,\"\"b\"\"\",,\"\",x'00ff',0.5\n");
}

#[test]
fn a_transaction_is_kept_when_it_commits_alone() {
    let (_directory, file) = place();
    let (_other, of_server) = place();
    let served = Served::start(&[&of_server]);
    for target in [&file, &served.url] {
        assert_eq!(run(target, "CREATE TABLE t(v)").status.code(), Some(0));
        let count = "SELECT count(*) FROM t;";
        let committed = run(target, &format!("BEGIN; INSERT INTO t VALUES (1); COMMIT; {count}"));
        assert_eq!((committed.status.code(), &*said(&committed)), (Some(0), "1\n"));
        let rolled_back = run(target, &format!("BEGIN; DELETE FROM t; {count} ROLLBACK; {count}"));
        assert_eq!((rolled_back.status.code(), &*said(&rolled_back)), (Some(0), "0\n1\n"));
        for sql in ["BEGIN; DELETE FROM t;", "BEGIN; DELETE FROM t; SELEC; COMMIT"] {
            assert_eq!(run(target, sql).status.code(), Some(1));
            assert_eq!(said(&run(target, count)), "1\n");
        }
        let told = complaint(&run(target, "BEGIN; DELETE FROM t"));
        assert!(told.contains("was not committed"), "{told}");
    }
}

#[test]
fn a_file_that_a_server_has_is_refused_with_the_way_to_it() {
    let (_directory, file) = place();
    let served = Served::start(&[&file]);
    assert_eq!(run(&served.url, "CREATE TABLE t(v)").status.code(), Some(0));
    let refused = run(&file, "SELECT 1");
    assert_eq!(refused.status.code(), Some(1));
    let told = complaint(&refused);
    assert!(told.contains("monolite sql http://") && !told.contains("Options::"), "{told}");
}

#[test]
fn wrong_words_have_their_exit_status() {
    let (directory, file) = place();
    for words in [&["ftp://localhost/"][..], &["http://localhost", "--read-only"], &[]] {
        let output = shell(words).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", complaint(&output));
    }
    let absent = shell(&[&file, "--read-only"]).output().expect("it runs");
    assert_eq!(absent.status.code(), Some(1));
    assert_eq!(std::fs::read_dir(directory.path()).expect("it works").count(), 0);
    run(&file, "CREATE TABLE t(v)");
    let write = shell(&[&file, "--read-only", "-c", "DELETE FROM t"]).output().expect("it runs");
    assert_eq!(write.status.code(), Some(1));
    assert!(complaint(&write).contains("readonly"), "{}", complaint(&write));
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let (_directory, file) = place();
    let sql = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 100000) \
               SELECT n FROM c";
    let mut child = shell(&[&file, "-c", sql]);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    let mut first = [0; 2];
    child.stdout.take().expect("it is a pipe").read_exact(&mut first).expect("a line comes");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), &first, complaint(&output)), (Some(141), b"1\n", "".into()));
}

/// Tokens for `names`, and the configuration of a server that knows them.
fn tokens(directory: &Path, names: &[&str]) -> (PathBuf, Vec<String>) {
    let file = directory.join("tokens.toml");
    let token = |name: &&str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
        let made = command.args(["token", name, "--file"]).arg(&file).output().expect("it runs");
        said(&made).trim().to_owned()
    };
    let tokens = names.iter().map(token).collect();
    let config = directory.join("monolite.toml");
    std::fs::write(&config, format!("[auth]\ntoken_file = {file:?}\n")).expect("it works");
    (config, tokens)
}

#[test]
fn who_names_the_client_that_has_the_writer() {
    let (directory, file) = place();
    let (config, tokens) = tokens(directory.path(), &["checkout", "operator"]);
    let served = Served::start(&["--config".as_ref(), config.as_os_str(), file.as_ref()]);
    let mut create = shell(&[&served.url, "-c", "CREATE TABLE t(v)"]);
    assert_eq!(create.output().expect("it runs").status.code(), Some(1), "it has no token");
    let created = create.env("MONOLITE_TOKEN", &tokens[0]).output().expect("it runs");
    assert_eq!(created.status.code(), Some(0), "{}", complaint(&created));
    let mut slow = shell(&[&served.url, "-c", SLOW]);
    let slow = slow.env("MONOLITE_TOKEN", &tokens[0]).stderr(Stdio::null());
    let mut slow = slow.spawn().expect("it starts");
    let began = Instant::now();
    let words = [&served.url, "--admin", &served.admin, "--mode", "json", "-c", ".who"];
    let who = || {
        let output = shell(&words).env("MONOLITE_TOKEN", &tokens[1]).output().expect("it runs");
        serde_json::from_str(&said(&output)).unwrap_or(Value::Null)
    };
    let named: Value = loop {
        let now: Value = who();
        // It has the writer for a moment before its statement begins.
        if now[0]["what"] == "write, has the writer" && now[0]["statement"].is_string() {
            break now[0].clone();
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{now}");
    };
    assert_eq!(named["who"], "checkout");
    assert!(named["statement"].as_str().is_some_and(|it| it.contains("RECURSIVE")), "{named}");
    // It has the writer for five seconds, so this is not late.
    assert!(slow.try_wait().expect("it works").is_none(), "{named}");
    println!("named {:?} after its start, as {named}", began.elapsed());
    slow.wait().expect("it ends");
}
