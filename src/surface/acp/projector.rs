//! Converts events of a session's log to messages of ACP.
//!
//! The conversion depends only on the events, the client and the end of the history. Therefore, a client that
//! reconnects gets the same messages again.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::client::{Client, META, Role};
use super::message::{self, Failure, raw};
use base::types::{PromptId, RequestId, SessionId};
use events::api::CancelCause;
use events::event::{EventRef, Payload};
use wire::acp::{RawObject, RequestKind, method, selected_option};

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
        history: u64,
        responses_after: u64,
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
        let payload = || event.payload();
        let one = |message: Option<Bytes>| Vec::from_iter(message);
        match event.kind() {
            "session.update" => one(payload().and_then(|payload| self.update(&payload))),
            "prompt.started" => payload().map_or_else(Vec::new, |payload| {
                self.user_messages(&payload, queued, is_history)
            }),
            "prompt.completed" | "prompt.failed" => {
                one(payload().and_then(|payload| self.turn_end(event.seq(), &payload)))
            }
            _ if is_history => Vec::new(),
            "request.created" => one(payload().and_then(|payload| self.request(&payload))),
            "request.resolved" => {
                payload().map_or_else(Vec::new, |payload| self.resolved(&payload, was_answered))
            }
            "session.changed" => self.changes(event),
            kind @ ("elicitation.completed" | "extension") => {
                one(payload().and_then(|payload| Self::notification(kind, &payload)))
            }
            _ => Vec::new(),
        }
    }

    /// An update of the agent. Updates of child sessions have the child's id.
    fn update(&self, payload: &Payload<'_>) -> Option<Bytes> {
        if payload.echo {
            return None;
        }
        let session = match &payload.subagent {
            Some(_) if !self.client.capabilities.subagents => return None,
            Some(child) => child.to_string(),
            None => self.session.to_string(),
        };
        let params = raw(&UpdateParams {
            session_id: &session,
            update: payload.update?,
            meta: payload.meta,
        });
        Some(with_more(method::SESSION_UPDATE, params, payload.more))
    }

    /// An update of the gateway.
    fn own_update(&self, update: impl Serialize, meta: Option<&RawValue>) -> Bytes {
        let session = self.session.to_string();
        let params = UpdateParams {
            session_id: &session,
            update,
            meta,
        };
        message::notification(method::SESSION_UPDATE, &params)
    }

    /// The content blocks of a prompt. A client does not get back the prompts that it has sent itself.
    fn user_messages(
        &self,
        payload: &Payload<'_>,
        queued: Option<&RawValue>,
        is_history: bool,
    ) -> Vec<Bytes> {
        let Some(prompt) = payload.prompt.or(queued) else {
            return Vec::new();
        };
        if !is_history && self.is_own(payload) {
            return Vec::new();
        }
        if self.client.uses_attach && !is_history {
            let update = DraftUpdate::prompt_received(payload, prompt);
            return vec![self.own_update(&update, None)];
        }
        let blocks: Vec<&RawValue> = serde_json::from_str(prompt.get()).unwrap_or_default();
        let author = payload.by.as_deref().unwrap_or_default();
        let meta = raw(&serde_json::json!({ META: { "by": author } }));
        let chunks = blocks.into_iter().map(|content| {
            let chunk = OwnUpdate::UserMessageChunk { content };
            self.own_update(chunk, Some(&meta))
        });
        chunks.collect()
    }

    /// Whether the client itself has sent the prompt.
    fn is_own(&self, payload: &Payload<'_>) -> bool {
        let request = payload.acp_request.as_ref();
        request.is_some_and(|request| request.client == self.client.name)
    }

    /// The end of a turn: the response to the client's own prompt. For the turns of others, the draft has an update.
    fn turn_end(&self, seq: u64, payload: &Payload<'_>) -> Option<Bytes> {
        if self.is_own(payload) {
            let is_due = seq > self.responses_after;
            return is_due.then(|| Self::response(payload)).flatten();
        }
        if !self.client.uses_attach || seq <= self.history {
            return None;
        }
        let update = DraftUpdate::turn_complete(payload)?;
        let meta = payload.cancel_cause.map(meta_of);
        Some(self.own_update(&update, meta.as_deref()))
    }

    fn response(payload: &Payload<'_>) -> Option<Bytes> {
        let id = &payload.acp_request.as_ref()?.id;
        Some(match (payload.result, payload.cancel_cause) {
            (Some(result), Some(cause)) => message::response(id, Ok(&*with_cause(result, cause))),
            (Some(result), None) => message::response(id, Ok(result)),
            (None, _) => message::response(id, Err(&Failure::from_raw_problem(payload.problem))),
        })
    }

    fn request(&self, payload: &Payload<'_>) -> Option<Bytes> {
        let only = payload.acp_client.as_deref();
        let method = payload.method.as_deref()?;
        self.agent_request(payload.request_id?, only, method, payload.params?)
    }

    /// A request of the agent, if the client can answer it. `only`: the client that alone can answer.
    pub(super) fn agent_request(
        &self,
        id: RequestId,
        only: Option<&str>,
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

    fn resolved(
        &self,
        payload: &Payload<'_>,
        was_answered: impl Fn(RequestId) -> bool,
    ) -> Vec<Bytes> {
        if payload.request_id.is_some_and(was_answered) {
            return Vec::new();
        }
        let mut messages = Vec::new();
        if self.client.uses_attach {
            let draft = DraftUpdate::permission_resolved(payload);
            messages.extend(draft.map(|update| self.own_update(&update, None)));
        }
        messages.extend(self.cancellation(payload));
        messages
    }

    /// `$/cancel_request` for a request that has ended without the client's answer.
    fn cancellation(&self, payload: &Payload<'_>) -> Option<Bytes> {
        let id = request_id(self.session, payload.request_id?);
        let method = payload.method.as_deref()?;
        let answers = self.answers(method, payload.acp_client.as_deref());
        answers.then(|| {
            let params = serde_json::json!({ "requestId": id });
            message::notification(method::CANCEL_REQUEST, &params)
        })
    }

    fn changes(&self, event: &EventRef<'_>) -> Vec<Bytes> {
        let Some(changed) = event.changed_members() else {
            return Vec::new();
        };
        let mode = changed.current_mode_id;
        let options = changed.config_options;
        let title = changed.title;
        let updates = [
            mode.map(|current_mode_id| OwnUpdate::CurrentModeUpdate { current_mode_id }),
            options.map(|config_options| OwnUpdate::ConfigOptionUpdate { config_options }),
            title.map(|title| OwnUpdate::SessionInfoUpdate { title }),
        ];
        let updates = updates.into_iter().flatten();
        let messages = updates.map(|update| self.own_update(update, None));
        messages.collect()
    }

    fn notification(kind: &str, payload: &Payload<'_>) -> Option<Bytes> {
        if kind == "extension" {
            let params = payload.params.unwrap_or(RawValue::NULL);
            return Some(message::notification(payload.method.as_deref()?, params));
        }
        let id = payload.elicitation_id.as_deref()?;
        let params = raw(&serde_json::json!({ "elicitationId": id }));
        let method = method::ELICITATION_COMPLETE;
        Some(with_more(method, params, payload.more))
    }
}

/// An update of the draft "Multi-Client Session Attach" (agent-client-protocol, pull request 533, revision 2026-03-27),
/// with the member `type` instead of `sessionUpdate`. Unstable: a later revision can change it.
#[derive(Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
enum DraftUpdate<'a> {
    PermissionResolved {
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        chosen_option_id: Option<std::borrow::Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        resolved_by: Option<Peer<'a>>,
    },
    TurnComplete {
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
    PromptReceived {
        prompt: &'a RawValue,
        sent_by: Peer<'a>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Peer<'a> {
    /// The name of an ACP client. Absent for clients of REST.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

impl<'a> DraftUpdate<'a> {
    /// `None` for a request that asks for no permission.
    fn permission_resolved(payload: &'a Payload<'_>) -> Option<Self> {
        if payload.method.as_deref() != Some(method::SESSION_REQUEST_PERMISSION) {
            return None;
        }
        let by = payload.by.as_deref();
        Some(Self::PermissionResolved {
            tool_call_id: payload.tool_call_id.as_deref(),
            chosen_option_id: payload.result.and_then(selected_option),
            resolved_by: by.map(|name| Peer {
                client_id: None,
                name: Some(name),
            }),
        })
    }

    /// `None` for an event without the end of a turn.
    fn turn_complete(payload: &'a Payload<'_>) -> Option<Self> {
        let stop_reason = payload.stop_reason.as_deref();
        let failed = payload.problem.is_some();
        let error = failed.then(|| Failure::from_raw_problem(payload.problem));
        (failed || stop_reason.is_some()).then_some(Self::TurnComplete { stop_reason, error })
    }

    fn prompt_received(payload: &'a Payload<'_>, prompt: &'a RawValue) -> Self {
        let client_id = payload.acp_request.as_ref().map(|request| &*request.client);
        Self::PromptReceived {
            prompt,
            sent_by: Peer {
                client_id,
                name: payload.by.as_deref(),
            },
        }
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

fn meta_of(cause: CancelCause) -> Box<RawValue> {
    raw(&serde_json::json!({ META: { "cancelCause": cause } }))
}

fn with_more(method: &str, params: Box<RawValue>, more: Option<&RawValue>) -> Bytes {
    let params = match more {
        Some(more) => join(&params, more),
        None => params,
    };
    message::notification(method, &params)
}

/// The members of two objects that are not empty.
fn join(first: &RawValue, second: &RawValue) -> Box<RawValue> {
    let first = first.get().strip_suffix('}').unwrap_or_default();
    let joined = format!("{first},{}", &second.get()[1..]);
    RawValue::from_string(joined).expect("the members of two objects are an object")
}

#[cfg(test)]
mod tests;
