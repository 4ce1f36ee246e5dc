//! `monolite serve` as a process: how it is stopped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::sql::Served;

fn terminate(child: &Child) {
    let kill = format!("kill -s TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().is_ok_and(|status| status.success()));
}

/// A launcher and its service manager send it twice.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_monolite"))
        .args(["serve", "a.db", "--listen", "127.0.0.1:0"])
        .current_dir(&directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("serving http://").unwrap();
    // A request under way keeps the server from ending at once.
    let mut request = TcpStream::connect(address).unwrap();
    let head = "POST /v1/execute HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n";
    request.write_all(head.as_bytes()).unwrap();
    terminate(&child);
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(errors.any(|line| line.unwrap().contains("stopping")));
    terminate(&child);
    drop(request);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_database_of_a_server_is_migrated_by_its_admin_address() {
    let directory = tempfile::tempdir().unwrap();
    let migrations = directory.path().join("migrations");
    std::fs::create_dir(&migrations).unwrap();
    let write = |name: &str, sql: &str| std::fs::write(migrations.join(name), sql).unwrap();
    let first = "CREATE TABLE t(id INTEGER PRIMARY KEY, n);
        INSERT INTO t WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT 60000)
        SELECT i, i FROM x";
    write("0001_t.sql", first);
    std::fs::write(directory.path().join("shop.db"), "").unwrap();
    let mut server = Served::start(&[Path::new("--dir"), directory.path()]);
    let url = format!("{}/db/shop/", server.admin);
    let begin = |verb: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
        command.args(["migrate", verb, &url]).current_dir(&directory);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let said = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let migrate = |verb: &str| said(begin(verb));
    let verified = migrate("verify");
    assert!(verified.0 == Some(1) && verified.1.contains("0001_t.sql is pending"), "{verified:?}");
    let up = migrate("up");
    assert!(up.0 == Some(0) && up.1.contains("applied  ") && up.1.contains("0001_t"), "{up:?}");

    let table = "-- monolite: rebuild=t online\nCREATE TABLE t(id INTEGER PRIMARY KEY, n CHECK \
        (n <> 55000), more)";
    write("0002_n.sql", table);
    let plan = migrate("plan");
    assert!(plan.1.contains("rebuilds t: 60000 rows, 0 indexes; online"), "{plan:?}");
    // What the server refuses is said, and where it is.
    let up = migrate("up");
    assert!(up.0 == Some(1) && up.1.matches("id 55000: CHECK").count() == 1, "{up:?}");
    let status = migrate("status");
    assert!(
        status.1.contains("online   0002_n.sql: t is copied, 60000 rows; changed and ref"),
        "{status:?}"
    );
    assert!(
        status.1.contains("refused  by the last `migrate up`: of t, 1 row cannot"),
        "{status:?}"
    );
    let aborted = migrate("abort");
    assert_eq!(aborted, (Some(0), "pending  0002_n.sql\n".into()));
    write("0002_n.sql", &table.replace("55000", "0"));

    let up = migrate("up");
    assert!(up.0 == Some(0) && up.1.contains("0002_n"), "{up:?}");
    assert_eq!(migrate("verify").0, Some(0));

    // Each row takes long to check, by itself, so rows are being copied whenever it is looked.
    let slow = "-- monolite: rebuild=t online\nCREATE TABLE t(id INTEGER PRIMARY KEY, n CHECK \
        (length(replace(hex(zeroblob(50000 + n % 2)), '00', 'ab')) > 0), more)";
    write("0003_n.sql", slow);
    let mut up = begin("up");
    while !migrate("status").1.contains("online   0003_n.sql: copying t") {
        assert!(up.try_wait().unwrap().is_none(), "it ended: {:?}", said(up));
    }
    terminate(&up);
    let up = said(up);
    assert!(up.0 == Some(130) && up.1.contains("stopped: the server ends the migr"), "{up:?}");
    let status = migrate("status");
    assert!(status.1.contains("rows; `migrate up` goes on"), "no rate is told: {status:?}");
    assert_eq!(migrate("abort").0, Some(0));
    terminate(&server.process);
    assert!(server.process.wait().unwrap().success());
}
