//! Owns how a history is printed: one operation a line, for a person to read.

use std::fmt::Write as _;

use super::answer::write_value;
use super::record::{
    Call, Ending, History, How, Judged, Member, Op, Parameters, Setup, Step, Write,
};
use monolite::ToSql;
use monolite::rusqlite::types::ToSqlOutput;

/// The options that matter, then what the client does. `w` is a write, `r` a read, `t` a
/// `transact`, and `a` to `f` are interactive transactions.
pub(super) fn text(history: &History) -> String {
    let mut out = options(&history.setup);
    for op in &history.ops {
        operation(&mut out, op);
    }
    out
}

fn options(setup: &Setup) -> String {
    let (ours, simple) = (format!("{setup:?}"), format!("{:?}", Setup::SIMPLE));
    let fields = |text: &str| -> Vec<String> {
        let inner = text.trim_start_matches("Setup { ").trim_end_matches(" }");
        inner.split(", ").map(str::to_owned).collect()
    };
    let other =
        fields(&ours).into_iter().zip(fields(&simple)).filter(|(ours, simple)| ours != simple);
    let other: Vec<_> = other.map(|(ours, _)| ours).collect();
    if other.is_empty() { String::new() } else { format!("options {}\n", other.join(", ")) }
}

fn operation(out: &mut String, op: &Op) {
    match op {
        Op::Write(write) => closure(out, "", write),
        Op::Batch(members) => {
            line(out, "hold the writer");
            for member in members {
                match member {
                    Member::Write(write) => closure(out, "  ", write),
                    Member::Commit { slot, key } => {
                        line(out, &format!("  {} {}", name(*slot), commit(key.as_deref())));
                    }
                }
            }
            line(out, "release the writer");
        }
        Op::Read { is_durable, steps } => {
            let who = if *is_durable { "r (durable)" } else { "r" };
            steps.iter().for_each(|it| line(out, &format!("{who} {}", step(it))));
        }
        Op::Step { slot, step: it } => line(out, &format!("{} {}", name(*slot), step(it))),
        Op::Commit { slot, key } => {
            line(out, &format!("{} {}", name(*slot), commit(key.as_deref())));
        }
        Op::Rollback { slot } => line(out, &format!("{} rollback", name(*slot))),
        Op::Transact { steps, ending, meanwhile } => {
            for (at, it) in steps.iter().enumerate() {
                line(out, &format!("t {}", step(it)));
                if let Some(other) = meanwhile.as_ref().filter(|it| it.behind == at) {
                    let who = format!("  (attempts 1 to {}) ", other.attempts);
                    closure(out, &who, &other.write);
                }
            }
            line(out, if *ending == Ending::Commits { "t commit" } else { "t gives up" });
        }
        Op::Rest { ms } => line(out, &format!("rest {ms} ms")),
        Op::Reopen => line(out, "reopen"),
        Op::Compare => line(out, "compare"),
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn name(slot: usize) -> char {
    ['a', 'b', 'c', 'd', 'e', 'f'][slot]
}

fn commit(key: Option<&str>) -> String {
    key.map_or_else(|| "commit".into(), |key| format!("commit_once '{key}'"))
}

fn closure(out: &mut String, indent: &str, write: &Write) {
    let call = match write.call {
        Call::Write => "w",
        Call::Once => "w (once)",
        Call::Try => "w (try)",
    };
    let several = write.steps.len() > 1;
    if several || write.ending != Ending::Commits {
        line(out, &format!("{indent}{call} {{"));
    }
    for it in &write.steps {
        let unhandled = if it.is_handled { "" } else { "  (an error ends it)" };
        let who = if several || write.ending != Ending::Commits { "   " } else { call };
        line(out, &format!("{indent}{who} {}{unhandled}", step(it)));
    }
    if several || write.ending != Ending::Commits {
        let end = match write.ending {
            Ending::Commits => "}",
            Ending::Fails => "} returns an error",
            Ending::Panics => "} panics",
        };
        line(out, &format!("{indent}{end}"));
    }
}

fn step(step: &Step) -> String {
    let sql = step.sql.replace(";\n", "; ");
    let mut text = match step.how {
        How::Execute | How::All => sql,
        How::Batch => format!("execute_batch {sql}"),
        How::Row => format!("query_row {sql}"),
        How::Cached => format!("prepare_cached {sql}"),
        How::Part(most) => format!("{most} rows of {sql}"),
        How::LastInsertRowid => "last_insert_rowid()".into(),
        How::Savepoint => format!("savepoint {sql:?}"),
        How::RollbackTo => format!("rollback_to {sql:?}"),
        How::Release => format!("release {sql:?}"),
    };
    parameters(&mut text, &step.parameters);
    if step.judged == Judged::Refused {
        text.push_str("  (refused)");
    }
    text
}

fn parameters(text: &mut String, parameters: &Parameters) {
    if parameters.is_empty() {
        return;
    }
    let write = |text: &mut String, value: &dyn ToSql| {
        if let Ok(ToSqlOutput::Borrowed(value)) = value.to_sql() {
            write_value(text, value);
        }
    };
    text.push_str("  [");
    match parameters {
        Parameters::Positional(values) => {
            for (at, value) in values.iter().enumerate() {
                text.push_str(if at == 0 { "" } else { ", " });
                write(text, value);
            }
        }
        Parameters::Named(values) => {
            for (at, (name, value)) in values.iter().enumerate() {
                text.push_str(if at == 0 { "" } else { ", " });
                let _ = std::fmt::Write::write_fmt(text, format_args!("{name} = "));
                write(text, value);
            }
        }
    }
    let _ = text.write_char(']');
}
