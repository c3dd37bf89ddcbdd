//! Conversions between records and types of the API.

use super::prompt::PromptRecord;
use super::request::{PeerRequest, RequestRecord, StoredRequest};
use super::session::SessionRecord;
use super::terminal::{StoredExit, StoredTerminal};
use crate::api::{PendingRequest, Prompt, Resolution, SessionSummary, Terminal, TerminalExit};
use crate::types::{Epoch, EventId, SessionId};

impl From<StoredRequest> for PendingRequest {
    fn from(stored: StoredRequest) -> Self {
        let StoredRequest {
            request_id,
            method,
            params,
            prompt_id,
            subagent,
            acp_client,
            created_at,
            deadline,
        } = stored;
        Self {
            request_id,
            method,
            params,
            prompt_id,
            subagent,
            acp_client,
            created_at,
            deadline,
        }
    }
}

impl From<PendingRequest> for StoredRequest {
    fn from(shown: PendingRequest) -> Self {
        let PendingRequest {
            request_id,
            method,
            params,
            prompt_id,
            subagent,
            acp_client,
            created_at,
            deadline,
        } = shown;
        Self {
            request_id,
            method,
            params,
            prompt_id,
            subagent,
            acp_client,
            created_at,
            deadline,
        }
    }
}

impl From<StoredTerminal> for Terminal {
    fn from(stored: StoredTerminal) -> Self {
        let StoredTerminal {
            terminal_id,
            prompt_id,
            command,
            args,
            cwd,
            created_at,
            exit_status,
        } = stored;
        let exit_status =
            exit_status.map(|StoredExit { exit_code, signal }| TerminalExit { exit_code, signal });
        Self {
            terminal_id,
            prompt_id,
            command,
            args,
            cwd,
            created_at,
            exit_status,
        }
    }
}

impl SessionRecord {
    /// The session in a list. `epoch`: that of its events.
    pub(in crate::session) fn summary(&self, epoch: Epoch) -> SessionSummary {
        SessionSummary {
            session_id: self.session_id,
            agent: self.agent.clone(),
            title: self.title.clone(),
            metadata: self.metadata.clone(),
            cwd: self.cwd.clone(),
            state: self.state,
            attached: self.attached,
            created_at: self.created_at,
            updated_at: self.updated_at,
            last_activity_at: self.last_activity_at,
            last_outcome: self.last_outcome,
            prompt_id: self.prompt_id,
            queued: self.queued.clone(),
            task_id: self.task,
            last_event_id: EventId {
                epoch,
                seq: self.seq,
            },
        }
    }
}

impl RequestRecord {
    /// The record of a request that waits for an answer.
    pub(in crate::session) fn open(request: &PendingRequest, peer: Option<PeerRequest>) -> Self {
        Self {
            pending: Some(request.clone().into()),
            resolution: None,
            by: None,
            peer,
        }
    }

    /// The record of a resolved request.
    pub(in crate::session) fn resolved(
        resolution: Resolution,
        by: Option<String>,
        peer: Option<PeerRequest>,
    ) -> Self {
        Self {
            pending: None,
            resolution: Some(resolution),
            by,
            peer,
        }
    }
}

impl PromptRecord {
    /// The prompt as clients see it, without its text.
    pub(in crate::session) fn to_prompt(
        &self,
        session_id: SessionId,
        last_event_id: EventId,
    ) -> Prompt {
        Prompt {
            prompt_id: self.prompt_id,
            session_id,
            status: self.status,
            stop_reason: self.stop_reason.clone(),
            usage: self.usage.clone(),
            cancel_cause: self.cancel_cause,
            text: String::new(),
            truncated: false,
            by: self.by.clone(),
            created_at: self.created_at,
            ended_at: self.ended_at,
            last_event_id,
            error: self.error.clone(),
        }
    }
}
