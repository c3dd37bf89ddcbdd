//! The tool calls that permissions allowed, until the audit log contains how they ended.

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use base::types::AgentName;
use events::event::{ActorKind, AuditActor, PermissionToolCallEnded, ToolCallOutcome};
use log::audit::Audit;
use wire::acp::{RawObject, update};

/// The number of calls that await an outcome. The outcome of the oldest one is then recorded as unknown.
const MAX_CALLS: usize = 64;
/// The length of an id of the agent in the audit log.
const MAX_ID_BYTES: usize = 128;

#[derive(Debug)]
pub(super) struct AllowedCall {
    /// The child session that runs the call.
    pub(super) subagent: Option<String>,
    /// The event with the outcome of a call that does not end.
    pub(super) unended: PermissionToolCallEnded,
}

#[derive(Debug)]
pub(crate) struct AllowedCalls {
    calls: Vec<AllowedCall>,
    audit: Audit,
}

/// The id of a tool call for the audit log. An agent chooses its text, which may contain a command.
pub(super) fn audited_id(id: &str) -> String {
    if id.len() <= MAX_ID_BYTES && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return id.to_owned();
    }
    let hash = Sha256::digest(id);
    hash.iter().fold("sha256:".to_owned(), |text, byte| {
        format!("{text}{byte:02x}")
    })
}

impl AllowedCalls {
    pub(super) fn new(audit: Audit) -> Self {
        let calls = Vec::new();
        Self { calls, audit }
    }

    pub(super) fn push(&mut self, call: AllowedCall) {
        if self.calls.len() >= MAX_CALLS {
            let oldest = self.calls.remove(0);
            self.audit.append(ActorKind::Gateway, oldest.unended);
        }
        self.calls.push(call);
    }

    /// Records the end of an allowed call that an update reports. `subagent`: the child session that sent the update.
    pub(crate) fn track(
        &mut self,
        agent: &AgentName,
        kind: &str,
        raw: &RawValue,
        subagent: Option<&str>,
    ) {
        let is_call = matches!(kind, update::TOOL_CALL | update::TOOL_CALL_UPDATE);
        if self.calls.is_empty() || !is_call {
            return;
        }
        let Some(call) = RawObject::parse(raw) else {
            return;
        };
        let outcome = match call.text("status").as_deref() {
            Some("completed") => ToolCallOutcome::Completed,
            Some("failed") => ToolCallOutcome::Failed,
            _ => return,
        };
        let Some(id) = call.text("toolCallId").map(|id| audited_id(&id)) else {
            return;
        };
        let is_it = |call: &mut AllowedCall| {
            call.unended.tool_call_id == id && call.subagent.as_deref() == subagent
        };
        for call in self.calls.extract_if(.., is_it) {
            let ended = PermissionToolCallEnded {
                outcome,
                ..call.unended
            };
            self.audit.append(AuditActor::agent(agent), ended);
        }
    }

    /// Records the outcome of the remaining calls as unknown: their turn or their process has ended.
    pub(super) fn end(&mut self) {
        for call in self.calls.drain(..) {
            self.audit.append(ActorKind::Gateway, call.unended);
        }
    }
}
