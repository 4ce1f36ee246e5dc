//! Owns the server's own figures; those of the databases are the engine's.

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    endpoint: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Endpoint {
    endpoint: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Token {
    kind: &'static str,
    token: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Transport {
    transport: &'static str,
}

/// Figures since the server began.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    seconds: Family<Endpoint, Histogram>,
    refused: Family<Code, Counter>,
    uses: Family<Token, Counter>,
    connections: Family<Transport, Gauge>,
    streams: Gauge,
}

/// Counts a connection for as long as it lives.
pub(crate) struct Connected(Gauge<i64, AtomicI64>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// From 50 µs to 26 s.
fn times() -> Histogram {
    Histogram::new(exponential_buckets(50e-6, 2.0, 20))
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("monolite_server");
        let requests = Family::default();
        registry.register("requests", "Requests over HTTP, by their status", requests.clone());
        let seconds = Family::<Endpoint, Histogram>::new_with_constructor(times);
        let help = "Time from the head of a request to its answer";
        registry.register("request_seconds", help, seconds.clone());
        let refused = Family::default();
        registry.register("refused_tokens", "Requests whose token was refused", refused.clone());
        let uses = Family::default();
        let help =
            "Requests over HTTP with a token, and looks at that of a connection by WebSocket";
        registry.register("token_uses", help, uses.clone());
        let connections = Family::default();
        registry.register("connections", "Connections that are open", connections.clone());
        let streams = Gauge::default();
        let help = "Streams over HTTP that live between two requests";
        registry.register("open_streams", help, streams.clone());
        Metrics { registry, requests, seconds, refused, uses, connections, streams }
    }

    /// A request at `endpoint` was answered with `status`.
    pub(crate) fn answered(&self, endpoint: &'static str, status: u16, time: Duration) {
        self.requests.get_or_create(&Answered { endpoint, status }).inc();
        self.seconds.get_or_create(&Endpoint { endpoint }).observe(time.as_secs_f64());
    }

    /// A token was refused, for the reason `code`.
    pub(crate) fn refused(&self, code: &str) {
        self.refused.get_or_create(&Code { code: code.to_owned() }).inc();
    }

    /// A token of that kind was good.
    pub(crate) fn used(&self, kind: &'static str, token: &str) {
        self.uses.get_or_create(&Token { kind, token: token.to_owned() }).inc();
    }

    /// A connection by `transport` begins.
    pub(crate) fn connected(&self, transport: &'static str) -> Connected {
        let gauge = self.connections.get_or_create(&Transport { transport }).clone();
        gauge.inc();
        Connected(gauge)
    }

    /// All of them, as Prometheus reads them.
    pub(crate) fn text(&self, open_streams: usize) -> String {
        self.streams.set(open_streams as i64);
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes all");
        // The engine's figures follow.
        text.truncate(text.trim_end_matches("# EOF\n").len());
        text
    }
}
