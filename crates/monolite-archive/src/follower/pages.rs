//! Owns the pages of an archive's file while they are applied: verified, and on this machine, so
//! that no lock is held during a request.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::thread;

use monolite::archive::Pages;
use monolite_ltx::{Decoder, Header, PageSize};

use crate::error::{Error, Result};
use crate::file::ArchivedFile;
use crate::layout::Layout;
use crate::source::FileSource;
use crate::store::Store;

/// How many bytes of pages are held in memory for one commit; more are in files without a name.
pub(super) const IN_MEMORY: usize = 32 << 20;

/// What one file of an archive changes.
pub(super) struct Changed {
    pub(super) header: Header,
    numbers: Vec<u32>,
    memory: Vec<u8>,
    /// What did not fit, in front of it.
    spilled: Option<File>,
}

impl Changed {
    /// Reads `file` to its end, with its checksum. From `most` bytes on it goes into a file in
    /// `directory`.
    ///
    /// # Errors
    /// As those of a restore.
    pub(super) fn read(
        store: &dyn Store,
        layout: &Layout,
        file: ArchivedFile,
        most: usize,
        directory: &Path,
    ) -> Result<Changed> {
        let read = || {
            thread::scope(|scope| {
                let source = FileSource::new(store, layout, file).reading_ahead(scope);
                let failed = |error| Error::of_ltx(file.key(layout), error);
                let mut decoder = Decoder::new(source).map_err(failed)?;
                let header = *decoder.header();
                file.must_have(&header, layout)?;
                let (numbers, memory, spilled) = (Vec::new(), Vec::new(), None);
                let mut changed = Changed { header, numbers, memory, spilled };
                while let Some(page) = decoder.next_page().map_err(failed)? {
                    changed.numbers.push(page.pgno.get());
                    changed.memory.extend_from_slice(page.data);
                    let spilled = changed.spill(most, directory);
                    spilled.map_err(|error| Error::of_io("keep the pages of a file", error))?;
                }
                Ok(changed)
            })
        };
        read().map_err(|error: Error| error.of_file(file))
    }

    /// Whether it changes anything: a fence does not.
    pub(super) fn has_pages(&self) -> bool {
        !self.numbers.is_empty()
    }

    fn spill(&mut self, most: usize, directory: &Path) -> io::Result<()> {
        if self.memory.len() < most {
            return Ok(());
        }
        if self.spilled.is_none() {
            self.spilled = Some(nameless(directory)?);
        }
        let Some(spilled) = &mut self.spilled else { return Ok(()) };
        spilled.write_all(&self.memory)?;
        self.memory.clear();
        Ok(())
    }
}

/// A new file that is gone when it is closed.
fn nameless(directory: &Path) -> io::Result<File> {
    let path = directory.join("follow.pages");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

impl Pages for Changed {
    fn each(&mut self, give: &mut dyn FnMut(u32, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let bytes = self.header.page_size.bytes();
        let mut numbers = self.numbers.iter();
        if let Some(file) = &mut self.spilled {
            let spilled = file.seek(SeekFrom::End(0))? / bytes as u64;
            file.rewind()?;
            let (mut file, mut page) = (BufReader::with_capacity(1 << 20, file), vec![0; bytes]);
            for number in numbers.by_ref().take(spilled as usize) {
                file.read_exact(&mut page)?;
                give(*number, &page)?;
            }
        }
        numbers
            .zip(self.memory.chunks_exact(bytes))
            .try_for_each(|(number, page)| give(*number, page))
    }
}

/// All pages of a database that was restored.
pub(super) struct Whole {
    file: File,
    size: u32,
    page_size: PageSize,
}

impl Whole {
    /// Those of the file at `path`.
    ///
    /// # Errors
    /// Those of opening it.
    pub(super) fn open(path: &Path, size: u32, page_size: PageSize) -> Result<Whole> {
        let file = File::open(path);
        let file = file.map_err(|error| Error::of_io(format!("open {}", path.display()), error))?;
        Ok(Whole { file, size, page_size })
    }
}

impl Pages for Whole {
    fn each(&mut self, give: &mut dyn FnMut(u32, &[u8]) -> io::Result<()>) -> io::Result<()> {
        self.file.rewind()?;
        let mut page = vec![0; self.page_size.bytes()];
        let mut file = BufReader::with_capacity(1 << 20, &self.file);
        for number in 1..=self.size {
            file.read_exact(&mut page)?;
            if number != self.page_size.lock_page().get() {
                give(number, &page)?;
            }
        }
        Ok(())
    }
}
