//! A lazy view of an event in its frame. An event of a text chunk is read in one pass.

use std::borrow::Cow;
use std::str::FromStr;

use bytes::BytesMut;
use memchr::{memchr, memmem};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::frame::{self, ChangedMembers, DATA, END, KIND};
use crate::api::{AcpRequest, CancelCause, Resolution};
use base::types::{Epoch, PromptId, RequestId, SessionId, TerminalId, Timestamp};

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
        let kind_start = memchr(b'\n', frame)? + 1;
        let rest = frame[kind_start..].strip_prefix(KIND.as_bytes())?;
        let kind_end = memchr(b'\n', rest)?;
        let data = rest[kind_end + 1..]
            .strip_prefix(DATA.as_bytes())?
            .strip_suffix(END.as_bytes())?;
        Some(Self {
            seq,
            kind: std::str::from_utf8(&rest[..kind_end]).ok()?,
            data,
            frame,
        })
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
        Some(Head::split(self.data)?.0)
    }

    /// Parses the other members. `None` if the event is damaged.
    pub fn payload(&self) -> Option<Payload<'a>> {
        serde_json::from_slice(self.data).ok()
    }

    /// Reads the event as a chunk of text. `None` if it is another event, or has members beside the text. This is
    /// faster than [`payload`](Self::payload).
    pub fn text_chunk(&self) -> Option<TextChunk<'a>> {
        if self.kind != "session.update" {
            return None;
        }
        let (_, members) = Head::split(self.data)?;
        TextChunk::parse(members)
    }

    /// Parses the members of `session.changed`. `None` if the event is damaged.
    pub fn changed_members(&self) -> Option<ChangedMembers<'a>> {
        serde_json::from_slice(self.data).ok()
    }

    /// Whether the event belongs to this turn.
    pub fn is_of(&self, prompt: PromptId) -> bool {
        self.head().and_then(|head| head.prompt_id()) == Some(prompt)
    }

    /// The event after its id, from the quote at the end of the id. Only the id depends on the epoch.
    pub fn after_id(&self) -> &'a [u8] {
        after_id(self.data)
    }

    /// Writes the frame of the same event under another epoch.
    pub fn write_with_epoch(&self, out: &mut BytesMut, epoch: &Epoch) {
        let id = format!("{epoch}-{}", self.seq);
        let data = [HEAD, id.as_bytes(), self.after_id()].concat();
        frame::write_block(out, Some(&id), Some(self.kind), &data);
    }
}

/// The JSON text of an event from the quote at the end of its id.
pub(super) fn after_id(data: &[u8]) -> &[u8] {
    // The id contains no quote.
    let id = data.get(HEAD.len()..).unwrap_or_default();
    memchr(b'"', id).map_or(&[][..], |quote| &id[quote..])
}

/// The events of consecutive frames. The sequence number of the first one is `first_seq`. Stops before bytes that
/// are not a frame.
pub fn events(frames: &[u8], first_seq: u64) -> impl Iterator<Item = EventRef<'_>> {
    let mut start = 0;
    frame::ends(frames)
        .zip(first_seq..)
        .map_while(move |(end, seq)| {
            let frame = &frames[start..end];
            start = end;
            EventRef::parse(seq, frame)
        })
}

/// Replaces the text of a session id wherever it occurs: as a member, in a path, in a URL. All ids have the same length.
pub fn replace_session_id(bytes: &mut [u8], from: SessionId, to: SessionId) {
    let from = from.to_string();
    let to = to.to_string();
    let found: Vec<usize> = memmem::find_iter(bytes, &from).collect();
    for at in found {
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    }
}

/// The members of the head that must agree with the frame. A duplicate of one of them is an error.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMembers<'a> {
    #[serde(rename = "id")]
    _id: serde::de::IgnoredAny,
    seq: u64,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    session_id: Cow<'a, str>,
}

impl EventRef<'_> {
    /// Whether the event of a foreign file is one line of JSON of this session, and its head is that of its frame.
    fn is_of_session(&self, session: &str) -> bool {
        let mut bytes = self.data.iter().chain(self.kind.as_bytes());
        // A line break would begin another line of the frame.
        if bytes.any(|byte| *byte < b' ') || self.head().is_none() {
            return false;
        }
        let text = std::str::from_utf8(self.data);
        let head = text.map(serde_json::from_str::<HeadMembers<'_>>);
        head.is_ok_and(|head| {
            head.is_ok_and(|head| {
                head.seq == self.seq && head.kind == self.kind && head.session_id == session
            })
        })
    }
}

/// The frames of `count` events in the log of another session. `None` if they are damaged, or if one is not of the session
/// `from`.
pub fn moved(
    frames: &[u8],
    first_seq: u64,
    count: u64,
    from: SessionId,
    to: SessionId,
) -> Option<Vec<u8>> {
    let mut moved = frames.to_vec();
    replace_session_id(&mut moved, from, to);
    let session = to.to_string();
    let mut events_read = 0;
    let mut bytes_read = 0;
    for event in events(&moved, first_seq) {
        if !event.is_of_session(&session) {
            return None;
        }
        events_read += 1;
        bytes_read += event.frame.len();
    }
    (events_read == count && bytes_read == moved.len()).then_some(moved)
}

/// The members after the head. Members that the event does not have are `None`. Payloads of agents stay raw.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload<'a> {
    // This attribute lets all members borrow.
    #[serde(borrow)]
    pub by: Option<Cow<'a, str>>,
    pub session: Option<&'a RawValue>,
    /// The session that this session was forked from.
    pub forked_from: Option<Cow<'a, str>>,
    pub context: Option<Cow<'a, str>>,
    pub prompt: Option<&'a RawValue>,
    /// The request of the ACP client that sent the prompt.
    pub acp_request: Option<AcpRequest>,
    /// The ACP client that alone can answer a request.
    pub acp_client: Option<Cow<'a, str>>,
    pub update: Option<&'a RawValue>,
    #[serde(rename = "_meta")]
    pub meta: Option<&'a RawValue>,
    /// Other members beside `update`.
    pub more: Option<&'a RawValue>,
    /// The child session that sent the update or the request.
    pub subagent: Option<Cow<'a, str>>,
    #[serde(default)]
    pub late: bool,
    /// Whether the update only repeats the open prompt.
    #[serde(default)]
    pub echo: bool,
    pub stop_reason: Option<Cow<'a, str>>,
    /// Why the gateway cancelled the turn.
    pub cancel_cause: Option<CancelCause>,
    pub usage: Option<&'a RawValue>,
    pub problem: Option<&'a RawValue>,
    pub request_id: Option<RequestId>,
    pub method: Option<Cow<'a, str>>,
    pub params: Option<&'a RawValue>,
    /// The tool call of a permission request that was resolved.
    pub tool_call_id: Option<Cow<'a, str>>,
    pub resolution: Option<Resolution>,
    /// The time at which the gateway answers a request itself.
    pub deadline: Option<Timestamp>,
    pub result: Option<&'a RawValue>,
    pub error: Option<&'a RawValue>,
    pub elicitation_id: Option<Cow<'a, str>>,
    pub terminal_id: Option<TerminalId>,
    /// The number of output bytes before `data`.
    pub offset: Option<u64>,
    pub data: Option<Cow<'a, str>>,
}

/// The first bytes of an event. The id follows.
const HEAD: &[u8] = b"{\"id\":\"";

/// The first members of an event, which the gateway writes in a fixed order and without escapes:
/// `{"id":…,"seq":…,"type":…,"sessionId":…,"time":…,"promptId":…`. Members of a payload with the same names are
/// never part of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    time: &'a str,
    prompt: Option<&'a str>,
}

impl<'a> Head<'a> {
    /// The head, and the rest of the event.
    fn split(data: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut at = Position(data.strip_prefix(HEAD)?);
        at.until_quote()?;
        at.after(b",\"seq\":")?.skip_digits();
        at.after(b",\"type\":\"")?.until_quote()?;
        at.after(b",\"sessionId\":\"")?.until_quote()?;
        let time = at.after(b",\"time\":\"")?.until_quote()?;
        let prompt = at
            .after(b",\"promptId\":\"")
            .and_then(Position::until_quote);
        Some((Self { time, prompt }, at.0))
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

    fn skip_digits(&mut self) {
        let count = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.0 = &self.0[count..];
    }
}

/// A chunk of text of the session itself: nearly all events of a turn.
#[derive(Debug)]
pub struct TextChunk<'a> {
    /// The kind of the update, for example `agent_message_chunk`.
    pub kind: Cow<'a, str>,
    pub message_id: Option<Cow<'a, str>>,
    /// A string in JSON, with its quotes.
    pub text: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    #[serde(rename = "sessionUpdate", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    message_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: &'a RawValue,
}

impl<'a> TextChunk<'a> {
    /// `members`: those after the head. `None` unless `update` is the only one and its content is one text.
    pub(super) fn parse(members: &'a [u8]) -> Option<Self> {
        let update = members.strip_prefix(b",\"update\":")?;
        let mut values = serde_json::Deserializer::from_slice(update).into_iter::<Update<'_>>();
        let Update {
            kind,
            message_id,
            content,
        } = values.next()?.ok()?;
        let is_whole = update.get(values.byte_offset()..) == Some(b"}");
        let is_text = content.kind == "text" && content.text.get().starts_with('"');
        (is_whole && is_text).then_some(Self {
            kind,
            message_id,
            text: content.text,
        })
    }
}

#[cfg(test)]
mod tests;
