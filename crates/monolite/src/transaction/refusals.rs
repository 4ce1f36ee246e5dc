//! Owns the words in which an open transaction refuses what cannot be.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

pub(super) fn too_many_open(most: usize) -> Error {
    let message = format!(
        "{most} interactive transactions are open (InteractiveOptions::max_open); end some, \
         or raise the option"
    );
    Error::new(ErrorKind::Overloaded, message)
}

pub(super) fn too_much_together(bytes: usize, most: usize) -> Error {
    let message = format!(
        "the statements and parameters of all interactive transactions would take {bytes} bytes, \
         and they may keep {most} (InteractiveOptions::max_total_bytes); try again when others \
         have ended, or raise the option"
    );
    Error::new(ErrorKind::Overloaded, message)
}

pub(super) fn open_for_too_long(limit: Duration) -> Error {
    let message = format!(
        "the transaction has been open for longer than {limit:.1?} (InteractiveOptions::time_limit)"
    );
    Error::new(ErrorKind::Timeout, message)
}

pub(super) fn rolled_back_in_closure() -> Error {
    let message = "the closure rolled its transaction back and returned Ok, so nothing was \
                   committed; return an error from the closure to have it rolled back";
    Error::new(ErrorKind::Invalid, message)
}

pub(super) fn abandoned() -> Error {
    Error::aborted("a statement was dropped before it was done, so what it did is not known")
}

pub(super) fn inside_itself() -> Error {
    let message = "a mapping closure ran another statement of the same transaction, which would \
                   wait for the first one's end; collect the rows first";
    Error::new(ErrorKind::Invalid, message)
}

pub(super) fn busy(limit: Duration) -> Error {
    let message = format!(
        "another statement of the same transaction has been running for {limit:.1?} (option \
         read_time_limit)"
    );
    Error::new(ErrorKind::Timeout, message)
}
