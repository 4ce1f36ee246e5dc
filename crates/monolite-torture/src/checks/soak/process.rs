//! What a child uses of the machine, as Linux says it under `/proc`: the most of it, and whether it
//! grows over a long life.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{FILES_LIMIT, MEMORY_LIMIT_KB, WAL_LIMIT_BYTES};

/// How much more a child may use at its end than in the beginning: caches fill, allocators keep.
const MEMORY_GROWTH_KB: u64 = 64 << 10;
const FILES_GROWTH: u64 = 8;

/// The most that was used, in all and in the first and last third of a long life.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) memory_kb: u64,
    pub(super) files: u64,
    pub(super) wal_bytes: u64,
    now: Sample,
    first: Sample,
    last: Sample,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    memory_kb: u64,
    files: u64,
}

impl Usage {
    /// Looks at a process and at the WAL of its database.
    pub(super) fn look(&mut self, process: u32, database: &Path) {
        let wal = database.with_file_name("db-wal");
        let wal_bytes = fs::metadata(wal).map_or(0, |metadata| metadata.len());
        self.wal_bytes = self.wal_bytes.max(wal_bytes);
        let files = fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
        self.now.files = self.now.files.max(files as u64);
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory_kb = resident.and_then(|text| text.trim().split(' ').next()?.parse().ok());
        self.now.memory_kb = self.now.memory_kb.max(memory_kb.unwrap_or(0));
        self.memory_kb = self.memory_kb.max(self.now.memory_kb);
        self.files = self.files.max(self.now.files);
    }

    /// Books what was seen since the last call to the third of the life that it was seen in.
    pub(super) fn remember(&mut self, age: Duration, life: Duration) {
        let now = std::mem::take(&mut self.now);
        let third = if age < life / 3 {
            &mut self.first
        } else if age > life * 2 / 3 {
            &mut self.last
        } else {
            return;
        };
        third.memory_kb = third.memory_kb.max(now.memory_kb);
        third.files = third.files.max(now.files);
    }

    /// What has grown over the life, if anything.
    pub(super) fn growth(&self) -> Option<String> {
        let (first, last) = (self.first, self.last);
        let grew = last.memory_kb > first.memory_kb + MEMORY_GROWTH_KB
            || last.files > first.files + FILES_GROWTH;
        (first.files > 0 && grew).then(|| format!("it grew from {first:?} to {last:?}"))
    }

    /// Which limits were broken.
    pub(super) fn excess(&self) -> Vec<String> {
        let limits = [
            ("resident memory in KiB", self.memory_kb, MEMORY_LIMIT_KB),
            ("open files", self.files, FILES_LIMIT),
            ("bytes of WAL", self.wal_bytes, WAL_LIMIT_BYTES),
        ];
        let broken = limits.into_iter().filter(|(_, most, limit)| most > limit);
        broken.map(|(what, most, limit)| format!("{most} {what}, the limit is {limit}")).collect()
    }
}

#[test]
fn growth_over_a_life_is_noticed() {
    let life = Duration::from_secs(9);
    let mut usage = Usage::default();
    let mut use_so_much = |second, memory_kb| {
        usage.now = Sample { memory_kb, files: 20 };
        usage.remember(Duration::from_secs(second), life);
        usage.growth().is_some()
    };
    assert!(!use_so_much(1, 50 << 10));
    assert!(!use_so_much(5, 500 << 10));
    assert!(!use_so_much(7, 60 << 10));
    assert!(use_so_much(8, 200 << 10));
}
