//! Owns the configuration: one file of TOML, and the environment over it.
//!
//! # Format
//! `MONOLITE_LISTEN` stands for `listen`, and `MONOLITE_TLS__KEY` for `key` in `[tls]`. A value is
//! taken as TOML where it is TOML, and as a text otherwise.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use monolite::archive::names;
use monolite_archive::internals::follows;
use serde::Deserialize;

use crate::archives::ArchiveConfig;
use crate::auth::AuthConfig;
use crate::databases::Data;
use crate::files::ConfigError;
use crate::replicas::FollowConfig;

/// What a database begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The longest path of a socket that has room for `.new` behind it.
const SOCKET_BYTES: usize = 103;

/// What begins the names of variables that override the file.
const PREFIX: &str = "MONOLITE_";

/// How a server is set up.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Config {
    /// Where to listen; a port of 0 takes a free one. Default: `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// Where operators find figures and the dashboard: on this machine only. Default: nowhere.
    pub admin: Option<SocketAddr>,
    /// The one database to serve.
    pub file: Option<PathBuf>,
    /// Or the directory whose files `NAME.db` are the databases.
    pub directory: Option<PathBuf>,
    /// Where the databases are archived. Default: nowhere.
    pub archive: Option<ArchiveConfig>,
    /// Which archive of another server the databases follow; they only read then. Default: none.
    pub follow: Option<FollowConfig>,
    /// Who may do what. Without it, all who reach the address may do everything.
    pub auth: Option<AuthConfig>,
    /// The server's certificate; without it, the server speaks plain HTTP.
    pub tls: Option<TlsConfig>,
    /// Whether plain HTTP may be served to other machines: a proxy in front has the certificate.
    pub plaintext: bool,
    /// Path of the Unix socket by which the next process with it takes over from this one, without
    /// a request that fails. Default: there is none.
    pub handover: Option<PathBuf>,
}

/// Files in PEM.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TlsConfig {
    /// The certificate and those up to the root, the server's first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            admin: None,
            file: None,
            directory: None,
            archive: None,
            follow: None,
            auth: None,
            tls: None,
            plaintext: false,
            handover: None,
        }
    }
}

impl Config {
    /// That of a file, with the variables of `environment` over it.
    ///
    /// # Errors
    /// When the file cannot be read or is wrong, with the line; when a variable is wrong.
    pub fn read(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Config, ConfigError> {
        let table = match file {
            Some(file) => {
                let name = file.display();
                let text = std::fs::read_to_string(file)
                    .map_err(|error| ConfigError(format!("{name} cannot be read: {error}")))?;
                let wrong = |error| ConfigError(format!("{name}: {error}"));
                // With the lines of the file in its errors.
                toml::from_str::<Config>(&text).map_err(wrong)?;
                text.parse().map_err(wrong)?
            }
            None => toml::Table::new(),
        };
        let mut table = table;
        let mut names = Vec::new();
        for (name, value) in environment {
            if let Some(path) = name.strip_prefix(PREFIX) {
                put(&mut table, &path.to_ascii_lowercase(), &value);
                names.push(name);
            }
        }
        table.try_into().map_err(|error| {
            ConfigError(format!("{error} (with the variables {})", names.join(", ")))
        })
    }

    /// Where the databases are, if the whole makes sense.
    ///
    /// # Errors
    /// When it does not, or would let strangers in. What is wrong is named, with what to do.
    pub fn check(&self) -> Result<Data, ConfigError> {
        let refuse = |why: String| Err(ConfigError(why));
        let Config {
            listen,
            admin,
            file,
            directory,
            archive,
            follow,
            auth,
            tls,
            plaintext,
            handover,
            ..
        } = self;
        if let Some(admin) = admin.filter(|admin| !admin.ip().is_loopback()) {
            return refuse(format!(
                "admin = {admin} can be reached from other machines, and asks for no token; listen \
                 on 127.0.0.1, and reach it by ssh -L"
            ));
        }
        if let Some(admin) = admin.filter(|admin| collide(*listen, *admin)) {
            return refuse(format!("listen = {listen} takes admin = {admin}; take two ports"));
        }
        if !listen.ip().is_loopback() {
            if auth.is_none() {
                return refuse(format!(
                    "{listen} can be reached from other machines, and nothing says who may do \
                     what; add [auth], or listen on 127.0.0.1"
                ));
            }
            if tls.is_none() && !plaintext {
                return refuse(format!(
                    "{listen} can be reached from other machines, and tokens would cross the \
                     network in the clear; add [tls], or set plaintext = true behind a proxy that \
                     has the certificate"
                ));
            }
        }
        self.check_archive()?;
        if let Some(path) = handover {
            check_handover(path)?;
            if file.as_deref().is_some_and(|file| is_same(path, file)) {
                let path = path.display();
                return refuse(format!("handover = {path} is the database; take another path"));
            }
        }
        match (file, directory) {
            (Some(file), None) => {
                check_file(file)?;
                // Where servers take turns it may be either.
                if !archive.as_ref().is_some_and(|archive| archive.takeover) {
                    check_follows(file, follow.is_some())?;
                }
                Ok(Data::File(file.clone()))
            }
            (None, Some(directory)) if directory.is_dir() => Ok(Data::Directory(directory.clone())),
            (None, Some(directory)) => {
                refuse(format!("{} is no directory; create it first", directory.display()))
            }
            (Some(_), Some(_)) => refuse("set either file or directory, not both".into()),
            (None, None) => refuse("set file (one database) or directory (many)".into()),
        }
    }

    /// Sees that what is archived or followed can be, apart from the databases.
    fn check_archive(&self) -> Result<(), ConfigError> {
        let refuse = |why: String| Err(ConfigError(why));
        let Config { file, directory, archive, follow, .. } = self;
        let followed = follow.as_ref().map(FollowConfig::archive);
        let (section, archive) = match (archive, &followed) {
            (None, None) => return Ok(()),
            (Some(archive), None) => ("[archive]", archive),
            (None, Some(followed)) => ("[follow]", followed),
            (Some(_), Some(_)) => {
                return refuse(
                    "[archive] and [follow] are set; a primary has [archive], and a replica \
                     [follow]: take one of them out"
                        .into(),
                );
            }
        };
        if let Some(seconds) = archive.lease_seconds.filter(|seconds| seconds.get() > 3_600) {
            return refuse(format!(
                "lease_seconds = {seconds} in {section}: a lease has 1 to 3600"
            ));
        }
        if archive.takeover && directory.is_some() {
            return refuse("takeover in [archive] is for one database; set file".into());
        }
        if archive.exec.is_some() && !archive.takeover {
            return refuse("exec in [archive] is of a takeover; add takeover = true".into());
        }
        if followed.is_none() {
            check_stream(archive, directory.is_some())?;
        }
        let wrong = |error| ConfigError(format!("{section}: {error}"));
        archive.of(directory.as_ref().map(|_| "name")).map_err(wrong)?;
        let place = archive.directory();
        if let Some(place) = place.filter(|place| place.exists() && !place.is_dir()) {
            let place = place.display();
            return refuse(format!("url in {section}: {place} is no directory; name another"));
        }
        let own = file.as_deref().map(|file| names::with_ending(file, names::ARCHIVE));
        let mut taken = [file, &own, directory].into_iter().flatten();
        let is_taken = |taken: &&PathBuf| place.is_some_and(|place| is_same(place, taken));
        if let Some(taken) = taken.find(is_taken) {
            let taken = taken.display();
            return refuse(format!(
                "url in {section}: the databases have {taken}; name a directory of its own, \
                 best on another disk"
            ));
        }
        Ok(())
    }
}

/// Sees that what a primary says of servers that stream from it goes together.
fn check_stream(archive: &ArchiveConfig, are_many: bool) -> Result<(), ConfigError> {
    let waits = archive.replicated_writes.is_some();
    let why = match (&archive.stream_listen, &archive.stream_secret_file) {
        (Some(_), _) if are_many => "stream_listen in [archive] is for one database; set file",
        (Some(_), None) => {
            "stream_listen in [archive] needs a secret; add stream_secret_file, a file of 16 \
             random bytes or more, the same on all machines"
        }
        (None, Some(_)) => "stream_secret_file in [archive] is of a primary; add stream_listen",
        (None, None) if waits => {
            "replicated_writes in [archive] waits for servers that stream; add stream_listen"
        }
        _ if waits && archive.archived_writes => {
            "archived_writes and replicated_writes are set in [archive]; take one of them out"
        }
        _ => return Ok(()),
    };
    Err(ConfigError(why.into()))
}

/// Whether two sockets cannot have these addresses.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && (is_any || one.ip() == other.ip())
}

fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    whole(one) == whole(other)
}

/// Sees that there can be a file at `path`, which `key` says.
fn check_place(key: &str, path: &Path) -> Result<(), ConfigError> {
    let parent = path
        .parent()
        .ok_or_else(|| ConfigError(format!("{key} = {path:?} names no file; write its path")))?;
    let parent = if parent == Path::new("") { Path::new(".") } else { parent };
    if !parent.is_dir() {
        let (path, parent) = (path.display(), parent.display());
        let message = format!("{key} = {path}: {parent} is no directory; create it first");
        return Err(ConfigError(message));
    }
    Ok(())
}

fn check_file(file: &Path) -> Result<(), ConfigError> {
    check_place("file", file)?;
    let name = file.display();
    if file.is_dir() {
        let message = format!("file = {name} is a directory; name a file, or set directory");
        return Err(ConfigError(message));
    }
    let mut head = [0; MAGIC.len()];
    let mut read = || std::fs::File::open(file)?.read_exact(&mut head);
    if file.is_file() && read().is_ok() && head != *MAGIC {
        let message = format!("file = {name} is no database of SQLite; name another");
        return Err(ConfigError(message));
    }
    Ok(())
}

/// Sees that the server is for the file what it was made for: a replica's or a primary's.
fn check_follows(file: &Path, follow: bool) -> Result<(), ConfigError> {
    let name = file.display();
    match (follow, follows(file)) {
        // One with such a directory was a primary's: it can follow another one.
        (true, false) if file.exists() && !names::with_ending(file, names::ARCHIVE).exists() => {
            Err(ConfigError(format!(
                "file = {name} is there, and follows nothing; name a new file, or take [follow] out"
            )))
        }
        (false, true) if file.exists() => Err(ConfigError(format!(
            "file = {name} is a replica's; add [follow] (--follow URL), or name another file. To \
             write to it from now on, and not follow any more, delete {name}-archive"
        ))),
        _ => Ok(()),
    }
}

/// The server puts a socket there, in the place of what there is.
fn check_handover(path: &Path) -> Result<(), ConfigError> {
    check_place("handover", path)?;
    if path.as_os_str().len() > SOCKET_BYTES {
        let name = path.display();
        let message =
            format!("handover = {name} has over {SOCKET_BYTES} bytes; take a shorter path");
        return Err(ConfigError(message));
    }
    let new = names::with_ending(path, ".new");
    for path in [path, &new] {
        if path.symlink_metadata().is_ok_and(|it| !it.file_type().is_socket()) {
            let name = path.display();
            let message = format!("handover: {name} is there, and no socket; take another path");
            return Err(ConfigError(message));
        }
    }
    Ok(())
}

/// Puts `value` at `path`, whose parts `__` divides.
fn put(table: &mut toml::Table, path: &str, value: &str) {
    let Some((section, rest)) = path.split_once("__") else {
        let as_toml = format!("value = {value}").parse::<toml::Table>();
        let as_toml = as_toml.ok().and_then(|mut table| table.remove("value"));
        let value = as_toml.unwrap_or_else(|| toml::Value::String(value.to_owned()));
        table.insert(path.to_owned(), value);
        return;
    };
    let section = table.entry(section).or_insert_with(|| toml::Table::new().into());
    if let toml::Value::Table(section) = section {
        put(section, rest, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_environment_is_over_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("monolite.toml");
        std::fs::write(&path, "listen = \"127.0.0.1:1\"\nfile = \"a.db\"\n").expect("a file");
        let over = [("MONOLITE_LISTEN", "127.0.0.1:2"), ("MONOLITE_PLAINTEXT", "true")];
        let config = Config::read(Some(&path), variables(&over)).expect("it is right");
        assert_eq!((config.listen.port(), config.plaintext), (2, true));
        assert!(matches!(config.check(), Ok(Data::File(file)) if file == Path::new("a.db")));
        let tls = [("MONOLITE_TLS__KEY", "k.pem"), ("MONOLITE_TLS__CERTIFICATE", "c.pem")];
        let config = Config::read(Some(&path), variables(&tls)).expect("it is right");
        assert_eq!(config.tls.expect("a section").key, Path::new("k.pem"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("monolite.toml");
        std::fs::write(&path, "listne = \"x\"\n").expect("a file");
        let error = Config::read(Some(&path), Vec::new()).expect_err("it is wrong").to_string();
        assert!(error.contains("listne") && error.contains("monolite.toml"), "{error}");
        let wrong = variables(&[("MONOLITE_LISTEN", "here")]);
        let error = Config::read(None, wrong).expect_err("it is wrong").to_string();
        assert!(error.contains("MONOLITE_LISTEN"), "{error}");
        assert!(Config::default().check().is_err(), "no database");
    }

    #[test]
    fn what_the_start_would_refuse_is_named_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(at("text"), "no database, and no socket").expect("a file");
        std::fs::write(at("sock.new"), "no socket").expect("a file");
        for file in ["plain.db", "copy.db", "copy.db-archive/follows.json"] {
            let path = directory.path().join(file);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
            std::fs::write(path, "").expect("a file");
        }
        let (one, text, here) = (at("one.db"), at("text"), at(""));
        let of = |all: &[(&str, &str)]| {
            let is_set = |name| all.iter().any(|(set, _)| *set == name);
            let mut all = variables(all);
            if !is_set("MONOLITE_FILE") && !is_set("MONOLITE_DIRECTORY") {
                all.push(("MONOLITE_FILE".into(), one.clone()));
            }
            Config::read(None, all).expect("it is right").check().map(drop)
        };
        let listen = |address| ("MONOLITE_LISTEN", address);
        let admin = ("MONOLITE_ADMIN", "127.0.0.1:1");
        for (variables, named) in [
            (&[listen("127.0.0.1:1"), admin][..], "admin = 127.0.0.1:1"),
            (&[("MONOLITE_FILE", "")], "file = \"\""),
            (&[("MONOLITE_FILE", &here)], "is a directory"),
            (&[("MONOLITE_FILE", &at("no/one.db"))], "create it first"),
            (&[("MONOLITE_FILE", &text)], "no database"),
            (&[("MONOLITE_HANDOVER", "")], "handover = \"\""),
            (&[("MONOLITE_HANDOVER", &at("no/sock"))], "create it first"),
            (&[("MONOLITE_HANDOVER", &at(&"long".repeat(25)))], "over 103 bytes"),
            (&[("MONOLITE_HANDOVER", &here)], "no socket"),
            (&[("MONOLITE_HANDOVER", &text)], "no socket"),
            (&[("MONOLITE_HANDOVER", &at("sock"))], "sock.new"),
            (&[("MONOLITE_HANDOVER", &one)], "is the database"),
            (&[("MONOLITE_ARCHIVE__URL", &text)], "no directory"),
            (&[("MONOLITE_ARCHIVE__URL", &at("one.db"))], "one.db"),
            (&[("MONOLITE_ARCHIVE__URL", &at("one.db-archive"))], "one.db-archive"),
            (&[("MONOLITE_FOLLOW__URL", &at("one.db"))], "url in [follow]"),
            (
                &[("MONOLITE_FOLLOW__URL", &at("a")), ("MONOLITE_ARCHIVE__URL", &at("b"))],
                "take one of them out",
            ),
            (
                &[("MONOLITE_FOLLOW__URL", &at("a")), ("MONOLITE_FILE", &at("plain.db"))],
                "follows nothing",
            ),
            (&[("MONOLITE_FILE", &at("copy.db"))], "a replica's"),
            (
                &[
                    ("MONOLITE_ARCHIVE__URL", &format!("file://{here}")),
                    ("MONOLITE_DIRECTORY", &here),
                ],
                "of its own",
            ),
        ] {
            let error = of(variables).expect_err(named).to_string();
            assert!(error.contains(named), "{error}");
        }
        let follow = ("MONOLITE_FOLLOW__URL", &*at("archive"));
        of(&[follow]).expect("it is new");
        of(&[follow, ("MONOLITE_FILE", &at("copy.db"))]).expect("it follows");
        let archive = ("MONOLITE_ARCHIVE__URL", &*at("archive"));
        let socket = ("MONOLITE_HANDOVER", &*at("one.sock"));
        of(&[listen("127.0.0.1:2"), admin, archive, socket]).expect("it is right");
        of(&[listen("127.0.0.1:0"), ("MONOLITE_ADMIN", "127.0.0.1:0")]).expect("two free ports");
        let _bound = std::os::unix::net::UnixListener::bind(at("one.sock")).expect("it is free");
        of(&[socket]).expect("that of the process before");
    }

    #[test]
    fn stream_is_of_one_file_and_has_a_secret() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        let (file, all, url) = (at("one.db"), at(""), at("archive"));
        let (none, short, secret) = (at("none"), at("short"), at("secret"));
        std::fs::write(&short, "fifteen bytes..\n").expect("a file");
        std::fs::write(&secret, "sixteen bytes...\n").expect("a file");
        let of = |is_many: bool, all_of: &[(&str, &str)]| {
            let data = match is_many {
                true => ("MONOLITE_DIRECTORY", &*all),
                false => ("MONOLITE_FILE", &*file),
            };
            Config::read(None, variables(&[&[data], all_of].concat())).expect("it is right").check()
        };
        let archive = ("MONOLITE_ARCHIVE__URL", &*url);
        let listens = ("MONOLITE_ARCHIVE__STREAM_LISTEN", "127.0.0.1:7001");
        let key = "MONOLITE_ARCHIVE__STREAM_SECRET_FILE";
        let waits = ("MONOLITE_ARCHIVE__REPLICATED_WRITES", "1");
        let too = ("MONOLITE_ARCHIVE__ARCHIVED_WRITES", "true");
        for (is_many, variables, named) in [
            (false, &[archive, listens][..], "needs a secret; add stream_secret_file"),
            (false, &[archive, (key, &secret)], "is of a primary; add stream_listen"),
            (false, &[archive, waits], "waits for servers that stream; add stream_listen"),
            (false, &[archive, listens, (key, &secret), waits, too], "take one of them out"),
            (false, &[archive, listens, (key, &none)], "none: No such file"),
            (false, &[archive, listens, (key, &short)], "has 15 bytes; use 16 random ones"),
            (true, &[archive, listens, (key, &secret)], "is for one database; set file"),
        ] {
            let error = of(is_many, variables).expect_err(named).to_string();
            assert!(error.contains(named), "{error}");
        }
        of(false, &[archive, listens, (key, &secret)]).expect("it streams");
    }

    #[test]
    fn strangers_are_not_let_in() {
        let of = |all: &[(&str, &str)]| {
            let all = [all, &[("MONOLITE_FILE", "a.db")]].concat();
            Config::read(None, variables(&all)).expect("it is right").check()
        };
        let listen = ("MONOLITE_LISTEN", "0.0.0.0:1");
        assert!(of(&[("MONOLITE_LISTEN", "[::1]:1")]).is_ok());
        assert!(of(&[listen]).is_err(), "without tokens");
        let auth = ("MONOLITE_AUTH", "{}");
        assert!(of(&[listen, auth]).is_err(), "in the clear");
        assert!(of(&[listen, auth, ("MONOLITE_PLAINTEXT", "true")]).is_ok());
    }
}
