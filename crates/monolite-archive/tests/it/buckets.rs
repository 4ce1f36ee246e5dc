//! Buckets keep what the trait of stores promises: the client's own bucket in memory, and the one
//! that `MONOLITE_S3` names, as in `s3://test/any?endpoint=http://127.0.0.1:7070&allow_http=true`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use monolite_archive::{
    BucketStore, Error, ErrorKind, Layout, Part, Result, Service, Store as _, Tag, Target,
    internals::{Catalog, Fault, FaultyStore, Level, LevelKeys, open_with, verify},
};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Error as ClientError, MultipartId, PutMultipartOptions, PutPayload, PutResult};

use crate::archive::{Archive, compact_level};
use crate::stores::keeps_its_promises;

#[test]
fn bucket_in_memory_keeps_its_promises() {
    let client = Arc::new(InMemory::new());
    keeps_its_promises(&BucketStore::new(client.clone(), client, Service::S3).unwrap(), "");
}

/// As when the last handle of a database is dropped there.
#[test]
fn bucket_is_dropped_on_a_thread_of_another_runtime() {
    let client = Arc::new(InMemory::new());
    let store = BucketStore::new(client.clone(), client, Service::S3).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { drop(store) });
}

#[test]
fn address_that_names_nothing_is_refused() {
    for address in ["", "s3", "s3://", "ftp://bucket/a", "s3://bucket/a?endpoint", "s3://b/a//c"] {
        assert!(BucketStore::open(address).is_err(), "{address:?}");
    }
}

#[test]
fn endpoint_without_encryption_is_refused_unless_it_is_allowed() {
    let address = "s3://bucket/any?endpoint=http://127.0.0.1:9";
    let error = BucketStore::open(address).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("allow_http=true"), "{error}");
    assert!(BucketStore::open(&format!("{address}&allow_http=true")).is_ok());
}

#[test]
fn option_that_there_is_not_is_named_and_its_value_is_not() {
    let options = [("secret".to_owned(), "hunter2".to_owned())];
    for url in ["s3://bucket/prefix", "/a/directory", "file:///a/directory"] {
        let error = open_with(url, &options).map(drop).unwrap_err();
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(said.contains("\"secret\"") && !said.contains("hunter2"), "{said}");
    }
    let region = [("region".to_owned(), "eu-central-1".to_owned())];
    assert!(open_with("s3://bucket/prefix", &region).is_ok());
}

#[test]
fn s3_keeps_its_promises_and_an_archive() {
    let Some(address) = std::env::var("MONOLITE_S3").ok() else {
        return crate::programs::skip(
            "s3_keeps_its_promises_and_an_archive",
            "MONOLITE_S3 does not say where a bucket is",
        );
    };
    let (address, query) = address.split_once('?').unwrap_or((&address, ""));
    let prefix = fastrand::u64(..);
    let options = query.split('&').filter_map(|pair| pair.split_once('='));
    let options: Vec<_> = options.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let (store, layout) = BucketStore::open_with(&format!("{address}/{prefix}"), &options).unwrap();
    let expected = Layout::new(&format!("any/{prefix}"), LevelKeys::Hexadecimal).unwrap();
    assert_eq!(layout.leader(), expected.leader());
    keeps_its_promises(&store, &format!("promises/{prefix}/"));
    let long = format!("promises/{prefix}/long");
    for is_first in [true, false] {
        let created = create_at(&store, &long, 20, |_| ());
        assert_eq!(created.is_ok(), is_first);
        is_there(&store, &long, 20);
    }
    let mut rng = fastrand::Rng::new();
    let store = FaultyStore::new(store, move |call| match (call, rng.u8(..100)) {
        (monolite_archive::internals::Call::Create(key), _) if key.contains("/0009/") => {
            Fault::None
        }
        (_, 0..5) => Fault::LostAnswer,
        (_, 5..10) => Fault::LostRequest,
        _ => Fault::None,
    });
    let mut archive = Archive::in_layout(store, layout, prefix, false);
    archive.live(60);
    let (store, layout) = (archive.store.inner(), &archive.layout);
    compact_level(store, layout, Level::FIRST, None).unwrap().unwrap();
    let (newest, moment) = archive.newest();
    let restored = monolite_archive::internals::Catalog::read(store, layout).unwrap();
    assert_eq!(restored.newest(), Some(newest));
    assert!(verify(store, layout, &mut |_| {}).unwrap().problems.is_empty());
    let directory = crate::archive::scratch();
    let output = directory.path().join("restored.db");
    monolite_archive::internals::restore(store, layout, Target::Latest, &output).unwrap();
    assert!(std::fs::read(&output).unwrap() == moment.bytes());
}

/// What parts of a body meet.
#[derive(Debug, Default)]
struct Watched {
    inner: Arc<InMemory>,
    arrived: AtomicU64,
    given_up: AtomicU64,
    /// How many parts get no answer before one does.
    failures: AtomicU64,
    is_denied: AtomicBool,
    loses_the_last_answer: AtomicBool,
    has_no_attributes: bool,
}

fn generic(what: &str) -> ClientError {
    ClientError::Generic { store: "test", source: what.into() }
}

#[async_trait]
impl MultipartStore for Watched {
    async fn create_multipart(&self, path: &Path) -> object_store::Result<MultipartId> {
        self.inner.create_multipart(path).await
    }

    async fn create_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<MultipartId> {
        if self.has_no_attributes && !options.attributes.is_empty() {
            return Err(ClientError::NotSupported { source: "attributes".into() });
        }
        self.inner.create_multipart_opts(path, options).await
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        number: usize,
        data: PutPayload,
    ) -> object_store::Result<PartId> {
        let less = |left: u64| left.checked_sub(1);
        if self.is_denied.load(Ordering::SeqCst) {
            let (path, source) = (path.to_string(), "403".into());
            return Err(ClientError::PermissionDenied { path, source });
        }
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(generic("503"));
        }
        let bytes = data.content_length() as u64;
        let part = self.inner.put_part(path, id, number, data).await;
        self.arrived.fetch_add(bytes, Ordering::SeqCst);
        part
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> object_store::Result<PutResult> {
        let done = self.inner.complete_multipart(path, id, parts).await;
        if self.loses_the_last_answer.load(Ordering::SeqCst) { Err(generic("reset")) } else { done }
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> object_store::Result<()> {
        self.given_up.fetch_add(1, Ordering::SeqCst);
        self.inner.abort_multipart(path, id).await
    }
}

const MEBIBYTE: usize = 1 << 20;

fn watched() -> (Arc<Watched>, BucketStore) {
    let parts = Arc::new(Watched::default());
    let store = BucketStore::new(parts.inner.clone(), parts.clone(), Service::S3).unwrap();
    (parts, store)
}

/// Writes so many mebibytes, each of another byte, and does `each` before one.
fn create(store: &BucketStore, mebibytes: usize, each: impl FnMut(usize)) -> Result<Tag> {
    create_at(store, "a/long", mebibytes, each)
}

fn create_at(
    store: &BucketStore,
    key: &str,
    mebibytes: usize,
    mut each: impl FnMut(usize),
) -> Result<Tag> {
    store.create_from(key, 0, None, &mut |output| {
        for number in 0..mebibytes {
            each(number);
            let written = output.write_all(&vec![number as u8; MEBIBYTE]);
            written.map_err(|error| {
                let inner = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
                inner.unwrap().clone()
            })?;
        }
        Ok(())
    })
}

fn is_there(store: &BucketStore, key: &str, mebibytes: usize) {
    let object = store.get(key, Part::End(0)).unwrap().unwrap();
    assert_eq!(object.len, (mebibytes * MEBIBYTE) as u64);
    for number in 0..mebibytes {
        let start = (number * MEBIBYTE) as u64;
        let part = Part::Range(start..start + MEBIBYTE as u64);
        let bytes = store.get(key, part).unwrap().unwrap().bytes;
        assert!(bytes == vec![number as u8; MEBIBYTE], "mebibyte {number}");
    }
}

#[test]
fn long_body_is_never_in_memory_as_a_whole() {
    let (parts, store) = watched();
    let tag = create(&store, 150, |number| {
        let held = (number * MEBIBYTE) as u64 - parts.arrived.load(Ordering::SeqCst);
        assert!(held <= 48 * MEBIBYTE as u64, "{held} bytes are in memory");
        assert!(store.get("a/long", Part::End(0)).unwrap().is_none(), "it is visible when whole");
    });
    is_there(&store, "a/long", 150);
    assert_eq!(store.get("a/long", Part::End(0)).unwrap().unwrap().tag, tag.unwrap());
    assert_eq!(parts.arrived.load(Ordering::SeqCst), 150 * MEBIBYTE as u64);
}

#[test]
fn short_body_is_created_by_one_request() {
    let (parts, store) = watched();
    create(&store, 8, |_| ()).unwrap();
    is_there(&store, "a/long", 8);
    assert_eq!(parts.arrived.load(Ordering::SeqCst), 0);
    assert_eq!(create(&store, 8, |_| ()).unwrap_err().kind(), ErrorKind::Exists);
}

/// The client of Azure refuses what others keep beside an object, if that has parts.
#[test]
fn long_body_of_a_time_is_created_in_azure() {
    let parts = Arc::new(Watched { has_no_attributes: true, ..Watched::default() });
    let store = BucketStore::new(parts.inner.clone(), parts.clone(), Service::Azure).unwrap();
    let time = Some(monolite_ltx::Timestamp::from_millis(1));
    let created = store.create_from("a/long", 0, time, &mut |output| {
        output.write_all(&vec![7; 20 * MEBIBYTE]).unwrap();
        Ok(())
    });
    created.map(drop).unwrap();
    assert_eq!(parts.arrived.load(Ordering::SeqCst), 20 * MEBIBYTE as u64);
}

#[test]
fn part_without_an_answer_is_sent_again() {
    let (parts, store) = watched();
    parts.failures.store(2, Ordering::SeqCst);
    create(&store, 30, |_| ()).unwrap();
    is_there(&store, "a/long", 30);
}

#[test]
fn lost_answer_to_the_end_of_an_upload_is_looked_for() {
    let (parts, store) = watched();
    parts.loses_the_last_answer.store(true, Ordering::SeqCst);
    let tag = create(&store, 20, |_| ()).unwrap();
    assert_eq!(store.get("a/long", Part::End(0)).unwrap().unwrap().tag, tag);
}

#[test]
fn upload_that_breaks_off_leaves_nothing() {
    let (parts, store) = watched();
    let stopped = store.create_from("a/long", 0, None, &mut |output| {
        output.write_all(&vec![0; 20 * MEBIBYTE]).unwrap();
        Err(Error::new(ErrorKind::Lost, "stopped"))
    });
    assert_eq!(stopped.unwrap_err().to_string(), "stopped");
    parts.is_denied.store(true, Ordering::SeqCst);
    assert_eq!(create(&store, 60, |_| ()).unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(parts.given_up.load(Ordering::SeqCst), 2);
    assert!(store.get("a/long", Part::End(0)).unwrap().is_none());
}

#[test]
fn what_another_has_created_meanwhile_stays() {
    let (parts, store) = watched();
    let created = create(&store, 30, |number| {
        if number == 29 {
            store.create("a/long", b"another's", None).unwrap();
        }
    });
    assert_eq!(created.unwrap_err().kind(), ErrorKind::Exists);
    let sent = parts.arrived.load(Ordering::SeqCst);
    assert_eq!(create(&store, 30, |_| ()).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(parts.arrived.load(Ordering::SeqCst), sent, "it is seen before a part is sent");
    assert_eq!(store.get("a/long", Part::Whole(99)).unwrap().unwrap().bytes, b"another's");
    assert_eq!(parts.given_up.load(Ordering::SeqCst), 1);
}

#[test]
fn first_copy_of_a_database_and_its_merged_files_are_uploaded_in_parts() {
    let (parts, store) = watched();
    let (store, layout) = (Arc::new(store), Layout::new("a", LevelKeys::Hexadecimal).unwrap());
    let directory = crate::archive::scratch();
    let file = directory.path().join("large.db");
    let fill = |db: &monolite::Database, mebibytes: u32| {
        let sql = "INSERT INTO t SELECT randomblob(1000000) FROM generate_series(1, ?1)";
        db.write(move |tx| tx.execute(sql, [mebibytes])).wait().unwrap();
    };
    let db = monolite::Options::new().open(&file).unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait().unwrap();
    fill(&db, 30);
    db.close().unwrap();
    let archive = monolite_archive::Archive::of(store.clone(), layout.clone());
    let options = monolite::Options::new().archive(archive);
    let db = options.durability(monolite::Durability::Archived).open(&file).unwrap();
    fill(&db, 5);
    let copied = parts.arrived.load(Ordering::SeqCst);
    assert!(copied > 28_000_000, "{copied} bytes");
    db.close().unwrap();
    // The snapshot and the group of five mebibytes, merged: another upload in parts.
    let mut catalog = Catalog::read(store.as_ref(), &layout).unwrap();
    let newest = catalog.newest().unwrap();
    let merged =
        monolite_archive::internals::snapshot(store.as_ref(), &layout, &mut catalog, newest)
            .unwrap();
    assert!(parts.arrived.load(Ordering::SeqCst) - copied == merged.len);
    let output = directory.path().join("restored.db");
    let restored =
        monolite_archive::internals::restore(store.as_ref(), &layout, Target::Latest, &output);
    assert_eq!(restored.unwrap().files, 1);
    assert!(std::fs::read(&file).unwrap() == std::fs::read(&output).unwrap());
}
