//! `monolite bench`: hands the arguments over and prints what comes back.

use super::arguments::{
    All, Bench, Output, Report, SchemaArgument, SkewArgument, SuiteRun, Tps, Yours,
};
use crate::bar::Bar;
use crate::interrupt::{self, Stopped};
use crate::out::stdout;
use anyhow::{Context, Result, ensure};
use monolite_bench::drivers::postgres::Source;
use monolite_bench::progress::{Interrupt, Interrupted};
use monolite_bench::report::files;
use monolite_bench::report::record::Record;
use monolite_bench::suites::archive::Archives;
use monolite_bench::suites::begin::Begins;
use monolite_bench::suites::servers::Servers;
use monolite_bench::suites::stage::{self, Play};
use monolite_bench::suites::yours::{self, YoursOptions};
use monolite_bench::suites::{Depth, SuiteOptions};
use monolite_bench::tps::{self, InteractiveOptions, TpsOptions};
use monolite_bench::workload::{Schema, Skew};
use std::io::{self, Write};
use std::path::Path;

/// What is left of a run that the user stopped.
const STOPPED: &str = "a private PostgreSQL and temporary files are removed, loaded data sets kept";

/// Runs a benchmark, or prints an old one.
pub(crate) fn run(command: &Bench) -> Result<()> {
    match command {
        Bench::Tps(arguments) => tps(arguments),
        Bench::Begin(arguments) => play(&Begins, arguments),
        Bench::Archive(arguments) => {
            let archives = Archives::new(arguments.archive.as_deref())?;
            let played = play(&archives, &arguments.run);
            let removed = archives.remove();
            played.and(removed)
        }
        Bench::Yours(arguments) => yours(arguments),
        Bench::Server(arguments) => {
            let program = std::env::current_exe().context("this program's own file")?;
            play(&Servers::new(program, arguments.examples.clone()), &arguments.run)
        }
        Bench::All(arguments) => all(arguments),
        Bench::Report(arguments) => report(arguments),
    }
}

fn tps(arguments: &Tps) -> Result<()> {
    let options = options(arguments, repeatable(std::env::args().skip(1)));
    let record = measure(|progress, interrupt| tps::run(&options, progress, interrupt))?;
    let output = arguments.output.clone();
    let output = Output { tables: output.tables || arguments.full, ..output };
    show(&[record], &arguments.data, &output)
}

fn all(arguments: &All) -> Result<()> {
    let (data, depth) = (&arguments.data, depth(arguments.quick, arguments.full));
    let postgres = if arguments.no_postgres { Source::None } else { Source::Private };
    let flag = depth.pick(" --quick", "", " --full");
    let command = |suite: &str| {
        let all = repeatable(std::env::args().skip(1));
        format!("{all}, whose part it was: bench {suite}{flag}")
    };
    let records = measure(|progress, interrupt| {
        let base = TpsOptions::new(data.clone(), depth);
        let options = TpsOptions { postgres: postgres.clone(), command: command("tps"), ..base };
        let tps = tps::run(&options, progress, interrupt)?;
        files::write_latest(std::slice::from_ref(&tps), data)?;
        progress.note("bench begin");
        let base = SuiteOptions::new(data.clone(), depth);
        let options = SuiteOptions { postgres, command: command("begin"), ..base };
        let begin = stage::run(&Begins, &options, progress, interrupt)?;
        files::write_latest(std::slice::from_ref(&begin), data)?;
        Ok([tps, begin])
    })?;
    show(&records, data, &arguments.output)
}

fn yours(arguments: &Yours) -> Result<()> {
    let schema = std::fs::read_to_string(&arguments.schema)
        .with_context(|| format!("--schema: cannot read {}", arguments.schema.display()))?;
    let yours = yours::Yours::new(&YoursOptions {
        schema,
        writes: arguments.write.clone(),
        reads: arguments.read.clone(),
        loads: arguments.load.clone(),
        parameters: arguments.parameters.clone(),
        mix: arguments.mix.clone(),
        clients: arguments.clients,
    })?;
    play(&yours, &arguments.run)
}

fn play(suite: &dyn Play, arguments: &SuiteRun) -> Result<()> {
    let depth = depth(arguments.quick, arguments.full);
    let base = SuiteOptions::new(arguments.data.clone(), depth);
    let options = SuiteOptions {
        rounds: arguments.rounds.unwrap_or(base.rounds),
        rows: arguments.rows,
        postgres: if arguments.no_postgres { Source::None } else { Source::Private },
        only: arguments.only.clone(),
        command: repeatable(std::env::args().skip(1)),
        ..base
    };
    let record = measure(|progress, interrupt| stage::run(suite, &options, progress, interrupt))?;
    show(&[record], &arguments.data, &arguments.output)
}

fn depth(quick: bool, full: bool) -> Depth {
    match (quick, full) {
        (true, _) => Depth::Quick,
        (_, true) => Depth::Full,
        _ => Depth::Standard,
    }
}

/// Runs a benchmark with progress, until it is done or the user stops it.
fn measure<T>(run: impl FnOnce(&Bar, &Interrupt) -> Result<T>) -> Result<T> {
    ensure!(
        !cfg!(debug_assertions),
        "this is a debug build, whose figures mean nothing; build with cargo build --release"
    );
    let interrupt = Interrupt::default();
    let asked = interrupt.clone();
    interrupt::on_signal(interrupt::STOPPING, move || asked.request())?;
    let bar = Bar::new();
    let outcome = run(&bar, &interrupt);
    bar.finish();
    match outcome {
        Err(error) if interrupt.requested() || error.is::<Interrupted>() => {
            Err(Stopped(STOPPED).into())
        }
        outcome => outcome,
    }
}

/// Keeps the records and their report in the data directory, and prints what was asked for.
fn show(records: &[Record], data: &Path, output: &Output) -> Result<()> {
    let [latest, page] = files::write_latest(records, data)?;
    let mut out = stdout();
    if output.json {
        out.write_all(&files::json(records)?)?;
    } else {
        for record in records {
            if output.tables {
                files::write_text(record, &mut out)?;
                writeln!(out)?;
            }
            files::write_summary(record, &mut out)?;
        }
        writeln!(out, "report: {} (from {})", page.display(), latest.display())?;
    }
    if let Some(dir) = &output.record {
        let target = files::write_record(records, dir)?;
        writeln!(io::stderr(), "record written to {}", target.display())?;
    }
    Ok(())
}

fn options(arguments: &Tps, command: String) -> TpsOptions {
    let base = TpsOptions::new(arguments.data.clone(), depth(arguments.quick, arguments.full));
    let clients = arguments.clients.clone();
    TpsOptions {
        interactive: InteractiveOptions {
            clients: clients.unwrap_or(base.interactive.clients),
            ..base.interactive
        },
        rows: arguments.rows.unwrap_or(base.rows),
        rounds: arguments.rounds.unwrap_or(base.rounds),
        transactions: arguments.transactions.unwrap_or(base.transactions),
        schema: match arguments.schema {
            SchemaArgument::Published => Schema::Published,
            SchemaArgument::Tuned => Schema::Tuned,
        },
        skew: match arguments.skew {
            SkewArgument::Pareto => Skew::Pareto,
            SkewArgument::Uniform => Skew::Uniform,
        },
        postgres: match (&arguments.postgres, arguments.no_postgres) {
            (_, true) => Source::None,
            (Some(url), _) => Source::Url(url.clone()),
            (None, _) => Source::Private,
        },
        only: arguments.only.clone(),
        wal_limit_bytes: arguments.wal_limit_mib << 20,
        command,
        ..base
    }
}

/// Returns the command line without names of directories and servers, which are private.
fn repeatable(line: impl Iterator<Item = String>) -> String {
    const PRIVATE: [(&str, &str); 6] = [
        ("--archive", "URL"),
        ("--data", "DIR"),
        ("--examples", "DIR"),
        ("--record", "DIR"),
        ("--postgres", "URL"),
        ("--schema", "FILE"),
    ];
    let mut words = vec!["monolite".to_owned()];
    let mut replacement = None;
    for word in line {
        if let Some(stand_in) = replacement.take() {
            words.push(stand_in);
            continue;
        }
        let name = word.split('=').next().unwrap_or_default();
        match PRIVATE.iter().find(|(private, _)| *private == name) {
            Some((_, stand_in)) if word.contains('=') => words.push(format!("{name}={stand_in}")),
            Some((_, stand_in)) => {
                replacement = Some((*stand_in).to_owned());
                words.push(word);
            }
            None if word.contains(char::is_whitespace) => words.push(format!("\"{word}\"")),
            None => words.push(word),
        }
    }
    words.join(" ")
}

fn report(arguments: &Report) -> Result<()> {
    let records: Result<Vec<Vec<Record>>> =
        arguments.files.iter().map(|file| files::read(file)).collect();
    let records: Vec<Record> = records?.into_iter().flatten().collect();
    let mut out = stdout();
    for record in &records {
        if arguments.markdown {
            write!(out, "{}", files::tables_page(record))?;
        } else {
            files::write_text(record, &mut out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_command_names_no_directory_and_no_server() {
        let line = "bench tps --data /a/b --rounds 2 --record=/c --postgres postgres://u:p@h/d";
        let command = repeatable(line.split(' ').map(str::to_owned));
        assert_eq!(command, "monolite bench tps --data DIR --rounds 2 --record=DIR --postgres URL");
    }
}
