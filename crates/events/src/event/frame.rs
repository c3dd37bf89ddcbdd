//! The frame format, and the encoding of events as frames.
//!
//! A frame is one event as a block of SSE: exactly
//! `id: <epoch>-<seq>\nevent: <type>\ndata: <one line of JSON>\n\n`. Its parts contain no line feed, so that an empty
//! line ends a frame and nothing else does.

use std::fmt::Write as _;

use bytes::{BufMut, BytesMut};
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::api::present;
use base::types::{Epoch, PromptId, SessionId, Timestamp};

pub(super) const ID: &str = "id: ";
pub(super) const KIND: &str = "event: ";
pub(super) const DATA: &str = "data: ";
pub(super) const END: &str = "\n\n";

/// The ends of consecutive frames, as offsets.
pub fn ends(frames: &[u8]) -> impl Iterator<Item = usize> {
    memmem::find_iter(frames, END.as_bytes()).map(|at| at + END.len())
}

/// Writes a block of SSE. The caller guarantees that no part contains a line break.
pub fn write_block(out: &mut BytesMut, id: Option<&str>, kind: Option<&str>, data: &[u8]) {
    for (name, value) in [(ID, id), (KIND, kind)] {
        if let Some(value) = value {
            out.put_slice(name.as_bytes());
            out.put_slice(value.as_bytes());
            out.put_u8(b'\n');
        }
    }
    out.put_slice(DATA.as_bytes());
    out.put_slice(data);
    out.put_slice(END.as_bytes());
}

/// Writes a block of SSE that has data only: one line of compact JSON. The caller guarantees that raw values contain no
/// line break, and that all keys are strings.
pub fn write_json(out: &mut BytesMut, value: &impl Serialize) {
    out.put_slice(DATA.as_bytes());
    serde_json::to_writer((&mut *out).writer(), value).expect("a buffer in memory grows");
    out.put_slice(END.as_bytes());
}

/// The members that are specific to an event type. The log writes the members before them.
pub trait EventMembers: Serialize {
    /// The event's type.
    const TYPE: &'static str;
}

/// An encoded event. It borrows nothing, so the encoded values may change before it is appended.
#[derive(Debug)]
pub struct EncodedEvent {
    kind: &'static str,
    /// The members as a JSON object.
    object: Vec<u8>,
}

impl<E: EventMembers> From<&E> for EncodedEvent {
    fn from(event: &E) -> Self {
        let object =
            serde_json::to_vec(event).expect("events have string keys and no failing serializer");
        debug_assert!(object.starts_with(b"{") && object.ends_with(b"}"));
        Self {
            kind: E::TYPE,
            object,
        }
    }
}

impl EncodedEvent {
    pub(super) const fn kind(&self) -> &'static str {
        self.kind
    }

    /// The members as JSON without braces. May be empty.
    pub(super) fn members(&self) -> &[u8] {
        &self.object[1..self.object.len() - 1]
    }

    /// The members of `session.changed`.
    pub fn changed_members(&self) -> ChangedMembers<'_> {
        serde_json::from_slice(&self.object).expect("the object was encoded as JSON")
    }

    /// The event to append. `prompt` is its turn.
    pub fn in_turn(&self, prompt: Option<PromptId>) -> Event<'_> {
        Event {
            kind: self.kind,
            prompt,
            members: Members::whole(self.members()),
        }
    }
}

/// The changed members of `session.changed`. A member that is null is `Some`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChangedMembers<'a> {
    #[serde(borrow, deserialize_with = "present")]
    pub title: Option<&'a RawValue>,
    #[serde(deserialize_with = "present")]
    pub metadata: Option<&'a RawValue>,
    #[serde(deserialize_with = "present")]
    pub current_mode_id: Option<&'a RawValue>,
    #[serde(deserialize_with = "present")]
    pub config_options: Option<&'a RawValue>,
}

/// An event to append.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// The event type, for example `session.update`.
    pub kind: &'a str,
    /// The turn that the event belongs to.
    pub prompt: Option<PromptId>,
    pub members: Members<'a>,
}

/// The JSON members after `time` and `promptId`, without braces and without a leading comma. May be empty.
/// The members are split into pieces, so that an agent's payload is copied once, from the read buffer to the
/// frame.
#[derive(Debug, Clone, Copy, Default)]
pub struct Members<'a>(pub(super) [&'a [u8]; 5]);

impl<'a> Members<'a> {
    pub const fn whole(bytes: &'a [u8]) -> Self {
        Self([bytes, b"", b"", b"", b""])
    }

    /// The total length in bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Encodes the frames of one session. The encoding runs once for every event of every agent: it copies bytes and neither
/// parses nor serializes JSON.
#[derive(Debug)]
pub struct Framer {
    /// `<epoch>-`
    epoch: String,
    /// `","sessionId":"<session>","time":"`, and for the audit log `","time":"`.
    session: String,
    header: HeaderCache,
}

/// The parts of a frame that depend only on type, turn and time. Most events of a burst share them.
#[derive(Debug, Default)]
struct HeaderCache {
    kind: String,
    prompt: Option<PromptId>,
    time: Option<Timestamp>,
    /// `\nevent: <kind>\ndata: {"id":"<epoch>-`
    prefix: String,
    /// `,"type":"<kind>","sessionId":"<session>","time":"<time>"`, and `,"promptId":"<prompt>"` if there is
    /// one.
    suffix: String,
}

impl Framer {
    pub fn new(epoch: &Epoch, session: SessionId) -> Self {
        let session = match session {
            SessionId::AUDIT => "\",\"time\":\"".to_owned(),
            session => format!("\",\"sessionId\":\"{session}\",\"time\":\""),
        };
        Self {
            epoch: format!("{epoch}-"),
            session,
            header: HeaderCache::default(),
        }
    }

    /// An upper bound of the length of the event's frame in bytes.
    pub fn size(&self, event: &Event<'_>) -> usize {
        // The time, three numbers of 20 digits, the prompt id, and 73 bytes of names and quotes.
        const REST: usize = 168;
        2 * self.epoch.len()
            + self.session.len()
            + 2 * event.kind.len()
            + event.members.len()
            + REST
    }

    pub fn frame(&mut self, out: &mut Vec<u8>, seq: u64, event: &Event<'_>, now: Timestamp) {
        let header = &self.header;
        if header.time != Some(now) || header.prompt != event.prompt || header.kind != event.kind {
            self.refresh_header(event, now);
        }
        let mut digits = [0; 20];
        let seq = decimal(seq, &mut digits);
        for piece in [
            ID.as_bytes(),
            self.epoch.as_bytes(),
            seq,
            self.header.prefix.as_bytes(),
            seq,
            b"\",\"seq\":",
            seq,
        ] {
            out.extend_from_slice(piece);
        }
        out.extend_from_slice(self.header.suffix.as_bytes());
        if !event.members.is_empty() {
            out.push(b',');
            let start = out.len();
            for piece in event.members.0 {
                out.extend_from_slice(piece);
            }
            blank_line_breaks(&mut out[start..]);
        }
        out.extend_from_slice(b"}");
        out.extend_from_slice(END.as_bytes());
    }

    fn refresh_header(&mut self, event: &Event<'_>, now: Timestamp) {
        let kind = event.kind;
        let header = &mut self.header;
        debug_assert!(
            kind.bytes()
                .all(|b| b.is_ascii_lowercase() || matches!(b, b'.' | b'_')),
            "event types are lower-case words joined by dots"
        );
        header.prompt = event.prompt;
        header.time = Some(now);
        for text in [&mut header.kind, &mut header.prefix, &mut header.suffix] {
            text.clear();
        }
        header.kind.push_str(kind);
        for piece in ["\n", KIND, kind, "\n", DATA, "{\"id\":\"", &self.epoch] {
            header.prefix.push_str(piece);
        }
        for piece in [",\"type\":\"", kind, &self.session] {
            header.suffix.push_str(piece);
        }
        let prompt = event
            .prompt
            .map(|prompt| format!(",\"promptId\":\"{prompt}\""))
            .unwrap_or_default();
        // Writing to a string cannot fail.
        write!(header.suffix, "{now}\"{prompt}").ok();
    }
}

/// Replaces line breaks with spaces. A line break between JSON tokens would end the `data:` line, so that an
/// agent could forge frames. Inside a JSON string a line break is invalid.
pub(super) fn blank_line_breaks(members: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'\n', b'\r', &members[at..]) {
        members[at + found] = b' ';
        at += found + 1;
    }
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).expect("a digit is below ten");
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests;
