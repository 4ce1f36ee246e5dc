//! Reading lock files and rewriting manifests, on small ones.

use std::fs;

use super::{ENDS, add_member, narrow, say, versions};

const LOCK: &str = "\
[[package]]
name = \"libsqlite3-sys\"
version = \"0.37.0\"

[[package]]
name = \"rusqlite\"
version = \"0.39.0\"
";

#[test]
fn versions_are_read_from_a_lock_file() {
    assert_eq!(versions(LOCK, "rusqlite"), ["0.39.0"]);
    assert_eq!(versions(LOCK, "sqlx"), Vec::<String>::new());
    assert_eq!(versions("not a lock file", "rusqlite"), Vec::<String>::new());
}

#[test]
fn two_sqlite_libraries_in_one_program_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("Cargo.lock");
    fs::write(&lock, LOCK).unwrap();
    assert!(say("one", folder.path()).is_ok());
    fs::write(&lock, LOCK.replace("rusqlite", "libsqlite3-sys")).unwrap();
    assert!(say("two", folder.path()).is_err());
    fs::write(&lock, "").unwrap();
    assert!(say("none", folder.path()).is_err());
}

#[test]
fn a_scratch_manifest_is_narrowed_and_extended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Cargo.toml");
    let manifest = "[workspace]\nmembers = []\n[workspace.dependencies]\n";
    fs::write(&path, manifest).unwrap();
    assert!(narrow(&path, "0.39").is_err());
    fs::write(&path, format!("{manifest}rusqlite = {{ version = \"*\" }}\n")).unwrap();
    narrow(&path, "0.39").unwrap();
    add_member(&path, "program").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("version = \"0.39\"") && text.contains("\"program\""), "{text}");
}

#[test]
fn the_ends_are_those_of_the_root_manifest() {
    let root = crate::root().unwrap();
    let manifest: toml::Table =
        fs::read_to_string(root.join("Cargo.toml")).unwrap().parse().unwrap();
    let accepted = manifest["workspace"]["dependencies"]["rusqlite"]["version"].as_str().unwrap();
    let (low, high) = (ENDS[0], ENDS[1].strip_prefix("0.").unwrap());
    let next: u32 = high.parse::<u32>().unwrap() + 1;
    assert_eq!(accepted, format!(">={low}, <0.{next}"));
}
