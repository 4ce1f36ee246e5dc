//! Owns the export into a directory, for `psql`.
//!
//! # Format
//! - `schema.sql`: the tables, without constraints.
//! - `data/NNNN_table.sql`: a `COPY … FROM stdin` in PostgreSQL's text format.
//! - `constraints.sql`: all else. Each statement that PostgreSQL refuses is a WARNING.
//! - `load.sql`: runs them in one transaction, which fails unless the counts of rows are right.
//!
//! The directory gets its name when it is whole and on disk.

use super::kind::Kind;
use super::map::{Plan, Step};
use super::rows::{self, Refused, Sum};
use super::target::Target;
use super::translate::{literal, quoted};
use super::{Progress, Source};
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory that is not whole yet.
pub(super) struct Files {
    target: PathBuf,
    unfinished: TempDir,
    schema: String,
    load: String,
    tables: usize,
}

impl Files {
    /// Begins one beside `target`, which must be empty or not there.
    pub(super) fn begin(target: &Path) -> Result<Files> {
        let is_free = match fs::read_dir(target) {
            Ok(mut entries) => entries.next().is_none(),
            Err(_) => !target.exists(),
        };
        ensure!(is_free, "{} exists and is not an empty directory", target.display());
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let unfinished = tempfile::Builder::new()
            .prefix(".monolite-export-")
            .tempdir_in(parent.unwrap_or(Path::new(".")))
            .with_context(|| format!("cannot make a directory beside {}", target.display()))?;
        fs::create_dir(unfinished.path().join("data"))?;
        let load = "\\set ON_ERROR_STOP on\nBEGIN;\nSET LOCAL client_encoding = 'UTF8';\n\
                    SET LOCAL standard_conforming_strings = on;\n\\ir schema.sql\n"
            .to_owned();
        let target = target.to_owned();
        Ok(Files { target, unfinished, schema: String::new(), load, tables: 0 })
    }

    /// Writes a table, and its rows.
    pub(super) fn table(
        &mut self,
        source: Source<'_, '_>,
        target: &Target,
        refused: &mut Vec<Refused>,
        progress: &mut Progress<'_>,
    ) -> Result<Sum> {
        writeln!(self.schema, "{};\n", target.create(|_| true))?;
        self.tables += 1;
        let plain = |sign: char| if sign.is_ascii_alphanumeric() { sign } else { '_' };
        let name: String = target.name.chars().take(40).map(plain).collect();
        let name = format!("data/{:04}_{name}.sql", self.tables);
        let file = File::create(self.unfinished.path().join(&name))?;
        let mut out = BufWriter::with_capacity(256 << 10, file);
        let table = quoted(&target.name);
        let names = target.names(|column| column.generated.is_none());
        writeln!(out, "COPY {table} ({names}) FROM stdin;")?;
        let (mut sum, mut line) = (Sum::default(), Vec::new());
        source.each(target, refused, |tuple| {
            sum.add(tuple);
            line.clear();
            text(tuple, target, &mut line);
            progress.sometimes(&target.name, sum.rows)?;
            Ok(out.write_all(&line)?)
        })?;
        out.write_all(b"\\.\n")?;
        out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
        let wrong = literal(&format!("{} has not all rows", target.name).replace('%', "%%"));
        let count = format!("(SELECT count(*) FROM {table}) <> {}", sum.rows);
        let body = format!("BEGIN IF {count} THEN RAISE EXCEPTION {wrong}; END IF; END");
        writeln!(self.load, "\\ir {name}\nDO {};", literal(&body))?;
        Ok(sum)
    }

    /// Writes the rest, and gives the directory its name.
    pub(super) fn finish(mut self, plan: &mut Plan) -> Result<()> {
        let mut constraints = String::new();
        for step in std::mem::take(&mut plan.steps) {
            attempt(&mut constraints, &step)?;
            plan.report.noted(step.kind, &step.name, &step.note);
        }
        self.load.push_str("\\ir constraints.sql\nCOMMIT;\n");
        for (name, content) in [
            ("schema.sql", &self.schema),
            ("constraints.sql", &constraints),
            ("load.sql", &self.load),
        ] {
            let mut file = File::create(self.unfinished.path().join(name))?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
        }
        // Takes the place of an empty directory, too.
        fs::rename(self.unfinished.path(), &self.target)?;
        drop(self.unfinished.keep());
        Ok(File::open(&self.target)?.sync_all()?)
    }
}

/// A statement that may fail, with the other way that it has.
fn attempt(out: &mut String, step: &Step) -> Result<()> {
    let execute = |sql: &str| format!("EXECUTE {};", literal(sql));
    let warning =
        literal(&format!("not carried: {} {}: %", step.kind, step.name.replace('%', "%%")));
    let mut inner = format!("RAISE WARNING {warning}, SQLERRM;");
    if let Some((sql, note)) = &step.or_else {
        let note = literal(&format!("{} {}: {note}", step.kind, step.name).replace('%', "%%"));
        inner = format!(
            "BEGIN {} RAISE WARNING {note}; EXCEPTION WHEN OTHERS THEN {inner} END;",
            execute(sql)
        );
    }
    let body = format!("BEGIN {} EXCEPTION WHEN OTHERS THEN {inner} END", execute(&step.sql));
    Ok(writeln!(out, "DO {};", literal(&body))?)
}

/// Appends a tuple as a line of the text format.
fn text(tuple: &[u8], target: &Target, line: &mut Vec<u8>) {
    let mut is_first = true;
    let columns = target.columns.iter();
    for (column, field) in columns.zip(rows::fields(tuple)) {
        if column.generated.is_some() {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            line.push(b'\t');
        }
        let Some(field) = field else {
            line.extend(b"\\N");
            continue;
        };
        let eight = || *field.first_chunk().expect("numbers have eight bytes");
        match column.kind {
            Kind::Bigint => line.extend(i64::from_be_bytes(eight()).to_string().bytes()),
            Kind::Double | Kind::Numeric => match f64::from_be_bytes(eight()) {
                value if value.is_infinite() => {
                    line.extend(if value > 0.0 { &b"Infinity"[..] } else { b"-Infinity" });
                }
                value => line.extend(format!("{value:?}").bytes()),
            },
            Kind::Bytea => {
                line.extend(b"\\\\x");
                line.extend(field.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
            }
            Kind::Text => field.iter().for_each(|byte| match byte {
                b'\\' => line.extend(b"\\\\"),
                b'\n' => line.extend(b"\\n"),
                b'\r' => line.extend(b"\\r"),
                b'\t' => line.extend(b"\\t"),
                byte => line.push(*byte),
            }),
        }
    }
    line.push(b'\n');
}
