//! Owns the judgement of one transaction that has ended, with the help of the oracle.

use monolite::rusqlite::params_from_iter;
use monolite::rusqlite::types::Value;
use monolite::{Error, ErrorKind, ReadTx};

use super::super::answer::Said;
use super::super::asking::{changes_rows, changes_schema};
use super::super::difference::{Difference, Stop};
use super::super::excuses::is_about_all_indexes;
use super::super::oracle::{Asked, Claim, Flaw, Flow, Replay, Wrong};
use super::super::record::{Call, Ending, How, Parameters, RandomValue, Step, Write};
use super::{Answered, Driver, Ended, Steps, outcome_of};

/// Judges a transaction that was submitted.
pub(super) fn settle(driver: &mut Driver, left: Answered, ended: Ended) -> Result<(), Stop> {
    match left {
        Answered::Write { write, told } => settle_write(driver, write, &told, ended),
        Answered::Commit { left, key } => settle_commit(driver, left, key, ended),
    }
}

fn settle_write(
    driver: &mut Driver,
    write: Write,
    told: &[Said],
    ended: Ended,
) -> Result<(), Stop> {
    let way = match write.call {
        Call::Write => "write",
        Call::Once => "write_once",
        Call::Try => "try_write",
    };
    let drawn = drawn_by(driver, &write.steps, &ended)?;
    let asked = Asked { steps: &write.steps, told, drawn: &drawn };
    let replay = driver.oracle.replay(asked, Flow::Closure)?;
    if let Some(wrong) = &replay.wrong {
        driver.oracle.roll_back(&write.steps);
        if has_seen_other_ids(driver, &ended) {
            return Ok(());
        }
        return Err(Difference::answer(way, &write.steps, wrong).into());
    }
    let gives_up = replay.gave_up || write.ending == Ending::Fails;
    if replay.is_over || gives_up || write.ending == Ending::Panics {
        driver.oracle.roll_back(&write.steps);
        let is_right = match &ended {
            Ended::Committed { .. } => false,
            // What the engine says of a transaction that a statement has ended is its own affair.
            _ if replay.is_over => true,
            Ended::GaveUp => gives_up,
            Ended::Panicked => !gives_up,
            Ended::Refused(_) => false,
        };
        let expected = if replay.is_over { "a failure" } else { "the closure's own end" };
        return if is_right { Ok(()) } else { Err(end(way, &ended, expected).into()) };
    }
    if is_outgrown(driver, &write.steps, &ended)? {
        return Ok(());
    }
    driver.counts.committed += 1;
    let committed = driver.oracle.commit(&replay, write.steps, &drawn);
    agree_on_commit(way, &committed, &ended)
}

/// Whether a closure may have seen rows of its neighbours under other ids than they have now: one
/// that has panicked is not run again when its neighbours are, which then get new numbers.
fn has_seen_other_ids(driver: &Driver, ended: &Ended) -> bool {
    matches!(ended, Ended::Panicked) && driver.setup.gives_ids && !driver.given.is_empty()
}

/// Whether a transaction was refused for its size, and the database is large enough for that: how
/// many pages it changes hangs on where they are, so that ends the history.
fn is_outgrown(driver: &Driver, steps: &[Step], ended: &Ended) -> Result<bool, Error> {
    let Ended::Refused(error) = ended else { return Ok(false) };
    let plain = driver.oracle.plain();
    let of_pages = |name| plain.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    let (pages, bytes) = (of_pages("page_count")?, of_pages("page_size")?);
    let may = u64::from(pages) * u64::from(bytes) > (driver.setup.wal_limit_mib << 20) / 2;
    let is_refused = error.to_string().contains("fits in the WAL");
    let is_outgrown = may && is_refused && error.kind() == ErrorKind::Invalid;
    if is_outgrown {
        driver.oracle.roll_back(steps);
        driver.oracle.give_up();
    }
    Ok(is_outgrown)
}

/// Whether a transaction was refused that saw what a random number decides, or a number in which
/// the tables of virtual tables are, so that it has to be told.
fn cannot_come_again(
    driver: &Driver,
    steps: &[Step],
    replay: &Replay,
    ended: &Ended,
) -> Result<bool, Error> {
    let may_be_told = is_invalid(ended) || was_over(ended) && replay.has_random;
    let asks = steps.iter().any(|step| step.sql.contains("total_changes"));
    if !may_be_told || replay.has_random || !asks {
        return Ok(may_be_told && replay.has_random);
    }
    let virtual_tables = "SELECT count(*) FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL%'";
    Ok(driver.oracle.plain().query_row(virtual_tables, [], |row| row.get::<_, i64>(0))? > 0)
}

/// Whether the commit did what plain SQLite did.
fn agree_on_commit(
    way: &'static str,
    oracle: &Result<(), Error>,
    ended: &Ended,
) -> Result<(), Stop> {
    match (oracle, ended) {
        (Ok(()), Ended::Committed { .. }) => Ok(()),
        (Err(error), Ended::Refused(ours))
            if (error.kind(), error.extended_code()) == (ours.kind(), ours.extended_code()) =>
        {
            Ok(())
        }
        (Ok(()), _) => Err(end(way, ended, "a commit").into()),
        (Err(error), _) => {
            let expected = Said::failure(error).text;
            Err(end(way, ended, &expected).into())
        }
    }
}

/// Judges an interactive transaction whose commit was answered.
pub(super) fn settle_commit(
    driver: &mut Driver,
    left: Steps,
    key: Option<String>,
    ended: Ended,
) -> Result<(), Stop> {
    let way = if key.is_some() { "commit_once" } else { "commit" };
    let invented = Error::aborted("a conflict that was invented");
    let is_invented = driver.flaw == Flaw::InventedConflict && driver.oracle.version() > 4;
    let ended = if is_invented { Ended::Refused(invented) } else { ended };
    match &ended {
        Ended::Refused(error) if error.kind() == ErrorKind::Conflict || is_invented => {
            return judge_conflict(driver, left, way);
        }
        Ended::Committed { is_repeated: true, outcome } => {
            let known = key.and_then(|key| driver.keys.get(&key).cloned());
            if known.as_ref() != Some(outcome) {
                return Err(end(way, &ended, "the first outcome").into());
            }
            return judge_end(driver, left);
        }
        _ => {}
    }
    let is_known = key.as_ref().is_some_and(|key| driver.keys.contains_key(key));
    let drawn = drawn_by(driver, &left.steps, &ended)?;
    let asked = Asked { steps: &left.steps, told: &left.told, drawn: &drawn };
    let replay = driver.oracle.replay(asked, Flow::Interactive)?;
    if replay.is_over || (replay.wrong.is_some() && matches!(ended, Ended::Refused(_))) {
        driver.oracle.roll_back(&left.steps);
        return judge_over(driver, left, replay, way, (&ended, key.is_some()));
    }
    if is_known && matches!(ended, Ended::Committed { .. }) {
        driver.oracle.roll_back(&left.steps);
        return Err(end(way, &ended, "the first outcome").into());
    }
    if let Some(wrong) = replay.wrong.clone() {
        driver.oracle.roll_back(&left.steps);
        return if key.is_none() && may_be_earlier(driver, &left) {
            claim(driver, left, wrong, true);
            Ok(())
        } else {
            Err(Difference::answer(way, &left.steps, &wrong).into())
        };
    }
    abandon_if_unclear(driver, &left, &replay)?;
    if cannot_come_again(driver, &left.steps, &replay, &ended)? {
        driver.oracle.roll_back(&left.steps);
        return Ok(());
    }
    if is_outgrown(driver, &left.steps, &ended)? {
        return Ok(());
    }
    driver.counts.interactive += 1;
    driver.counts.committed += 1;
    let stored = key.map(|key| (outcome_of(&key, &left.steps), key));
    let committed = driver.oracle.commit(&replay, left.steps, &drawn);
    agree_on_commit(way, &committed, &ended)?;
    if let (Some((outcome, key)), Ok(())) = (stored, committed) {
        driver.keys.insert(key, outcome);
    }
    Ok(())
}

/// `DROP … IF EXISTS` of what was not there is a query at its snapshot, and a change now.
fn abandon_if_unclear(driver: &Driver, left: &Steps, replay: &Replay) -> Result<(), Stop> {
    let is_late = left.first < driver.oracle.version();
    let tells = |(step, told): (&Step, &Said)| tells_of_change(step, told);
    if is_late && replay.has_changed && !left.steps.iter().zip(&left.told).any(tells) {
        driver.oracle.roll_back(&left.steps);
        driver.oracle.give_up();
        return Err(anyhow::anyhow!("whether it changed something cannot be told").into());
    }
    Ok(())
}

/// Judges a transaction that has ended before its commit, when it is run now, or was refused.
fn judge_over(
    driver: &mut Driver,
    left: Steps,
    replay: Replay,
    way: &'static str,
    (ended, has_key): (&Ended, bool),
) -> Result<(), Stop> {
    if matches!(ended, Ended::Refused(_)) {
        return judge_end(driver, left);
    }
    match replay.wrong {
        // A statement that failed before it could end the transaction would do so now.
        Some(wrong) if !has_key && may_be_earlier(driver, &left) => {
            claim(driver, left, wrong, true);
            Ok(())
        }
        _ => Err(end(way, ended, "a failure").into()),
    }
}

/// Whether a transaction changed nothing, so that it is as if it had been run before.
fn may_be_earlier(driver: &Driver, left: &Steps) -> bool {
    let tells = |(step, told): (&Step, &Said)| tells_of_change(step, told);
    left.first < driver.oracle.version() && !left.steps.iter().zip(&left.told).any(tells)
}

/// Whether one of its statements had ended the transaction before its commit.
fn was_over(ended: &Ended) -> bool {
    let is_over = |error: &Error| error.to_string().starts_with("the transaction is over");
    matches!(ended, Ended::Refused(error) if is_over(error))
}

fn is_invalid(ended: &Ended) -> bool {
    matches!(ended, Ended::Refused(error) if error.kind() == ErrorKind::Invalid)
}

/// A conflict is one only when somebody else has committed since the first statement, and some
/// answer is another one now.
pub(super) fn judge_conflict(
    driver: &mut Driver,
    mut left: Steps,
    way: &'static str,
) -> Result<(), Stop> {
    driver.counts.conflicts += 1;
    let conflict = |said: &Said| said.failed == Some(ErrorKind::Conflict);
    if left.told.last().is_some_and(conflict) {
        left.told.pop();
        left.steps.pop();
    }
    let replay = replay_and_undo(driver, &left)?;
    let is_uncertain = replay.is_uncertain();
    let is_alone = driver.oracle.version() == left.first;
    match replay.wrong {
        // The guide says that these may conflict with nothing at all.
        _ if replay.has_figures => Ok(()),
        _ if is_alone && replay.has_random => Ok(()),
        _ if is_alone && may_have_met_a_key(driver, &left) => Ok(()),
        Some(wrong) if is_alone && !is_uncertain => {
            Err(Difference::answer(way, &left.steps, &wrong).into())
        }
        _ if is_alone => {
            let expected = "none, as nothing was committed since its first statement";
            Err(Difference::new(way, "Conflict", expected).into())
        }
        // In a state between the two some answer may have been another one.
        None => Ok(()),
        Some(_) if is_uncertain => Ok(()),
        Some(wrong) => {
            if driver.setup.explains_all {
                claim(driver, left, wrong, false);
            }
            Ok(())
        }
    }
}

/// Whether a transaction had to do with the index of the keys, and one was kept.
fn may_have_met_a_key(driver: &Driver, left: &Steps) -> bool {
    !driver.keys.is_empty() && left.steps.iter().any(|step| is_about_all_indexes(&step.sql))
}

/// Nothing of it may be in the database, and what it saw must have been so.
pub(super) fn judge_end(driver: &mut Driver, left: Steps) -> Result<(), Stop> {
    let replay = replay_and_undo(driver, &left)?;
    let is_uncertain = replay.is_uncertain();
    match replay.wrong {
        None => Ok(()),
        Some(_) if is_uncertain => Ok(()),
        Some(wrong) if left.first == driver.oracle.version() => {
            Err(Difference::answer("rollback", &left.steps, &wrong).into())
        }
        Some(wrong) => {
            if driver.setup.explains_all {
                claim(driver, left, wrong, false);
            }
            Ok(())
        }
    }
}

fn replay_and_undo(driver: &mut Driver, left: &Steps) -> Result<Replay, Stop> {
    let asked = Asked { steps: &left.steps, told: &left.told, drawn: &[] };
    let replay = driver.oracle.replay(asked, Flow::Interactive)?;
    driver.oracle.roll_back(&left.steps);
    Ok(replay)
}

/// Whether an answer says that something was changed.
fn tells_of_change(step: &Step, told: &Said) -> bool {
    let sql = step.sql.as_str();
    let is_condition = sql.contains("IF NOT EXISTS") || sql.contains("IF EXISTS");
    let has_changed = match step.how {
        How::Batch => true,
        _ if changes_schema(sql) => !is_condition && !sql.starts_with("REINDEX"),
        _ if changes_rows(sql) => !["0 changed", "no rows"].contains(&told.text.as_str()),
        How::Execute => told.text.ends_with(" changed") && told.text != "0 changed",
        _ => sql.starts_with("PRAGMA") && sql.contains('=') && !sql.contains("defer"),
    };
    told.failed.is_none() && has_changed
}

fn claim(driver: &mut Driver, left: Steps, wrong: Wrong, is_committed: bool) {
    let Steps { steps, told, first } = left;
    let (last, op) = (driver.oracle.version(), driver.op);
    driver.claims.push(Claim { steps, told, first, last, is_committed, op, wrong });
}

/// Judges a read on the present state.
pub(super) fn judge_read(driver: &mut Driver, steps: &[Step], told: &[Said]) -> Result<(), Stop> {
    let asked = Asked { steps, told, drawn: &[] };
    let replay = driver.oracle.replay(asked, Flow::Read)?;
    driver.oracle.roll_back(steps);
    match replay.wrong {
        None => Ok(()),
        Some(wrong) => Err(Difference::answer("read", steps, &wrong).into()),
    }
}

/// The claim that no state explains.
pub(super) fn unexplained(claim: &Claim) -> Difference {
    Difference::answer("any state", &claim.steps, &claim.wrong)
}

fn drawn_by(driver: &Driver, steps: &[Step], ended: &Ended) -> Result<Vec<Option<Value>>, Stop> {
    match ended {
        Ended::Committed { is_repeated: false, .. } => driver.drawn(steps),
        _ => Ok(Vec::new()),
    }
}

/// The value that the database has.
pub(super) fn look(
    tx: &ReadTx<'_>,
    random: &RandomValue,
    parameters: &Parameters,
) -> Result<Option<Value>, Error> {
    let Parameters::Positional(values) = parameters else { return Ok(None) };
    let parameters = params_from_iter(values);
    tx.query_optional(&random.look, parameters, |row| row.get(0))
}

fn end(way: &'static str, ended: &Ended, expected: &str) -> Difference {
    let told = match ended {
        Ended::Committed { is_repeated: false, .. } => "committed".into(),
        Ended::Committed { .. } => "repeated".into(),
        Ended::GaveUp => "the closure's own error".into(),
        Ended::Panicked => "the closure's panic".into(),
        Ended::Refused(error) => Said::failure(error).text,
    };
    Difference::new(way, told, expected)
}
