//! Owns one case: damages a copy of the sample, uses it through the engine, and judges.
//!
//! # Algorithm
//! 1. Open, ask everything, write, ask again, close, open and ask once more, since a damaged page
//!    must not get a right checksum by being written again.
//! 2. An answer is right when it is that of the state of the last commit, or, when the engine
//!    has said that it left frames of the WAL out, of any state before; all answers of one state.
//! 3. An error is right when its kind says that the file is damaged.

use std::path::Path;

use anyhow::Result;
use monolite::{Database, Error};

use super::damage::Damage;
use super::sample::{
    Answer, Expected, Image, Pages, Sample, ask, copy_image, options, tells_damage, write,
};

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Everything was answered as if nothing had happened.
    Harmless,
    /// The engine said so; when.
    Detected(When),
    /// What a promise rules out.
    Wrong(String),
}

/// When damage was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Open,
    Read,
    Write,
    Close,
    /// By the count of frames that recovery left out.
    Recovery,
}

/// Who is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judge {
    /// The engine, when it says that it left frames out.
    Fair,
    /// As if there were no such report: the broken arrangement.
    Deaf,
}

/// Runs the case with this seed on a copy at `path`.
pub(super) fn run(
    sample: &Sample,
    seed: u64,
    path: &Path,
    pages: Pages,
    judge: Judge,
) -> Result<Verdict> {
    let damage = Damage::draw(seed, |image| sample.path(image))?;
    copy_image(&sample.path(damage.image), path)?;
    damage.apply(path)?;
    Ok(use_image(sample.expected(damage.image), path, pages, judge))
}

/// Whether the case with this seed is about this image.
pub(super) fn is_about(sample: &Sample, seed: u64, image: Image) -> Result<bool> {
    Ok(Damage::draw(seed, |image| sample.path(image))?.image == image)
}

/// What was noticed first.
#[derive(Default)]
struct Notices(Option<When>);

impl Notices {
    fn notice(&mut self, when: When) {
        self.0.get_or_insert(when);
    }

    /// Takes an error for a notice, if that is what it is.
    fn hear(&mut self, error: &Error, when: When) -> Result<(), String> {
        if !tells_damage(error) {
            return Err(format!("{when:?} failed with {:?}: {error}", error.kind()));
        }
        self.notice(when);
        Ok(())
    }

    /// Checks answers against one state; errors are notices.
    fn answers(&mut self, answers: &[Answer], state: &[u64]) -> Result<(), String> {
        for (number, (answer, right)) in answers.iter().zip(state).enumerate() {
            match answer {
                Ok(digest) if digest == right => {}
                Ok(_) => return Err(format!("question {number} was answered wrongly")),
                Err(error) => self.hear(error, When::Read)?,
            }
        }
        Ok(())
    }
}

fn use_image(expected: &Expected, path: &Path, pages: Pages, judge: Judge) -> Verdict {
    let mut notices = Notices::default();
    match try_use(expected, path, pages, judge, &mut notices) {
        Err(wrong) => Verdict::Wrong(wrong),
        Ok(()) => notices.0.map_or(Verdict::Harmless, Verdict::Detected),
    }
}

fn try_use(
    expected: &Expected,
    path: &Path,
    pages: Pages,
    judge: Judge,
    notices: &mut Notices,
) -> Result<(), String> {
    let db = match options(pages).open(path) {
        Ok(db) => db,
        Err(error) => return notices.hear(&error, When::Open),
    };
    let is_cut_short = judge == Judge::Fair && db.stats().wal_frames_discarded > 0;
    if is_cut_short {
        notices.notice(When::Recovery);
    }
    let before = ask(&db);
    let candidates = if is_cut_short { expected.states.len() } else { 1 };
    let mut latest = expected.states.iter().rev().take(candidates);
    let is_of = |state: &&Vec<u64>| {
        before.iter().zip(*state).all(|(answer, right)| !matches!(answer, Ok(it) if it != right))
    };
    let Some(state) = latest.find(is_of) else {
        return notices
            .answers(&before, expected.states.last().ok_or("there is no state")?)
            .and_then(|()| Err("the answers are of no state that there was".into()));
    };
    notices.answers(&before, state)?;
    let state = match write(&db) {
        Ok(()) if is_cut_short => None,
        Ok(()) => Some(&expected.after),
        Err(error) => {
            notices.hear(&error, When::Write)?;
            Some(state)
        }
    };
    check(&db, state, notices)?;
    if let Err(error) = db.close() {
        notices.hear(&error, When::Close)?;
    }
    match options(pages).open(path) {
        Ok(db) => check(&db, state, notices),
        Err(error) => notices.hear(&error, When::Open),
    }
}

/// Asks again. Where the state is not known, only the errors count.
fn check(db: &Database, state: Option<&Vec<u64>>, notices: &mut Notices) -> Result<(), String> {
    let answers = ask(db);
    match state {
        Some(state) => notices.answers(&answers, state),
        None => answers
            .iter()
            .filter_map(|answer| answer.as_ref().err())
            .try_for_each(|error| notices.hear(error, When::Read)),
    }
}
