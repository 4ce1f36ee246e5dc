//! Times and their texts; known ones are those of Go's `time` package.

use super::*;

const KNOWN: [(i64, &str); 9] = [
    (0, "1970-01-01T00:00:00.000Z"),
    (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
    (951_782_400_123, "2000-02-29T00:00:00.123Z"),
    (951_868_799_999, "2000-02-29T23:59:59.999Z"),
    (-1, "1969-12-31T23:59:59.999Z"),
    (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
    (-2_203_891_200_000, "1900-03-01T00:00:00.000Z"),
    (Timestamp::EARLIEST, "0000-01-01T00:00:00.000Z"),
    (Timestamp::LATEST, "9999-12-31T23:59:59.999Z"),
];

#[test]
fn known_times_have_known_texts() {
    for (millis, text) in KNOWN {
        assert_eq!(Timestamp::from_millis(millis).to_string(), text);
        assert_eq!(text.parse::<Timestamp>().unwrap().millis(), millis);
    }
}

#[test]
fn every_day_of_ten_thousand_years_is_read_back() {
    let mut before = String::new();
    for day in Timestamp::EARLIEST / MILLIS_OF_DAY..=Timestamp::LATEST.div_euclid(MILLIS_OF_DAY) {
        let (year, month, of_month) = date(day);
        assert_eq!(days(year, month, of_month), Some(day));
        if day % 1000 == 0 {
            let text = Timestamp::from_millis(day * MILLIS_OF_DAY).to_string();
            assert!(before < text, "{text} after {before}");
            before = text;
        }
    }
}

#[test]
fn fractions_are_cut_and_distances_counted() {
    for (text, millis) in [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T00:00:00.123456789Z", 123),
        ("1970-01-01T00:00:00.0009Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T18:30:00.25-05:30", 250),
    ] {
        assert_eq!(text.parse::<Timestamp>().unwrap().millis(), millis, "{text}");
    }
}

#[test]
fn other_texts_are_refused() {
    for bad in [
        "",
        "1970",
        "1970-01-01",
        "1970-01-01T00:00:00",
        "1970-01-01 00:00:00Z",
        "1970-01-01T00:00:00.Z",
        "1970-01-01T00:00:60Z",
        "1970-01-01T24:00:00Z",
        "1970-13-01T00:00:00Z",
        "1970-00-01T00:00:00Z",
        "1970-02-29T00:00:00Z",
        "1970-01-00T00:00:00Z",
        "1970-01-01T00:00:00+25:00",
        "1970-01-01T00:00:00+0100",
        "1970-01-01T00:00:00Zx",
        "-970-01-01T00:00:00Z",
        "1970-01-01T00:0é:00Z",
    ] {
        assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
    }
}

#[test]
fn what_has_no_date_is_a_number() {
    for millis in [i64::MIN, Timestamp::EARLIEST - 1, Timestamp::LATEST + 1, i64::MAX] {
        assert_eq!(Timestamp::from_millis(millis).to_string(), format!("{millis} ms"));
    }
}
