//! The arguments of `monolite serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

pub(crate) const SERVE_HELP: &str = "\
Serve databases over the network, for the clients of libSQL

The protocol is Hrana, over HTTP. Unmodified clients of libSQL and their drivers work: set their URL
to the address printed. With --dir, the URL of the database `shop` ends in /db/shop/.

The process has the files to itself while it serves. Ctrl-C ends it: requests under way get five
seconds, and the databases are closed.";

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The one database to serve; created if it is not there
    #[arg(conflicts_with = "dir")]
    pub(crate) file: Option<PathBuf>,

    /// Serve each file NAME.db of this directory
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,

    /// Address and port to listen on; a port of 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long)]
    pub(crate) listen: Option<SocketAddr>,

    /// Address of this machine for figures and the dashboard [default: none]
    #[arg(long)]
    pub(crate) admin: Option<SocketAddr>,

    /// File of TOML with the configuration; MONOLITE_LISTEN in the environment stands for `listen`
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,

    /// Say whether the configuration is right, and end
    #[arg(long)]
    pub(crate) check_config: bool,
}
