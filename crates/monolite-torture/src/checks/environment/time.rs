//! Clocks that jump or stand still. The wall clock means nothing to the engine; its own clock
//! decides about time limits and about how long keys are kept.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use monolite::{Clock, Database, Error, ErrorKind, Options};
use monolite_testkit::child::{say, variable};

use super::batch::as_one_batch;
use super::load::under_load;
use super::{Case, marks};
use crate::checks::faketime;

const DAY: Duration = Duration::from_secs(86_400);

/// What the wall clock does during the load.
const SHIFTS: [&str; 4] = ["+1d", "-1d", "+3650d", "+0"];

/// The time limit of a write in the child, and how late a statement may be ended by it.
const LIMIT: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(20);

const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT SUM(i) FROM n";

/// The role that writes while its own wall clock jumps; it moves the clock itself.
pub(super) fn write_while_the_clock_jumps() -> Result<()> {
    say("");
    let (file, clock): (PathBuf, PathBuf) = (variable("FILE")?, variable("CLOCK")?);
    let db = Options::new().write_time_limit(LIMIT).open(file)?;
    marks::create(&db)?;
    db.write(|tx| tx.execute("CREATE TABLE payment(key TEXT)", ())).wait()?;
    pay(&db, "first")?;
    let came = under_load(&db, 1, 0, 200, |load| {
        for shift in SHIFTS {
            let before = SystemTime::now();
            fs::write(&clock, shift)?;
            let jumped = match SystemTime::now().duration_since(before) {
                Ok(ahead) => ahead.as_secs().cast_signed(),
                Err(behind) => -behind.duration().as_secs().cast_signed(),
            };
            let goes_on = load.await_more(200);
            let start = Instant::now();
            let endless = db.write(|tx| tx.query_row(ENDLESS, (), |_| Ok(()))).wait();
            let kind = endless.err().map(|error| format!("{:?}", error.kind()));
            let took = start.elapsed().as_millis();
            let kind = kind.as_deref().unwrap_or("succeeded");
            let is_new = !pay(&db, shift)?;
            let is_repeated = is_new && pay(&db, "first")?;
            say(&format!("jump {jumped} {goes_on} {kind} {took} {is_repeated}"));
        }
        Ok(())
    })?;
    db.close()?;
    came.acknowledged.iter().for_each(|id| say(&format!("acknowledged {id}")));
    came.refusals.iter().for_each(|(kind, text)| say(&format!("refused {kind} {text}")));
    Ok(())
}

/// Whether a payment under this key was made before; makes it otherwise.
fn pay(db: &Database, key: &'static str) -> Result<bool> {
    let done = db
        .transact_once(key, async |tx| {
            tx.execute("INSERT INTO payment VALUES (?1)", [key]).wait()?;
            Ok::<_, Error>(((), key))
        })
        .wait();
    Ok(done?.is_repeated())
}

/// The wall clock jumps a day and more, both ways, under load.
pub(super) fn wall_clock(case: &mut Case<'_>) -> Result<()> {
    let (path, clock) = (case.directory().join("db"), case.directory().join("clock"));
    fs::write(&clock, "+0")?;
    let text = |path: &PathBuf| path.to_str().map(str::to_owned).context("the path is text");
    let (file, clock) = (text(&path)?, text(&clock)?);
    let Some(theirs) = faketime::variables(&clock) else {
        case.skip(faketime::MISSING);
        return Ok(());
    };
    let ours = [("FILE", file.as_str()), ("CLOCK", clock.as_str())];
    let variables: Vec<_> = ours.into_iter().chain(theirs).collect();
    let mut child = case.setting.program.spawn("environment clock", &variables)?;
    let (mut acknowledged, mut jumps) = (BTreeSet::new(), Vec::new());
    while let Some(line) = child.next_line() {
        if let Some(id) = line.strip_prefix("acknowledged ") {
            acknowledged.insert(id.parse::<i64>()?);
        } else if let Some(refusal) = line.strip_prefix("refused ") {
            case.broken(format!("a write was refused: {refusal}"));
        } else if let Some(error) = line.strip_prefix("failed ") {
            case.broken(format!("the writing process: {error}"));
        } else if let Some(jump) = line.strip_prefix("jump ") {
            case.tried += 1;
            jumps.push(judge_jump(case, jump)?);
        }
    }
    case.expect(jumps.len() == SHIFTS.len(), || "the writing process ended early".into());
    let is_moved = jumps.iter().any(|it| *it > 0) && jumps.iter().any(|it| *it < 0);
    if !is_moved {
        case.skip(format!("libfaketime moved no clock: {jumps:?} seconds"));
    }
    case.note(format!("it jumped by {jumps:?} s, {} acknowledged meanwhile", acknowledged.len()));
    case.verify(&path, &acknowledged)
}

/// How many seconds the clock jumped.
fn judge_jump(case: &mut Case<'_>, jump: &str) -> Result<i64> {
    let words: Vec<&str> = jump.split(' ').collect();
    let [seconds, goes_on, kind, took, is_repeated] = words[..] else {
        anyhow::bail!("jump {jump}")
    };
    case.expect(goes_on == "true", || format!("after {seconds} s nothing was written"));
    case.expect(is_repeated == "true", || {
        format!("after {seconds} s a payment was made again, or a new one was not made")
    });
    case.expect(kind == "Timeout", || format!("an endless statement: {kind}"));
    let took = Duration::from_millis(took.parse()?);
    // A little early: the limit runs from the end of the member before.
    case.expect(took + LIMIT / 2 >= LIMIT && took < LIMIT + LATE, || {
        format!("a limit of {LIMIT:?} ended an endless statement after {took:?}")
    });
    Ok(seconds.parse()?)
}

/// A clock that moves when it is told to.
#[derive(Debug, Default)]
pub(super) struct Hand(AtomicU64);

impl Hand {
    pub(super) fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// The engine's own clock stands still, then jumps a day, then jumps inside of a member.
pub(super) fn own_clock(case: &mut Case<'_>) -> Result<()> {
    let path = case.directory().join("db");
    let clock = Arc::new(Hand::default());
    let options = Options::new().wal_limit_bytes(8 << 20).clock(Arc::clone(&clock) as _);
    let db = options.open(&path)?;
    marks::create(&db)?;
    case.tried += 3;
    let mut still = under_load(&db, 1, 9_000, 600, |_| Ok(()))?;
    case.expect(still.goes_on && still.refusals.is_empty(), || {
        format!("while it stood still: {:?}", still.refusals)
    });
    let moves = Arc::clone(&clock);
    let jumping = under_load(&db, 100_000, 9_000, 600, move |load| {
        for _ in 0..3 {
            moves.advance(DAY);
            load.await_more(100);
        }
        Ok(())
    })?;
    // Whoever was inside of a transaction at the jump has been in it for a day.
    let others = jumping.refusals.keys().filter(|kind| *kind != "Timeout").count();
    case.expect(jumping.goes_on && others == 0, || format!("{:?}", jumping.refusals));
    still.acknowledged.extend(jumping.acknowledged);
    still.acknowledged.extend(jump_inside(case, &db, &clock)?);
    db.close()?;
    case.note("writes and checkpoints went on; only who was in a transaction timed out");
    case.verify(&path, &still.acknowledged)
}

/// The clock jumps while one member of a batch runs: it alone times out.
fn jump_inside(case: &mut Case<'_>, db: &Database, clock: &Arc<Hand>) -> Result<BTreeSet<i64>> {
    let moves = Arc::clone(clock);
    let (before, jumped, after) = as_one_batch(db, || {
        let put = |id| db.write(move |tx| marks::put(tx, id, &[]));
        let jumped = db.write(move |tx| {
            marks::put(tx, 200_002, &[])?;
            moves.advance(DAY);
            Ok::<_, Error>(())
        });
        (put(200_001), jumped, put(200_003))
    })?;
    let kind = jumped.wait().err().map(|error| error.kind());
    case.expect(kind == Some(ErrorKind::Timeout), || format!("the member: {kind:?}"));
    before.wait()?;
    after.wait()?;
    Ok(BTreeSet::from([200_001, 200_003]))
}
