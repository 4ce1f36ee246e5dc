//! Against the programs whose formats these are, where they can be had: a Go program of ours around
//! `superfly/ltx`, and Litestream ([`programs`](crate::programs)).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use monolite_archive::{
    DirectoryStore, Layout, Reading, Target,
    internals::{Catalog, Level},
};
use monolite_ltx::{Timestamp, Txid};

use crate::archive::{Archive, compact_level, scratch, snapshot};
use crate::programs::programs;

/// Says, where the gate counts them, that a test did not run.
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(list) = std::env::var_os("MONOLITE_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(list);
        file.unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// An archive in a directory, with slots, two levels and a later snapshot.
fn in_directory(directory: &Path, txids: u64) -> Archive<DirectoryStore> {
    let mut archive = Archive::new(DirectoryStore::new(directory), fastrand::u64(..), false);
    for round in 0..4 {
        archive.live(txids / 4);
        let (store, layout) = (&archive.store, &archive.layout);
        compact_level(store, layout, Level::FIRST, None).unwrap().unwrap();
        if round == 1 {
            compact_level(store, layout, Level::new(2).unwrap(), None).unwrap().unwrap();
            snapshot(store, layout, archive.newest().0).unwrap();
        }
    }
    archive.live(10);
    archive
}

/// The program beside the tests of `monolite-ltx`, or why it cannot be had.
fn original(directory: &Path) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push("/usr/local/go/bin".into());
    let go = places.into_iter().map(|place| place.join("go")).find(|go| go.is_file());
    let go = go.ok_or("Go is not installed")?;
    let program = directory.join("original");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../monolite-ltx/tests/reference");
    let mut build = Command::new(go);
    build.current_dir(sources).args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".");
    let output = build.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(program);
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.contains("# monolite/ltx-reference"), "{text}");
    Err(format!("its modules cannot be had: {}", text.lines().last().unwrap_or_default()))
}

#[test]
fn original_of_the_format_accepts_every_file() {
    let directory = scratch();
    let program = match original(directory.path()) {
        Ok(program) => program,
        Err(reason) => return skip("original_of_the_format_accepts_every_file", &reason),
    };
    let root = directory.path().join("archive");
    let archive = in_directory(&root, 80);
    let catalog = Catalog::read(&archive.store, &archive.layout).unwrap();
    let paths = catalog.files().iter().map(|file| {
        let key = archive.layout.file(file.level, file.txids);
        archive.store.root().join(key)
    });
    let output = Command::new(program).arg("dump").args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dumped = String::from_utf8(output.stdout).unwrap();
    let files = dumped.lines().filter(|line| line.starts_with("file ")).count();
    assert_eq!(files, catalog.files().len());
}

/// `litestream restore` of a directory.
fn litestream(program: &Path, root: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
    litestream_at(program, &format!("file://{}", root.display()), args)
}

/// Runs `litestream restore`; what it wrote, or what it said.
pub(crate) fn litestream_at(
    program: &Path,
    address: &str,
    args: &[&str],
) -> Result<Vec<u8>, String> {
    let directory = scratch();
    let output = directory.path().join("restored.db");
    let mut command = Command::new(program);
    command.arg("restore").args(args).arg("-o").arg(&output);
    command.arg(address).env_remove("AWS_CA_BUNDLE");
    let done = command.output().unwrap();
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    Ok(std::fs::read(output).unwrap())
}

#[test]
fn litestream_restores_what_we_archived() {
    let test = "litestream_restores_what_we_archived";
    let Some([program]) = programs(test, ["litestream"]) else { return };
    let directory = scratch();
    let root = directory.path().join("archive");
    let mut archive = in_directory(&root, 200);
    let (_, newest) = archive.newest();
    assert!(litestream(&program, &root, &[]).unwrap() == newest.bytes());
    let moments: Vec<Txid> = archive.moments.keys().copied().collect();
    for _ in 0..20 {
        // Litestream refuses a time that is later than the newest one.
        let at = moments[archive.rng.usize(..moments.len() - 1)];
        let moment = &archive.moments[&at];
        let restored = litestream(&program, &root, &["-txid", &at.to_string()]);
        assert!(restored.unwrap() == moment.bytes(), "TXID {at}");
        // Both of us take what is strictly before.
        let time = Timestamp::from_millis(moment.time.millis() + 1);
        let restored = litestream(&program, &root, &["-timestamp", &time.to_string()]);
        let ours = archive.restored(Target::Before(time), Reading::Whole).unwrap();
        assert!(ours == (at, moment.bytes()));
        assert!(restored.unwrap() == ours.1, "before {time}");
    }
}

/// `MONOLITE_LITESTREAM_ARCHIVE` is a directory that Litestream has filled from a database.
#[test]
fn we_restore_what_litestream_archived() {
    let test = "we_restore_what_litestream_archived";
    let program = crate::programs::program("litestream");
    let root = std::env::var_os("MONOLITE_LITESTREAM_ARCHIVE").map(PathBuf::from);
    let (Some(program), Some(root)) = (program, root) else {
        return skip(test, "MONOLITE_LITESTREAM_ARCHIVE does not say where one is");
    };
    let (store, layout) = (DirectoryStore::new(&root), Layout::directory());
    let proof = monolite_archive::internals::verify(&store, &layout, &mut |_| {}).unwrap();
    assert!(proof.problems.is_empty(), "{:?}", proof.problems);
    let directory = scratch();
    let restored = |target, reading| {
        let output = directory.path().join("restored.db");
        let done = monolite_archive::internals::restore(&store, &layout, target, &output, reading);
        done.map(|_| {
            let bytes = std::fs::read(&output).unwrap();
            std::fs::remove_file(&output).unwrap();
            bytes
        })
    };
    let theirs = litestream(&program, &root, &[]).unwrap();
    assert!(restored(Target::Latest, Reading::Whole).unwrap() == theirs);
    assert!(restored(Target::Latest, Reading::ByIndex).unwrap() == theirs);
    let mut compared = 0;
    for file in Catalog::read(&store, &layout).unwrap().files() {
        let at = file.txids.max();
        let theirs = litestream(&program, &root, &["-txid", &at.to_string()]);
        assert!(restored(Target::Txid(at), Reading::Whole).ok() == theirs.ok(), "TXID {at}");
        compared += 1;
    }
    assert!(compared > 1);
}

/// Litestream's archive with our record and a fence behind it is one that both restore.
#[test]
fn adopted_archive_of_litestream_is_restored_by_both() {
    let test = "adopted_archive_of_litestream_is_restored_by_both";
    let program = crate::programs::program("litestream");
    let root = std::env::var_os("MONOLITE_LITESTREAM_ARCHIVE").map(PathBuf::from);
    let (Some(program), Some(root)) = (program, root) else {
        return skip(test, "MONOLITE_LITESTREAM_ARCHIVE does not say where one is");
    };
    let directory = scratch();
    let copy = directory.path().join("archive");
    assert!(Command::new("cp").arg("-r").args([&root, &copy]).status().unwrap().success());
    let (store, layout) = (DirectoryStore::new(&copy), Layout::directory());
    let before = litestream(&program, &copy, &[]).unwrap();
    let newest = Catalog::read(&store, &layout).unwrap().newest().unwrap();
    let mut pace = crate::archive::TestPace::default();
    let adopted = monolite_archive::internals::adopt(
        &store,
        &layout,
        monolite_archive::internals::Present::Refuse,
        None,
        &mut pace,
    );
    let adopted = adopted.unwrap().unwrap();
    assert_eq!((adopted.before, adopted.fence), (None, newest.next().unwrap()));
    assert!(litestream(&program, &copy, &[]).unwrap() == before);
    let output = directory.path().join("restored.db");
    monolite_archive::internals::restore(&store, &layout, Target::Latest, &output, Reading::Whole)
        .unwrap();
    assert!(std::fs::read(output).unwrap() == before);
    let proof = monolite_archive::internals::verify(&store, &layout, &mut |_| {}).unwrap();
    assert!(proof.problems.is_empty(), "{:?}", proof.problems);
}
