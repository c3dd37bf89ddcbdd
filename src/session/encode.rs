//! Events on their way to the log: what the contract says of each, as bytes.

use crate::api::event::EventMembers;

/// An event of ours, written; what it was made of may change before it is appended.
#[derive(Debug)]
pub(super) struct EncodedEvent {
    pub(super) kind: &'static str,
    pub(super) members: Vec<u8>,
}

impl<E: EventMembers> From<&E> for EncodedEvent {
    fn from(event: &E) -> Self {
        Self { kind: E::TYPE, members: event.members() }
    }
}
