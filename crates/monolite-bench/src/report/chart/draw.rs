//! Draws charts as SVG that stands alone: in a page, or as a file in a README.
//!
//! # Format
//! A drawing is 440 units wide, so that its letters can be read on a phone; it grows with the
//! page. Its colours are those of a light page; [`STYLE`] names each once more for a dark one,
//! because a colour that is an attribute gives way to a rule. Lines differ in colour and in the
//! form of their marks, so that they differ in print, too. A title and a description in words are
//! inside.

use super::{Chart, Form, Line, Point, Scale, Unit};
use maud::Escaper;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Write;
use std::ops::Range;

const WIDTH: u32 = 440;

/// Of the axes and what is between them.
const PLOT_HEIGHT: u32 = 250;

/// Of a line of the legend.
const LEGEND_HEIGHT: u32 = 20;

/// Of a bar and the words above it.
const BAR_HEIGHT: u32 = 38;

/// plotters writes four fifths of a size into the SVG.
const LETTERS: f64 = 14.0 * 1.24;

const INK: RGBColor = RGBColor(0x1f, 0x29, 0x37);
const GRID: RGBColor = RGBColor(0xd1, 0xd5, 0xdb);

/// Colours of lines, each with at least 4.5 : 1 to white.
const LINES: [RGBColor; 8] = [
    RGBColor(0x1d, 0x4e, 0xd8),
    RGBColor(0xc2, 0x41, 0x0c),
    RGBColor(0x15, 0x80, 0x3d),
    RGBColor(0x7e, 0x22, 0xce),
    RGBColor(0xbe, 0x18, 0x5d),
    RGBColor(0x0f, 0x76, 0x6e),
    RGBColor(0x85, 0x4d, 0x0e),
    RGBColor(0x4b, 0x55, 0x63),
];

/// The rules that a drawing carries: its size, and its colours on a dark page. Those are written
/// for the colours above.
pub const STYLE: &str = "\
svg.chart{width:100%;height:auto;max-width:640px}svg.chart polyline{fill:none}
@media (prefers-color-scheme:dark){
svg.chart [fill='#1F2937']{fill:#e5e7eb}svg.chart [stroke='#1F2937']{stroke:#e5e7eb}
svg.chart [stroke='#D1D5DB']{stroke:#374151}
svg.chart [fill='#1D4ED8']{fill:#60a5fa}svg.chart [stroke='#1D4ED8']{stroke:#60a5fa}
svg.chart [fill='#C2410C']{fill:#fb923c}svg.chart [stroke='#C2410C']{stroke:#fb923c}
svg.chart [fill='#15803D']{fill:#4ade80}svg.chart [stroke='#15803D']{stroke:#4ade80}
svg.chart [fill='#7E22CE']{fill:#c084fc}svg.chart [stroke='#7E22CE']{stroke:#c084fc}
svg.chart [fill='#BE185D']{fill:#f472b6}svg.chart [stroke='#BE185D']{stroke:#f472b6}
svg.chart [fill='#0F766E']{fill:#2dd4bf}svg.chart [stroke='#0F766E']{stroke:#2dd4bf}
svg.chart [fill='#854D0E']{fill:#facc15}svg.chart [stroke='#854D0E']{stroke:#facc15}
svg.chart [fill='#4B5563']{fill:#9ca3af}svg.chart [stroke='#4B5563']{stroke:#9ca3af}
}
@media print{svg.chart{max-width:100%}}
";

/// What plotters says of every shape and SVG takes for granted, or a drawing says once for all. A
/// report has a hundred drawings, half of whose bytes these were.
const SAID: [(&str, &str); 9] = [
    (" opacity=\"1\"", ""),
    (" stroke=\"none\"", ""),
    (" stroke-width=\"1\"", ""),
    (" text-anchor=\"start\"", ""),
    (" font-family=\"sans-serif\"", ""),
    (" font-size=\"14\"", ""),
    ("<polyline fill=\"none\"", "<polyline"),
    (">\n", ">"),
    ("\n</text>", "</text>"),
];

/// Draws a chart for a page that has [`STYLE`].
pub fn svg(chart: &Chart) -> String {
    let height = match chart.form {
        Form::Lines => PLOT_HEIGHT + LEGEND_HEIGHT * chart.lines.len() as u32 + 8,
        Form::Bars => BAR_HEIGHT * chart.lines.len() as u32 + 8,
    };
    let mut drawn = String::new();
    {
        let root = SVGBackend::with_string(&mut drawn, (WIDTH, height)).into_drawing_area();
        let done = match chart.form {
            Form::Lines => lines(chart, &root),
            Form::Bars => bars(chart, &root),
        };
        done.and_then(|()| root.present().map_err(Into::into))
            .expect("a drawing into memory does not fail");
    }
    let inside = drawn.split_once('>').map_or("", |(_, inside)| inside).to_owned();
    let inside = SAID.iter().fold(inside, |text, (said, short)| text.replace(said, short));
    let (id, title, words) = (&chart.id, escaped(&chart.title), escaped(&chart.in_words()));
    format!(
        "<svg class=\"chart\" id=\"{id}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"14\" \
         aria-labelledby=\"{id}-title {id}-words\">\n\
         <title id=\"{id}-title\">{title}</title>\n<desc id=\"{id}-words\">{words}</desc>\n{inside}"
    )
}

/// Draws a chart as a file of its own.
pub fn file(chart: &Chart) -> String {
    svg(chart).replacen("\n<title", &format!("\n<style>{STYLE}</style>\n<title"), 1)
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    write!(Escaper::new(&mut escaped), "{text}").expect("a string takes everything");
    escaped
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn letters(color: RGBColor) -> TextStyle<'static> {
    ("sans-serif", LETTERS).into_font().color(&color)
}

fn lines(chart: &Chart, root: &Area<'_>) -> Drawn {
    let (plot, legend) = root.split_vertically(PLOT_HEIGHT);
    let axis = Axis::of(chart);
    let last = chart.x_marks.iter().map(|mark| mark.at).fold(0.0, f64::max);
    // A little room, so that marks at the ends are whole.
    let room = if last > 0.0 { last * 0.04 } else { 0.5 };
    let x_points: Vec<f64> = chart.x_marks.iter().map(|mark| mark.at).collect();
    let x = Marked { range: -room..last + room, marks: x_points };
    let y = Marked { range: axis.low..axis.high, marks: axis.marks.clone() };
    plot.draw(&Text::new(chart.y_title.clone(), (4, 2), letters(INK)))?;
    let mut drawing = ChartBuilder::on(&plot)
        .margin_top(26)
        .margin_right(12)
        .x_label_area_size(44)
        .y_label_area_size(66)
        .build_cartesian_2d(x, y)?;
    let mark_text = |at: &f64| {
        let mark = chart.x_marks.iter().find(|mark| mark.at == *at);
        mark.map_or(String::new(), |mark| mark.text.clone())
    };
    drawing
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(letters(INK))
        .x_labels(chart.x_marks.len().max(1))
        .x_label_formatter(&mark_text)
        .y_labels(axis.marks.len().max(1))
        .y_label_formatter(&|at| chart.unit.write(axis.figure(*at)))
        .x_desc(chart.x_title.clone())
        .draw()?;
    let colors = colors(&chart.lines);
    for (line, &number) in chart.lines.iter().zip(&colors) {
        let at = |x: f64, y: f64| drawing.backend_coord(&(x, axis.place(y)));
        draw_line(root, line, number, &at)?;
    }
    for ((position, line), &number) in chart.lines.iter().enumerate().zip(&colors) {
        let y = position as i32 * LEGEND_HEIGHT as i32 + 10;
        let color = color(number);
        legend.draw(&PathElement::new(vec![(8, y), (36, y)], color.stroke_width(2)))?;
        mark(&legend, number, (22, y))?;
        let style = letters(INK).pos(Pos::new(HPos::Left, VPos::Center));
        legend.draw(&Text::new(line.name.clone(), (44, y), style))?;
    }
    Ok(())
}

fn draw_line(
    root: &Area<'_>,
    line: &Line,
    number: usize,
    at: &dyn Fn(f64, f64) -> (i32, i32),
) -> Drawn {
    let color = color(number);
    let path: Vec<(i32, i32)> = line.points.iter().map(|point| at(point.x, point.y)).collect();
    // A line of very many points is one of time, and needs no marks.
    let dense = line.points.len() > 40;
    root.draw(&PathElement::new(path.clone(), color.stroke_width(2)))?;
    for (Point { x, low, high, .. }, place) in line.points.iter().zip(path) {
        if low < high {
            let spread = vec![at(*x, *low), at(*x, *high)];
            root.draw(&PathElement::new(spread, color.stroke_width(1)))?;
        }
        if !dense {
            mark(root, number, place)?;
        }
    }
    Ok(())
}

/// Gives each line a colour, and with it a mark: the same ones to the same side in every chart.
fn colors(lines: &[Line]) -> Vec<usize> {
    let mut used = Vec::new();
    let mut colors = Vec::new();
    for line in lines {
        let preferred: [usize; 8] = match line.name.get(..3) {
            Some("mon") => [0, 5, 3, 7, 4, 6, 2, 1],
            Some("Pos") => [2, 4, 6, 7, 3, 5, 1, 0],
            _ => [1, 6, 7, 4, 3, 2, 5, 0],
        };
        let turns = colors.len() / LINES.len();
        if turns * LINES.len() == colors.len() {
            used.clear();
        }
        let free = preferred.into_iter().find(|color| !used.contains(color)).unwrap_or(0);
        used.push(free);
        colors.push(free + turns * LINES.len());
    }
    colors
}

fn color(number: usize) -> RGBColor {
    LINES[number % LINES.len()]
}

/// Draws the mark of a line: the first eight differ in form or colour, the next eight in both.
fn mark(area: &Area<'_>, number: usize, at: (i32, i32)) -> Drawn {
    let color = color(number);
    let (x, y) = at;
    match (number + number / LINES.len()) % 4 {
        0 => area.draw(&Circle::new(at, 4, color.filled()))?,
        1 => area.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], color.filled()))?,
        2 => area.draw(&TriangleMarker::new(at, 6, color.filled()))?,
        _ => area.draw(&Cross::new(at, 4, color.stroke_width(2)))?,
    }
    Ok(())
}

fn bars(chart: &Chart, root: &Area<'_>) -> Drawn {
    const LEFT: i32 = 4;
    let top = chart.top().max(f64::MIN_POSITIVE);
    let width = f64::from(WIDTH) - f64::from(LEFT) * 2.0;
    for (number, line) in chart.lines.iter().enumerate() {
        let Some(point) = line.points.first() else { continue };
        let y = number as i32 * BAR_HEIGHT as i32 + 4;
        let right = |figure: f64| LEFT + (figure / top * width).max(1.0) as i32;
        root.draw(&Text::new(line.name.clone(), (LEFT, y), letters(INK)))?;
        let style = letters(INK).pos(Pos::new(HPos::Right, VPos::Top));
        let figure = chart.unit.write(point.y);
        root.draw(&Text::new(figure, (WIDTH as i32 - LEFT, y), style))?;
        // What is ours has the first colour, everything else the last.
        let color = if line.name.starts_with("monolite") { LINES[0] } else { LINES[7] };
        let bar = [(LEFT, y + 18), (right(point.y), y + 28)];
        root.draw(&Rectangle::new(bar, color.filled()))?;
        if point.low < point.high {
            let spread = vec![(right(point.low), y + 23), (right(point.high), y + 23)];
            root.draw(&PathElement::new(spread, INK.stroke_width(2)))?;
        }
    }
    Ok(())
}

/// A range with marks of our own.
struct Marked {
    range: Range<f64>,
    marks: Vec<f64>,
}

impl Ranged for Marked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// The vertical axis: from figures to places on it.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Places of its marks.
    marks: Vec<f64>,
}

impl Axis {
    fn of(chart: &Chart) -> Axis {
        match chart.scale {
            Scale::Logarithmic if chart.bottom().is_finite() => Axis::logarithmic(chart),
            _ => Axis::linear(chart),
        }
    }

    fn linear(chart: &Chart) -> Axis {
        let top = chart.top().max(f64::MIN_POSITIVE);
        let step = match chart.unit {
            Unit::Bytes => round_bytes(top / 4.0),
            _ => round_step(top / 4.0),
        };
        let steps = (top / step).ceil().max(1.0);
        let marks = (0..=steps as u32).map(|number| f64::from(number) * step).collect();
        Axis { scale: Scale::Linear, low: 0.0, high: steps * step, marks }
    }

    fn logarithmic(chart: &Chart) -> Axis {
        let low = chart.bottom().log10().floor();
        let high = chart.top().log10().ceil().max(low + 1.0);
        let marks = (low as i32..=high as i32).map(f64::from).collect();
        Axis { scale: Scale::Logarithmic, low, high, marks }
    }

    /// Place of a figure; what a logarithm has no place for is at the bottom.
    fn place(&self, figure: f64) -> f64 {
        match self.scale {
            Scale::Linear => figure,
            Scale::Logarithmic => figure.max(f64::MIN_POSITIVE).log10().max(self.low),
        }
    }

    /// Figure at a place.
    fn figure(&self, place: f64) -> f64 {
        match self.scale {
            Scale::Linear => place,
            Scale::Logarithmic => 10_f64.powf(place),
        }
    }
}

/// Returns the next step of 1, 2, 2.5 or 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|step| *step >= least).unwrap_or(least)
}

/// Returns the next step that is round in the unit in which a size is written.
fn round_bytes(least: f64) -> f64 {
    let units = [1024.0_f64.powi(3), 1024.0_f64.powi(2), 1024.0];
    let unit = units.into_iter().find(|unit| least >= unit / 4.0).unwrap_or(1.0);
    round_step(least / unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_has_a_rule_for_a_dark_page() {
        for RGBColor(r, g, b) in LINES.into_iter().chain([INK, GRID]) {
            let color = format!("[stroke='#{r:02X}{g:02X}{b:02X}']");
            assert!(STYLE.contains(&color), "{color}");
        }
    }

    #[test]
    fn each_side_has_its_colour_and_no_two_lines_of_eight_have_one() {
        let names = ["raw", "monolite", "monolite, b", "PostgreSQL", "raw, b", "raw, c", "d", "e"];
        let line = |name: &&str| Line { name: (*name).into(), points: Vec::new() };
        let lines: Vec<Line> = names.iter().map(line).collect();
        let mut given = colors(&lines);
        assert_eq!(given[..4], [1, 0, 5, 2]);
        given.sort_unstable();
        assert_eq!(given, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([0.3, 3.0, 24.0, 26.0].map(round_step), [0.5, 5.0, 25.0, 50.0]);
        assert_eq!(round_bytes(350.0 * 1024.0), 0.5 * 1024.0 * 1024.0);
    }
}
