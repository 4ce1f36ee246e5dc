//! Chance with a seed: every case of a check draws from a generator of its own, whose seed is told
//! when the case fails and which alone repeats it.

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

#[test]
fn one_case_with_a_cases_seed_is_that_case() {
    let of_the_fifth = case_seed(42, 5);
    assert_ne!(of_the_fifth, case_seed(42, 4));
    assert_eq!(case_seed(of_the_fifth, 0), of_the_fifth);
}
