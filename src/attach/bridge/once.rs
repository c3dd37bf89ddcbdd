//! Messages that are sent at most once, after a cut.

use serde_json::json;

use super::Bridge;
use super::queue::{Notification, Post};
use crate::acp::{error_code, method};
use crate::attach::calls::{CallKind, id_of};
use crate::attach::message::{call, raw, rpc_error};

/// The error for a request whose response a cut has lost.
const UNKNOWN: &str = "the connection to the gateway was cut, and the outcome of this request is unknown: the agent may \
     have handled it. It was not sent again. Check its effect before you repeat it";

impl Bridge {
    /// Ends the messages that the gateway can have received and that must not run twice.
    pub(super) fn end_once(&mut self) {
        let sent = |number: u64| !self.queue.has_call(number);
        let unknown: Vec<_> = self
            .calls
            .iter()
            .filter(|(number, call)| call.kind == CallKind::Once && sent(*number))
            .map(|(number, _)| number)
            .collect();
        for number in unknown {
            self.end_call(number, &Err(rpc_error(error_code::INTERNAL, UNKNOWN)));
        }
        match self.queue.take_once() {
            Some(Notification {
                post,
                is_cancel: true,
            }) => self.repeat_cancel(&post),
            Some(_) => {
                tracing::warn!(
                    "a cut has ended a notification of the editor; it is not sent again"
                );
            }
            None => {}
        }
    }

    /// A second `session/cancel` could cancel a later turn of another client. Therefore, each prompt that was sent before it
    /// is cancelled by its id.
    fn repeat_cancel(&mut self, cancel: &Post) {
        let Some(session) = cancel.session.as_deref() else {
            return;
        };
        let mut prompts = self.calls.of_session(session);
        prompts.retain(|number| {
            let is_prompt = self
                .calls
                .get(*number)
                .is_some_and(|call| call.kind == CallKind::Prompt);
            is_prompt && !self.queue.has_call(*number)
        });
        for number in prompts.into_iter().rev() {
            let params = raw(&json!({ "requestId": id_of(number) }));
            let body = call(None, method::CANCEL_REQUEST, &params);
            self.queue.push_front(Post {
                session: cancel.session.clone(),
                folders: Vec::new(),
                body,
            });
        }
    }
}
