//! Conversions between records and types of the API.

use super::prompt::{PromptRecord, StoredStatus};
use super::request::{RequestRecord, StoredRequest, StoredResolution};
use super::session::{StoredPermissions, StoredPolicy, StoredState};
use super::terminal::{StoredExit, StoredTerminal};
use crate::api::{
    PendingRequest, PermissionPolicy, Prompt, PromptStatus, Resolution, SessionPolicy, SessionState,
    Terminal, TerminalExit,
};
use crate::types::{EventId, SessionId};

/// Converts between two enums with the same variants.
macro_rules! convert {
    ($($stored:ident <=> $api:ident { $($variant:ident),* };)*) => {$(
        impl From<$stored> for $api {
            fn from(stored: $stored) -> Self {
                match stored { $($stored::$variant => Self::$variant,)* }
            }
        }

        impl From<$api> for $stored {
            fn from(shown: $api) -> Self {
                match shown { $($api::$variant => Self::$variant,)* }
            }
        }
    )*};
}

convert! {
    StoredState <=> SessionState { Idle, Running, Waiting, Closed };
    StoredStatus <=> PromptStatus { Queued, Running, Completed, Failed };
    StoredResolution <=> Resolution { Answered, Policy, Cancelled, Withdrawn, Expired };
}

/// Converts between two structs with the same members.
macro_rules! convert_members {
    ($($stored:ident <=> $api:ident { $($member:ident),* };)*) => {$(
        impl From<$stored> for $api {
            fn from($stored { $($member),* }: $stored) -> Self {
                Self { $($member),* }
            }
        }

        impl From<$api> for $stored {
            fn from($api { $($member),* }: $api) -> Self {
                Self { $($member),* }
            }
        }
    )*};
}

convert_members! {
    StoredPermissions <=> PermissionPolicy { on_timeout, timeout_seconds, allow };
    StoredRequest <=> PendingRequest { request_id, method, params, prompt_id, subagent, created_at, deadline };
    StoredExit <=> TerminalExit { exit_code, signal };
}

impl From<SessionPolicy> for StoredPolicy {
    fn from(SessionPolicy { permissions, files, terminals }: SessionPolicy) -> Self {
        Self { permissions: permissions.map(Into::into), files, terminals }
    }
}

impl From<StoredPolicy> for SessionPolicy {
    fn from(StoredPolicy { permissions, files, terminals }: StoredPolicy) -> Self {
        Self { permissions: permissions.map(Into::into), files, terminals }
    }
}

impl From<StoredTerminal> for Terminal {
    fn from(stored: StoredTerminal) -> Self {
        let StoredTerminal { terminal_id, prompt_id, command, args, cwd, created_at, exit_status } = stored;
        let exit_status = exit_status.map(Into::into);
        Self { terminal_id, prompt_id, command, args, cwd, created_at, exit_status }
    }
}

impl RequestRecord {
    /// The record of a request that waits for an answer.
    pub(in crate::session) fn open(request: &PendingRequest) -> Self {
        Self { pending: Some(request.clone().into()), resolution: None, by: None }
    }

    /// The record of a resolved request.
    pub(in crate::session) fn resolved(resolution: Resolution, by: Option<String>) -> Self {
        Self { pending: None, resolution: Some(resolution.into()), by }
    }
}

impl PromptRecord {
    /// The prompt as clients see it, without its text.
    pub(in crate::session) fn to_prompt(&self, session_id: SessionId, last_event_id: EventId) -> Prompt {
        Prompt {
            prompt_id: self.prompt_id,
            session_id,
            status: self.status.into(),
            stop_reason: self.stop_reason.clone(),
            usage: self.usage.clone(),
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
