//! Owns how many connections one address may have, and what a connection takes until it ends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

/// Most connections from one address of another machine; a proxy here has as many as it likes.
const OF_ADDRESS: usize = 256;

/// How many connections each address of other machines has.
#[derive(Default)]
pub(crate) struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// One of them, until it is dropped.
pub(crate) struct OfAddress(Arc<Addresses>, IpAddr);

impl Addresses {
    /// `None` if the address has as many as it may.
    pub(crate) fn enter(self: &Arc<Addresses>, from: IpAddr) -> Option<OfAddress> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(from).or_default();
        if *count >= OF_ADDRESS && !from.is_loopback() {
            return None;
        }
        *count += 1;
        Some(OfAddress(Arc::clone(self), from))
    }
}

impl Drop for OfAddress {
    fn drop(&mut self) {
        let mut all = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.1);
            }
        }
    }
}

/// What a connection takes of the limits until it ends, also as a WebSocket.
pub(crate) type Place = Arc<(OwnedSemaphorePermit, OfAddress)>;
