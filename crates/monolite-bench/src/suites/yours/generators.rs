//! What stands for a parameter: `:id uniform(1..1e6)`.
//!
//! # Format
//! A name with `:`, `@` or `$`, and a generator: `uniform(LOW..HIGH)`, `zipf(COUNT)` or
//! `zipf(COUNT, EXPONENT)`, `pareto(LOW..HIGH)`, `serial`, `text(LENGTH)`, `blob(SIZE)`, `now`.
//! Numbers may be written as `1e6` or `1_000_000`, sizes as `1KiB`.

use crate::workload::{Draw, Skew};
use anyhow::{Context, Result, bail, ensure};
use rusqlite::types::Value;
use std::sync::atomic::{AtomicI64, Ordering};

/// What generators there are, for an error.
const KINDS: &str = "uniform(1..1e6), zipf(1e6), zipf(1e6, 1.2), pareto(1..1e6), serial, text(20), \
                     blob(1KiB), now";

/// Exponent of `zipf` where none is said: that of words in a language, and of most web traffic.
const ZIPF_EXPONENT: f64 = 1.0;

/// Longest text and largest blob.
const MOST_BYTES: u64 = 64 << 20;

/// A parameter and what it becomes.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name, with the character before it.
    pub name: String,
    /// Makes its values.
    pub generator: Generator,
}

/// Makes values.
#[derive(Clone, Debug)]
pub enum Generator {
    /// A whole number, each of the range equally likely.
    Uniform {
        /// The smallest.
        low: i64,
        /// The largest.
        high: i64,
    },
    /// A whole number from 1 on; number n is drawn in proportion to n^-exponent.
    Zipf(Zipf),
    /// A whole number of the published curve: almost all draws go to few.
    Pareto {
        /// The smallest.
        low: i64,
        /// Draws from zero on.
        draw: Draw,
    },
    /// 1, 2, 3 …, over all clients; goes on where loading has stopped.
    Serial,
    /// Letters and digits, and now and then a space.
    Text(usize),
    /// Random bytes.
    Blob(usize),
    /// The time, as RFC 3339 has it.
    Now,
}

/// Draws by rejection-inversion (Hörmann and Derflinger, 1996), which needs no table.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    first: f64,
    last: f64,
    accepted: f64,
}

impl Zipf {
    fn new(count: i64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { count: count as f64, exponent, first: 0.0, last: 0.0, accepted: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.count + 0.5);
        zipf.accepted = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    fn weight(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    fn integral(&self, x: f64) -> f64 {
        if self.exponent == 1.0 {
            x.ln()
        } else {
            (x.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
        }
    }

    fn inverse(&self, area: f64) -> f64 {
        if self.exponent == 1.0 {
            area.exp()
        } else {
            (1.0 + area * (1.0 - self.exponent)).max(0.0).powf(1.0 / (1.0 - self.exponent))
        }
    }

    fn draw(&self, random: &mut fastrand::Rng) -> i64 {
        loop {
            let area = self.last + random.f64() * (self.first - self.last);
            let x = self.inverse(area);
            let nearest = x.round().clamp(1.0, self.count);
            let is_inside = nearest - x <= self.accepted;
            if is_inside || area >= self.integral(nearest + 0.5) - self.weight(nearest) {
                return nearest as i64;
            }
        }
    }
}

impl Parameter {
    /// Reads `:id uniform(1..1e6)`.
    pub fn parse(text: &str) -> Result<Parameter> {
        let (name, generator) = text.trim().split_once(char::is_whitespace).with_context(|| {
            format!(
                "{text:?} is not a parameter; write its name and what it becomes, as \
                     ':id uniform(1..1e6)'"
            )
        })?;
        ensure!(
            name.len() > 1 && name.starts_with([':', '@', '$']),
            "{name:?} is not the name of a parameter; write it as in the SQL, as ':id'"
        );
        let generator = Generator::parse(generator.trim()).with_context(|| format!("of {name}"))?;
        Ok(Parameter { name: name.to_owned(), generator })
    }
}

impl Generator {
    fn parse(text: &str) -> Result<Generator> {
        let (kind, rest) = text.split_once('(').unwrap_or((text, ")"));
        let arguments = rest.strip_suffix(')').with_context(|| {
            format!("{text:?} has no closing parenthesis; the generators are {KINDS}")
        })?;
        let generator = match (kind.trim(), arguments.trim()) {
            ("uniform", range) => {
                let (low, high) = bounds(range)?;
                Generator::Uniform { low, high }
            }
            ("pareto", range) => {
                let (low, high) = bounds(range)?;
                let count = high.abs_diff(low).saturating_add(1);
                Generator::Pareto { low, draw: Draw::with_range(Skew::Pareto, count, count) }
            }
            ("zipf", arguments) => zipf(arguments)?,
            ("text", length) => Generator::Text(size(length)?),
            ("blob", length) => Generator::Blob(size(length)?),
            ("serial", "") => Generator::Serial,
            ("now", "") => Generator::Now,
            _ => bail!("{text:?} is no generator; there are {KINDS}"),
        };
        Ok(generator)
    }

    /// Makes a value.
    pub fn draw(&self, random: &mut fastrand::Rng, serial: &AtomicI64) -> Value {
        match self {
            Generator::Uniform { low, high } => Value::Integer(random.i64(*low..=*high)),
            Generator::Zipf(zipf) => Value::Integer(zipf.draw(random)),
            Generator::Pareto { low, draw } => Value::Integer(low + draw.id(random.f64())),
            Generator::Serial => Value::Integer(serial.fetch_add(1, Ordering::Relaxed)),
            Generator::Text(length) => Value::Text(letters(random, *length)),
            Generator::Blob(length) => {
                let mut bytes = vec![0; *length];
                random.fill(&mut bytes);
                Value::Blob(bytes)
            }
            Generator::Now => Value::Text(jiff::Timestamp::now().to_string()),
        }
    }
}

fn letters(random: &mut fastrand::Rng, length: usize) -> String {
    (0..length).map(|_| if random.u8(0..7) == 0 { ' ' } else { random.alphanumeric() }).collect()
}

fn bounds(text: &str) -> Result<(i64, i64)> {
    let (low, high) = text
        .split_once("..")
        .with_context(|| format!("{text:?} is not a range; write it as 1..1e6"))?;
    let (low, high) = (number(low)?, number(high)?);
    ensure!(low <= high, "{text:?} has nothing in it; write the smaller number first");
    Ok((low, high))
}

fn zipf(text: &str) -> Result<Generator> {
    let (count, exponent) = text.split_once(',').map_or((text, None), |(a, b)| (a, Some(b)));
    let count = number(count)?;
    ensure!(count >= 1, "zipf({text}) has nothing to draw; write how many there are, as 1e6");
    let exponent = match exponent {
        None => ZIPF_EXPONENT,
        Some(text) => {
            text.trim().parse().ok().filter(|e| (0.1..=10.0).contains(e)).with_context(|| {
                format!("{text:?} is not an exponent; write a number from 0.1 to 10, as 1.2")
            })?
        }
    };
    Ok(Generator::Zipf(Zipf::new(count, exponent)))
}

/// Reads a whole number, `1e6` and `1_000_000` among them.
fn number(text: &str) -> Result<i64> {
    let digits = text.trim().replace(['_', ','], "");
    let exact = digits.parse::<i64>().ok();
    let rounded = || digits.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && n.abs() < 9e15);
    exact
        .or_else(|| rounded().map(|number| number as i64))
        .with_context(|| format!("{text:?} is not a whole number; write it as 1000, 1_000 or 1e3"))
}

/// Reads a size, `1KiB` among them.
fn size(text: &str) -> Result<usize> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("kB", 1_000), ("B", 1), ("", 1)];
    let (digits, unit) = units
        .into_iter()
        .find_map(|(unit, bytes)| Some((text.trim().strip_suffix(unit)?, bytes)))
        .expect("the empty unit fits");
    let count = number(digits)
        .with_context(|| format!("{text:?} is not a length; write it as 20 or 1KiB"))?;
    let bytes = u64::try_from(count).ok().and_then(|count| count.checked_mul(unit));
    match bytes.filter(|bytes| *bytes <= MOST_BYTES) {
        Some(bytes) => Ok(bytes as usize),
        None => bail!("{text:?} is not a length up to 64MiB; write a smaller one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers(text: &str, count: usize) -> Vec<i64> {
        let parameter = Parameter::parse(text).unwrap();
        let (mut random, serial) = (fastrand::Rng::with_seed(7), AtomicI64::new(1));
        let value = |_| match parameter.generator.draw(&mut random, &serial) {
            Value::Integer(number) => number,
            other => panic!("{other:?}"),
        };
        (0..count).map(value).collect()
    }

    fn error(text: &str) -> String {
        format!("{:#}", Parameter::parse(text).unwrap_err())
    }

    #[test]
    fn numbers_stay_within_their_range() {
        for text in [":id uniform(5..7)", "@id pareto(5..7)", ":id uniform(5..7e0)"] {
            let drawn = integers(text, 1_000);
            assert!(drawn.iter().all(|id| (5..=7).contains(id)), "{text}: {drawn:?}");
        }
        assert_eq!(integers(":n serial", 3), [1, 2, 3]);
        assert_eq!(integers(":n uniform(-1..-1)", 1), [-1]);
    }

    #[test]
    fn zipf_draws_the_first_number_about_twice_as_often_as_the_second() {
        for (text, expected) in [(":id zipf(1e6)", 2.0), (":id zipf(1000, 2)", 4.0)] {
            let drawn = integers(text, 200_000);
            let many = |wanted| drawn.iter().filter(|id| **id == wanted).count() as f64;
            let ratio = many(1) / many(2);
            assert!((ratio / expected - 1.0).abs() < 0.05, "{text}: {ratio}");
            assert!(drawn.iter().all(|id| *id >= 1), "{text}");
        }
    }

    #[test]
    fn texts_and_blobs_have_their_length() {
        let (mut random, serial) = (fastrand::Rng::with_seed(7), AtomicI64::new(1));
        let mut draw = |text| Parameter::parse(text).unwrap().generator.draw(&mut random, &serial);
        assert!(matches!(draw(":t text(20)"), Value::Text(text) if text.len() == 20));
        assert!(matches!(draw(":b blob(1KiB)"), Value::Blob(bytes) if bytes.len() == 1024));
        assert!(matches!(draw(":t now"), Value::Text(text) if text.ends_with('Z')));
    }

    #[test]
    fn errors_name_the_value_and_what_to_write_instead() {
        assert!(error("id uniform(1..2)").contains("\"id\" is not the name of a parameter"));
        assert!(error(":id").contains("write its name and what it becomes"));
        let unknown = error(":id gauss(3)");
        assert!(unknown.contains("of :id: \"gauss(3)\" is no generator; there are uniform("));
        assert!(error(":id uniform(9..1)").contains("the smaller number first"));
        assert!(error(":id uniform(1..x)").contains("\"x\" is not a whole number"));
        assert!(error(":id uniform(1..2").contains("no closing parenthesis"));
        assert!(error(":b blob(1TiB)").contains("write it as 20 or 1KiB"));
        assert!(error(":b blob(1e9)").contains("up to 64MiB"));
    }
}
