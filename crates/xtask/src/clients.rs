//! The published clients of libSQL on our server: the programs of `examples/clients`, the rebuilds
//! of tables by tools for migrations, and two suites that come in packages: that of Go's driver,
//! and that of SQLAlchemy.
//!
//! Packages come from their registries, in the versions that files beside the programs pin, into
//! `target/clients`, and stay there. A language whose tools or packages cannot be had is skipped.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

use crate::command::{cargo_path, succeed};

/// The driver of Go, whose module has its suite.
const GO_DRIVER: &str = "github.com/tursodatabase/libsql-client-go";

/// Programs that use HTTP alone.
const HTTP_ONLY: [&str; 3] = ["keyed.js", "web.js", "prisma.js"];

/// The programs with two servers: a primary, and its replica. The latter is to find the primary.
const REPLICA: &str = "replica.js";
const FAILOVER: &str = "failover.js";

/// Where the clients are, and what has become of them.
pub(crate) struct Clients {
    root: PathBuf,
    scratch: PathBuf,
    pub(crate) passed: u64,
    pub(crate) skipped: u64,
    failed: Vec<String>,
}

/// Runs them all, also when some fail.
pub(crate) fn run(root: &Path) -> anyhow::Result<Clients> {
    let build = ["build", "--locked", "--quiet", "--package", "monolite-cli"];
    let mut command = Command::new(cargo_path());
    succeed(command.current_dir(root).args(build).args(["--features", "developer"]))?;
    let (root, scratch) = (root.to_owned(), root.join("target/clients"));
    let mut clients = Clients { root, scratch, passed: 0, skipped: 0, failed: Vec::new() };
    for language in [Clients::javascript, Clients::python, Clients::go] {
        if let Some(why) = language(&mut clients)? {
            println!("skipped: clients: {why}");
            clients.skipped += 1;
        }
    }
    println!("{} programs passed, {} languages skipped", clients.passed, clients.skipped);
    if !clients.failed.is_empty() {
        bail!("{} failed", clients.failed.join(", "));
    }
    Ok(clients)
}

/// Each language runs its programs, or says why it cannot.
impl Clients {
    fn javascript(&mut self) -> anyhow::Result<Option<String>> {
        if let Some(why) = is_older("node", "--version", (20, 0)) {
            return Ok(Some(why));
        }
        let place = self.place("javascript")?;
        let install = "npm ci --ignore-scripts --no-audit --no-fund";
        if !is_installed(&place, "package-lock.json", &[install]) {
            return Ok(Some(format!("{install} failed")));
        }
        // Prisma's command would download an engine, which generating does not use.
        let generate = "PRISMA_SCHEMA_ENGINE_BINARY=/bin/true npx prisma generate";
        self.program("prisma generate", command(&place, "sh").args(["-c", generate]));
        for name in programs(&place, "js")? {
            if [REPLICA, FAILOVER].contains(&&*name) {
                let (primary, replica) = self.serve_both()?;
                let mut urls = [&primary.url, &replica.url];
                if name == FAILOVER {
                    urls.reverse();
                }
                self.program(&name, command(&place, "node").arg(&*name).args(urls));
                continue;
            }
            let served = self.serve()?;
            self.program(&name, command(&place, "node").args([&name, &served.url]));
            if !HTTP_ONLY.contains(&&*name) {
                let (served, shown) = (self.serve()?, format!("{name}, WebSocket"));
                let url = served.url.replacen("http", "ws", 1);
                self.program(&shown, command(&place, "node").args([&name, &url]));
            }
        }
        Ok(None)
    }

    fn python(&mut self) -> anyhow::Result<Option<String>> {
        let place = self.place("python")?;
        let install =
            ["python3 -m venv env", "env/bin/pip install -q -r requirements.txt -r suite.txt"];
        if !is_installed(&place, "requirements.txt", &install) {
            return Ok(Some(format!("{} failed", install.join(" && "))));
        }
        let python = place.join("env/bin/python");
        for name in programs(&place, "py")? {
            let served = self.serve()?;
            self.program(&name, command(&place, &python).args([&name, &served.url]));
        }
        let (served, suite) = (self.serve()?, ["-m", "pytest", "-q", "--tb=short", "--dburi"]);
        let url = served.url.replacen("http", "sqlite+libsql", 1) + "/?secure=false";
        let mut pytest = command(&place.join("suite"), &python);
        self.program("SQLAlchemy's suite", pytest.args(suite).arg(url));
        Ok(None)
    }

    fn go(&mut self) -> anyhow::Result<Option<String>> {
        if let Some(why) = is_older("go", "version", (1, 20)) {
            return Ok(Some(why));
        }
        let place = self.place("go")?;
        if !is_installed(&place, "go.sum", &["go mod download"]) {
            return Ok(Some("go mod download failed".into()));
        }
        let served = self.serve()?;
        self.program("main.go", command(&place, "go").args(["run", ".", &served.url]));
        for transport in ["http", "ws"] {
            let served = self.serve()?;
            let url = served.url.replacen("http", transport, 1);
            let suite = format!("{GO_DRIVER}/tests/{transport}");
            let mut test = command(&place, "go");
            test.args(["test", "-v", "-count=1", "-parallel=1", &suite]);
            test.env(format!("LIBSQL_TEST_{}_DB_URL", transport.to_uppercase()), url);
            self.program(&suite, &mut test);
        }
        Ok(None)
    }

    /// The folder where a language runs, with its programs.
    fn place(&self, language: &str) -> anyhow::Result<PathBuf> {
        let place = self.scratch.join(language);
        fs::create_dir_all(&place)?;
        for from in ["examples/clients", "crates/xtask/clients"] {
            let from = self.root.join(from).join(language);
            if from.exists() {
                succeed(Command::new("cp").arg("-R").arg(from.join(".")).arg(&place))?;
            }
        }
        Ok(place)
    }

    fn program(&mut self, name: &str, command: &mut Command) {
        println!("--> {name}");
        match command.stdin(Stdio::null()).status() {
            Ok(status) if status.success() => self.passed += 1,
            _ => self.failed.push(name.to_owned()),
        }
    }

    /// A server with an empty database.
    fn serve(&self) -> anyhow::Result<Served> {
        let file = self.scratch.join("served.db");
        for ending in ["db", "db-wal", "db-shm"] {
            let _was_not_there = fs::remove_file(file.with_extension(ending));
        }
        self.serve_file(&file, &mut Command::new(self.root.join("target/debug/monolite")))
    }

    /// A server whose database is archived, and one that follows it.
    fn serve_both(&self) -> anyhow::Result<(Served, Served)> {
        let place = self.scratch.join("replica");
        let _was_not_there = fs::remove_dir_all(&place);
        fs::create_dir(&place)?;
        let serve = |file: &str, variable: &str| {
            let mut command = Command::new(self.root.join("target/debug/monolite"));
            command.env(variable, place.join("archive"));
            self.serve_file(&place.join(file), &mut command)
        };
        // It serves once the first copy is archived.
        let primary = serve("primary.db", "MONOLITE_ARCHIVE__URL")?;
        Ok((primary, serve("replica.db", "MONOLITE_FOLLOW__URL")?))
    }

    fn serve_file(&self, file: &Path, command: &mut Command) -> anyhow::Result<Served> {
        command.arg("serve").arg(file).args(["--listen", "127.0.0.1:0"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut served = Served { child: child.context("no server starts")?, url: String::new() };
        let output = served.child.stdout.take().context("the output is a pipe")?;
        BufReader::new(output).read_line(&mut served.url)?;
        let url = served.url.trim().strip_prefix("serving ");
        served.url = url.context("the server does not say its address")?.to_owned();
        Ok(served)
    }
}

/// A server, until it is dropped.
struct Served {
    child: Child,
    url: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _has_ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn command(place: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(place);
    command
}

/// The programs of a folder, in order.
fn programs(place: &Path, ending: &str) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(place)?.collect::<Result<Vec<_>, _>>()?;
    let names = entries.iter().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names
        // Those are for `monolite bench server`, which says to them what to do.
        .filter(|name| !name.starts_with("bench.") && name.ends_with(&format!(".{ending}")))
        .collect();
    names.sort();
    Ok(names)
}

/// Whether `lines` have installed what the file `pins` says, now or before.
pub(crate) fn is_installed(place: &Path, pins: &str, lines: &[&str]) -> bool {
    let (pins, done) = (fs::read(place.join(pins)), place.join("installed"));
    let Ok(pins) = pins else { return false };
    let run = |line: &&str| {
        let status = command(place, "sh").args(["-c", line]).stdin(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    fs::read(&done).is_ok_and(|before| before == pins)
        || lines.iter().all(run) && fs::write(&done, pins).is_ok()
}

/// Says that `program` is older than `least`, or not there.
pub(crate) fn is_older(program: &str, asks: &str, least: (u32, u32)) -> Option<String> {
    let Ok(output) = Command::new(program).arg(asks).output() else {
        return Some(format!("there is no {program}"));
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok());
    let version = numbers.next().zip(numbers.next());
    (version < Some(least)).then(|| format!("{program} is too old: {}", text.trim()))
}
