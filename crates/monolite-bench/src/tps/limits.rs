//! What the machine allows waiting clients at most.

use crate::device::DeviceProbe;
use crate::raw_connection::Durability;
use crate::report::names::APPENDS;
use crate::report::record::{Cell, PhysicalLimit};

/// Computes the limit of each closed-loop cell from figures of the same run.
///
/// A client that waits cannot have two transactions under way, so N clients complete at most N in
/// the time of one sync; and nobody is faster than raw SQLite committing N at a time with nothing
/// between them.
pub(super) fn physical_limits(
    cells: &[Cell],
    device: &DeviceProbe,
    waiting_clients: &[u64],
) -> Vec<PhysicalLimit> {
    let mut limits = Vec::new();
    for durability in Durability::ALL {
        for &clients in waiting_clients {
            limits.extend(limit(cells, device, durability, clients));
        }
    }
    limits
}

/// Median of appending and syncing a page, measured in turn with the clients if it was.
fn append_ns(cells: &[Cell], device: &DeviceProbe) -> u64 {
    let cell = cells.iter().find(|cell| cell.id == APPENDS).and_then(Cell::measurement);
    cell.map_or(device.append_sync.p50_ns, |cell| cell.latency.p50_ns)
}

fn limit(
    cells: &[Cell],
    device: &DeviceProbe,
    durability: Durability,
    clients: u64,
) -> Option<PhysicalLimit> {
    let rate = |id: String| {
        let cell = cells.iter().find(|cell| cell.id == id)?;
        Some(cell.measurement()?.per_second.median)
    };
    let cell = format!("closed/{durability}/monolite-{clients}");
    let reached = rate(cell.clone())?;
    let ceiling = rate(format!("closed/{durability}/raw-batch-{clients}"))?;
    let sync_latency_ns = match durability {
        Durability::Durable => append_ns(cells, device),
        Durability::Buffered => 0,
    };
    let by_latency = match sync_latency_ns {
        0 => f64::INFINITY,
        ns => clients as f64 * 1e9 / ns as f64,
    };
    let method = match durability {
        Durability::Durable => {
            "the smaller of clients ÷ p50 of append + fdatasync, and raw batches of as many \
             transactions without isolation, which wait for each sync where the engine overlaps it"
        }
        Durability::Buffered => "raw batches of as many transactions, without isolation",
    };
    let per_second = by_latency.min(ceiling);
    Some(PhysicalLimit {
        cell,
        clients,
        sync_latency_ns,
        batch_ceiling_per_second: ceiling,
        per_second,
        reached: reached / per_second,
        method: method.into(),
    })
}
