//! Owns how far a restore is, noted in the file that it writes, so that another one goes on.
//!
//! # Format
//! Behind the last page of the database are two places of equal length, a multiple of 4096 bytes.
//! A note is in one of them: a SipHash-2-4 of the rest (16 bytes), the lengths of the two parts
//! that follow (8 bytes each, little-endian), a JSON object ([`Note`]), and a bit for each page
//! that was written, in words of 64. Of two that are whole the one with the higher `number` counts.
//!
//! # Algorithm
//! Pages are brought to disk, then the note is written, over the older one, and brought to disk.
//!
//! # Why another one can go on
//! What is read from here on depends on the plan, which is in the note; on the files that were
//! read, whose names may have other content by now: their tags are in the note, and that of each is
//! asked for; on the state of the file that was being read, which is [`Position`], so that its sum
//! is compared at its end as ever; and on the pages that are in the output: they were on disk
//! before the note was, and the file is locked while it is written, its owner's alone, and of no
//! use as it is. Pages that were written after the note are written again.

use std::cell::Cell;
use std::fs::File;
use std::hash::Hasher as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use monolite_ltx::{Checksum, Header, Position};
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::database::{Database, Pages, Unfinished, words_of};
use crate::error::{Error, Result};
use crate::file::beginning;
use crate::layout::Layout;
use crate::plan::Plan;
use crate::store::{Store, Tag};

/// Length of what is before a note's two parts.
const HEAD: usize = 32;

/// How many bytes of JSON there are beside files, and for each file, at most: a key and a tag.
const ROOM: [usize; 2] = [4096, 1024];

/// At every so many pages, and at the first one of each file, it is asked what time it is.
const PAGES: u64 = 64;

/// The JSON object of a note.
#[derive(Serialize, Deserialize)]
struct Note {
    format: u32,
    number: u64,
    /// The files of the plan, the newest first: key and length.
    files: Vec<(String, u64)>,
    page_size: u32,
    commit: u32,
    /// Of the files that were read, and last of the one that is being read.
    tags: Vec<String>,
    /// How far that one is.
    position: Vec<u8>,
    missing: u32,
    sum: u64,
    expected: Option<u64>,
    decoded: u64,
}

const FORMAT: u32 = 1;

/// A file of which some pages were read.
pub(super) struct Begun {
    pub(super) position: Position,
    pub(super) tag: Tag,
}

/// What another restore has left.
pub(super) struct Saved {
    pub(super) database: Unfinished,
    pub(super) begun: Begun,
}

/// How far a restore is.
pub(super) struct Progress<'a> {
    output: &'a File,
    files: Vec<(String, u64)>,
    page_size: u32,
    commit: u32,
    every: Duration,
    last: Instant,
    number: u64,
    /// Of the files that were read.
    tags: Vec<Tag>,
    /// Set once there is a note.
    is_noted: &'a Cell<bool>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(
        output: &'a File,
        plan: &Plan,
        layout: &Layout,
        header: &Header,
        every: Duration,
        is_noted: &'a Cell<bool>,
    ) -> Progress<'a> {
        let files = plan.files().iter().rev().map(|file| (file.key(layout), file.len)).collect();
        let (page_size, commit) = (header.page_size.get(), header.commit);
        let (last, number, tags) = (Instant::now(), 0, Vec::new());
        Progress { output, files, page_size, commit, every, last, number, tags, is_noted }
    }

    /// How many files were read.
    pub(super) fn done(&self) -> usize {
        self.tags.len()
    }

    /// The next file was read to its end.
    pub(super) fn read(&mut self, tag: Tag) {
        self.tags.push(tag);
    }

    /// Whether it is time for a note, after so many pages, of which the last one may be the first
    /// of its file: of small files each takes a request.
    pub(super) fn is_due(&self, pages: u64, is_first: bool) -> bool {
        (is_first || pages.is_multiple_of(PAGES)) && self.last.elapsed() >= self.every
    }

    /// Notes how far it is. Nothing is noted that is longer than its place, as tags may be.
    pub(super) fn note(&mut self, database: &mut Database<'_>, begun: &Begun) -> Result<()> {
        let unfinished = database.unfinished()?;
        let Pages { written, missing, sum } = unfinished.pages;
        let tags = self.tags.iter().chain([&begun.tag]).map(|tag| tag.as_str().to_owned());
        let position = begun.position.encode();
        let position = position.map_err(|error| Error::of_ltx("the position", error))?;
        let note = Note {
            format: FORMAT,
            number: self.number + 1,
            files: self.files.clone(),
            page_size: self.page_size,
            commit: self.commit,
            tags: tags.collect(),
            position: position.to_vec(),
            missing,
            sum: sum.bits(),
            expected: unfinished.expected.map(Checksum::bits),
            decoded: unfinished.decoded,
        };
        let bytes = encode(&note, &written)?;
        self.last = Instant::now();
        if bytes.len() as u64 > self.room() {
            return Ok(());
        }
        let noted = self.output.write_all_at(&bytes, self.place(note.number));
        let noted = noted.and_then(|()| self.output.sync_data());
        noted.map_err(|error| Error::of_io("note how far the restore is", error))?;
        self.number = note.number;
        self.is_noted.set(true);
        Ok(())
    }

    /// What another restore of the same plan has left in the output, if the files that it read are
    /// still the same. What cannot be read is none.
    pub(super) fn take_up(&mut self, store: &dyn Store) -> Result<Option<Saved>> {
        let mut notes: Vec<_> = [1, 2].iter().filter_map(|place| self.note_at(*place)).collect();
        notes.sort_by_key(|(note, _)| note.number);
        let Some((note, written)) = notes.pop() else { return Ok(None) };
        let tags: Vec<Tag> = note.tags.iter().map(Tag::new).collect();
        for ((key, len), tag) in self.files.iter().zip(&tags) {
            let is_same = |it: crate::Fetched| it.tag == *tag && it.len == *len;
            if !beginning(store, key)?.is_some_and(is_same) {
                return Ok(None);
            }
        }
        let saved = self.saved(&note, written, tags);
        if saved.is_some() {
            self.number = note.number;
        }
        Ok(saved)
    }

    fn saved(&mut self, note: &Note, written: Vec<u64>, mut tags: Vec<Tag>) -> Option<Saved> {
        let position = Position::decode(note.position.first_chunk()?).ok()?;
        let begun = Begun { position, tag: tags.pop()? };
        let pages = Pages { written, missing: note.missing, sum: Checksum::from_bits(note.sum)? };
        let expected = note.expected.and_then(Checksum::from_bits);
        let database = Unfinished { pages, expected, decoded: note.decoded };
        self.tags = tags;
        Some(Saved { database, begun })
    }

    /// The note in a place, if it is whole and of this plan.
    fn note_at(&self, number: u64) -> Option<(Note, Vec<u64>)> {
        let mut bytes = vec![0; usize::try_from(self.room()).ok()?];
        let place = self.place(number);
        let there = self.output.metadata().ok()?.len().checked_sub(place)?;
        bytes.truncate(usize::try_from(there).unwrap_or(usize::MAX));
        self.output.read_exact_at(&mut bytes, place).ok()?;
        let (note, written) = decode(&bytes)?;
        let is_of_plan = note.format == FORMAT
            && note.files == self.files
            && (note.page_size, note.commit) == (self.page_size, self.commit)
            && written.len() == words_of(self.commit)
            && note.tags.len() <= self.files.len();
        is_of_plan.then_some((note, written))
    }

    fn room(&self) -> u64 {
        let json = ROOM[0] + self.files.len() * ROOM[1];
        ((HEAD + json + words_of(self.commit) * 8) as u64).next_multiple_of(4096)
    }

    fn place(&self, number: u64) -> u64 {
        u64::from(self.commit) * u64::from(self.page_size) + number % 2 * self.room()
    }
}

fn sum_of(bytes: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher24::new();
    hasher.write(bytes);
    hasher.finish128().as_bytes()
}

fn encode(note: &Note, written: &[u64]) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(note);
    let json = json.map_err(|error| Error::invalid(format!("a note as JSON: {error}")))?;
    let lengths = [json.len() as u64, written.len() as u64 * 8];
    let rest: Vec<u8> = lengths
        .iter()
        .flat_map(|length| length.to_le_bytes())
        .chain(json)
        .chain(written.iter().flat_map(|word| word.to_le_bytes()))
        .collect();
    Ok([&sum_of(&rest)[..], &rest].concat())
}

fn decode(bytes: &[u8]) -> Option<(Note, Vec<u64>)> {
    let (sum, rest) = bytes.split_first_chunk::<16>()?;
    let (lengths, parts) = rest.split_first_chunk::<16>()?;
    let (lengths, _) = lengths.as_chunks::<8>();
    let length = |at: usize| usize::try_from(u64::from_le_bytes(lengths[at])).ok();
    let (json, written) = parts.split_at_checked(length(0)?)?;
    let written = written.get(..length(1)?)?;
    if sum_of(rest.get(..16 + json.len() + written.len())?) != *sum {
        return None;
    }
    let (words, _) = written.as_chunks::<8>();
    let written = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    Some((serde_json::from_slice(json).ok()?, written))
}
