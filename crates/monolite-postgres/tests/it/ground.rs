//! A server with a proxy before it, and a database for the test.

use std::fs::OpenOptions;
use std::io::Write as _;

use monolite_postgres::{Database, Options};
use monolite_testkit::postgres::{Reach, Server, find_binaries};
use monolite_testkit::postgres_proxy::{Profile, Proxy};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(crate) struct Ground {
    pub(crate) runtime: Runtime,
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    _directory: TempDir,
}

impl Ground {
    /// Says in the list of the gate that `test` could not run, where there is no PostgreSQL.
    pub(crate) fn of(test: &str) -> Option<Ground> {
        Ground::reached(test, Reach::Loopback)
    }

    pub(crate) fn reached(test: &str, reach: Reach) -> Option<Ground> {
        if let Err(reason) = find_binaries() {
            if let Some(list) = std::env::var_os("MONOLITE_SKIPS") {
                let file = OpenOptions::new().append(true).create(true).open(list);
                writeln!(file.unwrap(), "postgres: {test}: {reason}").unwrap();
            }
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(directory.path(), 1 << 28, 1 << 28, reach).unwrap();
        let proxy = Proxy::start(server.port()).unwrap();
        let runtime = Runtime::new().unwrap();
        Some(Ground { runtime, server, proxy, _directory: directory })
    }

    /// Opens the database through the proxy, which behaves from then on as `profile` says.
    pub(crate) fn open(&self, options: Options, profile: Profile) -> Database {
        self.proxy.set(Profile::Plain);
        let url = format!("postgres://monolite@127.0.0.1:{}/postgres", self.proxy.port());
        let db = self.runtime.block_on(options.open(&url)).unwrap();
        self.proxy.set(profile);
        db
    }
}
