//! Events encoded for the log.

use crate::api::event::EventMembers;

/// An encoded event. It borrows nothing, so the encoded values may change before it is appended.
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
