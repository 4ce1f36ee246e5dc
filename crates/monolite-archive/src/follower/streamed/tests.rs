//! Slots beside parts.

use monolite::archive::WalPosition;

use super::{Standing, Streamed};
use crate::archiver::position::Place;
use crate::record::Epoch;
use crate::streaming::Part;

fn part(generation: u64, offset: u64, salts: [u32; 2]) -> Part {
    let to = WalPosition { generation, offset };
    Part {
        to,
        generations: vec![(generation, salts)],
        bound: 9,
        commit: 1,
        page_bytes: 512,
        pages: vec![0; 516],
    }
}

#[test]
fn slot_is_applied_only_where_it_reaches_beyond_the_parts() {
    let at = WalPosition::default();
    let mut streamed = Streamed { epoch: Epoch(1), at, generations: Vec::new() };
    for part in [part(1, 900, [1, 1]), part(2, 500, [2, 2]), part(2, 700, [2, 2])] {
        streamed.take(&part);
    }
    let standing = |salts, end| streamed.standing(Place { salts, end });
    assert_eq!(standing([1, 1], 900), Standing::IsAmong { is_all: false });
    assert_eq!(standing([2, 2], 500), Standing::IsAmong { is_all: false });
    assert_eq!(standing([2, 2], 700), Standing::IsAmong { is_all: true });
    assert_eq!(standing([2, 2], 701), Standing::LeadsOn);
    assert_eq!(standing([3, 3], 40), Standing::Unknown, "another primary's, or behind a gap");
}

#[test]
fn generations_that_one_part_passes_over_are_known() {
    let at = WalPosition::default();
    let mut streamed = Streamed { epoch: Epoch(1), at, generations: Vec::new() };
    let generations = vec![(1, [1, 1]), (2, [2, 2]), (3, [3, 3])];
    streamed.take(&part(1, 900, [1, 1]));
    streamed.take(&Part { generations, ..part(3, 500, [3, 3]) });
    assert_eq!(streamed.generations, [(1, [1, 1]), (2, [2, 2]), (3, [3, 3])]);
    for salts in [[1, 1], [2, 2]] {
        let standing = streamed.standing(Place { salts, end: 5_000 });
        assert_eq!(standing, Standing::IsAmong { is_all: false });
    }
}
