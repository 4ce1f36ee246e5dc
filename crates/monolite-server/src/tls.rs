//! Owns the server's certificate, which is read again when its files change.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsConfig;
use crate::files::{Changes, ConfigError};
use crate::log;

pub(crate) struct Tls {
    files: TlsConfig,
    current: Mutex<Arc<ServerConfig>>,
    changes: Changes,
}

impl Tls {
    /// Reads the certificate and its key.
    pub(crate) fn load(files: &TlsConfig) -> Result<Tls, ConfigError> {
        let changes = Changes::of(vec![files.certificate.clone(), files.key.clone()]);
        let current = Mutex::new(read(files)?);
        Ok(Tls { files: files.clone(), current, changes })
    }

    /// Accepts connections with the certificate of now.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.current()).into()
    }

    /// Reads the files again if they have changed. If they are wrong, the old certificate stays.
    pub(crate) fn reload(&self) {
        if self.changes.happened() {
            match read(&self.files) {
                Ok(config) => *self.current() = config,
                Err(error) => log::error(&format!("the old certificate stays: {error}")),
            }
        }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Arc<ServerConfig>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(files: &TlsConfig) -> Result<Arc<ServerConfig>, ConfigError> {
    let wrong = |path: &Path, error: &dyn std::fmt::Display| {
        ConfigError(format!("{}: {error}", path.display()))
    };
    let TlsConfig { certificate, key } = files;
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<CertificateDer<'static>> = chain.map_err(|error| wrong(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder
        .map_err(|error| wrong(certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| wrong(certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
