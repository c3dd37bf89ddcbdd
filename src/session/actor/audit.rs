//! The events of the audit log that a session causes.

use super::Actor;
use crate::acp::{self, Outcome, RequestKind};
use crate::api::{PendingRequest, Resolution};
use crate::event::{ActorKind, AuditActor, PermissionDecided, RefuseReason};
use crate::types::Author;

/// The ACP kinds of options and of tools. An agent can send any text, which must not reach the audit log.
const OPTION_KINDS: [&str; 4] = ["allow_once", "allow_always", "reject_once", "reject_always"];
const TOOL_KINDS: [&str; 10] = [
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
];

impl Actor {
    /// Records the end of a permission request. Other requests are not decisions about access.
    pub(in crate::session) fn audit_decision(
        &self,
        request: &PendingRequest,
        resolution: Resolution,
        by: Option<&Author>,
        outcome: &Outcome,
    ) {
        if RequestKind::from_method(&request.method) != RequestKind::Permission {
            return;
        }
        let record = self.journal.record();
        let actor = match (by, resolution) {
            (Some(author), _) => author.into(),
            (None, Resolution::Policy) => ActorKind::Policy.into(),
            (None, Resolution::Expired) => ActorKind::Timeout.into(),
            (None, Resolution::Withdrawn) => AuditActor::agent(&record.agent),
            (None, Resolution::Answered | Resolution::Cancelled | Resolution::Disconnected) => {
                ActorKind::Gateway.into()
            }
        };
        let view = acp::parse_permission(&request.params).ok();
        let selected = outcome.as_deref().ok().and_then(acp::selected_option);
        let option = view
            .as_ref()
            .zip(selected.as_deref())
            .and_then(|(view, id)| view.option(id));
        let option_kind = option.map(|option| known(&OPTION_KINDS, &option.kind));
        let tool_kind = view.as_ref().and_then(|view| view.tool_kind.as_deref());
        let decided = PermissionDecided {
            session_id: record.session_id,
            prompt_id: request.prompt_id,
            request_id: request.request_id,
            agent: record.agent.clone(),
            resolution,
            option_kind,
            tool_kind: tool_kind.map(|kind| known(&TOOL_KINDS, kind)),
        };
        self.context.audit.append(actor, decided);
    }

    /// Counts a request of the agent that the settings of the agent or the session refuse.
    pub(super) fn audit_refused(&self, method: &'static str) {
        let record = self.journal.record();
        let refused = (method, RefuseReason::Off);
        let now = self.context.ids.now();
        self.context
            .audit
            .counted()
            .refused(&record.agent, record.session_id, refused, now);
    }
}

/// The kind if it is known, otherwise `other`.
fn known(kinds: &[&'static str], kind: &str) -> String {
    kinds
        .iter()
        .find(|known| **known == kind)
        .copied()
        .unwrap_or("other")
        .to_owned()
}
