//! Reports are made from `raw.json` alone, the same each time.
//!
//! `golden.json` is a small record, `golden-summary.md` the tables that must come of it, and pages
//! of `docs` quote tables of recorded runs. `MONOLITE_BLESS=1` in the environment writes both anew.
use super::*;
use crate::report::record::{Measurement, RoundFigures};
use crate::report::render::Table;
use std::path::Path;

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/files").join(name)
}

pub(crate) fn golden_record() -> Record {
    read(&golden("golden.json")).unwrap().remove(0)
}

#[test]
fn summary_is_generated_from_the_record() {
    let (text, file) = (tables_page(&golden_record()), golden("golden-summary.md"));
    if std::env::var_os("MONOLITE_BLESS").is_some() {
        fs::write(&file, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(file).unwrap());
}

#[test]
fn readme_has_command_ratios_settings_and_checks() {
    let record = golden_record();
    let page = readme(&record);
    let begin = format!("# bench tps, 2026-11-21\n\nOne run of\n\n```\n{}\n```", record.command);
    assert!(page.starts_with(&begin), "{page}");
    let titles = ["Ratios within this run", "Settings of the engine", "Pragmas of raw SQLite"];
    assert!(titles.iter().all(|title| page.contains(&format!("\n## {title}\n"))), "{page}");
    let check = "- burst/durable/one-per-commit: sum of all balances is 5000000000000, as loaded";
    assert!(page.contains(check), "{page}");
}

#[test]
fn record_survives_its_file() {
    let record = golden_record();
    let dir = tempfile::tempdir().unwrap();
    let first = write_record(std::slice::from_ref(&record), dir.path()).unwrap();
    let second = write_record(std::slice::from_ref(&record), dir.path()).unwrap();
    assert_eq!(first.file_name().unwrap(), "2026-11-21-tps");
    assert_eq!(second.file_name().unwrap(), "2026-11-21-tps-2");
    assert_eq!(read(&first.join("raw.json")).unwrap(), [record]);
    assert!(first.join("README.md").exists() && first.join("summary.md").exists());
    assert!(read(&first.join("README.md")).is_err());
}

#[test]
fn records_of_several_suites_are_kept_in_one_file() {
    let records = [golden_record(), golden_record()];
    let dir = tempfile::tempdir().unwrap();
    let [raw, page] = write_latest(&records, dir.path()).unwrap();
    assert_eq!(raw.file_name().unwrap(), "latest-all.json");
    assert_eq!(read(&raw).unwrap(), records);
    assert!(fs::read_to_string(page).unwrap().contains("bench tps, 2026-11-21"));
    let written = write_record(&records, dir.path()).unwrap();
    assert_eq!(written.file_name().unwrap(), "2026-11-21-all");
}

#[test]
fn terminal_report_says_what_is_missing_and_why() {
    let record = read(&golden("golden.json")).unwrap().remove(0);
    let mut out = Vec::new();
    write_text(&record, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("no PostgreSQL: left out by --no-postgres"), "{text}");
    assert!(text.contains("not built yet"), "{text}");
}

#[test]
fn only_where_there_are_accounts_are_checks_of_the_money() {
    let mut record = golden_record();
    assert!(readme(&record).contains("Checks of the money, all passed"));
    record.suite = "kv".into();
    record.verifications[0].check = "every page has all of its rows".into();
    let page = readme(&record);
    assert!(page.contains("Checks of the work, all passed") && !page.contains("money"), "{page}");
    assert!(page.contains("every page has all of its rows (") && page.contains(" looked at)"));
}

#[test]
fn a_note_names_the_round_that_it_is_of() {
    let of = |notes: &[&str], rounds| Measurement {
        notes: notes.iter().map(ToString::to_string).collect(),
        rounds: vec![RoundFigures::default(); rounds],
        ..Measurement::default()
    };
    let told = |notes: &[&str], rounds| of(notes, rounds).notes().collect::<Vec<_>>();
    assert_eq!(told(&["some"], 1), ["some"]);
    assert_eq!(told(&["some", "", "more"], 3), ["round 1: some", "round 3: more"]);
    assert_eq!(told(&["some"], 2), ["in one of 2 rounds: some"]);
}

/// Pages with tables of recorded runs, each between `<!-- from RECORD: SUITE: TITLE -->` and
/// `<!-- end -->`.
const QUOTING: [&str; 2] = ["../README.md", "benchmarks.md"];

#[test]
fn tables_that_documents_quote_are_those_of_the_record() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for name in QUOTING {
        let page = fs::read_to_string(docs.join(name)).unwrap();
        let anew = with_tables(&page, &docs.join("results"));
        if std::env::var_os("MONOLITE_BLESS").is_some() {
            fs::write(docs.join(name), &anew).unwrap();
            continue;
        }
        assert_eq!(anew, page, "{name}: run this test with MONOLITE_BLESS=1");
        assert!(page.contains(BEGIN), "{name} quotes nothing");
    }
}

const BEGIN: &str = "<!-- from ";
const END: &str = "<!-- end -->";

/// The page with each table that it quotes made anew of its record.
fn with_tables(page: &str, results: &Path) -> String {
    let mut parts = page.split(BEGIN);
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (place, rest) = part.split_once(" -->").unwrap();
        let (_, rest) = rest.split_once(END).unwrap_or_else(|| panic!("{place} has no end"));
        let names: Vec<&str> = place.splitn(3, ": ").collect();
        let &[folder, suite, title] = &names[..] else { panic!("{place}: RECORD: SUITE: TITLE") };
        let records = read(&results.join(folder).join("raw.json")).unwrap();
        let record = records.iter().find(|record| record.suite == suite).expect(place);
        let table = table_of(record, title).to_markdown();
        let (title, table) = table.trim_start_matches('#').split_once('\n').unwrap();
        let is_there = ["tps", "begin", "server"].contains(&suite);
        let command = if is_there { format!("bench {suite}") } else { suite.to_owned() };
        let title = format!("**`{command}`**:{title}");
        text.push_str(&format!("{BEGIN}{place} -->\n{title}\n{table}{END}{rest}"));
    }
    text
}

fn table_of(record: &Record, title: &str) -> Table {
    let mut all = std::iter::once(summary::of(record)).chain(tables::all(record));
    let found = all.find(|table| table.title.starts_with(title));
    found.unwrap_or_else(|| panic!("bench {} has no table {title:?}", record.suite))
}

#[test]
fn a_table_is_quoted_between_its_marks() {
    let dir = tempfile::tempdir().unwrap();
    let written = write_record(&[golden_record()], dir.path()).unwrap();
    let folder = written.file_name().unwrap().to_str().unwrap();
    let page = format!("before\n{BEGIN}{folder}: tps: Summary -->stale{END}\nafter\n");
    let anew = with_tables(&page, dir.path());
    assert!(anew.contains("| writes in a burst |") && !anew.contains("stale"), "{anew}");
    assert!(anew.starts_with("before\n") && anew.ends_with("\nafter\n"), "{anew}");
    assert_eq!(with_tables(&anew, dir.path()), anew);
}
