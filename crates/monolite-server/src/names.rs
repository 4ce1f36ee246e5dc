//! Owns the names under which the engine shows the clients' calls. The engine wants literals, since
//! a name goes with each call; so each is kept for the life of the process, and there is a most.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Most names; those that come later share [`OTHERS`].
const MOST: usize = 1_000;

/// Longest name, in bytes.
const LONGEST: usize = 64;

const OTHERS: &str = "other clients";

/// `name`, cut to its first 64 bytes, for as long as the process lives.
pub(crate) fn kept(name: &str) -> &'static str {
    static NAMES: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
    let end = (0..=LONGEST.min(name.len())).rfind(|at| name.is_char_boundary(*at));
    let name = &name[..end.unwrap_or(0)];
    let names = NAMES.get_or_init(Mutex::default);
    let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = names.get(name) {
        return name;
    }
    if names.len() >= MOST {
        return OTHERS;
    }
    let name: &'static str = name.to_owned().leak();
    names.insert(name);
    name
}

#[test]
fn a_name_is_kept_once_and_cut() {
    let long = "ä".repeat(100);
    assert_eq!(kept(&long).len(), 64);
    assert!(std::ptr::eq(kept("checkout"), kept(&String::from("checkout"))));
}
