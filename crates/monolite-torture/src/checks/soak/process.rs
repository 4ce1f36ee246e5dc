//! What a child uses of the machine, as Linux says it under `/proc`: the most of it, and whether it
//! grows over a long life.

use std::fs;
use std::time::Duration;

use super::{FILES_LIMIT, MEMORY_LIMIT_KB};
use crate::checks::lanes::status;
use crate::checks::wrong::Wrong;

/// How much more a child may use at its end than in the beginning: caches fill, allocators keep.
const MEMORY_GROWTH_KB: u64 = 64 << 10;
const FILES_GROWTH: u64 = 8;

/// The most that was used, in all and in each third of a long life.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) memory_kb: u64,
    pub(super) files: u64,
    thirds: [(u64, u64); 3],
}

impl Usage {
    /// Looks at a process of this age, which lives so long.
    pub(super) fn look(&mut self, process: u32, age: Duration, life: Duration) {
        let files = fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
        self.note(status(process, "VmRSS") >> 10, files as u64, age, life);
    }

    fn note(&mut self, memory_kb: u64, files: u64, age: Duration, life: Duration) {
        self.memory_kb = self.memory_kb.max(memory_kb);
        self.files = self.files.max(files);
        let third = usize::from(age > life / 3) + usize::from(age > life * 2 / 3);
        let (memory_then, files_then) = &mut self.thirds[third];
        *memory_then = memory_kb.max(*memory_then);
        *files_then = files.max(*files_then);
    }

    /// Which limits were broken, or what has grown over the life.
    ///
    /// # Errors
    /// If there is any.
    pub(super) fn judge(&self) -> Result<(), Wrong> {
        let [first, _, last] = self.thirds;
        let wrong = |text| Err(Wrong::Other(text));
        if first.1 > 0 && (last.0 > first.0 + MEMORY_GROWTH_KB || last.1 > first.1 + FILES_GROWTH) {
            wrong(format!("KiB of memory and open files grew from {first:?} to {last:?}"))
        } else if self.memory_kb > MEMORY_LIMIT_KB {
            wrong(format!("{} KiB resident, the limit is {MEMORY_LIMIT_KB}", self.memory_kb))
        } else if self.files > FILES_LIMIT {
            wrong(format!("{} open files, the limit is {FILES_LIMIT}", self.files))
        } else {
            Ok(())
        }
    }
}

#[test]
fn growth_over_a_life_is_noticed() {
    let life = Duration::from_secs(9);
    let mut usage = Usage::default();
    let mut use_so_much = |second, memory_kb| {
        usage.note(memory_kb, 20, Duration::from_secs(second), life);
        usage.judge().is_err()
    };
    assert!(!use_so_much(1, 50 << 10));
    assert!(!use_so_much(5, 300 << 10));
    assert!(!use_so_much(7, 60 << 10));
    assert!(use_so_much(8, 200 << 10));
    assert!(Usage { memory_kb: 500 << 10, ..Usage::default() }.judge().is_err());
    assert!(Usage { files: 90, ..Usage::default() }.judge().is_err());
}
