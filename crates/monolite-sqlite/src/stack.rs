//! Owns the stack on which a connection has SQLite prepare statements.
//!
//! SQLite's planner walks expressions recursively, and bounds their depth where it parses them. But
//! a subquery, a view or a generated column that is put in the place of its name makes a deeper one
//! of them, and nothing bounds that: 16 common table expressions of 240 additions each overflow the
//! 2 MiB that a thread has, which ends the process. So the connection brings a stack of its own,
//! large enough for the deepest expression that [`crate::depth`] lets through.
//!
//! Statements are prepared on it. Those run on it, too, in whose run SQLite may prepare something
//! deep, with the closures that read their rows:
//! - what took much stack when it was prepared, as SQLite prepares an expired statement again in
//!   its first step;
//! - what uses a virtual table, which prepares statements itself: full-text search reads a view;
//! - what is not kept: definitions, by which the schema is parsed again, and pragmas.
//!
//! Other closures of users run on the stack of their thread: what asks a thread for the bounds of
//! its stack (the runtime of another language) would take its own for overflown.
//!
//! # What SQLite prepares again
//! A statement is as deep as before, unless a name stands for something else now. Kept statements
//! are forgotten then. The callers of `sqlite3ExpirePreparedStatements`, and what sets `expired`:
//! - A change of the schema, or its rollback, and `ANALYZE`: forgotten (`connection::schema`), as
//!   views may be others. So may they behind the engine's own `VACUUM`, which has a new cookie.
//! - A switch of foreign keys, `PRAGMA defer_foreign_keys`: forgotten (`connection::foreign_keys`),
//!   as their actions are a part of statements.
//! - A parameter by which SQLite plans (`LIKE ?1`) that is bound or cleared, `PRAGMA optimize` even
//!   if it finds nothing to do, and the engine's own switches of `query_only`, `writable_schema`
//!   and defensive mode: as deep as before.
//! - Another authorizer, function, collation or text encoding: while a connection is opened.
//! - `ATTACH`, `DETACH`, `sqlite3_deserialize`, other pragmas: refused, or not used.
//!
//! # Not here
//! A statement that is handed out (`ReadTx::prepare`) is run by its user, on the stack of a thread.
//! One that takes more than that must not be run behind a change of the schema, nor with a
//! parameter by which SQLite plans.
//!
//! # Invariants
//! - The memory below the stack is a guard, which no access survives: nothing else is overwritten.
//! - A panic does not unwind through the change of stacks.
//! - A call made on the stack stays on it: its frames are not written over.
//! - The memory that a deep statement has used is given back behind it.
//!
//! # Source of the size
//! Measured with SQLite 3.54.1 (x86-64, -O2 and unoptimized callers): 1 KiB for each level of an
//! expression that is compiled.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap,
};

/// Bytes of the stack; the kernel gives memory for what is used. Eight times that of a program's
/// main thread, on which SQLite itself would run.
const SIZE: usize = 64 << 20;

/// Bytes below it that no code may touch.
const GUARD: usize = 64 << 10;

/// What ordinary statements use; memory beyond it is given back.
const SHALLOW: usize = 1 << 20;

/// What a statement may take that SQLite prepares again on the stack of a thread, which can be
/// small where the application makes it so. Ordinary ones take less than 10 KiB.
const LIGHT: usize = 64 << 10;

/// Bytes that are looked at behind so much of the stack: a deeper call leaves something there.
const MARK: usize = 4 << 10;

/// A region of memory used as a stack.
pub(crate) struct Stack {
    lowest: NonNull<u8>,
    is_in_use: Cell<bool>,
}

// SAFETY: the region is owned, and used by one thread at a time: `run` is called by the user of the
// connection that owns it.
unsafe impl Send for Stack {}

impl Stack {
    /// A new one.
    ///
    /// # Errors
    /// Those of the system, when it has no address space to give.
    pub(crate) fn new() -> io::Result<Stack> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let lowest = unsafe {
            mmap_anonymous(std::ptr::null_mut(), SIZE, access, flags | MapFlags::NORESERVE)?
        };
        let lowest_byte = NonNull::new(lowest.cast()).ok_or(io::ErrorKind::Other)?;
        let stack = Stack { lowest: lowest_byte, is_in_use: Cell::new(false) };
        // SAFETY: the lowest part of the mapping above.
        unsafe { mprotect(lowest, GUARD, MprotectFlags::empty())? };
        Ok(stack)
    }

    /// Runs `body` on this stack.
    ///
    /// # Panics
    /// With the panic of `body`.
    pub(crate) fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        self.run_weighed(body).0
    }

    /// As [`Stack::run`]; says also whether `body` may have taken more than a thread's stack is
    /// sure to have. Inside of another run it may have.
    ///
    /// # Panics
    /// With the panic of `body`.
    pub(crate) fn run_weighed<R>(&self, body: impl FnOnce() -> R) -> (R, bool) {
        if self.is_in_use.replace(true) {
            return (body(), true);
        }
        let caught = || catch_unwind(AssertUnwindSafe(body));
        // SAFETY: the region above the guard is mapped, writable, aligned to pages, and not used
        // elsewhere meanwhile; the callback does not unwind.
        let result = unsafe { psm::on_stack(self.at(GUARD), SIZE - GUARD, caught) };
        self.is_in_use.set(false);
        let is_heavy = self.was_beyond(LIGHT);
        if is_heavy {
            self.mark(LIGHT).fill(0);
        }
        if self.was_beyond(SHALLOW) {
            self.give_back(SIZE - SHALLOW - GUARD);
        }
        (result.unwrap_or_else(|panic| resume_unwind(panic)), is_heavy)
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: the offsets used here are within the mapping.
        unsafe { self.lowest.as_ptr().add(offset) }
    }

    /// What is next to so many bytes of the stack.
    #[expect(clippy::mut_from_ref, reason = "the stack is memory of its own")]
    fn mark(&self, bytes: usize) -> &mut [u64] {
        // SAFETY: the bytes are mapped and aligned, fresh memory is zero, and no code runs on the
        // stack now: the two users have one such slice at a time.
        unsafe { std::slice::from_raw_parts_mut(self.at(SIZE - bytes - MARK).cast(), MARK / 8) }
    }

    fn was_beyond(&self, bytes: usize) -> bool {
        self.mark(bytes).iter().any(|word| *word != 0)
    }

    /// Gives all its memory back until the next use.
    ///
    /// # Panics
    /// When this is called on the stack.
    pub(crate) fn release(&self) {
        assert!(!self.is_in_use.get(), "no code runs on a stack that is given back");
        self.give_back(SIZE - GUARD);
    }

    /// Has so many bytes above the guard read as zeros again.
    fn give_back(&self, bytes: usize) {
        // SAFETY: no code runs on the stack now. Private anonymous memory that is not needed any
        // more is fresh at its next use.
        let given = unsafe { madvise(self.at(GUARD).cast(), bytes, Advice::LinuxDontNeed) };
        // It cannot fail for a mapping of our own; if it did, the memory would be kept.
        let _ = given;
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no code runs on it any more.
        let _ = unsafe { munmap(self.lowest.as_ptr().cast(), SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn sum(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 128]);
        if depth == 0 { 0 } else { sum(depth - 1) + frame[usize::try_from(depth % 128).unwrap()] }
    }

    #[test]
    fn what_needs_many_stacks_of_a_thread_runs_and_leaves_no_memory_behind() {
        let stack = Stack::new().unwrap();
        assert_eq!(stack.run(|| sum(10)), 55);
        assert!(!stack.was_beyond(SHALLOW));
        // 20 MiB and more.
        assert_eq!(stack.run(|| sum(20_000)), 200_010_000);
        assert!(!stack.was_beyond(SHALLOW));
        assert_eq!(stack.run(|| stack_inside(&Stack::new().unwrap())), 55);
        assert_eq!(stack.run(|| stack.run(|| sum(10)) + sum(10)), 110);
    }

    #[test]
    fn memory_that_is_given_back_is_fresh_at_the_next_use() {
        let stack = Stack::new().unwrap();
        let top = || {
            // SAFETY: the highest bytes of the stack, on which no code runs.
            unsafe { std::slice::from_raw_parts(stack.at(SIZE - 4_096), 4_096) }.to_vec()
        };
        assert_eq!(stack.run(|| sum(10)), 55);
        assert!(top().iter().any(|byte| *byte != 0));
        stack.release();
        assert!(top().iter().all(|byte| *byte == 0));
        assert_eq!(stack.run(|| sum(10)), 55);
    }

    #[test]
    fn what_takes_much_of_it_is_told_from_what_does_not() {
        let stack = Stack::new().unwrap();
        for _ in 0..2 {
            assert_eq!(stack.run_weighed(|| sum(10)), (55, false));
            assert_eq!(stack.run_weighed(|| sum(100)), (5_050, true));
            assert_eq!(stack.run_weighed(|| sum(20_000)), (200_010_000, true));
        }
        assert!(stack.run(|| stack.run_weighed(|| 1).1), "inside of another it may");
    }

    fn stack_inside(other: &Stack) -> u64 {
        other.run(|| sum(10))
    }

    #[test]
    fn a_panic_comes_out_as_it_is() {
        let stack = Stack::new().unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| stack.run(|| panic!("on purpose"))));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"on purpose"));
        assert_eq!(stack.run(|| 7), 7);
    }
}
