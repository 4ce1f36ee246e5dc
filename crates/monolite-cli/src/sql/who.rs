//! Owns what `.who` says of calls and transactions.

use monolite::Value;
use monolite_client::Answer;
use serde_json::Value as Json;

use crate::words;

/// What a database follows, the calls that run in it and its open transactions: what has the writer
/// first.
pub(crate) fn table(now: &Json) -> Answer {
    let list = |name: &str| now[name].as_array().cloned().unwrap_or_default();
    let mut calls = list("running");
    calls.sort_by_key(|call| call["has_writer"] != true);
    let replica = now["replica"].is_object().then(|| of_replica(&now["replica"]));
    let rows = replica.into_iter().chain(calls.iter().map(of_call));
    let columns = ["who", "what", "time", "waiting", "statement"].map(str::to_owned).to_vec();
    let rows = rows.chain(list("open_transactions").iter().map(of_transaction)).collect();
    Answer { columns, rows, ..Answer::default() }
}

/// Its time is how old is what it has.
fn of_replica(replica: &Json) -> Vec<Value> {
    let number = |name: &str| replica[name].as_u64().unwrap_or(0);
    let primary = replica["primary"].as_str().filter(|it| !it.is_empty()).unwrap_or("an archive");
    let behind = words::count(number("newest").saturating_sub(number("txid")), "TXID");
    let epoch = number("epoch");
    let mut what = format!("replica of {primary}, epoch {epoch}, {behind} behind");
    for error in ["last_error", "barred"].iter().filter_map(|name| replica[name].as_str()) {
        what += &format!(": {error}");
    }
    let age = replica["age_ms"].as_f64();
    let age = age.map_or(Value::Null, |ms| Value::Text(words::seconds(ms / 1e3)));
    vec![Value::Text("follow".into()), Value::Text(what), age, Value::Null, Value::Null]
}

fn of_call(call: &Json) -> Vec<Value> {
    let mut what = call["caller"]["kind"].as_str().unwrap_or_default().to_lowercase();
    if call["has_writer"] == true {
        what += ", has the writer";
    }
    if call["keeps_wal"] == true {
        what += ", keeps the WAL";
    }
    let statement = call["statement"].as_str().map_or(Value::Null, |sql| Value::Text(sql.into()));
    let waiting = Value::Integer(call["waiting"].as_i64().unwrap_or(0));
    vec![name(call), Value::Text(what), time(call), waiting, statement]
}

fn of_transaction(open: &Json) -> Vec<Value> {
    let statements = words::count(open["statements"].as_u64().unwrap_or(0), "statement");
    let state = if open["is_running"] == true { "running" } else { "at rest" };
    let what = format!("open transaction, {statements}, {state}");
    vec![name(open), Value::Text(what), time(open), Value::Null, Value::Null]
}

fn name(call: &Json) -> Value {
    Value::Text(call["caller"]["name"].as_str().unwrap_or("no name").to_owned())
}

fn time(call: &Json) -> Value {
    Value::Text(words::seconds(seconds(call)))
}

fn seconds(call: &Json) -> f64 {
    let part = |name: &str| call["time"][name].as_f64().unwrap_or(0.0);
    part("secs") + part("nanos") / 1e9
}
