//! `session/request_permission` (ACP, Requesting Permission): a user or the policy selects an option.

use std::time::Duration;

use serde_json::value::RawValue;

use super::actor::Actor;
use super::record::StoredOnTimeout;
use super::requests::{OfferedRequest, Wait};
use crate::acp::{self, error_code};
use crate::api::Resolution;
use crate::jsonrpc::IncomingId;
use crate::types::OnTimeout;

impl Actor {
    pub(super) fn handle_permission(&mut self, incoming: IncomingId, params: &RawValue, own: Box<RawValue>) {
        let Ok(view) = acp::parse_permission(params) else {
            return self.refuse(
                incoming,
                error_code::INVALID_PARAMS,
                "expected a toolCall, and options that each have an optionId",
            );
        };
        // The request describes its tool call like an update does.
        if let Some(call) = view.tool_call {
            self.track_cancellable(acp::update::TOOL_CALL_UPDATE, call);
        }
        let allowed = self.allows(view.tool_kind.as_deref()).then(|| view.allow_once()).flatten();
        let prompt = self.running_turn();
        let offer = OfferedRequest {
            method: acp::method::SESSION_REQUEST_PERMISSION,
            incoming,
            params: own,
            prompt,
            subagent: self.subagent_of(params),
            wait: self.answer_wait(),
        };
        let Some(id) = self.offer_request(offer) else { return };
        if self.is_cancelling() {
            self.end_request(id, Resolution::Cancelled);
        } else if let Some(result) = allowed {
            self.resolve(id, Resolution::Policy, None, Ok(result));
        }
    }

    /// Whether the turn was cancelled and has not ended. New questions are then answered at once.
    pub(super) fn is_cancelling(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.cancelled_at.is_some())
    }

    /// How long a question waits for an answer: the agent's setting, as narrowed by the client's policy.
    pub(super) fn answer_wait(&self) -> Wait {
        let entry = &self.spec.settings.permissions;
        let narrowed = self.record.policy.permissions.as_ref();
        let on_timeout = match narrowed.and_then(|policy| policy.on_timeout) {
            Some(StoredOnTimeout::Reject) => OnTimeout::Reject,
            Some(StoredOnTimeout::Wait) | None => entry.on_timeout,
        };
        let timeout = narrowed.and_then(|policy| policy.timeout_seconds).map(Duration::from_secs);
        match on_timeout {
            OnTimeout::Wait => Wait::Turn,
            OnTimeout::Reject => {
                Wait::AtMost(timeout.map_or(entry.timeout, |timeout| timeout.min(entry.timeout)))
            }
        }
    }

    /// Whether the policy allows this kind of tool: the agent's setting, as narrowed by the client's policy.
    fn allows(&self, kind: Option<&str>) -> bool {
        let narrowed = self.record.policy.permissions.as_ref();
        let listed = |list: &[String]| kind.is_some_and(|kind| list.iter().any(|allowed| allowed == kind));
        let narrow = narrowed.and_then(|policy| policy.allow.as_deref());
        listed(&self.spec.settings.permissions.allow) && narrow.is_none_or(listed)
    }
}
