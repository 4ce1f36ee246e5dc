//! Owns what load balancers, Prometheus and the log are told of the open databases: whether they
//! are primaries, and how fresh replicas are.

use std::collections::HashMap;

use hyper::{Response, StatusCode};
use monolite_archive::FollowerStats;
use serde_json::json;

use crate::answers::{Body, with_type};
use crate::databases::{OpenNow, primary_of};
use crate::log;
use crate::replicas::{Replica, figures};

/// For a load balancer: whether one of the databases that are `open` is fresh enough. A replica
/// that is not open will be when it is asked.
pub(crate) fn health(open: &[OpenNow], follows: bool) -> Response<Body> {
    let all: Vec<&Replica> = open.iter().filter_map(|open| open.replica.as_ref()).collect();
    if all.is_empty() && !(follows && open.is_empty()) {
        return match is_primary(open, follows) {
            true => with_type(StatusCode::OK, "text/plain", "ok"),
            false => primary(open, follows),
        };
    }
    let fresh = all.iter().filter(|replica| replica.is_fresh).count();
    let ages: Option<Vec<u64>> = all.iter().map(|replica| replica.stats.age_ms).collect();
    let body = json!({
        "role": "replica",
        "open": all.len(),
        "fresh": fresh,
        "age_ms": ages.map(|ages| ages.into_iter().max()),
        "lag_txids": all.iter().map(|it| it.stats.newest.saturating_sub(it.stats.txid)).max(),
        "is_failing": all.iter().any(|replica| replica.stats.last_error.is_some()),
    });
    with_status(all.is_empty() || fresh > 0, &body)
}

/// Whether one of the databases that are `open` takes writes, or will where none is.
fn is_primary(open: &[OpenNow], follows: bool) -> bool {
    open.iter().any(|open| open.elsewhere.is_none()) || (open.is_empty() && !follows)
}

/// For a load balancer: whether writes are taken here, and where else.
pub(crate) fn primary(open: &[OpenNow], follows: bool) -> Response<Body> {
    if is_primary(open, follows) {
        return with_status(true, &json!({ "role": "primary" }));
    }
    let is_replaced = open.iter().any(|open| open.replica.is_none());
    let role = if is_replaced { "replaced" } else { "replica" };
    let primary = Some(primary_of(open)).filter(|primary| !primary.is_empty());
    with_status(false, &json!({ "role": role, "primary": primary }))
}

fn with_status(is_good: bool, body: &serde_json::Value) -> Response<Body> {
    let status = if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    with_type(status, "application/json", body.to_string())
}

/// The figures of the replicas that are open, as Prometheus reads them; of a primary there are
/// none.
pub(crate) fn prometheus(open: &[OpenNow], follows: bool) -> String {
    let (name, is) = ("monolite_server_is_primary", u8::from(is_primary(open, follows)));
    let mut text =
        format!("# HELP {name} Whether it takes writes\n# TYPE {name} gauge\n{name} {is}\n");
    let of = |open: &'_ OpenNow| Some((open.name.clone(), figures(&open.replica.as_ref()?.stats)));
    let all: Vec<_> = open.iter().filter_map(of).collect();
    let names = all.first().map_or_else(Vec::new, |(_, figures)| figures.to_vec());
    for (at, (name, help, _)) in names.into_iter().enumerate() {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let name = format!("monolite_replica_{name}");
        text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (database, figures) in &all {
            if let Some(is) = figures[at].2 {
                text += &format!("{name}{{database=\"{database}\"}} {is}\n");
            }
        }
    }
    text
}

/// What the operator was told of each replica, by its name, and of each archive.
#[derive(Default)]
pub(crate) struct Told {
    replicas: HashMap<String, FollowerStats>,
    archives: HashMap<String, Option<String>>,
}

impl Told {
    /// Tells what has changed of those that are open: which replica it is, why it does not follow
    /// or stream, and why it may not take over; of a primary, why it does not archive.
    pub(crate) fn tell(&mut self, open: Vec<OpenNow>) {
        for OpenNow { name, path, replica, database, .. } in open {
            let tell = |what: &String| log::error(&format!("{}: {what}", path.display()));
            let Some(Replica { stats: now, .. }) = replica else {
                self.replicas.remove(&name);
                let now = database.stats().archive.and_then(|archive| archive.last_error);
                let was = self.archives.entry(name).or_default();
                began_or_ended("archive", was, &now).iter().for_each(tell);
                *was = now;
                continue;
            };
            self.archives.remove(&name);
            let was = self.replicas.entry(name).or_default();
            news(was, &now).iter().for_each(tell);
            *was = now;
        }
    }
}

/// That it can do something no longer, or again. Each attempt may fail for another reason.
fn began_or_ended(what: &str, was: &Option<String>, now: &Option<String>) -> Option<String> {
    match (was, now) {
        (None, Some(error)) => Some(format!("it cannot {what}: {error}")),
        (Some(_), None) => Some(format!("it {what}s again")),
        _ => None,
    }
}

fn news(was: &FollowerStats, now: &FollowerStats) -> Vec<String> {
    let new = |was: &Option<String>, now: &Option<String>| now.clone().filter(|_| was != now);
    let ended = |was: &Option<String>, now: &Option<String>, what: &str| {
        (was.is_some() && now.is_none()).then(|| what.to_owned())
    };
    let all = [
        new(&was.replica, &now.replica).map(|id| format!("this is the replica {id}")),
        new(&was.stream_error, &now.stream_error)
            .map(|error| format!("it goes on by the archive: {error}")),
        ended(&was.stream_error, &now.stream_error, "it streams again"),
        began_or_ended("follow", &was.last_error, &now.last_error),
        new(&was.barred, &now.barred),
        ended(&was.barred, &now.barred, "it may take over again"),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_has_each_change_of_a_replica_once() {
        let mut stats = vec![FollowerStats::default(); 6];
        stats[1].stream_error = Some("a wrong secret".into());
        stats[2] = stats[1].clone();
        stats[2].barred = Some("it may not take over".into());
        stats[3].replica = Some("7".into());
        stats[3].last_error = Some("there is nothing".into());
        stats[4].last_error = Some("another reason".into());
        let mut said = stats.windows(2).map(|pair| news(&pair[0], &pair[1]));
        assert_eq!(said.next().unwrap(), ["it goes on by the archive: a wrong secret"]);
        assert_eq!(said.next().unwrap(), ["it may not take over"]);
        let mended = [
            "this is the replica 7",
            "it streams again",
            "it cannot follow: there is nothing",
            "it may take over again",
        ];
        assert_eq!(said.next().unwrap(), mended);
        assert_eq!(said.next().unwrap(), Vec::<String>::new(), "it failed before");
        assert_eq!(said.next().unwrap(), ["it follows again"]);
        assert_eq!(news(&stats[3], &stats[3]), Vec::<String>::new());
    }
}
