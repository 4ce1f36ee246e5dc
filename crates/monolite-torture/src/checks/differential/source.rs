//! Owns what the client does next: which transaction, by which call, and at which moment.
//!
//! # Algorithm
//! 1. Each history has a [`Profile`], so that some are nothing but interleaved transactions, some
//!    change the schema all the time, and some rest.
//! 2. An operation is drawn, then its steps. A part of the statements are texts that were run
//!    before, with other values, so that prepared statements are kept and met again.
//! 3. What a transaction changes in the schema is tried on an empty copy until it ends, so that its
//!    later statements mean something.

use std::sync::Arc;

use fastrand::Rng;

use super::asking::changes_schema;
use super::driver::SLOTS;
use super::grammar::{self, Template, Topic};
use super::record::{Call, Ending, How, Judged, Meanwhile, Op, Parameters, Setup, Step, Write};
use super::schema::Schema;

/// Texts that are remembered, to be run again.
const REMEMBERED: usize = 24;

/// The character of a history.
#[derive(Clone, Copy, Debug)]
struct Profile {
    /// A table for which the plan decides.
    is_wide: bool,
    /// Transactions that are open at once.
    most_open: usize,
    rests: bool,
    reopens: bool,
    /// Weights of the topics, in their order.
    topics: [u32; 9],
    /// Steps in a hundred that are a text from before.
    repeats: u32,
}

/// What draws the operations of a history.
pub(super) struct Source {
    rng: Rng,
    profile: Profile,
    setup: Setup,
    left: u64,
    has_begun: bool,
    remembered: Vec<(Topic, Template)>,
    /// What the transaction in each slot has made of the schema.
    guesses: [Option<Arc<Schema>>; SLOTS],
    marks: u64,
}

impl Profile {
    /// With neither changes of the schema nor statistics, but for those it begins with, a history
    /// is calm: for controls, which need some in which nothing is wrong.
    fn random(rng: &mut Rng, is_calm: bool) -> Profile {
        let is_wide = rng.u8(..5) < 2;
        let schema = [0, 2, 6, 14][rng.usize(..4)];
        let failures = [1, 5, 12][rng.usize(..3)];
        let virtual_tables = [0, 0, 12][rng.usize(..3)];
        let choices = if is_wide { 30 } else { 3 };
        let analyze = if is_wide { 6 } else { 1 };
        let topics = if is_calm {
            [30, 4, 45, 0, if is_wide { 6 } else { 0 }, 0, 4, 0, 0]
        } else {
            [30, choices, 40, schema, analyze, virtual_tables, 10, failures, 8]
        };
        Profile {
            is_wide,
            most_open: rng.usize(1..=SLOTS),
            rests: rng.u8(..3) == 0,
            reopens: rng.u8(..6) == 0,
            topics,
            repeats: [40, 70, 85][rng.usize(..3)],
        }
    }
}

impl Source {
    pub(super) fn new(seed: u64, most: u64, is_calm: bool) -> Source {
        let mut rng = Rng::with_seed(seed);
        let setup = Setup::random(&mut rng);
        let profile = Profile::random(&mut rng, is_calm);
        let left = rng.u64(200..=600).min(most);
        Source {
            rng,
            profile,
            setup,
            left,
            has_begun: false,
            remembered: Vec::new(),
            guesses: Default::default(),
            marks: 0,
        }
    }

    pub(super) fn setup(&self) -> Setup {
        self.setup
    }

    /// The next operation, until there are enough. `open` says which slots hold a transaction.
    pub(super) fn next(&mut self, schema: &Arc<Schema>, open: [bool; SLOTS]) -> Option<Op> {
        if self.left == 0 {
            return None;
        }
        for (guess, is_open) in self.guesses.iter_mut().zip(open) {
            if !is_open {
                *guess = None;
            }
        }
        let op = if self.has_begun { self.draw(schema, open) } else { self.begin() };
        self.has_begun = true;
        self.left = self.left.saturating_sub(op.statements().max(1));
        Some(op)
    }

    fn begin(&mut self) -> Op {
        let tables = grammar::first_tables(&mut self.rng, self.profile.is_wide);
        let steps = tables.iter().map(|it| it.step(&mut self.rng, &mut self.marks)).collect();
        Op::Write(Write { call: Call::Write, steps, ending: Ending::Commits })
    }

    fn draw(&mut self, schema: &Arc<Schema>, open: [bool; SLOTS]) -> Op {
        let opened: Vec<usize> = (0..SLOTS).filter(|slot| open[*slot]).collect();
        let slot = self.rng.usize(..self.profile.most_open);
        match self.rng.u32(..200) {
            0..90 => self.interactive_step(slot, schema),
            90..118 => Op::Write(self.write(schema, 5)),
            118..144 => self.read(schema),
            144..154 => self.batch(schema, &opened),
            154..176 if !opened.is_empty() => {
                let slot = opened[self.rng.usize(..opened.len())];
                Op::Commit { slot, key: self.key() }
            }
            176..180 if !opened.is_empty() => {
                Op::Rollback { slot: opened[self.rng.usize(..opened.len())] }
            }
            180..186 => self.transact(schema),
            186..188 if self.profile.rests && self.setup.snapshot_age_ms == 1 => {
                Op::Rest { ms: self.rng.u64(1..3) }
            }
            192 if self.profile.reopens => Op::Reopen,
            193 => Op::Compare,
            194..197 => self.statistics(schema),
            _ => self.interactive_step(slot, schema),
        }
    }

    fn key(&mut self) -> Option<String> {
        (self.rng.u8(..14) == 0).then(|| format!("k{}", self.rng.u8(..6)))
    }

    fn interactive_step(&mut self, slot: usize, schema: &Arc<Schema>) -> Op {
        if self.rng.u8(..14) == 0 {
            let how = [How::Savepoint, How::Savepoint, How::RollbackTo, How::Release];
            let name = ["s1", "s2", "S1", "odd \" name"][self.rng.usize(..4)];
            let step = Step::plain(name, how[self.rng.usize(..4)]);
            return Op::Step { slot, step };
        }
        let mut guess = self.guesses[slot].take().unwrap_or_else(|| Arc::clone(schema));
        let step = self.step(&mut guess, false);
        self.guesses[slot] = Some(guess);
        Op::Step { slot, step }
    }

    fn write(&mut self, schema: &Arc<Schema>, most: usize) -> Write {
        let mut guess = Arc::clone(schema);
        let count = self.rng.usize(1..=most);
        let steps = (0..count).map(|_| {
            let mut step = self.step(&mut guess, false);
            step.is_handled = self.rng.u8(..5) > 0;
            step
        });
        let steps = steps.collect();
        let call =
            [Call::Write, Call::Write, Call::Write, Call::Once, Call::Try][self.rng.usize(..5)];
        let ending = match self.rng.u8(..40) {
            0..4 => Ending::Fails,
            4 => Ending::Panics,
            _ => Ending::Commits,
        };
        Write { call, steps, ending }
    }

    fn read(&mut self, schema: &Arc<Schema>) -> Op {
        let mut guess = Arc::clone(schema);
        let count = self.rng.usize(1..4);
        let steps = (0..count).map(|_| self.step(&mut guess, true)).collect();
        Op::Read { is_durable: self.rng.u8(..6) == 0, steps }
    }

    fn batch(&mut self, schema: &Arc<Schema>, opened: &[usize]) -> Op {
        let mut opened = opened.to_vec();
        self.rng.shuffle(&mut opened);
        let count = self.rng.usize(2..6);
        let members = (0..count).map(|_| match opened.pop() {
            Some(slot) if self.rng.bool() => Op::Commit { slot, key: self.key() },
            _ => Op::Write(self.write(schema, 3)),
        });
        Op::Batch(members.collect())
    }

    fn transact(&mut self, schema: &Arc<Schema>) -> Op {
        let mut guess = Arc::clone(schema);
        let count = self.rng.usize(1..5);
        let steps: Vec<_> = (0..count).map(|_| self.step(&mut guess, false)).collect();
        let meanwhile = (self.rng.u8(..3) > 0).then(|| Meanwhile {
            behind: self.rng.usize(..count),
            attempts: self.rng.u32(1..3),
            write: self.write(schema, 2),
        });
        let ending = if self.rng.u8(..10) == 0 { Ending::Fails } else { Ending::Commits };
        Op::Transact { steps, ending, meanwhile }
    }

    /// The distribution changes, and is analyzed.
    fn statistics(&mut self, schema: &Arc<Schema>) -> Op {
        let mut steps = Vec::new();
        if self.rng.bool() {
            let template = grammar::turn(&mut self.rng, schema);
            steps.push(template.step(&mut self.rng, &mut self.marks));
        }
        steps.push(self.new_step(schema, Topic::Analyze));
        Op::Write(Write { call: Call::Write, steps, ending: Ending::Commits })
    }

    fn step(&mut self, guess: &mut Arc<Schema>, is_read: bool) -> Step {
        if !self.remembered.is_empty() && self.rng.u32(..100) < self.profile.repeats {
            let at = self.rng.usize(..self.remembered.len());
            let (topic, template) = &self.remembered[at];
            if !is_read || matches!(topic, Topic::Query | Topic::Report) {
                let step = template.step(&mut self.rng, &mut self.marks);
                return self.placed(step, is_read);
            }
        }
        let topic = self.topic(is_read);
        let template = if !is_read && self.rng.u8(..30) == 0 {
            let topics = [Topic::Change, topic, Topic::Query];
            let count = self.rng.usize(1..4);
            grammar::batch(&mut self.rng, guess, &topics[..count])
        } else {
            grammar::statement(&mut self.rng, guess, topic)
        };
        let step = template.step(&mut self.rng, &mut self.marks);
        if !is_read
            && changes_schema(&step.sql)
            && let Ok(followed) = guess.followed_by(&step.sql)
        {
            *guess = Arc::new(followed);
        }
        self.remember(topic, template);
        self.placed(step, is_read)
    }

    fn new_step(&mut self, schema: &Arc<Schema>, topic: Topic) -> Step {
        let template = grammar::statement(&mut self.rng, schema, topic);
        template.step(&mut self.rng, &mut self.marks)
    }

    /// Some figures mean nothing in a closure, where a neighbour may have set them, and a read has
    /// no batches.
    fn placed(&mut self, mut step: Step, is_read: bool) -> Step {
        let is_of_writes = matches!(step.how, How::Batch | How::LastInsertRowid);
        if is_read && (is_of_writes || step.judged == Judged::Figures) {
            step = Step {
                judged: Judged::Connection,
                ..Step::plain("SELECT total_changes()", How::All)
            };
        }
        if step.how == How::Batch && !step.parameters.is_empty() {
            step.parameters = Parameters::NONE;
        }
        step
    }

    fn remember(&mut self, topic: Topic, template: Template) {
        if self.remembered.len() < REMEMBERED {
            self.remembered.push((topic, template));
        } else {
            let at = self.rng.usize(..REMEMBERED);
            self.remembered[at] = (topic, template);
        }
    }

    fn topic(&mut self, is_read: bool) -> Topic {
        if is_read && self.rng.u8(..16) > 0 {
            return [Topic::Query, Topic::Query, Topic::Report, Topic::Choice][self.rng.usize(..4)];
        }
        let total: u32 = self.profile.topics.iter().sum();
        let mut drawn = self.rng.u32(..total);
        for (topic, weight) in Topic::ALL.into_iter().zip(self.profile.topics) {
            if drawn < weight {
                return topic;
            }
            drawn -= weight;
        }
        Topic::Query
    }
}
