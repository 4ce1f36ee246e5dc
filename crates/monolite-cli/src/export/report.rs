//! Owns what is said of each part of a schema: whether it was carried.

use serde::Serialize;

/// What became of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// It is there, and means the same.
    Carried,
    /// It is there, with the difference that the note says.
    Changed,
    /// It is not there, for the reason that the note says.
    Lost,
}

/// A part of the schema.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Item {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) verdict: Verdict,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
}

impl Item {
    /// Whether it is a view that is there.
    pub(super) fn is_view(&self) -> bool {
        self.kind == "view" && self.verdict != Verdict::Lost
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Report(pub(super) Vec<Item>);

impl Report {
    /// A part that is there: with a difference, if there is a note.
    pub(super) fn noted(&mut self, kind: &'static str, name: &str, note: &str) {
        let verdict = if note.is_empty() { Verdict::Carried } else { Verdict::Changed };
        self.push(kind, name, verdict, note);
    }

    pub(super) fn lost(&mut self, kind: &'static str, name: &str, note: &str) {
        self.push(kind, name, Verdict::Lost, note);
    }

    fn push(&mut self, kind: &'static str, name: &str, verdict: Verdict, note: &str) {
        self.0.push(Item { kind, name: name.into(), verdict, note: note.into() });
    }

    pub(super) fn count(&self, verdict: Verdict) -> u64 {
        self.0.iter().filter(|item| item.verdict == verdict).count() as u64
    }
}

/// Two notes.
pub(super) fn joined(note: &str, more: &str) -> String {
    if note.is_empty() { more.to_owned() } else { format!("{note}; {more}") }
}
