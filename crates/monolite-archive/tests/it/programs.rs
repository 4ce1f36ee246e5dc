//! Foreign programs: where they are, how they run and end, and where each has an archive.
//!
//! `MONOLITE_LITESTREAM`, `MONOLITE_LTX` and `MONOLITE_VERSITYGW` say where they are; otherwise the
//! first of that name in `PATH` is taken. `scripts/originals` builds them.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use monolite_archive::{Layout, Store, internals::Catalog};

/// What a gateway's only user is called, and the secret of it.
pub(crate) const KEYS: [&str; 2] = ["monolite", "not-a-secret"];

/// Says, where the gate counts them, that a test did not run.
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(list) = std::env::var_os("MONOLITE_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(list);
        file.unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// Where a program is.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let said = std::env::var_os(format!("MONOLITE_{}", name.to_uppercase()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = || std::env::split_paths(&path).map(|it| it.join(name)).find(|it| it.is_file());
    said.map(PathBuf::from).or_else(found)
}

/// The programs that a test needs; otherwise it is skipped.
pub(crate) fn programs<const N: usize>(test: &str, names: [&str; N]) -> Option<[PathBuf; N]> {
    let found = names.map(program);
    if let Some(at) = found.iter().position(Option::is_none) {
        skip(test, &format!("{} is not there; scripts/originals builds it", names[at]));
        return None;
    }
    Some(found.map(Option::unwrap))
}

/// A process that ends with its owner.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(silent.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a condition; a test that waits for too long fails.
pub(crate) fn wait_for(what: &str, seconds: u64, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        let waited = start.elapsed();
        assert!(waited < Duration::from_secs(seconds), "after {waited:?} it is not so that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Where an archive is.
pub(crate) struct Site {
    /// As we name it, with the keys.
    pub(crate) ours: String,
    /// As Litestream does.
    pub(crate) theirs: String,
    /// The directory that has its levels.
    pub(crate) files: PathBuf,
}

impl Site {
    pub(crate) fn directory(root: &Path) -> Site {
        let path = root.to_str().unwrap().to_owned();
        Site { theirs: format!("file://{path}"), ours: path, files: root.join("ltx") }
    }

    pub(crate) fn open(&self) -> (Box<dyn Store>, Layout) {
        monolite_archive::internals::open(&self.ours).unwrap()
    }

    pub(crate) fn catalog(&self) -> Catalog {
        let (store, layout) = self.open();
        Catalog::read(store.as_ref(), &layout).unwrap()
    }

    /// What is damaged or missing.
    pub(crate) fn problems(&self) -> Vec<monolite_archive::Error> {
        let (store, layout) = self.open();
        monolite_archive::internals::verify(store.as_ref(), &layout, &mut |_| {}).unwrap().problems
    }

    pub(crate) fn is_whole(&self) {
        let problems = self.problems();
        assert!(problems.is_empty(), "{problems:?}");
    }

    /// All files of all levels.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let is_level = |name: &str| u8::from_str_radix(name, 16).is_ok_and(|it| it < 10);
        let levels = std::fs::read_dir(&self.files).unwrap().map(|it| it.unwrap());
        let levels = levels.filter(|it| is_level(it.file_name().to_str().unwrap()));
        let files = levels.flat_map(|level| std::fs::read_dir(level.path()).unwrap());
        files.map(|it| it.unwrap().path()).filter(|it| it.is_file()).collect()
    }

    /// Litestream, with the keys of the gateway.
    pub(crate) fn litestream(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_remove("AWS_CA_BUNDLE");
        command.env("AWS_ACCESS_KEY_ID", KEYS[0]).env("AWS_SECRET_ACCESS_KEY", KEYS[1]);
        command
    }

    /// What `litestream restore` writes, or says.
    pub(crate) fn restored_by(&self, program: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
        let directory = crate::archive::scratch();
        let output = directory.path().join("restored.db");
        let mut command = self.litestream(program);
        command.arg("restore").args(args).arg("-o").arg(&output).arg(&self.theirs);
        let done = command.output().unwrap();
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
        Ok(std::fs::read(output).unwrap())
    }
}

/// A connection of the `sqlite3` program through Litestream's VFS, which stays open.
pub(crate) struct Held(pub(crate) Child, Lines<BufReader<ChildStdout>>);

impl Held {
    pub(crate) fn open(extension: &Path, site: &Site) -> Held {
        let mut shell = Command::new("sqlite3");
        shell.env("LITESTREAM_REPLICA_URL", &site.theirs).env("LITESTREAM_LOG_FILE", "/dev/null");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = shell.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut held = Held(child, output);
        held.ask(&format!(".load {}\n.open file:held.db?vfs=litestream", extension.display()));
        // SQLite keeps pages where the change counter is the same, as of another file: not ours.
        held.ask("PRAGMA cache_size = 0;");
        held
    }

    /// The lines that the shell answers with; an error gives none.
    pub(crate) fn ask(&mut self, text: &str) -> Vec<String> {
        self.0
            .stdin
            .as_mut()
            .unwrap()
            .write_all(format!("{text}\n.print end\n").as_bytes())
            .unwrap();
        self.1.by_ref().map_while(Result::ok).take_while(|line| line != "end").collect()
    }

    /// The answer to a query that has one line, if the database is sound. Litestream's VFS may keep
    /// pages behind the end of one that has shrunk, which a check calls unused.
    pub(crate) fn sound(&mut self, query: &str) -> Result<String, String> {
        let is_unused = |line: &String| {
            line.starts_with("*** in database ")
                || line.starts_with("Page ") && line.ends_with(" is never used")
        };
        match &self.ask(&format!("PRAGMA integrity_check;\n{query};"))[..] {
            [sound, answer] if sound == "ok" => Ok(answer.clone()),
            [first, unused @ .., answer] if [first].into_iter().chain(unused).all(is_unused) => {
                Ok(answer.clone())
            }
            other => Err(format!("{other:?}")),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
