//! The messages of the gateway.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{Bridge, Effect, Outcome, Phase};
use crate::attach::message::{gateway_meta, with_sign_in, with_value};
use crate::attach::tables::{
    Call, CallKind, CallNumber, Followed, Setup, first_position, number_of, remember_setup, seq_of,
};
use wire::acp::{self, RawObject, error_code, method, to_raw};
use wire::jsonrpc::{self, Message, RpcError};

/// The nesting of the gateway's messages, which the gateway itself limits.
const MAX_DEPTH: usize = 4096;
/// The problem codes after which the bridge repeats the same request: the gateway is draining, or it still handles an
/// earlier copy of the request.
const TRANSIENT: [&str; 2] = ["draining", "idempotency_in_flight"];

impl Bridge {
    pub(in crate::attach) fn connected(&mut self, outcome: Outcome) {
        if let Ok(result) = &outcome {
            self.epoch = gateway_meta(result, "epoch");
        }
        match (std::mem::replace(&mut self.phase, Phase::New), outcome) {
            (Phase::Initializing(id), Ok(result)) => {
                self.phase = Phase::Connected;
                let result = with_sign_in(result, &self.settings.sign_in);
                self.respond(&id, &Ok(result));
                self.open_stream(None, None);
            }
            (Phase::Initializing(id), Err(error)) if is_transient(&error) => {
                self.phase = Phase::Initializing(id);
                self.effects.push_back(Effect::Connect);
            }
            (Phase::Initializing(id), Err(error)) => {
                tracing::warn!(error = %error.message, "the gateway rejected initialize");
                self.respond(&id, &Err(error));
                let failure = RpcError::new(error_code::INVALID_REQUEST, "initialize failed");
                self.fail_calls(&failure);
            }
            (Phase::Reconnecting, Ok(_)) => {
                self.phase = Phase::Connected;
                self.open_stream(None, None);
                self.restore();
            }
            (Phase::Reconnecting, Err(error)) => {
                tracing::warn!(error = %error.message, "the gateway rejected initialize; retrying");
                self.phase = Phase::Reconnecting;
                self.effects.push_back(Effect::Connect);
            }
            (phase @ (Phase::New | Phase::Connected), _) => self.phase = phase,
        }
    }

    /// A message of a stream: that of a session, or of the connection.
    pub(in crate::attach) fn received(
        &mut self,
        session: Option<&str>,
        id: Option<String>,
        data: &Bytes,
    ) {
        match jsonrpc::parse(data, MAX_DEPTH) {
            Ok(Message::Response { id, outcome }) => {
                if let Some(number) = number_of(&id) {
                    self.answered(number, outcome);
                }
            }
            Ok(Message::Request { id, method, .. }) => {
                if self.requests.insert(&id, session) {
                    match self.map_agent_path(&method, data) {
                        Ok(mapped) => self.forward(&mapped),
                        Err(error) => self.answer(&id, &Err(error)),
                    }
                }
            }
            Ok(Message::Notification { method, params }) if *method == *method::CANCEL_REQUEST => {
                let cancel = acp::parse::<acp::CancelRequest<'_>>(&params).ok();
                if cancel.is_some_and(|cancel| self.requests.end(cancel.request_id).is_some()) {
                    self.forward(data);
                }
            }
            Ok(Message::Notification { .. }) => self.forward(data),
            Err(error) => tracing::warn!(%error, "skipped a message of the gateway"),
        }
        let followed = session.and_then(|session| self.sessions.get_mut(session));
        if let (Some(followed), Some(id)) = (followed, id) {
            followed.last = Some(id);
        }
    }

    fn forward(&mut self, data: &Bytes) {
        self.write([&**data, b"\n"].concat().into());
    }

    /// The response to a call. Further responses to the same call have no effect.
    pub(super) fn answered(&mut self, number: CallNumber, outcome: Outcome) {
        let Some(call) = self.calls.get(number) else {
            return;
        };
        if outcome.as_ref().is_err_and(is_transient) {
            self.queue.push_call_front(number);
            self.effects.push_back(Effect::Pause);
            return;
        }
        let kind = call.kind.clone();
        let session = call.session.clone();
        match kind {
            CallKind::Create => self.created(number, &outcome),
            CallKind::LoadAsNew(session) => self.loaded_as_new(number, &session, outcome),
            CallKind::Restore => self.restored(number, session.as_deref(), &outcome),
            CallKind::Load | CallKind::Resume => {
                let call = self.end_call(number, &outcome);
                if let Some(session) = session {
                    if outcome.is_ok() {
                        self.remember_setup(&session, call.as_ref());
                    }
                    let attach = call.as_ref().and_then(attach_params);
                    self.restored_by_editor(number, &session, outcome.map(|_| attach));
                }
            }
            CallKind::Detach => {
                self.end_call(number, &outcome);
                if let (Some(session), Ok(_)) = (session, outcome) {
                    let detail =
                        "the editor has detached from the session before the end of this request";
                    self.forget(&session, &RpcError::new(error_code::INTERNAL, detail));
                }
            }
            CallKind::Close => {
                self.end_call(number, &outcome);
                if let (Some(session), Ok(_)) = (session, outcome) {
                    if let Some(followed) = self.sessions.get_mut(&session) {
                        followed.is_closed = true;
                    }
                    self.forget_if_done(&session);
                }
            }
            CallKind::Prompt => {
                self.end_call(number, &outcome);
                if let Some(session) = session {
                    self.forget_if_done(&session);
                }
            }
            CallKind::Other | CallKind::Once => {
                self.end_call(number, &outcome);
            }
        }
    }

    fn created(&mut self, number: CallNumber, outcome: &Outcome) {
        let call = self.end_call(number, outcome);
        let Ok(result) = outcome else { return };
        let session = acp::parse::<acp::NewSessionResult<'_>>(result);
        if let Ok(session) = session {
            let followed = Followed {
                last: self.epoch.as_deref().map(first_position),
                ..Followed::default()
            };
            self.follow(&session.session_id, followed);
            self.remember_setup(&session.session_id, call.as_ref());
        }
    }

    /// The editor knows the session only after this response. Therefore, the stream with the history opens later.
    fn loaded_as_new(&mut self, number: CallNumber, session: &str, outcome: Outcome) {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => {
                self.end_call(number, &Err(error));
                return;
            }
        };
        let history_end = gateway_meta(&result, "lastEventId");
        let history_end = history_end.as_deref().and_then(seq_of);
        let object = RawObject::parse(&result).unwrap_or_else(RawObject::empty);
        let result = object.with_members(&[("sessionId", to_raw(session))]);
        let call = self.end_call(number, &Ok(result));
        if !self.sessions.contains_key(session) {
            let followed = Followed {
                history_end,
                ..Followed::default()
            };
            self.follow(session, followed);
        }
        self.remember_setup(session, call.as_ref());
    }

    fn remember_setup(&mut self, session: &str, call: Option<&Call>) {
        if let Some((_, params)) = call.and_then(request_of) {
            remember_setup(&mut self.sessions, session, Setup::of(&params));
        }
    }

    /// `outcome`: the params to attach again, if the editor has attached.
    fn restored_by_editor(
        &mut self,
        number: CallNumber,
        session: &str,
        outcome: Result<Option<Box<RawValue>>, RpcError>,
    ) {
        let Some(followed) = self.sessions.get_mut(session) else {
            return;
        };
        if followed.restoring != Some(number) {
            return;
        }
        followed.restoring = None;
        let is_gone = followed.is_new && outcome.is_err();
        if let Ok(Some(attach)) = outcome {
            followed.attach = Some(attach);
        }
        followed.is_new = false;
        if is_gone {
            self.remove_session(session);
        }
    }
}

/// The params with which a `session/attach` continues after a reconnect: with the same role, without a history.
fn attach_params(call: &Call) -> Option<Box<RawValue>> {
    let (method, params) = request_of(call)?;
    if *method != *method::SESSION_ATTACH {
        return None;
    }
    let object = RawObject::parse(&params)?;
    Some(object.with_members(&[("historyPolicy", to_raw("none"))]))
}

fn request_of(call: &Call) -> Option<(Box<str>, Box<RawValue>)> {
    match jsonrpc::parse(&call.body, MAX_DEPTH) {
        Ok(Message::Request { method, params, .. }) => Some((method, params)),
        _ => None,
    }
}

/// Whether the same request can succeed later without a change.
pub(super) fn is_transient(error: &RpcError) -> bool {
    let data = error.data.as_deref().and_then(RawObject::parse);
    let code = data.and_then(|data| data.text("code"));
    code.is_some_and(|code| TRANSIENT.contains(&&*code))
}

impl Bridge {
    /// Returns a request of the agent with its path mapped to the path at the editor. A request without a path passes
    /// unchanged. Fails if there are maps and none has the path.
    pub(super) fn map_agent_path<'a>(
        &self,
        method: &str,
        data: &'a Bytes,
    ) -> Result<Cow<'a, Bytes>, RpcError> {
        let unchanged = Ok(Cow::Borrowed(data));
        let member = match method {
            _ if self.settings.paths.is_empty() => return unchanged,
            method::FS_READ_TEXT_FILE | method::FS_WRITE_TEXT_FILE => "path",
            method::TERMINAL_CREATE => "cwd",
            _ => return unchanged,
        };
        let invalid = |detail: String| RpcError::new(error_code::INVALID_PARAMS, detail);
        let request = serde_json::from_slice::<&RawValue>(data).ok();
        let request = request.and_then(RawObject::parse);
        let Some((request, params)) =
            request.and_then(|request| Some((request.clone(), request.object("params")?)))
        else {
            return Err(invalid(
                "the params must be an object without repeated members".to_owned(),
            ));
        };
        let Some(path) = params.text(member) else {
            return unchanged;
        };
        let local = self.settings.paths.to_local(&path);
        let local = local.map_err(|error| invalid(error.to_string()))?;
        let params = with_value(&params, member, &to_raw(&local));
        let request = with_value(&request, "params", &params);
        let request = Box::<str>::from(request).into_string();
        Ok(Cow::Owned(request.into()))
    }
}
