//! Owns the time of a file, and its text.
//!
//! # Format
//! Milliseconds since 1970-01-01T00:00:00Z, without leap seconds. As text it is RFC 3339 in UTC
//! with three digits after the second (`RFC3339Milli` of `superfly/ltx`), so that texts are ordered
//! as times are. Litestream writes up to nine digits into the metadata of objects; what is below
//! the millisecond is dropped, towards the past.
//!
//! # Algorithm
//! Days are counted in years that begin in March (H. Hinnant, *chrono-Compatible Low-Level Date
//! Algorithms*), so that a leap day is the last of its year.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

const MILLIS_OF_DAY: i64 = 86_400_000;

/// From the first of March of the year 0 to the first of January 1970.
const DAYS_TO_1970: i64 = 719_468;
/// In 400 years, after which the calendar repeats itself.
const DAYS_OF_ERA: i64 = 146_097;

/// A moment, to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The start of the year 0, the earliest that has a text.
    const EARLIEST: i64 = -62_167_219_200_000;
    /// The last millisecond of the year 9999, the latest that has a text.
    const LATEST: i64 = 253_402_300_799_999;

    /// `millis` milliseconds after 1970-01-01T00:00:00Z, negative before it. The format knows no
    /// limits.
    pub const fn from_millis(millis: i64) -> Timestamp {
        Timestamp(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z, negative before it.
    pub const fn millis(self) -> i64 {
        self.0
    }
}

/// RFC 3339 in UTC with milliseconds: `2026-11-25T07:04:28.000Z`. Outside of the years 0 to 9999,
/// which RFC 3339 cannot say, the number of milliseconds, as in `253402300800000 ms`.
impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !(Timestamp::EARLIEST..=Timestamp::LATEST).contains(&self.0) {
            return write!(out, "{} ms", self.0);
        }
        let (year, month, day) = date(self.0.div_euclid(MILLIS_OF_DAY));
        let millis = self.0.rem_euclid(MILLIS_OF_DAY);
        let (hour, minute) = (millis / 3_600_000, millis / 60_000 % 60);
        let (second, milli) = (millis / 1000 % 60, millis % 1000);
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    /// Reads RFC 3339, with any number of digits after the second and any distance from UTC.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when it is no RFC 3339, or no date of the calendar.
    /// A leap second (`:60`) is refused, as by Go.
    fn from_str(text: &str) -> Result<Timestamp> {
        let millis = parse(text.as_bytes());
        millis.map(Timestamp).ok_or_else(|| {
            Error::invalid(format!("{text:?} is no time as in 2026-11-25T07:04:28.000Z"))
        })
    }
}

fn parse(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.split_at_checked(9)?;
    let [y @ .., b'-', m1, m2, b'-', d1, d2] = date else { return None };
    let [b'T', h1, h2, b':', n1, n2, b':', s1, s2] = time else { return None };
    let (year, month, day) = (number(y)?, number(&[*m1, *m2])?, number(&[*d1, *d2])?);
    let hour = number(&[*h1, *h2]).filter(|hour| *hour < 24)?;
    let minute = number(&[*n1, *n2]).filter(|minute| *minute < 60)?;
    let second = number(&[*s1, *s2]).filter(|second| *second < 60)?;
    let (milli, rest) = fraction(rest)?;
    let days = days(year, month, day)?;
    let millis = hour * 3_600_000 + minute * 60_000 + second * 1000 + milli;
    Some(days * MILLIS_OF_DAY + millis - distance(rest)?)
}

/// The milliseconds of what begins with a point, and what follows the digits.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(digits) = text.strip_prefix(b".") else { return Some((0, text)) };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    let (digits, rest) = digits.split_at(end);
    let digit = |at: usize| digits.get(at).map_or(0, |byte| i64::from(byte - b'0'));
    Some((digit(0) * 100 + digit(1) * 10 + digit(2), rest))
}

/// The distance from UTC in milliseconds, `Z` or `±hh:mm`.
fn distance(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        b"Z" => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let [h1, h2, b':', m1, m2] = digits else { return None };
    let hours = number(&[*h1, *h2]).filter(|hours| *hours < 24)?;
    let minutes = number(&[*m1, *m2]).filter(|minutes| *minutes < 60)?;
    Some(sign * (hours * 3_600_000 + minutes * 60_000))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'))
    })
}

/// Year, month and day of the day `days` after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_1970;
    let (era, of_era) = (days.div_euclid(DAYS_OF_ERA), days.rem_euclid(DAYS_OF_ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to a date; `None` if the calendar has no such date.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let march_year = year - i64::from(month <= 2);
    let (era, of_era) = (march_year.div_euclid(400), march_year.rem_euclid(400));
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days =
        era * DAYS_OF_ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_TO_1970;
    (date(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests;
