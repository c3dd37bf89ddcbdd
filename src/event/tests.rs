//! Frames for the tests of modules that read events.

use super::{Event, EventRef, Framer, Members};
use crate::types::{PromptId, Timestamp};

/// The frame of an event with the epoch `k`. `members` are the members after the head.
pub(crate) fn frame(seq: u64, kind: &str, prompt: Option<u32>, time: &str, members: &str) -> Vec<u8> {
    let session = "01938c5e-7a3b-7c4d-8e5f-0123456789ab".parse().unwrap();
    let mut framer = Framer::new(&"k".parse().unwrap(), session);
    let members = Members::whole(members.as_bytes());
    let event = Event { kind, prompt: prompt.map(PromptId::new), members };
    let mut out = Vec::new();
    framer.frame(&mut out, seq, &event, time.parse::<Timestamp>().unwrap());
    out
}

/// Reads one frame.
pub(crate) fn event(frame: &[u8]) -> EventRef<'_> {
    EventRef::parse(1, frame).expect("a frame")
}
