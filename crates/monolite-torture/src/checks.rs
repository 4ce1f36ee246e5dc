//! The checks: the table of them, a module for each, and what several of them use: `writing` is
//! load from a process that is killed or cut off, and judges what it leaves, `survivors` looks at
//! what an image of a disk has left, `cgroup` limits the memory of a child, `wrong` books what a
//! file has lost, `faketime` moves the wall clock of a process, `grammar` writes SQL, `lanes` runs
//! cases side by side.

use crate::check::Check;

mod allocations;
mod archive;
mod clients;
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
mod rebuilds;
mod server;
mod soak;
mod sweeps;
mod tenants;

mod cgroup;
mod faketime;
mod grammar;
pub(crate) mod lanes;
mod survivors;
mod writing;
mod wrong;

/// All checks, in the order in which they are run: short and telling ones first.
pub static CHECKS: [&Check; 17] = [
    &images::CHECK,
    &environment::CHECK,
    &sweeps::CHECK,
    &archive::CHECK,
    &history::CHECK,
    &closures::CHECK,
    &hostile::CHECK,
    &differential::CHECK,
    &flips::CHECK,
    &kills::CHECK,
    &rebuilds::CHECK,
    &tenants::CHECK,
    &server::CHECK,
    &clients::CHECK,
    &cuts::CHECK,
    &overload::CHECK,
    &soak::CHECK,
];
