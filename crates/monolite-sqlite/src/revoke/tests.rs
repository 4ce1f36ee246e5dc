//! A revocation beside a call into SQLite that does not return.

use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rusqlite::functions::FunctionFlags;

use super::*;
use crate::vfs::{Direct, Lower, Vfs, WalControl};
use crate::{Connection, Role, Settings};

fn open(path: &Path, vfs: &Vfs, role: Role) -> Connection {
    let settings = Settings::new(vfs.name());
    Connection::open(path, role, &settings).unwrap()
}

#[test]
fn a_revocation_does_not_wait_for_a_call_into_sqlite() {
    let direct = Direct::new(Arc::new(WalControl::keeping_frames(u64::MAX)));
    let vfs = Vfs::register(Lower::UnixExcl, Arc::new(direct)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.db");
    let _writer = open(&path, &vfs, Role::Writer);
    let reader = open(&path, &vfs, Role::Reader);
    let ((come, came), (let_go, gate)) = (channel(), channel::<()>());
    let gate = Mutex::new(gate);
    let held = move |_: &rusqlite::functions::Context<'_>| {
        come.send(()).unwrap();
        Ok(gate.lock().unwrap().recv().is_ok())
    };
    reader.raw().create_scalar_function("held", 0, FunctionFlags::SQLITE_UTF8, held).unwrap();
    let revoker = reader.revoker();
    let user = thread::spawn(move || {
        reader.begin_read().unwrap();
        // Whether it is interrupted behind the call does not matter here.
        let _ = reader.raw().query_row("SELECT held()", [], |_| Ok(()));
        reader
    });
    came.recv().unwrap();
    let (end, ended) = channel();
    let other = revoker.clone();
    thread::spawn(move || end.send(other.revoke()));
    let outcome = ended.recv_timeout(Duration::from_secs(10));
    assert_eq!(outcome, Ok(Revocation::Interrupted), "it waits for the call");
    let_go.send(()).unwrap();
    let mut reader = user.join().unwrap();
    assert!(reader.is_in_transaction());
    assert_eq!(revoker.revoke(), Revocation::Ended);
    assert!(!reader.is_in_transaction());
    assert!(reader.with_statement("SELECT 1", |_| ()).is_err());
    reader.restore_after_revocation().unwrap();
    reader.with_statement("SELECT 1", |_| ()).unwrap();
}
