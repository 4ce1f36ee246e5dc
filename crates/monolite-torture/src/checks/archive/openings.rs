//! Two files with the same history that are opened at once: one becomes the primary, and what that
//! has acknowledged is in the archive.
//!
//! # Algorithm
//! 1. A database is closed, and its archive adopted for a copy that was restored from it: both may
//!    go on, whoever comes first.
//! 2. One is opened; at its N-th request of the store it is held up. Meanwhile the other is opened,
//!    acknowledges a write, and is closed. Then the first goes on.
//! 3. Who opened wrote on a file that lacks what the other wrote. So it must be refused, or the
//!    other must have been.
//!
//! N is drawn: the requests are those of looking who has the record, of claiming, fencing, and
//! reading what is below the fence. Reading before the fence is what this is to find.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use monolite::{Database, Durability, ErrorKind, Options};
use monolite_archive::{
    Archive, DirectoryStore, Layout,
    internals::{Call, Fault, FaultyStore},
};
use monolite_testkit::markers;

use super::case::{Case, PATIENCE};
use super::play_all;
use crate::checks::writing::Look;
use crate::checks::wrong::Wrong;
use crate::{Outcome, Setting};

/// Requests of an opening before which it may be held up.
const REQUESTS: u64 = 14;

/// How long the archive gathers commits.
const INTERVAL: Duration = Duration::from_millis(5);

pub(super) fn run(setting: &Setting<'_>, amount: u64, outcome: &Mutex<Outcome>) -> Result<()> {
    play_all(setting, "openings", amount, outcome, &|case| case.open_two())
}

impl Case<'_> {
    fn open_two(&mut self) -> Result<()> {
        let one = self.file();
        let first = self.orders(Durability::Archived).first;
        let archive = || Archive::of(Arc::new(self.store()), Layout::directory());
        let db = open(&one, archive())?;
        markers::create(&db)?;
        db.write(move |tx| markers::put(tx, first)).wait()?;
        db.close()?;
        self.ledger.acknowledged.insert(first);
        self.restore(Look::Quick)?;
        self.adopt()?;
        let two = self.file();
        let (held, quick) = if self.rng.bool() { (one, two) } else { (two, one) };
        // They go on where the first life was.
        let first = self.orders(Durability::Archived).first;
        let at = self.rng.u64(1..REQUESTS);
        let ends = self.hold_up(at, (&held, first), (&quick, first + 1))?;
        for (end, id) in ends.iter().zip([first, first + 1]) {
            match end {
                Ok(()) => drop(self.ledger.acknowledged.insert(id)),
                Err(error) if error.kind() == ErrorKind::Fenced => {}
                Err(error) => {
                    let text = format!("held up at request {at}: an opening ends with {error:?}");
                    bail!(Wrong::Other(text));
                }
            }
        }
        let opened = ends.iter().filter(|end| end.is_ok()).count();
        if opened != 1 {
            let text = format!(
                "held up at request {at}, {opened} of two files with one history \
                                became its primary: {ends:?}"
            );
            bail!(Wrong::Other(text));
        }
        self.restore(Look::Quick)
    }

    /// Opens one file, which is held up at a request, and meanwhile the other. Who can, writes.
    fn hold_up(
        &self,
        at: u64,
        held: (&Path, i64),
        quick: (&Path, i64),
    ) -> Result<[Result<(), monolite::Error>; 2]> {
        let ((tell, told), (go, gone)) = (channel(), channel());
        let store = Arc::new(held_up(self.store(), at, tell, gone));
        let archive = |store| Archive::of(store, Layout::directory());
        thread::scope(|scope| {
            let store = archive(store);
            let slow = scope.spawn(move || write_one(held, store));
            while told.recv_timeout(INTERVAL).is_err() && !slow.is_finished() {}
            let quick = write_one(quick, archive(Arc::new(self.store())));
            // It may not have been held up, and then nobody listens.
            let _ = go.send(());
            let slow = slow.join().map_err(|_| anyhow!("an opening panicked"))?;
            Ok([slow, quick])
        })
    }
}

/// A store that tells of its N-th request, and waits before it is done.
fn held_up(
    store: DirectoryStore,
    at: u64,
    tell: Sender<()>,
    gone: Receiver<()>,
) -> FaultyStore<DirectoryStore> {
    let mut requests = 0;
    FaultyStore::new(store, move |_: Call<'_>| {
        requests += 1;
        if requests == at {
            // Should they be gone, it goes on.
            let _ = tell.send(());
            let _ = gone.recv_timeout(PATIENCE);
        }
        Fault::None
    })
}

fn open(file: &Path, archive: Archive) -> Result<Database, monolite::Error> {
    let archive = archive.interval(INTERVAL);
    Options::new().readers(1).archive(archive).durability(Durability::Archived).open(file)
}

/// Opens a file, writes one transaction, and closes it.
fn write_one((file, id): (&Path, i64), archive: Archive) -> Result<(), monolite::Error> {
    let db = open(file, archive)?;
    db.write(move |tx| markers::put(tx, id)).wait()?;
    db.close()
}
