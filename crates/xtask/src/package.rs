//! `cargo xtask package`: the command as a wheel and as packages of npm, for the platform of this
//! machine, into `target/packages`.
//!
//! The sources in `packages` are templates: `0.0.0` stands for the version, and `CPU` for npm's
//! name of the processor. Each is copied to `target/packages/work` with what goes into it, and
//! built there by its own tool: `npm pack`, and `pip`, which fetches `hatchling`.

pub(crate) mod installed;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::command::{cargo_path, succeed};

/// That of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What builds and installs packages, and what shows that it is here.
const TOOLS: [[&str; 3]; 3] = [
    ["python3", "-c", "import ensurepip, venv"],
    ["node", "-e", "0"],
    ["npm", "--version", "--offline"],
];

/// What was built, and where.
pub(crate) struct Packages {
    wheel: PathBuf,
    /// That of the binary, and that of the launcher.
    npm: [PathBuf; 2],
    work: PathBuf,
}

/// What building the packages lacks, in words.
pub(crate) fn missing() -> Option<String> {
    let works = |[program, words @ ..]: &&[&str; 3]| {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let missing = TOOLS.iter().find(|tool| !works(tool))?;
    Some(format!("`{}` fails; install Node with npm, and Python with venv", missing.join(" ")))
}

/// Builds the packages, with the command as the profile `profile` makes it.
pub(crate) fn build(root: &Path, profile: &str) -> anyhow::Result<Packages> {
    let words = ["build", "--locked", "--package", "monolite-cli", "--bin", "monolite"];
    let mut cargo = Command::new(cargo_path());
    succeed(cargo.current_dir(root).args(words).args(["--profile", profile]))?;
    let directory = if profile == "dev" { "debug" } else { profile };
    let built = root.join("target").join(directory).join("monolite");

    let packages = root.join("target/packages");
    if packages.exists() {
        fs::remove_dir_all(&packages)?;
    }
    let work = packages.join("work");
    let [python, platform, launcher] = ["python", "npm/platform", "npm/monolite"];
    for (name, files) in [
        (python, &["pyproject.toml", "hatch_build.py"][..]),
        (platform, &["package.json"]),
        (launcher, &["package.json", "monolite.js"]),
    ] {
        lay(root, name, &work.join(name), files)?;
    }
    // Names stay, for backtraces. What goes, the lines, is half of it.
    let binary = work.join(python).join("monolite");
    succeed(Command::new("strip").arg("--strip-debug").arg("-o").arg(&binary).arg(built))?;
    fs::hard_link(&binary, work.join(platform).join("monolite"))?;

    succeed(Command::new("python3").args(["-m", "venv"]).arg(work.join("venv")))?;
    let mut pip = Command::new(work.join("venv/bin/pip"));
    pip.args(["wheel", "--quiet", "--no-deps", "--wheel-dir"]).arg(&packages);
    succeed(pip.arg(work.join(python)))?;
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|it| it == "whl");
    let files = fs::read_dir(&packages)?.map(|entry| Ok(entry?.path()));
    let files: io::Result<Vec<PathBuf>> = files.collect();
    let wheel = files?.into_iter().find(is_wheel).context("pip has left no wheel")?;
    for name in [platform, launcher] {
        let mut npm = Command::new("npm");
        npm.args(["pack", "--offline", "--silent", "--pack-destination"]).arg(&packages);
        succeed(npm.stdout(Stdio::null()).current_dir(work.join(name)))?;
    }
    let npm = [format!("-linux-{}", cpu()), String::new()];
    let npm = npm.map(|name| packages.join(format!("monolite{name}-{VERSION}.tgz")));
    for file in [&wheel, &npm[0], &npm[1]] {
        let found = fs::metadata(file).with_context(|| format!("no {}", file.display()))?;
        println!("{} ({:.1} MB)", file.display(), found.len() as f64 / 1e6);
    }
    Ok(Packages { wheel, npm, work })
}

/// npm's name of this machine's processor.
fn cpu() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Copies the templates `files` of `packages/NAME`, and what each package has.
fn lay(root: &Path, name: &str, to: &Path, files: &[&str]) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for file in files {
        let text = fs::read_to_string(root.join("packages").join(name).join(file))?;
        fs::write(to.join(file), text.replace("0.0.0", VERSION).replace("CPU", cpu()))?;
    }
    for file in ["packages/README.md", "LICENSE", "LICENSE-APACHE", "LICENSE-MIT"] {
        let file = root.join(file);
        fs::copy(&file, to.join(file.file_name().context("it is a file")?))?;
    }
    Ok(())
}
