//! TLS: the certificate of now, and nothing in the clear.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use monolite_server::TlsConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::served::Served;

/// Puts a new certificate into `directory`; `seconds` make its files differ from those before.
fn certify(directory: &Path, seconds: u64) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.pem();
    let changed = SystemTime::now() + Duration::from_secs(seconds);
    for (name, text) in [("cert.pem", &certificate), ("key.pem", &made.signing_key.serialize_pem())]
    {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        fs::File::options().append(true).open(&path).unwrap().set_modified(changed).unwrap();
    }
    CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()
}

/// What the server answers to one that trusts `root` alone.
fn health(address: &str, root: &CertificateDer<'static>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect(address)?;
    let mut stream = Stream::new(&mut connection, &mut socket);
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_new_certificate_is_taken_without_a_stop() {
    let mut first = None;
    let served = Served::with(|directory, config| {
        first = Some(certify(&directory, 0));
        let file = |name: &str| directory.join(name).display().to_string();
        let tls = format!("certificate = {:?}\nkey = {:?}", file("cert.pem"), file("key.pem"));
        config.tls = Some(toml::from_str::<TlsConfig>(&tls).unwrap());
        config.file = Some(directory.join("a.db"));
    });
    let address = served.url.trim_start_matches("http://");
    let first = first.unwrap();
    assert!(health(address, &first).unwrap().ends_with("ok"));
    assert!(ureq::get(format!("{}/health", served.url)).call().is_err(), "in the clear");

    fs::write(served.directory.path().join("key.pem"), "no key").unwrap();
    let second = certify(served.directory.path(), 10);
    let end = Instant::now() + Duration::from_secs(30);
    while health(address, &second).is_err() {
        assert!(Instant::now() < end, "the new certificate is not taken");
    }
    assert!(health(address, &first).is_err(), "the old one is gone");
}
