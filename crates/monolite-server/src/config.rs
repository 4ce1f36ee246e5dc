//! Owns the configuration: one file of TOML, and the environment over it.
//!
//! # Format
//! `MONOLITE_LISTEN` stands for `listen`, and `MONOLITE_TLS__KEY` for `key` in `[tls]`. A value is
//! taken as TOML where it is TOML, and as a text otherwise.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::archives::ArchiveConfig;
use crate::auth::AuthConfig;
use crate::databases::Data;
use crate::files::ConfigError;

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
    /// When it does not, or would let strangers in.
    pub fn check(&self) -> Result<Data, ConfigError> {
        let refuse = |why: String| Err(ConfigError(why));
        let Config { listen, admin, file, directory, archive, auth, tls, plaintext, .. } = self;
        if let Some(admin) = admin.filter(|admin| !admin.ip().is_loopback()) {
            return refuse(format!(
                "admin = {admin} can be reached from other machines, and asks for no token; listen \
                 on 127.0.0.1, and reach it by ssh -L"
            ));
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
        if let Some(archive) = archive {
            let wrong = |error| ConfigError(format!("url in [archive]: {error}"));
            archive.of(directory.as_ref().map(|_| "name")).map_err(wrong)?;
        }
        match (file, directory) {
            (Some(file), None) => Ok(Data::File(file.clone())),
            (None, Some(directory)) if directory.is_dir() => Ok(Data::Directory(directory.clone())),
            (None, Some(directory)) => {
                refuse(format!("{} is no directory; create it first", directory.display()))
            }
            (Some(_), Some(_)) => refuse("set either file or directory, not both".into()),
            (None, None) => refuse("set file (one database) or directory (many)".into()),
        }
    }
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
