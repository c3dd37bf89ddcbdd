//! Frames for the tests of modules that read events.

use super::{Event, EventRef, Framer, Members};
use base::types::{PromptId, Timestamp};

/// The frame of an event with the epoch `k`. `members` are the members after the head.
pub fn frame(seq: u64, kind: &str, prompt: Option<u32>, time: &str, members: &str) -> Vec<u8> {
    let session = "01938c5e-7a3b-7c4d-8e5f-0123456789ab"
        .parse()
        .expect("an id of a session");
    let mut framer = Framer::new(&"k".parse().expect("an epoch"), session);
    let members = Members::whole(members.as_bytes());
    let event = Event {
        kind,
        prompt: prompt.map(PromptId::new),
        members,
    };
    let mut out = Vec::new();
    framer.frame(
        &mut out,
        seq,
        &event,
        time.parse::<Timestamp>().expect("a time"),
    );
    out
}

/// Reads one frame.
pub fn event(frame: &[u8]) -> EventRef<'_> {
    EventRef::parse(1, frame).expect("a frame")
}

/// Checks the members of an event's head that only clients read.
pub fn assert_head(event: &EventRef<'_>, epoch: &str, session: &str) {
    let seq = event.seq();
    let kind = event.kind();
    let head = format!(
        r#"{{"id":"{epoch}-{seq}","seq":{seq},"type":"{kind}","sessionId":"{session}","time":""#
    );
    assert!(
        event.raw_json().starts_with(head.as_bytes()),
        "{}",
        String::from_utf8_lossy(event.raw_json())
    );
}
