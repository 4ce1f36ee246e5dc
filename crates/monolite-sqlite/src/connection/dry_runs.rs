//! Owns how a connection carries out a dry run for others ([`crate::dry_run`]).

use std::time::Duration;

use rusqlite::{Result, ffi};
use rustix::time::{ClockId, clock_gettime};

use super::Connection;
use crate::dry_run::{DryRun, Form};

impl Connection {
    /// Prepares the first statement of `sql` on the newest schema, if that has this `cookie`, and
    /// drops it. No snapshot is held meanwhile, so that none grows old.
    ///
    /// To be called on a connection for [`Role::DryRun`](super::Role::DryRun).
    pub fn dry_run(&self, sql: &str, cookie: u32, form: Form) -> DryRun {
        let ended = self.newest_cookie().map_or_else(
            |error| DryRun::Refused(error, None),
            |newest| match newest == cookie {
                true if form.explains => self.explain_for_others(sql, form.numbers),
                true => self.prepare_for_others(sql, form.numbers),
                false => DryRun::OtherSchema,
            },
        );
        // None of it is this connection's to make good.
        self.signals.take_all();
        self.signals.take_interrupted();
        ended
    }

    /// Reads the newest schema, and gives its cookie.
    fn newest_cookie(&self) -> Result<u32> {
        self.begin_read()?;
        let ask = || self.raw().pragma_query_value(None, "schema_version", |row| row.get(0));
        let cookie = self.signals.as_engine(ask);
        self.rollback()?;
        cookie
    }

    fn explain_for_others(&self, sql: &str, numbers: bool) -> DryRun {
        let budget = self.start_budget();
        let explain = || self.prepared.explain(sql, &self.signals);
        let program = if numbers { self.signals.numbering(explain) } else { explain() };
        self.end_budget(budget);
        program.map_or(DryRun::GivenUp, |program| DryRun::Explained(program.passes))
    }

    fn prepare_for_others(&self, sql: &str, numbers: bool) -> DryRun {
        let budget = self.start_budget();
        self.signals.start_statement();
        let begun = thread_time();
        let prepare = || self.preparing(sql, || self.raw().prepare(sql)).map(drop);
        let prepared = if numbers { self.signals.numbering(prepare) } else { prepare() };
        let is_starved = self.end_budget(budget);
        match prepared {
            Ok(()) => DryRun::Prepared(thread_time().saturating_sub(begun)),
            Err(_) if is_starved => {
                let text = "to prepare the statement takes more memory than the option \
                            memory_limit_bytes of monolite::Untrusted allows";
                let code = ffi::Error::new(ffi::SQLITE_AUTH);
                DryRun::Refused(
                    rusqlite::Error::SqliteFailure(code, Some(text.into())),
                    self.signals.take_denial(),
                )
            }
            Err(error) => DryRun::Refused(error, self.signals.take_denial()),
        }
    }
}

/// The processor time of this thread: what it waited for a core, the next one need not wait.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
