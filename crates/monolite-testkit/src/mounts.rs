//! File systems that refuse, and disks whose power can be cut: mounted for one test, unmounted at
//! its end. All of it needs root.
//!
//! # Algorithm
//! A [`Disk`] is a file system in an image file. Its power is cut by the file system's own shutdown
//! call, which drops everything that has not reached the image: cached pages and the log in memory.
//! The image is then mounted again, and the file system replays its journal as after a real cut.
//! The call is made by `xfs_io` of the package `xfsprogs`, for ext4 as for XFS.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::scratch::without_links;

/// How often, and how long after another, a busy file system is asked to go.
const UNMOUNT_TRIES: u32 = 250;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(20);

/// A mounted file system that refuses.
#[derive(Debug)]
pub struct Mount {
    directory: tempfile::TempDir,
}

impl Mount {
    /// A file system in memory with room for `size`, as `mount` says it: `3m`.
    pub fn small(size: &str) -> Result<Mount> {
        let directory = without_links()?;
        let option = format!("size={size}");
        mount(&["-t", "tmpfs", "-o", &option, "tmpfs"], directory.path())?;
        Ok(Mount { directory })
    }

    /// Gives it as much room.
    ///
    /// # Errors
    /// When it is no file system in memory.
    pub fn resize(&self, size: &str) -> Result<()> {
        mount(&["-o", &format!("remount,size={size}")], self.path())
    }

    /// A directory that `prepare` has filled and that is read-only.
    pub fn read_only(prepare: impl FnOnce(&Path)) -> Result<Mount> {
        let directory = without_links()?;
        prepare(directory.path());
        let name = directory.path().to_str().context("the directory's name is not text")?;
        mount(&["--bind", name], directory.path())?;
        let bound = Mount { directory };
        mount(&["-o", "remount,ro,bind"], bound.path())?;
        Ok(bound)
    }

    /// `directory` once more.
    pub fn again(directory: &Path) -> Result<Mount> {
        let point = without_links()?;
        let name = directory.to_str().context("the directory's name is not text")?;
        mount(&["--bind", name], point.path())?;
        Ok(Mount { directory: point })
    }

    /// An empty directory over another file system's, with what is written in `above`: a `stat` of
    /// its files tells another device than the system's list of locks does.
    pub fn layered(above: &Mount) -> Result<Mount> {
        let directory = without_links()?;
        let (upper, work) = (above.path().join("upper"), above.path().join("work"));
        std::fs::create_dir(&upper)?;
        std::fs::create_dir(&work)?;
        let (lower, upper, work) = (directory.path().display(), upper.display(), work.display());
        let option = format!("lowerdir={lower},upperdir={upper},workdir={work},xino=off");
        mount(&["-t", "overlay", "-o", &option, "overlay"], directory.path())?;
        Ok(Mount { directory })
    }

    /// `directory` once more, by way of a program (`bindfs` of the package of that name).
    pub fn by_fuse(directory: &Path) -> Result<Mount> {
        let point = without_links()?;
        let output = Command::new("bindfs").arg(directory).arg(point.path()).output();
        let output = output.context("bindfs")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(Mount { directory: point })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// One file, mounted alone under another name.
#[derive(Debug)]
pub struct MountedFile {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl MountedFile {
    /// `file` under another name.
    pub fn new(file: &Path) -> Result<MountedFile> {
        let directory = without_links()?;
        let path = directory.path().join("db");
        File::create(&path)?;
        let name = file.to_str().context("the file's name is not text")?;
        mount(&["--bind", name], &path)?;
        Ok(MountedFile { path, _directory: directory })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MountedFile {
    fn drop(&mut self) {
        unmount_lazily(&self.path);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        unmount_lazily(self.path());
    }
}

/// The file systems whose power can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// Debian's own, with its default options.
    Ext4,
    /// XFS with its default options.
    Xfs,
}

impl FileSystem {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    fn make(self) -> [&'static str; 3] {
        match self {
            FileSystem::Ext4 => ["mkfs.ext4", "-q", "-F"],
            FileSystem::Xfs => ["mkfs.xfs", "-q", "-f"],
        }
    }

    /// What is missing on this machine to cut its power, and how to have it; `None` when nothing.
    pub fn missing(self) -> Option<String> {
        let package = match self {
            FileSystem::Ext4 => "e2fsprogs",
            FileSystem::Xfs => "xfsprogs",
        };
        let tools = [("xfs_io", "xfsprogs"), (self.make()[0], package), ("mount", "mount")];
        let mut absent = tools.into_iter().filter(|(tool, _)| !is_there(tool));
        absent.next().map(|(tool, package)| {
            format!("{}: no {tool}; as root: apt-get install {package}", self.name())
        })
    }
}

fn is_there(tool: &str) -> bool {
    let asked = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok()
}

/// A file system of its own in an image file, whose power can be cut.
#[derive(Debug)]
pub struct Disk {
    kind: FileSystem,
    image: PathBuf,
    point: PathBuf,
    _directory: tempfile::TempDir,
}

impl Disk {
    /// The smallest size that `mkfs.xfs` agrees to, and some more. The image is sparse.
    const BYTES: u64 = 400 << 20;

    /// Makes an empty file system in `directory` and mounts it.
    pub fn new(directory: &Path, kind: FileSystem) -> Result<Disk> {
        let directory = tempfile::tempdir_in(directory)
            .with_context(|| format!("no directory in {}", directory.display()))?;
        let (image, point) = (directory.path().join("image"), directory.path().join("disk"));
        std::fs::create_dir(&point).context("cannot create the mount point")?;
        let file = File::create(&image).context("cannot create the image")?;
        file.set_len(Self::BYTES).context("cannot size the image")?;
        let [make, options @ ..] = kind.make();
        run(Command::new(make).args(options).arg(&image))?;
        let disk = Disk { kind, image, point, _directory: directory };
        disk.mount()?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }

    fn mount(&self) -> Result<()> {
        let image = self.image.to_str().context("the image's name is not text")?;
        mount(&["-t", self.kind.name(), "-o", "loop,noatime", image], &self.point)
    }

    /// Makes ready to cut the power without further delay.
    pub fn arm(&self) -> Result<Cutter<'_>> {
        let tool = Command::new("xfs_io")
            .arg("-x")
            .arg(&self.point)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start xfs_io")?;
        Ok(Cutter { disk: self, tool })
    }

    /// Gives it power again: unmounts it and mounts it again. Nobody may have it open.
    pub fn restart(&mut self) -> Result<()> {
        let mut tries = 0;
        while let Err(error) = run(Command::new("umount").arg(&self.point)) {
            tries += 1;
            if tries == UNMOUNT_TRIES {
                return Err(error);
            }
            thread::sleep(UNMOUNT_PAUSE);
        }
        self.mount()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The loop device goes with the last mount.
        unmount_lazily(&self.point);
    }
}

/// The hand at the switch of a [`Disk`].
#[derive(Debug)]
pub struct Cutter<'d> {
    disk: &'d Disk,
    tool: std::process::Child,
}

impl Cutter<'_> {
    /// Cuts the power: whatever has not reached the disk is gone, and every later call fails.
    pub fn cut(mut self) -> Result<()> {
        let mut input = self.tool.stdin.take().context("its input is piped")?;
        input.write_all(b"shutdown\nquit\n").context("cannot tell xfs_io")?;
        drop(input);
        self.tool.wait().context("cannot wait for xfs_io")?;
        ensure!(
            File::create(self.disk.path().join("probe")).is_err(),
            "xfs_io has not shut the {} file system down",
            self.disk.kind.name()
        );
        Ok(())
    }
}

impl Drop for Cutter<'_> {
    fn drop(&mut self) {
        // It has ended if the power was cut.
        let _ = self.tool.kill();
        let _ = self.tool.wait();
    }
}

fn mount(arguments: &[&str], path: &Path) -> Result<()> {
    run(Command::new("mount").args(arguments).arg(path))
}

fn unmount_lazily(path: &Path) {
    // Nobody is left to be told; what is not mounted need not be unmounted.
    let _ = run(Command::new("umount").arg("--lazy").arg(path));
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    // A group of its own: an interrupt from the terminal is for the program that is in charge.
    let output =
        command.process_group(0).output().with_context(|| format!("cannot start {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())
}

/// In a test that cannot have what it needs: says so on standard error, and in the file that the
/// gate counts skipped tests by, named in `MONOLITE_SKIPS`.
pub fn say_skipped(test: &str, reason: &str) -> Result<()> {
    let line = format!("SKIPPED {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes())?;
    if let Some(list) = std::env::var_os("MONOLITE_SKIPS") {
        let mut list = File::options().append(true).create(true).open(list)?;
        list.write_all(line.as_bytes())?;
    }
    Ok(())
}
