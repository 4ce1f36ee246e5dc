//! Interactive transactions under load: every answer is that of a serial order, and would not be
//! without validation.

use monolite::{InteractiveOptions, Options};

use super::{Load, Played, play};
use crate::checkers::serial;
use crate::functions::Promise;
use crate::random::SeededRng;

/// Few connections, so that transactions move to new snapshots; a small WAL, so that checkpoints
/// go on.
fn played(seed: u64, options: Options, promise: Promise) -> Played {
    let directory = tempfile::tempdir().unwrap();
    let load = Load {
        seed,
        clients: 8,
        writes: 400,
        failing: 10,
        dropped: 20,
        interactive: 90,
        long_readers: 1,
        options: options
            .wal_limit_bytes(8 << 20)
            .interactive(InteractiveOptions::default().connections(3).attempts(2)),
        promise,
    };
    play(&load, &directory.path().join("load.db")).unwrap()
}

#[test]
fn interactive_transactions_see_what_a_serial_order_gives() {
    let seed = SeededRng::new().seed();
    let played = played(seed, Options::new(), Promise::Kept);
    assert_eq!(played.complaints, Vec::<String>::new(), "seed {seed}");
    assert_eq!(serial::check(&played.history, &played.end), Ok(()), "seed {seed}");
    // A busy machine has more conflicts: the least of some hundred runs was 750, and 143 reads.
    assert!(played.interactive > 300 && played.interactive_reads > 30, "{played:#?}");
    let stats = &played.stats;
    assert!(stats.transactions_unchanged > 10 && stats.transactions_replayed > 100, "{stats:#?}");
    assert!(stats.transaction_conflicts > 10, "{stats:#?}");
    assert!(stats.transactions_resumed > 10, "{stats:#?}");
}
