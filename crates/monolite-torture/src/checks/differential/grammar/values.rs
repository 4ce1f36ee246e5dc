//! Owns the values of parameters and literals: few, so that they meet, and of every type.

use fastrand::Rng;
use monolite::rusqlite::types::Value;

/// Where the values of a parameter come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// Keys of rows.
    Key,
    /// Small whole numbers.
    Small,
    /// Short texts.
    Text,
    /// Whatever a column may hold.
    Any,
    /// A pattern of `LIKE` or `GLOB`.
    Pattern,
    /// A limit.
    Count,
    /// A number of rows to be made.
    Many,
    /// A text that no other row has.
    NewMark,
    /// A text that a row may have.
    OldMark,
    /// A query of full-text search.
    Match,
    /// A coordinate.
    Place,
}

const TEXTS: [&str; 12] = ["a", "b", "c", "A", "B", "aa", "ab", "b%", "", "3", "x_y", "é"];
const PATTERNS: [&str; 10] = ["a%", "%b", "_", "a_", "%", "A%", "a*", "*", "[ab]*", ""];
const MATCHES: [&str; 10] = [
    "red",
    "blue OR red",
    "gr*",
    "red AND blue",
    "\"red blue\"",
    "NOT red",
    "x : red",
    "^red",
    "NEAR(red blue, 2)",
    "gre*",
];
/// Large ones, none of them so large that a random number would decide about the rowids beyond it.
const LARGE: [i64; 5] =
    [9_000_000_000_000_000_000, -9_000_000_000_000_000_000, 1 << 40, 4_294_967_296, -2_147_483_649];

impl Domain {
    /// A value. `marks` counts those that are new.
    pub(super) fn draw(self, rng: &mut Rng, marks: &mut u64) -> Value {
        match self {
            Domain::Key => Value::Integer(rng.i64(1..=14)),
            Domain::Small => match rng.u8(..24) {
                0 => Value::Null,
                1 => Value::Integer(-rng.i64(1..4)),
                _ => Value::Integer(rng.i64(0..8)),
            },
            Domain::Text => match rng.u8(..16) {
                0 => Value::Null,
                1 => Value::Integer(rng.i64(0..4)),
                _ => Value::Text(TEXTS[rng.usize(..TEXTS.len())].into()),
            },
            Domain::Any => any(rng),
            Domain::Pattern => Value::Text(PATTERNS[rng.usize(..PATTERNS.len())].into()),
            Domain::Count => Value::Integer(rng.i64(1..5)),
            Domain::Many => Value::Integer(rng.i64(4..24)),
            Domain::NewMark => {
                *marks += 1;
                Value::Text(format!("m{marks}"))
            }
            Domain::OldMark => Value::Text(format!("m{}", rng.u64(0..=*marks))),
            Domain::Match => Value::Text(MATCHES[rng.usize(..MATCHES.len())].into()),
            Domain::Place => Value::Real(f64::from(rng.i32(-20..80)) / 4.0),
        }
    }

    /// By its name in the grammar.
    pub(super) fn named(name: &str) -> Domain {
        match name {
            "key" => Domain::Key,
            "text" => Domain::Text,
            "any" => Domain::Any,
            "pattern" => Domain::Pattern,
            "count" => Domain::Count,
            "many" => Domain::Many,
            "new_mark" => Domain::NewMark,
            "old_mark" => Domain::OldMark,
            "match" => Domain::Match,
            "place" => Domain::Place,
            _ => Domain::Small,
        }
    }

    /// What suits a column.
    pub(super) fn of(type_name: &str, rng: &mut Rng) -> Domain {
        let type_name = type_name.to_ascii_uppercase();
        if rng.u8(..20) == 0 {
            Domain::Any
        } else if type_name.contains("INT") {
            Domain::Small
        } else if type_name.contains("TEXT") || type_name.contains("CHAR") {
            Domain::Text
        } else if rng.bool() {
            Domain::Small
        } else {
            Domain::Any
        }
    }
}

fn any(rng: &mut Rng) -> Value {
    match rng.u8(..12) {
        0 | 1 => Value::Null,
        2..6 => Value::Integer(rng.i64(-3..12)),
        6 => Value::Integer(LARGE[rng.usize(..LARGE.len())]),
        7 => Value::Real(f64::from(rng.i32(-8..24)) / 4.0),
        8 => Value::Real([1e18, -0.5, 0.1, 1e-9][rng.usize(..4)]),
        9 => Value::Blob((0..rng.usize(..4)).map(|_| rng.u8(..4) * 40).collect()),
        _ => Value::Text(TEXTS[rng.usize(..TEXTS.len())].into()),
    }
}
