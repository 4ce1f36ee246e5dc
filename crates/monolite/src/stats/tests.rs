//! That the page has every statistic, and the text for Prometheus every figure.

use super::figure::{Figure, Value};
use super::{NameStats, Stats, prometheus};
use crate::archive::ArchiveStats;

const PAGE: &str = include_str!("../../../../docs/stats.md");

/// The page as it should be: what is before the first heading, and then the table.
fn page() -> String {
    let preface = PAGE.split_once("\n## ").map_or(PAGE, |(preface, _)| preface);
    let mut page = preface.to_owned();
    for (heading, figures) in Stats::default().figures() {
        page +=
            &format!("\n## {heading}\n\n| field | in Prometheus | what it says |\n|---|---|---|\n");
        page += &lines(figures);
    }
    page += "\n## Calls with a name\n\n`monolite::name_stats`, of all databases of the process; \
             the label is `name`.\n\n| field | in Prometheus | what it says |\n|---|---|---|\n";
    page + &lines(NameStats::default().figures())
}

fn lines(figures: Vec<Figure>) -> String {
    let line = |figure: Figure| {
        let name = match figure.value {
            Value::Text => "–".to_owned(),
            _ => format!("`{}`", figure.name),
        };
        // The fields of `NameStats` need no prefix.
        let field = figure.field.trim_start_matches("named_");
        format!("| `{field}` | {name} | {} |\n", figure.help)
    };
    figures.into_iter().map(line).collect()
}

#[test]
fn page_is_that_of_the_table() {
    let page = page();
    if std::env::var_os("MONOLITE_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stats.md");
        std::fs::write(path, &page).unwrap();
        return;
    }
    assert_eq!(page, PAGE, "docs/stats.md: run this test with MONOLITE_BLESS=1");
}

#[test]
fn every_figure_is_in_the_text_of_each_database() {
    let archive = ArchiveStats { lease_left_ms: Some(0), ..ArchiveStats::default() };
    let stats = Stats { archive: Some(archive), ..Stats::default() };
    let names = ["a", "odd \"name\"\\\n"];
    let text = prometheus(&names.map(|name| (name, stats.clone())));
    for figure in stats.figures().into_iter().flat_map(|(_, figures)| figures) {
        let (name, ending) = match figure.value {
            Value::Text => continue,
            Value::Histogram(_) => (figure.name, "_count"),
            _ => (figure.name, ""),
        };
        assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "{name}");
        for database in ["a", r#"odd \"name\"\\\n"#] {
            let sample = format!("\n{name}{ending}{{database=\"{database}\"}} 0\n");
            assert_eq!(text.matches(&sample).count(), 1, "{sample}");
        }
    }
}

#[test]
fn database_without_an_archive_has_no_figures_of_one() {
    let text = prometheus(&[("a", Stats::default())]);
    assert!(!text.contains("monolite_archive_lag_seconds{"), "{text}");
    assert!(!prometheus(&[]).contains("database="));
}
