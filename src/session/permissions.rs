//! `session/request_permission` (ACP, Requesting Permission): a person chooses, or the policy does.

use std::time::Duration;

use serde_json::value::RawValue;

use super::actor::Actor;
use super::requests::{OfferedRequest, Wait};
use crate::acp::{self, error_code};
use crate::agent::OnTimeout;
use crate::api::{self, Resolution};
use crate::jsonrpc::IncomingId;

impl Actor {
    pub(super) fn handle_permission(&mut self, incoming: IncomingId, params: &RawValue, own: Box<RawValue>) {
        let Ok(peek) = acp::parse_permission(params) else {
            return self.refuse(
                incoming,
                error_code::INVALID_PARAMS,
                "options with an optionId each were expected, and a toolCall",
            );
        };
        // It tells of its tool call as an update does.
        if let Some(call) = peek.tool_call {
            self.track_cancellable(acp::update::TOOL_CALL_UPDATE, call);
        }
        let allowed = self.allows(peek.tool_kind.as_deref()).then(|| peek.allow_once()).flatten();
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

    /// The turn was cancelled and has not ended: no question is put to anybody.
    pub(super) fn is_cancelling(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.cancelled_at.is_some())
    }

    /// How long a person may take: what a client narrowed of what the agent's entry has.
    pub(super) fn answer_wait(&self) -> Wait {
        let entry = &self.spec.permissions;
        let narrowed = self.record.policy.permissions.as_ref();
        let unanswered = match narrowed.and_then(|policy| policy.unanswered) {
            Some(api::Unanswered::Reject) => OnTimeout::Reject,
            Some(api::Unanswered::Wait) | None => entry.on_timeout,
        };
        let after = narrowed.and_then(|policy| policy.after_seconds).map(Duration::from_secs);
        match unanswered {
            OnTimeout::Wait => Wait::Turn,
            OnTimeout::Reject => Wait::AtMost(after.map_or(entry.timeout, |after| after.min(entry.timeout))),
        }
    }

    /// Whether the policy answers yes for this kind of tool, likewise.
    fn allows(&self, kind: Option<&str>) -> bool {
        let narrowed = self.record.policy.permissions.as_ref();
        let listed = |list: &[String]| kind.is_some_and(|kind| list.iter().any(|allowed| allowed == kind));
        let narrow = narrowed.and_then(|policy| policy.allow.as_deref());
        listed(&self.spec.permissions.allow) && narrow.is_none_or(listed)
    }
}
