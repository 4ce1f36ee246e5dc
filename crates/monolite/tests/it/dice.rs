//! Chance with a seed: printed when the test that uses it fails, and set by `MONOLITE_SEED`.

use std::ops::{Deref, DerefMut};

/// A generator of random numbers that tells its seed when it dies in a panic.
pub(crate) struct Dice {
    seed: u64,
    rng: fastrand::Rng,
}

impl Dice {
    pub(crate) fn new() -> Dice {
        let chosen = std::env::var("MONOLITE_SEED").ok();
        let seed = match chosen {
            Some(text) => text.parse().expect("MONOLITE_SEED is a number"),
            None => fastrand::u64(..),
        };
        Dice::seeded(seed)
    }

    pub(crate) fn seeded(seed: u64) -> Dice {
        Dice { seed, rng: fastrand::Rng::with_seed(seed) }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// A generator for a thread of its own, told by the same seed.
    pub(crate) fn fork(&mut self) -> fastrand::Rng {
        self.rng.fork()
    }
}

impl Deref for Dice {
    type Target = fastrand::Rng;

    fn deref(&self) -> &fastrand::Rng {
        &self.rng
    }
}

impl DerefMut for Dice {
    fn deref_mut(&mut self) -> &mut fastrand::Rng {
        &mut self.rng
    }
}

impl Drop for Dice {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed of the failure: MONOLITE_SEED={}", self.seed);
        }
    }
}
