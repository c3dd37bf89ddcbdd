//! The messages to the gateway, in their order. One is sent at a time.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;

use super::{Bridge, Effect, Phase};
use crate::acp::error_code;
use crate::attach::calls::{CallKind, CallNumber};
use crate::attach::message::rpc_error;

/// The maximum number of messages of the editor that wait. The bridge answers further requests with an error.
const MAX_MESSAGES: usize = 1024;
/// The maximum size of all messages of the editor that wait.
const MAX_BYTES: usize = 64 << 20;

/// A message to the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::attach) struct Post {
    pub(in crate::attach) session: Option<Box<str>>,
    pub(in crate::attach) body: Bytes,
}

/// Why the gateway has not accepted a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::attach) enum PostError {
    /// The gateway asks to send it later.
    Busy,
    /// The gateway rejects the message itself.
    Rejected(String),
    /// The connection has ended, or nobody knows whether the gateway has the message.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Call(CallNumber),
    /// A notification, or the response to a request of the agent.
    Message(Post),
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    items: VecDeque<Item>,
    in_flight: Option<Item>,
    /// The size of the messages that are no calls.
    bytes: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.in_flight.is_none()
    }

    pub(super) fn push_call(&mut self, number: CallNumber) {
        self.items.push_back(Item::Call(number));
    }

    pub(super) fn push_call_front(&mut self, number: CallNumber) {
        self.items.push_front(Item::Call(number));
    }

    /// The message that is in flight is the next one again.
    pub(super) fn return_in_flight(&mut self) {
        if let Some(item) = self.in_flight.take() {
            self.items.push_front(item);
        }
    }

    /// The calls that wait to be sent.
    pub(super) fn waiting(&self) -> HashSet<CallNumber> {
        let number = |item: &Item| if let Item::Call(number) = item { Some(*number) } else { None };
        self.items.iter().chain(&self.in_flight).filter_map(number).collect()
    }

    fn pop(&mut self, index: usize) -> Option<Item> {
        self.in_flight = self.items.remove(index);
        self.in_flight.clone()
    }
}

impl Bridge {
    /// Whether there is room for another message of the editor.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let queued = self.queue.bytes + self.calls.bytes();
        self.queue.items.len() + self.calls.len() < MAX_MESSAGES && queued.saturating_add(bytes) <= MAX_BYTES
    }

    /// Enqueues a message that is no call. Without room, the message is dropped.
    pub(super) fn push_message(&mut self, session: Option<Box<str>>, body: Bytes) {
        if !self.has_room(body.len()) {
            tracing::warn!("dropped a message of the editor: too many messages wait for the gateway");
            return;
        }
        self.queue.bytes += body.len();
        self.queue.items.push_back(Item::Message(Post { session, body }));
    }

    /// The next message. The caller must report its result with [`posted`](Self::posted).
    pub(in crate::attach) fn next_post(&mut self) -> Option<Post> {
        if !matches!(self.phase, Phase::Connected) || self.queue.in_flight.is_some() {
            return None;
        }
        // A call that has ended meanwhile is not sent.
        let calls = &self.calls;
        self.queue.items.retain(|item| match item {
            Item::Call(number) => calls.get(*number).is_some(),
            Item::Message(_) => true,
        });
        let index = self.queue.items.iter().position(|item| self.may_send(item))?;
        match self.queue.pop(index)? {
            Item::Message(post) => Some(post),
            Item::Call(number) => {
                let call = self.calls.get(number)?;
                Some(Post { session: call.session.clone(), body: call.body.clone() })
            }
        }
    }

    /// Messages for a session wait until the session is restored. A load or resume of the editor waits for the session's
    /// stream, on which its response follows the history.
    fn may_send(&self, item: &Item) -> bool {
        let (call, session) = match item {
            Item::Call(number) => match self.calls.get(*number) {
                Some(call) => (Some((*number, &call.kind)), call.session.as_deref()),
                None => return false,
            },
            Item::Message(post) => (None, post.session.as_deref()),
        };
        let Some(followed) = session.and_then(|session| self.sessions.get(session)) else { return true };
        match (followed.restoring, call) {
            (None, _) => true,
            (Some(restoring), Some((number, kind))) if restoring == number => {
                *kind == CallKind::Restore || followed.is_open
            }
            (Some(_), _) => false,
        }
    }

    /// The result of the message that is in flight.
    pub(in crate::attach) fn posted(&mut self, result: Result<(), PostError>) {
        let error = match result {
            Err(PostError::Lost) => return self.lost(),
            Err(PostError::Busy) => {
                self.queue.return_in_flight();
                self.effects.push_back(Effect::Pause);
                return;
            }
            Err(PostError::Rejected(reason)) => Some(reason),
            Ok(()) => None,
        };
        match self.queue.in_flight.take() {
            Some(Item::Message(post)) => {
                self.queue.bytes -= post.body.len();
                if let Some(reason) = error {
                    tracing::warn!(reason, "the gateway rejected a message of the editor");
                }
            }
            Some(Item::Call(number)) => {
                if let Some(reason) = error {
                    let failure = rpc_error(error_code::INVALID_REQUEST, reason);
                    self.answered(number, Err(failure));
                }
            }
            None => {}
        }
    }
}
