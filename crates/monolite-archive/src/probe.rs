//! Owns the look at a store before an archive trusts it.
//!
//! # Not here
//! Races: a store that checks and then writes answers each request here as one does that does both
//! at once.

use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::record::Holder;
use crate::store::{Part, Store, Tag};

/// Whether a store refuses what [`Store`] says that it refuses: it creates an object twice, and
/// replaces it under a tag that is wrong and one that is right. `drawn` names the object, which is
/// deleted afterwards; one that cannot be deleted stays, and is never read.
///
/// # Errors
/// [`Unsupported`](ErrorKind::Unsupported) when it does what it must not, in which case it must not
/// have an archive that fences; those of the store, and then nothing is known.
pub fn probe(store: &dyn Store, layout: &Layout, drawn: Holder) -> Result<()> {
    let key = format!("{}-{drawn}", layout.probe());
    let probed = on(store, &key);
    // Whether it can delete is not what is asked; it must not hide what is.
    let _ = store.delete(&key);
    probed
}

fn on(store: &dyn Store, key: &str) -> Result<()> {
    let first = store.create(key, b"first", None)?;
    refused(store.create(key, b"other", None), "creates an object that is there")?;
    let next = store.swap(key, b"next", &first)?;
    refused(store.swap(key, b"other", &first), "replaces an object under a tag that is old")?;
    let found = store.get(key, Part::Whole(1024))?;
    if found.is_none_or(|found| found.bytes != b"next" || found.tag != next) {
        return Err(unusable("does not give what was written last"));
    }
    Ok(())
}

fn refused(answer: Result<Tag>, what: &str) -> Result<()> {
    match answer {
        Ok(_) => Err(unusable(what)),
        Err(error) if matches!(error.kind(), ErrorKind::Exists | ErrorKind::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}

fn unusable(what: &str) -> Error {
    let message = format!("the store {what}; two primaries could both fill a slot of it");
    Error::new(ErrorKind::Unsupported, message)
}
