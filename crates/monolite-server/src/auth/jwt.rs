//! Owns JWTs: who has signed one, and what it says (RFC 7515, 7519, 8037).
//!
//! The signature is `ring`'s work. Around it is no choice to be made wrong: the algorithm is
//! Ed25519, whatever a token names, and the keys are public ones of files. `jsonwebtoken` would
//! bring RSA and two more curves, or ask each program that embeds the server for a provider of
//! cryptography.

use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ED25519, UnparsedPublicKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

use super::{Grant, Kind, Principal, Refusal, Right, text_of};
use crate::files::ConfigError;

/// How far the clocks of two machines may be apart.
const LEEWAY: Duration = Duration::from_secs(60);

/// What stands before the 32 bytes of a key of Ed25519 in DER (RFC 8410).
const DER_OF_ED25519: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// The keys of those whose tokens are good.
#[derive(Default)]
pub(super) struct Keys(Vec<UnparsedPublicKey<[u8; 32]>>);

#[derive(Deserialize)]
struct Header {
    alg: String,
    /// What must be understood, of which nothing is.
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<u64>,
    nbf: Option<u64>,
    sub: Option<String>,
    /// The one database; of sqld.
    id: Option<String>,
    /// The right; of sqld.
    a: Option<Right>,
    /// The rights to databases by their names; of sqld.
    p: Option<Rights>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Rights {
    ro: Option<Names>,
    roa: Option<Names>,
    rw: Option<Names>,
}

#[derive(Deserialize)]
struct Names {
    #[serde(default)]
    ns: Vec<String>,
}

impl Keys {
    /// Those of a file.
    pub(super) fn read(path: &Path) -> Result<Keys, ConfigError> {
        let text = text_of(path)?;
        let wrong = |why: &str| {
            ConfigError(format!(
                "{}: {why}; it must be PEM with a PUBLIC KEY of Ed25519, or one of 32 bytes in \
                 base64url",
                path.display()
            ))
        };
        if !text.contains("-----BEGIN") {
            let key = URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('='));
            let key: [u8; 32] = key
                .ok()
                .and_then(|key| key.try_into().ok())
                .ok_or_else(|| wrong("it is no key"))?;
            return Ok(Keys(vec![UnparsedPublicKey::new(&ED25519, key)]));
        }
        let mut keys = Vec::new();
        for der in SubjectPublicKeyInfoDer::pem_slice_iter(text.as_bytes()) {
            let der = der.map_err(|error| wrong(&error.to_string()))?;
            let key = der.strip_prefix(&DER_OF_ED25519).and_then(|key| key.try_into().ok());
            let key = key.ok_or_else(|| wrong("a key of another kind"))?;
            keys.push(UnparsedPublicKey::new(&ED25519, key));
        }
        if keys.is_empty() {
            return Err(wrong("it has no PUBLIC KEY"));
        }
        Ok(Keys(keys))
    }

    /// Whose token it is, if one of the keys has signed it and its time is now. `default` is the
    /// right of one that names none.
    pub(super) fn verify(
        &self,
        token: &str,
        now: SystemTime,
        default: Right,
    ) -> Result<Principal, Refusal> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Refusal::Invalid)?;
        let (header, claims) = signed.split_once('.').ok_or(Refusal::Invalid)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| Refusal::Invalid);
        let header: Header = read(&decode(header)?)?;
        if header.alg != "EdDSA" || header.crit.is_some() {
            return Err(Refusal::Invalid);
        }
        let signature = decode(signature)?;
        let is_of =
            |key: &&UnparsedPublicKey<[u8; 32]>| key.verify(signed.as_bytes(), &signature).is_ok();
        let number = self.0.iter().position(|key| is_of(&key)).ok_or(Refusal::Invalid)?;
        let claims: Claims = read(&decode(claims)?)?;
        let time = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let end = |exp| time(exp).and_then(|exp| exp.checked_add(LEEWAY)).ok_or(Refusal::Invalid);
        let expires = claims.exp.map(end).transpose()?;
        if expires.is_some_and(|expires| expires < now) {
            return Err(Refusal::Expired);
        }
        if claims.nbf.is_some_and(|nbf| time(nbf).is_none_or(|nbf| nbf > now + LEEWAY)) {
            return Err(Refusal::Early);
        }
        let counted = format!("key {}", number + 1);
        let name = claims.sub.clone().unwrap_or_else(|| counted.clone());
        let is_by_default = claims.a.is_none() && claims.p.is_none();
        let principal = Principal::new(Kind::Signed, &name, claims.grants(default));
        Ok(Principal { counted, is_by_default, ..principal })
    }
}

fn read<T: for<'t> Deserialize<'t>>(json: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(json).map_err(|_| Refusal::Invalid)
}

impl Claims {
    fn grants(self, default: Right) -> Vec<Grant> {
        let Claims { id, a, p, .. } = self;
        // As in sqld, it stands for the other two.
        let Some(Rights { ro, roa, rw }) = p else {
            let databases = id.map(|id| vec![id]);
            return vec![Grant { right: a.unwrap_or(default), databases }];
        };
        let of = |names: Option<Names>, right| {
            names.map(|names| Grant { right, databases: Some(names.ns) })
        };
        let grants = [of(rw, Right::ReadWrite), of(ro, Right::ReadOnly), of(roa, Right::ReadOnly)];
        grants.into_iter().flatten().collect()
    }
}
