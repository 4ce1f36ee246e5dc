//! `monolite serve`: serves databases over the network until it is stopped. `monolite token`: makes
//! a token for a client of it.

use std::io::Write as _;
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use monolite_server::{ArchiveConfig, Config, FollowConfig, Right, Server, issue_token};
use sd_notify::NotifyState;
use tokio::runtime::Runtime;

use crate::arguments;
use crate::interrupt;
use crate::out::stdout;

/// Variables of other programs: the shell, the runner of the tests, and what runs at a change of
/// role, which start a server.
const OTHERS: [&str; 8] = [
    "MONOLITE_TOKEN",
    "MONOLITE_SEED",
    "MONOLITE_SKIPS",
    "MONOLITE_BLESS",
    "MONOLITE_ROLE",
    "MONOLITE_EPOCH",
    "MONOLITE_ADDRESS",
    "MONOLITE_TAKEOVERS",
];

/// Serves until the first signal.
pub(crate) fn run(arguments: &arguments::Serve) -> Result<()> {
    let config = config(arguments)?;
    let server = Server::new(&config)?;
    if arguments.check_config {
        writeln!(stdout(), "the configuration is right")?;
        return Ok(());
    }
    monolite_sqlite::return_large_blocks();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stop = std::sync::Mutex::new(Some(stop));
    interrupt::on_signal(interrupt::STOPPING, move || {
        let stop = stop.lock().ok().and_then(|mut stop| stop.take());
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        let _ = stop.map(|stop| stop.send(()));
    })?;
    let runtime = Runtime::new().context("the threads of the server do not start")?;
    let served = runtime.block_on(async {
        let mut stopped = std::pin::pin!(stopped);
        let listening = tokio::select! {
            listening = server.listen() => listening.context("the server does not begin")?,
            _ = &mut stopped => return Ok(()),
        };
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        writeln!(stdout(), "serving {scheme}://{}", listening.address()?)?;
        if let Some(admin) = listening.admin_address()? {
            writeln!(stdout(), "figures and dashboard at http://{admin}")?;
        }
        // Without a service manager, nothing is said.
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        server.serve(listening, async { drop(stopped.await) }).await;
        Ok(())
    });
    // A fork that is under way is not waited for.
    runtime.shutdown_background();
    served
}

/// That of the file and the environment, with the arguments over it.
fn config(arguments: &arguments::Serve) -> Result<Config> {
    let mut environment = Vec::new();
    for (name, value) in std::env::vars_os() {
        // One that is no text is another program's.
        let Ok(name) = name.into_string() else { continue };
        if !name.starts_with("MONOLITE_") || OTHERS.contains(&&*name) {
            continue;
        }
        let value = value.into_string();
        environment.push((name.clone(), value.map_err(|_| anyhow!("{name} is not UTF-8"))?));
    }
    let mut config = Config::read(arguments.config.as_deref(), environment)?;
    let arguments::Serve { file, dir, follow, archive, lease, address, takeover, .. } = arguments;
    let arguments::Serve { listen, admin, stream_listen, stream_secret_file: secret, .. } =
        arguments;
    if file.is_some() || dir.is_some() {
        (config.file, config.directory) = (file.clone(), dir.clone());
    }
    if let Some(url) = follow {
        config.follow.get_or_insert_with(|| FollowConfig::of(url)).url.clone_from(url);
    }
    if let Some(url) = archive {
        config.archive.get_or_insert_with(|| ArchiveConfig::of_url(url)).url.clone_from(url);
    }
    if let Some(follow) = &mut config.follow {
        follow.stream_secret_file = secret.clone().or(follow.stream_secret_file.take());
    }
    match &mut config.archive {
        Some(archive) => {
            archive.stream_listen = stream_listen.clone().or(archive.stream_listen.take());
            archive.stream_secret_file = secret.clone().or(archive.stream_secret_file.take());
            archive.takeover |= takeover;
            archive.address = address.clone().or(archive.address.take());
            let seconds = lease.and_then(|lease| u32::try_from(lease.as_secs()).ok());
            archive.lease_seconds = seconds.and_then(NonZeroU32::new).or(archive.lease_seconds);
        }
        None if *takeover || lease.is_some() || address.is_some() || stream_listen.is_some() => {
            bail!(
                "--lease, --address, --takeover and --stream-listen are of an archive: add \
                 --archive URL"
            )
        }
        None if config.follow.is_none() && secret.is_some() => {
            bail!("--stream-secret-file is of an archive or a replica: add --archive or --follow")
        }
        None => {}
    }
    config.listen = listen.unwrap_or(config.listen);
    config.admin = admin.or(config.admin);
    Ok(config)
}

/// Makes a token, and prints it.
pub(crate) fn run_token(arguments: &arguments::Token) -> Result<()> {
    let arguments::Token { name, file, read_only, database, days } = arguments;
    let right = if *read_only { Right::ReadOnly } else { Right::ReadWrite };
    let databases = (!database.is_empty()).then(|| database.clone());
    let lasts = days.map(|days| Duration::from_secs(u64::from(days) * 86_400));
    let token = issue_token(file, name, right, databases, lasts)?;
    writeln!(stdout(), "{token}")?;
    Ok(())
}
