//! Both ways against the original, where Go is installed and its modules can be had.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use monolite_ltx::{Timestamp, compact};

use crate::support::{Content, History, beside, cases, dump, golden};

/// The program in `tests/reference`, built once, or why it is not.
fn original() -> Result<&'static Path, &'static str> {
    static BUILT: OnceLock<(tempfile::TempDir, Result<PathBuf, String>)> = OnceLock::new();
    let (_, built) = BUILT.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let built = build(directory.path());
        (directory, built)
    });
    built.as_deref().map_err(String::as_str)
}

fn build(directory: &Path) -> Result<PathBuf, String> {
    let go = go().ok_or("Go is not installed")?;
    let program = directory.join("original");
    let mut command = Command::new(go);
    command.current_dir(beside("reference")).args(["build", "-mod=readonly", "-o"]);
    let output = command.arg(&program).arg(".").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("Go cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(program);
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // A program that does not compile is a defect; one whose modules cannot be had is not built.
    for defect in ["# monolite/ltx-reference", "missing go.sum entry"] {
        assert!(!text.contains(defect), "{text}");
    }
    Err(format!("its modules cannot be had: {}", text.lines().last().unwrap_or_default()))
}

/// In the path, or where Go's own instructions put it.
fn go() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push("/usr/local/go/bin".into());
    places.into_iter().map(|place| place.join("go")).find(|go| go.is_file())
}

/// Says, where the gate counts them, that a test did not run.
fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(list) = std::env::var_os("MONOLITE_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(list);
        file.unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// Runs the original, which must succeed, and returns what it printed.
fn run(program: &Path, args: &[&str], files: &[PathBuf], input: &str) -> String {
    let Output { status, stdout, stderr } = attempt(program, args, files, input);
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn attempt(program: &Path, args: &[&str], files: &[PathBuf], input: &str) -> Output {
    let mut command = Command::new(program);
    command.args(args).args(files).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Writes files of random histories, the files of one history in a list.
fn histories(directory: &Path, count: usize) -> Vec<Vec<(PathBuf, Content)>> {
    let histories = std::cell::RefCell::new(Vec::new());
    cases(count as u32, |rng| {
        let number = histories.borrow().len();
        let mut history = History::new(rng);
        let commits = (0..rng.u8(1..5)).map(|commit| {
            let content = history.commit(rng);
            let path = directory.join(format!("{number}-{commit}.ltx"));
            std::fs::write(&path, content.file().0).unwrap();
            (path, content)
        });
        let commits = commits.collect();
        histories.borrow_mut().push(commits);
    });
    histories.into_inner()
}

#[test]
fn original_reads_what_we_write() {
    let program = match original() {
        Ok(program) => program,
        Err(reason) => return skip("original_reads_what_we_write", reason),
    };
    let directory = tempfile::tempdir().unwrap();
    let histories = histories(directory.path(), 40);
    let paths: Vec<PathBuf> = histories.iter().flatten().map(|(path, _)| path.clone()).collect();
    let theirs = run(program, &["dump"], &paths, "");
    let ours: String = paths
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            dump(name, &std::fs::read(path).unwrap()).unwrap()
        })
        .collect();
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours, theirs);
}

#[test]
fn we_read_what_the_original_writes() {
    let program = match original() {
        Ok(program) => program,
        Err(reason) => return skip("we_read_what_the_original_writes", reason),
    };
    let directory = tempfile::tempdir().unwrap();
    let histories = histories(directory.path(), 40);
    let out = |path: &Path| path.with_extension("theirs");
    let pairs = histories.iter().flatten().flat_map(|(path, _)| [path.clone(), out(path)]);
    run(program, &["reencode"], &pairs.collect::<Vec<_>>(), "");
    for (path, content) in histories.iter().flatten() {
        let theirs = std::fs::read(out(path)).unwrap();
        assert_eq!(Content::of(&theirs).unwrap(), *content, "{}", path.display());
    }
}

#[test]
fn files_are_merged_as_the_original_merges_them() {
    let program = match original() {
        Ok(program) => program,
        Err(reason) => return skip("files_are_merged_as_the_original_merges_them", reason),
    };
    let directory = tempfile::tempdir().unwrap();
    let merged = directory.path().join("merged");
    for history in histories(directory.path(), 30) {
        // Of files that the original compressed, byte for byte.
        let theirs: Vec<PathBuf> =
            history.iter().map(|(path, _)| path.with_extension("theirs")).collect();
        let pairs = history.iter().map(|(path, _)| path.clone()).zip(theirs.iter().cloned());
        let pairs: Vec<PathBuf> = pairs.flat_map(|(path, out)| [path, out]).collect();
        run(program, &["reencode"], &pairs, "");
        let merge = |paths: &[PathBuf]| {
            let files = [std::slice::from_ref(&merged), paths].concat();
            run(program, &["compact"], &files, "");
            let files: Vec<Vec<u8>> =
                paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
            let ours = compact(files.iter().map(Vec::as_slice), Vec::new()).unwrap().output;
            (ours, std::fs::read(&merged).unwrap())
        };
        let (by_us, by_them) = merge(&theirs);
        assert_eq!(by_us, by_them);
        // Of files that we compressed, page for page.
        let ours: Vec<PathBuf> = history.into_iter().map(|(path, _)| path).collect();
        let (by_us, by_them) = merge(&ours);
        assert_eq!(Content::of(&by_us).unwrap(), Content::of(&by_them).unwrap());
    }
}

#[test]
fn golden_files_are_what_the_original_writes_today() {
    let program = match original() {
        Ok(program) => program,
        Err(reason) => return skip("golden_files_are_what_the_original_writes_today", reason),
    };
    let directory = tempfile::tempdir().unwrap();
    run(program, &["golden", ""], &[directory.path().to_owned()], "");
    let golden = golden().into_iter().filter(|(name, _)| !name.starts_with("old-"));
    for (name, file) in golden {
        assert_eq!(std::fs::read(directory.path().join(&name)).unwrap(), file, "{name}");
    }
}

#[test]
fn original_notices_what_is_wrong() {
    // Without this, a program that takes everything would agree with us, too.
    let program = match original() {
        Ok(program) => program,
        Err(reason) => return skip("original_notices_what_is_wrong", reason),
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.ltx");
    let mut file = golden()["two-pages.ltx"].clone();
    *file.last_mut().unwrap() ^= 1;
    std::fs::write(&path, file).unwrap();
    let output = attempt(program, &["dump"], &[path], "");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("file checksum mismatch"), "{text}");
}

#[test]
fn times_have_the_texts_of_the_original() {
    let program = match original() {
        Ok(program) => program,
        Err(reason) => return skip("times_have_the_texts_of_the_original", reason),
    };
    let mut rng = fastrand::Rng::new();
    let times: Vec<i64> =
        (0..5000).map(|_| rng.i64(-62_167_219_200_000..=253_402_300_799_999)).collect();
    let input: String = times.iter().map(|time| format!("{time}\n")).collect();
    let theirs = run(program, &["times"], &[], &input);
    assert_eq!(theirs.lines().count(), times.len());
    for (time, text) in times.iter().zip(theirs.lines()) {
        assert_eq!(Timestamp::from_millis(*time).to_string(), text);
        assert_eq!(text.parse::<Timestamp>().unwrap().millis(), *time);
    }
}
