//! What the device itself can do: the latency of one page made durable.
//!
//! Two probes in the data directory, a page of 4096 bytes each time: *append* writes it at the end
//! of a growing file and calls `fdatasync` (the file's size changes, so the file system's journal
//! takes part), *overwrite* writes it over an old page. A WAL that has just been created appends;
//! one that was restarted overwrites.

use crate::progress::Interrupt;
use crate::statistics::{Latencies, Percentiles};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The page that is written.
pub(crate) const PAGE: [u8; 4096] = [0x5a; 4096];

/// Latencies of the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceProbe {
    /// Append a page, `fdatasync`.
    pub append_sync: Percentiles,
    /// Overwrite a page, `fdatasync`.
    pub overwrite_sync: Percentiles,
}

/// Measures the device under `dir`, each probe for `time`.
pub fn probe(dir: &Path, time: Duration, interrupt: &Interrupt) -> Result<DeviceProbe> {
    let file = tempfile::tempfile_in(dir).context("cannot write in the data directory")?;
    let append_sync = repeat(&file, time, interrupt, |n| n)?;
    let pages = append_sync.samples;
    let overwrite_sync = repeat(&file, time, interrupt, |n| n % pages.max(1))?;
    Ok(DeviceProbe { append_sync, overwrite_sync })
}

fn repeat(
    file: &File,
    time: Duration,
    interrupt: &Interrupt,
    page: impl Fn(u64) -> u64,
) -> Result<Percentiles> {
    let (mut latencies, mut done, begin) = (Latencies::default(), 0, Instant::now());
    while done == 0 || begin.elapsed() < time {
        interrupt.check()?;
        let start = Instant::now();
        file.write_all_at(&PAGE, page(done) * PAGE.len() as u64)?;
        file.sync_data()?;
        latencies.record(start.elapsed());
        done += 1;
    }
    Ok(latencies.percentiles())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_probes_measure() {
        let dir = tempfile::tempdir().unwrap();
        let probe = probe(dir.path(), Duration::from_millis(5), &Interrupt::default()).unwrap();
        assert!(probe.append_sync.samples > 0 && probe.overwrite_sync.p50_ns > 0);
    }
}
