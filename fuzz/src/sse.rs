//! Events encoded as frames and parsed again by an EventSource model.

use acp_gateway::stream::{Encoder, Ndjson, Sse};
use base::types::{Epoch, PromptId, SessionId, Timestamp, UserId};
use bytes::BytesMut;
use events::event::{ControlFrame, Event, Framer, Members, PositionFrame, TYPES};
use log::eventlog::Run;
use serde_json::value::RawValue;

use super::input::{Input, chunks};
use super::json::members;
use super::whatwg::{self, Parser};

/// The expected content of an event, in any encoding.
struct Sent {
    id: String,
    kind: &'static str,
    prompt: Option<PromptId>,
    members: Option<String>,
}

/// The reconnection delay in milliseconds.
const RETRY: u64 = 1000;
/// The type of a frame that only advances the cursor, in its data after the id.
const POSITION: &str = "\"type\":\"position\"";

/// The input is the first seq, cuts, and one payload for each event: JSON is used unchanged, other bytes
/// become a string.
pub fn sse(data: &[u8]) {
    let mut input = Input::new(data);
    let first_seq = input.number().clamp(1, u64::MAX - 300);
    let millis = input.number().cast_signed();
    let cuts: Vec<u8> = (0..input.below(6)).map(|_| input.byte()).collect();
    let epoch: Epoch = "k3".parse().expect("it is one");
    let session: SessionId = "01938c5e-7a3b-7c4d-8e5f-0123456789ab"
        .parse()
        .expect("it is one");
    let mut framer = Framer::new(&epoch, session);
    let mut bytes = Vec::new();
    let mut sent = Vec::new();
    while sent.len() < 64
        && let Some(payload) = input.piece()
    {
        let (head, payload) = payload.split_at(payload.len().min(2));
        let kind = TYPES[usize::from(head.first().copied().unwrap_or(0)) % TYPES.len()].name;
        let prompt = head
            .get(1)
            .filter(|byte| **byte > 0)
            .map(|byte| PromptId::new(u32::from(*byte)));
        let members = payload_members(payload);
        let event = Event {
            kind,
            prompt,
            members: Members::whole(members.as_deref().unwrap_or_default().as_bytes()),
        };
        let seq = first_seq + sent.len() as u64;
        let before = bytes.len();
        let size = framer.size(&event);
        framer.frame(&mut bytes, seq, &event, Timestamp::from_millis(millis));
        assert!(
            bytes.len() - before <= size,
            "a frame is no longer than was said"
        );
        sent.push(Sent {
            id: format!("k3-{seq}"),
            kind,
            prompt,
            members,
        });
    }
    if sent.is_empty() {
        return;
    }
    let owner = UserId::owner();
    let last_seq = first_seq + sent.len() as u64 - 1;
    let run = Run {
        owner,
        session,
        first_seq,
        last_seq,
        last_pos: last_seq,
        frames: bytes.into(),
    };
    stored(&run, &sent, &cuts);
    shaped(&run, &sent, &cuts, Sse::<true>);
    shaped(&run, &sent, &cuts, Sse::<false>);
    lines(&run, &sent);
    let other = run.with_epoch(&"fresh".parse().expect("it is one"));
    let renamed: Vec<Sent> = sent
        .into_iter()
        .map(|sent| Sent {
            id: sent.id.replace("k3-", "fresh-"),
            ..sent
        })
        .collect();
    stored(&other, &renamed, &cuts);
}

fn payload_members(payload: &[u8]) -> Option<String> {
    if payload.is_empty() {
        return None;
    }
    if let Ok(raw) = serde_json::from_slice::<&RawValue>(payload) {
        return Some(format!("\"update\":{raw}"));
    }
    let text = serde_json::to_string(&String::from_utf8_lossy(payload)).expect("a text is JSON");
    Some(format!("\"update\":{text}"))
}

/// The stored bytes are the stream. They can be cut after any event.
fn stored(run: &Run, sent: &[Sent], cuts: &[u8]) {
    let mut stream = BytesMut::new();
    Sse::<true>.retry(&mut stream, RETRY);
    stream.extend_from_slice(&run.frames);
    judge(&read(&stream, cuts), sent, true);
    assert_eq!(run.events().count(), sent.len());
    let cut = run.first_seq + u64::from(cuts.first().copied().unwrap_or(0)) % run.count();
    let halves = [run.through(cut), run.after(cut)];
    assert_eq!(
        halves.iter().flatten().map(Run::count).sum::<u64>(),
        run.count()
    );
    let whole: Vec<u8> = halves
        .iter()
        .flatten()
        .flat_map(|half| half.frames.to_vec())
        .collect();
    assert_eq!(whole, run.frames);
}

fn read(stream: &[u8], cuts: &[u8]) -> Vec<whatwg::Event> {
    let mut parser = Parser::default();
    let events = chunks(stream, cuts)
        .into_iter()
        .flat_map(|chunk| parser.push(chunk))
        .collect();
    assert_eq!(parser.retry, Some(RETRY), "the opening is read");
    events
}

/// The same events, encoded one by one, with keep-alive and `position` frames between them.
fn shaped<const NAMED: bool>(run: &Run, sent: &[Sent], cuts: &[u8], mut encoder: Sse<NAMED>) {
    let mut out = BytesMut::new();
    encoder.retry(&mut out, RETRY);
    for event in run.events() {
        out.extend_from_slice(encoder.keep_alive());
        let id = format!("k3-{}", event.seq());
        encoder.event(&mut out, &|| id.clone(), &event);
        out.extend_from_slice(encoder.keep_alive());
        encoder.control(
            &mut out,
            &ControlFrame::new(&PositionFrame {}, Timestamp::from_millis(0)).with_id(id),
        );
    }
    let mut events = read(&out, cuts);
    let all = events.len();
    events.retain(|event| event.data.split(',').nth(1) != Some(POSITION));
    assert_eq!(all - events.len(), sent.len(), "each position has its data");
    judge(&events, sent, NAMED);
}

fn lines(run: &Run, sent: &[Sent]) {
    let mut out = BytesMut::new();
    for event in run.events() {
        out.extend_from_slice(Ndjson.keep_alive());
        Ndjson.event(&mut out, &String::new, &event);
    }
    let text = std::str::from_utf8(&out).expect("it is text");
    assert_eq!(text.lines().count(), sent.len());
    for (line, sent) in text.lines().map(str::trim_start).zip(sent) {
        same(line, sent);
    }
}

fn judge(got: &[whatwg::Event], sent: &[Sent], named: bool) {
    assert_eq!(got.len(), sent.len());
    for (got, sent) in got.iter().zip(sent) {
        assert_eq!(
            (&got.id, &*got.kind),
            (&sent.id, if named { sent.kind } else { "message" })
        );
        same(&got.data, sent);
    }
}

/// Checks a line of JSON against its event.
fn same(line: &str, sent: &Sent) {
    assert!(super::json::is_json(line), "{line}");
    let parts = members(line).expect("an event is an object");
    let value = |name: &str| {
        let mut found = parts
            .iter()
            .filter(|part| part.name.as_deref() == Some(name));
        let first = found.next().map(|part| line[part.at.clone()].to_owned());
        assert!(found.next().is_none(), "{name} is there once: {line}");
        first
    };
    assert_eq!(value("id"), Some(format!("\"{}\"", sent.id)));
    assert_eq!(
        value("seq").as_deref(),
        sent.id.split_once('-').map(|(_, seq)| seq)
    );
    assert_eq!(value("type"), Some(format!("\"{}\"", sent.kind)));
    assert_eq!(
        value("promptId"),
        sent.prompt.map(|prompt| format!("\"{prompt}\""))
    );
    // A line break between two tokens becomes a space. All other bytes are unchanged.
    let update = sent
        .members
        .as_deref()
        .map(|members| members["\"update\":".len()..].replace(['\n', '\r'], " "));
    assert_eq!(value("update"), update);
}
