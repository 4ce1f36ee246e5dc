//! Owns where random numbers come from.

use std::fs::File;
use std::io::Read as _;

use crate::error::{Error, Result};

/// Random bits, unique to this call.
pub(crate) fn drawn() -> Result<u128> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Error::of_io("draw a random number", error))?;
    Ok(u128::from_ne_bytes(bytes))
}
