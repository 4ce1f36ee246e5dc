//! `monolite serve`: serves databases over the network until it is stopped.

use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use monolite_server::{Authenticator, Data, Server};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::arguments;
use crate::interrupt;
use crate::out::stdout;

/// Serves until the first signal.
pub(crate) fn run(arguments: &arguments::Serve) -> Result<()> {
    let listen = arguments.listen;
    ensure!(
        listen.ip().is_loopback(),
        "{listen} can be reached from other machines, and there are no tokens; listen on \
         127.0.0.1, behind a proxy that asks for credentials"
    );
    let data = match (&arguments.file, &arguments.dir) {
        (Some(file), _) => Data::File(file.clone()),
        (None, Some(dir)) => Data::Directory(dir.clone()),
        (None, None) => unreachable!("clap asks for one"),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let stop = std::sync::Mutex::new(Some(stop));
    interrupt::on_signal(move || {
        let stop = stop.lock().ok().and_then(|mut stop| stop.take());
        let _ = stop.map(|stop| stop.send(()));
    })?;
    let runtime = Runtime::new().context("the threads of the server do not start")?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await;
        let listener = listener.with_context(|| format!("{listen} cannot be listened on"))?;
        let address = listener.local_addr()?;
        writeln!(stdout(), "serving http://{address}")?;
        let server = Server::new(data, Authenticator::none());
        let stopped = async move { drop(stopped.await) };
        server.serve(listener, stopped).await.context("the server ended")
    })
}
