//! The first messages of a new connection: each session continues at the position of the editor.

use serde_json::json;
use serde_json::value::RawValue;

use super::{Bridge, Effect};
use crate::acp::{method, stop_reason};
use crate::attach::calls::{CallKind, CallNumber};
use crate::attach::message::{raw, rpc_error};
use crate::attach::sessions::first_position;
use crate::jsonrpc::RpcError;

impl Bridge {
    /// Restores all sessions, and sends the calls again that have no response.
    pub(super) fn restore(&mut self) {
        // The responses of the former connection are lost. The numbers are the order of the calls.
        let waiting = self.queue.waiting();
        let sent = self
            .calls
            .iter()
            .filter(|(number, _)| !waiting.contains(number));
        let sent: Vec<_> = sent
            .map(|(number, call)| (number, call.kind == CallKind::Restore))
            .collect();
        for (number, is_restore) in sent.into_iter().rev() {
            if is_restore {
                self.calls.end(number);
            } else {
                self.queue.push_call_front(number);
            }
        }
        for session in self.sessions.ids() {
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
        let own = followed.restoring.filter(|number| {
            self.calls
                .get(*number)
                .is_some_and(|call| call.kind != CallKind::Restore)
        });
        if let Some(number) = own {
            // The editor's own request restores the session. Its history begins again, if messages of the former stream
            // could be older than the request.
            let is_load = self
                .calls
                .get(number)
                .is_some_and(|call| call.kind == CallKind::Load);
            let last = followed
                .last
                .clone()
                .filter(|_| followed.is_new || !is_load);
            self.effects.push_back(Effect::OpenStream {
                session: Some(session.into()),
                last,
            });
            return;
        }
        // A load shows no dialogs for requests that ended long ago, but it omits responses to prompts.
        let is_load = followed.is_in_history() && !has_prompts;
        if followed.last.is_none() && has_prompts {
            followed.last = self.epoch.as_deref().map(first_position);
        }
        let former = followed.restoring.take();
        let (method, params) = if let Some(attach) = &followed.attach {
            (method::SESSION_ATTACH, attach.clone())
        } else {
            let method = if is_load {
                method::SESSION_LOAD
            } else {
                method::SESSION_RESUME
            };
            (method, followed.setup.params(session))
        };
        let number = self.open_call(
            CallKind::Restore,
            None,
            Some(session.into()),
            (method, &params),
        );
        if let Some(followed) = self.sessions.get_mut(session) {
            followed.restoring = Some(number);
        }
        if let Some(former) = former {
            self.calls.end(former);
        }
        self.queue.push_call_front(number);
    }

    /// A closed session must not be restored, because this would open it again. A close cancels its turns.
    fn end_closed(&mut self, session: &str) {
        let cancelled = raw(&json!({ "stopReason": stop_reason::CANCELLED }));
        for number in self.calls.of_session(session) {
            if self
                .calls
                .get(number)
                .is_some_and(|call| call.kind == CallKind::Prompt)
            {
                self.end_call(number, &Ok(cancelled.clone()));
            }
        }
        self.sessions.remove(session);
    }

    /// The response to a restore of the bridge itself.
    pub(super) fn restored(
        &mut self,
        number: CallNumber,
        session: Option<&str>,
        outcome: &Result<Box<RawValue>, RpcError>,
    ) {
        self.calls.end(number);
        let Some(session) = session else { return };
        let Some(followed) = self
            .sessions
            .get_mut(session)
            .filter(|own| own.restoring == Some(number))
        else {
            return;
        };
        followed.restoring = None;
        match outcome {
            Ok(_) => {
                let last = followed.last.clone();
                self.effects.push_back(Effect::OpenStream {
                    session: Some(session.into()),
                    last,
                });
            }
            Err(error) => {
                tracing::warn!(session, error = %error.message, "could not restore a session after a reconnect");
                let detail = format!("the session could not be restored: {}", error.message);
                self.forget(session, &rpc_error(error.code, detail));
            }
        }
    }
}
