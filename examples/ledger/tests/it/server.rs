//! Ledgers to test: the program as a process of its own, and the service inside the test.

use std::fmt::Debug;
use std::io::{BufRead as _, BufReader, Lines};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use monolite::Database;
use monolite_postgres::Engine;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;

/// The program, killed when dropped.
pub(crate) struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// Starts it; returns when it has begun to open the database.
    pub(crate) fn start(database: &Path, listen: &str) -> Program {
        Program::start_with(database, listen, &[])
    }

    /// The same, with more arguments.
    pub(crate) fn start_with(database: &Path, listen: &str, more: &[&str]) -> Program {
        let more = [&["--listen", listen], more].concat();
        Program::spawn(database, &more, Stdio::null())
    }

    /// The same, listening on a socket that is this process's.
    pub(crate) fn start_on(database: &Path, socket: &TcpListener) -> Program {
        let socket = OwnedFd::from(socket.try_clone().unwrap());
        Program::spawn(database, &["--socket-on-stdin"], Stdio::from(socket))
    }

    /// The proxy in front of ledgers.
    pub(crate) fn proxy(ledgers: &[String]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ledger-proxy"));
        command.args(["--listen", "127.0.0.1:0"]).args(ledgers);
        Program::of(command)
    }

    fn spawn(database: &Path, arguments: &[&str], stdin: Stdio) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
        command.arg("--database").arg(database).args(arguments).stdin(stdin);
        let mut program = Program::of(command);
        program.line("opening ");
        program
    }

    fn of(mut command: Command) -> Program {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Program { child, lines }
    }

    /// Waits until it serves; returns where, as `http://ADDRESS`.
    pub(crate) fn listening(&mut self) -> String {
        self.line("listening on ")
    }

    /// Likewise; `None` when it has ended before.
    pub(crate) fn listens(&mut self) -> Option<String> {
        Some(self.lines.next()?.unwrap().strip_prefix("listening on ")?.to_owned())
    }

    /// The rest of its next line of output, which has to begin as given.
    fn line(&mut self, start: &str) -> String {
        let line = self.lines.next().expect("the ledger has more to say").unwrap();
        line.strip_prefix(start).unwrap_or_else(|| panic!("{line:?} is not {start:?}")).to_owned()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Tells it to stop without waiting for it.
    pub(crate) fn tell_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for a clean end.
    pub(crate) fn ended(mut self) {
        self.line("closed ");
        assert!(self.child.wait().unwrap().success());
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The service on a thread pool of this process, for tests that need their hands on the database.
pub(crate) struct Service {
    pub(crate) base: String,
    _runtime: Runtime,
}

impl Service {
    pub(crate) fn start(db: &Database) -> Service {
        Service::on(
            async |_| db.clone(),
            ledger::SCHEMA,
            |db| ledger::router(db.with_error()).merge(ledger::figures(db.with_error())),
        )
    }

    /// The same on PostgreSQL.
    pub(crate) fn on_postgresql(url: &str, options: monolite_postgres::Options) -> Service {
        let open = async |()| options.open(url).await.unwrap();
        Service::on(open, ledger::SCHEMA_ON_POSTGRESQL, |db| ledger::router(db.with_error()))
    }

    fn on<D: Engine>(
        open: impl AsyncFnOnce(()) -> D,
        schema: &str,
        router: impl FnOnce(&D) -> axum::Router,
    ) -> Service
    where
        D::Error: Debug,
    {
        let runtime = Runtime::new().unwrap();
        let (listener, router) = runtime.block_on(async {
            let db = open(()).await;
            ledger::create_schema(&db, schema).await.unwrap();
            (tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(), router(&db))
        });
        let base = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Service { base, _runtime: runtime }
    }
}
