//! The corpus of each target holds, and the targets notice what they must.

use std::fs;
use std::path::Path;

use super::*;

fn replay(target: &str, run: fn(&[u8]) -> anyhow::Result<()>) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(corpus).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 3, "the corpus of {target} is gone");
    for file in files {
        run(&fs::read(&file).unwrap()).unwrap_or_else(|it| panic!("{}: {it:#}", file.display()));
    }
}

#[test]
fn the_corpus_of_options_opens_or_says_why() {
    replay("options", options);
}

#[test]
fn the_corpus_of_damaged_files_is_answered() {
    replay("damaged", damaged);
}

#[test]
fn random_bytes_hold_as_well() {
    let mut rng = fastrand::Rng::with_seed(7);
    for round in 0..60 {
        let bytes: Vec<u8> = (0..round * 10).map(|_| rng.u8(..)).collect();
        options(&bytes).unwrap();
        damaged(&bytes).unwrap();
    }
}
