//! Owns the export into a running PostgreSQL: one transaction, which is committed when both sides'
//! checksums are equal. Until then nothing of it is there for others; a process that dies leaves
//! nothing.

use super::kind::Kind;
use super::map::{Plan, Step};
use super::report::{Report, joined};
use super::rows::{self, MOST_REFUSED, Refused, Sum};
use super::target::{Target, TargetColumn};
use super::translate::{literal, quoted};
use super::{Progress, Source, Stopped, TICK};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _, pin_mut};
use std::io::Cursor;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What begins a binary COPY: its signature, flags, and the length of an extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// What ends it.
const TRAILER: &[u8] = &[0xff, 0xff];

/// How much is sent at once: enough that a message's own cost is small.
const CHUNK: usize = 256 << 10;

/// Waits for `future`, or until the user asks to stop.
async fn unless_stopped<T>(
    what: &str,
    rows: u64,
    future: impl Future<Output = T>,
    progress: &mut Progress<'_>,
) -> Result<T> {
    pin_mut!(future);
    loop {
        if let Ok(done) = tokio::time::timeout(TICK, &mut future).await {
            return Ok(done);
        }
        progress.at(what, rows)?;
    }
}

/// The connection, with the transaction.
pub(super) struct Postgres {
    runtime: Runtime,
    client: Client,
}

impl Postgres {
    /// Connects, and sees whether the place for the tables is empty, or not if they are there.
    pub(super) fn open(url: &str, is_written: bool) -> Result<Postgres> {
        // The parser's complaint may show a part of a password.
        let Ok(mut config) = url.parse::<Config>() else {
            bail!(
                "the target is no postgres://USER@HOST/DATABASE, and has a sign that the name of a \
                 directory may not have (=, ://, or : before @); it is not shown, as it may have a \
                 password"
            );
        };
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        config.application_name("monolite export");
        // One thread sends and receives while this one encodes.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("the threads of the client do not start")?;
        let client = match config.get_ssl_mode() {
            SslMode::Require => runtime.block_on(connected(&config, tls()?)),
            _ => runtime.block_on(connected(&config, NoTls)),
        };
        let client = client.map_err(|error| said("cannot connect to PostgreSQL", &error))?;
        let postgres = Postgres { runtime, client };
        postgres.begin()?;
        let encoding = postgres.ask("SHOW server_encoding")?;
        ensure!(
            encoding.as_deref() == Some("UTF8"),
            "the database has the encoding {}; make one with ENCODING 'UTF8'",
            encoding.unwrap_or_default()
        );
        let schema = postgres.ask("SELECT current_schema()")?;
        let schema = schema.context("there is no schema for the tables; see search_path")?;
        let relation = "SELECT relname FROM pg_class WHERE relnamespace = \
                        current_schema()::regnamespace LIMIT 1";
        if let Some(name) = postgres.ask(relation)?.filter(|_| is_written) {
            bail!(
                "the schema {schema} of the database is not empty: it has {name}; name an empty \
                 database, or a schema by ?options=-csearch_path%3DNAME in the URL"
            );
        }
        Ok(postgres)
    }

    fn begin(&self) -> Result<()> {
        self.run(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL statement_timeout = 0; \
             SET LOCAL idle_in_transaction_session_timeout = 0; \
             SET LOCAL standard_conforming_strings = on",
        )
    }

    /// Begins to read this moment, whatever others write from now on.
    pub(super) fn keep_moment(&self) -> Result<()> {
        self.begin()?;
        self.run("SELECT 1 FROM pg_class LIMIT 1")
    }

    fn run(&self, sql: &str) -> Result<()> {
        self.attempt(sql).map_err(|error| said(sql, &error))
    }

    fn attempt(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.runtime.block_on(self.client.batch_execute(sql))
    }

    fn ask(&self, sql: &str) -> Result<Option<String>> {
        let rows = self.runtime.block_on(self.client.simple_query(sql));
        let rows = rows.map_err(|error| said(sql, &error))?;
        Ok(rows.iter().find_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    }

    /// Runs what may fail without harm for the transaction.
    fn tried(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.attempt("SAVEPOINT tried")?;
        let outcome = self.attempt(sql);
        if outcome.is_err() {
            self.attempt("ROLLBACK TO SAVEPOINT tried")?;
        }
        self.attempt("RELEASE SAVEPOINT tried")?;
        outcome
    }

    /// Makes a table with its rows, and returns what was read. Generated columns that PostgreSQL
    /// cannot compute for each row, or computes otherwise, become plain ones.
    pub(super) fn carry(
        &self,
        source: Source<'_, '_>,
        target: &mut Target,
        report: &mut Report,
        refused: &mut Vec<Refused>,
        progress: &mut Progress<'_>,
    ) -> Result<Sum> {
        self.create(target, report)?;
        if target.columns.iter().all(|column| column.generated.is_none()) {
            return self.copy(source, target, refused, progress);
        }
        let known = refused.len();
        self.run("SAVEPOINT whole")?;
        let why = match self.copy(source, target, refused, progress) {
            Ok(sum) if self.sum(target, progress)? == sum => {
                self.run("RELEASE SAVEPOINT whole")?;
                return Ok(sum);
            }
            Ok(_) => "PostgreSQL computes other values for it, or for another of its table".into(),
            Err(error) => error.to_string(),
        };
        // What else has failed does so again.
        refused.truncate(known);
        for column in &mut target.columns {
            if column.generated.take().is_some() {
                let of = format!("{}.{}", target.name, column.name);
                let note = format!("{why}; it is a plain column with its values");
                report.lost("generated column", &of, &note);
            }
        }
        self.run("ROLLBACK TO SAVEPOINT whole; RELEASE SAVEPOINT whole")?;
        self.run(&format!("DROP TABLE {}", quoted(&target.name)))?;
        self.run(&target.create(|_| true))?;
        self.copy(source, target, refused, progress)
    }

    /// Makes a table. A generated column that PostgreSQL refuses becomes a plain one.
    fn create(&self, target: &mut Target, report: &mut Report) -> Result<()> {
        for at in 0..target.columns.len() {
            let TargetColumn { kind, generated: Some(made), .. } = &target.columns[at] else {
                continue;
            };
            // Where no row has a value, nothing but the types tells that `true` would become a text
            // or a fraction an integer: neither of these does by an operator.
            let typed = match kind {
                Kind::Text => format!("({made}) COLLATE \"C\""),
                Kind::Bigint => format!("({made}) | 0"),
                _ => "1".into(),
            };
            let (create, name) = (target.create(|it| it == at), quoted(&target.name));
            let probe = format!("{create}; SELECT {typed} FROM {name}; DROP TABLE {name}");
            if let Err(error) = self.tried(&probe) {
                let of = format!("{}.{}", target.name, target.columns[at].name);
                let note = format!("{}; it is a plain column with its values", message(&error));
                report.lost("generated column", &of, &note);
                target.columns[at].generated = None;
            }
        }
        self.run(&target.create(|_| true))
    }

    /// Copies a table's rows, and returns what was read. Rows that PostgreSQL cannot take are left
    /// out, and listed: the export fails then, when all are known.
    pub(super) fn copy(
        &self,
        source: Source<'_, '_>,
        target: &Target,
        refused: &mut Vec<Refused>,
        progress: &mut Progress<'_>,
    ) -> Result<Sum> {
        let is_written = |column: &TargetColumn| column.generated.is_none();
        let sql = format!(
            "COPY {} ({}) FROM STDIN (FORMAT binary)",
            quoted(&target.place),
            target.names(is_written)
        );
        let sink = self.runtime.block_on(self.client.copy_in::<_, Cursor<Vec<u8>>>(&sql));
        let sink = sink.map_err(|error| said(&sql, &error))?;
        pin_mut!(sink);
        let failed =
            |error: tokio_postgres::Error| said(&format!("copying {}", target.name), &error);
        let is_whole = target.columns.iter().all(is_written);
        let (mut sum, mut chunk, mut whole) = (Sum::default(), HEADER.to_vec(), Vec::new());
        source.each(target, refused, |tuple| {
            sum.add(tuple);
            match is_whole {
                true => chunk.extend_from_slice(tuple),
                false => without_generated(tuple, target, &mut chunk, &mut whole),
            }
            if chunk.len() >= CHUNK {
                progress.at(&target.name, sum.rows)?;
                let full = std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK + CHUNK / 8));
                self.runtime.block_on(sink.send(Cursor::new(full))).map_err(failed)?;
            }
            Ok(())
        })?;
        chunk.extend(TRAILER);
        self.runtime.block_on(sink.send(Cursor::new(chunk))).map_err(failed)?;
        self.runtime.block_on(sink.finish()).map_err(failed)?;
        Ok(sum)
    }

    /// Makes a place for `keys` of rows of a table.
    pub(super) fn place_for(&self, keys: &Target, target: &Target) -> Result<()> {
        let (name, columns, table) = (quoted(&keys.place), keys.names(|_| true), &target.name);
        let select = format!("SELECT {columns} FROM {}", quoted(table));
        self.run(&format!("CREATE TEMPORARY TABLE {name} AS {select} WITH NO DATA"))
    }

    /// Deletes the rows of `target` with the keys that `noted` gives.
    pub(super) fn take_out(
        &self,
        noted: Source<'_, '_>,
        keys: &Target,
        target: &Target,
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        let (name, table) = (quoted(&keys.place), quoted(&target.name));
        self.run(&format!("TRUNCATE {name}"))?;
        // A key that PostgreSQL cannot take is in no row there.
        self.copy(noted, keys, &mut Vec::new(), progress)?;
        let equal = keys.columns.iter().map(|it| quoted(&it.name));
        let equal: Vec<String> = equal.map(|it| format!("{table}.{it} = {name}.{it}")).collect();
        self.run(&format!("DELETE FROM {table} USING {name} WHERE {}", equal.join(" AND ")))
    }

    /// The checksum of a table as PostgreSQL has it.
    pub(super) fn sum(&self, target: &Target, progress: &mut Progress<'_>) -> Result<Sum> {
        let (names, table) = (target.names(|_| true), quoted(&target.name));
        self.summed(&table, &format!("SELECT {names} FROM {table}"), Sum::add, progress)
    }

    /// The types of a view's columns, with commas between them; `None` if it is not there.
    pub(super) fn types(&self, view: &str) -> Result<Option<String>> {
        let view = literal(&quoted(view));
        self.ask(&format!(
            "SELECT string_agg(atttypid::regtype::text, ',' ORDER BY attnum) FROM pg_attribute \
             WHERE attrelid = to_regclass({view}) AND attnum > 0"
        ))
    }

    /// The checksum of what a view gives by `query`, each row added by `add`; within, why it cannot
    /// be had.
    pub(super) fn answers(
        &self,
        view: &str,
        query: &str,
        add: fn(&mut Sum, &[u8]),
        patience: Duration,
        progress: &mut Progress<'_>,
    ) -> Result<Result<Sum>> {
        let patience = patience.as_secs();
        self.run(&format!("SAVEPOINT asked; SET LOCAL statement_timeout = '{patience}s'"))?;
        let sum = self.summed(view, query, add, progress);
        match &sum {
            // The statement may still run.
            Err(error) if error.is::<Stopped>() => sum.map(Ok),
            _ => {
                self.run("ROLLBACK TO SAVEPOINT asked; RELEASE SAVEPOINT asked")?;
                Ok(sum)
            }
        }
    }

    fn summed(
        &self,
        what: &str,
        query: &str,
        add: fn(&mut Sum, &[u8]),
        progress: &mut Progress<'_>,
    ) -> Result<Sum> {
        let sql = format!("COPY ({query}) TO STDOUT (FORMAT binary)");
        self.runtime.block_on(async {
            let failed = |error: tokio_postgres::Error| said(&format!("reading {what}"), &error);
            let begun = unless_stopped(what, 0, self.client.copy_out(&sql), progress).await?;
            let stream = begun.map_err(failed)?;
            pin_mut!(stream);
            let (mut sum, mut rest) = (Sum::default(), Vec::new());
            let mut is_begun = false;
            loop {
                // What has come needs no clock.
                let next = match stream.next().now_or_never() {
                    Some(next) => next,
                    None => unless_stopped(what, sum.rows, stream.next(), progress).await?,
                };
                let Some(bytes) = next else { break };
                rest.extend_from_slice(&bytes.map_err(failed)?);
                let mut at = 0;
                if !is_begun && rest.len() >= HEADER.len() {
                    (is_begun, at) = (true, HEADER.len());
                }
                while let Some(length) = is_begun.then(|| tuple_length(&rest[at..])).flatten() {
                    add(&mut sum, &rest[at..at + length]);
                    at += length;
                    progress.sometimes(what, sum.rows)?;
                }
                rest.drain(..at);
            }
            ensure!(rest == TRAILER, "PostgreSQL's answer for {what} is cut off");
            Ok(sum)
        })
    }

    /// Makes all that is not rows. A view may need one that comes later.
    pub(super) fn finish(&self, plan: &mut Plan) -> Result<()> {
        let steps = std::mem::take(&mut plan.steps);
        let (views, others): (Vec<Step>, Vec<Step>) =
            steps.into_iter().partition(|step| step.kind == "view");
        for step in others {
            if let Err(why) = self.step(&step, &mut plan.report)? {
                plan.report.lost(step.kind, &step.name, &why);
            }
        }
        let mut waiting = views;
        while !waiting.is_empty() {
            let (count, mut refused) = (waiting.len(), Vec::new());
            for step in waiting {
                if let Err(why) = self.step(&step, &mut plan.report)? {
                    refused.push((step, why));
                }
            }
            if refused.len() == count {
                for (step, why) in refused {
                    plan.report.lost(step.kind, &step.name, &why);
                }
                break;
            }
            waiting = refused.into_iter().map(|(step, _)| step).collect();
        }
        Ok(())
    }

    /// Tries one step; `Err` within is why PostgreSQL refuses it.
    fn step(&self, step: &Step, report: &mut Report) -> Result<Result<(), String>> {
        let Err(error) = self.tried(&step.sql) else {
            let mut note = step.note.clone();
            if step.kind == "view"
                && let Some(columns) = self.booleans(&step.name)?
            {
                note = joined(&note, &format!("boolean, not 0 and 1: {columns}"));
            }
            report.noted(step.kind, &step.name, &note);
            return Ok(Ok(()));
        };
        if error.as_db_error().is_none() {
            return Err(said(&step.sql, &error));
        }
        if let Some((sql, note)) = &step.or_else
            && self.tried(sql).is_ok()
        {
            report.noted(step.kind, &step.name, &joined(&step.note, note));
            return Ok(Ok(()));
        }
        Ok(Err(message(&error)))
    }

    /// The columns of a view that are conditions.
    fn booleans(&self, view: &str) -> Result<Option<String>> {
        let view = literal(&quoted(view));
        self.ask(&format!(
            "SELECT string_agg(attname, ', ') FROM pg_attribute \
             WHERE attrelid = {view}::regclass AND atttypid = 'boolean'::regtype"
        ))
    }

    /// Has foreign keys hold for all rows, where they do.
    pub(super) fn validate(&self, report: &mut Report) -> Result<()> {
        let sql = "SELECT string_agg(format('ALTER TABLE %s VALIDATE CONSTRAINT %I', \
                   conrelid::regclass, conname), E'\\n') FROM pg_constraint WHERE NOT convalidated \
                   AND contype = 'f' AND connamespace = current_schema()::regnamespace";
        for sql in self.ask(sql)?.unwrap_or_default().lines() {
            if let Err(error) = self.attempt(sql) {
                let note = format!("it is NOT VALID, and holds for new rows: {}", message(&error));
                report.noted("foreign key", sql, &note);
            }
        }
        Ok(())
    }

    /// Lets all of it be there.
    pub(super) fn commit(&self) -> Result<()> {
        self.run("COMMIT").context("whether the export is there is not known: look")
    }
}

async fn connected<T>(config: &Config, tls: T) -> Result<Client, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket, Stream: Send + 'static>,
{
    let (client, connection) = config.connect(tls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Connections that the system's certificates vouch for.
fn tls() -> Result<MakeRustlsConnect> {
    // It fails if there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match MakeRustlsConnect::with_native_certs() {
        Ok((tls, _)) => Ok(tls),
        Err(errors) => bail!("the system's certificates cannot be read: {errors:?}"),
    }
}

/// Takes the generated columns out of a tuple.
fn without_generated(tuple: &[u8], target: &Target, out: &mut Vec<u8>, kept: &mut Vec<u8>) {
    let mut count = 0_i16;
    kept.clear();
    for (field, column) in rows::fields(tuple).zip(&target.columns) {
        if column.generated.is_none() {
            count += 1;
            let length = field.map_or(-1, |field| i32::try_from(field.len()).unwrap_or(i32::MAX));
            kept.extend(length.to_be_bytes());
            kept.extend(field.unwrap_or_default());
        }
    }
    out.extend(count.to_be_bytes());
    out.extend_from_slice(kept);
}

/// The length of the first tuple in `bytes`, if all of it is there.
fn tuple_length(bytes: &[u8]) -> Option<usize> {
    let count = u16::try_from(i16::from_be_bytes(*bytes.first_chunk()?)).ok()?;
    let mut at = 2;
    for _ in 0..count {
        let length = i32::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
        at += 4 + usize::try_from(length).unwrap_or(0);
    }
    (bytes.len() >= at).then_some(at)
}

/// PostgreSQL's own words.
fn message(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(
        || error.to_string(),
        |error| match error.detail() {
            Some(detail) => format!("{}: {detail}", error.message()),
            None => error.message().to_owned(),
        },
    )
}

fn said(what: &str, error: &tokio_postgres::Error) -> anyhow::Error {
    let mut text = message(error);
    let mut cause = std::error::Error::source(error).filter(|_| error.as_db_error().is_none());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    anyhow!("{what}: {text}")
}

/// Fails when values were refused.
pub(super) fn none_refused(refused: &[Refused]) -> Result<()> {
    if refused.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = refused
        .iter()
        .map(|it| format!("{} row {}, {}: {}", it.table, it.row, it.column, it.why))
        .collect();
    let more = if refused.len() == MOST_REFUSED { "\n  and maybe more" } else { "" };
    bail!("PostgreSQL cannot take these values; correct them:\n  {}{more}", lines.join("\n  "))
}
