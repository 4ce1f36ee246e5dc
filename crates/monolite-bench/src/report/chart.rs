//! A chart before it has a form: what it shows and in which order, and no pixel.
//!
//! # Not here
//! How it is drawn: [`draw`]. Which charts a record has: [`super::pictures`].

pub mod draw;

use super::render::{bytes, count, nanoseconds};
use crate::statistics::Spread;

/// A chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// Unique within a report, of letters, digits and `-`.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What that means, in one sentence.
    pub meaning: String,
    /// What the horizontal axis shows.
    pub x_title: String,
    /// Marks of the horizontal axis, from left to right.
    pub x_marks: Vec<Mark>,
    /// What the vertical axis shows.
    pub y_title: String,
    /// How its figures are written.
    pub unit: Unit,
    /// How they are spread along the axis.
    pub scale: Scale,
    /// Lines in the order of the legend; of bars, a line with a point each.
    pub lines: Vec<Line>,
    /// Its form.
    pub form: Form,
}

/// A mark of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where.
    pub at: f64,
    /// What it says.
    pub text: String,
}

/// Points that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<Point>,
}

/// A figure, and its spread over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Place on the horizontal axis.
    pub x: f64,
    /// The figure.
    pub y: f64,
    /// The smallest of the rounds.
    pub low: f64,
    /// The largest of the rounds.
    pub high: f64,
}

impl Point {
    /// A figure without a spread.
    pub fn exact(x: f64, y: f64) -> Point {
        Point { x, y, low: y, high: y }
    }

    /// A figure over rounds.
    pub fn over_rounds(x: f64, spread: Spread) -> Point {
        Point { x, y: spread.median, low: spread.min, high: spread.max }
    }
}

/// The form of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Lines with a mark at each point.
    #[default]
    Lines,
    /// A horizontal bar for each line's one point.
    Bars,
}

/// How figures are spread along the vertical axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    #[default]
    Linear,
    /// In powers of ten.
    Logarithmic,
}

/// How figures are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// A number.
    #[default]
    Number,
    /// A time, from nanoseconds.
    Nanoseconds,
    /// A size, from bytes.
    Bytes,
    /// A share of one.
    Share,
}

impl Unit {
    /// Writes a figure, short enough for an axis.
    pub fn write(self, figure: f64) -> String {
        match self {
            Unit::Number if figure >= 1e6 => trimmed(figure / 1e6, "M"),
            Unit::Number if figure >= 1e4 => trimmed(figure / 1e3, "k"),
            Unit::Number if figure > 0.0 && figure < 10.0 => trimmed(figure, ""),
            Unit::Number => count(figure),
            Unit::Nanoseconds => nanoseconds(figure.max(0.0) as u64),
            Unit::Bytes => bytes(figure.max(0.0) as u64).replace(".0 ", " "),
            Unit::Share if figure < 0.01 => format!("{} %", (figure * 1e4).round() / 100.0),
            Unit::Share => format!("{} %", trimmed(figure * 100.0, "")),
        }
    }
}

/// Writes a figure with one digit after the point, or none where that is a zero.
fn trimmed(figure: f64, suffix: &str) -> String {
    let text = format!("{figure:.1}");
    format!("{}{suffix}", text.strip_suffix(".0").unwrap_or(&text))
}

impl Chart {
    /// Evenly spaced marks with these texts, the first one at 0.
    pub fn marks<T: ToString>(texts: impl IntoIterator<Item = T>) -> Vec<Mark> {
        let texts = texts.into_iter().enumerate();
        texts.map(|(at, text)| Mark { at: at as f64, text: text.to_string() }).collect()
    }

    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// Returns the figures in words, for who cannot see the chart.
    pub fn in_words(&self) -> String {
        let mut text = format!("{}. ", self.meaning);
        for line in &self.lines {
            let points: Vec<String> = line.points.iter().map(|point| self.point(point)).collect();
            text.push_str(&format!("{}: {}. ", line.name, points.join(", ")));
        }
        text.trim_end().to_owned()
    }

    fn point(&self, point: &Point) -> String {
        let figure = self.unit.write(point.y);
        match self.x_marks.iter().find(|mark| mark.at == point.x) {
            Some(mark) if self.form == Form::Lines => format!("{figure} at {}", mark.text),
            _ => figure,
        }
    }

    /// Largest figure, spread included.
    fn top(&self) -> f64 {
        let points = self.lines.iter().flat_map(|line| &line.points);
        points.map(|point| point.high).fold(0.0, f64::max)
    }

    /// Smallest figure above zero, spread included.
    fn bottom(&self) -> f64 {
        let points = self.lines.iter().flat_map(|line| &line.points);
        points.map(|point| point.low).filter(|low| *low > 0.0).fold(f64::INFINITY, f64::min)
    }
}

#[cfg(test)]
mod tests;
