//! A subscriber that keeps what it is told, with the span in which that was.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_core::span::Current;

/// An event.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) target: &'static str,
    pub(crate) level: Level,
    pub(crate) span: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
}

impl Told {
    /// A field; the empty text where there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    pub(crate) fn is_of(&self, database: &str) -> bool {
        self.field("database").ends_with(database)
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.fields.values().any(|value| value.contains(text))
    }

    pub(crate) fn seconds(&self, name: &str) -> f64 {
        self.field(name).parse().unwrap()
    }
}

impl Visit for Told {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());
static SPANS: Mutex<Vec<&'static Metadata<'static>>> = Mutex::new(Vec::new());

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Keeper;

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("monolite::") || metadata.is_span()
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut spans = lock(&SPANS);
        spans.push(attributes.metadata());
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let (target, level) = (event.metadata().target(), *event.metadata().level());
        let span = self.current_span().metadata().map(Metadata::name);
        let mut told = Told { target, level, span, fields: BTreeMap::new() };
        event.record(&mut told);
        let is_hostile = told.field("name") == "hostile";
        lock(&TOLD).push(told);
        assert!(!is_hostile, "a subscriber that panics");
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        let left = ENTERED.with_borrow_mut(Vec::pop);
        assert_eq!(left, Some(span.into_u64()), "spans nest");
    }

    fn current_span(&self) -> Current {
        match ENTERED.with_borrow(|entered| entered.last().copied()) {
            Some(id) => Current::new(Id::from_u64(id), lock(&SPANS)[id as usize - 1]),
            None => Current::none(),
        }
    }
}

/// Subscribes, for the whole process.
pub(crate) fn subscribe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Keeper).unwrap());
}

/// The events that are `wanted`, of those so far.
pub(crate) fn told(wanted: impl Fn(&Told) -> bool) -> Vec<Told> {
    lock(&TOLD).iter().filter(|told| wanted(told)).cloned().collect()
}

/// The same, once there is one.
pub(crate) fn eventually(wanted: impl Fn(&Told) -> bool) -> Vec<Told> {
    let start = Instant::now();
    loop {
        let found = told(&wanted);
        if !found.is_empty() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "nothing is told");
        thread::yield_now();
    }
}
