//! The good engine passes, and what is broken on purpose is noticed.

use super::*;

fn examined(arrangement: Arrangement, images: u64) -> Examined {
    let directory = tempfile::tempdir().unwrap();
    let life = Life { seed: fastrand::u64(..), images, arrangement };
    live(&life, directory.path(), &|| {}, &|| false).unwrap()
}

#[test]
fn a_good_engine_loses_nothing() {
    let examined = examined(Arrangement::Good, 60);
    let wrong: Vec<_> = examined.seen.iter().map(|seen| seen.wrong.to_string()).collect();
    assert_eq!((wrong, examined.complaints), (vec![], vec![]));
    assert_eq!(examined.images, 60);
    assert!(examined.acknowledged > 0);
}

#[test]
fn every_bad_arrangement_is_noticed() {
    for (arrangement, name) in Arrangement::BAD {
        assert!(!examined(arrangement, CONTROL_IMAGES).seen.is_empty(), "{name}");
    }
}
