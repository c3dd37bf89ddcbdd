//! The messages to the gateway, in their order. One is in flight at a time.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;

use crate::attach::calls::CallNumber;

/// A message to the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::attach) struct Post {
    pub(in crate::attach) session: Option<Box<str>>,
    /// The folders that the gateway must accept first.
    pub(in crate::attach) folders: Vec<String>,
    pub(in crate::attach) body: Bytes,
}

/// Why the gateway has not accepted a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::attach) enum PostError {
    /// The gateway asks to send it later.
    Busy,
    /// The gateway rejects the message itself.
    Rejected(String),
    /// The gateway does not accept a folder of the message.
    InvalidFolder(String),
    /// The connection has ended, or nobody knows whether the gateway has the message.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    Call(CallNumber),
    /// A notification, or the response to a request of the agent.
    Message(Post),
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) items: VecDeque<Item>,
    pub(super) in_flight: Option<Item>,
    /// The size of the messages that are no calls.
    pub(super) bytes: usize,
    /// How often the last large message failed in a row.
    pub(super) failures: u32,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.in_flight.is_none()
    }

    pub(super) fn push_call(&mut self, number: CallNumber) {
        self.items.push_back(Item::Call(number));
    }

    /// Sends a call again, also if it is in flight.
    pub(super) fn push_call_front(&mut self, number: CallNumber) {
        if !self.items.contains(&Item::Call(number)) {
            self.items.push_front(Item::Call(number));
        }
    }

    /// The message that is in flight is the next one again.
    pub(super) fn return_in_flight(&mut self) {
        let Some(item) = self.in_flight.take() else { return };
        // A call can be in the queue again. Equal notifications are different messages.
        if matches!(item, Item::Message(_)) || !self.items.contains(&item) {
            self.items.push_front(item);
        }
    }

    /// The calls that wait to be sent.
    pub(super) fn waiting(&self) -> HashSet<CallNumber> {
        let number = |item: &Item| if let Item::Call(number) = item { Some(*number) } else { None };
        self.items.iter().chain(&self.in_flight).filter_map(number).collect()
    }

    /// Moves a message out of the queue. It is in flight until its result is known.
    pub(super) fn send(&mut self, index: usize) -> Option<Item> {
        self.in_flight = self.items.remove(index);
        self.in_flight.clone()
    }
}
