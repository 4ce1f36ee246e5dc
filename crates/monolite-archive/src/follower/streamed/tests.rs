//! Slots beside parts.

use monolite::archive::WalPosition;

use super::{Standing, Streamed};
use crate::archiver::position::Place;
use crate::record::Epoch;
use crate::streaming::Part;

fn part(generation: u64, offset: u64, salts: [u32; 2]) -> Part {
    let to = WalPosition { generation, offset };
    Part { to, salts, bound: 9, commit: 1, page_bytes: 512, pages: vec![0; 516] }
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
