//! Fetches and builds the optional drivers.

use super::{Optional, complaint, program, run};
use crate::drivers::Absent;
use crate::progress::Interrupt;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package with SQLite's branch.
const NPM_PACKAGE: &str = "@rocicorp/zero-sqlite3@1.1.0";

/// What every driver has.
const PROTOCOL: (&str, &str) = ("protocol.rs", include_str!("../../optional/protocol.rs"));
const DRAWN: (&str, &str) = ("begin_drawn.rs", include_str!("../../optional/begin_drawn.rs"));
const WORK: (&str, &str) = ("kv_work.rs", include_str!("../../optional/kv_work.rs"));

/// Sources of a driver that is a crate, its main file first, and what it depends on.
fn crate_of(driver: Optional) -> Option<([(&'static str, &'static str); 3], &'static str)> {
    Some(match driver {
        Optional::Concurrent => (
            [("main.rs", include_str!("../../optional/begin_concurrent.rs")), DRAWN, PROTOCOL],
            "rusqlite = \"=0.39.0\"\nfastrand = \"2\"\n",
        ),
        Optional::Turso => (
            [("main.rs", include_str!("../../optional/begin_turso.rs")), DRAWN, PROTOCOL],
            "turso = { version = \"=0.9.0-pre.2\", default-features = false }\n\
             tokio = { version = \"1\", features = [\"rt\", \"time\"] }\nfastrand = \"2\"\n",
        ),
        Optional::Redb => (
            [("main.rs", include_str!("../../optional/kv_redb.rs")), WORK, PROTOCOL],
            "redb = \"4.6\"\nfastrand = \"2\"\n",
        ),
        Optional::Lmdb => (
            [("main.rs", include_str!("../../optional/kv_lmdb.rs")), WORK, PROTOCOL],
            "lmdb-rkv = \"0.14\"\nfastrand = \"2\"\n",
        ),
        Optional::SqliteTools => return None,
    })
}

/// Builds a driver in `folder`, and returns where its programs are.
pub(super) fn build(driver: Optional, folder: &Path, interrupt: &Interrupt) -> Result<PathBuf> {
    fs::create_dir_all(folder).context("cannot create the folder of a driver")?;
    // The tools are run in the folder, and some of them want whole names.
    let folder = folder.canonicalize()?;
    let workshop = Workshop { folder: &folder, interrupt };
    match driver {
        Optional::SqliteTools => workshop.sqlite_tools(),
        Optional::Concurrent => {
            workshop.concurrent_library()?;
            let yes = Path::new("1");
            // Otherwise pkg-config would find the system's SQLite, which has no CONCURRENT.
            let environment = [
                ("SQLITE3_LIB_DIR", folder.as_path()),
                ("SQLITE3_STATIC", yes),
                ("SQLITE3_NO_PKG_CONFIG", yes),
            ];
            workshop.cargo(driver, &environment)
        }
        _ => workshop.cargo(driver, &[]),
    }
}

struct Workshop<'w> {
    folder: &'w Path,
    interrupt: &'w Interrupt,
}

impl Workshop<'_> {
    /// Runs a tool, whose output is kept in the log; that it fails is a gap.
    fn run(&self, what: &str, command: &mut Command) -> Result<Vec<u8>> {
        let output = run(command, self.interrupt)?;
        let log = [output.stdout.as_slice(), b"\n", output.stderr.as_slice()].concat();
        fs::write(self.folder.join("build.log"), log)?;
        self.interrupt.check()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let words = complaint(what, &output);
        Err(Absent(format!("{what} failed ({words}); its words are in the driver's build.log"))
            .into())
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.current_dir(self.folder);
        command
    }

    /// Builds a crate.
    fn cargo(&self, driver: Optional, environment: &[(&str, &Path)]) -> Result<PathBuf> {
        let (sources, dependencies) = crate_of(driver).expect("only crates are built by cargo");
        let manifest = format!(
            "[package]\nname = \"{}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\n{dependencies}",
            program(driver)
        );
        write(&self.folder.join("Cargo.toml"), &manifest)?;
        fs::create_dir_all(self.folder.join("src"))?;
        for (name, text) in sources {
            write(&self.folder.join("src").join(name), text)?;
        }
        let mut command = self.command("cargo");
        command.args(["build", "--release"]);
        // What this program was built with is no business of the driver.
        command.env("CARGO_TARGET_DIR", self.folder.join("target")).env_remove("RUSTFLAGS");
        for (key, value) in environment {
            command.env(key, value);
        }
        self.run("cargo build", &mut command)?;
        Ok(self.folder.join("target/release"))
    }

    /// Compiles the C source of the branch into a static library in the folder.
    fn concurrent_library(&self) -> Result<()> {
        if self.folder.join("libsqlite3.a").exists() {
            return Ok(());
        }
        let packed = self.run("npm pack", self.command("npm").args(["pack", NPM_PACKAGE]))?;
        let text = String::from_utf8_lossy(&packed);
        let name = text.lines().rfind(|line| line.ends_with(".tgz"));
        let name = name.ok_or_else(|| Absent("npm pack has brought no package".into()))?;
        self.run("tar", self.command("tar").args(["-xzf", name]))?;
        self.run(
            "cc",
            self.command("cc")
                .args(["-O2", "-c", "-o", "sqlite3.o", "package/deps/sqlite3/sqlite3.c"])
                .args(["-DSQLITE_THREADSAFE=2", "-DSQLITE_ENABLE_COLUMN_METADATA"])
                .args(["-DHAVE_USLEEP=1", "-DSQLITE_DEFAULT_MEMSTATUS=0"]),
        )?;
        self.run("ar", self.command("ar").args(["rcs", "libsqlite3.a", "sqlite3.o"]))?;
        Ok(())
    }

    /// Builds `kvtest` and `speedtest1` of Debian's source package.
    fn sqlite_tools(&self) -> Result<PathBuf> {
        let programs = ["kvtest", "speedtest1"];
        if programs.iter().all(|program| self.folder.join(program).exists()) {
            return Ok(self.folder.to_owned());
        }
        self.debian_source()?;
        let source = fs::read_dir(self.folder)?
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .find(|path| path.join("test/kvtest.c").exists())
            .ok_or_else(|| Absent("the source package has no test/kvtest.c".into()))?;
        self.run("configure", self.command("sh").current_dir(&source).arg("./configure"))?;
        let make = ["-j2", "sqlite3.c"];
        self.run("make sqlite3.c", self.command("make").current_dir(&source).args(make))?;
        for program in programs {
            self.run(
                "cc",
                self.command("cc")
                    .arg("-O2")
                    .args(["-DSQLITE_THREADSAFE=0", "-DSQLITE_ENABLE_RTREE"])
                    .arg(format!("-I{}", source.display()))
                    .args(["-o", program])
                    .arg(source.join(format!("test/{program}.c")))
                    .arg(source.join("sqlite3.c"))
                    .args(["-lm", "-ldl", "-lpthread"]),
            )?;
        }
        Ok(self.folder.to_owned())
    }

    /// Fetches the source package with apt, from the servers that this system has its packages
    /// from, without changing its lists.
    fn debian_source(&self) -> Result<()> {
        let lists = self.folder.join("lists");
        fs::create_dir_all(lists.join("partial"))?;
        let mut texts = Vec::new();
        let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
        let files = parts.map(|entry| entry.path());
        for file in files.chain([PathBuf::from("/etc/apt/sources.list")]) {
            texts.push(fs::read_to_string(&file).unwrap_or_default());
        }
        let (lines, stanzas) = sources(&texts);
        let parts = self.folder.join("sources.list.d");
        fs::create_dir_all(&parts)?;
        write(&parts.join("source.list"), &lines)?;
        write(&parts.join("source.sources"), &stanzas)?;
        let options = [
            "Dir::Etc::sourcelist=/dev/null".to_owned(),
            format!("Dir::Etc::sourceparts={}", parts.display()),
            format!("Dir::State::lists={}", lists.display()),
        ];
        let apt = |arguments: &[&str]| {
            let mut command = self.command("apt-get");
            options.iter().for_each(|option| {
                command.args(["-o", option]);
            });
            command.args(arguments);
            command
        };
        self.run("apt-get update", &mut apt(&["update"]))?;
        self.run("apt-get source", &mut apt(&["source", "sqlite3"]))?;
        Ok(())
    }
}

/// Writes a file, unless it is so already: cargo builds anew what was written.
fn write(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Turns lists of package sources into lists of the sources of these packages: those of one line
/// each, and those in stanzas.
pub(super) fn sources(texts: &[String]) -> (String, String) {
    let (mut lines, mut stanzas) = (String::new(), String::new());
    for text in texts {
        for line in text.lines().filter(|line| line.starts_with("deb ")) {
            lines.push_str(&format!("deb-src {}\n", &line["deb ".len()..]));
        }
        for stanza in text.split("\n\n") {
            let stanza: Vec<&str> = stanza.lines().filter(|line| !line.starts_with('#')).collect();
            if !stanza.iter().any(|line| line.starts_with("Types:")) {
                continue;
            }
            for line in stanza {
                match line.starts_with("Types:") {
                    true => stanzas.push_str("Types: deb-src"),
                    false => stanzas.push_str(line),
                }
                stanzas.push('\n');
            }
            stanzas.push('\n');
        }
    }
    (lines, stanzas)
}
