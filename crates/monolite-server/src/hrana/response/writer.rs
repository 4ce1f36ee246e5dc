//! Owns how a message is written in either encoding, by one description of it: each field has its
//! tag for Protobuf and its name for JSON.
//!
//! # Format
//! - JSON: integers of SQLite and rowids are strings, and `base64` has no padding. Neither has an
//!   escape, which some clients cannot read there. A float that is not finite is null, and so is a
//!   field that is not there.
//! - Protobuf: a message stands behind its length, which is known when the message is written. It
//!   is then moved by some bytes, which costs little beside writing it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use monolite::rusqlite::types::ValueRef;
use serde::Serialize;

use crate::hrana::Encoding;

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;

/// Writes one message.
pub(super) struct Writer<'o> {
    pub(super) out: &'o mut Vec<u8>,
    pub(super) encoding: Encoding,
}

impl Writer<'_> {
    fn is_json(&self) -> bool {
        self.encoding == Encoding::Json
    }

    /// Writes a text that only JSON has.
    pub(super) fn json(&mut self, text: &str) {
        if self.is_json() {
            self.out.extend_from_slice(text.as_bytes());
        }
    }

    /// Separates what follows from an entry before it.
    fn comma(&mut self) {
        if !matches!(self.out.last(), Some(b'{' | b'[')) {
            self.json(",");
        }
    }

    /// Begins a field of JSON.
    pub(super) fn name(&mut self, name: &str) {
        self.comma();
        self.json("\"");
        self.json(name);
        self.json("\":");
    }

    /// The fields of a whole message.
    pub(super) fn fields(&mut self, write: impl FnOnce(&mut Self)) {
        self.json("{");
        write(self);
        self.json("}");
    }

    /// A message within another.
    pub(super) fn message(&mut self, tag: u8, write: impl FnOnce(&mut Self)) {
        self.wrapped(tag, |it| it.fields(write));
    }

    /// A message of a type: a field `type` in JSON, the tag in Protobuf.
    pub(super) fn variant(&mut self, tag: u8, kind: &str, write: impl FnOnce(&mut Self)) {
        self.message(tag, |it| {
            it.kind(kind);
            write(it);
        });
    }

    /// The field `type` of JSON.
    pub(super) fn kind(&mut self, kind: &str) {
        self.name("type");
        self.json_of(kind);
    }

    /// A message that only Protobuf has around what is in it.
    pub(super) fn wrapped<T>(&mut self, tag: u8, write: impl FnOnce(&mut Self) -> T) -> T {
        if self.is_json() {
            return write(self);
        }
        self.key(tag, BYTES);
        self.delimited(write)
    }

    /// What `write` writes, in Protobuf behind its length.
    pub(super) fn delimited<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        if self.is_json() {
            return write(self);
        }
        let start = self.out.len();
        let written = write(self);
        let end = self.out.len();
        self.varint((end - start) as u64);
        let len = self.out.len() - end;
        self.out[start..].rotate_right(len);
        written
    }

    /// A list: an array in JSON, a repeated field in Protobuf.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        write: impl Fn(&mut Self, T),
    ) {
        self.name(name);
        self.json("[");
        for item in items {
            self.comma();
            write(self, item);
        }
        self.json("]");
    }

    /// A list some of whose entries are not there: with nulls in JSON, a map from their numbers in
    /// Protobuf.
    pub(super) fn sparse<T>(
        &mut self,
        tag: u8,
        name: &str,
        items: &[Option<T>],
        write: impl Fn(&mut Self, &T),
    ) {
        self.list(name, items.iter().enumerate(), |it, (index, item)| match item {
            None => it.json("null"),
            Some(item) if it.is_json() => write(it, item),
            Some(item) => it.wrapped(tag, |it| {
                it.key(1, VARINT);
                it.varint(index as u64);
                write(it, item);
            }),
        });
    }

    pub(super) fn text(&mut self, tag: u8, name: &str, text: Option<&str>) {
        self.name(name);
        match text {
            Some(text) => self.plain_text(tag, text),
            None => self.json("null"),
        }
    }

    fn plain_text(&mut self, tag: u8, text: &str) {
        if !self.is_json() {
            return self.bytes(tag, text.as_bytes());
        }
        // Without an early end, so that the compiler has it look at many bytes at once.
        let is_special = |byte| byte < b' ' || byte == b'"' || byte == b'\\';
        if text.bytes().fold(false, |found, byte| found | is_special(byte)) {
            return self.json_of(text);
        }
        self.json("\"");
        self.json(text);
        self.json("\"");
    }

    /// A number or truth, which Protobuf leaves out if it is 0 or false.
    pub(super) fn number(&mut self, tag: u8, name: &str, number: impl Serialize + Into<i128>) {
        self.name(name);
        if self.is_json() {
            return self.json_of(number);
        }
        // Negative ones take ten bytes.
        let bits = number.into() as u64;
        if bits != 0 {
            self.key(tag, VARINT);
            self.varint(bits);
        }
    }

    /// A rowid, in JSON between two `quote`.
    pub(super) fn rowid(&mut self, tag: u8, name: &str, quote: &str, rowid: Option<i64>) {
        self.name(name);
        match rowid {
            None => self.json("null"),
            Some(rowid) => {
                self.json(quote);
                self.integer(tag, rowid);
                self.json(quote);
            }
        }
    }

    fn integer(&mut self, tag: u8, integer: i64) {
        if self.is_json() {
            return self.json_of(integer);
        }
        self.key(tag, VARINT);
        // Zigzag: 0, -1, 1, -2 …
        self.varint((integer << 1 ^ integer >> 63) as u64);
    }

    pub(super) fn float(&mut self, tag: u8, float: f64) {
        if self.is_json() {
            return self.json_of(float);
        }
        self.key(tag, FIXED64);
        self.out.extend_from_slice(&float.to_le_bytes());
    }

    /// A value of SQLite, or an error if it is a text that is not UTF-8.
    pub(super) fn value(&mut self, value: ValueRef<'_>) -> Result<(), ()> {
        match value {
            ValueRef::Null => {
                self.json(r#"{"type":"null"#);
                self.wrapped(1, |_| {});
                self.json("\"}");
            }
            ValueRef::Integer(integer) => {
                self.json(r#"{"type":"integer","value":""#);
                self.integer(2, integer);
                self.json("\"}");
            }
            ValueRef::Real(float) => {
                self.json(r#"{"type":"float","value":"#);
                self.float(3, float);
                self.json("}");
            }
            ValueRef::Text(text) => {
                self.json(r#"{"type":"text","value":"#);
                self.plain_text(4, str::from_utf8(text).map_err(|_| ())?);
                self.json("}");
            }
            ValueRef::Blob(blob) => {
                self.json(r#"{"type":"blob","base64":""#);
                self.blob(5, blob);
                self.json("\"}");
            }
        }
        Ok(())
    }

    fn blob(&mut self, tag: u8, blob: &[u8]) {
        if !self.is_json() {
            return self.bytes(tag, blob);
        }
        let start = self.out.len();
        let len = base64::encoded_len(blob.len(), false).expect("a blob is below 2 GiB");
        self.out.resize(start + len, 0);
        STANDARD_NO_PAD.encode_slice(blob, &mut self.out[start..]).expect("the room was measured");
    }

    fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.key(tag, BYTES);
        self.varint(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// What has a form of its own in JSON.
    fn json_of(&mut self, value: impl Serialize) {
        if self.is_json() {
            serde_json::to_writer(&mut *self.out, &value).expect("a vector takes all");
        }
    }

    fn key(&mut self, tag: u8, wire_type: u8) {
        // One byte: no tag is above 15.
        self.out.push(tag << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}
