//! The messages that wait for the gateway.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;

use crate::attach::tables::CallNumber;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::attach) struct Post {
    pub(in crate::attach) session: Option<Box<str>>,
    /// The folders that the gateway must accept first.
    pub(in crate::attach) folders: Vec<String>,
    pub(in crate::attach) body: Bytes,
}

impl Post {
    pub(super) fn new(session: Option<Box<str>>, body: Bytes) -> Self {
        Self {
            session,
            folders: Vec::new(),
            body,
        }
    }
}

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
    /// The gateway does not know the connection, so it has not handled the message.
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    Call(CallNumber),
    Post(Post, PostKind),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PostKind {
    /// The gateway can receive the message twice without a second effect.
    Repeatable,
    /// An answer to a request of the agent with this id. The gateway can receive it twice without a second effect.
    Answer(Box<str>),
    /// A notification that the gateway must not receive twice.
    Once { is_cancel: bool },
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) items: VecDeque<Item>,
    pub(super) in_flight: Option<Item>,
    pub(super) bytes: usize,
    /// How often the last large message failed in a row.
    pub(super) failures: u32,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.in_flight.is_none()
    }

    pub(super) fn push(&mut self, post: Post, kind: PostKind) {
        self.bytes += post.body.len();
        self.items.push_back(Item::Post(post, kind));
    }

    pub(super) fn push_call(&mut self, number: CallNumber) {
        self.items.push_back(Item::Call(number));
    }

    pub(super) fn push_call_front(&mut self, number: CallNumber) {
        if !self.items.contains(&Item::Call(number)) {
            self.items.push_front(Item::Call(number));
        }
    }

    /// The message that is in flight is the next one again.
    pub(super) fn return_in_flight(&mut self) {
        let Some(item) = self.in_flight.take() else {
            return;
        };
        // A call can be in the queue again. Equal messages are different ones.
        if !matches!(item, Item::Call(_)) || !self.items.contains(&item) {
            self.items.push_front(item);
        }
    }

    pub(super) fn has_call(&self, number: CallNumber) -> bool {
        self.items.contains(&Item::Call(number))
    }

    /// Ends the message that is in flight, if it must not be sent again. Returns whether it is a `session/cancel`.
    pub(super) fn take_once(&mut self) -> Option<(Post, bool)> {
        match self.in_flight.take() {
            Some(Item::Post(post, PostKind::Once { is_cancel })) => {
                self.bytes -= post.body.len();
                Some((post, is_cancel))
            }
            item => {
                self.in_flight = item;
                None
            }
        }
    }

    /// Enqueues a message that the gateway can receive twice before the others.
    pub(super) fn push_front(&mut self, post: Post) {
        self.bytes += post.body.len();
        self.items
            .push_front(Item::Post(post, PostKind::Repeatable));
    }

    pub(super) fn waiting(&self) -> HashSet<CallNumber> {
        let number = |item: &Item| match item {
            Item::Call(number) => Some(*number),
            Item::Post(..) => None,
        };
        let items = self.items.iter().chain(&self.in_flight);
        items.filter_map(number).collect()
    }
}
