//! Makes the parts of an engine from its options and the opened files.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use monolite_sqlite::vfs::WalControl;

use super::primary::ArchiveSide;
use crate::archive::Archiving;
use crate::backup;
use crate::backup::pins::Pins;
use crate::call::between::BetweenBatches;
use crate::call::in_flight::InFlight;
use crate::call::inside::DatabaseId;
use crate::call::write_queue::WriteQueue;
use crate::checkpoint::Checkpoints;
use crate::files::open::Opened;
use crate::files::wal::WalFile;
use crate::options::{Durability, Options, Sharing};
use crate::progress::Progress;
use crate::read::handle::{ReadSide, WaitForArchive};
use crate::read::holders::{SnapshotHolder, SnapshotHolders};
use crate::read::readers::{OpenReader, Reader, Readers};
use crate::read::threads::{ReadThreads, Work};
use crate::stats::Recorder;
use crate::transaction::{Contention, Limits, Pool, PoolOpener, Transactions};
use crate::untrusted::UntrustedRoom;
use crate::watchdog::Watchdog;
use crate::write::answers::Answers;
use crate::write::sync::{Handover, Syncer};

pub(super) fn write_queue(
    database: DatabaseId,
    options: &Options,
    progress: &Arc<Progress>,
) -> Arc<WriteQueue> {
    let queue = WriteQueue::new(database, options.queue_capacity, Arc::clone(progress));
    let waits = options.durability == Durability::Archived;
    Arc::new(queue.awaiting_archive(waits.then_some(options.archive_time_limit())))
}

pub(super) fn backups(
    opened: &Opened,
    queue: &Arc<WriteQueue>,
    options: &Options,
    progress: &Arc<Progress>,
) -> backup::Source {
    let between = BetweenBatches::new(Arc::clone(queue), Arc::clone(progress));
    let pins = Pins::new(Arc::clone(&options.clock), Arc::clone(progress));
    backup::Source {
        database: opened.path.clone(),
        open_reader: Arc::clone(&opened.open_reader),
        between: Arc::new(between),
        progress: Arc::clone(progress),
        wal: Arc::clone(&opened.wal),
        pins: Arc::new(pins),
        is_exclusive: options.sharing == Sharing::Exclusive,
        is_verified: options.page_checksums,
    }
}

pub(super) fn threads_for(work: Work, count: usize, options: &Options) -> Arc<ReadThreads> {
    let (capacity, patience) = (options.queue_capacity, options.read_time_limit);
    Arc::new(ReadThreads::new(work, count, capacity, patience, Arc::clone(&options.clock)))
}

/// What syncs the WAL and tells those who wait for it.
pub(super) fn syncer(
    (wal, durability): (Arc<WalFile>, Durability),
    (answers, progress, queue): (Arc<Answers>, Arc<Progress>, Arc<WriteQueue>),
    archiving: Option<Arc<dyn Archiving>>,
    options: &Options,
    recorder: &Arc<Recorder>,
) -> Arc<Syncer> {
    Arc::new(Syncer {
        handover: Handover::default(),
        answers,
        wal,
        looked: AtomicU64::new(0),
        durability,
        progress,
        queue,
        recorder: Arc::clone(recorder),
        clock: Arc::clone(&options.clock),
        archiving,
    })
}

pub(super) fn checkpoints(
    (wal, archive): (&Arc<WalControl>, &Option<ArchiveSide>),
    holders: &Arc<SnapshotHolders>,
    options: &Options,
    recorder: &Arc<Recorder>,
) -> Arc<Checkpoints> {
    let (wal, holders) = (Arc::clone(wal), Arc::clone(holders));
    let archiving = archive.as_ref().map(|archive| Arc::clone(&archive.archiving));
    let recorder = Arc::clone(recorder);
    Arc::new(Checkpoints::new(wal, holders, archiving, options, recorder))
}

pub(super) fn watchdog(
    (queue, in_flight, holders): (&Arc<WriteQueue>, &Arc<InFlight>, Arc<SnapshotHolders>),
    threads: [&Arc<ReadThreads>; 3],
    options: &Options,
    recorder: &Arc<Recorder>,
) -> Arc<Watchdog> {
    let (queue, in_flight) = (Arc::clone(queue), Arc::clone(in_flight));
    let threads = threads.into_iter().cloned().collect();
    let recorder = Arc::clone(recorder);
    Arc::new(Watchdog::new(queue, in_flight, holders, threads, options, recorder))
}

/// What reads go through, and what streams do, whose connections are opened when they are used.
pub(super) fn read_sides(
    database: DatabaseId,
    (readers, opener, is_exclusive): (Vec<Reader>, OpenReader, bool),
    options: &Options,
    progress: &Arc<Progress>,
    archive: &Option<ArchiveSide>,
) -> (Arc<ReadSide>, Arc<ReadSide>) {
    let count = readers.len();
    let side = |work, readers| {
        let connections = (readers, Arc::clone(&opener));
        let told = (Arc::clone(progress), archive.as_ref().map(ArchiveSide::wait));
        read_side((database, work), connections, is_exclusive, options, told)
    };
    let reads = side(Work::Reads, readers.into_iter().map(Some).collect());
    (reads, side(Work::Streams, (0..count).map(|_| None).collect()))
}

fn read_side(
    (database, work): (DatabaseId, Work),
    (readers, open_reader): (Vec<Option<Reader>>, OpenReader),
    keep_snapshots: bool,
    options: &Options,
    (progress, archived): (Arc<Progress>, Option<WaitForArchive>),
) -> Arc<ReadSide> {
    let threads = threads_for(work, readers.len(), options);
    let readers = Readers::new(
        (readers, open_reader),
        database,
        keep_snapshots,
        options.read_time_limit,
        Arc::clone(&options.clock),
        Arc::clone(&progress),
    );
    Arc::new(ReadSide { database, readers: Arc::new(readers), progress, archived, threads })
}

pub(super) fn pool(
    opener: PoolOpener,
    wal: Arc<WalControl>,
    options: &Options,
    progress: &Arc<Progress>,
) -> Arc<Pool> {
    let bounds = (
        options.interactive.connections,
        options.interactive.snapshot_age,
        options.read_time_limit,
    );
    let (clock, progress) = (Arc::clone(&options.clock), Arc::clone(progress));
    Arc::new(Pool::new(opener, bounds, clock, progress, wal))
}

/// Those whose snapshots can keep the WAL.
pub(super) type Holding<'e> = (
    &'e Arc<ReadSide>,
    &'e Arc<ReadSide>,
    &'e Arc<Pool>,
    &'e backup::Source,
    &'e Arc<UntrustedRoom>,
);

pub(super) fn untrusted(
    database: DatabaseId,
    open: OpenReader,
    options: &Options,
    progress: &Arc<Progress>,
) -> Arc<UntrustedRoom> {
    let (clock, progress) = (Arc::clone(&options.clock), Arc::clone(progress));
    Arc::new(UntrustedRoom::new(database, open, options.untrusted_threads, clock, progress))
}

pub(super) fn holders(
    (reads, streams, pool, backups, untrusted): Holding<'_>,
    options: &Options,
    progress: &Arc<Progress>,
    recorder: &Arc<Recorder>,
) -> Arc<SnapshotHolders> {
    let all: Vec<Arc<dyn SnapshotHolder>> = vec![
        reads.readers.clone(),
        pool.clone(),
        streams.readers.clone(),
        backups.pins.clone(),
        untrusted.clone(),
    ];
    let (progress, recorder) = (Arc::clone(progress), Arc::clone(recorder));
    Arc::new(SnapshotHolders::new(all, options, progress, recorder))
}

pub(super) fn transactions(
    database: DatabaseId,
    (pool, threads, writes): (Arc<Pool>, Arc<ReadThreads>, &Arc<WriteQueue>),
    options: &Options,
    progress: &Arc<Progress>,
    recorder: &Arc<Recorder>,
) -> Arc<Transactions> {
    Arc::new(Transactions {
        database,
        pool,
        progress: Arc::clone(progress),
        threads,
        writes: Arc::clone(writes),
        limits: Limits::of(options),
        clock: Arc::clone(&options.clock),
        recorder: Arc::clone(recorder),
        contention: Contention::new(database, options, Arc::clone(recorder)),
        open: Arc::default(),
    })
}
