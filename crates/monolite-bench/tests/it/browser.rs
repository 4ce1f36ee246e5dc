//! The report in a real browser: headless Chromium, at the width of a phone.
//!
//! The page is put into a frame of that width, and a script beside the frame looks at it; the page
//! itself has none. Where there is no Chromium this is skipped, and the run says so.

use monolite_bench::report::files::read_json;
use monolite_bench::report::html;
use monolite_bench::report::record::{CellOutcome, Record, Section, WalSample};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A wide phone of small ones.
const PHONE: u32 = 360;

/// Looks at the framed page: how wide it became, and how many of its charts have anything drawn
/// that takes room.
const LOOK: &str = "
const page = frame.contentDocument;
const takesRoom = e => { const b = e.getBoundingClientRect(); return b.width + b.height > 0; };
const charts = [...page.querySelectorAll('svg.chart')];
const drawn = charts.filter(svg => svg.getBoundingClientRect().width > 250 &&
    [...svg.querySelectorAll('polyline,rect,circle,polygon')].some(takesRoom) &&
    [...svg.querySelectorAll('text')].some(takesRoom));
const regions = [...page.querySelectorAll('.scroll')].every(e => e.clientWidth <= frame.width);
document.body.append(`verdict: width ${page.documentElement.scrollWidth}, charts ` +
    `${charts.length}, drawn ${drawn.length}, regions ${regions};`);
";

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = places.iter().flat_map(|dir| names.map(|name| dir.join(name)));
    all.into_iter().find(|program| program.is_file())
}

/// Says in the list of the gate that a test could not run here.
pub(crate) fn skip(test: &str, reason: &str) {
    let Some(list) = std::env::var_os("MONOLITE_SKIPS") else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(list);
    writeln!(file.expect("the list can be written"), "{test}: {reason}")
        .expect("the list can be written");
}

/// What Chromium found in a page: the verdict of [`LOOK`], and what it wrote to its console.
struct Found {
    verdict: String,
    console: Vec<String>,
}

fn look_at(chromium: &Path, page: &str) -> Found {
    let dir = tempfile::tempdir().expect("a directory for the page");
    let escaped = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<!DOCTYPE html><title>frame</title><link rel=\"icon\" href=\"data:,\"><body><iframe \
         id=\"frame\" width=\"{PHONE}\" height=\"800\" style=\"border:0\" \
         onload=\"look()\" srcdoc=\"{escaped}\"></iframe><script>function look() {{{LOOK}}}\
         </script>"
    );
    let file = dir.path().join("frame.html");
    std::fs::write(&file, frame).expect("the page can be written");
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .arg("--hide-scrollbars")
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("the browser starts");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let verdict = dom.rsplit_once("verdict: ").and_then(|(_, rest)| rest.split_once(';'));
    Found {
        verdict: verdict.map(|(verdict, _)| verdict.to_owned()).unwrap_or_default(),
        console: said.lines().filter(|l| l.contains("CONSOLE")).map(str::to_owned).collect(),
    }
}

/// The small record of the report's own tests, and once more as a suite with sections.
fn records() -> [Record; 2] {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/files/golden.json");
    let record = read_json(&golden).expect("the small record is a record");
    let mut other = record.clone();
    other.suite = "scan".into();
    other.sections = vec![Section {
        key: "scan/all".into(),
        title: "Queries with a title long enough to be folded on a phone, or so one hopes".into(),
        meaning: "More is better".into(),
        x: "threads".into(),
        unit: "queries".into(),
    }];
    other.cells.truncate(4);
    for (number, cell) in other.cells.iter_mut().enumerate() {
        cell.id = format!("scan/all/line-{}/{}", number % 2, 1 + number / 2);
    }
    for cell in &mut other.cells {
        if let CellOutcome::Measured(figures) = &mut cell.outcome {
            let look = |n: u32| WalSample { seconds: f64::from(n), bytes: u64::from(n) << 20 };
            figures.wal = (0..200).map(look).collect();
        }
    }
    [record, other]
}

#[test]
fn every_chart_is_drawn_and_nothing_scrolls_sideways_on_a_phone() {
    let Some(chromium) = chromium() else {
        skip("every_chart_is_drawn_and_nothing_scrolls_sideways_on_a_phone", "no chromium");
        return;
    };
    let page = html::page(&records());
    let charts = page.matches("<svg").count();
    let found = look_at(&chromium, &page);
    let expected = format!("width {PHONE}, charts {charts}, drawn {charts}, regions true");
    assert_eq!(found.verdict, expected);
    assert!(found.console.is_empty(), "{:?}", found.console);
    // What it must notice: something too wide, a chart without anything in it, an error.
    let spoilt = page.replace(
        "</main>",
        "<p style='width:500px'>wide</p><svg class='chart'></svg>\
         <script>console.error('seen')</script></main>",
    );
    let found = look_at(&chromium, &spoilt);
    assert!(!found.verdict.contains(&format!("width {PHONE},")), "{}", found.verdict);
    let expected = format!("charts {}, drawn {charts},", charts + 1);
    assert!(found.verdict.contains(&expected), "{}", found.verdict);
    assert_eq!(found.console.len(), 1, "{:?}", found.console);
}
