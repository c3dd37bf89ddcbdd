//! The messages of a stream that are not in the log: responses of the gateway.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::watch;

use crate::shutdown::lock_or_abort;

/// The maximum number of messages, delivered ones included.
const MAX_MESSAGES: usize = 1024;
/// The maximum number of bytes of all messages, delivered ones included.
const MAX_BYTES: usize = 8 << 20;

/// Messages in their order. Delivered messages stay for readers that reconnect, while there is room.
#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<State>,
    last: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Entry>,
    bytes: usize,
    /// The number of the last message that a stream has delivered.
    delivered: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    follows: Place,
    message: Bytes,
}

/// A place in the messages of a session: an attachment of the session, and an event of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the attachment, from 1. 0 if the session is not attached.
    pub(super) attachment: u64,
    pub(super) event: u64,
}

impl Place {
    fn has_reached(self, other: Self) -> bool {
        self.attachment >= other.attachment && self.event >= other.event
    }
}

/// An outbox is full, because the client does not read its responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many unread responses")]
pub(super) struct OutboxFull;

impl Default for Outbox {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            last: watch::Sender::new(0),
        }
    }
}

impl Outbox {
    fn state(&self) -> MutexGuard<'_, State> {
        lock_or_abort(self.state.lock())
    }

    /// Adds a message that is delivered after the place `follows`. Fails if undelivered messages fill the outbox.
    pub(super) fn push(&self, follows: Place, message: Bytes) -> Result<(), OutboxFull> {
        let mut state = self.state();
        let number = *self.last.borrow() + 1;
        state.bytes += message.len();
        state.messages.push_back(Entry {
            number,
            follows,
            message,
        });
        let delivered = state.delivered;
        while state.messages.len() > MAX_MESSAGES || state.bytes > MAX_BYTES {
            // A single message can be larger than the limit.
            match state
                .messages
                .pop_front_if(|entry| entry.number <= delivered)
            {
                Some(entry) => state.bytes -= entry.message.len(),
                None if state.messages.len() == 1 => break,
                None => {
                    let rejected = state.messages.pop_back();
                    state.bytes -= rejected.map_or(0, |entry| entry.message.len());
                    return Err(OutboxFull);
                }
            }
        }
        drop(state);
        self.last.send_replace(number);
        Ok(())
    }

    /// The first message after `number`, if a reader at this place may deliver it.
    pub(super) fn next(&self, number: u64, reader: Place) -> Option<(u64, Bytes)> {
        let state = self.state();
        let entry = state.messages.iter().find(|entry| entry.number > number)?;
        reader
            .has_reached(entry.follows)
            .then(|| (entry.number, entry.message.clone()))
    }

    pub(super) fn set_delivered(&self, number: u64) {
        let mut state = self.state();
        state.delivered = state.delivered.max(number);
    }

    /// The number of the last delivered message. A stream without a position continues after it.
    pub(super) fn delivered(&self) -> u64 {
        self.state().delivered
    }

    /// Returns a receiver of the number of the last message.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> Bytes {
        vec![b'x'; bytes].into()
    }

    fn at(attachment: u64, event: u64) -> Place {
        Place { attachment, event }
    }

    #[test]
    fn messages_wait_for_their_event_and_keep_their_order() {
        let outbox = Outbox::default();
        outbox.push(at(1, 5), Bytes::from_static(b"a")).unwrap();
        outbox
            .push(Place::default(), Bytes::from_static(b"b"))
            .unwrap();
        assert_eq!(outbox.next(0, at(1, 4)), None);
        assert_eq!(
            outbox.next(0, at(0, 9)),
            None,
            "the session is not attached yet"
        );
        assert_eq!(
            outbox.next(0, at(1, 5)),
            Some((1, Bytes::from_static(b"a")))
        );
        assert_eq!(
            outbox.next(1, at(1, 5)),
            Some((2, Bytes::from_static(b"b")))
        );
        assert_eq!(outbox.next(2, at(1, 5)), None);
        outbox.set_delivered(2);
        outbox.set_delivered(1);
        assert_eq!(outbox.delivered(), 2);
        assert_eq!(
            outbox.next(0, at(1, 5)).map(|(number, _)| number),
            Some(1),
            "a reader that reconnects gets it again"
        );
    }

    #[test]
    fn unread_messages_are_bounded_and_delivered_ones_make_room() {
        let outbox = Outbox::default();
        for _ in 0..MAX_MESSAGES {
            outbox.push(Place::default(), message(1)).unwrap();
        }
        assert_eq!(outbox.push(Place::default(), message(1)), Err(OutboxFull));
        outbox.set_delivered(2);
        outbox.push(Place::default(), message(1)).unwrap();
        assert_eq!(
            outbox.next(0, Place::default()).map(|(number, _)| number),
            Some(2)
        );

        let outbox = Outbox::default();
        outbox
            .push(Place::default(), message(MAX_BYTES + 1))
            .unwrap();
        assert_eq!(outbox.push(Place::default(), message(1)), Err(OutboxFull));
        outbox.set_delivered(1);
        outbox.push(Place::default(), message(1)).unwrap();
        assert_eq!(
            outbox.next(0, Place::default()).map(|(number, _)| number),
            Some(2)
        );
    }
}
