//! Who is answered when, and with what.

use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::thread;

use super::*;
use crate::call::completion::Completion;
use crate::call::member::{ArchiveWait, Once, Submission, Terms};
use crate::error::{Error, ErrorKind};
use crate::write::archived::tests::{LONG, archived};

/// Who waits for a member of a batch.
pub(in crate::write) type Caller = Arc<Completion<(), Error>>;

/// A batch of `members` that ends at `offset` of the WAL, and those who wait for them.
pub(in crate::write) fn batch(
    progress: &Progress,
    members: usize,
    offset: u64,
) -> (CommittedBatch, Vec<Caller>) {
    batch_of(progress, Terms::default(), members, offset)
}

fn batch_of(
    progress: &Progress,
    terms: Terms,
    members: usize,
    offset: u64,
) -> (CommittedBatch, Vec<Caller>) {
    let callers: Vec<Caller> = (0..members).map(|_| Completion::new()).collect();
    let entry = |caller: &Caller| {
        let body = Once(Some(|_: &crate::tx::Tx<'_>| Ok::<_, Error>(())));
        Entry::new(Box::new(Submission::new(body, terms, Arc::clone(caller))))
    };
    let members = callers.iter().map(entry).collect();
    let position = WalPosition { generation: 0, offset };
    let number = progress.start_commit();
    progress.finish_commit(number);
    let slow_runs = Vec::new();
    (CommittedBatch { number, position, members, slow_runs }, callers)
}

fn answers(capacity: usize) -> (Arc<Progress>, Answers) {
    let progress = Arc::new(Progress::default());
    (Arc::clone(&progress), Answers::new(capacity, progress, None))
}

#[test]
fn members_count_until_they_are_answered() {
    let (progress, answers) = answers(10);
    let (first, _) = batch(&progress, 2, 100);
    let (second, _) = batch(&progress, 3, 200);
    answers.owe(2);
    answers.owe(3);
    assert_eq!(answers.unanswered(), 5);
    answers.give(first, true);
    assert_eq!(answers.unanswered(), 3);
    answers.give(second, true);
    assert_eq!(answers.unanswered(), 0);
}

#[test]
fn the_writer_goes_on_when_there_is_room_again() {
    let (progress, answers) = answers(2);
    let (first, _) = batch(&progress, 2, 100);
    answers.owe(2);
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            answers.owe(2);
            tell.send(answers.unanswered()).unwrap();
        });
        answers.give(first, true);
        // Never both batches at once.
        assert_eq!(told.recv().unwrap(), 2);
    });
}

#[test]
fn nobody_is_told_ok_whose_batch_is_lost() {
    let (progress, answers) = answers(10);
    let (lost, callers) = batch(&progress, 2, 100);
    answers.owe(2);
    progress.poison("of a test".into());
    answers.give(lost, false);
    for caller in callers {
        let error = caller.wait().unwrap_for_caller().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    }
}

#[test]
#[should_panic(expected = "is answered behind")]
fn an_answer_out_of_order_is_a_defect() {
    let (progress, answers) = answers(10);
    let (first, _) = batch(&progress, 1, 100);
    let (second, _) = batch(&progress, 1, 200);
    answers.owe(2);
    answers.give(second, true);
    answers.give(first, true);
}

/// Answers the next batch, as the writer may once nobody is unanswered.
struct Next(Arc<Answers>, Mutex<Option<CommittedBatch>>);

impl Wake for Next {
    fn wake(self: Arc<Self>) {
        let next = self.1.lock().unwrap().take();
        self.0.give(next.unwrap(), true);
    }
}

#[test]
fn the_next_batch_may_be_answered_as_soon_as_all_of_one_are() {
    let (progress, answers) = answers(10);
    let answers = Arc::new(answers);
    let (first, callers) = batch(&progress, 1, 100);
    let (second, later) = batch(&progress, 1, 200);
    answers.owe(2);
    let waker = Waker::from(Arc::new(Next(Arc::clone(&answers), Mutex::new(Some(second)))));
    assert!(callers[0].poll(&mut Context::from_waker(&waker)).is_pending());
    answers.give(first, true);
    assert!(callers[0].is_delivered() && later[0].is_delivered());
    assert_eq!(answers.unanswered(), 0);
}

#[test]
fn a_batch_that_has_come_to_nothing_may_be_late() {
    let (progress, answers) = answers(10);
    let (nothing, _) = batch(&progress, 0, 100);
    let (second, _) = batch(&progress, 1, 200);
    answers.owe(1);
    answers.give(second, true);
    answers.give(nothing, true);
}

#[test]
fn members_that_wait_for_the_archive_keep_nobody_from_the_disk() {
    let (progress, _wal, archived) = archived(10);
    let answers = Answers::new(1, Arc::clone(&progress), Some(Arc::new(archived)));
    let terms = Terms {
        archive_wait: Some(ArchiveWait { replicas: None, limit: LONG }),
        ..Terms::default()
    };
    let (first, callers) = batch_of(&progress, terms, 3, 100);
    answers.owe(3);
    answers.give(first, true);
    assert!(callers.iter().all(|caller| !caller.is_delivered()));
    assert_eq!((answers.unanswered(), answers.unsynced()), (0, 3));
    // The writer would wait here.
    answers.owe(1);
}
