//! Random numbers with a seed: every case of a check draws from a generator of its own, whose seed
//! is told when the case fails and which alone repeats it.

use std::ops::{Deref, DerefMut};

/// The seed of case `number` of a run with `seed`. The first case's is the run's own, so a run of
/// one case with a case's seed repeats that case.
pub fn case_seed(seed: u64, number: u64) -> u64 {
    if number == 0 {
        return seed;
    }
    // SplitMix64 (Steele, Lea, Flood 2014): neighbouring inputs give unrelated outputs.
    let mut z = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The environment variable that sets the seed of a test's [`SeededRng`].
const SEED: &str = "MONOLITE_SEED";

/// A generator for a test: its seed is printed when the test fails, and set by `MONOLITE_SEED`.
#[derive(Debug)]
pub struct SeededRng {
    seed: u64,
    rng: fastrand::Rng,
}

impl SeededRng {
    /// With the seed of the environment, or any other.
    ///
    /// # Panics
    /// When `MONOLITE_SEED` is no number.
    pub fn new() -> SeededRng {
        SeededRng::seeded(match std::env::var(SEED) {
            Ok(text) => text.parse().expect("MONOLITE_SEED is a number"),
            Err(_) => fastrand::u64(..),
        })
    }

    /// With this seed.
    pub fn seeded(seed: u64) -> SeededRng {
        SeededRng { seed, rng: fastrand::Rng::with_seed(seed) }
    }

    /// What makes it do the same again.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

impl Default for SeededRng {
    fn default() -> SeededRng {
        SeededRng::new()
    }
}

impl Deref for SeededRng {
    type Target = fastrand::Rng;

    fn deref(&self) -> &fastrand::Rng {
        &self.rng
    }
}

impl DerefMut for SeededRng {
    fn deref_mut(&mut self) -> &mut fastrand::Rng {
        &mut self.rng
    }
}

impl Drop for SeededRng {
    #[expect(clippy::print_stderr, reason = "a failing test tells how to repeat it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed of the failure: {SEED}={}", self.seed);
        }
    }
}

#[test]
fn one_case_with_a_cases_seed_is_that_case() {
    let of_the_fifth = case_seed(42, 5);
    assert_ne!(of_the_fifth, case_seed(42, 4));
    assert_eq!(case_seed(of_the_fifth, 0), of_the_fifth);
}
