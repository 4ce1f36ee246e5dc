//! Owns which store an address names.
//!
//! # Format
//! `s3://bucket/prefix?endpoint=…`, `gs://bucket/prefix`, `az://container/prefix`,
//! `file:///directory`, or a path without `://`. A path is taken literally: `%20` is no blank.

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::store::{DirectoryStore, Store};

/// The store and the layout of the archive at `url`. Nothing is looked at yet: what is not there is
/// an archive without files.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) when it names nothing, something unknown, or a service
/// that this was built without.
pub fn open(url: &str) -> Result<(Box<dyn Store>, Layout)> {
    open_with(url, &[])
}

/// The same with options of the client of a bucket, such as `("region", "eu-central-1")` or
/// `("access_key_id", …)`, by the names that addresses have them under. What the address says goes
/// before them, and they go before the environment.
///
/// # Errors
/// Those of [`open`], and [`Invalid`](crate::ErrorKind::Invalid) for a name that the service does
/// not have, or for any when it is a directory. No value is in its text.
pub fn open_with(url: &str, options: &[(String, String)]) -> Result<(Box<dyn Store>, Layout)> {
    let is_bucket =
        url.starts_with("s3://") || url.starts_with("gs://") || url.starts_with("az://");
    if let Some((name, _)) = options.first().filter(|_| !is_bucket) {
        return Err(Error::invalid(format!("{url:?} is no bucket, and has no option {name:?}")));
    }
    match url.split_once("://") {
        None => directory(url),
        Some(("file", path)) if path.starts_with('/') => directory(path),
        Some(("file", _)) => {
            let message = format!("{url:?} has no absolute path, as file:///directory has");
            Err(Error::invalid(message))
        }
        Some(("s3" | "gs" | "az", _)) => bucket(url, options),
        Some((scheme, _)) => Err(Error::invalid(format!(
            "{scheme:?} is no kind of archive; there are s3, gs, az and file, and a path without ://"
        ))),
    }
}

fn directory(path: &str) -> Result<(Box<dyn Store>, Layout)> {
    if path.is_empty() {
        return Err(Error::invalid("an empty address names no archive"));
    }
    Ok((Box::new(DirectoryStore::new(path)), Layout::directory()))
}

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
fn bucket(url: &str, options: &[(String, String)]) -> Result<(Box<dyn Store>, Layout)> {
    let (store, layout) = crate::store::BucketStore::open_with(url, options)?;
    Ok((Box::new(store), layout))
}

#[cfg(not(any(feature = "s3", feature = "gcs", feature = "azure")))]
fn bucket(url: &str, _: &[(String, String)]) -> Result<(Box<dyn Store>, Layout)> {
    let message = format!(
        "{url:?} is a bucket, and this was built for directories alone; build it with the feature \
         s3, gcs or azure"
    );
    Err(Error::invalid(message))
}

#[cfg(test)]
mod tests {
    use super::open;
    use crate::error::ErrorKind;

    #[test]
    fn what_names_no_archive_is_refused_by_name() {
        for url in ["", "file://here", "file://", "ftp://host/place"] {
            let error = open(url).map(drop).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(url.is_empty() || error.to_string().contains(&url[..3]), "{error}");
        }
        #[cfg(not(any(feature = "s3", feature = "gcs", feature = "azure")))]
        assert!(open("s3://bucket/prefix").map(drop).unwrap_err().to_string().contains("built"));
    }

    #[test]
    fn a_directory_is_one_with_and_without_a_scheme() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        for url in [path.to_owned(), format!("file://{path}")] {
            let (store, layout) = open(&url).unwrap();
            store.create(&layout.leader(), b"text", None).map(drop).unwrap();
            store.delete(&layout.leader()).unwrap();
            assert!(directory.path().join("monolite").is_dir());
        }
    }
}
