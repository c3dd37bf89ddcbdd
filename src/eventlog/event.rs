//! An event and the frame that it becomes.
//!
//! This runs once for every event of every agent: bytes are copied into place, nothing is parsed or serialised.

use crate::types::{Epoch, PromptId, SessionId, Timestamp};

/// What is appended.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Its type, one of ours: `session.update`.
    pub kind: &'a str,
    /// The turn that it belongs to.
    pub prompt: Option<PromptId>,
    /// The JSON members after `time` and `promptId`, without braces and without a comma in front; may be empty.
    pub members: &'a [u8],
}

/// Writes the frames of one session.
#[derive(Debug)]
pub struct Framer {
    /// `id: <epoch>-`
    head: String,
    /// `data: {"id":"<epoch>-`
    data: String,
    /// `","sessionId":"<session>","time":"`
    session: String,
    /// The time as it was last written: most events of a burst share their millisecond.
    time: (Timestamp, String),
}

impl Framer {
    pub fn new(epoch: &Epoch, session: SessionId) -> Self {
        let start = Timestamp::from_millis(0);
        Self {
            head: format!("id: {epoch}-"),
            data: format!("data: {{\"id\":\"{epoch}-"),
            session: format!("\",\"sessionId\":\"{session}\",\"time\":\""),
            time: (start, start.to_string()),
        }
    }

    /// About how long the frame of `event` is, never less.
    pub fn size(&self, event: &Event<'_>) -> usize {
        // Beyond the texts: three numbers of 20 digits, a prompt's id, and 88 bytes of names and quotes.
        const REST: usize = 192;
        self.head.len()
            + self.data.len()
            + self.session.len()
            + self.time.1.len()
            + 2 * event.kind.len()
            + event.members.len()
            + REST
    }

    pub fn frame(&mut self, out: &mut Vec<u8>, seq: u64, event: &Event<'_>, now: Timestamp) {
        if self.time.0 != now {
            self.time = (now, now.to_string());
        }
        debug_assert!(event.kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'.'), "a type of ours");
        let mut digits = [0; 20];
        let seq = decimal(seq, &mut digits);
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        put(self.head.as_bytes());
        put(seq);
        put(b"\nevent: ");
        put(event.kind.as_bytes());
        put(b"\n");
        put(self.data.as_bytes());
        put(seq);
        put(b"\",\"seq\":");
        put(seq);
        put(b",\"type\":\"");
        put(event.kind.as_bytes());
        put(self.session.as_bytes());
        put(self.time.1.as_bytes());
        put(b"\"");
        if let Some(prompt) = event.prompt {
            put(b",\"promptId\":\"p");
            put(decimal(prompt.number().into(), &mut [0; 20]));
            put(b"\"");
        }
        if !event.members.is_empty() {
            put(b",");
            let start = out.len();
            out.extend_from_slice(event.members);
            one_line(&mut out[start..]);
        }
        out.extend_from_slice(b"}\n\n");
    }
}

/// A line end outside of a JSON string is white space, and would end the line of `data:` early: an agent could write
/// frames of its own. Inside of a string it is no JSON.
fn one_line(members: &mut [u8]) {
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
    fn a_frame_is_the_contract_to_the_byte() {
        let members = br#""update":{"sessionUpdate":"plan"}"#;
        let event = Event { kind: "session.update", prompt: Some(PromptId::new(2)), members };
        let id = r#""sessionId":"01938c5e-7a3b-7c4d-8e5f-0123456789ab","time":"2026-11-21T22:15:03.123Z""#;
        let update = r#""update":{"sessionUpdate":"plan"}"#;
        assert_eq!(
            framed(42, &event),
            format!(
                "id: k3-42\nevent: session.update\ndata: {{\"id\":\"k3-42\",\"seq\":42,\"type\":\"session.update\",{id},\"promptId\":\"p2\",{update}}}\n\n"
            )
        );
        let event = Event { kind: "session.detached", prompt: None, members: b"" };
        assert!(framed(u64::MAX, &event).ends_with("22:15:03.123Z\"}\n\n"));
        assert!(framed(u64::MAX, &event).starts_with("id: k3-18446744073709551615\n"));
    }

    #[test]
    fn white_space_of_an_agent_ends_no_line() {
        let event = Event { kind: "ext", prompt: None, members: b"\"params\":{\r\n\n\"a\":\r1}" };
        let frame = framed(1, &event);
        assert!(frame.ends_with("\"params\":{   \"a\": 1}}\n\n"));
        assert_eq!(frame.matches(['\n', '\r']).count(), 4);
    }
}
