//! An event to append and its encoding as a frame.
//!
//! This code runs once for every event of every agent. It copies bytes and neither parses nor serializes
//! JSON.

use std::fmt::Write as _;

use super::frame::{DATA, END, ID, KIND};
use crate::types::{Epoch, PromptId, SessionId, Timestamp};

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
pub struct Members<'a>([&'a [u8]; 5]);

impl<'a> Members<'a> {
    pub const fn whole(bytes: &'a [u8]) -> Self {
        Self([bytes, b"", b"", b"", b""])
    }

    pub const fn pieces(pieces: [&'a [u8]; 5]) -> Self {
        Self(pieces)
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
    /// `","sessionId":"<session>","time":"`
    session: String,
    header: HeaderCache,
}

/// The parts of a frame that depend only on type, turn and time. Most events of a burst share them.
#[derive(Debug)]
struct HeaderCache {
    kind: String,
    prompt: Option<PromptId>,
    time: Timestamp,
    /// `\nevent: <kind>\ndata: {"id":"<epoch>-`
    prefix: String,
    /// `,"type":"<kind>","sessionId":"<session>","time":"<time>"`, and `,"promptId":"<prompt>"` if there is
    /// one.
    suffix: String,
}

impl Framer {
    pub fn new(epoch: &Epoch, session: SessionId) -> Self {
        let (before, after) = (String::new(), String::new());
        let around = HeaderCache {
            kind: String::new(),
            prompt: None,
            time: Timestamp::from_millis(0),
            prefix: before,
            suffix: after,
        };
        let session = format!("\",\"sessionId\":\"{session}\",\"time\":\"");
        Self { epoch: format!("{epoch}-"), session, header: around }
    }

    /// An upper bound of the length of the event's frame in bytes.
    pub fn size(&self, event: &Event<'_>) -> usize {
        // The time, three numbers of 20 digits, the prompt id, and 73 bytes of names and quotes.
        const REST: usize = 168;
        2 * self.epoch.len() + self.session.len() + 2 * event.kind.len() + event.members.len() + REST
    }

    pub fn frame(&mut self, out: &mut Vec<u8>, seq: u64, event: &Event<'_>, now: Timestamp) {
        let around = &self.header;
        if around.time != now || around.prompt != event.prompt || around.kind != event.kind {
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
        let (kind, around) = (event.kind, &mut self.header);
        debug_assert!(
            kind.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'.' | b'_')),
            "event types are lower-case words joined by dots"
        );
        (around.prompt, around.time) = (event.prompt, now);
        for text in [&mut around.kind, &mut around.prefix, &mut around.suffix] {
            text.clear();
        }
        around.kind.push_str(kind);
        for piece in ["\n", KIND, kind, "\n", DATA, "{\"id\":\"", &self.epoch] {
            around.prefix.push_str(piece);
        }
        for piece in [",\"type\":\"", kind, &self.session] {
            around.suffix.push_str(piece);
        }
        let prompt = event.prompt.map(|prompt| format!(",\"promptId\":\"{prompt}\"")).unwrap_or_default();
        // Writing to a string cannot fail.
        write!(around.suffix, "{now}\"{prompt}").ok();
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
mod tests {
    use super::*;

    fn framed(seq: u64, event: &Event<'_>) -> String {
        let session = "01938c5e-7a3b-7c4d-8e5f-0123456789ab".parse().unwrap();
        let mut framer = Framer::new(&"k3".parse().unwrap(), session);
        let mut out = Vec::new();
        framer.frame(&mut out, seq, event, Timestamp::from_millis(1_795_299_303_123));
        assert!(out.len() <= framer.size(event));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn frame_matches_contract_exactly() {
        let members = Members::whole(br#""update":{"sessionUpdate":"plan"}"#);
        let event = Event { kind: "session.update", prompt: Some(PromptId::new(2)), members };
        let id = r#""sessionId":"01938c5e-7a3b-7c4d-8e5f-0123456789ab","time":"2026-11-21T22:15:03.123Z""#;
        let update = r#""update":{"sessionUpdate":"plan"}"#;
        assert_eq!(
            framed(42, &event),
            format!(
                "id: k3-42\nevent: session.update\ndata: {{\"id\":\"k3-42\",\"seq\":42,\"type\":\"session.update\",{id},\"promptId\":\"p2\",{update}}}\n\n"
            )
        );
        let event = Event { kind: "session.detached", prompt: None, members: Members::default() };
        assert!(framed(u64::MAX, &event).ends_with("22:15:03.123Z\"}\n\n"));
        assert!(framed(u64::MAX, &event).starts_with("id: k3-18446744073709551615\n"));
    }

    #[test]
    fn line_breaks_from_agent_are_blanked() {
        let members = Members::pieces([b"\"params\":", b"{\r\n", b"\n\"a\"", b":\r", b"1}"]);
        let event = Event { kind: "ext", prompt: None, members };
        let frame = framed(1, &event);
        assert!(frame.ends_with("\"params\":{   \"a\": 1}}\n\n"));
        assert_eq!(frame.matches(['\n', '\r']).count(), 4);
    }
}
