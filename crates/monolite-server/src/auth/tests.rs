//! Tokens of each kind, good and bad.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::*;

const NOW: u64 = 1_800_000_000;

/// A moment of the year 2027.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
}

struct Signer(Ed25519KeyPair);

impl Signer {
    fn new() -> Signer {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Signer(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    fn pem(&self) -> String {
        let prefix = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
        let der = [&prefix, self.0.public_key().as_ref()].concat();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let signed = signed(header, claims);
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn good(&self, claims: &Value) -> String {
        self.token(&json!({ "alg": "EdDSA", "typ": "JWT" }), claims)
    }
}

fn signed(header: &Value, claims: &Value) -> String {
    let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    format!("{}.{}", part(header), part(claims))
}

fn keeper(directory: &Path, keys: &str) -> Authenticator {
    let file = directory.join("keys.pem");
    std::fs::write(&file, keys).unwrap();
    let config = AuthConfig { jwt_key_file: Some(file), ..AuthConfig::default() };
    Authenticator::load(&config).unwrap()
}

fn refusal(authenticator: &Authenticator, token: Option<&str>) -> Option<Refusal> {
    authenticator.authenticate_at(now(), token).err()
}

#[test]
fn only_tokens_that_a_key_of_the_file_has_signed_are_good() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two, stranger) = (Signer::new(), Signer::new(), Signer::new());
    let authenticator = keeper(directory.path(), &(one.pem() + &two.pem()));
    let claims = json!({ "exp": NOW + 100, "a": "rw" });
    assert_eq!(refusal(&authenticator, Some(&one.good(&claims))), None);
    assert_eq!(refusal(&authenticator, Some(&two.good(&claims))), None, "keys are rotated so");
    let header = |alg: &str| json!({ "alg": alg });
    let secret = hmac::Key::new(hmac::HMAC_SHA256, one.pem().as_bytes());
    let by_hmac = signed(&header("HS256"), &claims);
    let mac = URL_SAFE_NO_PAD.encode(hmac::sign(&secret, by_hmac.as_bytes()));
    let good = one.good(&claims);
    let none = format!("{}.", signed(&header("none"), &claims));
    let other = URL_SAFE_NO_PAD.encode(json!({ "a": "rw", "exp": NOW + 999 }).to_string());
    let parts: Vec<&str> = good.split('.').collect();
    for bad in [
        stranger.good(&claims),
        one.token(&header("RS256"), &claims),
        one.token(&header("none"), &claims),
        one.token(&json!({ "alg": "EdDSA", "crit": ["x"] }), &claims),
        format!("{by_hmac}.{mac}"),
        none,
        format!("{}.{other}.{}", parts[0], parts[2]),
        good[..good.len() - 2].to_owned(),
        format!("{good}="),
        format!("{}.{good}", parts[0]),
        String::new(),
        "..".to_owned(),
        "mono_AAAA".to_owned(),
    ] {
        assert_eq!(refusal(&authenticator, Some(&bad)), Some(Refusal::Invalid), "{bad}");
    }
    assert_eq!(refusal(&authenticator, None), Some(Refusal::Missing));
    let at = |exp: i64, nbf: i64| {
        let at = |offset| (NOW as i64 + offset) as u64;
        let claims = json!({ "exp": at(exp), "nbf": at(nbf) });
        refusal(&authenticator, Some(&one.good(&claims)))
    };
    assert_eq!(
        (at(-59, 59), at(-61, 0), at(100, 61)),
        (None, Some(Refusal::Expired), Some(Refusal::Early))
    );
    for forever in [u64::MAX, i64::MAX as u64, i64::MAX as u64 - 1] {
        let forever = one.good(&json!({ "exp": forever }));
        assert_eq!(refusal(&authenticator, Some(&forever)), Some(Refusal::Invalid));
    }
}

#[test]
fn a_token_gives_the_rights_that_it_names() {
    let directory = tempfile::tempdir().unwrap();
    let signer = Signer::new();
    let authenticator = keeper(directory.path(), &signer.pem());
    let of = |claims: Value, database: &str| {
        let principal = authenticator.authenticate_at(now(), Some(&signer.good(&claims))).unwrap();
        principal.right(database)
    };
    let (read, write) = (Some(Right::ReadOnly), Some(Right::ReadWrite));
    assert_eq!(of(json!({}), "shop"), read, "it names none");
    assert_eq!(of(json!({ "a": "rw" }), "shop"), write);
    assert_eq!(of(json!({ "a": "roa" }), "shop"), read);
    assert_eq!(of(json!({ "a": "rw", "id": "shop" }), "shop"), write);
    assert_eq!(of(json!({ "a": "rw", "id": "shop" }), "log"), None);
    let rights = json!({ "p": { "rw": { "ns": ["shop"] }, "ro": { "ns": ["log", "shop"] } } });
    assert_eq!(of(rights.clone(), "shop"), write);
    assert_eq!(of(rights.clone(), "log"), read);
    assert_eq!(of(rights, "other"), None);
    let mixed = json!({ "a": "rw", "id": "log", "p": { "ro": { "ns": ["shop"] } } });
    assert_eq!((of(mixed.clone(), "shop"), of(mixed, "log")), (read, None));
    let unknown = signer.good(&json!({ "a": "admin" }));
    assert_eq!(refusal(&authenticator, Some(&unknown)), Some(Refusal::Invalid));
}

#[test]
fn a_token_of_the_server_is_kept_as_a_hash() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    let shop = Some(vec!["shop".to_owned()]);
    let hour = Duration::from_secs(3_600);
    let token = issue_token(&file, "checkout", Right::ReadWrite, shop, Some(hour)).unwrap();
    let reader = issue_token(&file, "reports", Right::ReadOnly, None, None).unwrap();
    assert!(issue_token(&file, "reports", Right::ReadOnly, None, None).is_err(), "in use");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&token) && !text.contains(&token[5..]));
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let config = AuthConfig { token_file: Some(file.clone()), ..AuthConfig::default() };
    let authenticator = Authenticator::load(&config).unwrap();
    let principal = authenticator.authenticate(Some(&token)).unwrap();
    assert_eq!(principal.name, "checkout");
    assert_eq!(principal.right("shop"), Some(Right::ReadWrite));
    assert_eq!(principal.right("log"), None);
    let principal = authenticator.authenticate_at(now(), Some(&reader)).unwrap();
    assert_eq!(principal.right("log"), Some(Right::ReadOnly));
    let later = SystemTime::now() + 2 * hour;
    assert_eq!(authenticator.authenticate_at(later, Some(&token)).err(), Some(Refusal::Expired));
    assert_eq!(refusal(&authenticator, Some(&token[..40])), Some(Refusal::Invalid));
}

/// Names of the tokens in a file.
fn names(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("name = "));
    names.map(|name| name.trim_matches('"').to_owned()).collect()
}

fn issue(file: &Path, name: &str) {
    issue_token(file, name, Right::ReadOnly, None, None).unwrap();
}

#[test]
fn tokens_made_at_once_are_all_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let file = &file;
            scope.spawn(move || {
                (0..25).for_each(|number| issue(file, &format!("{thread}-{number}")));
            });
        }
    });
    assert_eq!(names(&file).len(), 100);
}

#[test]
fn a_new_token_leaves_the_rest_of_the_file_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    let mode = |file: &Path| {
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(file).unwrap().permissions())
    };
    let set_mode = |file: &Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(file, mode).unwrap();
    };
    // Of a run that was cut off, and longer than what is written now.
    let beside = directory.path().join("tokens.toml.new");
    std::fs::write(&beside, "x".repeat(10_000)).unwrap();
    set_mode(&beside, 0o666);
    issue(&file, "one");
    assert_eq!(mode(&file) & 0o777, 0o600, "that of what was left does not stay");
    assert!(!beside.exists());

    let before = std::fs::read_to_string(&file).unwrap() + "\n# The shop's, until May.";
    std::fs::write(&file, &before).unwrap();
    set_mode(&file, 0o640);
    issue(&file, "two");
    assert_eq!(mode(&file) & 0o777, 0o640, "the server's group may read it");
    assert!(std::fs::read_to_string(&file).unwrap().starts_with(&before));
    assert_eq!(names(&file), ["one", "two"]);

    std::fs::write(&file, "token = []").unwrap();
    let refused = issue_token(&file, "three", Right::ReadOnly, None, None);
    assert!(refused.is_err(), "the server could not read what would come out");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "token = []");
}

#[test]
fn wrong_files_change_nothing_and_right_ones_do() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (Signer::new(), Signer::new());
    let authenticator = keeper(directory.path(), &one.pem());
    let (first, second) = (one.good(&json!({})), two.good(&json!({})));
    let file = directory.path().join("keys.pem");
    let write = |text: &str, seconds: u64| {
        std::fs::write(&file, text).unwrap();
        let file = std::fs::File::options().append(true).open(&file).unwrap();
        file.set_modified(now() + Duration::from_secs(seconds)).unwrap();
        authenticator.reload();
    };
    write("nothing of a key", 1);
    assert_eq!(refusal(&authenticator, Some(&first)), None);
    write(&two.pem(), 2);
    assert_eq!(refusal(&authenticator, Some(&first)), Some(Refusal::Invalid));
    assert_eq!(refusal(&authenticator, Some(&second)), None);
    assert!(Authenticator::load(&AuthConfig::default()).is_err(), "no token could be good");
}
