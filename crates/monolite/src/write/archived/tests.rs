//! Who is told what, and when, while the archive does not answer.

use super::*;
use crate::call::member::{Once, Submission, Terms};

pub(in crate::write) const LONG: Duration = Duration::from_secs(3_600);

/// Of an archive that never answers, with so many places.
pub(in crate::write) fn archived(capacity: usize) -> (Arc<Progress>, Arc<WalControl>, Archived) {
    let (progress, wal) = (Arc::<Progress>::default(), Arc::<WalControl>::default());
    let (told, control) = (Arc::clone(&progress), Arc::downgrade(&wal));
    let archived = Archived::new(capacity, LONG, told, control, Box::new(|_| {}));
    (progress, wal, archived)
}

fn at(offset: u64) -> WalPosition {
    WalPosition { generation: 0, offset }
}

/// A member that has run, with a place.
fn member(archived: &Archived) -> (Entry, Arc<Completion<(), Error>>) {
    let (caller, terms) = (Completion::new(), Terms::default());
    let body = Once(Some(|_: &crate::tx::Tx<'_>| Ok::<_, Error>(())));
    let mut entry = Entry::new(Box::new(Submission::new(body, terms, Arc::clone(&caller))));
    entry.place = archived.places.take().ok();
    (entry, caller)
}

fn verdict(caller: &Completion<(), Error>) -> ErrorKind {
    caller.wait().unwrap_for_caller().unwrap_err().kind()
}

#[test]
fn each_is_told_after_a_time_of_its_own_and_the_others_wait_on() {
    let (_, _, archived) = archived(3);
    let callers: Vec<_> = [LONG, Duration::ZERO, LONG]
        .into_iter()
        .zip(1..)
        .map(|(limit, offset)| {
            let (entry, caller) = member(&archived);
            archived.wait(at(offset), vec![(ArchiveWait { replicas: None, limit }, entry)]);
            caller
        })
        .collect();
    let told = archived.next().unwrap();
    assert_eq!(told.len(), 1);
    told.into_iter().for_each(|(who, verdict)| who.tell(verdict));
    assert_eq!(verdict(&callers[1]), ErrorKind::CommitUnknown);
    assert!(!callers[0].is_delivered() && !callers[2].is_delivered());
    assert_eq!((archived.members(), archived.waiting()), (2, 2));
    // Its place is another's.
    assert!(archived.places.take().is_ok());
    archived.note(at(1));
    let told = archived.next().unwrap();
    assert!(told.len() == 1 && told[0].1.is_ok());
}

#[test]
fn a_read_that_gets_no_place_is_told_so_and_one_that_does_waits_for_its_time() {
    let (_, wal, archived) = archived(1);
    wal.note_committed();
    let waits = archived.when_all(None, Some(Duration::ZERO));
    assert!(!waits.is_delivered());
    assert_eq!(verdict(&archived.when_all(None, None)), ErrorKind::Overloaded);
    let told = archived.next().unwrap();
    told.into_iter().for_each(|(who, verdict)| who.tell(verdict));
    assert_eq!(verdict(&waits), ErrorKind::Timeout);
    archived.note(at(1));
    assert!(archived.when_all(None, None).wait().unwrap_for_caller().is_ok());
}

#[test]
fn whoever_waits_is_told_when_it_is_closed_and_nobody_comes_behind() {
    let (progress, _wal, archived) = archived(2);
    let (entry, caller) = member(&archived);
    archived.wait(at(1), vec![(ArchiveWait { replicas: None, limit: LONG }, entry)]);
    let read = archived.when_all(None, None);
    archived.close();
    archived.run();
    assert_eq!(verdict(&caller), ErrorKind::CommitUnknown);
    assert_eq!(verdict(&read), ErrorKind::Closed);
    assert_eq!(verdict(&archived.when_all(None, None)), ErrorKind::Closed);
    progress.poison("of a test".into());
    assert_eq!(verdict(&archived.when_all(None, None)), ErrorKind::Poisoned);
}

#[test]
fn what_is_to_be_replicated_waits_for_so_many_followers_or_for_the_archive() {
    let (_, _, archived) = archived(3);
    let replicated = |count: u8, offset| {
        let (entry, caller) = member(&archived);
        let wait = ArchiveWait { replicas: Some(count), limit: LONG };
        archived.wait(at(offset), vec![(wait, entry)]);
        caller
    };
    let told = || {
        let told = archived.state().settle(None).into_iter();
        told.for_each(|(who, verdict)| who.tell(verdict));
    };
    let (one, two, three) = (replicated(1, 5), replicated(2, 5), replicated(1, 9));
    assert_eq!(archived.waiting(), 0, "none of them waits for an upload");
    archived.note_replicated(at(8), 1);
    told();
    assert!(one.is_delivered() && !two.is_delivered() && !three.is_delivered());
    archived.note_replicated(at(8), 2);
    told();
    assert!(two.is_delivered() && !three.is_delivered());
    archived.note(at(9));
    told();
    assert!(three.is_delivered());
}
