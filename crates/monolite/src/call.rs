//! Owns what carries a call: a write on its way through the queue to the writer, a read or a
//! statement on its way to a thread, and their results on the way back.
//!
//! In reading order: [`write`] is the handle of a write, [`member`] the closure behind it,
//! [`write_queue`] and [`queue`] where it waits, [`entry`] and [`in_flight`] what the writer has of
//! it, [`places`] how many may wait for the archive, [`completion`] and [`discards`] its result,
//! taken or not, [`blocked`] how a thread waits for it. [`work`] is what runs on the caller's
//! thread or another, [`watch`] how it is ended, and [`inside`] who is in the middle of one.
//! [`between`] is what the writer does beside all that.

pub(crate) mod between;
pub(crate) mod blocked;
pub(crate) mod completion;
pub(crate) mod discards;
pub(crate) mod entry;
pub(crate) mod in_flight;
pub(crate) mod inside;
pub(crate) mod member;
pub(crate) mod places;
pub(crate) mod queue;
pub(crate) mod watch;
pub(crate) mod work;
pub(crate) mod write;
pub(crate) mod write_queue;
