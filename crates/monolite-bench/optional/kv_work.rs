//! Part of the optional drivers of `bench kv`: replaces and reads values as the suite does.

use crate::protocol::{Arguments, Result, answer, crew};
use std::collections::HashMap;

/// A store of values under the keys from 1 on.
pub trait Store: Sync {
    /// Puts values under all keys, in one transaction.
    fn fill(&self, keys: u64, value: &[u8]) -> Result<()>;

    /// Replaces a value, in a transaction of its own.
    fn put(&self, key: u64, value: &[u8]) -> Result<()>;

    /// Returns a value, from a transaction of its own.
    fn get(&self, key: u64) -> Result<Option<Vec<u8>>>;
}

fn value(id: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0x5a; bytes];
    value[..8].copy_from_slice(&id.to_be_bytes());
    value
}

/// Works through a round.
pub fn run(arguments: &Arguments, store: &impl Store, is_new: bool) -> Result<()> {
    let (keys, bytes) = (arguments.number::<u64>("rows"), arguments.number::<usize>("bytes"));
    let (threads, seed) = (arguments.number::<u64>("threads"), arguments.number::<u64>("seed"));
    if is_new {
        store.fill(keys, &value(0, bytes))?;
    }
    let writes = arguments.text("what") == "writes";
    let (done, last) = crew(arguments, |number, shift| {
        let mut random = fastrand::Rng::with_seed(seed << 32 | number);
        let mut mine = HashMap::new();
        shift.begin();
        while shift.goes_on() {
            if writes {
                let key = 1 + number + random.u64(0..keys / threads) * threads;
                let id = random.u64(..);
                store.put(key, &value(id, bytes))?;
                mine.insert(key, id);
            } else {
                let found = store.get(random.u64(1..=keys))?.ok_or("a key is missing")?;
                if found.len() != bytes {
                    return Err(format!("a value of {} bytes was read", found.len()).into());
                }
            }
            shift.acknowledged();
        }
        Ok(mine)
    })?;
    for (key, id) in last.into_iter().flatten() {
        if store.get(key)? != Some(value(id, bytes)) {
            return Err(format!("key {key} does not hold its last value").into());
        }
    }
    answer(&done, 0);
    Ok(())
}
