//! The decisions of the bridge: inputs of the editor and the gateway, and their effects. Without I/O and without time.
//!
//! Every request of the editor becomes a call with an id that the bridge uses once. The gateway recognizes a prompt, a new
//! session or a fork that it receives again by this id. Therefore, after a reconnect, the bridge sends the calls without a
//! response again. A call ends with the first response. Calls that must not run twice end with an error.
//!
//! `queue` keeps the messages to the gateway, and `sending` sends them. `editor` and `gateway` handle the messages of both
//! sides. This file continues after a reconnect, and ends the messages that must not be repeated.

mod editor;
mod gateway;
mod queue;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;

use self::queue::Queue;
pub(super) use self::queue::{Post, PostError};
use super::message::call;
use super::path_map::PathMap;
use super::tables::{
    AgentRequests, Call, CallKind, CallNumber, Calls, Followed, Sessions, first_position, id_of,
};
use wire::acp::{error_code, method, stop_reason, to_raw};
use wire::jsonrpc::{self, RpcError};

/// The JSON-RPC id of `initialize` at the gateway. No other call has it.
pub(super) const INITIALIZE_ID: &str = "b-0";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Write(Bytes),
    /// End the current connection, if there is one, and open another one.
    Connect,
    /// Open the stream of a session, or of the connection, after this SSE id.
    OpenStream {
        session: Option<Box<str>>,
        last: Option<String>,
    },
    CloseStream(Box<str>),
    Pause,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    pub(super) session: Option<Box<str>>,
    pub(super) paths: PathMap,
    pub(super) allow_folders: bool,
    /// The command of this process, to which the words of a sign-in are appended.
    pub(super) sign_in: Vec<String>,
}

type Outcome = Result<Box<RawValue>, RpcError>;

#[derive(Debug)]
enum Phase {
    /// The editor has not sent `initialize`, or the gateway has rejected it.
    New,
    /// The editor waits for the response to its `initialize` with this id.
    Initializing(Box<RawValue>),
    Connected,
    Reconnecting,
}

#[derive(Debug)]
pub(super) struct Bridge {
    settings: Settings,
    /// The name under which the gateway recognizes the bridge after a reconnect.
    client: String,
    phase: Phase,
    initialize: Box<RawValue>,
    /// The epoch of the gateway's log, which is a part of every position.
    epoch: Option<String>,
    calls: Calls,
    queue: Queue,
    sessions: Sessions,
    requests: AgentRequests,
    effects: VecDeque<Effect>,
}

impl Bridge {
    pub(super) fn new(settings: Settings, client: String) -> Self {
        Self {
            settings,
            client,
            phase: Phase::New,
            initialize: RawValue::NULL.to_owned(),
            epoch: None,
            calls: Calls::default(),
            queue: Queue::default(),
            sessions: Sessions::default(),
            requests: AgentRequests::default(),
            effects: VecDeque::new(),
        }
    }

    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// `None`: the stream of the connection.
    fn open_stream(&mut self, session: Option<&str>, last: Option<String>) {
        let session = session.map(Into::into);
        self.effects.push_back(Effect::OpenStream { session, last });
    }

    fn write(&mut self, line: Bytes) {
        self.effects.push_back(Effect::Write(line));
    }

    fn respond(&mut self, id: &RawValue, outcome: &Outcome) {
        self.write(jsonrpc::response(id, outcome.as_deref()));
    }

    fn respond_error(&mut self, id: &RawValue, code: i64, detail: impl Into<String>) {
        self.respond(id, &Err(RpcError::new(code, detail)));
    }

    /// Ends a call with this outcome, and responds to the editor if the call is its own.
    fn end_call(&mut self, number: CallNumber, outcome: &Outcome) -> Option<Call> {
        let call = self.calls.end(number)?;
        if let Some(id) = &call.editor_id {
            self.respond(id, outcome);
        }
        Some(call)
    }

    fn fail_calls(&mut self, failure: &RpcError) {
        for number in self.calls.numbers() {
            self.end_call(number, &Err(failure.clone()));
        }
    }

    /// The connection has ended. The next one continues at the position of the editor.
    pub(super) fn lost(&mut self) {
        self.end_once();
        self.queue.return_in_flight();
        match self.phase {
            Phase::New => {}
            Phase::Initializing(_) | Phase::Reconnecting => self.effects.push_back(Effect::Connect),
            Phase::Connected => {
                self.phase = Phase::Reconnecting;
                for followed in self.sessions.values_mut() {
                    followed.is_open = false;
                }
                self.effects.push_back(Effect::Connect);
            }
        }
    }

    /// The gateway does not accept the key. All calls fail.
    pub(super) fn denied(&mut self, reason: &str) {
        let failure = RpcError::new(error_code::AUTH_REQUIRED, reason);
        if let Phase::Initializing(id) = std::mem::replace(&mut self.phase, Phase::New) {
            self.respond(&id, &Err(failure.clone()));
        }
        self.fail_calls(&failure);
        self.queue = Queue::default();
    }

    fn forget(&mut self, session: &str, failure: &RpcError) {
        for number in self.calls.of_session(session) {
            self.end_call(number, &Err(failure.clone()));
        }
        self.remove_session(session);
    }

    /// Stops to follow a session that the editor has closed, after the end of its last turn.
    fn forget_if_done(&mut self, session: &str) {
        let followed = self.sessions.get(session);
        if followed.is_some_and(|followed| followed.is_closed) && !self.calls.has_prompts(session) {
            self.remove_session(session);
        }
    }

    fn remove_session(&mut self, session: &str) {
        if self.sessions.remove(session).is_some() {
            self.effects.push_back(Effect::CloseStream(session.into()));
        }
    }

    /// Follows a session, and opens its stream after the SSE id `followed.last`.
    fn follow(&mut self, session: &str, followed: Followed) {
        let last = followed.last.clone();
        self.sessions.insert(session.into(), followed);
        self.open_stream(Some(session), last);
    }

    pub(super) fn opened(&mut self, session: &str) {
        if let Some(followed) = self.sessions.get_mut(session) {
            followed.is_open = true;
        }
    }

    pub(super) fn initialize_request(&self) -> Bytes {
        call(Some(INITIALIZE_ID), method::INITIALIZE, &self.initialize)
    }

    pub(super) fn has_unsent(&self) -> bool {
        matches!(self.phase, Phase::Connected) && !self.queue.is_empty()
    }

    fn open_call(
        &mut self,
        kind: CallKind,
        editor_id: Option<Box<RawValue>>,
        session: Option<Box<str>>,
        method: &str,
        params: &RawValue,
    ) -> CallNumber {
        let folders = if kind == CallKind::Create {
            self.folders_to_allow(params)
        } else {
            Vec::new()
        };
        self.calls.open(|id| Call {
            kind,
            folders,
            editor_id,
            session,
            body: call(Some(id), method, params),
        })
    }
}

impl Bridge {
    /// Restores all sessions, and sends the calls again that have no response.
    pub(super) fn restore(&mut self) {
        // The responses of the ended connection are lost. The numbers are the order of the calls.
        let waiting = self.queue.waiting();
        let mut sent = self.calls.numbers();
        sent.retain(|number| !waiting.contains(number));
        for number in sent.into_iter().rev() {
            if self.calls.is(number, &CallKind::Restore) {
                self.calls.end(number);
            } else {
                self.queue.push_call_front(number);
            }
        }
        let sessions: Vec<_> = self.sessions.keys().cloned().collect();
        for session in sessions {
            self.restore_session(&session);
        }
    }

    fn restore_session(&mut self, session: &str) {
        let has_prompts = self.calls.has_prompts(session);
        let Some(followed) = self.sessions.get_mut(session) else {
            return;
        };
        if followed.is_closed {
            return self.end_closed(session);
        }
        let restoring = followed.restoring.and_then(|number| self.calls.get(number));
        if let Some(call) = restoring
            && call.kind != CallKind::Restore
        {
            // The editor's own request restores the session. Its history begins again, if messages of the previous stream
            // could be older than the request.
            let is_again = call.kind == CallKind::Load && !followed.is_new;
            let last = if is_again {
                None
            } else {
                followed.last.clone()
            };
            return self.open_stream(Some(session), last);
        }
        // A load shows no dialogs for requests that ended long ago, but it omits responses to prompts.
        let is_load = followed.is_in_history() && !has_prompts;
        if followed.last.is_none() && has_prompts {
            followed.last = self.epoch.as_deref().map(first_position);
        }
        let previous = followed.restoring.take();
        let (method, params) = match &followed.attach {
            Some(attach) => (method::SESSION_ATTACH, attach.clone()),
            None if is_load => (method::SESSION_LOAD, followed.setup.params(session)),
            None => (method::SESSION_RESUME, followed.setup.params(session)),
        };
        let id = Some(session.into());
        let number = self.open_call(CallKind::Restore, None, id, method, &params);
        if let Some(followed) = self.sessions.get_mut(session) {
            followed.restoring = Some(number);
        }
        if let Some(previous) = previous {
            self.calls.end(previous);
        }
        self.queue.push_call_front(number);
    }

    /// A closed session must not be restored, because this would open it again. A close cancels its turns.
    fn end_closed(&mut self, session: &str) {
        let cancelled = to_raw(&json!({ "stopReason": stop_reason::CANCELLED }));
        for number in self.calls.of_session(session) {
            if self.calls.is(number, &CallKind::Prompt) {
                self.end_call(number, &Ok(cancelled.clone()));
            }
        }
        self.sessions.remove(session);
    }

    pub(super) fn restored(
        &mut self,
        number: CallNumber,
        session: Option<&str>,
        outcome: &Outcome,
    ) {
        self.calls.end(number);
        let Some(session) = session else { return };
        let followed = match self.sessions.get_mut(session) {
            Some(followed) if followed.restoring == Some(number) => followed,
            _ => return,
        };
        followed.restoring = None;
        match outcome {
            Ok(_) => {
                let last = followed.last.clone();
                self.open_stream(Some(session), last);
            }
            Err(error) => {
                tracing::warn!(session, error = %error.message, "could not restore a session after a reconnect");
                let detail = format!("the session could not be restored: {}", error.message);
                self.forget(session, &RpcError::new(error.code, detail));
            }
        }
    }
}

/// The error for a request whose response a cut has lost.
const UNKNOWN: &str = "the connection to the gateway was cut, and the outcome of this request is unknown: the agent may \
     have handled it. It was not sent again. Check its effect before you repeat it";

impl Bridge {
    /// Ends the messages that the gateway can have received and that must not run twice.
    pub(super) fn end_once(&mut self) {
        let mut unknown = self.calls.numbers();
        unknown.retain(|number| {
            self.calls.is(*number, &CallKind::Once) && !self.queue.has_call(*number)
        });
        for number in unknown {
            self.end_call(number, &Err(RpcError::new(error_code::INTERNAL, UNKNOWN)));
        }
        match self.queue.take_once() {
            Some((post, true)) => self.repeat_cancel(&post),
            Some((_, false)) => {
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
            self.calls.is(*number, &CallKind::Prompt) && !self.queue.has_call(*number)
        });
        for number in prompts.into_iter().rev() {
            let params = to_raw(&json!({ "requestId": id_of(number) }));
            let body = call(None, method::CANCEL_REQUEST, &params);
            self.queue
                .push_front(Post::new(cancel.session.clone(), body));
        }
    }
}
