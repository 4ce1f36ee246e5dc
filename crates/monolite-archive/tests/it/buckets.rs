//! Buckets keep what the trait of stores promises: the client's own bucket in memory, and the one
//! that `MONOLITE_S3` names, as in `s3://test/any?endpoint=http://127.0.0.1:7070`.

use std::sync::Arc;

use monolite_archive::{
    BucketStore, Fault, FaultyStore, Layout, Level, LevelKeys, Reading, Service, Target,
    compact_level, verify,
};

use crate::archive::Archive;
use crate::stores::keeps_its_promises;

#[test]
fn bucket_in_memory_keeps_its_promises() {
    let client = Arc::new(object_store::memory::InMemory::new());
    keeps_its_promises(&BucketStore::new(client, Service::S3).unwrap(), "");
}

#[test]
fn address_that_names_nothing_is_refused() {
    for address in ["", "s3", "s3://", "ftp://bucket/a", "s3://bucket/a?endpoint", "s3://b/a//c"] {
        assert!(BucketStore::open(address).is_err(), "{address:?}");
    }
}

#[test]
fn s3_keeps_its_promises_and_an_archive() {
    let Some(address) = std::env::var("MONOLITE_S3").ok() else {
        return crate::originals::skip(
            "s3_keeps_its_promises_and_an_archive",
            "MONOLITE_S3 does not say where a bucket is",
        );
    };
    let (address, query) = address.split_once('?').unwrap_or((&address, ""));
    let prefix = fastrand::u64(..);
    let open = |below: &str| BucketStore::open(&format!("{address}/{prefix}{below}?{query}"));
    let (store, layout) = open("").unwrap();
    let expected = Layout::new(&format!("any/{prefix}"), LevelKeys::Hexadecimal).unwrap();
    assert_eq!(layout.leader(), expected.leader());
    keeps_its_promises(&store, &format!("promises/{prefix}/"));
    let mut rng = fastrand::Rng::new();
    let store = FaultyStore::new(store, move |call| match (call, rng.u8(..100)) {
        (monolite_archive::Call::Create(key), _) if key.contains("/0009/") => Fault::None,
        (_, 0..5) => Fault::LostAnswer,
        (_, 5..10) => Fault::LostRequest,
        _ => Fault::None,
    });
    let mut archive = Archive::in_layout(store, layout, prefix, false);
    archive.live(60);
    let (store, layout) = (archive.store.inner(), &archive.layout);
    compact_level(store, layout, Level::FIRST, None).unwrap().unwrap();
    let (newest, moment) = archive.newest();
    let restored = monolite_archive::Catalog::read(store, layout).unwrap();
    assert_eq!(restored.newest(), Some(newest));
    assert!(verify(store, layout, &mut |_| {}).unwrap().problems.is_empty());
    let directory = crate::archive::scratch();
    for reading in [Reading::Whole, Reading::ByIndex] {
        let output = directory.path().join(format!("{reading:?}.db"));
        monolite_archive::restore(store, layout, Target::Latest, &output, reading).unwrap();
        assert!(std::fs::read(&output).unwrap() == moment.bytes());
    }
    if let Some(program) = std::env::var_os("MONOLITE_LITESTREAM") {
        let theirs = format!("{address}/{prefix}?{query}&forcePathStyle=true");
        let restored = crate::originals::litestream_at(program.as_ref(), &theirs, &[]);
        assert!(restored.unwrap() == moment.bytes());
    }
}
