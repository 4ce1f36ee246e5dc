//! Stands for the verbs of the feature `developer` in a build without it: they say how to get them.

use anyhow::Result;
use std::fmt;

const HOW: &str = "\
this build is without bench, torture and conform; in a clone, get them with: \
cargo install --locked --path crates/monolite-cli --features developer";

/// A verb that this build is without.
#[derive(Debug)]
struct NotBuilt;

impl fmt::Display for NotBuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HOW)
    }
}

impl std::error::Error for NotBuilt {}

pub(crate) mod arguments {
    use clap::Args;
    use std::ffi::OsString;

    /// Whatever is said behind the verb.
    #[derive(Args, Debug)]
    #[command(disable_help_flag = true)]
    pub(crate) struct Words {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        words: Vec<OsString>,
    }

    pub(crate) type Bench = Words;
    pub(crate) type Torture = Words;
    pub(crate) type Conform = Words;

    pub(crate) const TORTURE_HELP: &str = super::HOW;
    pub(crate) const CONFORM_HELP: &str = super::HOW;
    pub(crate) const CONFORM_EXAMPLE: &str = "";
}

pub(crate) fn play_role() {}

pub(crate) fn bench(_: &arguments::Bench) -> Result<()> {
    Err(NotBuilt.into())
}

pub(crate) fn torture(words: &arguments::Torture) -> Result<()> {
    bench(words)
}

pub(crate) fn conform(words: &arguments::Conform) -> Result<()> {
    bench(words)
}

/// Whether a verb was asked for that this build is without.
pub(crate) fn is_absent(error: &anyhow::Error) -> bool {
    error.is::<NotBuilt>()
}
