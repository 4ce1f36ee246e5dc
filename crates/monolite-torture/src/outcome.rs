//! What came of a check, as it is reported and recorded.

use std::path::PathBuf;

use serde::{Deserialize, Serialize, Serializer};

/// Findings that are kept in full; a broken engine may fail every case.
const FINDINGS_KEPT: usize = 20;

/// What came of one check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The check's name.
    pub check: String,
    /// What `attempted` counts.
    pub unit: String,
    /// How many cases were tried.
    pub attempted: u64,
    /// Acknowledged transactions that were looked for afterwards.
    pub acknowledged: u64,
    /// Acknowledged transactions that were gone.
    pub lost: u64,
    /// Transactions found in part.
    pub partial: u64,
    /// Everything else that a promise rules out: wrong answers, orders that no serial execution
    /// gives, broken limits, escapes.
    pub anomalies: u64,
    /// Known-bad arrangements that had to be noticed.
    pub controls: Vec<Control>,
    /// What went wrong, the first ones in full.
    pub findings: Vec<Finding>,
    /// Why it, or a part of it, could not run here.
    pub skipped: Vec<String>,
    /// Figures worth reading.
    pub notes: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

/// A known-bad arrangement that a check must notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// What was broken.
    pub name: String,
    /// Whether the check noticed.
    pub detected: bool,
    /// What it noticed, or how hard it tried.
    pub how: String,
}

/// Something that a promise rules out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was seen.
    pub what: String,
    /// Where files, history and seed are kept.
    #[serde(serialize_with = "lossily")]
    pub evidence: Option<PathBuf>,
    /// The command that does it again.
    pub reproduce: String,
}

/// JSON has no text for a path that is no UTF-8, and a report is not to fail for one.
fn lossily<S: Serializer>(path: &Option<PathBuf>, out: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(out)
}

impl Outcome {
    /// Remembers a finding. Counting it as lost, partial or anomaly is the check's business.
    pub fn found(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_KEPT {
            self.findings.push(finding);
        }
    }

    /// Remembers whether a known-bad arrangement was noticed.
    pub fn control(&mut self, name: &str, detected: bool, how: impl Into<String>) {
        self.controls.push(Control { name: name.into(), detected, how: how.into() });
    }

    /// Whether it found nothing wrong and noticed every control.
    pub fn is_kept(&self) -> bool {
        self.why_broken().is_none()
    }

    /// The first thing that was found or the first control that went unnoticed.
    pub fn why_broken(&self) -> Option<String> {
        let Outcome { lost, partial, anomalies, .. } = self;
        let found = self.findings.first().map(|finding| finding.what.clone());
        let counted = || {
            (lost + partial + anomalies > 0)
                .then(|| format!("{lost} lost, {partial} partial, {anomalies} anomalies"))
        };
        let unnoticed = || {
            let control = self.controls.iter().find(|control| !control.detected);
            control.map(|control| format!("a control went unnoticed: {}", control.name))
        };
        found.or_else(counted).or_else(unnoticed)
    }
}

/// What a whole run says about the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every promise was kept and every control noticed.
    Kept,
    /// One was not.
    Broken,
    /// Nothing was tried.
    Nothing,
}

impl Verdict {
    /// Judges a run.
    pub fn over(outcomes: &[Outcome]) -> Verdict {
        if !outcomes.iter().all(Outcome::is_kept) {
            Verdict::Broken
        } else if outcomes.iter().all(|outcome| outcome.attempted == 0) {
            Verdict::Nothing
        } else {
            Verdict::Kept
        }
    }
}

#[test]
fn a_control_that_goes_unnoticed_breaks_the_verdict() {
    let mut outcome = Outcome { attempted: 1, ..Outcome::default() };
    assert_eq!(Verdict::over(&[outcome.clone()]), Verdict::Kept);
    outcome.control("acknowledges before the sync", false, "40 cuts");
    assert_eq!(Verdict::over(&[outcome]), Verdict::Broken);
    assert_eq!(Verdict::over(&[Outcome::default()]), Verdict::Nothing);
}
