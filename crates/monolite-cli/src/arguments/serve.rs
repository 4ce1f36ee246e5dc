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
#[group(id = "data", required = true)]
pub(crate) struct Serve {
    /// The one database to serve; created if it is not there
    #[arg(group = "data")]
    pub(crate) file: Option<PathBuf>,

    /// Serve each file NAME.db of this directory
    #[arg(long, group = "data")]
    pub(crate) dir: Option<PathBuf>,

    /// Address and port to listen on; a port of 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
}
