//! Installs the built packages, without a registry, and serves a database with each.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{Packages, VERSION};
use crate::command::succeed;

pub(crate) fn check(packages: &Packages) -> anyhow::Result<()> {
    let Packages { wheel, npm, work } = packages;
    let mut pip = Command::new(work.join("venv/bin/pip"));
    succeed(pip.args(["install", "--quiet", "--no-index"]).arg(wheel))?;
    let project = work.join("installed");
    fs::create_dir_all(&project)?;
    fs::write(project.join("package.json"), "{}")?;
    let mut install = Command::new("npm");
    install.args(["install", "--offline", "--silent"]).args(npm).current_dir(&project);
    succeed(&mut install)?;
    for command in ["venv/bin/monolite", "installed/node_modules/.bin/monolite"] {
        // To the process alone; and to all, as a service manager does, where the binary gets it
        // twice.
        for receivers in ["", "-"] {
            serve(&work.join(command), &project, receivers)
                .with_context(|| format!("{command}, stopped by kill {receivers}PID"))?;
        }
    }
    // Where the package of the platform is not.
    let mut alone = Command::new("node");
    let alone = alone.arg(work.join("npm/monolite/monolite.js")).output()?;
    let said = String::from_utf8_lossy(&alone.stderr);
    ensure!(alone.status.code() == Some(1) && said.contains("is not installed"), "{said}");
    println!("the wheel and the packages of npm are installed, serve, and stop");
    Ok(())
}

/// Serves a database with `command`, inserts a row, and stops it.
fn serve(command: &Path, directory: &Path, receivers: &str) -> anyhow::Result<()> {
    let version = Command::new(command).arg("--version").output()?;
    ensure!(version.stdout == format!("monolite {VERSION}\n").as_bytes(), "{version:?}");
    let mut serve = Command::new(command);
    serve.args(["serve", "app.db", "--listen", "127.0.0.1:0"]).current_dir(directory);
    let mut child = serve.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let inserted = insert(child.stdout.take().context("it has an output")?);
    let kill = format!("kill -s TERM -- {receivers}{}", child.id());
    succeed(Command::new("sh").args(["-c", &kill]))?;
    let status = child.wait()?;
    inserted?;
    ensure!(status.success(), "it ended with {status}");
    // A process that was left behind would have the file to itself.
    let check = Command::new(command).args(["check", "app.db"]).current_dir(directory).output()?;
    ensure!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    Ok(())
}

fn insert(said: impl Read) -> anyhow::Result<()> {
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    let address = line.trim_end().strip_prefix("serving http://").context("no address")?;
    let steps = ["CREATE TABLE IF NOT EXISTS t(x)", "INSERT INTO t VALUES (42) RETURNING x"];
    let steps = steps.map(|sql| json!({ "stmt": { "sql": sql } }));
    let body = json!({ "batch": { "steps": steps } }).to_string();
    let head = "POST /v1/batch HTTP/1.1\r\nhost: localhost\r\nconnection: close";
    let mut socket = TcpStream::connect(address)?;
    write!(socket, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    ensure!(answer.contains("200 OK") && answer.contains("\"42\""), "{answer}");
    Ok(())
}
