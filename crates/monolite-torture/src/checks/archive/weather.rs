//! The store as a child has it: a directory, behind whatever weather its parent makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Error, Result, bail};
use fastrand::Rng;
use monolite_archive::{
    DirectoryStore, Epoch, Layout,
    internals::{Call, Fault, FaultyStore, Level, leader},
};
use monolite_testkit::blocking::locked;

/// How long the longest request takes in bad weather, in milliseconds.
const STALL: u64 = 400;

/// How long a request is on its way to the store after a lease was looked at.
const ON_THE_WAY: Duration = Duration::from_millis(40);

/// What becomes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// They are done.
    Fair,
    /// They are done, and each takes its time.
    Slow,
    /// Of a hundred ten get 503, five 429 and five 409; four are lost, of six the answer is; two
    /// stall.
    Bad,
    /// None is done.
    Away,
    /// There is no answer, and writes are done when the weather is another.
    Late,
}

impl Weather {
    /// Its word between parent and child.
    pub(super) fn word(self) -> &'static str {
        match self {
            Weather::Fair => "fair",
            Weather::Slow => "slow",
            Weather::Bad => "bad",
            Weather::Away => "away",
            Weather::Late => "late",
        }
    }

    fn befalls(self, call: Call<'_>, rng: &mut Rng) -> Fault {
        match self {
            Weather::Fair => Fault::None,
            Weather::Slow => {
                thread::sleep(Duration::from_millis(rng.u64(1..20)));
                Fault::None
            }
            Weather::Bad => match rng.u8(..100) {
                0..15 => Fault::Busy,
                15..20 => Fault::Conflict,
                20..24 => Fault::LostRequest,
                24..30 => Fault::LostAnswer,
                30..32 => {
                    thread::sleep(Duration::from_millis(rng.u64(..STALL)));
                    Fault::None
                }
                _ => Fault::None,
            },
            Weather::Away => Fault::LostRequest,
            Weather::Late => match call {
                Call::Get(_) | Call::List(_) => Fault::LostRequest,
                _ => Fault::Late,
            },
        }
    }
}

impl FromStr for Weather {
    type Err = Error;

    fn from_str(word: &str) -> Result<Weather> {
        let all = [Weather::Fair, Weather::Slow, Weather::Bad, Weather::Away, Weather::Late];
        match all.into_iter().find(|weather| weather.word() == word) {
            Some(weather) => Ok(weather),
            None => bail!("no such weather: {word}"),
        }
    }
}

/// What a primary does with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// It fills slots that are free.
    Sound,
    /// It looks whether the record has its epoch, and fills the slot whatever is there.
    TrustsItsLease,
}

/// A directory under the weather.
pub(super) struct Outside {
    pub(super) store: Arc<FaultyStore<DirectoryStore>>,
    weather: Arc<Mutex<Weather>>,
}

impl Outside {
    pub(super) fn new(directory: &Path, habit: Habit) -> Outside {
        let weather = Arc::new(Mutex::new(Weather::Fair));
        let (now, mut rng) = (Arc::clone(&weather), Rng::new());
        let mut lease = Lease { directory: directory.to_owned(), epoch: None };
        let decide = move |call: Call<'_>| {
            if habit == Habit::TrustsItsLease {
                lease.clears(call);
            }
            let weather = *locked(&now);
            weather.befalls(call, &mut rng)
        };
        let store = FaultyStore::new(DirectoryStore::new(directory), decide);
        Outside { store: Arc::new(store), weather }
    }

    /// From now on the weather is this. What is still under way arrives.
    pub(super) fn turns(&self, weather: Weather) {
        *locked(&self.weather) = weather;
        if weather != Weather::Late {
            while self.store.deliver(0) {}
        }
    }
}

/// The lease of a primary that trusts it.
struct Lease {
    directory: PathBuf,
    epoch: Option<Epoch>,
}

impl Lease {
    /// Removes what is in the slot that is about to be filled, if the lease is its own.
    fn clears(&mut self, call: Call<'_>) {
        let layout = Layout::directory();
        let Call::Create(key) = call else { return };
        if !key.starts_with(&layout.level(Level::SLOTS)) {
            return;
        }
        let record = leader(&DirectoryStore::new(&self.directory), &layout);
        let epoch = record.ok().flatten().map(|record| record.epoch);
        // The first slot is the fence, right behind the claim.
        let own = *self.epoch.get_or_insert(epoch.unwrap_or(Epoch(0)));
        if epoch == Some(own) {
            thread::sleep(ON_THE_WAY);
            // There is nothing in nearly all of them.
            let _ = fs::remove_file(self.directory.join(key));
        }
    }
}
