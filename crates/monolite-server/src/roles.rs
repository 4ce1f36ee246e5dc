//! Owns what load balancers and Prometheus are told of the open databases: whether they are
//! primaries, and how fresh replicas are.

use hyper::{Response, StatusCode};
use serde_json::json;

use crate::answers::{Body, with_type};
use crate::databases::{OpenNow, primary_of};
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
