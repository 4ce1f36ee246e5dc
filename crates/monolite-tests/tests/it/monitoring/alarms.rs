//! The alarms of `docs/guides/monitoring.md`, whose text is compared with this.

use monolite::Stats;

/// The alarms that are on, by a reading of now and one of five minutes before.
pub(super) fn alarms(before: &Stats, now: &Stats) -> Vec<&'static str> {
    let syncs = now.sync_seconds.since(&before.sync_seconds);
    let mut all = vec![
        ("ClosureStuck", now.refused_behind_stuck > before.refused_behind_stuck),
        ("WriterHeld", now.writer_busy_seconds > 1.0),
        ("WalFull", now.wal_stalls > before.wal_stalls),
        ("ReadsRevoked", now.revoked_readers > before.revoked_readers),
        ("SyncsSlow", syncs.quantile(0.99) > 0.1),
        ("QueueLong", now.queue_depth > 8_000),
        ("TransactionsLeftOpen", now.open_transactions > 5_000),
    ];
    if let (Some(before), Some(now)) = (&before.archive, &now.archive) {
        all.push(("ArchiveBehind", now.lag_ms > 60_000));
        all.push(("ArchiveNotRestorable", !before.is_restorable && !now.is_restorable));
        all.push(("ArchiveFailing", before.last_error.is_some() && now.last_error.is_some()));
    }
    all.into_iter().filter_map(|(name, is_on)| is_on.then_some(name)).collect()
}
