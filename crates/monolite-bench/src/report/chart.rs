//! The charts of a record, drawn as SVG.
//!
//! # Algorithm
//! The cells of a section, and those of each group in `GROUPS`, have a line and a column in their
//! names. A chart has those lines over those columns. Where there is one column alone the table
//! says as much, and there is no chart. Figures that are far apart get a logarithmic axis.

use super::record::{Cell, Measurement, Record, Section};
use super::render::{bytes, count};
use plotters::prelude::*;
use std::error::Error;

/// Groups of `bench tps` with charts, and what their columns are.
const GROUPS: [(&str, &str); 8] = [
    ("closed/durable", "clients"),
    ("closed/buffered", "clients"),
    ("delay/durable", "delay"),
    ("decide/durable", "delay"),
    ("mixed/durable", "clients"),
    ("hot-rows/durable", "clients"),
    ("hot-row/durable", "clients"),
    ("parent-child/durable", "clients"),
];

const SIZE: (u32, u32) = (640, 400);

/// From this ratio on of the largest figure to the smallest, the axis is logarithmic.
const FAR_APART: f64 = 50.0;

/// A chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// Unique within a report, of letters, digits and `-`.
    pub id: String,
    /// What it shows.
    pub title: String,
    x_title: String,
    /// What the columns say, the first one at 0; none where the axis is time, in seconds.
    columns: Vec<String>,
    /// Names, and points from left to right.
    lines: Vec<(String, Vec<(f64, f64)>)>,
    /// Whether figures are sizes.
    is_bytes: bool,
}

/// Returns the charts in the order they are read.
pub fn all(record: &Record) -> Vec<Chart> {
    let mut charts = Vec::new();
    for section in &record.sections {
        let chart = |what: &str, figure: &dyn Fn(&Measurement, &str) -> f64| {
            let place = |cell| section.place(cell);
            Chart::of(record, [&section.key, &section.title, &section.x, what], place, figure)
        };
        charts.push(chart(&format!("{}/s", section.unit), &|cell, _| cell.per_second.median));
        if section.x == "threads" {
            let each = |cell: &Measurement, threads: &str| {
                cell.per_second.median / threads.parse().unwrap_or(1.0)
            };
            charts.push(chart(&format!("{}/s for each thread", section.unit), &each));
        }
        charts.push(chart("attempts repeated a second", &|cell, _| cell.retries_per_second()));
        charts.push(wal(record, section));
    }
    for (group, x) in GROUPS {
        let name = [group, group, x, "transactions/s"];
        let rate = |cell: &Measurement, _: &str| cell.per_second.median;
        charts.push(Chart::of(record, name, |cell| place(cell, group), &rate));
    }
    charts.retain(|chart| chart.lines.iter().flat_map(|(_, points)| points).any(|(_, y)| *y > 0.0));
    charts
}

/// Line and column of a cell of `bench tps`.
fn place<'c>(cell: &'c Cell, group: &str) -> Option<(&'c str, &'c str)> {
    let rest = cell.id.strip_prefix(group)?.strip_prefix('/')?;
    rest.split_once('/').or_else(|| rest.rsplit_once('-'))
}

impl Chart {
    fn of<'r>(
        record: &'r Record,
        [key, title, x, what]: [&str; 4],
        place: impl Fn(&'r Cell) -> Option<(&'r str, &'r str)>,
        figure: &dyn Fn(&Measurement, &str) -> f64,
    ) -> Chart {
        let cells: Vec<(&str, &str, &Measurement)> = record
            .cells
            .iter()
            .filter_map(|cell| {
                let (line, column) = place(cell)?;
                Some((line, column, cell.measurement()?))
            })
            .collect();
        let mut columns: Vec<&str> = Vec::new();
        for (_, column, _) in &cells {
            if !columns.contains(column) {
                columns.push(column);
            }
        }
        // By their numbers; those of a third statement come last.
        columns.sort_by_key(|column| {
            let digits = column.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            (column.contains("third"), digits.parse::<u64>().unwrap_or(u64::MAX))
        });
        let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        if columns.len() > 1 {
            for (line, column, figures) in &cells {
                let x = columns.iter().position(|known| known == column).unwrap_or_default();
                let point = (x as f64, figure(figures, column));
                match lines.iter_mut().find(|(known, _)| known == line) {
                    Some((_, points)) => points.push(point),
                    None => lines.push(((*line).to_owned(), vec![point])),
                }
            }
        }
        lines.iter_mut().for_each(|(_, points)| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        Chart {
            id: id(&format!("{key} {what}")),
            title: format!("{title}: {what}"),
            x_title: x.into(),
            columns: columns.into_iter().map(str::to_owned).collect(),
            lines,
            is_bytes: false,
        }
    }
}

fn id(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// The WAL over time, where it was looked at: of the last column, where there is most to do.
fn wal(record: &Record, section: &Section) -> Chart {
    let watched = record.cells.iter().filter_map(|cell| {
        let (line, column) = section.place(cell)?;
        let samples = &cell.measurement()?.wal;
        (!samples.is_empty()).then_some((line, column.parse::<u64>().ok()?, samples))
    });
    let watched: Vec<_> = watched.collect();
    let most = watched.iter().map(|(_, column, _)| *column).max().unwrap_or_default();
    let lines = watched.into_iter().filter(|(_, column, _)| *column == most);
    Chart {
        id: id(&format!("{} wal", section.key)),
        title: format!("{}: the WAL over time, {most} {}", section.title, section.x),
        x_title: "seconds".into(),
        lines: lines
            .map(|(line, _, samples)| {
                let point = |at: &super::record::WalSample| (at.seconds, at.bytes as f64);
                (line.to_owned(), samples.iter().map(point).collect())
            })
            .collect(),
        is_bytes: true,
        ..Chart::default()
    }
}

/// Draws a chart.
pub fn svg(chart: &Chart) -> String {
    let mut drawn = String::new();
    draw(chart, &mut drawn).expect("a drawing into memory does not fail");
    drawn
}

fn draw(chart: &Chart, into: &mut String) -> Result<(), Box<dyn Error>> {
    let points = || chart.lines.iter().flat_map(|(_, points)| points);
    let right = points().map(|(x, _)| *x).fold(0.0, f64::max);
    let top = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let least = points().map(|(_, y)| *y).filter(|y| *y > 0.0).fold(top, f64::min);
    let is_logarithmic = !chart.is_bytes && top / least >= FAR_APART;
    let place = |y: f64| if is_logarithmic { y.max(least).log10() } else { y };
    let range = match is_logarithmic {
        true => least.log10().floor()..top.log10().ceil(),
        false => 0.0..top * 1.05,
    };
    let marks = if is_logarithmic { (range.end - range.start) as usize + 1 } else { 6 };
    let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
    let mut area = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..right, range)?;
    let column = |x: &f64| match chart.columns.get(x.round() as usize) {
        Some(text) if (x - x.round()).abs() < 0.01 => text.clone(),
        Some(_) => String::new(),
        None => format!("{x:.1}"),
    };
    let figure = |y: &f64| {
        let y = if is_logarithmic { 10_f64.powf(*y) } else { *y };
        if chart.is_bytes { bytes(y as u64) } else { count(y) }
    };
    area.configure_mesh()
        .disable_x_mesh()
        .x_labels(if chart.columns.is_empty() { 6 } else { chart.columns.len() })
        .x_label_formatter(&column)
        .x_desc(chart.x_title.clone())
        .y_labels(marks)
        .y_label_formatter(&figure)
        .draw()?;
    for (number, (name, points)) in chart.lines.iter().enumerate() {
        let style = ShapeStyle::from(&Palette99::pick(number)).stroke_width(2);
        let points = points.iter().map(|(x, y)| (*x, place(*y)));
        area.draw_series(LineSeries::new(points, style))?
            .label(name.clone())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    area.configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    drop(area);
    root.present()?;
    Ok(())
}
