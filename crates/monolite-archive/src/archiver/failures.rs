//! Owns the last failure of each activity, which is told until that activity succeeds: an upload
//! that goes well says nothing about merging, and must not hide that it fails.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::Error;
use crate::layout::Level;

/// What an archive does, as far as it fails and succeeds by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// Claims, slots, and changes of the leader record.
    Upload,
    /// The renewal of the leader record.
    Renewal,
    /// The look at the leader record, which no other process may change.
    Record,
    /// Copies of the whole database.
    Copy,
    /// The list of the archive, which must lead to the newest state.
    Listing,
    /// Files of this level.
    Merging(Level),
    /// Snapshots made of files.
    Snapshot,
    /// The deletion of files that have expired, and which slots have.
    Expiry,
    /// The deletion of slots.
    Deletion,
    /// The position record beside the database.
    Position,
    /// Commits that are kept beside the database.
    Staging,
}

impl fmt::Display for Activity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Activity::Upload => "uploading",
            Activity::Renewal => "renewing the leader record",
            Activity::Record => "looking at the leader record",
            Activity::Copy => "copying the database",
            Activity::Listing => "listing the archive",
            Activity::Merging(level) => return write!(out, "merging into level {level}"),
            Activity::Snapshot => "making a snapshot",
            Activity::Expiry => "deleting expired files",
            Activity::Deletion => "deleting slots",
            Activity::Position => "recording the position",
            Activity::Staging => "keeping commits beside the database",
        })
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Failures {
    last: BTreeMap<Activity, String>,
    /// How many there were.
    pub(super) count: u64,
}

impl Failures {
    pub(super) fn failed(&mut self, activity: Activity, error: &Error) {
        self.count += 1;
        self.last.insert(activity, error.to_string());
    }

    pub(super) fn succeeded(&mut self, activity: Activity) {
        self.last.remove(&activity);
    }

    /// Whether this failed last.
    pub(super) fn has(&self, activity: Activity) -> bool {
        self.last.contains_key(&activity)
    }

    /// All that failed last, each with its activity.
    pub(super) fn told(&self) -> Option<String> {
        let each = self.last.iter().map(|(activity, error)| format!("{activity}: {error}"));
        let all: Vec<String> = each.collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn failure_is_told_until_its_own_activity_succeeds() {
        let (mut failures, merging) = (Failures::default(), Activity::Merging(Level::FIRST));
        assert_eq!(failures.told(), None);
        failures.failed(merging, &Error::new(ErrorKind::Gap, "a hole"));
        failures.failed(Activity::Upload, &Error::new(ErrorKind::Lost, "away"));
        let told = failures.told().unwrap_or_default();
        assert!(
            told.starts_with("uploading: ") && told.contains("; merging into level 1: "),
            "{told}"
        );
        failures.succeeded(Activity::Upload);
        assert!(failures.has(merging) && !failures.has(Activity::Upload));
        assert!(failures.told().is_some_and(|told| told.contains("a hole")));
        failures.succeeded(merging);
        assert_eq!((failures.told(), failures.count), (None, 2));
    }
}
