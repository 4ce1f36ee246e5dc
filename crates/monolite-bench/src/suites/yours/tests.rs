//! What the user says, understood or refused.
use super::*;

fn options() -> YoursOptions {
    YoursOptions {
        schema: "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER NOT NULL)".into(),
        writes: vec![
            "UPDATE t SET n = n + 1 WHERE id = :id; SELECT n FROM t WHERE id = :id".into(),
        ],
        reads: vec!["SELECT n FROM t WHERE id = :id".into()],
        loads: vec!["100 INSERT INTO t VALUES (:n, 0)".into()],
        parameters: vec![":id uniform(1..100)".into(), ":n serial".into()],
        mix: None,
        clients: 4,
    }
}

fn error(change: impl FnOnce(&mut YoursOptions)) -> String {
    let mut options = options();
    change(&mut options);
    match Yours::new(&options) {
        Ok(_) => "none".into(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn a_parameter_has_one_value_in_all_statements_of_a_transaction() {
    let yours = Yours::new(&options()).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let drawn = yours.shared.writes[0].draw(&mut random, &AtomicI64::new(1));
    assert_eq!(drawn.len(), 2);
    assert_eq!(drawn[0].1, drawn[1].1);
}

#[test]
fn the_mix_is_three_reads_to_a_write_unless_one_says_otherwise() {
    assert_eq!(Yours::new(&options()).unwrap().shared.read_share, 75);
    let mixed = YoursOptions { mix: Some("5/95".into()), ..options() };
    assert_eq!(Yours::new(&mixed).unwrap().shared.read_share, 5);
    let writing = YoursOptions { reads: Vec::new(), ..options() };
    assert_eq!(Yours::new(&writing).unwrap().shared.read_share, 0);
}

#[test]
fn errors_name_what_is_missing_and_what_to_add() {
    let missing = error(|options| options.parameters.truncate(1));
    assert!(missing.contains("--load") && missing.contains("add --param ':n "), "{missing}");
    let mix = error(|options| options.mix = Some("80/30".into()));
    assert!(mix.contains("\"80/30\" is not a mix") && mix.contains("75/25"), "{mix}");
    let alone = error(|options| {
        options.reads.clear();
        options.mix = Some("75/25".into());
    });
    assert!(alone.contains("add --read"), "{alone}");
    let nothing = error(|options| {
        options.reads.clear();
        options.writes.clear();
    });
    assert!(nothing.contains("nothing to measure"), "{nothing}");
    let load = error(|options| options.loads = vec!["INSERT INTO t VALUES (1)".into()]);
    assert!(load.contains("does not begin with a number"), "{load}");
    assert!(error(|options| options.clients = 0).contains("--clients"));
    assert_eq!(error(|_| ()), "none");
}
