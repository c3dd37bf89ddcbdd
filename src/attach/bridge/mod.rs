//! The decisions of the bridge: inputs of the editor and the gateway, and their effects. Without I/O and without time.
//!
//! Every request of the editor becomes a call with an id that the bridge uses once. The gateway recognizes a prompt, a new
//! session or a fork that it receives again by this id. Therefore, after a reconnect, the bridge sends the calls without a
//! response again. A call ends with the first response. Calls that must not run twice end with an error.
//!
//! `queue` and `sending` have the messages to the gateway, `editor` and `gateway` handle the messages of both sides,
//! `agent_paths` has the paths of the agent's requests, `restore` continues after a reconnect, and `once` has the messages that are not repeated.

mod agent_paths;
mod editor;
mod gateway;
mod once;
mod queue;
mod restore;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::agent_requests::AgentRequests;
use super::calls::{Call, CallKind, CallNumber, Calls};
use super::message::{response, rpc_error};
use super::path_map::PathMap;
use super::sessions::{Followed, Sessions};
use crate::jsonrpc::RpcError;
use queue::Queue;

pub(super) use queue::{Post, PostError};

/// The JSON-RPC id of `initialize` at the gateway. No other call has it.
pub(super) const INITIALIZE_ID: &str = "b-0";

/// An action of the driver that the bridge requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// Write a line to the editor.
    Write(Bytes),
    /// End the current connection, if there is one, and open another one.
    Connect,
    /// Open the stream of a session, or of the connection, after this SSE id.
    OpenStream {
        session: Option<Box<str>>,
        last: Option<String>,
    },
    CloseStream(Box<str>),
    /// Wait before the next message is sent.
    Pause,
}

/// The settings of the command line.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    /// The session that `session/new` loads.
    pub(super) session: Option<Box<str>>,
    pub(super) paths: PathMap,
    /// Ask the gateway to accept the folders of new sessions.
    pub(super) allow_folders: bool,
    /// The command of this process, to which the words of a sign-in are appended.
    pub(super) sign_in: Vec<String>,
}

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
    /// The params of `initialize`, with the name of the bridge.
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

    fn write(&mut self, line: Bytes) {
        self.effects.push_back(Effect::Write(line));
    }

    fn respond(&mut self, id: &RawValue, outcome: &Result<Box<RawValue>, RpcError>) {
        self.write(response(id, outcome));
    }

    fn respond_error(&mut self, id: &RawValue, code: i64, detail: impl Into<String>) {
        self.respond(id, &Err(rpc_error(code, detail)));
    }

    /// Ends a call with this outcome, and responds to the editor if the call is its own.
    fn end_call(
        &mut self,
        number: CallNumber,
        outcome: &Result<Box<RawValue>, RpcError>,
    ) -> Option<Call> {
        let call = self.calls.end(number)?;
        if let Some(id) = &call.editor_id {
            self.write(response(id, outcome));
        }
        Some(call)
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
                for session in self.sessions.ids() {
                    if let Some(followed) = self.sessions.get_mut(&session) {
                        followed.is_open = false;
                    }
                }
                self.effects.push_back(Effect::Connect);
            }
        }
    }

    /// The gateway does not accept the key. All calls fail.
    pub(super) fn denied(&mut self, reason: &str) {
        let failure = Err(rpc_error(crate::acp::error_code::AUTH_REQUIRED, reason));
        if let Phase::Initializing(id) = std::mem::replace(&mut self.phase, Phase::New) {
            self.respond(&id, &failure);
        }
        let open: Vec<_> = self.calls.iter().map(|(number, _)| number).collect();
        for number in open {
            self.end_call(number, &failure);
        }
        self.queue = Queue::default();
    }

    /// Stops to follow a session. Its calls fail with this error.
    fn forget(&mut self, session: &str, failure: &RpcError) {
        for number in self.calls.of_session(session) {
            self.end_call(number, &Err(failure.clone()));
        }
        if self.sessions.remove(session) {
            self.effects.push_back(Effect::CloseStream(session.into()));
        }
    }

    /// Stops to follow a session that the editor has closed, after the end of its last turn.
    fn forget_if_done(&mut self, session: &str) {
        if self
            .sessions
            .get(session)
            .is_some_and(|followed| followed.is_closed)
            && !self.calls.has_prompts(session)
            && self.sessions.remove(session)
        {
            self.effects.push_back(Effect::CloseStream(session.into()));
        }
    }

    /// Follows a session, and opens its stream after the SSE id `followed.last`.
    fn follow(&mut self, session: &str, followed: Followed) {
        let last = followed.last.clone();
        self.sessions.insert(session, followed);
        self.effects.push_back(Effect::OpenStream {
            session: Some(session.into()),
            last,
        });
    }

    /// The stream of a session is open.
    pub(super) fn opened(&mut self, session: &str) {
        if let Some(followed) = self.sessions.get_mut(session) {
            followed.is_open = true;
        }
    }

    /// The params of `initialize` for the gateway, as a request.
    pub(super) fn initialize_request(&self) -> Bytes {
        super::message::call(
            Some(INITIALIZE_ID),
            crate::acp::method::INITIALIZE,
            &self.initialize,
        )
    }

    /// Whether messages wait that could be sent now.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(self.phase, Phase::Connected) && !self.queue.is_empty()
    }

    fn open_call(
        &mut self,
        kind: CallKind,
        editor_id: Option<Box<RawValue>>,
        session: Option<Box<str>>,
        (method, params): (&str, &RawValue),
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
            body: super::message::call(Some(id), method, params),
        })
    }
}
