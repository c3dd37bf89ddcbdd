//! A lazy view of an event in its frame.

use std::str::FromStr;

use bytes::BytesMut;
use memchr::memchr;

use super::frame::{self, Parts};
use super::payload::{ChangedMembers, Payload};
use crate::types::{Epoch, PromptId, SessionId, Timestamp};

/// An event, borrowed from its frame. It reads the members on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRef<'a> {
    seq: u64,
    kind: &'a str,
    /// The event as one line of JSON.
    data: &'a [u8],
    frame: &'a [u8],
}

impl<'a> EventRef<'a> {
    /// Reads one frame, which ends with its empty line. `None` if the bytes are not a frame.
    pub fn parse(seq: u64, frame: &'a [u8]) -> Option<Self> {
        let Parts { kind, data } = frame::split(frame)?;
        Some(Self { seq, kind, data, frame })
    }

    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// The event type.
    pub const fn kind(&self) -> &'a str {
        self.kind
    }

    /// The event as one line of JSON, to forward without change.
    pub const fn raw_json(&self) -> &'a [u8] {
        self.data
    }

    /// The complete frame, to forward without change.
    pub const fn raw_frame(&self) -> &'a [u8] {
        self.frame
    }

    /// The head of the event. `None` if [`Framer`](super::Framer) did not write it.
    pub fn head(&self) -> Option<Head<'a>> {
        Head::locate(self.data)
    }

    /// Parses the other members. `None` if the event is damaged.
    pub fn payload(&self) -> Option<Payload<'a>> {
        Payload::parse(self.data)
    }

    /// Parses the members of `session.changed`. `None` if the event is damaged.
    pub fn changed_members(&self) -> Option<ChangedMembers<'a>> {
        ChangedMembers::parse(self.data)
    }

    /// Whether the event belongs to this turn.
    pub fn is_of(&self, prompt: PromptId) -> bool {
        self.head().and_then(|head| head.prompt_id()) == Some(prompt)
    }

    /// Writes the frame of the same event under another epoch.
    pub fn write_with_epoch(&self, out: &mut BytesMut, epoch: &Epoch) {
        let id = format!("{epoch}-{}", self.seq);
        // The old id contains no quote.
        let old = self.data.get(HEAD.len()..).unwrap_or_default();
        let rest = memchr(b'"', old).map_or(&[][..], |quote| &old[quote..]);
        frame::write_block(out, Some(&id), Some(self.kind), &[HEAD, id.as_bytes(), rest].concat());
    }
}

/// The events of consecutive frames. The sequence number of the first one is `first_seq`. Stops before bytes that
/// are not a frame.
pub fn events(frames: &[u8], first_seq: u64) -> impl Iterator<Item = EventRef<'_>> {
    let mut start = 0;
    frame::ends(frames).zip(first_seq..).map_while(move |(end, seq)| {
        let frame = &frames[start..end];
        start = end;
        EventRef::parse(seq, frame)
    })
}

/// The first bytes of an event. The id follows.
const HEAD: &[u8] = b"{\"id\":\"";

/// The first members of an event, which the gateway writes in a fixed order and without escapes:
/// `{"id":…,"seq":…,"type":…,"sessionId":…,"time":…,"promptId":…`. Members of a payload with the same names are
/// never part of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    id: &'a str,
    seq: u64,
    kind: &'a str,
    session: &'a str,
    time: &'a str,
    prompt: Option<&'a str>,
}

impl<'a> Head<'a> {
    fn locate(data: &'a [u8]) -> Option<Self> {
        let mut at = Position(data.strip_prefix(HEAD)?);
        let id = at.until_quote()?;
        let seq = at.after(b",\"seq\":")?.digits()?;
        let kind = at.after(b",\"type\":\"")?.until_quote()?;
        let session = at.after(b",\"sessionId\":\"")?.until_quote()?;
        let time = at.after(b",\"time\":\"")?.until_quote()?;
        let prompt = at.after(b",\"promptId\":\"").and_then(Position::until_quote);
        Some(Self { id, seq, kind, session, time, prompt })
    }

    /// The cursor of the event: `<epoch>-<seq>`.
    pub const fn id(&self) -> &'a str {
        self.id
    }

    pub const fn seq(&self) -> u64 {
        self.seq
    }

    pub const fn kind(&self) -> &'a str {
        self.kind
    }

    pub fn session_id(&self) -> Option<SessionId> {
        SessionId::from_str(self.session).ok()
    }

    /// The time at which the gateway appended the event.
    pub fn time(&self) -> Option<Timestamp> {
        Timestamp::from_str(self.time).ok()
    }

    /// The turn of the event. `None` outside a turn.
    pub fn prompt_id(&self) -> Option<PromptId> {
        PromptId::from_str(self.prompt?).ok()
    }
}

/// The bytes of an event after the part of the head that is already located.
struct Position<'a>(&'a [u8]);

impl<'a> Position<'a> {
    fn after(&mut self, text: &[u8]) -> Option<&mut Self> {
        self.0 = self.0.strip_prefix(text)?;
        Some(self)
    }

    /// The text before the next quote. The position is then after the quote.
    fn until_quote(&mut self) -> Option<&'a str> {
        let quote = memchr(b'"', self.0)?;
        let text = std::str::from_utf8(&self.0[..quote]).ok()?;
        self.0 = &self.0[quote + 1..];
        Some(text)
    }

    fn digits(&mut self) -> Option<u64> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Event, Framer, Members};
    use super::*;

    const SESSION: &str = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";

    fn frame(data: &str) -> Vec<u8> {
        format!("id: k-1\nevent: session.update\ndata: {data}\n\n").into_bytes()
    }

    #[test]
    fn prompt_id_is_read_from_the_head_only() {
        let prompt = |data: &str| EventRef::parse(1, &frame(data)).unwrap().head()?.prompt_id();
        let head = format!(
            r#"{{"id":"k-1","seq":1,"type":"session.update","sessionId":"{SESSION}","time":"2026-11-21T22:15:03.123Z""#
        );
        let with = format!(r#"{head},"promptId":"p2","update":{{"promptId":"p9"}}}}"#);
        assert_eq!(prompt(&with), Some(PromptId::new(2)));
        let without = format!(r#"{head},"update":{{"time":"x","promptId":"p9"}}}}"#);
        assert_eq!(prompt(&without), None);
        assert_eq!(prompt(&format!(r#"{head},"x":1,"promptId":"p9"}}"#)), None);
        assert_eq!(prompt(&format!("{head}}}")), None);
        assert_eq!(prompt(&with.replacen("k-1", r#"k\"-1"#, 1)), None);
    }

    #[test]
    fn new_epoch_changes_only_ids() {
        let renamed = |data: &str| {
            let mut out = BytesMut::new();
            EventRef::parse(7, &frame(data)).unwrap().write_with_epoch(&mut out, &"fresh".parse().unwrap());
            String::from_utf8(out.to_vec()).unwrap()
        };
        assert_eq!(
            renamed(r#"{"id":"e-7","seq":7,"x":"e-7"}"#),
            "id: fresh-7\nevent: session.update\ndata: {\"id\":\"fresh-7\",\"seq\":7,\"x\":\"e-7\"}\n\n"
        );
        // Damaged data that a checksum did not find.
        for data in ["", "{", "{\"id\":\"", "{\"id\":\"e-1"] {
            assert!(renamed(data).starts_with("id: fresh-7\nevent: session.update\ndata: "), "{data}");
        }
    }

    proptest! {
        #[test]
        fn events_read_as_written(
            millis in -62_135_596_800_000_i64..253_402_300_800_000,
            first_seq in 1..u64::MAX - 10,
            events_in in prop::collection::vec(
                ("[a-z]{1,9}(\\.[a-z]{1,9})?", prop::option::of(1..u32::MAX), "\\PC{0,20}"), 1..8),
        ) {
            let mut framer = Framer::new(&"k3".parse().unwrap(), SESSION.parse().unwrap());
            let time = Timestamp::from_millis(millis);
            let mut frames = Vec::new();
            for (seq, (kind, prompt, text)) in (first_seq..).zip(&events_in) {
                let members = serde_json::json!({ "promptId": text, "time": text }).to_string();
                let members = Members::whole(&members.as_bytes()[1..members.len() - 1]);
                let event = Event { kind, prompt: prompt.map(PromptId::new), members };
                framer.frame(&mut frames, seq, &event, time);
            }
            let read: Vec<EventRef<'_>> = events(&frames, first_seq).collect();
            prop_assert_eq!(read.len(), events_in.len());
            for (seq, (event, (kind, prompt, _))) in (first_seq..).zip(read.iter().zip(&events_in)) {
                let head = event.head().unwrap();
                prop_assert_eq!((event.seq(), event.kind()), (seq, kind.as_str()));
                prop_assert_eq!((head.seq(), head.kind()), (seq, kind.as_str()));
                prop_assert_eq!(head.id(), format!("k3-{seq}"));
                prop_assert_eq!(head.session_id(), Some(SESSION.parse().unwrap()));
                prop_assert_eq!((head.time(), head.prompt_id()), (Some(time), prompt.map(PromptId::new)));
            }
            prop_assert_eq!(read.iter().flat_map(|event| event.raw_frame().to_vec()).collect::<Vec<_>>(), frames);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, data in r#"(\{"id":"[a-z"]?(","seq":[0-9]{0,21})?(,"type":"a")?)?.{0,9}"#) {
            for frames in [bytes, frame(&data)] {
                for event in events(&frames, 1) {
                    let _ = (event.head(), event.is_of(PromptId::FIRST), event.payload(), event.changed_members());
                    event.write_with_epoch(&mut BytesMut::new(), &"e".parse().unwrap());
                }
            }
        }
    }
}
