//! Both ends of the `rusqlite` range that Monolite accepts, and life beside other SQLite users.
//!
//! `libsqlite3-sys` says `links = "sqlite3"`, so a program holds exactly one version of it and
//! every crate in the program has to agree. Monolite therefore accepts a range of `rusqlite`. This
//! command shows that the range is real: it copies the crates to a scratch workspace with a
//! lock file of its own, pins each end, and checks them; then it does the same with small programs
//! that use Monolite beside `sqlx` and beside `diesel`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::command::{cargo_path, succeed};

/// The ends of the range in the root manifest: the newest releases of the lowest and the highest
/// accepted minor version.
const ENDS: [&str; 2] = ["0.39", "0.41"];

/// The crates whose users see `rusqlite`, their tests, and what those use.
const CRATES: [&str; 4] = ["monolite-sqlite", "monolite", "monolite-testkit", "monolite-tests"];

/// How far to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Only find versions that agree.
    Resolve,
    /// Compile as well.
    Check,
    /// Run the tests of the two crates at each end as well.
    Test,
}

/// A program that uses Monolite and another SQLite crate.
struct Neighbour {
    name: &'static str,
    dependency: &'static str,
    main: &'static str,
}

const NEIGHBOURS: [Neighbour; 2] = [
    Neighbour {
        name: "sqlx",
        dependency: "sqlx = { version = \"0.9\", default-features = false, \
                     features = [\"sqlite\"] }",
        main: r#"
fn main() {
    let ours: Result<monolite::Database, monolite::Error> = monolite::Database::open(":memory:");
    let theirs = sqlx::sqlite::SqliteConnectOptions::new().in_memory(true);
    println!("{} {theirs:?}", ours.is_ok());
}
"#,
    },
    Neighbour {
        name: "diesel",
        dependency: r#"diesel = { version = "2", features = ["sqlite"] }"#,
        main: r#"
use diesel::Connection as _;
fn main() {
    let ours: Result<monolite::Database, monolite::Error> = monolite::Database::open(":memory:");
    let theirs = diesel::SqliteConnection::establish(":memory:");
    println!("{} {}", ours.is_ok(), theirs.is_ok());
}
"#,
    },
];

/// Checks both ends of the range and both neighbours, in `target/rusqlite-range`.
pub(crate) fn run(root: &Path, depth: Depth) -> anyhow::Result<()> {
    let scratch = root.join("target/rusqlite-range");
    fs::create_dir_all(&scratch)?;
    for end in ENDS {
        check_end(root, &scratch, end, depth).with_context(|| format!("rusqlite {end}"))?;
    }
    for neighbour in &NEIGHBOURS {
        check_neighbour(root, &scratch, neighbour, depth)
            .with_context(|| format!("beside {}", neighbour.name))?;
    }
    // More than a gigabyte, unused by other steps. It stays when something has failed.
    fs::remove_dir_all(&scratch).context("remove target/rusqlite-range")
}

fn check_end(root: &Path, scratch: &Path, end: &str, depth: Depth) -> anyhow::Result<()> {
    let place = scratch.join(format!("rusqlite-{end}"));
    copy_workspace(root, &place, depth)?;
    // The requirement is narrowed rather than one release named, so that the newest patch of the
    // lowest version is what gets checked, as a user would get it.
    narrow(&place.join("Cargo.toml"), end)?;
    resolve(&place)?;
    say(&format!("rusqlite {end}"), &place)?;
    match depth {
        Depth::Resolve => Ok(()),
        Depth::Check => build(scratch, &place, &["check", "--workspace", "--all-targets"]),
        Depth::Test => build(scratch, &place, &["test", "--workspace"]),
    }
}

fn check_neighbour(
    root: &Path,
    scratch: &Path,
    neighbour: &Neighbour,
    depth: Depth,
) -> anyhow::Result<()> {
    let place = scratch.join(format!("beside-{}", neighbour.name));
    copy_workspace(root, &place, depth)?;
    // No lock file: this asks whether versions exist that agree, not whether ours are among them.
    remove_if_there(&place.join("Cargo.lock"))?;
    let program = place.join("program");
    fs::create_dir_all(program.join("src"))?;
    let manifest = format!(
        "[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nmonolite = {{ path = \"../crates/monolite\" }}\n{}\n",
        neighbour.dependency
    );
    fs::write(program.join("Cargo.toml"), manifest)?;
    fs::write(program.join("src/main.rs"), neighbour.main)?;
    add_member(&place.join("Cargo.toml"), "program")?;
    resolve(&place)?;
    say(&format!("beside {}", neighbour.name), &place)?;
    match depth {
        Depth::Resolve => Ok(()),
        Depth::Check | Depth::Test => build(scratch, &place, &["check", "-p", "program"]),
    }
}

/// Copies the crates and the root's manifest, cut down to them.
fn copy_workspace(root: &Path, place: &Path, depth: Depth) -> anyhow::Result<()> {
    if place.exists() {
        fs::remove_dir_all(place).context("cannot clear the scratch copy")?;
    }
    fs::create_dir_all(place)?;
    for name in CRATES {
        copy_folder(&root.join("crates").join(name), &place.join("crates").join(name))?;
    }
    // Tests compare some of its pages with the code.
    copy_folder(&root.join("docs"), &place.join("docs"))?;
    fs::copy(root.join("Cargo.lock"), place.join("Cargo.lock"))?;
    let text = fs::read_to_string(root.join("Cargo.toml"))?;
    let mut manifest: toml::Table = text.parse().context("Cargo.toml")?;
    let members = CRATES.map(|name| toml::Value::String(format!("crates/{name}")));
    table(&mut manifest, "workspace")?.insert("members".into(), members.to_vec().into());
    if depth != Depth::Test {
        // Nothing is run, and an optimised SQLite takes over a minute to compile.
        manifest.remove("profile");
    }
    fs::write(place.join("Cargo.toml"), manifest.to_string())?;
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Rewrites the accepted range in a scratch manifest to one minor version.
fn narrow(path: &Path, minor: &str) -> anyhow::Result<()> {
    edit(path, |manifest| {
        let workspace = table(manifest, "workspace")?;
        let rusqlite = table(table(workspace, "dependencies")?, "rusqlite")?;
        rusqlite.insert("version".into(), minor.into());
        Ok(())
    })
}

fn add_member(path: &Path, member: &str) -> anyhow::Result<()> {
    edit(path, |manifest| {
        let members = table(manifest, "workspace")?.get_mut("members");
        let members = members.and_then(toml::Value::as_array_mut).context("no members")?;
        members.push(member.into());
        Ok(())
    })
}

fn edit(
    path: &Path,
    change: impl FnOnce(&mut toml::Table) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut manifest: toml::Table = fs::read_to_string(path)?.parse()?;
    change(&mut manifest)?;
    fs::write(path, manifest.to_string())?;
    Ok(())
}

fn table<'a>(parent: &'a mut toml::Table, key: &str) -> anyhow::Result<&'a mut toml::Table> {
    let found = parent.get_mut(key).and_then(toml::Value::as_table_mut);
    found.with_context(|| format!("the manifest has no table `{key}`"))
}

fn remove_if_there(path: &Path) -> anyhow::Result<()> {
    if path.exists() {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Makes the lock file agree with the manifests; without a network, from what is at hand.
fn resolve(place: &Path) -> anyhow::Result<()> {
    let update = |more: &[&str]| {
        let mut command = Command::new(cargo_path());
        succeed(command.current_dir(place).args(["update", "--quiet", "--workspace"]).args(more))
    };
    if update(&[]).is_err() {
        println!("trying again without the network");
        update(&["--offline"])?;
    }
    Ok(())
}

/// Prints which versions were found, and fails unless there is exactly one SQLite.
fn say(what: &str, place: &Path) -> anyhow::Result<()> {
    let lock = fs::read_to_string(place.join("Cargo.lock"))?;
    let bindings = versions(&lock, "libsqlite3-sys");
    let [binding] = bindings.as_slice() else {
        bail!("the program would hold {} SQLite libraries: {bindings:?}", bindings.len());
    };
    let rusqlite = versions(&lock, "rusqlite").join(", ");
    let mut line = format!("{what}: rusqlite {rusqlite}, libsqlite3-sys {binding}");
    for neighbour in &NEIGHBOURS {
        for version in versions(&lock, neighbour.name) {
            line += &format!(", {} {version}", neighbour.name);
        }
    }
    println!("{line}");
    Ok(())
}

/// The versions of a package in a lock file.
fn versions(lock: &str, name: &str) -> Vec<String> {
    let Ok(lock) = lock.parse::<toml::Table>() else { return Vec::new() };
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let packages = packages.into_iter().flatten().filter_map(toml::Value::as_table);
    let text = |package: &toml::Table, key| {
        package.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned()
    };
    packages
        .filter(|package| text(package, "name") == name)
        .map(|package| text(package, "version"))
        .collect()
}

/// Runs cargo in a scratch workspace; all of them share one target folder, and so SQLite builds.
fn build(scratch: &Path, place: &PathBuf, words: &[&str]) -> anyhow::Result<()> {
    let target = scratch.join("target");
    let mut command = Command::new(cargo_path());
    command.current_dir(place).args(words).arg("--locked").env("CARGO_TARGET_DIR", target);
    succeed(command.stdout(Stdio::inherit()))
}

#[cfg(test)]
mod tests;
