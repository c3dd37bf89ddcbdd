//! Converts events of a session's log to messages of ACP.
//!
//! The conversion depends only on the events, the client and the end of the history. Therefore, a client that
//! reconnects gets the same messages again.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::client::{Client, META};
use super::draft_update::DraftUpdate;
use super::failure::Failure;
use super::message::{self, raw};
use super::participant::Role;
use crate::acp::{RawObject, RequestKind, method};
use crate::event::{EventRef, Payload};
use crate::types::{CancelCause, PromptId, RequestId, SessionId};

/// Converts the events of one session for one client.
#[derive(Debug)]
pub(super) struct Projector<'a> {
    session: SessionId,
    client: &'a Client,
    /// The last event of the history that `session/load` replays. Of the history, the client gets messages and updates
    /// only.
    history: u64,
    /// The client receives the response to its prompt if the event of the response is after this one.
    responses_after: u64,
    role: Role,
}

/// The params of `session/update`. Members that the agent sent are copied byte for byte.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateParams<'a, U> {
    session_id: &'a str,
    update: U,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct WithMeta<'a> {
    #[serde(rename = "_meta")]
    meta: &'a RawValue,
}

#[derive(Serialize)]
#[serde(
    tag = "sessionUpdate",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
enum OwnUpdate<'a> {
    UserMessageChunk { content: &'a RawValue },
    CurrentModeUpdate { current_mode_id: &'a RawValue },
    ConfigOptionUpdate { config_options: &'a RawValue },
    SessionInfoUpdate { title: &'a RawValue },
}

/// The JSON-RPC id of an agent's request: `<session>:<request>`.
pub(super) fn request_id(session: SessionId, request: RequestId) -> String {
    format!("{session}:{request}")
}

/// The session and the request of a JSON-RPC id of [`request_id`].
pub(super) fn parse_request_id(id: &RawValue) -> Option<(SessionId, RequestId)> {
    let text: &str = serde_json::from_str(id.get()).ok()?;
    let (session, request) = text.split_once(':')?;
    Some((session.parse().ok()?, request.parse().ok()?))
}

impl<'a> Projector<'a> {
    pub(super) fn new(
        session: SessionId,
        client: &'a Client,
        (history, responses_after): (u64, u64),
    ) -> Self {
        Self {
            session,
            client,
            history,
            responses_after,
            role: Role::default(),
        }
    }

    /// The same for a client that has this role now.
    pub(super) fn with_role(&self, role: Role) -> Self {
        Self { role, ..*self }
    }

    /// The turn whose content must be read from its `prompt.queued` event, because this event has none.
    pub(super) fn queued_turn(event: &EventRef<'_>) -> Option<PromptId> {
        (event.kind() == "prompt.started" && event.payload()?.prompt.is_none())
            .then(|| event.head()?.prompt_id())
            .flatten()
    }

    /// The messages of an event, in their order. `queued`: the content of its [`queued_turn`](Self::queued_turn).
    /// `was_answered`: whether the client itself has answered a request.
    pub(super) fn messages(
        &self,
        event: &EventRef<'_>,
        queued: Option<&RawValue>,
        was_answered: impl Fn(RequestId) -> bool,
    ) -> Vec<Bytes> {
        let is_history = event.seq() <= self.history;
        match event.kind() {
            "session.update" => event
                .payload()
                .filter(|payload| !payload.echo)
                .and_then(|payload| self.update(&payload))
                .into_iter()
                .collect(),
            "prompt.started" => event.payload().map_or_else(Vec::new, |payload| {
                self.user_messages(&payload, queued, is_history)
            }),
            "prompt.completed" | "prompt.failed" => event
                .payload()
                .and_then(|payload| self.turn_end(event.seq(), &payload))
                .into_iter()
                .collect(),
            _ if is_history => Vec::new(),
            "request.created" => event
                .payload()
                .and_then(|payload| self.request(&payload))
                .into_iter()
                .collect(),
            "request.resolved" => event
                .payload()
                .map_or_else(Vec::new, |payload| self.resolved(&payload, was_answered)),
            "session.changed" => self.changes(event),
            "elicitation.completed" | "extension" => event
                .payload()
                .and_then(|payload| Self::notification(event.kind(), &payload))
                .into_iter()
                .collect(),
            _ => Vec::new(),
        }
    }

    /// An update of the agent. Updates of child sessions have the child's id.
    fn update(&self, payload: &Payload<'_>) -> Option<Bytes> {
        let update = payload.update?;
        let session = match &payload.subagent {
            Some(_) if !self.client.capabilities.subagents => return None,
            Some(child) => child.to_string(),
            None => self.session.to_string(),
        };
        let params = raw(&UpdateParams {
            session_id: &session,
            update,
            meta: payload.meta,
        });
        Some(match payload.more {
            Some(more) => message::notification(method::SESSION_UPDATE, &join(&params, more)),
            None => message::notification(method::SESSION_UPDATE, &params),
        })
    }

    fn own_update(&self, update: OwnUpdate<'_>, meta: Option<&RawValue>) -> Bytes {
        let session = self.session.to_string();
        message::notification(
            method::SESSION_UPDATE,
            &UpdateParams {
                session_id: &session,
                update,
                meta,
            },
        )
    }

    /// The content blocks of a prompt. A client does not get back the prompts that it has sent itself.
    fn user_messages(
        &self,
        payload: &Payload<'_>,
        queued: Option<&RawValue>,
        is_history: bool,
    ) -> Vec<Bytes> {
        let Some(prompt) = payload
            .prompt
            .or(queued)
            .filter(|_| is_history || !self.is_own(payload))
        else {
            return Vec::new();
        };
        if self.client.uses_attach && !is_history {
            return vec![self.draft_update(&DraftUpdate::prompt_received(payload, prompt), None)];
        }
        let blocks: Vec<&RawValue> = serde_json::from_str(prompt.get()).unwrap_or_default();
        let author = payload.by.as_deref().unwrap_or_default();
        let meta = raw(&serde_json::json!({ META: { "by": author } }));
        blocks
            .into_iter()
            .map(|content| self.own_update(OwnUpdate::UserMessageChunk { content }, Some(&meta)))
            .collect()
    }

    /// Whether the client itself has sent the prompt.
    fn is_own(&self, payload: &Payload<'_>) -> bool {
        payload
            .acp_request
            .as_ref()
            .is_some_and(|request| request.client == self.client.name)
    }

    fn draft_update(&self, update: &DraftUpdate<'_>, meta: Option<&RawValue>) -> Bytes {
        let session = self.session.to_string();
        let params = UpdateParams {
            session_id: &session,
            update,
            meta,
        };
        message::notification(method::SESSION_UPDATE, &params)
    }

    /// The end of a turn: the response to the client's own prompt. For the turns of others, the draft has an update.
    fn turn_end(&self, seq: u64, payload: &Payload<'_>) -> Option<Bytes> {
        if self.is_own(payload) {
            return (seq > self.responses_after).then(|| self.response(payload))?;
        }
        let is_sent = self.client.uses_attach && seq > self.history;
        let meta = payload.cancel_cause.map(meta_of);
        is_sent.then(|| {
            DraftUpdate::turn_complete(payload)
                .map(|update| self.draft_update(&update, meta.as_deref()))
        })?
    }

    /// The response to the client's own `session/prompt`.
    fn response(&self, payload: &Payload<'_>) -> Option<Bytes> {
        let request = payload
            .acp_request
            .as_ref()
            .filter(|request| request.client == self.client.name)?;
        Some(match payload.result {
            Some(result) => match payload.cancel_cause {
                Some(cause) => message::response(&request.id, Ok(&*with_cause(result, cause))),
                None => message::response(&request.id, Ok(result)),
            },
            None => message::response(
                &request.id,
                Err(&Failure::from_raw_problem(payload.problem)),
            ),
        })
    }

    fn request(&self, payload: &Payload<'_>) -> Option<Bytes> {
        let (id, method, params) = (
            payload.request_id?,
            payload.method.as_deref()?,
            payload.params?,
        );
        self.agent_request((id, payload.acp_client.as_deref()), method, params)
    }

    /// A request of the agent, if the client can answer it. `only`: the client that alone can answer.
    pub(super) fn agent_request(
        &self,
        (id, only): (RequestId, Option<&str>),
        method: &str,
        params: &RawValue,
    ) -> Option<Bytes> {
        self.answers(method, only)
            .then(|| message::request(&request_id(self.session, id), method, params))
    }

    /// Whether the client gets requests with this method. `only`: the client that alone can answer.
    fn answers(&self, method: &str, only: Option<&str>) -> bool {
        self.role == Role::Controller
            && only.is_none_or(|name| *name == *self.client.name)
            && self.client.answers(RequestKind::from_method(method))
    }

    /// The end of a request that the client has not answered.
    fn resolved(
        &self,
        payload: &Payload<'_>,
        was_answered: impl Fn(RequestId) -> bool,
    ) -> Vec<Bytes> {
        if payload.request_id.is_some_and(was_answered) {
            return Vec::new();
        }
        let draft = self
            .client
            .uses_attach
            .then(|| DraftUpdate::permission_resolved(payload))
            .flatten();
        let draft = draft.map(|update| self.draft_update(&update, None));
        draft
            .into_iter()
            .chain(self.cancellation(payload))
            .collect()
    }

    /// `$/cancel_request` for a request that has ended without the client's answer.
    fn cancellation(&self, payload: &Payload<'_>) -> Option<Bytes> {
        let (id, method) = (payload.request_id?, payload.method.as_deref()?);
        self.answers(method, payload.acp_client.as_deref())
            .then(|| {
                let params = serde_json::json!({ "requestId": request_id(self.session, id) });
                message::notification(method::CANCEL_REQUEST, &params)
            })
    }

    /// The changes that any client made to the title, the mode and the options.
    fn changes(&self, event: &EventRef<'_>) -> Vec<Bytes> {
        let Some(changed) = event.changed_members() else {
            return Vec::new();
        };
        let mode = changed
            .current_mode_id
            .map(|current_mode_id| OwnUpdate::CurrentModeUpdate { current_mode_id });
        let options = changed
            .config_options
            .map(|config_options| OwnUpdate::ConfigOptionUpdate { config_options });
        let title = changed
            .title
            .map(|title| OwnUpdate::SessionInfoUpdate { title });
        mode.into_iter()
            .chain(options)
            .chain(title)
            .map(|update| self.own_update(update, None))
            .collect()
    }

    fn notification(kind: &str, payload: &Payload<'_>) -> Option<Bytes> {
        if kind == "extension" {
            let params = payload.params.unwrap_or(RawValue::NULL);
            return Some(message::notification(payload.method.as_deref()?, params));
        }
        let params =
            raw(&serde_json::json!({ "elicitationId": payload.elicitation_id.as_deref()? }));
        Some(match payload.more {
            Some(more) => message::notification(method::ELICITATION_COMPLETE, &join(&params, more)),
            None => message::notification(method::ELICITATION_COMPLETE, &params),
        })
    }
}

/// The agent's result with the cause of the cancel in `_meta`. The other members keep their bytes.
fn with_cause(result: &RawValue, cause: CancelCause) -> Box<RawValue> {
    let Some(members) = RawObject::parse(result) else {
        return result.to_owned();
    };
    let own = meta_of(cause);
    let meta = match members
        .object("_meta")
        .and_then(|meta| meta.without(&[META]))
    {
        Some(others) => join(&others, &own),
        None => own,
    };
    let meta = raw(&WithMeta { meta: &meta });
    match members.without(&["_meta"]) {
        Some(others) => join(&others, &meta),
        None => meta,
    }
}

/// The gateway's own `_meta` of a turn that it cancelled.
fn meta_of(cause: CancelCause) -> Box<RawValue> {
    raw(&serde_json::json!({ META: { "cancelCause": cause } }))
}

/// The members of two objects that are not empty.
fn join(first: &RawValue, second: &RawValue) -> Box<RawValue> {
    let (first, second) = (first.get(), second.get());
    RawValue::from_string(format!("{},{}", &first[..first.len() - 1], &second[1..]))
        .expect("the members of two objects are an object")
}

#[cfg(test)]
mod tests;
