//! The model of the disk: what a sync makes durable and what a power cut may leave.

use std::collections::BTreeSet;

use monolite::Options;

use super::content::Content;
use super::inode::{Inode, SECTOR, What};
use super::*;
use crate::markers;

fn write(inode: &mut Inode, at: usize, byte: u8, count: usize) {
    inode.note(What::Write { at, data: vec![byte; count].into() });
}

fn crash_of(inode: &Inode) -> Crash {
    let mut names: [Vec<Option<u64>>; NAMES] = Default::default();
    names[0] = vec![Some(0)];
    Crash { inodes: BTreeMap::from([(0, inode.clone())]), names }
}

fn left_of(inode: &Inode, left: Left) -> Vec<u8> {
    let [database, ..] = crash_of(inode).image(left, &mut fastrand::Rng::new()).into_files();
    database.unwrap().to_vec()
}

/// Every content that a file of few sectors may be left with.
fn possible(inode: &Inode) -> BTreeSet<Vec<u8>> {
    let (crash, mut rng) = (crash_of(inode), fastrand::Rng::with_seed(1));
    let image = |_| crash.image(Left::random(&mut rng), &mut rng).into_files();
    (0..2_000).map(image).map(|[database, ..]| database.unwrap().to_vec()).collect()
}

#[test]
fn a_sync_makes_durable_what_was_written_before_it_began() {
    let mut inode = Inode::default();
    write(&mut inode, 0, 1, 10);
    let mark = inode.mark();
    write(&mut inode, 10, 2, 10);
    inode.settle(mark);
    assert_eq!(left_of(&inode, Left::Nothing), [1; 10]);
    assert_eq!(left_of(&inode, Left::Everything).len(), 20);
}

#[test]
fn after_a_failed_sync_a_later_one_writes_only_what_was_written_again() {
    let mut inode = Inode::on_disk(vec![0; 3 * SECTOR].into());
    write(&mut inode, 0, 1, SECTOR);
    write(&mut inode, SECTOR, 1, SECTOR);
    inode.abandon(inode.mark());
    inode.settle(inode.mark());
    assert_eq!(left_of(&inode, Left::Nothing), [0; 3 * SECTOR]);
    assert_eq!(left_of(&inode, Left::Everything)[..2 * SECTOR], [1; 2 * SECTOR]);
    write(&mut inode, SECTOR, 2, 1);
    inode.settle(inode.mark());
    let durable = left_of(&inode, Left::Nothing);
    assert_eq!((durable[0], durable[SECTOR], durable[SECTOR + 1]), (0, 2, 1));
}

#[test]
fn a_durable_cut_ends_what_was_abandoned_beyond_it() {
    let mut inode = Inode::default();
    write(&mut inode, 0, 1, 2 * SECTOR);
    inode.abandon(inode.mark());
    inode.note(What::Size(0));
    inode.settle(inode.mark());
    assert_eq!(possible(&inode), BTreeSet::from([vec![]]));
}

/// The cut came first, so it must not undo what was written and synced after it.
#[test]
fn a_write_that_is_durable_survives_a_cut_before_it_whose_sync_failed() {
    let mut inode = Inode::on_disk(vec![7; 3 * SECTOR].into());
    inode.note(What::Size(0));
    inode.abandon(inode.mark());
    write(&mut inode, 0, 9, SECTOR);
    inode.settle(inode.mark());
    write(&mut inode, SECTOR, 9, SECTOR);
    let found = possible(&inode);
    assert_eq!(left_of(&inode, Left::Everything), [9; 2 * SECTOR], "it is what a reader sees");
    assert!(found.iter().all(|bytes| bytes.starts_with(&[9; SECTOR])), "the header is gone");
    assert!(found.iter().all(|bytes| bytes.len() <= 2 * SECTOR), "what was cut is back");
}

#[test]
fn any_subset_of_the_sectors_may_survive_in_any_order() {
    let mut inode = Inode::on_disk(vec![0; 3 * SECTOR].into());
    write(&mut inode, 0, 1, 3 * SECTOR);
    write(&mut inode, SECTOR, 2, SECTOR);
    let sectors = |bytes: &Vec<u8>| -> Vec<u8> { bytes.chunks(SECTOR).map(|s| s[0]).collect() };
    let found: BTreeSet<Vec<u8>> = possible(&inode).iter().map(sectors).collect();
    // The middle one has been in three states, the others in two.
    let all = |a, b, c| found.contains(&vec![a, b, c]);
    assert!((0..2).all(|a| (0..3).all(|b| (0..2).all(|c| all(a, b, c)))), "{found:?}");
}

#[test]
fn an_unsynced_change_of_size_may_be_lost_or_done() {
    let mut inode = Inode::on_disk(vec![7; 2 * SECTOR].into());
    inode.note(What::Size(0));
    write(&mut inode, 0, 9, SECTOR);
    let found = possible(&inode);
    for wanted in [vec![], vec![9; SECTOR], vec![7; 2 * SECTOR]] {
        assert!(found.contains(&wanted), "{}", wanted.len());
    }
}

#[test]
fn a_new_file_may_be_missing_until_its_directory_is_synced() {
    let disk = Disk::empty(RealSyncs::Skipped);
    disk.model().open(0);
    assert!(
        disk.capture().image(Left::Nothing, &mut fastrand::Rng::new()).into_files()[0].is_none()
    );
    let mark = disk.model().directory_mark();
    disk.model().settle_directory(mark);
    assert!(
        disk.capture().image(Left::Nothing, &mut fastrand::Rng::new()).into_files()[0].is_some()
    );
    disk.model().delete(0);
    assert!(
        disk.capture().image(Left::Nothing, &mut fastrand::Rng::new()).into_files()[0].is_some()
    );
    let mark = disk.model().directory_mark();
    disk.model().settle_directory(mark);
    assert!(disk.model().inodes.is_empty(), "a file without a name is gone");
}

#[test]
fn a_full_disk_refuses_what_makes_a_file_larger_from_then_on() {
    let plan = Plan { at: 5, fault: Fault::Full, times: Times::FromThenOn };
    let call = |number, operation, extends| {
        let (kind, at, bytes) = (FileKind::Wal, 0, 0);
        plan.decide(&Call { number, operation, kind, at, bytes, extends })
    };
    assert_eq!(call(4, Operation::Write, true), None);
    assert_eq!(call(5, Operation::Read, false), Some(Fault::Error), "it does not fit");
    assert_eq!(call(6, Operation::Write, true), Some(Fault::Full));
    assert_eq!(call(7, Operation::Write, false), None);
    assert_eq!(call(8, Operation::Read, false), None);
}

#[test]
fn an_engine_runs_on_it_and_survives_a_power_cut_and_not_a_lying_one() -> anyhow::Result<()> {
    for (lies, survives) in [(false, true), (true, false)] {
        let directory = tempfile::tempdir()?;
        let disk = Disk::empty(RealSyncs::Skipped);
        disk.record();
        let db = disk.under(Options::new().readers(1)).open(directory.path().join("db"))?;
        markers::create(&db)?;
        disk.set_hook(move |call| {
            (lies && call.operation == Operation::SyncWal).then_some(Fault::Unreported)
        });
        db.write(|tx| markers::put(tx, 1)).wait()?;
        let after = directory.path().join("after");
        disk.capture().image(Left::Nothing, &mut fastrand::Rng::new()).write_to(&after)?;
        assert_eq!(markers::in_file(&after)?.contains(&1), survives);
        assert!(disk.recorded().iter().any(|line| line.contains("SyncWal")));
    }
    Ok(())
}

#[test]
fn a_content_is_what_a_vector_would_be_and_its_copies_stay() {
    let mut rng = fastrand::Rng::with_seed(3);
    let (mut content, mut bytes) = (Content::default(), Vec::new());
    let mut copies: Vec<(Content, Vec<u8>)> = Vec::new();
    for _ in 0..600 {
        let (at, len, byte) = (rng.usize(..90_000), rng.usize(..40_000), rng.u8(1..));
        match rng.u8(..8) {
            0 => {
                content.resize(at);
                bytes.resize(at, 0);
            }
            1 => {
                let (from, to) = (at.min(bytes.len()), (at + len).min(bytes.len()));
                content.clear(from..to);
                bytes[from..to].fill(0);
            }
            2 => copies.push((content.clone(), bytes.clone())),
            _ => {
                content.write(at, &vec![byte; len]);
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].fill(byte);
            }
        }
        assert!(content.to_vec() == bytes && content.len() == bytes.len());
    }
    assert!(copies.iter().all(|(content, bytes)| content.to_vec() == *bytes));
    assert!(content == bytes.into());
}

#[test]
fn a_place_holds_the_last_image_whole() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut place = Place::new(directory.path().join("db"));
    let mut rng = fastrand::Rng::with_seed(4);
    let mut inode = Inode::default();
    for round in 0..300 {
        for _ in 0..rng.usize(1..6) {
            write(&mut inode, rng.usize(..120_000), rng.u8(..), rng.usize(1..20_000));
        }
        if rng.u8(..3) == 0 {
            inode.note(What::Size(rng.usize(..90_000)));
        }
        if rng.u8(..4) == 0 {
            inode.settle(inode.mark());
        }
        let mut crash = crash_of(&inode);
        crash.names[1] = if round % 17 == 0 { vec![None] } else { vec![Some(0)] };
        let image = crash.image(Left::random(&mut rng), &mut rng);
        if round % 7 == 0 {
            let path = place.give(&image)?;
            assert!(Image::read_from(path)? == image);
            std::fs::write(path, "something else")?;
        } else {
            assert!(Image::read_from(place.put(&image)?)? == image, "round {round}");
        }
    }
    Ok(())
}
