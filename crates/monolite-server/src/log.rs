//! Owns what the server says to its operator: a line on standard error for each event, which the
//! service manager gives its time.

/// Tells what the operator must know: what has failed, and changes of the role.
#[expect(clippy::print_stderr, reason = "it is where the service manager reads")]
pub(crate) fn error(what: &str) {
    eprintln!("monolite: {what}");
}
