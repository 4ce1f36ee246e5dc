//! Tests of the thread that writes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File, OpenOptions};
use std::thread;

use super::{BATCHES, GATHERED, Writer};
use crate::error::ErrorKind;

#[test]
fn each_page_is_where_it_belongs_once_it_is_synced() {
    const PAGE: usize = 4096;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("output");
    let file = File::create(&path).unwrap();
    let pages = 4 * BATCHES * GATHERED / PAGE;
    let mut order: Vec<usize> = (0..pages).collect();
    let mut random = fastrand::Rng::with_seed(20_261_126);
    // Runs of neighbours, and single pages.
    random.shuffle(&mut order[pages / 4..pages / 2]);
    let content = |number: usize| [u8::try_from(number % 251).unwrap(); PAGE];
    let mut expected = vec![0; pages * PAGE];
    thread::scope(|scope| {
        let mut writer = Writer::begin(scope, &file).unwrap();
        for (at, number) in order.into_iter().enumerate() {
            let offset = number * PAGE;
            writer.put(offset as u64, &content(number)).unwrap();
            expected[offset..][..PAGE].copy_from_slice(&content(number));
            if at % 1_500 == 0 {
                writer.sync().unwrap();
                let written = fs::read(&path).unwrap();
                assert!(written == expected[..written.len()], "after {at} pages");
                let rest = &expected[written.len()..];
                assert!(rest.iter().all(|byte| *byte == 0), "after {at} pages");
            }
        }
        writer.sync().unwrap();
    });
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn an_error_of_the_disk_is_told_at_the_latest_when_it_is_synced() {
    let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    thread::scope(|scope| {
        let mut writer = Writer::begin(scope, &file).unwrap();
        writer.put(0, &[1; 512]).unwrap();
        let error = writer.sync().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("write the output"), "{error}");
    });
    thread::scope(|scope| {
        let mut writer = Writer::begin(scope, &file).unwrap();
        let page = vec![1; GATHERED];
        let mut put = (0..=BATCHES).map(|at| writer.put((at * GATHERED) as u64, &page));
        assert!(put.any(|put| put.is_err()), "memory is taken without end");
    });
}
