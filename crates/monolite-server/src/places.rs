//! Owns how much of what all share one of them may have: connections of an address, streams of a
//! token.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

/// Most connections from one address of another machine; a proxy here has as many as it likes.
const OF_ADDRESS: usize = 256;

/// How much each has.
pub(crate) struct Shares<K>(Mutex<HashMap<K, usize>>);

/// One more that `K` has, until it is dropped.
pub(crate) struct Share<K: Eq + Hash>(Arc<Shares<K>>, K);

impl<K> Default for Shares<K> {
    fn default() -> Shares<K> {
        Shares(Mutex::default())
    }
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// `None` if `of` has `most` already.
    pub(crate) fn take(self: &Arc<Shares<K>>, of: K, most: usize) -> Option<Share<K>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(of).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Share(Arc::clone(self), of))
    }
}

/// How many connections each address of other machines has.
pub(crate) type Addresses = Shares<IpAddr>;

impl Addresses {
    /// `None` if the address has as many as it may. One of IPv6 has them with its network (/64),
    /// which one machine has alone.
    pub(crate) fn enter(self: &Arc<Addresses>, from: IpAddr) -> Option<Share<IpAddr>> {
        let from = from.to_canonical();
        let most = if from.is_loopback() { usize::MAX } else { OF_ADDRESS };
        let network = match from {
            IpAddr::V6(from) => Ipv6Addr::from_bits(from.to_bits() >> 64 << 64).into(),
            from => from,
        };
        self.take(network, most)
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
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
pub(crate) type Place = Arc<(OwnedSemaphorePermit, Share<IpAddr>)>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_address_and_this_machine_has_no_limit() {
        let addresses = Arc::new(Addresses::default());
        let enter = |from: &str| addresses.enter(from.parse().expect("an address"));
        let all: Vec<_> = (0..OF_ADDRESS).map(|at| enter(&format!("2001:db8::{at:x}:1"))).collect();
        assert!(all.iter().all(Option::is_some) && enter("2001:db8::ffff:1").is_none());
        assert!(enter("2001:db8:0:1::1").is_some());
        let own: Vec<_> = (0..=OF_ADDRESS).map(|_| enter("::ffff:127.0.0.1")).collect();
        assert!(own.iter().all(Option::is_some));
    }
}
