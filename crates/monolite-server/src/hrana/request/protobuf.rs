//! Owns how requests are read from Protocol Buffers.
//!
//! # Format
//! The messages of the specification of Hrana 3. Fields that are not known, or are of another wire
//! type, are skipped; a missing number is 0 and a missing text is empty, where they are not
//! optional. By hand, as a generated reader would need a second set of the types, and the copying
//! between the two.

use super::{
    Batch, Condition, CursorRequest, Fields, MAX_CONDITION_DEPTH, MAX_REQUESTS, MAX_STEPS, Message,
    Pipeline, SOCKET_TYPES, STREAM_TYPES, Step, Stmt, Value, Wrong, check_steps, present,
};

/// What a field holds.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

use Wire::{Bytes, Fixed32, Fixed64, Varint};

/// The fields of a message. Behind an error come no others: the caller stops.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: u64) -> Result<&'a [u8], Wrong> {
        let (taken, rest) = usize::try_from(len)
            .ok()
            .and_then(|len| self.0.split_at_checked(len))
            .ok_or_else(|| Wrong::new("the message ends within a field"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Wrong> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = u64::from(self.take(1)?[0]);
            value |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Wrong::new("a number of more than 64 bits"))
    }

    fn field(&mut self) -> Result<(u64, Wire<'a>), Wrong> {
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().expect("eight were taken");
                Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let len = self.varint()?;
                Bytes(self.take(len)?)
            }
            5 => {
                self.take(4)?;
                Fixed32
            }
            wire_type => return Err(Wrong::new(format!("a field of wire type {wire_type}"))),
        };
        Ok((key >> 3, wire))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Wire<'a>), Wrong>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field())
    }
}

pub(super) fn pipeline(bytes: &[u8]) -> Result<Pipeline<Fields<'static>>, Wrong> {
    let mut pipeline = Pipeline { baton: None, requests: Vec::new() };
    for field in Reader(bytes) {
        match field? {
            (1, Bytes(bytes)) => pipeline.baton = Some(text("baton", bytes)?),
            (2, Bytes(bytes)) => {
                let read = |bytes: &[u8]| request(bytes, STREAM_TYPES, 1, &mut 0);
                push("requests", &mut pipeline.requests, MAX_REQUESTS, bytes, read)?;
                // Before more of them are read: a step can have four bytes.
                check_steps(&pipeline.requests)?;
            }
            _ => {}
        }
    }
    Ok(pipeline)
}

pub(super) fn cursor(bytes: &[u8]) -> Result<CursorRequest, Wrong> {
    let (mut baton, mut found) = (None, None);
    for field in Reader(bytes) {
        match field? {
            (1, Bytes(bytes)) => baton = Some(text("baton", bytes)?),
            (2, Bytes(bytes)) => found = Some(inside("batch", bytes, batch)?),
            _ => {}
        }
    }
    Ok(CursorRequest { baton, batch: present(found, "batch")? })
}

pub(super) fn message(bytes: &[u8]) -> Result<Message<Fields<'static>>, Wrong> {
    let mut message = Message { kind: "0".to_owned(), jwt: None, request_id: None, request: None };
    for field in Reader(bytes) {
        match field? {
            (1, Bytes(bytes)) => {
                message.kind = "hello".to_owned();
                for field in Reader(bytes) {
                    if let (1, Bytes(bytes)) = field? {
                        message.jwt = Some(text("jwt", bytes)?);
                    }
                }
            }
            (2, Bytes(bytes)) => {
                message.kind = "request".to_owned();
                let mut id = 0;
                let read = |bytes: &[u8]| request(bytes, SOCKET_TYPES, 2, &mut id);
                message.request = Some(inside("request", bytes, read)?);
                message.request_id = Some(id as i32);
            }
            _ => {}
        }
    }
    Ok(message)
}

/// Reads a request, one field of which has its type as its number: `first` is that of the first of
/// `types`. Of several the last one holds. A number below them is the `id`.
fn request(bytes: &[u8], types: &str, first: u64, id: &mut u64) -> Result<Fields<'static>, Wrong> {
    let (mut known, mut unknown) = (None, 0);
    for field in Reader(bytes) {
        let (tag, wire) = field?;
        let index = tag.checked_sub(first).and_then(|index| usize::try_from(index).ok());
        match (index.and_then(|index| types.split(' ').nth(index)), wire) {
            (Some(kind), Bytes(bytes)) => known = Some((kind, bytes)),
            (None, Varint(number)) if tag < first => *id = number,
            _ => unknown = tag,
        }
    }
    match known {
        // Over WebSocket a message on a stream has its number first.
        Some((kind, bytes)) => fields(kind, bytes, 2 - first),
        None => Ok(Fields { kind: unknown.to_string().into(), ..Fields::default() }),
    }
}

/// Reads the message of a request. All tags are counted as if the number of a stream came first, by
/// adding `shift` where none does.
fn fields(kind: &str, bytes: &[u8], shift: u64) -> Result<Fields<'static>, Wrong> {
    let stores = matches!(kind, "store_sql" | "close_sql");
    let shift = if stores || matches!(kind, "close_cursor" | "fetch_cursor") { 1 } else { shift };
    let mut request = Fields {
        kind: kind.to_owned().into(),
        sql: stores.then(String::new),
        sql_id: stores.then_some(0),
        stream_id: Some(0),
        cursor_id: Some(0),
        max_count: Some(0),
        ..Fields::default()
    };
    for field in Reader(bytes) {
        let (tag, wire) = field?;
        match (kind, tag + shift, wire) {
            (_, 1, Varint(id)) => request.stream_id = Some(id as i32),
            ("execute", 2, Bytes(bytes)) => request.stmt = Some(inside("stmt", bytes, stmt)?),
            ("batch", 2, Bytes(bytes)) | ("open_cursor", 3, Bytes(bytes)) => {
                request.batch = Some(inside("batch", bytes, batch)?);
            }
            ("sequence" | "describe", 2, Bytes(bytes)) | ("store_sql", 3, Bytes(bytes)) => {
                request.sql = Some(text("sql", bytes)?);
            }
            ("sequence" | "describe", 3, Varint(id))
            | ("store_sql" | "close_sql", 2, Varint(id)) => request.sql_id = Some(id as i32),
            ("open_cursor" | "close_cursor" | "fetch_cursor", 2, Varint(id)) => {
                request.cursor_id = Some(id as i32);
            }
            ("fetch_cursor", 3, Varint(count)) => request.max_count = Some(count as u32),
            _ => {}
        }
    }
    Ok(request)
}

fn batch(bytes: &[u8]) -> Result<Batch, Wrong> {
    let mut batch = Batch::default();
    for field in Reader(bytes) {
        if let (1, Bytes(bytes)) = field? {
            push("steps", &mut batch.steps, MAX_STEPS, bytes, step)?;
        }
    }
    Ok(batch)
}

fn step(bytes: &[u8]) -> Result<Step, Wrong> {
    let (mut condition, mut found) = (None, None);
    for field in Reader(bytes) {
        match field? {
            (1, Bytes(bytes)) => {
                condition = Some(inside("condition", bytes, |bytes| self::condition(bytes, 1))?);
            }
            (2, Bytes(bytes)) => found = Some(inside("stmt", bytes, stmt)?),
            _ => {}
        }
    }
    Ok(Step { condition, stmt: present(found, "stmt")? })
}

/// Reads a condition. The check of the batch says how deep it may be; the limit here, of twice
/// that, keeps the stack from its end.
fn condition(bytes: &[u8], depth: usize) -> Result<Condition, Wrong> {
    if depth > 2 * MAX_CONDITION_DEPTH {
        return Err(Wrong::new("the conditions are nested too deep"));
    }
    let inner = |bytes: &[u8]| condition(bytes, depth + 1);
    let list = |bytes: &[u8]| {
        let mut list = Vec::new();
        for field in Reader(bytes) {
            if let (1, Bytes(bytes)) = field? {
                push("conds", &mut list, usize::MAX, bytes, inner)?;
            }
        }
        Ok::<_, Wrong>(list)
    };
    let mut found = None;
    for field in Reader(bytes) {
        found = Some(match field? {
            (1, Varint(step)) => Condition::Ok(step as u32),
            (2, Varint(step)) => Condition::Error(step as u32),
            (3, Bytes(bytes)) => Condition::Not(Box::new(inside("cond", bytes, inner)?)),
            (4, Bytes(bytes)) => Condition::And(list(bytes)?),
            (5, Bytes(bytes)) => Condition::Or(list(bytes)?),
            (6, Bytes(_)) => Condition::IsAutocommit,
            _ => continue,
        });
    }
    found.ok_or_else(|| Wrong::new("a condition of no known type"))
}

fn stmt(bytes: &[u8]) -> Result<Stmt, Wrong> {
    let mut stmt =
        Stmt { sql: None, sql_id: None, args: vec![], named_args: vec![], want_rows: true };
    for field in Reader(bytes) {
        match field? {
            (1, Bytes(bytes)) => stmt.sql = Some(text("sql", bytes)?),
            (2, Varint(id)) => stmt.sql_id = Some(id as i32),
            (3, Bytes(bytes)) => push("args", &mut stmt.args, usize::MAX, bytes, value)?,
            (4, Bytes(bytes)) => {
                push("named_args", &mut stmt.named_args, usize::MAX, bytes, named_arg)?
            }
            (5, Varint(wants)) => stmt.want_rows = wants != 0,
            _ => {}
        }
    }
    Ok(stmt)
}

fn named_arg(bytes: &[u8]) -> Result<(String, Value), Wrong> {
    let (mut name, mut found) = (String::new(), None);
    for field in Reader(bytes) {
        match field? {
            (1, Bytes(bytes)) => name = text("name", bytes)?,
            (2, Bytes(bytes)) => found = Some(inside("value", bytes, value)?),
            _ => {}
        }
    }
    Ok((name, present(found, "value")?))
}

fn value(bytes: &[u8]) -> Result<Value, Wrong> {
    let mut value = None;
    for field in Reader(bytes) {
        value = Some(match field? {
            (1, Bytes(_)) => Value::Null,
            // Zigzag: 0, -1, 1, -2 …
            (2, Varint(zigzag)) => Value::Integer((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)),
            (3, Fixed64(bits)) => Value::Float(f64::from_bits(bits)),
            (4, Bytes(bytes)) => Value::Text(text("text", bytes)?),
            (5, Bytes(bytes)) => Value::Blob(bytes.to_vec()),
            _ => continue,
        });
    }
    value.ok_or_else(|| Wrong::new("a value of no known type"))
}

fn text(name: &str, bytes: &[u8]) -> Result<String, Wrong> {
    inside(name, bytes, |bytes| match str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(Wrong::new(error.to_string())),
    })
}

/// Reads the field `name`.
fn inside<T>(
    name: &str,
    bytes: &[u8],
    read: impl FnOnce(&[u8]) -> Result<T, Wrong>,
) -> Result<T, Wrong> {
    read(bytes).map_err(|wrong| wrong.within(name))
}

/// Reads the next entry of the list `name`, which has at most `max`.
fn push<T>(
    name: &str,
    list: &mut Vec<T>,
    max: usize,
    bytes: &[u8],
    read: impl FnOnce(&[u8]) -> Result<T, Wrong>,
) -> Result<(), Wrong> {
    if list.len() == max {
        return Err(Wrong::new(format!("more than {max} entries")).within(name));
    }
    let entry = read(bytes).map_err(|wrong| wrong.within(&format!("{name}[{}]", list.len())))?;
    list.push(entry);
    Ok(())
}
