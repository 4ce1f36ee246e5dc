//! The arguments of `monolite serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

pub(crate) const SERVE_HELP: &str = "\
Serve databases over the network, for the clients of libSQL

The protocol is Hrana, over HTTP. Unmodified clients of libSQL and their drivers work: set their URL
to the address printed. With --dir, the URL of the database `shop` ends in /db/shop/.

With --takeover several servers have one archive (--archive URL): one is the primary, the others are
replicas, and one of them takes over when the primary is closed or was silent for its --lease.

The process has the files to itself while it serves. Ctrl-C ends it: requests under way get five
seconds, and the databases are closed.";

pub(crate) const TOKEN_HELP: &str = "\
Make a token for a client of `monolite serve`, and add it to a file

The token is printed once; the file keeps what recognises it. Name the file as token_file in [auth]
of the server's configuration. A running server takes notice within some seconds. To end a token,
take its entry out of the file.";

#[derive(Args, Debug)]
pub(crate) struct Token {
    /// Whose it is: the name in figures, logs and the dashboard
    pub(crate) name: String,

    /// The file, created if it is not there
    #[arg(long)]
    pub(crate) file: PathBuf,

    /// It can read, and not write
    #[arg(long)]
    pub(crate) read_only: bool,

    /// A database that it is for; again for others. Without it, the token is for all
    #[arg(long)]
    pub(crate) database: Vec<String>,

    /// Days from now on for which it is good. Without it, it does not end
    #[arg(long)]
    pub(crate) days: Option<u32>,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The one database to serve; created if it is not there
    #[arg(conflicts_with = "dir")]
    pub(crate) file: Option<PathBuf>,

    /// Serve each file NAME.db of this directory
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,

    /// Serve replicas of the archive at this address, for reads; a FILE that is not there is
    /// restored first
    #[arg(long, value_name = "URL")]
    pub(crate) follow: Option<String>,

    /// Archive the databases at this address
    #[arg(long, value_name = "URL", conflicts_with = "follow")]
    pub(crate) archive: Option<String>,

    /// How long this server may be silent before a follower with --takeover takes over, as in 3s
    /// [default: for ever; with --takeover 10s]
    #[arg(long, value_name = "DURATION", value_parser = super::archive::lease)]
    pub(crate) lease: Option<Duration>,

    /// Where clients find this server while it is the primary
    #[arg(long, value_name = "TEXT")]
    pub(crate) address: Option<String>,

    /// Follow the archive while another server is its primary, and take over when that is closed or
    /// silent
    #[arg(long)]
    pub(crate) takeover: bool,

    /// As the primary, let followers stream from this address, within milliseconds: in a private
    /// network, as nothing is encrypted
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) stream_listen: Option<String>,

    /// File with the secret of the stream: 16 random bytes or more, the same on all machines. A
    /// follower streams from where the primary listens
    #[arg(long, value_name = "FILE")]
    pub(crate) stream_secret_file: Option<PathBuf>,

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
