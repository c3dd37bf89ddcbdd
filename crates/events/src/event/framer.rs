//! An event to append and its encoding as a frame.
//!
//! This code runs once for every event of every agent. It copies bytes and neither parses nor serializes
//! JSON.

use std::fmt::Write as _;

use super::frame::{DATA, END, ID, KIND};
use base::types::{Epoch, PromptId, SessionId, Timestamp};

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

/// Encodes the frames of one session.
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
        let (kind, header) = (event.kind, &mut self.header);
        debug_assert!(
            kind.bytes()
                .all(|b| b.is_ascii_lowercase() || matches!(b, b'.' | b'_')),
            "event types are lower-case words joined by dots"
        );
        (header.prompt, header.time) = (event.prompt, Some(now));
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
