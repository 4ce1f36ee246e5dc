//! Stub until the branch auth is merged.
#![allow(missing_docs)]
use std::time::SystemTime;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    ReadOnly,
    ReadWrite,
}
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub struct AuthConfig {}
#[derive(Debug)]
pub struct Authenticator;
#[derive(Clone, Debug)]
pub struct Principal {
    pub name: String,
    pub id: u64,
}
#[derive(Debug)]
pub struct Refusal;
impl Refusal {
    pub fn code(&self) -> &'static str {
        "AUTH_JWT_INVALID"
    }
}
impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")
    }
}
impl Authenticator {
    pub fn load(_: &AuthConfig) -> Result<Authenticator, String> {
        Ok(Authenticator)
    }
    pub fn none() -> Authenticator {
        Authenticator
    }
    pub fn authenticate(&self, _: Option<&str>, _: SystemTime) -> Result<Principal, Refusal> {
        Ok(Principal { name: "anyone".into(), id: 1 })
    }
}
impl Principal {
    pub fn right(&self, _: &str) -> Option<Right> {
        Some(Right::ReadWrite)
    }
}
