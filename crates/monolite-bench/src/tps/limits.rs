//! What the machine allows waiting clients at most.

use crate::device::DeviceProbe;
use crate::raw_connection::Durability;
use crate::report::names::APPENDS;
use crate::report::record::{Cell, PhysicalLimit};

/// Computes the limit of each closed-loop cell from figures of the same run.
///
/// A client that waits cannot have two transactions under way, so N clients complete at most N in
/// the time of one sync. Nor are they faster than raw SQLite that commits N at a time.
pub(super) fn physical_limits(
    cells: &[Cell],
    device: &DeviceProbe,
    waiting_clients: &[u64],
) -> Vec<PhysicalLimit> {
    let measured = |id: &str| cells.iter().find(|cell| cell.id == id)?.measurement();
    // Measured in turn with the clients, if it was.
    let append = measured(APPENDS).map_or(device.append_sync.p50_ns, |it| it.latency.p50_ns);
    let limit = |durability: Durability, clients: u64| {
        let cell = format!("closed/{durability}/monolite-{clients}");
        let reached = measured(&cell)?.per_second.median;
        let raw = measured(&format!("closed/{durability}/raw-batch-{clients}"))?;
        let ceiling = raw.per_second.median;
        let (sync_latency_ns, per_second, method) = match durability {
            Durability::Durable => (
                append,
                (clients as f64 * 1e9 / append as f64).min(ceiling),
                "the smaller of clients ÷ p50 of append + fdatasync, and raw batches of as many \
                 transactions without isolation",
            ),
            Durability::Buffered => {
                (0, ceiling, "raw batches of as many transactions, without isolation")
            }
        };
        Some(PhysicalLimit {
            cell,
            clients,
            sync_latency_ns,
            batch_ceiling_per_second: ceiling,
            per_second,
            reached: reached / per_second,
            method: method.into(),
        })
    };
    let all = |durability| waiting_clients.iter().filter_map(move |&it| limit(durability, it));
    Durability::ALL.into_iter().flat_map(all).collect()
}
