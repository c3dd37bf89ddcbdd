//! Conversions between records and types of the API.

use super::problem::{StoredFieldError, StoredProblem, StoredRpcError};
use super::prompt::{PromptRecord, StoredStatus};
use super::request::{RequestRecord, StoredRequest, StoredResolution};
use super::session::{StoredOnTimeout, StoredPermissions, StoredPolicy, StoredState};
use super::terminal::{StoredExit, StoredTerminal};
use crate::api::{
    FieldError, PendingRequest, PermissionPolicy, Problem, ProblemCode, Prompt, PromptStatus, Resolution,
    RpcError, SessionPolicy, SessionState, Terminal, TerminalExit,
};
use crate::types::{EventId, OnTimeout, SessionId};

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
    StoredOnTimeout <=> OnTimeout { Reject, Wait };
}

impl From<SessionPolicy> for StoredPolicy {
    fn from(SessionPolicy { permissions, files, terminals }: SessionPolicy) -> Self {
        let permissions = permissions.map(|PermissionPolicy { on_timeout, timeout_seconds, allow }| {
            StoredPermissions { on_timeout: on_timeout.map(Into::into), timeout_seconds, allow }
        });
        Self { permissions, files, terminals }
    }
}

impl From<StoredPolicy> for SessionPolicy {
    fn from(StoredPolicy { permissions, files, terminals }: StoredPolicy) -> Self {
        let permissions = permissions.map(|StoredPermissions { on_timeout, timeout_seconds, allow }| {
            PermissionPolicy { on_timeout: on_timeout.map(Into::into), timeout_seconds, allow }
        });
        Self { permissions, files, terminals }
    }
}

impl From<StoredRequest> for PendingRequest {
    fn from(stored: StoredRequest) -> Self {
        let StoredRequest { request_id, method, params, prompt_id, subagent, created_at, deadline } = stored;
        Self { request_id, method, params, prompt_id, subagent, created_at, deadline }
    }
}

impl From<PendingRequest> for StoredRequest {
    fn from(shown: PendingRequest) -> Self {
        let PendingRequest { request_id, method, params, prompt_id, subagent, created_at, deadline } = shown;
        Self { request_id, method, params, prompt_id, subagent, created_at, deadline }
    }
}

impl From<StoredTerminal> for Terminal {
    fn from(stored: StoredTerminal) -> Self {
        let StoredTerminal { terminal_id, prompt_id, command, args, cwd, created_at, exit_status } = stored;
        let exit_status =
            exit_status.map(|StoredExit { exit_code, signal }| TerminalExit { exit_code, signal });
        Self { terminal_id, prompt_id, command, args, cwd, created_at, exit_status }
    }
}

impl From<Problem> for StoredProblem {
    fn from(shown: Problem) -> Self {
        let error = |FieldError { pointer, detail }| StoredFieldError { pointer, detail };
        let acp = |RpcError { code, message, data }| StoredRpcError { code, message, data };
        Self {
            kind: shown.kind,
            title: shown.title,
            status: shown.status,
            detail: shown.detail,
            code: shown.code.as_str().to_owned(),
            retryable: shown.retryable,
            errors: shown.errors.into_iter().map(error).collect(),
            acp: shown.acp.map(acp),
            auth_methods: shown.auth_methods,
            retry_after_seconds: shown.retry_after_seconds,
            prompt_id: shown.prompt_id,
            request_id: shown.request_id,
            resolution: shown.resolution.map(Into::into),
            by: shown.by,
            exit_code: shown.exit_code,
            signal: shown.signal,
            stderr_tail: shown.stderr_tail,
        }
    }
}

impl From<StoredProblem> for Problem {
    fn from(stored: StoredProblem) -> Self {
        let error = |StoredFieldError { pointer, detail }| FieldError { pointer, detail };
        let acp = |StoredRpcError { code, message, data }| RpcError { code, message, data };
        let code = ProblemCode::ALL.iter().find(|code| code.as_str() == stored.code);
        Self {
            kind: stored.kind,
            title: stored.title,
            status: stored.status,
            detail: stored.detail,
            code: code.copied().unwrap_or(ProblemCode::Internal),
            retryable: stored.retryable,
            instance: None,
            errors: stored.errors.into_iter().map(error).collect(),
            acp: stored.acp.map(acp),
            auth_methods: stored.auth_methods,
            retry_after_seconds: stored.retry_after_seconds,
            prompt_id: stored.prompt_id,
            request_id: stored.request_id,
            resolution: stored.resolution.map(Into::into),
            by: stored.by,
            exit_code: stored.exit_code,
            signal: stored.signal,
            stderr_tail: stored.stderr_tail,
        }
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
            error: self.error.clone().map(Into::into),
        }
    }
}
