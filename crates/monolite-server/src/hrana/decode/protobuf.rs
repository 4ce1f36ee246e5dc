//! Owns how requests are read from Protocol Buffers.
//!
//! # Format
//! The messages of the specification of Hrana 3. Fields that are not known, or are of another wire
//! type, are skipped; a missing number is 0 and a missing text is empty, where they are not
//! optional. By hand, as a generated reader would need a second set of the types, and the copying
//! between the two.

use crate::hrana::request::{
    Batch, ClientMessage, Condition, CursorRequest, Fields, Kind, MAX_ARGUMENTS,
    MAX_CONDITION_DEPTH, MAX_REQUESTS, MAX_STEPS, PipelineRequest, SocketRequest, Step, Stmt,
    StreamRequest, Value, Wrong,
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
struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
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

impl<'a> Iterator for Message<'a> {
    type Item = Result<(u64, Wire<'a>), Wrong>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field())
    }
}

pub(in crate::hrana) fn pipeline(bytes: &[u8]) -> Result<PipelineRequest, Wrong> {
    let mut pipeline = PipelineRequest { baton: None, requests: Vec::new() };
    for field in Message(bytes) {
        match field? {
            (1, Bytes(baton)) => pipeline.baton = Some(text("baton", baton)?),
            (2, Bytes(bytes)) => {
                push("requests", &mut pipeline.requests, MAX_REQUESTS, || stream_request(bytes))?;
            }
            _ => {}
        }
    }
    Ok(pipeline)
}

pub(in crate::hrana) fn cursor(bytes: &[u8]) -> Result<CursorRequest, Wrong> {
    let (mut baton, mut found) = (None, None);
    for field in Message(bytes) {
        match field? {
            (1, Bytes(bytes)) => baton = Some(text("baton", bytes)?),
            (2, Bytes(bytes)) => found = Some(batch(bytes).map_err(|it| it.within("batch"))?),
            _ => {}
        }
    }
    Ok(CursorRequest { baton, batch: found.ok_or_else(|| Wrong::new("missing field `batch`"))? })
}

pub(in crate::hrana) fn client_message(bytes: &[u8]) -> Result<ClientMessage, Wrong> {
    let mut message = None;
    for field in Message(bytes) {
        match field? {
            (1, Bytes(bytes)) => {
                let mut jwt = None;
                for field in Message(bytes) {
                    if let (1, Bytes(bytes)) = field? {
                        jwt = Some(text("jwt", bytes)?);
                    }
                }
                message = Some(ClientMessage::Hello { jwt });
            }
            (2, Bytes(bytes)) => message = Some(socket_request(bytes)?),
            _ => {}
        }
    }
    message.ok_or_else(|| Wrong::new("unknown message type"))
}

/// The types of the requests of a pipeline, from field 1 on.
const STREAM_KINDS: [Kind; 8] = [
    Kind::Close,
    Kind::Execute,
    Kind::Batch,
    Kind::Sequence,
    Kind::Describe,
    Kind::StoreSql,
    Kind::CloseSql,
    Kind::GetAutocommit,
];

/// The types of the requests over WebSocket, from field 2 on.
const SOCKET_KINDS: [Kind; 12] = [
    Kind::OpenStream,
    Kind::CloseStream,
    Kind::Execute,
    Kind::Batch,
    Kind::OpenCursor,
    Kind::CloseCursor,
    Kind::FetchCursor,
    Kind::Sequence,
    Kind::Describe,
    Kind::StoreSql,
    Kind::CloseSql,
    Kind::GetAutocommit,
];

fn stream_request(bytes: &[u8]) -> Result<StreamRequest, Wrong> {
    let (mut kind, mut found) = (Kind::Unknown("0".into()), &[][..]);
    for field in Message(bytes) {
        let (tag, wire) = field?;
        choose(&mut kind, &mut found, &STREAM_KINDS, 1, tag, wire);
    }
    fields(kind, found, 1)?.try_into()
}

fn socket_request(bytes: &[u8]) -> Result<ClientMessage, Wrong> {
    let (mut request_id, mut kind, mut found) = (0, Kind::Unknown("0".into()), &[][..]);
    for field in Message(bytes) {
        match field? {
            (1, Varint(id)) => request_id = id as i32,
            (tag, wire) => choose(&mut kind, &mut found, &SOCKET_KINDS, 2, tag, wire),
        }
    }
    let request = fields(kind, found, 0).and_then(SocketRequest::try_from);
    let request = request.map_err(|it| it.within("request"))?;
    Ok(ClientMessage::Request { request_id, request })
}

/// Takes a field whose tag stands for one of `kinds`, the first of which has the tag `first`. Of
/// several the last one holds.
fn choose<'a>(
    kind: &mut Kind,
    found: &mut &'a [u8],
    kinds: &[Kind],
    first: u64,
    tag: u64,
    wire: Wire<'a>,
) {
    let known = tag.checked_sub(first).and_then(|index| kinds.get(usize::try_from(index).ok()?));
    match (known, wire) {
        (Some(known), Bytes(bytes)) => (*kind, *found) = (known.clone(), bytes),
        _ if matches!(kind, Kind::Unknown(_)) => *kind = Kind::Unknown(tag.to_string()),
        _ => {}
    }
}

/// Reads the message of a request. Over WebSocket those on a stream have its number first; here all
/// tags are counted as if it were there, by adding `shift` where it is not.
fn fields(kind: Kind, bytes: &[u8], shift: u64) -> Result<Fields, Wrong> {
    let stores = matches!(kind, Kind::StoreSql | Kind::CloseSql);
    let has_no_stream = stores || matches!(kind, Kind::CloseCursor | Kind::FetchCursor);
    let shift = if has_no_stream { 1 } else { shift };
    let mut request = Fields {
        kind,
        stmt: None,
        batch: None,
        sql: stores.then(String::new),
        sql_id: stores.then_some(0),
        stream_id: Some(0),
        cursor_id: Some(0),
        max_count: Some(0),
    };
    for field in Message(bytes) {
        let (tag, wire) = field?;
        match (&request.kind, tag + shift, wire) {
            (_, 1, Varint(id)) => request.stream_id = Some(id as i32),
            (Kind::Execute, 2, Bytes(bytes)) => {
                request.stmt = Some(stmt(bytes).map_err(|it| it.within("stmt"))?);
            }
            (Kind::Batch, 2, Bytes(bytes)) | (Kind::OpenCursor, 3, Bytes(bytes)) => {
                request.batch = Some(batch(bytes).map_err(|it| it.within("batch"))?);
            }
            (Kind::Sequence | Kind::Describe, 2, Bytes(bytes))
            | (Kind::StoreSql, 3, Bytes(bytes)) => request.sql = Some(text("sql", bytes)?),
            (Kind::Sequence | Kind::Describe, 3, Varint(id))
            | (Kind::StoreSql | Kind::CloseSql, 2, Varint(id)) => request.sql_id = Some(id as i32),
            (Kind::OpenCursor | Kind::CloseCursor | Kind::FetchCursor, 2, Varint(id)) => {
                request.cursor_id = Some(id as i32);
            }
            (Kind::FetchCursor, 3, Varint(count)) => request.max_count = Some(count as u32),
            _ => {}
        }
    }
    Ok(request)
}

fn batch(bytes: &[u8]) -> Result<Batch, Wrong> {
    let mut batch = Batch::default();
    for field in Message(bytes) {
        if let (1, Bytes(bytes)) = field? {
            push("steps", &mut batch.steps, MAX_STEPS, || step(bytes))?;
        }
    }
    Ok(batch)
}

fn step(bytes: &[u8]) -> Result<Step, Wrong> {
    let (mut condition, mut found) = (None, None);
    for field in Message(bytes) {
        match field? {
            (1, Bytes(bytes)) => {
                let read = self::condition(bytes, 2 * MAX_CONDITION_DEPTH);
                condition = Some(read.map_err(|it| it.within("condition"))?);
            }
            (2, Bytes(bytes)) => found = Some(stmt(bytes).map_err(|it| it.within("stmt"))?),
            _ => {}
        }
    }
    Ok(Step { condition, stmt: found.ok_or_else(|| Wrong::new("missing field `stmt`"))? })
}

/// Reads a condition. The check of a batch finds what is nested too deep; `depth` only keeps the
/// stack from its end.
fn condition(bytes: &[u8], depth: usize) -> Result<Condition, Wrong> {
    let depth = depth.checked_sub(1).ok_or_else(|| Wrong::new("conditions are nested too deep"))?;
    let list = |bytes| {
        let mut list = Vec::new();
        for field in Message(bytes) {
            if let (1, Bytes(bytes)) = field? {
                push("conds", &mut list, MAX_STEPS, || condition(bytes, depth))?;
            }
        }
        Ok::<_, Wrong>(list)
    };
    let mut found = None;
    for field in Message(bytes) {
        found = Some(match field? {
            (1, Varint(step)) => Condition::Ok(step as u32),
            (2, Varint(step)) => Condition::Error(step as u32),
            (3, Bytes(bytes)) => {
                let inner = condition(bytes, depth).map_err(|it| it.within("cond"))?;
                Condition::Not(Box::new(inner))
            }
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
    for field in Message(bytes) {
        match field? {
            (1, Bytes(bytes)) => stmt.sql = Some(text("sql", bytes)?),
            (2, Varint(id)) => stmt.sql_id = Some(id as i32),
            (3, Bytes(bytes)) => push("args", &mut stmt.args, MAX_ARGUMENTS, || value(bytes))?,
            (4, Bytes(bytes)) => {
                push("named_args", &mut stmt.named_args, MAX_ARGUMENTS, || named_arg(bytes))?;
            }
            (5, Varint(wants)) => stmt.want_rows = wants != 0,
            _ => {}
        }
    }
    Ok(stmt)
}

fn named_arg(bytes: &[u8]) -> Result<(String, Value), Wrong> {
    let (mut name, mut found) = (String::new(), None);
    for field in Message(bytes) {
        match field? {
            (1, Bytes(bytes)) => name = text("name", bytes)?,
            (2, Bytes(bytes)) => found = Some(value(bytes).map_err(|it| it.within("value"))?),
            _ => {}
        }
    }
    Ok((name, found.ok_or_else(|| Wrong::new("missing field `value`"))?))
}

fn value(bytes: &[u8]) -> Result<Value, Wrong> {
    let mut value = None;
    for field in Message(bytes) {
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
    let text = str::from_utf8(bytes).map_err(|error| Wrong::new(error.to_string()).within(name))?;
    Ok(text.to_owned())
}

/// Adds to the list `name` what `read` reads, unless it has `max` entries.
fn push<T>(
    name: &str,
    list: &mut Vec<T>,
    max: usize,
    read: impl FnOnce() -> Result<T, Wrong>,
) -> Result<(), Wrong> {
    let index = list.len();
    if index == max {
        return Err(Wrong::new(format!("more than {max} entries")).within(name));
    }
    list.push(read().map_err(|it| it.within(&format!("{name}[{index}]")))?);
    Ok(())
}
