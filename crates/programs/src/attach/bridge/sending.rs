//! Sends the messages of the queue, and handles the result of each.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::queue::{Item, Post, PostError, PostKind};
use super::{Bridge, Effect, Phase};
use crate::attach::message::failed_answer;
use crate::attach::tables::CallKind;
use wire::acp::error_code;
use wire::jsonrpc::{self, RpcError};

const MAX_MESSAGES: usize = 1024;
/// The maximum size of all messages of the editor that wait.
const MAX_BYTES: usize = 64 << 20;

/// A gateway that rejects a large message by its size can close the connection before it has read the message, so that the
/// rejection is lost. After so many failures in a row, such a message is rejected.
const MAX_FAILURES: u32 = 3;
/// The size of a large message.
const LARGE_BYTES: usize = 1 << 20;

impl Bridge {
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let queued = self.queue.bytes + self.calls.bytes();
        self.queue.items.len() + self.calls.len() < MAX_MESSAGES
            && queued.saturating_add(bytes) <= MAX_BYTES
    }

    pub(super) fn push_message(&mut self, session: Option<Box<str>>, body: Bytes, kind: PostKind) {
        if self.has_room(body.len()) {
            self.queue.push(Post::new(session, body), kind);
        } else {
            tracing::warn!(
                "dropped a message of the editor: too many messages wait for the gateway"
            );
        }
    }

    /// Enqueues an answer to a request of the agent. The agent waits for it, so without room an error replaces it.
    pub(super) fn push_answer(&mut self, session: Option<Box<str>>, id: &RawValue, body: Bytes) {
        if self.has_room(body.len()) {
            let kind = PostKind::Answer(id.get().into());
            self.queue.push(Post::new(session, body), kind);
        } else {
            // The number of open requests bounds the errors.
            let failed = failed_answer("too many messages wait for the gateway");
            let post = Post::new(session, jsonrpc::error(id, &failed));
            self.queue.push(post, PostKind::Repeatable);
        }
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
            Item::Post(..) => true,
        });
        let mut items = self.queue.items.iter();
        let index = items.position(|item| self.may_send(item))?;
        // It is in flight until its result is known.
        self.queue.in_flight = self.queue.items.remove(index);
        match self.queue.in_flight.as_ref()? {
            Item::Post(post, _) => Some(post.clone()),
            Item::Call(number) => {
                let call = self.calls.get(*number)?;
                Some(Post {
                    session: call.session.clone(),
                    folders: call.folders.clone(),
                    body: call.body.clone(),
                })
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
            Item::Post(post, _) => (None, post.session.as_deref()),
        };
        let Some(followed) = session.and_then(|session| self.sessions.get(session)) else {
            return true;
        };
        match (followed.restoring, call) {
            (None, _) => true,
            (Some(restoring), Some((number, kind))) if restoring == number => {
                *kind == CallKind::Restore || followed.is_open
            }
            (Some(_), _) => false,
        }
    }

    pub(in crate::attach) fn posted(&mut self, result: Result<(), PostError>) {
        let is_lost = result == Err(PostError::Lost);
        let in_flight = self.queue.in_flight.as_ref();
        let size = in_flight.map_or(0, |item| self.size(item));
        if size >= LARGE_BYTES {
            self.queue.failures = if is_lost { self.queue.failures + 1 } else { 0 };
        }
        let error = match result {
            Err(PostError::Lost) if self.queue.failures >= MAX_FAILURES => {
                self.queue.failures = 0;
                let reason = format!("the gateway does not accept a message of {size} bytes");
                Some((error_code::INVALID_REQUEST, reason))
            }
            Err(PostError::Lost) => return self.lost(),
            Err(PostError::Gone) => {
                self.queue.return_in_flight();
                return self.lost();
            }
            Err(PostError::Busy) => {
                self.queue.return_in_flight();
                self.effects.push_back(Effect::Pause);
                return;
            }
            Err(PostError::Rejected(reason)) => Some((error_code::INVALID_REQUEST, reason)),
            Err(PostError::InvalidFolder(reason)) => Some((error_code::INVALID_PARAMS, reason)),
            Ok(()) => None,
        };
        match self.queue.in_flight.take() {
            Some(Item::Post(post, kind)) => {
                self.queue.bytes -= post.body.len();
                match (error, kind) {
                    (Some((_, reason)), PostKind::Answer(id)) => {
                        tracing::warn!(reason, "the gateway rejected an answer of the editor");
                        self.replace_answer(&id, post, &reason);
                    }
                    (Some((_, reason)), _) => {
                        tracing::warn!(reason, "the gateway rejected a message of the editor");
                    }
                    (None, _) => {}
                }
            }
            Some(Item::Call(number)) => {
                if let Some((code, reason)) = error {
                    let failure = RpcError::new(code, reason);
                    self.answered(number, Err(failure));
                }
            }
            None => {}
        }
        if is_lost {
            self.lost();
        }
    }

    /// The agent waits for an answer that the gateway does not accept, so an error replaces it, once.
    fn replace_answer(&mut self, id: &str, post: Post, reason: &str) {
        let Ok(id) = serde_json::from_str::<&RawValue>(id) else {
            return;
        };
        self.queue.push_front(Post {
            body: jsonrpc::error(id, &failed_answer(reason)),
            ..post
        });
    }

    fn size(&self, item: &Item) -> usize {
        match item {
            Item::Call(number) => self.calls.get(*number).map_or(0, |call| call.body.len()),
            Item::Post(post, _) => post.body.len(),
        }
    }
}
