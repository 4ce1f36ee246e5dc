//! Owns whether a file is the state of an archive at a TXID, page by page.
//!
//! # Algorithm
//! As a restore: the files of the plan, the newest first, each to its end with its sum. Of each
//! page the newest version is compared instead of written. Nothing shorter than that would do:
//! pages do not say of which commit they are.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;

use monolite_ltx::{Decoder, Header, Pgno};

use crate::error::{Error, Result};
use crate::file::ArchivedFile;
use crate::layout::Layout;
use crate::plan::Plan;
use crate::source::FileSource;
use crate::store::Store;
use crate::verify::verify_file;

/// What tells the database at `path` from the state of `plan`, as a sentence's end; `None` when
/// nothing does.
///
/// # Errors
/// [`Io`](crate::ErrorKind::Io) when it cannot be read; those of reading the archive.
pub(crate) fn difference(
    store: &dyn Store,
    layout: &Layout,
    plan: &Plan,
    path: &Path,
) -> Result<Option<String>> {
    let failed = |error| Error::of_io(format!("read {}", path.display()), error);
    let database = File::open(path).map_err(failed)?;
    let last = plan.files().last().ok_or_else(|| Error::invalid("a plan without files"))?;
    let header = last.header(store, layout)?;
    let len = database.metadata().map_err(failed)?.len();
    let must = u64::from(header.commit) * u64::from(header.page_size.get());
    if len != must {
        return Ok(Some(format!("it has {len} bytes instead of {must}")));
    }
    let mut compared = Compared { database, header, path, pages: Vec::new() };
    compared.pages.resize(header.commit as usize + 1, false);
    for file in plan.files().iter().rev() {
        let other = compared.with(store, layout, file).map_err(|error| error.of_file(*file))?;
        if let Some(page) = other {
            // It may be the archive's page that is not what was written.
            verify_file(store, layout, *file).map_err(|error| error.of_file(*file))?;
            return Ok(Some(format!("page {page} is another one")));
        }
    }
    Ok(None)
}

/// A file of which some pages were compared.
struct Compared<'a> {
    database: File,
    header: Header,
    path: &'a Path,
    /// By their numbers.
    pages: Vec<bool>,
}

impl Compared<'_> {
    /// The first page that is another one in `file`, if no newer file had it.
    fn with(
        &mut self,
        store: &dyn Store,
        layout: &Layout,
        file: &ArchivedFile,
    ) -> Result<Option<Pgno>> {
        let key = file.key(layout);
        let failed = |error| Error::of_ltx(&key, error);
        thread::scope(|scope| {
            let source = FileSource::new(store, layout, *file).reading_ahead(scope);
            let mut decoder = Decoder::new(source).map_err(failed)?;
            file.must_have(decoder.header(), layout)?;
            if decoder.header().page_size != self.header.page_size {
                return Err(Error::corrupt(format!("{key:?} has pages of another size")));
            }
            let mut is = vec![0; self.header.page_size.bytes()];
            while let Some(page) = decoder.next_page().map_err(failed)? {
                let seen = self.pages.get_mut(page.pgno.get() as usize);
                let Some(seen) = seen.filter(|seen| !**seen) else { continue };
                *seen = true;
                let at = u64::from(page.pgno.get() - 1) * is.len() as u64;
                let read = self.database.read_exact_at(&mut is, at);
                let path = self.path.display();
                read.map_err(|error| Error::of_io(format!("read {path}"), error))?;
                if is != page.data {
                    return Ok(Some(page.pgno));
                }
            }
            Ok(None)
        })
    }
}
