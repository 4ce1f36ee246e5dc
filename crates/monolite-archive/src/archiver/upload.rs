//! Owns the thread that makes the requests: it takes the epoch, and brings commits to the archive.

mod copy;

use std::fs;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use monolite::archive::{Primary as Engine, WalPosition};
use monolite_ltx::{PageSize, Timestamp, Txid};

use self::copy::Copied;
use super::Shared;
use super::failures::Activity;
use super::gathering::Gathering;
use super::group::{About, encode};
use super::lease::Term;
use super::position::{Place, directory_of};
use super::refused::{another_history, behind, not_ours, nothing_there, of_another, replaced};
use crate::error::{Error, ErrorKind, Result};
use crate::protocol::{
    Candidate, Certainty, Claim, ClaimOutcome, Claimed, Filled, Grounds, Machine, Primary,
    Replicated, Reply, Request, Unrecorded, Updated,
};
use crate::record::{Epoch, Record, State};
use crate::requests::{Pace, boottime, carry_out, leader, run as run_machine};
use crate::seen::Seeing;
use crate::slot::{Found, Slot};
use crate::streaming::Peer;

/// How often it is looked for those who write again.
const GATHER_LOOK: Duration = Duration::from_micros(200);

/// How often a primary that fills slots looks whether it still has the record. Its slots would tell
/// it, but while it fills one behind the other a claimant may find none that is free.
const RECORD_LOOK: Duration = Duration::from_secs(2);

/// How long the thread rests after a failure of the file system.
const REST: Duration = Duration::from_secs(1);

/// Where the primary stands.
struct Serving {
    term: Arc<Term>,
    /// Size of the database in pages as it is archived.
    pages: u32,
    /// The last slot.
    txid: Txid,
    /// When it was made.
    time: Timestamp,
    /// Whether the record does not say yet where exactly all is that an earlier process has left.
    owes: bool,
    gathering: Gathering,
}

/// Why serving has ended.
enum Ended {
    Closing,
    /// A copy of the whole database must come next, behind a fence.
    Broken,
}

/// What came of a beginning.
enum Begun {
    Serves(Box<Serving>),
    /// The fence cannot have the copy that is due: it goes behind another one.
    Again,
    /// The database was closed meanwhile.
    Closed,
}

/// What came of a slot.
enum Put {
    Done,
    /// These pages make none.
    Unfit(Error),
    Closed,
}

/// What is archived below a fence.
#[derive(Clone, Copy, Debug)]
enum Below {
    /// What this file had, up to a place; `None` where the chain begins.
    Ours(Option<Place>),
    Another,
}

/// Why this is no primary any more, or never was.
#[derive(Debug)]
struct Lost {
    error: Error,
    /// What is known of the commits that were to be archived.
    certainty: Certainty,
}

impl Lost {
    /// Before the upload of anything that a write waits for.
    fn at_first(error: Error) -> Lost {
        match error.kind() {
            ErrorKind::Fenced => Lost { error, certainty: Certainty::NotInHistory },
            _ => error.into(),
        }
    }
}

impl From<Error> for Lost {
    fn from(error: Error) -> Lost {
        Lost { error, certainty: Certainty::Unknown }
    }
}

struct Uploader<'a> {
    shared: &'a Shared,
    engine: &'a dyn Engine,
}

/// Runs until the database is closed, or another primary has taken over. `tell` gets the verdict
/// upon the opening, if the opening waits for it.
pub(super) fn run(shared: &Shared, engine: &dyn Engine, tell: &SyncSender<Result<()>>) {
    let uploader = Uploader { shared, engine };
    let mut is_told = false;
    let ended = loop {
        let mut begun = match uploader.begin() {
            Ok(Begun::Serves(begun)) => begun,
            Ok(Begun::Again) => {
                uploader.rest(REST);
                continue;
            }
            Ok(Begun::Closed) => break Ok(()),
            // The next opening may go on where this ends.
            Err(lost) => break Err(lost),
        };
        if !std::mem::replace(&mut is_told, true) {
            // The receiver may be gone.
            let _ = tell.send(Ok(()));
        }
        match uploader.serve(&mut begun) {
            Ok(Ended::Closing) => {
                uploader.release(&mut begun);
                break Ok(());
            }
            Ok(Ended::Broken) => {}
            Err(lost) => break Err(lost),
        }
    };
    shared.ends();
    if let Err(Lost { error, certainty }) = ended {
        let reason = not_ours(&error);
        shared.failed(Activity::Upload, &error);
        if is_told || tell.send(Err(error)).is_err() {
            shared.stats().successor.get_or_insert_default();
            engine.fenced(reason, certainty == Certainty::NotInHistory);
        }
    }
}

impl Uploader<'_> {
    /// Takes an epoch, and brings a copy of the whole database if one is due.
    ///
    /// # Errors
    /// [`Fenced`](ErrorKind::Fenced) and others that stay.
    fn begin(&self) -> Result<Begun, Lost> {
        let Some(mut serving) = self.take_epoch().map_err(Lost::at_first)? else {
            return Ok(Begun::Closed);
        };
        if self.shared.feed().broken.is_some() {
            match self.copy(&mut serving)? {
                Copied::Done => self.shared.succeeded(Activity::Copy),
                Copied::Again => return Ok(Begun::Again),
                Copied::Closed => return Ok(Begun::Closed),
            }
        }
        if self.settle(&mut serving)?.is_none() {
            return Ok(Begun::Closed);
        }
        self.shared.succeeded(Activity::Upload);
        let feed = self.shared.feed();
        if feed.broken.is_none() {
            self.stats(|stats| stats.is_restorable = true);
        }
        drop(feed);
        self.tell(None);
        Ok(Begun::Serves(Box::new(serving)))
    }

    /// Takes an epoch, finds out what comes next in history, and has the record say that this is
    /// the primary; `None` when the database is closed.
    fn take_epoch(&self) -> Result<Option<Serving>> {
        self.shared.leaves_term();
        let Some(found) = self.until_answered(Activity::Upload, || self.leader())? else {
            return Ok(None);
        };
        let candidate = || self.candidate(found.as_ref());
        let Some(candidate) = self.until_answered(Activity::Upload, candidate)? else {
            return Ok(None);
        };
        let seen = found.map_or(Epoch(0), |record| record.epoch);
        let mut claim = Claim::new(candidate, Grounds::Known);
        claim = claim.behind(seen);
        let is_refusal = |error: &Error| error.kind() == ErrorKind::Denied;
        let claimed = match self.machine(&mut claim, is_refusal)? {
            None => return Ok(None),
            Some(ClaimOutcome::Taken(claimed)) => *claimed,
            Some(ClaimOutcome::Lost) => {
                let record = self.leader().ok().flatten();
                if record.as_ref().is_some_and(|it| it.holder != self.shared.holder) {
                    return Err(self.shared.replaced_by(record.as_ref()));
                }
                let message = "the archive has slots of a later epoch than its leader record: \
                               an older record was put back; move it away and open again";
                return Err(Error::new(ErrorKind::Fenced, message));
            }
        };
        let below = || self.archived_below(&claimed);
        let Some(below) = self.until_answered(Activity::Upload, below)? else { return Ok(None) };
        self.stats(|stats| stats.epoch = claimed.epoch().0);
        let seen = claimed.record().seen.clone();
        self.shared.notices.begun(Seeing::begin(seen, self.shared.passed()));
        let fence = claimed.fence();
        let decide = || self.decide(below, &claimed);
        let Some(()) = self.until_answered(Activity::Upload, decide)? else { return Ok(None) };
        let fenced = self.until_answered(Activity::Upload, || self.look(fence))?;
        let Some(fenced) = fenced else { return Ok(None) };
        let header = fenced.ok_or_else(|| Error::corrupt("our own fence is gone"))?.header;
        let mut serving = Serving {
            term: Arc::new(Term::new(Primary::new(claimed)?)),
            pages: header.commit,
            txid: fence,
            time: header.timestamp,
            owes: false,
            gathering: Gathering::default(),
        };
        self.shared.begins(&serving.term);
        let carried = self.carried_to(fence);
        let is_lost = carried.is_some_and(|to| to < fence);
        serving.owes = !is_lost && self.shared.feed().has_of_earlier();
        if self
            .update(&mut serving, |primary| primary.serve(&self.shared.archive.address, carried))?
            .is_none()
        {
            return Ok(None);
        }
        let has_said = || self.has_said_what_is_lost();
        if is_lost && self.until_answered(Activity::Upload, has_said)?.is_none() {
            return Ok(None);
        }
        self.stats(|stats| stats.txid = fence.get());
        Ok(Some(serving))
    }

    /// Where what earlier processes have left will be at the latest, for the record: below the
    /// fence when this file is not known to have it. Not known before a copy that is due is there,
    /// without which the state at the fence is an older one.
    fn carried_to(&self, fence: Txid) -> Option<Txid> {
        let feed = self.shared.feed();
        if feed.position.may_lack {
            return Txid::new(fence.get() - 1);
        }
        let ahead =
            if feed.has_of_earlier() { feed.groups_ahead(self.shared.archive.group) } else { 0 };
        Txid::new(fence.get() + ahead).filter(|_| feed.broken.is_none())
    }

    /// The leader record says what may be lost: what is committed from now on is not.
    fn has_said_what_is_lost(&self) -> Result<()> {
        let mut feed = self.shared.feed();
        feed.position.may_lack = false;
        feed.record()
    }

    /// Has the record say where all is that an earlier process has left, as soon as it is there.
    /// `None` when the database is closed meanwhile.
    fn settle(&self, serving: &mut Serving) -> Result<Option<()>> {
        if !serving.owes || self.shared.feed().has_of_earlier() {
            return Ok(Some(()));
        }
        let at = serving.txid;
        let told =
            self.update(serving, |primary| primary.serve(&self.shared.archive.address, Some(at)))?;
        serving.owes = false;
        Ok(told)
    }

    fn stats(&self, change: impl FnOnce(&mut monolite::archive::ArchiveStats)) {
        change(&mut self.shared.stats());
    }

    fn leader(&self) -> Result<Option<Record>> {
        leader(self.shared.archive.store.as_ref(), &self.shared.archive.layout)
    }

    /// Who claims, if that may be: the file is the one that had the record, or a copy of it from
    /// after its release.
    fn candidate(&self, found: Option<&Record>) -> Result<Candidate> {
        let take_over = self.shared.archive.take_over;
        let path = &self.shared.database;
        let file = fs::metadata(path);
        let file =
            file.map_err(|error| Error::of_io(format!("look at {}", path.display()), error))?;
        let mut feed = self.shared.feed();
        let position = &mut feed.position;
        let has_record = found.is_some_and(|record| {
            position.holders.contains(&record.holder) && position.lineage == record.lineage
        });
        let is_replaced = position.is_of_another(&file, &directory_of(path));
        if has_record && is_replaced && !take_over {
            return Err(replaced(path));
        }
        let is_released = found.is_some_and(|record| record.state == State::Released);
        let is_ours = has_record && !is_replaced && (position.is_file(&file) || is_released);
        if let Some(record) = found.filter(|_| !take_over && !is_ours) {
            return Err(of_another(record, position));
        }
        position.may_lack |= take_over && !is_ours;
        let replicated = match position.may_lack {
            true if take_over => Replicated::MayBeLost,
            true if !is_released => Replicated::Nothing,
            _ => Replicated::All,
        };
        if found.is_none() && position.fence.is_some() && !take_over {
            return Err(nothing_there(&self.shared.archive.name, position));
        }
        if let Some(record) = found {
            position.lineage = record.lineage;
        }
        if !position.holders.contains(&self.shared.holder) {
            position.holders.push(self.shared.holder);
        }
        position.is_of(&file, &directory_of(path))?;
        let lineage = position.lineage;
        feed.record()?;
        drop(feed);
        let sizes = self.size()?;
        let page_size = PageSize::new(sizes.0);
        Ok(Candidate {
            holder: self.shared.holder,
            lineage,
            lease: self.shared.archive.lease,
            address: self.shared.archive.address.to_string(),
            stream: self.shared.archive.stream_to.as_ref().map_or_else(String::new, Peer::name),
            page_size: page_size.map_err(|error| Error::of_ltx("the database", error))?,
            commit: sizes.1.max(1),
            time: self.shared.now(),
            unrecorded: if take_over { Unrecorded::Adopt } else { Unrecorded::Refuse },
            replicated,
        })
    }

    /// Size of the database's pages in bytes, and how many there are.
    fn size(&self) -> Result<(u32, u32)> {
        let failed = |error| Error::new(ErrorKind::Lost, format!("the database: {error}"));
        self.engine.size().map_err(failed)
    }

    /// How far the history below the fence is archived, which must be ours.
    fn archived_below(&self, claimed: &Claimed) -> Result<Below> {
        let (epoch, fence, base) = {
            let feed = self.shared.feed();
            (feed.position.epoch, feed.position.fence, feed.position.base)
        };
        let mut below = claimed.fence().get() - 1;
        while fence.is_none_or(|fence| below > fence) {
            let Some(txid) = Txid::new(below).filter(|txid| *txid > Txid::FIRST) else { break };
            match self.look(txid)? {
                Some(found) if found.is_fence() => below -= 1,
                Some(found) if found.epoch() == epoch => {
                    let ours = |wal| Below::Ours(Place::of_span(wal));
                    return Ok(found.header.wal.map_or(Below::Another, ours));
                }
                _ => return Ok(Below::Another),
            }
        }
        let is_known = fence.is_none_or(|fence| below == fence);
        Ok(if is_known { Below::Ours(base) } else { Below::Another })
    }

    fn look(&self, txid: Txid) -> Result<Option<Found>> {
        let archive = &self.shared.archive;
        match carry_out(archive.store.as_ref(), &archive.layout, &Request::Look(txid)) {
            Reply::Slot(found) => Ok(found),
            Reply::Failed(error) => Err(error),
            _ => Err(Error::invalid("a reply that does not fit")),
        }
    }

    /// Whether the file goes on behind what is archived below the fence, and notes the epoch.
    fn decide(&self, below: Below, claimed: &Claimed) -> Result<()> {
        let mut feed = self.shared.feed();
        let take_over = self.shared.archive.take_over;
        let has_all = matches!(below, Below::Ours(place) if feed.may_have_had(place));
        match below {
            Below::Another if !take_over => return Err(another_history()),
            Below::Ours(place) if !take_over && !feed.may_have_had(place) => return Err(behind()),
            _ if feed.broken.is_some() => {}
            Below::Ours(place) if feed.continues(place) => feed.position.base = place,
            Below::Ours(place) if feed.position.behind(place).is_some() => {
                feed.breaks("what was kept beside the database is gone or damaged".into());
            }
            _ if take_over => {
                feed.position.may_lack = true;
                feed.breaks("the file is taken over as it is".into());
            }
            _ => return Err(behind()),
        }
        feed.position.may_lack |= !has_all;
        if feed.broken.is_some() {
            feed.position.base = None;
        }
        feed.position.epoch = claimed.epoch();
        feed.position.fence = Some(claimed.fence().get());
        feed.position.holders = vec![self.shared.holder];
        feed.record()
    }

    /// The time of day, but behind `time` in any case.
    fn later(&self, time: Timestamp) -> Timestamp {
        let now = self.shared.now().millis();
        Timestamp::from_millis(now.max(time.millis().saturating_add(1)))
    }

    /// Brings commits until there is a reason to end.
    fn serve(&self, serving: &mut Serving) -> Result<Ended, Lost> {
        let mut looked = Instant::now();
        while self.wait_for_work() {
            let shared = self.shared;
            if let Some(slots) = shared.notices.asked() {
                self.note_time(serving);
                if self.update(serving, Primary::renew)?.is_none() {
                    return Ok(Ended::Closing);
                }
                shared.notices.allow(serving.term.primary().delete(&slots)?);
                continue;
            }
            if looked.elapsed() >= RECORD_LOOK {
                self.must_have_record(serving)?;
                looked = Instant::now();
            }
            self.gather(serving);
            let since = Instant::now();
            let mut feed = shared.feed();
            if feed.broken.is_some() {
                return Ok(Ended::Broken);
            }
            let taken = match feed.take(shared.archive.group, &|| shared.wal()) {
                Ok(Some(taken)) => taken,
                Ok(None) => continue,
                Err(error) if is_damage(&error) => {
                    feed.breaks(error.to_string());
                    return Ok(Ended::Broken);
                }
                Err(error) => {
                    drop(feed);
                    shared.failed(Activity::Upload, &error);
                    self.rest(REST);
                    continue;
                }
            };
            drop(feed);
            match self.fill(serving, &|about| encode(&taken.frames, about))? {
                Put::Done => {}
                Put::Unfit(why) => {
                    shared.feed().breaks(why.to_string());
                    return Ok(Ended::Broken);
                }
                Put::Closed => return Ok(Ended::Closing),
            }
            let mut feed = shared.feed();
            // What had no room in the group is as old as it was.
            let oldest = feed.since().filter(|_| !taken.is_all).unwrap_or(since);
            feed.archived(taken.place(), oldest);
            shared.look_back(&feed);
            self.stats(|stats| stats.txid = serving.txid.get());
            shared.seals(&feed, serving.txid, taken.position(), serving.pages);
            if feed.broken.is_some() && !shared.stats().is_restorable {
                // It lies behind a hole: those who wait are answered when the copy is there.
                return Ok(Ended::Broken);
            }
            drop(feed);
            shared.succeeded(Activity::Upload);
            serving.gathering.filled(self.engine.waiting(), since.elapsed(), Instant::now());
            self.tell(taken.position());
            if self.settle(serving)?.is_none() {
                return Ok(Ended::Closing);
            }
        }
        Ok(Ended::Closing)
    }

    /// Answers those who wait for commits up to `at`, or for what an earlier process has left.
    fn tell(&self, at: Option<WalPosition>) {
        if at.is_some() || !self.shared.feed().has_of_earlier() {
            self.engine.archived(at.unwrap_or_default());
        }
    }

    /// Whether the record names no later epoch. One that cannot be read, or that another program
    /// has changed, is told until it is well.
    fn must_have_record(&self, serving: &Serving) -> Result<(), Lost> {
        let epoch = serving.term.primary().epoch();
        let changed = |what: &str| {
            let message = format!(
                "the leader record {what}: another program has removed or replaced it, and the \
                 next change of it ends this primary; put it back, or adopt the archive"
            );
            Err(Error::new(ErrorKind::Corrupt, message))
        };
        let seen = match self.leader() {
            Ok(Some(record)) if record.epoch > epoch => {
                // Nothing that is not answered yet was sent.
                let (error, certainty) =
                    (self.shared.replaced_by(Some(&record)), Certainty::NotInHistory);
                return Err(Lost { error, certainty });
            }
            Ok(Some(record)) if record.epoch < epoch => changed("is of an earlier epoch"),
            Ok(Some(_)) => Ok(()),
            Ok(None) => changed("is gone"),
            Err(error) => Err(error),
        };
        self.shared.note(Activity::Record, seen);
        Ok(())
    }

    /// Lets those write again who were answered just now, if they do so soon.
    fn gather(&self, serving: &mut Serving) {
        let Some((waited, until)) = serving.gathering.due() else { return };
        let have_come = || self.engine.waiting() >= waited;
        while !have_come() && Instant::now() < until && !self.is_over() {
            std::thread::sleep(GATHER_LOOK);
        }
        serving.gathering.ended(have_come());
    }

    /// Fills the next slot, or one behind it, with what `encode` makes for it.
    fn fill(
        &self,
        serving: &mut Serving,
        encode: &dyn Fn(About) -> Result<Slot>,
    ) -> Result<Put, Lost> {
        loop {
            let (epoch, txid) = {
                let primary = serving.term.primary();
                (primary.epoch(), primary.next())
            };
            let about =
                About { epoch, txid, time: self.later(serving.time), pages_before: serving.pages };
            let slot = match encode(about) {
                Ok(slot) => slot,
                Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Put::Unfit(error)),
                Err(error) => return Err(error.into()),
            };
            let (file, pages) = (slot.file(), slot.header().commit);
            let mut fill = serving.term.primary().fill(slot)?;
            let filled = self.machine(&mut fill, is_refusal_of_holder)?;
            let Some(filled) = filled else { return Ok(Put::Closed) };
            serving.term.primary().filled(&filled);
            match filled {
                Filled::Done => {
                    (serving.time, serving.pages) = (about.time, pages);
                    serving.txid = about.txid;
                    self.shared.notices.filled(file);
                    return Ok(Put::Done);
                }
                Filled::Fence(_) => {
                    if self.update(serving, Primary::renew)?.is_none() {
                        return Ok(Put::Closed);
                    }
                }
                Filled::Fenced(certainty) => {
                    return Err(Lost { error: self.shared.fenced_by(), certainty });
                }
            }
        }
    }

    /// Changes the record; `None` when the database is closed meanwhile.
    fn update(
        &self,
        serving: &mut Serving,
        begin: impl FnOnce(&mut Primary) -> Result<crate::protocol::Update>,
    ) -> Result<Option<()>> {
        let term = Arc::clone(&serving.term);
        let _turn = term.turn();
        let mut update = begin(&mut term.primary())?;
        let updated = self.machine(&mut update, is_refusal_of_holder)?;
        let Some(updated) = updated else { return Ok(None) };
        term.primary().updated(&updated);
        match updated {
            Updated::Done { .. } => Ok(Some(())),
            Updated::Fenced => Err(self.shared.fenced_by()),
        }
    }

    /// Has the record say how much time was seen, when it is changed next.
    fn note_time(&self, serving: &mut Serving) {
        let seeing = self.shared.notices.seen(serving.txid, self.shared.passed());
        serving.term.primary().has_seen(seeing.seen());
    }

    /// Lets any process be the primary from now on, if that can be said in time.
    fn release(&self, serving: &mut Serving) {
        if self.shared.feed().has_some() {
            // What is staged comes first, at the next start.
            return;
        }
        self.note_time(serving);
        let released = self.update(serving, Primary::release);
        let _ = released.map_err(|error| self.shared.failed(Activity::Upload, &error));
    }

    /// Runs a machine until it ends; one that ends with a refusal of the store is tried again after
    /// a rest, as the remedy may be outside. `None` when the database is closed.
    fn machine<T, M: Machine<Outcome = Result<T>>>(
        &self,
        machine: &mut M,
        is_refusal: fn(&Error) -> bool,
    ) -> Result<Option<T>> {
        let archive = &self.shared.archive;
        let mut pace = Waiting(self);
        loop {
            match run_machine(machine, archive.store.as_ref(), &archive.layout, &mut pace) {
                None => return Ok(None),
                Some(Err(error)) if is_refusal(&error) => {
                    self.shared.failed(Activity::Upload, &error);
                    if !self.rest(REST) {
                        return Ok(None);
                    }
                }
                Some(outcome) => return outcome.map(Some),
            }
        }
    }

    /// Asks until there is an answer; `None` when the database is closed.
    fn until_answered<T>(
        &self,
        activity: Activity,
        ask: impl Fn() -> Result<T>,
    ) -> Result<Option<T>> {
        loop {
            match ask() {
                Err(error) if error.is_transient() || error.kind() == ErrorKind::Denied => {
                    self.shared.failed(activity, &error);
                    if !self.rest(REST) {
                        return Ok(None);
                    }
                }
                answer => return answer.map(Some),
            }
        }
    }

    /// Whether the close waits no longer.
    fn is_over(&self) -> bool {
        self.shared.control().closing.is_some_and(|until| Instant::now() >= until)
    }

    /// Waits so long; `false` when the close waits no longer.
    fn rest(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut control = self.shared.control();
        loop {
            let now = Instant::now();
            let end = control.closing.map_or(until, |closing| closing.min(until));
            if now >= end {
                return control.closing.is_none_or(|closing| now < closing);
            }
            let waited = self.shared.changed.wait_timeout(control, end - now);
            control = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until there is something to be brought; `false` when there is nothing more to come.
    fn wait_for_work(&self) -> bool {
        let interval = self.shared.archive.interval;
        let mut control = self.shared.control();
        loop {
            let (has_some, since) = {
                let feed = self.shared.feed();
                (feed.has_some() || feed.broken.is_some(), feed.since())
            };
            if let Some(until) = control.closing {
                return has_some && Instant::now() < until;
            }
            if self.shared.notices.is_asked() {
                return true;
            }
            let age = since.map_or(Duration::ZERO, |since| since.elapsed());
            if has_some && (control.is_hurried || self.engine.waiting() > 0 || age >= interval) {
                control.is_hurried = false;
                return true;
            }
            control.wakes = !has_some;
            let left = if has_some { interval.saturating_sub(age) } else { interval.max(REST) };
            let waited = self.shared.changed.wait_timeout(control, left);
            control = waited.unwrap_or_else(PoisonError::into_inner).0;
            control.wakes = false;
        }
    }
}

/// The time in which machines run.
struct Waiting<'a, 'b>(&'a Uploader<'b>);

impl Pace for Waiting<'_, '_> {
    fn now(&self) -> Duration {
        boottime()
    }

    fn wait(&mut self, until: Duration) -> bool {
        self.0.rest(until.saturating_sub(self.now()))
    }

    fn failed(&mut self, error: &Error) {
        self.0.shared.failed(Activity::Upload, error);
    }
}

/// Whether the store refuses a request of who holds the epoch. One 404 or 501, as of a proxy or
/// while a bucket is moved, says nothing of who is the primary: the record and the slots do.
fn is_refusal_of_holder(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Denied | ErrorKind::NotFound | ErrorKind::Unsupported)
}

/// Whether what was to be read is not what was written, or gone, which no further try changes.
fn is_damage(error: &Error) -> bool {
    use std::io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    let io = error.io().map(std::io::Error::kind);
    error.kind() == ErrorKind::Corrupt
        || io.is_some_and(|io| matches!(io, InvalidData | NotFound | UnexpectedEof))
}
