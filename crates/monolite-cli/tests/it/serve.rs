//! `monolite serve` as a process: how it is stopped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

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
