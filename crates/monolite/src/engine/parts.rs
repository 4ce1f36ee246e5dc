//! Makes the parts of an engine from its options and the opened files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use monolite_sqlite::vfs::WalControl;
use monolite_sqlite::{Connection, Rowids};

use super::primary::ArchiveSide;
use crate::activity::slow::SlowLog;
use crate::backup;
use crate::backup::pins::BackupPins;
use crate::call::between::BetweenBatches;
use crate::call::in_flight::InFlight;
use crate::call::inside::DatabaseId;
use crate::call::write_queue::WriteQueue;
use crate::checkpoint::Checkpoints;
use crate::clock::{Clock, Deadline};
use crate::files::open::Opened;
use crate::files::wal::WalFile;
use crate::lookout::Lookout;
use crate::options::{Durability, Options, Sharing};
use crate::progress::{Observers, Progress};
use crate::read::handle::ReadSide;
use crate::read::holders::{SnapshotHolder, SnapshotHolders};
use crate::read::readers::{OpenReader, Readers};
use crate::read::threads::{ReadThreads, WorkKind};
use crate::stats::Recorder;
use crate::threads::Awake;
use crate::transaction::{Contention, Limits, Pool, PoolOpener, Transactions};
use crate::untrusted::UntrustedRoom;
use crate::watchdog::Watchdog;
use crate::write::answers::Answers;
use crate::write::sync::{Handover, Syncer};
use crate::write::writer::Writer;

/// What most parts are made with.
pub(super) struct Base<'o> {
    pub(super) database: DatabaseId,
    pub(super) options: &'o Options,
    pub(super) progress: Arc<Progress>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) awake: Arc<Awake>,
}

/// Those who are told of batches: the turns of interactive transactions, and the archive.
pub(super) fn observers(
    transactions: &Transactions,
    archive: Option<&ArchiveSide>,
) -> Arc<Observers> {
    let archive = archive.map(|archive| Arc::new(archive.clone()) as _);
    [Arc::clone(&transactions.contention) as _].into_iter().chain(archive).collect()
}

impl<'o> Base<'o> {
    /// For the database at `path`.
    pub(super) fn new(options: &'o Options, path: &Path) -> Base<'o> {
        let database = DatabaseId::new();
        let (progress, recorder, awake): (Arc<Progress>, Arc<Recorder>, _) = Default::default();
        progress.events.are_of(path);
        recorder.events().are_of(path);
        Base { database, options, progress, recorder, awake }
    }

    fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    fn recorder(&self) -> Arc<Recorder> {
        Arc::clone(&self.recorder)
    }

    fn slow_log(&self) -> SlowLog {
        let log = self.recorder.slow_transactions.clone();
        SlowLog { above: self.options.slow_transaction, log }
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.options.clock)
    }

    pub(super) fn write_queue(&self) -> Arc<WriteQueue> {
        let Base { database, options, .. } = *self;
        let queue = WriteQueue::new(database, options.queue_capacity, self.progress());
        let waits = options.durability.archive_wait(options.archive_time_limit());
        Arc::new(queue.awaiting_archive(waits))
    }

    pub(super) fn backups(&self, opened: &Opened, queue: &Arc<WriteQueue>) -> backup::Source {
        backup::Source {
            database: opened.path.clone(),
            open_reader: Arc::clone(&opened.open_reader),
            between: Arc::new(BetweenBatches::new(Arc::clone(queue), self.progress())),
            progress: self.progress(),
            wal: Arc::clone(&opened.wal),
            pins: Arc::new(BackupPins::new(self.clock(), self.progress())),
            is_exclusive: self.options.sharing == Sharing::Exclusive,
            is_verified: self.options.page_checksums,
        }
    }

    /// The threads of one kind of `work`, which have the database looked at while they run.
    fn threads_for(&self, work: WorkKind, count: usize) -> Arc<ReadThreads> {
        let (capacity, patience) = (self.options.queue_capacity, self.options.read_time_limit);
        ReadThreads::new(work, count, capacity, patience, self.clock())
    }

    pub(super) fn writer(
        &self,
        connection: Connection,
        deadline: Arc<Deadline>,
        wal: &Arc<WalControl>,
    ) -> Writer {
        let (recorder, progress) = (self.recorder(), self.progress());
        Writer::new(connection, deadline, self.options, recorder, progress, Arc::clone(wal))
    }

    /// What syncs the WAL and tells those who wait for it.
    pub(super) fn syncer(
        &self,
        wal: &Arc<WalFile>,
        durability: Durability,
        answers: &Arc<Answers>,
        queue: &Arc<WriteQueue>,
        observers: Arc<Observers>,
    ) -> Arc<Syncer> {
        Arc::new(Syncer {
            handover: Handover::default(),
            answers: Arc::clone(answers),
            wal: Arc::clone(wal),
            looked: AtomicU64::new(0),
            durability,
            progress: self.progress(),
            queue: Arc::clone(queue),
            recorder: self.recorder(),
            clock: self.clock(),
            observers,
        })
    }

    pub(super) fn checkpoints(
        &self,
        wal: &Arc<WalControl>,
        archive: Option<&ArchiveSide>,
        holders: &Arc<SnapshotHolders>,
    ) -> Arc<Checkpoints> {
        let (wal, holders) = (Arc::clone(wal), Arc::clone(holders));
        let archiving = archive.map(|archive| Arc::clone(&archive.archiving));
        Arc::new(Checkpoints::new(wal, holders, archiving, self.options, self.recorder()))
    }

    pub(super) fn lookout(
        &self,
        queue: &Arc<WriteQueue>,
        in_flight: &Arc<InFlight>,
        holders: &Arc<SnapshotHolders>,
        threads: [&Arc<ReadThreads>; 3],
    ) -> Arc<Lookout> {
        let (queue, in_flight) = (Arc::clone(queue), Arc::clone(in_flight));
        let holders = Arc::clone(holders);
        let threads = threads.map(Arc::clone);
        let events = self.recorder.events().clone();
        Arc::new(Lookout::new(queue, in_flight, holders, threads, self.options, events))
    }

    pub(super) fn watchdog(
        &self,
        queue: &Arc<WriteQueue>,
        in_flight: &Arc<InFlight>,
        holders: Arc<SnapshotHolders>,
        lookout: &Arc<Lookout>,
    ) -> Arc<Watchdog> {
        let (queue, in_flight) = (Arc::clone(queue), Arc::clone(in_flight));
        let (lookout, awake) = (Arc::clone(lookout), Arc::clone(&self.awake));
        let (options, recorder) = (self.options, self.recorder());
        Arc::new(Watchdog::new(awake, queue, in_flight, holders, lookout, options, recorder))
    }

    /// What reads go through, and what streams do.
    pub(super) fn read_sides(
        &self,
        open: &OpenReader,
        keep_snapshots: bool,
        archive: Option<&ArchiveSide>,
    ) -> (Arc<ReadSide>, Arc<ReadSide>) {
        let side = |work| {
            let (open, progress) = (Arc::clone(open), self.progress());
            let Base { database, options, .. } = *self;
            let threads = self.threads_for(work, options.readers);
            let readers = Readers::new(
                open,
                database,
                keep_snapshots,
                options,
                progress,
                Arc::clone(&self.awake),
                self.slow_log(),
            );
            let (readers, progress) = (Arc::new(readers), self.progress());
            let archived = archive.map(ArchiveSide::wait);
            Arc::new(ReadSide { database, readers, progress, archived, threads })
        };
        (side(WorkKind::Reads), side(WorkKind::Streams))
    }

    pub(super) fn pool(&self, opener: PoolOpener, wal: &Arc<WalControl>) -> Arc<Pool> {
        let (wal, awake) = (Arc::clone(wal), Arc::clone(&self.awake));
        Arc::new(Pool::new(opener, self.options, self.progress(), wal, awake, self.slow_log()))
    }

    pub(super) fn untrusted(&self, open: OpenReader) -> Arc<UntrustedRoom> {
        let Base { database, options, .. } = *self;
        let (most, clock) = (options.untrusted_threads, self.clock());
        Arc::new(UntrustedRoom::new(database, open, most, clock, self.progress()))
    }

    /// All whose snapshots can keep the WAL.
    pub(super) fn holders(
        &self,
        reads: &Arc<ReadSide>,
        pool: &Arc<Pool>,
        streams: &Arc<ReadSide>,
        backups: &backup::Source,
        untrusted: &Arc<UntrustedRoom>,
    ) -> Arc<SnapshotHolders> {
        let all: Vec<Arc<dyn SnapshotHolder>> = vec![
            reads.readers.clone(),
            pool.clone(),
            streams.readers.clone(),
            backups.pins.clone(),
            untrusted.clone(),
        ];
        Arc::new(SnapshotHolders::new(all, self.options, self.progress(), self.recorder()))
    }

    pub(super) fn transactions(
        &self,
        pool: Arc<Pool>,
        writes: &Arc<WriteQueue>,
        rowids: Option<&Rowids>,
    ) -> Arc<Transactions> {
        let Base { database, options, .. } = *self;
        let counted = |by: fn(&Rowids) -> &Arc<AtomicUsize>| {
            rowids.map_or_else(Arc::default, |rowids| Arc::clone(by(rowids)))
        };
        Arc::new(Transactions {
            database,
            pool,
            progress: self.progress(),
            threads: self.threads_for(WorkKind::Statements, options.readers),
            writes: Arc::clone(writes),
            limits: Limits::of(options),
            clock: self.clock(),
            recorder: self.recorder(),
            contention: Contention::new(database, options, self.recorder()),
            open: counted(Rowids::open_transactions),
            all: Arc::default(),
            bytes: counted(Rowids::step_bytes),
        })
    }
}
