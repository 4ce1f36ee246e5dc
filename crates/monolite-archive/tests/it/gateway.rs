//! A bucket that is served by another program.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::programs::{KEYS, Running, Site, wait_for};

/// Versity's gateway with a bucket, `test`, that is a directory.
pub(crate) struct Gateway {
    root: TempDir,
    pub(crate) port: u16,
    _process: Running,
}

impl Gateway {
    pub(crate) fn start(program: &Path) -> Gateway {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("test")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(["--quiet", "--port", &format!("127.0.0.1:{port}")]);
        command.args(["--access", KEYS[0], "--secret", KEYS[1], "posix"]).arg(root.path());
        let process = Running::start(&mut command);
        wait_for("the gateway listens", 60, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Gateway { root, port, _process: process }
    }

    /// A place in its bucket, reached through `port`.
    pub(crate) fn site(&self, prefix: &str, port: u16) -> Site {
        let place = format!("s3://test/{prefix}?endpoint=http://127.0.0.1:{port}&region=us-east-1");
        Site {
            ours: format!(
                "{place}&allow_http=true&access_key_id={}&secret_access_key={}",
                KEYS[0], KEYS[1]
            ),
            theirs: format!("{place}&forcePathStyle=true"),
            files: self.root.path().join("test").join(prefix),
        }
    }
}
