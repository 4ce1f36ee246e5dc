//! Owns the stack on which a connection has SQLite prepare statements.
//!
//! SQLite's planner walks expressions recursively, and bounds their depth where it parses them. But
//! a subquery, a view or a generated column that is put in the place of its name makes a deeper one
//! of them, and nothing bounds that: 16 common table expressions of 240 additions each overflow the
//! 2 MiB that a thread has, which ends the process. So the connection brings a stack of its own,
//! large enough for the deepest expression that [`crate::depth`] lets through.
//!
//! Only SQLite runs on it, and the closures of users run on the stack of
//! their thread: what asks a thread for the bounds of its stack (the runtime of another language)
//! would take its own for overflown. Preparing is what takes stack, and a statement that defines
//! something, which parses the schema again when it runs; other programs run in a loop. SQLite
//! prepares a statement again while it runs when the schema has changed, so the statements that a
//! connection keeps are forgotten at each such change.
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

/// The page behind the shallow part: a deeper call leaves something there.
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
        if self.is_in_use.replace(true) {
            return body();
        }
        let caught = || catch_unwind(AssertUnwindSafe(body));
        // SAFETY: the region above the guard is mapped, writable, aligned to pages, and not used
        // elsewhere meanwhile; the callback does not unwind.
        let result = unsafe { psm::on_stack(self.at(GUARD), SIZE - GUARD, caught) };
        self.is_in_use.set(false);
        if self.was_deep() {
            self.give_back(SIZE - SHALLOW - GUARD);
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: the offsets used here are within the mapping.
        unsafe { self.lowest.as_ptr().add(offset) }
    }

    fn mark(&self) -> *mut u64 {
        self.at(SIZE - SHALLOW - MARK).cast()
    }

    fn was_deep(&self) -> bool {
        // SAFETY: the page of the mark is mapped and aligned; fresh memory is zero.
        unsafe { std::slice::from_raw_parts(self.mark(), MARK / 8) }.iter().any(|word| *word != 0)
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
        assert!(!stack.was_deep());
        // 20 MiB and more.
        assert_eq!(stack.run(|| sum(20_000)), 200_010_000);
        assert!(!stack.was_deep());
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
