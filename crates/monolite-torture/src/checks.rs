//! The checks, a module for each, and what several of them use: `writing` is load from a process
//! that is killed or cut off, `survivors` looks at what an image of a disk still has, `wrong` books
//! what a file has lost.

use anyhow::Result;
use monolite_testkit::child::Roles;

use crate::check::Setting;
use crate::outcome::Outcome;

mod allocations;
mod closures;
mod cuts;
pub(crate) mod differential;
pub(crate) mod environment;
mod flips;
pub(crate) mod history;
mod hostile;
mod images;
mod kills;
mod overload;
mod soak;
mod sweeps;

mod survivors;
mod writing;
mod wrong;

/// The roles that children of a torturing program play, for [`monolite_testkit::child::play`].
pub(crate) const ROLES: Roles<'static> = &[
    environment::ROLES[0],
    environment::ROLES[1],
    environment::ROLES[2],
    environment::ROLES[3],
    environment::ROLES[4],
    flips::ROLES[0],
    overload::ROLES[0],
    overload::ROLES[1],
    (soak::ROLE, soak::play),
    (writing::ROLE, writing::play),
    (allocations::ROLE, allocations::play),
    hostile::ROLES[0],
    hostile::ROLES[1],
    (closures::ROLE, closures::play),
    (differential::ROLE, differential::serve),
];

/// One way to hurt the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Statements of every form, compared with plain SQLite.
    Differential,
    /// `SIGKILL` at random moments under batch load.
    Kills,
    /// Real power cuts of real file systems; needs root.
    Cuts,
    /// Crash images from a journal of unsynced writes.
    Images,
    /// An I/O error at every I/O of a scenario, once and for good.
    Sweeps,
    /// Random transactions of all kinds with faults on, replayed in a serial model.
    History,
    /// Flipped bits in the database and the WAL.
    Flips,
    /// SQL from somebody who means harm.
    Hostile,
    /// Closures that block, nest, panic, close, sleep and are given up.
    Closures,
    /// More load than the machine can take, in limited memory.
    Overload,
    /// What else a machine does: full disks, lost files, failing syncs, jumping clocks.
    Environment,
    /// Everything at once for a long time.
    Soak,
}

impl Check {
    /// All of them, in the order in which they are run: short and telling ones first.
    pub const ALL: [Check; 12] = [
        Check::Images,
        Check::Environment,
        Check::Sweeps,
        Check::History,
        Check::Closures,
        Check::Hostile,
        Check::Differential,
        Check::Flips,
        Check::Kills,
        Check::Cuts,
        Check::Overload,
        Check::Soak,
    ];

    /// Its name, which is also that of its option on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Check::Differential => "differential",
            Check::Kills => "kills",
            Check::Cuts => "cuts",
            Check::Images => "images",
            Check::Sweeps => "sweeps",
            Check::History => "history",
            Check::Flips => "flips",
            Check::Hostile => "hostile",
            Check::Closures => "closures",
            Check::Overload => "overload",
            Check::Environment => "environment",
            Check::Soak => "soak",
        }
    }

    /// What its amount counts.
    pub fn unit(self) -> &'static str {
        match self {
            Check::Differential => "statements",
            Check::Kills => "SIGKILLs",
            Check::Cuts => "power cuts",
            Check::Images => "crash images",
            Check::Sweeps => "scenarios",
            Check::History => "transactions",
            Check::Flips => "bit flips",
            Check::Hostile => "cases",
            Check::Closures => "rounds",
            Check::Environment => "cases",
            Check::Overload | Check::Soak => "seconds",
        }
    }

    /// How many units it does when it is given this amount.
    pub(crate) fn total(self, amount: u64) -> u64 {
        match self {
            Check::Hostile => hostile::total(amount),
            Check::Environment => environment::total(),
            _ => amount,
        }
    }

    pub(crate) fn run(self, setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
        match self {
            Check::Differential => differential::run(setting, amount),
            Check::Kills => kills::run(setting, amount),
            Check::Cuts => cuts::run(setting, amount),
            Check::Images => images::run(setting, amount),
            Check::Sweeps => sweeps::run(setting, amount),
            Check::History => history::run(setting, amount),
            Check::Flips => flips::run(setting, amount),
            Check::Hostile => hostile::run(setting, amount),
            Check::Closures => closures::run(setting, amount),
            Check::Overload => overload::run(setting, amount),
            Check::Environment => environment::run(setting),
            Check::Soak => soak::run(setting, amount),
        }
    }
}
