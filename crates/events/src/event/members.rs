//! The encoding of an event's members.

use serde::Serialize;

use super::framer::{Event, Members};
use super::payload::ChangedMembers;
use base::types::PromptId;

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
