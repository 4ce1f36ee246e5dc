//! Owns how numbers and times are put into words.

/// So many of them: `1 file`, `2 files`.
pub(crate) fn count(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A time that something took: `12 ms`, `3.4 s`. It is never none.
pub(crate) fn seconds(seconds: f64) -> String {
    match (seconds * 1e3).round() {
        millis if millis < 1.0 => "less than 1 ms".into(),
        millis if millis < 1e3 => format!("{millis} ms"),
        _ => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_no_time_is_nothing() {
        assert_eq!([0, 1, 2].map(|n| count(n, "file")), ["0 files", "1 file", "2 files"]);
        let said = [0.0001, 0.012, 0.9996, 3.44].map(seconds);
        assert_eq!(said, ["less than 1 ms", "12 ms", "1.0 s", "3.4 s"]);
    }
}
