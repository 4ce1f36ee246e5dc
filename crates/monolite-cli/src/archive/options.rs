//! Owns the file that says how to reach buckets (`--config`).
//!
//! # Format
//! TOML, a table for each kind of address: `[s3]`, `[gs]`, `[az]`. Its keys are the options that an
//! address may have, its values text, whole numbers, or true and false. Values may be secret: no
//! message has one.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use monolite_archive::Archive;
use toml::{Table, Value};

use crate::arguments::Archived;

const KINDS: [&str; 3] = ["s3", "gs", "az"];

/// The archive that is named.
pub(crate) fn open(archived: &Archived) -> Result<Archive> {
    let given = archived.config.as_ref().map(|path| read(path, &archived.url));
    Ok(Archive::at_with(&archived.url, &given.transpose()?.unwrap_or_default())?)
}

/// The options that the file at `path` has for `url`.
pub(crate) fn read(path: &Path, url: &str) -> Result<Vec<(String, String)>> {
    let named = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(named)?;
    parse(&text, url).with_context(named)
}

fn parse(text: &str, url: &str) -> Result<Vec<(String, String)>> {
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => {
            let error: toml::de::Error = error;
            let at = error.span().map_or(0, |span| span.start);
            let line = text.as_bytes()[..at.min(text.len())].iter().filter(|it| **it == b'\n');
            bail!("line {} is no TOML: {}", line.count() + 1, error.message());
        }
    };
    for (kind, of_kind) in &table {
        ensure!(
            KINDS.contains(&kind.as_str()),
            "[{kind}] is no kind of bucket; there are s3, gs, az"
        );
        ensure!(of_kind.is_table(), "{kind} is no table, as [{kind}] begins one");
    }
    let kind = url.split_once("://").map_or("", |(kind, _)| kind);
    let Some(options) = table.get(kind).and_then(Value::as_table) else { return Ok(Vec::new()) };
    options.iter().map(|(key, value)| Ok((key.clone(), plain(kind, key, value)?))).collect()
}

fn plain(kind: &str, key: &str, value: &Value) -> Result<String> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(is) => is.to_string(),
        _ => bail!("{key} in [{kind}] is neither text nor a whole number nor true or false"),
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn options_are_those_of_the_kind_of_address() {
        let text =
            "[s3]\nendpoint = 'http://127.0.0.1:1'\nallow_http = true\nmax = 3\n[gs]\na = 'b'";
        let options = parse(text, "s3://bucket/prefix").expect("it is right");
        let expected = [("endpoint", "http://127.0.0.1:1"), ("allow_http", "true"), ("max", "3")];
        let as_text = |it: &(String, String)| expected.contains(&(it.0.as_str(), it.1.as_str()));
        assert!(options.len() == 3 && options.iter().all(as_text));
        assert!(parse(text, "/a/directory").expect("it is right").is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is_said() {
        for (text, said) in [
            ("[s3]\nsecret_access_key = hunter2", "line 2"),
            ("[s3]\nsecret_access_key = ['hunter2']", "secret_access_key in [s3]"),
            ("[s4]\nsecret_access_key = 'hunter2'", "[s4]"),
            ("s3 = 'hunter2'", "s3 is no table"),
        ] {
            let error = format!("{:#}", parse(text, "s3://bucket").expect_err("it is wrong"));
            assert!(error.contains(said) && !error.contains("hunter2"), "{error}");
        }
    }
}
