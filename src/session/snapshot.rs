//! The snapshot of a session, as clients see it.

use super::record::SessionRecord;
use crate::api::{PendingRequest, Session};
use crate::transcript::SessionFold;
use crate::types::EventId;

/// Builds the snapshot from the record and the fold.
pub(super) fn build_snapshot(
    record: &SessionRecord,
    fold: &SessionFold,
    requests: Vec<PendingRequest>,
    last_event_id: EventId,
) -> Session {
    Session {
        session_id: record.session_id,
        agent: record.agent.clone(),
        title: fold.title().map(str::to_owned),
        title_by: fold.title_by(),
        metadata: record.metadata.clone(),
        cwd: record.cwd.clone(),
        state: record.state,
        attached: record.attached,
        isolation: record.isolation,
        created_at: record.created_at,
        updated_at: record.updated_at,
        last_activity_at: record.last_activity_at,
        last_outcome: record.last_outcome,
        prompt_id: record.prompt_id,
        queued: record.queued.clone(),
        requests,
        prompt_capabilities: record.prompt_capabilities.clone(),
        modes: fold.modes.clone(),
        config_options: fold.config_options.clone(),
        denied_modes: Vec::new(),
        available_commands: fold.available_commands.clone(),
        plan: fold.plan().map(ToOwned::to_owned),
        usage: fold.usage.clone(),
        subagents: fold.subagents(),
        policy: record.policy.clone(),
        revision: fold.revision,
        task_id: record.task,
        last_event_id,
    }
}
