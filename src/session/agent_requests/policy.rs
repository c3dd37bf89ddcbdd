//! The policy for permission requests and questions: the agent's setting, as narrowed by the client's policy.

use std::time::Duration;

use serde_json::value::RawValue;

use super::open::Wait;
use crate::acp::{self, RequestKind};
use crate::agent::AgentSpec;
use crate::api::PendingRequest;
use crate::types::{DeniedModes, OnTimeout, SessionPolicy};

/// How long a question waits for an answer.
pub(in crate::session) fn answer_wait(spec: &AgentSpec, policy: &SessionPolicy) -> Wait {
    let entry = &spec.settings.permissions;
    let narrowed = policy.permissions.as_ref();
    let rejects = narrowed.and_then(|policy| policy.on_timeout) == Some(OnTimeout::Reject);
    if !rejects && entry.on_timeout == OnTimeout::Wait {
        return Wait::Turn;
    }
    let timeout = narrowed
        .and_then(|policy| policy.timeout_seconds)
        .map(Duration::from_secs);
    Wait::AtMost(timeout.map_or(entry.timeout, |timeout| timeout.min(entry.timeout)))
}

/// Whether the policy allows this kind of tool without a question.
pub(in crate::session) fn allows(
    spec: &AgentSpec,
    policy: &SessionPolicy,
    kind: Option<&str>,
) -> bool {
    let narrowed = policy.permissions.as_ref();
    let listed =
        |list: &[String]| kind.is_some_and(|kind| list.iter().any(|allowed| allowed == kind));
    let narrow = narrowed.and_then(|policy| policy.allow.as_deref());
    listed(&spec.settings.permissions.allow) && narrow.is_none_or(listed)
}

/// Returns the entry of `modes.deny` whose mode this answer selects. Files and the output of commands select no mode.
pub(in crate::session) fn denying_entry<'d>(
    denied: &'d DeniedModes,
    request: &PendingRequest,
    answer: &RawValue,
) -> Option<&'d str> {
    match RequestKind::from_method(&request.method) {
        RequestKind::Permission => acp::parse_permission(&request.params)
            .ok()?
            .find_denied(denied, answer),
        RequestKind::Elicitation | RequestKind::Extension => acp::find_in_value(denied, answer),
        _ => None,
    }
}
