//! Two records side by side: what differs by more than the rounds of each do among themselves.
//!
//! # Algorithm
//! The rounds of a cell span an interval, from the slowest to the fastest. Where those of the two
//! records have no point in common, the difference is beyond what was seen as noise; where they
//! overlap, it is not; and a record of one round says nothing about noise. With three rounds each,
//! two equal candidates are told apart by chance once in ten times, so a table of many cells shows
//! some marks that mean nothing; it says so.

use super::record::{Measurement, Record};
use super::render::{Table, ratio, spread};

/// Rounds that a record must have for its intervals to mean anything.
const ROUNDS: usize = 2;

/// Two records side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What one must know first: another machine, other data, other software.
    pub warnings: Vec<String>,
    /// A line for each cell that both have.
    pub table: Table,
}

const VERDICTS: [&str; 4] = ["▲ B faster", "▼ B slower", "within noise", "one round"];

/// What the intervals of two cells say, as a place in [`VERDICTS`].
fn verdict(a: &Measurement, b: &Measurement) -> usize {
    let (first, second) = (a.per_second, b.per_second);
    if a.rounds.len() < ROUNDS || b.rounds.len() < ROUNDS {
        3
    } else if second.min > first.max {
        0
    } else if second.max < first.min {
        1
    } else {
        2
    }
}

/// Compares the cells of two records, and says what else differs.
pub fn compare(a: &Record, b: &Record) -> Comparison {
    let header = ["per second", "A (min–max)", "B (min–max)", "B ÷ A", ""];
    let mut table = Table::new("A and B", &header);
    let mut many = [0; VERDICTS.len()];
    for cell in &a.cells {
        let both = (cell.measurement(), b.cell(&cell.id).and_then(|other| other.measurement()));
        let (Some(first), Some(second)) = both else { continue };
        let verdict = verdict(first, second);
        many[verdict] += 1;
        table.rows.push(vec![
            cell.id.clone(),
            spread(first.per_second),
            spread(second.per_second),
            ratio(second.per_second.median / first.per_second.median.max(f64::MIN_POSITIVE)),
            VERDICTS[verdict].into(),
        ]);
    }
    let [faster, slower, noise, unknown] = many;
    table.notes = vec![
        format!(
            "{faster} of B faster, {slower} slower, {noise} within noise, {unknown} of one round, \
             which tells no noise"
        ),
        "beyond noise: the slowest round of one is faster than the fastest of the other; with \
         three rounds that comes by chance once in ten cells"
            .into(),
    ];
    for (name, one, other) in [("A", a, b), ("B", b, a)] {
        let alone = one.cells.iter().filter(|cell| other.cell(&cell.id).is_none()).count();
        if alone > 0 {
            table.notes.push(format!("{alone} cells are in {name} alone"));
        }
    }
    Comparison { warnings: warnings(a, b), table }
}

fn warnings(a: &Record, b: &Record) -> Vec<String> {
    let mut warnings = Vec::new();
    let (one, other) = (&a.machine, &b.machine);
    if one != other {
        let differing = [
            ("CPU", one.cpu.clone(), other.cpu.clone()),
            ("cores", one.cores.to_string(), other.cores.to_string()),
            ("memory", one.memory_bytes.to_string(), other.memory_bytes.to_string()),
            ("kernel", one.kernel.clone(), other.kernel.clone()),
            ("system", one.system.clone(), other.system.clone()),
            ("disk", format!("{:?}", one.disk), format!("{:?}", other.disk)),
        ];
        let differing = differing.iter().filter(|(_, one, other)| one != other);
        let parts: Vec<String> =
            differing.map(|(what, one, other)| format!("{what} {one} and {other}")).collect();
        warnings.push(format!(
            "another machine: ratios between these records compare machines, not programs: {}",
            parts.join("; ")
        ));
    }
    let data = |record: &Record| {
        let data = record.data.as_ref();
        data.map(|data| format!("{} rows, {} draw", data.identity.rows, data.skew))
    };
    let software = |record: &Record| {
        let setup = &record.setup;
        let postgres = setup.postgres.as_deref().unwrap_or("none");
        format!("monolite {}, SQLite {}, PostgreSQL {postgres}", setup.monolite, setup.sqlite)
    };
    let pairs = [
        ("suites", Some(a.suite.clone()), Some(b.suite.clone())),
        ("data", data(a), data(b)),
        ("software", Some(software(a)), Some(software(b))),
        ("settings", Some(a.setup.engine.join(", ")), Some(b.setup.engine.join(", "))),
    ];
    for (what, one, other) in pairs {
        if let (Some(one), Some(other)) = (one, other)
            && one != other
        {
            warnings.push(format!("other {what}: A has {one}; B has {other}"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::files::tests::golden_record;
    use crate::report::record::{CellOutcome, RoundFigures};
    use crate::statistics::Spread;

    fn figures(rounds: &[f64]) -> Measurement {
        let round = |&per_second: &f64| RoundFigures { per_second, ..RoundFigures::default() };
        let per_second = Spread::of(rounds.iter().copied());
        let rounds = rounds.iter().map(round).collect();
        Measurement { per_second, rounds, ..Measurement::default() }
    }

    #[test]
    fn only_intervals_that_do_not_touch_are_marked() {
        let base = figures(&[10.0, 12.0]);
        let verdict = |rounds: &[f64]| VERDICTS[verdict(&base, &figures(rounds))];
        assert_eq!(verdict(&[13.0, 14.0]), "▲ B faster");
        assert_eq!(verdict(&[8.0, 9.0]), "▼ B slower");
        assert_eq!(verdict(&[12.0, 14.0]), "within noise");
        assert_eq!(verdict(&[99.0]), "one round");
    }

    #[test]
    fn another_machine_is_said_first_and_what_is_missing_is_counted() {
        let a = golden_record();
        let mut b = a.clone();
        assert!(compare(&a, &b).warnings.is_empty());
        b.machine.cores = 64;
        b.setup.sqlite = "9".into();
        b.cells.remove(0);
        let comparison = compare(&a, &b);
        assert!(comparison.warnings[0].starts_with("another machine"), "{comparison:?}");
        assert!(comparison.warnings[0].ends_with("cores 2 and 64"), "{comparison:?}");
        assert!(comparison.warnings[1].starts_with("other software"), "{comparison:?}");
        assert!(comparison.table.notes.iter().any(|note| note == "1 cells are in A alone"));
        let measured =
            |cell: &crate::report::record::Cell| matches!(cell.outcome, CellOutcome::Measured(_));
        let both = b.cells.iter().filter(|cell| measured(cell)).count();
        assert_eq!(comparison.table.rows.len(), both);
    }
}
