//! The answers are those of SQLite's own functions, with an index too, and late ones end.

use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::types::Value;

use super::*;

fn plain_and_ours() -> [rusqlite::Connection; 2] {
    crate::initialize().unwrap();
    let both = [(), ()].map(|()| rusqlite::Connection::open_in_memory().unwrap());
    replace_on(&both[1], &Look::never()).unwrap();
    mark_on(&both[1]).unwrap();
    both
}

/// Draws by SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % most as u64).unwrap()
    }

    /// A text of pieces that meet each other, some of which are no UTF-8.
    fn text(&mut self, pieces: &[&[u8]], most: usize) -> Vec<u8> {
        let count = self.below(most);
        (0..count).flat_map(|_| pieces[self.below(pieces.len())].to_vec()).collect()
    }

    /// A pattern like `text`, which it may match.
    fn like(&mut self, text: &[u8]) -> Vec<u8> {
        let mut pattern = Vec::new();
        for byte in text {
            match self.below(12) {
                0 => pattern.extend(PATTERNS[self.below(PATTERNS.len())]),
                1 | 2 => pattern.extend(b"%"),
                3 => pattern.extend(b"*"),
                4 => pattern.extend(b"_"),
                5 => pattern.extend(b"?"),
                6 => pattern.extend([b'!', *byte]),
                7 => pattern.push(byte.to_ascii_uppercase()),
                _ => pattern.push(*byte),
            }
        }
        pattern
    }

    fn value(&mut self, pieces: &[&[u8]], most: usize) -> (&'static str, Value) {
        let text = self.text(pieces, most);
        match self.below(20) {
            0 => ("?", Value::Null),
            1 => ("?", Value::Integer(i64::try_from(self.below(200)).unwrap() - 100)),
            2 => ("?", Value::Real(f64::from(u32::try_from(self.below(99)).unwrap()) / 8.0)),
            3 => ("?", Value::Blob(text)),
            // Text of whatever bytes.
            _ => ("CAST(? AS TEXT)", Value::Blob(text)),
        }
    }
}

const LETTERS: &[&[u8]] = &[
    b"a",
    b"a",
    b"A",
    b"b",
    b"B",
    b"1",
    b"-",
    b"]",
    b"[",
    b"^",
    b"%",
    b"_",
    b"*",
    b"?",
    b"@",
    b"`",
    "\u{e9}".as_bytes(),
    "\u{c9}".as_bytes(),
    "\u{1f600}".as_bytes(),
    "\u{fffd}".as_bytes(),
    b"\x80",
    b"\xc3",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc1\x81",
    b"\0",
    b"\xf8\x88\x80\x80\x80",
];

const PATTERNS: &[&[u8]] = &[
    b"%",
    b"%",
    b"_",
    b"*",
    b"*",
    b"?",
    b"a",
    b"A",
    b"b",
    b"!",
    b"!%",
    b"!_",
    b"!!",
    b"[ab]",
    b"[^a]",
    b"[a-",
    b"[]a]",
    b"[^]]",
    b"[a-b-c]",
    b"[",
    b"]",
    b"-",
    b"^",
    b"1",
    b"\\",
    b"@",
    b"`",
    "\u{e9}".as_bytes(),
    "\u{c9}".as_bytes(),
    "[\u{e0}-\u{ff}]".as_bytes(),
    b"\x80",
    b"\xc3",
    "\u{fffd}".as_bytes(),
    b"\xff",
    b"\0",
    b"\xed\xa0\x80",
    b"\xc1\x81",
];

const ESCAPES: &[&[u8]] =
    &[b"!", b"!", b"!", b"%", b"_", b"a", b"", b"ab", b"\x80", "\u{e9}".as_bytes()];

#[test]
fn answers_are_those_of_sqlite() {
    let both = plain_and_ours();
    let mut draw = Draw(11);
    let mut matched = 0;
    for _ in 0..60_000 {
        let (text, a) = draw.value(LETTERS, 9);
        let (mut pattern, mut b) = draw.value(PATTERNS, 7);
        if let (Value::Blob(text), true) = (&a, draw.below(2) == 0) {
            (pattern, b) = ("CAST(? AS TEXT)", Value::Blob(draw.like(text)));
        }
        let (sql, c) = match draw.below(3) {
            0 => (format!("SELECT {text} GLOB {pattern}"), None),
            1 => (format!("SELECT {text} LIKE {pattern}"), None),
            _ => {
                let escape = ESCAPES[draw.below(ESCAPES.len())].to_vec();
                let escape = if draw.below(30) == 0 { Value::Null } else { Value::Blob(escape) };
                (format!("SELECT {text} LIKE {pattern} ESCAPE CAST(? AS TEXT)"), Some(escape))
            }
        };
        let values: Vec<&Value> = [&a, &b].into_iter().chain(&c).collect();
        let [plain, ours] = both.each_ref().map(|it| {
            let mut statement = it.prepare_cached(&sql).unwrap();
            let values = rusqlite::params_from_iter(values.iter().copied());
            let answer = statement.query_row(values, |row| row.get::<_, Value>(0));
            answer.map_err(|error| error.to_string())
        });
        assert_eq!(ours, plain, "{sql} {values:?}");
        matched += usize::from(plain == Ok(Value::Integer(1)));
    }
    assert!(matched > 3_000, "{matched}");
}

#[test]
fn an_index_is_used_as_with_sqlites_own() {
    let table = "CREATE TABLE t(x TEXT, y TEXT COLLATE NOCASE); CREATE INDEX i ON t(x);
                 CREATE INDEX j ON t(y); INSERT INTO t VALUES ('abc', 'abC'), ('b', 'b')";
    let conditions = [
        ("x GLOB 'ab*'", true),
        ("x GLOB '*ab'", false),
        ("y LIKE 'ab%'", true),
        ("y LIKE 'Ab!%' ESCAPE '!'", true),
        ("x LIKE 'ab%'", false),
    ];
    let plans = plain_and_ours().map(|connection| {
        connection.execute_batch(table).unwrap();
        conditions.map(|(condition, _)| {
            let sql = format!("EXPLAIN QUERY PLAN SELECT 1 FROM t WHERE {condition}");
            let plan: String = connection.query_row(&sql, (), |row| row.get(3)).unwrap();
            let sql = format!("SELECT count(*) FROM t WHERE {condition}");
            let rows: i64 = connection.query_row(&sql, (), |row| row.get(0)).unwrap();
            (plan, rows)
        })
    });
    assert_eq!(plans[1], plans[0]);
    for ((plan, _), (condition, is_searched)) in plans[1].iter().zip(conditions) {
        assert_eq!(plan.starts_with("SEARCH"), is_searched, "{condition}: {plan}");
    }
}

#[test]
fn what_has_to_end_ends_within_a_call_and_between_them() {
    crate::initialize().unwrap();
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    let looks = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&looks);
    let look = Look::with(move || seen.fetch_add(1, Ordering::Relaxed) >= 3);
    replace_on(&connection, &look).unwrap();
    // 10^6 times 99 comparisons, in one call.
    let long = "SELECT printf('%.*c', 1000000, 'a') LIKE '%' || printf('%.*c', 98, 'a') || 'b'";
    let ended = connection.query_row(long, (), |_| Ok(()));
    assert_eq!(
        ended.unwrap_err().sqlite_error_code(),
        Some(rusqlite::ErrorCode::OperationInterrupted)
    );
    assert_eq!(looks.swap(0, Ordering::Relaxed), 4);
    let calls: Vec<_> = (0..90).map(|i| format!("(x LIKE '%b{i}')")).collect();
    let calls = calls.join("+");
    let many = format!("SELECT {calls} FROM (SELECT printf('%.*c', 10000, 'a') AS x)");
    let ended = connection.query_row(&many, (), |_| Ok(()));
    assert_eq!(
        ended.unwrap_err().sqlite_error_code(),
        Some(rusqlite::ErrorCode::OperationInterrupted)
    );
    assert_eq!(looks.load(Ordering::Relaxed), 4);
}
