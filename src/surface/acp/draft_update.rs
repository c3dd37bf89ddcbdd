//! The updates of the draft "Multi-Client Session Attach" (agent-client-protocol, pull request 533, revision 2026-03-27).
//! Unstable: a later revision can change them.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::failure::Failure;
use crate::acp::{method, selected_option};
use crate::event::Payload;

/// An update with the member `type` instead of `sessionUpdate`, as in the draft.
#[derive(Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(super) enum DraftUpdate<'a> {
    /// A permission request of the agent has ended.
    PermissionResolved {
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        chosen_option_id: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        resolved_by: Option<Peer<'a>>,
    },
    /// The turn of another client has ended.
    TurnComplete {
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<&'a str>,
        /// The error of a failed turn. The draft has no member for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
    /// The turn of another client begins.
    PromptReceived {
        prompt: &'a RawValue,
        sent_by: Peer<'a>,
    },
}

/// Another client, as the log knows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Peer<'a> {
    /// The name of an ACP client. Absent for clients of REST.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<&'a str>,
    /// The principal.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

impl<'a> DraftUpdate<'a> {
    /// `None` for a request that asks for no permission.
    pub(super) fn permission_resolved(payload: &'a Payload<'_>) -> Option<Self> {
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
    pub(super) fn turn_complete(payload: &'a Payload<'_>) -> Option<Self> {
        let stop_reason = payload.stop_reason.as_deref();
        let failed = payload.problem.is_some();
        let error = failed.then(|| Failure::from_raw_problem(payload.problem));
        (failed || stop_reason.is_some()).then_some(Self::TurnComplete { stop_reason, error })
    }

    pub(super) fn prompt_received(payload: &'a Payload<'_>, prompt: &'a RawValue) -> Self {
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
