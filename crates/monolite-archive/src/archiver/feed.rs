//! Owns what is on this disk and not archived yet: where it is, and that it is not overwritten.
//!
//! # Algorithm
//! What is to be archived next is a range of a generation of the WAL. It lies in the WAL, and is
//! read from there; unless that is about to begin anew, in which case the range is *staged* before:
//! copied to a file, in which it has the same places. Ranges in files come before what is in the
//! WAL.
//! 1. The engine says how far the disk is ([`Feed::durable`]). The first time in a generation, that
//!    generation is recorded.
//! 2. Who uploads takes commits from the front ([`Feed::take`]) and says when they are archived
//!    ([`Feed::archived`]). Until then they are not: what has been taken is staged as well.
//! 3. Before the WAL begins anew, everything in it is staged that is not archived
//!    ([`Feed::capture`]).
//!
//! # Invariants
//! - Between the place that is archived and the last commit nothing is missing, or the feed is
//!   *broken*: the next thing archived must be a copy of the whole database.
//! - Nothing is taken of a generation that the position record does not have.
//! - Nothing is taken that is not on the disk: staged files are synced, and what is staged in haste
//!   is in the database file already.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use monolite::archive::{Frames, WAL_HEADER_BYTES, WalPosition, WalReader};

use super::position::{Identity, Place, Position, make};
use crate::error::{Error, ErrorKind, Result};
use crate::owner::give_to_owner_of;
use crate::record::Epoch;
use crate::store::sync_directory;

/// What the names of staged ranges end with.
pub(super) const ENDING: &str = ".wal";

/// How often the WAL may begin anew while the database is copied.
const NUMBERS: usize = 100_000;

/// The WAL, opened by its owner.
pub(super) type Wal<'a> = &'a dyn Fn() -> io::Result<Option<WalReader>>;

/// A range of one generation in a file of its own.
#[derive(Debug)]
struct Staged {
    path: PathBuf,
    salts: [u32; 2],
    /// What of it is not archived.
    from: u64,
    to: u64,
    /// The engine's number of the generation; `None` for what an earlier process has left.
    number: Option<u64>,
}

/// The generation of the WAL that is being written.
#[derive(Clone, Copy, Debug)]
struct Live {
    number: u64,
    salts: [u32; 2],
    /// From where on it is neither archived nor staged.
    from: u64,
}

/// Commits to be archived next.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) frames: Frames,
    number: Option<u64>,
    /// Whether they are all that is on the disk.
    pub(super) is_all: bool,
}

impl Taken {
    /// Where the last of them is in history.
    pub(super) fn place(&self) -> Place {
        Place { salts: self.frames.salts(), end: self.frames.to() }
    }

    /// The same as the engine knows it, if it is of this process.
    pub(super) fn position(&self) -> Option<WalPosition> {
        Some(WalPosition { generation: self.number?, offset: self.frames.to() })
    }
}

/// What is on the disk behind a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Onward {
    Nothing,
    /// These bytes of this generation, while the WAL has it.
    Range {
        number: u64,
        salts: [u32; 2],
        from: u64,
        to: u64,
    },
    /// It is not known how the WAL has gone on from there.
    Gone,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Feed {
    directory: PathBuf,
    pub(super) position: Position,
    staged: VecDeque<Staged>,
    live: Option<Live>,
    /// The salts of generations of this process, by number; the last [`NUMBERS`] of them.
    numbers: VecDeque<(u64, [u32; 2])>,
    /// The last generation that is over, by number, and where it ended.
    over: Option<(u64, Place)>,
    durable: WalPosition,
    /// Where what is being uploaded ends.
    taken: Option<Place>,
    /// How far this process's generations are archived.
    place: Option<Place>,
    /// Since when something has been waiting, if something is.
    since: Instant,
    /// Why a copy of the whole database must come next.
    pub(super) broken: Option<String>,
    /// Whether that copy has begun, so that nothing behind it may be missed.
    is_copying: bool,
    next_name: u64,
    /// The generations of the record as it was found.
    known: Vec<[u32; 2]>,
    /// The salts of `current` in the record as it is on the disk.
    recorded: Option<[u32; 2]>,
    /// How many bytes may be staged.
    limit: u64,
    /// Whether the WAL does not begin anew when they cannot be.
    refuses_gaps: bool,
    /// Whether another one has all of this: it is empty, and writes nothing.
    is_let_go: bool,
}

impl Feed {
    /// Of a file that has `position` in history, and what an earlier process has staged.
    pub(super) fn new(
        directory: PathBuf,
        position: Position,
        limit: u64,
        refuses_gaps: bool,
    ) -> Result<Feed> {
        let mut staged = Vec::new();
        let mut next_name = 0;
        for (number, path) in staged_files(&directory)? {
            next_name = number + 1;
            match Staged::of_file(&path)? {
                Some(file) => staged.push(file),
                None => remove(&path),
            }
        }
        let ends = position.ends.iter().chain(&position.base).map(|place| place.salts);
        let known = ends.chain(position.current).collect();
        let why = match position.epoch {
            Epoch(0) => "nothing was archived before",
            _ => "a copy was due when the database was open last",
        };
        let broken = position.needs_copy.then(|| why.to_owned());
        Ok(Feed {
            directory,
            position,
            staged: staged.into(),
            live: None,
            numbers: VecDeque::new(),
            over: None,
            durable: WalPosition::default(),
            taken: None,
            place: None,
            since: Instant::now(),
            broken,
            is_copying: false,
            next_name,
            known,
            recorded: None,
            limit,
            refuses_gaps,
            is_let_go: false,
        })
    }

    /// Gives all of it to the result. What stays has nothing to be archived, and neither writes nor
    /// removes a file: it is for a thread that must not touch them any more.
    pub(super) fn let_go(&mut self) -> Feed {
        let nothing = Feed {
            directory: self.directory.clone(),
            position: self.position.clone(),
            staged: VecDeque::new(),
            live: None,
            numbers: VecDeque::new(),
            over: None,
            durable: self.durable,
            taken: None,
            place: None,
            since: self.since,
            broken: None,
            is_copying: false,
            next_name: self.next_name,
            known: Vec::new(),
            recorded: None,
            limit: self.limit,
            refuses_gaps: self.refuses_gaps,
            is_let_go: true,
        };
        std::mem::replace(self, nothing)
    }

    /// Whether another one has all of it.
    pub(super) fn is_let_go(&self) -> bool {
        self.is_let_go
    }

    /// Whether a copy that is under way should rest no more: what is committed meanwhile takes more
    /// than half of the room that it may take, and beyond that the copy is made again.
    pub(super) fn is_hurried(&self) -> bool {
        self.staged_bytes() > self.limit / 2
    }

    /// Bytes that are staged.
    pub(super) fn staged_bytes(&self) -> u64 {
        self.staged.iter().map(|file| file.to - file.from).sum()
    }

    /// Since when the oldest commit has been waiting, about, or a copy of the whole database;
    /// `None` when nothing is.
    pub(super) fn since(&self) -> Option<Instant> {
        (self.has_some() || self.broken.is_some()).then_some(self.since)
    }

    /// Whether something is left to be archived of what an earlier process has committed.
    pub(super) fn has_of_earlier(&self) -> bool {
        self.broken.is_some() || self.staged.iter().any(|file| file.number.is_none())
    }

    /// How many groups what is durable will be, if each has `most` bytes or one commit; at most, as
    /// of two behind each other in a file the first had no room for the other one's first commit.
    /// Whatever is committed later changes nothing: it is taken or staged behind this, or with it.
    pub(super) fn groups_ahead(&self, most: u64) -> u64 {
        let groups = |salts: [u32; 2], from: u64, to: u64| {
            let taken = self.taken.filter(|taken| taken.salts == salts);
            let from = taken.map_or(from, |taken| from.max(taken.end));
            if from < to { 1 + 2 * ((to - from) / most) } else { 0 }
        };
        let staged = self.staged.iter().map(|file| groups(file.salts, file.from, file.to));
        let live = self.live.filter(|live| live.number == self.durable.generation);
        let live = live.map_or(0, |live| groups(live.salts, live.from, self.durable.offset));
        staged.sum::<u64>() + live + u64::from(self.taken.is_some())
    }

    /// Whether there is something to be archived.
    pub(super) fn has_some(&self) -> bool {
        let in_wal =
            |live: Live| self.durable.generation == live.number && self.durable.offset > live.from;
        !self.staged.is_empty() || self.live.is_some_and(in_wal)
    }

    /// How far the disk is.
    pub(super) fn synced(&self) -> WalPosition {
        self.durable
    }

    /// What is on the disk behind `at`, for those who stream it: the rest of the generation that
    /// has just been let go, or of the one being written.
    pub(super) fn onward(&self, at: WalPosition) -> Onward {
        let over = self.over.filter(|(number, _)| *number == at.generation);
        if let Some((number, Place { salts, end })) = over.filter(|(_, it)| at.offset < it.end) {
            return Onward::Range { number, salts, from: at.offset, to: end };
        }
        let is_at_end = over.is_some_and(|(_, place)| place.end == at.offset);
        let (live, from) = match self.live {
            Some(live) if live.number == at.generation => (live, at.offset),
            Some(live) if is_at_end => (live, WAL_HEADER_BYTES),
            None if is_at_end => return Onward::Nothing,
            _ => return Onward::Gone,
        };
        let Live { number, salts, .. } = live;
        let to = if number == self.durable.generation { self.durable.offset } else { from };
        if from < to { Onward::Range { number, salts, from, to } } else { Onward::Nothing }
    }

    /// What is on the disk of the generation being written, and neither archived nor staged.
    pub(super) fn unarchived(&self) -> Onward {
        let live = self.live.map(|Live { number, from, .. }| (number, from));
        live.map_or(Onward::Nothing, |(generation, offset)| {
            self.onward(WalPosition { generation, offset })
        })
    }

    /// Whether a part of the WAL up to `to` is neither archived nor staged.
    pub(super) fn lacks(&self, to: WalPosition) -> bool {
        self.broken.is_none()
            && self.live.is_some_and(|live| live.number == to.generation && live.from < to.offset)
    }

    /// Has the next thing archived be a copy of the whole database; what was to be is not needed
    /// any more.
    pub(super) fn breaks(&mut self, why: String) {
        if self.since().is_none() {
            self.since = Instant::now();
        }
        self.staged.drain(..).for_each(|file| remove(&file.path));
        self.taken = None;
        self.broken = Some(why);
        self.is_copying = false;
        self.position.needs_copy = true;
    }

    /// A copy of the whole database begins: what is committed from now on is kept.
    pub(super) fn copies(&mut self) {
        // What was kept behind one that came to nothing is in this one.
        self.staged.drain(..).for_each(|file| remove(&file.path));
        self.is_copying = true;
    }

    /// Whether nothing was missed since that copy has begun.
    pub(super) fn is_copying(&self) -> bool {
        self.is_copying
    }

    /// The WAL of a crash is about to be emptied: it is the next part of history. It is kept though
    /// that may be more than the limit, which is how it is known what of it is archived; but not
    /// where more than that was kept before, or where it cannot be, as on a full disk.
    ///
    /// # Errors
    /// Where gaps are refused.
    pub(super) fn recovered(&mut self, wal: &WalReader, end: u64) -> Result<()> {
        let salts = wal.salts();
        if end == WAL_HEADER_BYTES {
            return Ok(());
        }
        if !self.refuses_gaps && self.staged_bytes() > self.limit {
            self.breaks(self.is_full().to_string());
        }
        if self.broken.is_some() {
            // The copy that is due has it.
            return self.empties(Place { salts, end });
        }
        self.staged.retain(|file| {
            let is_same = file.salts == salts;
            if is_same {
                remove(&file.path);
            }
            !is_same
        });
        let live = Live { number: 0, salts, from: WAL_HEADER_BYTES };
        match self.stage(live, None, end, wal) {
            Err(error) if self.refuses_gaps => return Err(error),
            Err(error) => self.breaks(error.to_string()),
            Ok(()) => {}
        }
        self.empties(Place { salts, end })
    }

    fn empties(&mut self, place: Place) -> Result<()> {
        self.position.end_at(place);
        self.position.empties();
        let recorded = self.write();
        // Nothing is archived before it is recorded. The record of before has this generation as
        // the one being written: a crash before the next record looks as if another file were
        // there, which is copied whole.
        if self.refuses_gaps { recorded } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        if self.is_let_go {
            return Err(Error::new(ErrorKind::Lost, "the database was closed"));
        }
        self.position.write(&self.directory)?;
        self.recorded = self.position.current;
        Ok(())
    }

    /// Records the position, without generations that are archived.
    pub(super) fn record(&mut self) -> Result<()> {
        if let Some(place) = self.place {
            self.position.forget_before(place);
        }
        self.write()
    }

    /// The generation that `to` is in, by its number in the WAL's header; only before the gate has
    /// let it pass.
    fn see(&mut self, to: WalPosition, wal: Wal<'_>) -> io::Result<Option<Live>> {
        if self.live.is_some_and(|live| live.number == to.generation) {
            return Ok(self.live);
        }
        let over = self.over.filter(|(number, _)| to.generation <= *number);
        if let Some((number, Place { salts, end })) = over {
            // It was let go, and has gone on all the same.
            let goes_on = to.generation == number && to.offset > end;
            let live = Live { number, salts, from: end };
            self.live = goes_on.then_some(live).or(self.live);
            return Ok(goes_on.then_some(live));
        }
        if to.offset == 0 {
            return Ok(None);
        }
        let Some(salts) = wal()?.map(|wal| wal.salts()) else { return Ok(None) };
        // A commit that came to nothing has made it look like another one.
        let seen = self.live.filter(|live| live.salts == salts);
        let new = Live { number: 0, salts, from: WAL_HEADER_BYTES };
        self.live = Some(Live { number: to.generation, ..seen.unwrap_or(new) });
        self.numbers.push_back((to.generation, salts));
        if self.numbers.len() > NUMBERS {
            self.numbers.pop_front();
        }
        Ok(self.live)
    }

    /// Everything up to `to` is on the disk.
    pub(super) fn durable(&mut self, to: WalPosition, wal: Wal<'_>) -> Result<()> {
        if to <= self.durable {
            return self.record_live();
        }
        if self.since().is_none() {
            self.since = Instant::now();
        }
        self.durable = to;
        self.see(to, wal).map_err(|error| Error::of_io("read the WAL", error))?;
        self.record_live()
    }

    /// Records the generation that is being written.
    pub(super) fn record_live(&mut self) -> Result<()> {
        let Some(live) = self.live.filter(|live| self.recorded != Some(live.salts)) else {
            return Ok(());
        };
        self.position.current = Some(live.salts);
        self.record()
    }

    /// Whether the WAL may begin anew behind `to`, its last commit: where gaps are refused, what it
    /// holds has been staged then.
    ///
    /// # Errors
    /// Why it may not: [`Busy`](ErrorKind::Busy) when there is no room left.
    pub(super) fn may_restart(&mut self, to: WalPosition, wal: Wal<'_>) -> Result<()> {
        if !self.refuses_gaps {
            return Ok(());
        }
        let seen = self.see(to, wal).map_err(|error| Error::of_io("read the WAL", error))?;
        seen.map_or(Ok(()), |live| self.stage_up_to(live, to.offset, wal))
    }

    /// The WAL begins anew behind `to`, its last commit, with the salts of `next`.
    ///
    /// # Errors
    /// Where gaps are refused; elsewhere what cannot be kept is given up.
    pub(super) fn capture(
        &mut self,
        to: WalPosition,
        next: Option<[u32; 2]>,
        wal: Wal<'_>,
    ) -> Result<()> {
        let is_over = self.broken.is_none() && self.staged_bytes() > self.limit;
        if self.refuses_gaps && next.is_some() && is_over {
            // By what an opening has found: more openings must not add to it.
            return Err(self.is_full());
        }
        let seen = self.see(to, wal).map_err(|error| Error::of_io("read the WAL", error));
        let seen = match seen {
            Err(error) if self.refuses_gaps => return Err(error),
            Err(error) => {
                self.breaks(error.to_string());
                None
            }
            Ok(seen) => seen,
        };
        if let Some(live) = seen {
            match self.stage_up_to(live, to.offset, wal) {
                Err(error) if self.refuses_gaps => return Err(error),
                Err(error) => self.breaks(error.to_string()),
                Ok(()) => {}
            }
            let place = Place { salts: live.salts, end: to.offset };
            self.position.end_at(place);
            self.over = Some((to.generation, place));
            self.live = None;
        }
        if let Some(next) = next.filter(|next| self.recorded != Some(*next)) {
            self.position.current = Some(next);
            // Nothing of it is archived before it is recorded.
            let recorded = self.record();
            return if self.refuses_gaps { recorded } else { Ok(()) };
        }
        if next.is_none() {
            self.position.empties();
            // Without the record a crash before the next one looks as if another file were there.
            let recorded = self.record();
            return if self.refuses_gaps { recorded } else { Ok(()) };
        }
        Ok(())
    }

    /// The WAL will begin anew: what is on the disk is staged, if it may be. Nothing is given up
    /// for it: until then it may be archived.
    pub(super) fn prepare(&mut self, wal: Wal<'_>) -> Result<()> {
        let to = self.durable;
        let live = self.live.filter(|live| live.number == to.generation && live.from < to.offset);
        match live {
            Some(live) if self.staged_bytes() + (to.offset - live.from) <= self.limit => {
                self.stage_up_to(live, to.offset, wal)
            }
            _ => Ok(()),
        }
    }

    fn stage_up_to(&mut self, live: Live, to: u64, wal: Wal<'_>) -> Result<()> {
        if to <= live.from {
            return Ok(());
        }
        if self.staged_bytes() + (to - live.from) > self.limit {
            let full = self.is_full();
            if self.refuses_gaps && self.broken.is_none() {
                return Err(full);
            }
            self.breaks(full.to_string());
        }
        if self.broken.is_none() || self.is_copying {
            let reader = wal().map_err(|error| Error::of_io("read the WAL", error))?;
            let reader = reader.filter(|reader| reader.salts() == live.salts);
            let gone = || Error::corrupt("the WAL is not the one that was written");
            self.stage(live, Some(live.number), to, &reader.ok_or_else(gone)?)?;
        }
        self.live = Some(Live { from: to, ..live });
        Ok(())
    }

    fn is_full(&self) -> Error {
        let why = format!("more than {} bytes wait to be archived", self.limit);
        Error::new(ErrorKind::Busy, why)
    }

    fn stage(&mut self, live: Live, number: Option<u64>, to: u64, wal: &WalReader) -> Result<()> {
        let [one, other] = live.salts;
        let (name, from) = (self.next_name, live.from);
        assert!(from < to, "what is staged has frames");
        let name = format!("{name:016x}-{one:08x}-{other:08x}-{from:x}-{to:x}{ENDING}");
        let path = self.directory.join(name);
        let copied = make(&self.directory)
            .and_then(|()| File::create_new(&path))
            .inspect(|file| give_to_owner_of(&self.directory, file))
            .and_then(|file| wal.copy(from, to, &file).and_then(|()| file.sync_data()));
        let synced = copied
            .map_err(|error| Error::of_io(format!("write {}", path.display()), error))
            .and_then(|()| sync_directory(&self.directory));
        if let Err(error) = synced {
            remove(&path);
            return Err(error);
        }
        self.next_name += 1;
        self.staged.push_back(Staged { path, salts: live.salts, from, to, number });
        Ok(())
    }

    /// The WAL is empty, and the file at `database` has everything.
    pub(super) fn settled(&mut self, database: &Path) -> Result<()> {
        let identity = Identity::settled(database);
        let identity =
            identity.map_err(|error| Error::of_io(format!("look at {database:?}"), error))?;
        self.position.settled = Some(identity);
        self.position.current = None;
        self.record()
    }

    /// The oldest commits that are not archived, of at most `most` bytes or one commit.
    pub(super) fn take(&mut self, most: u64, wal: Wal<'_>) -> Result<Option<Taken>> {
        let failed = |error| Error::of_io("read what is to be archived", error);
        if let Some(file) = self.staged.front() {
            let reader = File::open(&file.path).and_then(WalReader::open).map_err(failed)?;
            let none = || Error::corrupt(format!("{} is no WAL", file.path.display()));
            let frames = reader.ok_or_else(none)?.commits(file.from, file.to, most);
            let taken =
                Taken { frames: frames.map_err(failed)?, number: file.number, is_all: false };
            self.taken = Some(taken.place());
            return Ok(Some(taken));
        }
        self.record_live()?;
        let to = self.durable;
        let live = self.live.filter(|live| live.number == to.generation && live.from < to.offset);
        let Some(live) = live else { return Ok(None) };
        let reader = wal().map_err(failed)?.filter(|reader| reader.salts() == live.salts);
        let gone = || Error::corrupt("the WAL is not the one that was written");
        let frames = reader.ok_or_else(gone)?.commits(live.from, to.offset, most);
        let frames = frames.map_err(failed)?;
        let is_all = frames.to() == to.offset;
        let taken = Taken { frames, number: Some(live.number), is_all };
        self.taken = Some(taken.place());
        Ok(Some(taken))
    }

    /// Everything up to `place` is archived. Whether it is has been looked up when it was taken at
    /// `since`.
    pub(super) fn archived(&mut self, place: Place, since: Instant) {
        self.taken = None;
        while let Some(file) = self.staged.front_mut() {
            if file.salts != place.salts {
                break;
            }
            if file.to > place.end {
                file.from = file.from.max(place.end);
                break;
            }
            remove(&file.path);
            self.staged.pop_front();
        }
        if let Some(live) = self.live.as_mut().filter(|live| live.salts == place.salts) {
            live.from = live.from.max(place.end);
        }
        self.place = Some(place);
        self.since = since;
    }

    /// Whether the files have everything that is behind `place` in the chain, and nothing else;
    /// what they have before is archived and goes.
    pub(super) fn continues(&mut self, place: Option<Place>) -> bool {
        let Some(mut rest) = self.position.behind(place).map(VecDeque::from) else { return false };
        let mut files = VecDeque::new();
        let current = self.live.map(|live| live.salts);
        for mut file in self.staged.drain(..) {
            if Some(file.salts) == current {
                // Of the generation being written, which the chain does not have yet.
                files.push_back(file);
                continue;
            }
            let is_wanted = rest.front().is_some_and(|(end, from)| {
                file.salts == end.salts && file.from <= *from && *from < file.to
            });
            if !is_wanted {
                remove(&file.path);
                continue;
            }
            if let Some((end, from)) = rest.front_mut() {
                file.from = *from;
                *from = file.to;
                if file.to >= end.end {
                    rest.pop_front();
                }
            }
            files.push_back(file);
        }
        self.staged = files;
        rest.is_empty()
    }

    /// Whether this file can have had what is archived up to `place`: nothing of a generation is
    /// archived that is not in the record.
    pub(super) fn may_have_had(&self, place: Option<Place>) -> bool {
        let is_known = |place: Place| {
            self.known.contains(&place.salts)
                || self.live.is_some_and(|live| live.salts == place.salts)
                || self.position.ends.iter().any(|end| end.salts == place.salts)
        };
        place.is_none_or(is_known)
    }

    /// Where in history the engine's position is: one that it was given by a copy of the database.
    pub(super) fn place_of(&mut self, at: WalPosition, wal: Wal<'_>) -> Result<Option<Place>> {
        if at.offset == 0 {
            return Ok(None);
        }
        self.see(at, wal).map_err(|error| Error::of_io("read the WAL", error))?;
        let known = self.numbers.iter().find(|(number, _)| *number == at.generation);
        let forgotten = || Error::corrupt("the WAL has begun anew too often meanwhile");
        let (_, salts) = known.ok_or_else(forgotten)?;
        Ok(Some(Place { salts: *salts, end: at.offset }))
    }

    /// A copy of the whole database is archived that has everything up to `at`, as the engine
    /// numbers it. False when something behind it was missed meanwhile.
    pub(super) fn copied(&mut self, at: WalPosition, place: Option<Place>, since: Instant) -> bool {
        if !std::mem::replace(&mut self.is_copying, false) {
            return false;
        }
        let is_before = |file: &Staged| file.number.is_none_or(|number| number < at.generation);
        while self.staged.front().is_some_and(is_before) {
            self.staged.pop_front().into_iter().for_each(|file| remove(&file.path));
        }
        match place {
            Some(place) => self.archived(place, since),
            // The WAL was empty: the copy has every generation before.
            None => {
                self.since = since;
                let later = |(number, salts): &(u64, [u32; 2])| {
                    (*number >= at.generation).then_some(*salts)
                };
                let later: Vec<_> = self.numbers.iter().filter_map(later).collect();
                self.position.ends.retain(|end| later.contains(&end.salts));
            }
        }
        self.broken = None;
        self.position.needs_copy = false;
        true
    }
}

impl Staged {
    /// What the file at `path` has by its name, if it is whole.
    fn of_file(path: &Path) -> Result<Option<Staged>> {
        let parsed = || {
            let name = path.file_name()?.to_str()?.strip_suffix(ENDING)?;
            let mut parts = name.split('-').map(|part| u64::from_str_radix(part, 16).ok());
            let mut next = || parts.next()?;
            let (_, one, other) = (next()?, next()?, next()?);
            let (from, to) = (next()?, next()?);
            let salts = [u32::try_from(one).ok()?, u32::try_from(other).ok()?];
            Some(Staged { path: path.to_owned(), salts, from, to, number: None })
        };
        let Some(file) = parsed() else { return Ok(None) };
        let meta = fs::metadata(path);
        let meta = meta.map_err(|error| Error::of_io(format!("look at {path:?}"), error))?;
        Ok(Some(file).filter(|file| meta.len() == file.to && file.from < file.to))
    }
}

/// The files that were staged, by number.
fn staged_files(directory: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let failed = |error| Error::of_io(format!("list {}", directory.display()), error);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.split('-').next().filter(|_| name.ends_with(ENDING));
        if let Some(number) = number.and_then(|number| u64::from_str_radix(number, 16).ok()) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files)
}

/// Removes a file that is not needed; the next start removes one that stays.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}
