//! Random and damaged requests, read without a panic.

use monolite_server::hrana::{ClientMessage, CursorRequest, Encoding, PipelineRequest};

use super::fuzzed::any_bytes;
use super::others;

/// Bytes that make most of the damage.
const SPECIAL: &[u8] =
    b"{}[]\",:\\0123456789eE.-nulltypeok\x00\x01\x0a\x12\x1a\x22\x2a\x7f\x80\xff";

#[test]
fn any_bytes_are_read_or_refused() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    // By hand: MONOLITE_NOISE=1000000, in release.
    let count = std::env::var("MONOLITE_NOISE").map_or(3_000, |count| count.parse().unwrap());
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for round in 0..count {
        if round % 1_000 == 0 {
            seeds = (0..20).flat_map(|_| others::request(&mut random)).collect();
        }
        let mut bytes = seeds[random.usize(..seeds.len())].clone();
        match random.u8(..8) {
            0 => bytes = (0..random.usize(..64)).map(|_| random.u8(..)).collect(),
            1 => bytes.truncate(random.usize(..=bytes.len())),
            2 => {
                let other = &seeds[random.usize(..seeds.len())];
                bytes.truncate(random.usize(..=bytes.len()));
                bytes.extend_from_slice(&other[random.usize(..=other.len())..]);
            }
            _ => {}
        }
        for _ in 0..random.usize(..6) {
            if bytes.is_empty() {
                break;
            }
            let at = random.usize(..bytes.len());
            match random.u8(..4) {
                0 => bytes[at] = random.u8(..),
                1 => bytes[at] = SPECIAL[random.usize(..SPECIAL.len())],
                2 => bytes.insert(at, SPECIAL[random.usize(..SPECIAL.len())]),
                _ => {
                    bytes.remove(at);
                }
            }
        }
        if let Err(why) = any_bytes(&bytes) {
            panic!("{why}: {bytes:?}");
        }
    }
}

#[test]
fn corpus_of_the_fuzz_target_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/hrana");
    let mut read = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        any_bytes(&bytes).unwrap();
        let is_json = path.extension().unwrap() == "json";
        let encoding = if is_json { Encoding::Json } else { Encoding::Protobuf };
        read += usize::from(PipelineRequest::decode(&bytes, encoding).is_ok());
        read += usize::from(CursorRequest::decode(&bytes, encoding).is_ok());
        read += usize::from(ClientMessage::decode(&bytes, encoding).is_ok());
    }
    assert!(read >= 6, "{read} requests");
}

#[test]
fn stack_of_a_thread_is_enough() {
    // Without optimisation 384 KiB are enough; threads of tokio have 2 MiB.
    let deep = |open: &str, inner: &str, close: &str| {
        open.repeat(100_000) + inner + &close.repeat(100_000)
    };
    let conditions = deep(r#"{"type":"or","conds":["#, "", "]}");
    let value = deep("[", "", "]");
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(move || {
        for json in [
            format!(r#"{{"batch":{{"steps":[{{"condition":{conditions}"#),
            format!(
                r#"{{"requests":[{{"type":"batch","batch":{{"steps":[{{"condition":{conditions}"#
            ),
            format!(r#"{{"stmt":{{"args":[{{"type":"text","value":{value}}}]}}}}"#),
            format!(r#"{{"requests":[{{"type":{value}}}]}}"#),
            value,
        ] {
            any_bytes(json.as_bytes()).unwrap();
        }
    });
    thread.unwrap().join().unwrap();
}
