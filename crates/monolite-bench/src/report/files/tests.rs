//! Reports are made from `raw.json` alone, the same each time.
//!
//! `golden.json` is a small record, `golden-summary.md` and `golden-readme.md` what must come of
//! it; with `MONOLITE_BLESS=1` in the environment they are written anew.
use super::*;
use crate::report::collection;
use std::path::Path;

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/files").join(name)
}

pub(crate) fn golden_record() -> Record {
    read_json(&golden("golden.json")).unwrap()
}

fn assert_golden(name: &str, text: &str) {
    if std::env::var_os("MONOLITE_BLESS").is_some() {
        fs::write(golden(name), text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(golden(name)).unwrap(), "{name}");
}

#[test]
fn summary_and_readme_are_generated_from_the_record() {
    let record = read_json(&golden("golden.json")).unwrap();
    assert_golden("golden-summary.md", &tables_page(&record));
    assert_golden("golden-readme.md", &readme(&record));
}

#[test]
fn record_survives_its_file() {
    let record = read_json(&golden("golden.json")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let first = write_record(&record, dir.path()).unwrap();
    let second = write_record(&record, dir.path()).unwrap();
    assert_eq!(first.file_name().unwrap(), "2026-11-21-tps");
    assert_eq!(second.file_name().unwrap(), "2026-11-21-tps-2");
    assert_eq!(read_json(&first.join("raw.json")).unwrap(), record);
    assert!(first.join("README.md").exists() && first.join("summary.md").exists());
}

#[test]
fn a_record_of_several_suites_is_read_as_its_records() {
    let record = golden_record();
    let collection = Collection {
        collection_version: collection::VERSION,
        date: "2026-11-24".into(),
        command: "monolite bench all".into(),
        settings: collection::Settings::default(),
        seconds: 61.0,
        interruptions: 1,
        ahead: Vec::new(),
        records: vec![record.clone(), record.clone()],
    };
    let dir = tempfile::tempdir().unwrap();
    let written = write_collection(&collection, dir.path()).unwrap();
    assert_eq!(written.file_name().unwrap(), "2026-11-24-all");
    assert_eq!(read_records(&written.join("raw.json")).unwrap().len(), 2);
    assert_eq!(read_records(&golden("golden.json")).unwrap(), [record]);
    assert!(read_records(&written.join("README.md")).is_err());
    assert!(written.join("report.html").exists());
    let mut out = Vec::new();
    write_summaries(&collection, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("1 min 1 s in all") && text.contains("burst, each isolated"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= summary::COLUMNS), "{text}");
}

#[test]
fn terminal_report_says_what_is_missing_and_why() {
    let record = read_json(&golden("golden.json")).unwrap();
    let mut out = Vec::new();
    write_text(&record, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("no PostgreSQL: left out by --no-postgres"), "{text}");
    assert!(text.contains("not built yet"), "{text}");
}
