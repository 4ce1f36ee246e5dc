//! A data set is reused only when it is the one asked for.
use super::*;
use crate::progress::Silent;

fn prepare(dir: &Path, schema: Schema, rows: u64) -> Result<Dataset> {
    Dataset::prepare(dir, schema, rows, &Silent, &Interrupt::default())
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn second_run_reuses_the_first_ones_rows() {
    for schema in [Schema::Published, Schema::Tuned] {
        let dir = scratch();
        let first = prepare(dir.path(), schema, 2_000).unwrap();
        assert!(matches!(first.origin, Origin::Loaded { .. }));
        assert_eq!(first.total().unwrap(), first.expected_total());
        assert!(first.identity.rows_per_leaf.iter().all(|&rows| rows > 50.0));
        let second = prepare(dir.path(), schema, 2_000).unwrap();
        assert_eq!(second.origin, Origin::Reused);
        assert_eq!(second.identity, first.identity);
    }
}

#[test]
fn another_data_set_is_refused_and_kept() {
    for change in [
        "DELETE FROM account WHERE id = 99",
        "ALTER TABLE account ADD COLUMN more INT",
        "PRAGMA user_version = 1",
    ] {
        let dir = scratch();
        let dataset = prepare(dir.path(), Schema::Tuned, 100).unwrap();
        let connection = raw_connection::open_bare(&dataset.path).unwrap();
        connection.execute_batch(change).unwrap();
        drop(connection);
        let refusal = prepare(dir.path(), Schema::Tuned, 100).unwrap_err().to_string();
        assert!(refusal.contains("another data set") && refusal.contains("--data"), "{refusal}");
        assert!(dataset.path.exists());
    }
}

#[test]
fn interrupted_load_leaves_nothing_and_unfinished_one_is_loaded_anew() {
    let dir = scratch();
    let interrupt = Interrupt::default();
    interrupt.request();
    let stopped = Dataset::prepare(dir.path(), Schema::Tuned, 100, &Silent, &interrupt);
    assert!(stopped.unwrap_err().is::<crate::progress::Interrupted>());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    fs::write(dir.path().join("tps-tuned-100.db"), b"half a file").unwrap();
    assert_eq!(prepare(dir.path(), Schema::Tuned, 100).unwrap().total().unwrap(), 100_000_000_000);
}

#[test]
fn too_little_room_is_said_before_loading() {
    let dir = scratch();
    let refusal = ensure_room(dir.path(), u64::MAX / 2).unwrap_err().to_string();
    assert!(refusal.contains("GB free") && refusal.contains("--rows"), "{refusal}");
}
