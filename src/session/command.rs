//! What handles ask of a session's owner. Every command has one answer.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::creation::CreateWaiter;
use super::refusal::Refusal;
use super::requests::Outcome;
use crate::acp::{self, CancelTarget, TraceContext};
use crate::api::{PendingRequest, Prompt, Session, SessionPatch};
use crate::types::{Principal, PromptId, RequestId, TerminalId};

/// A prompt as it reaches a session: an array of content blocks, checked for its shape.
#[derive(Debug)]
pub struct PromptRequest {
    pub blocks: Box<RawValue>,
    /// Files of the session that go behind the blocks.
    pub attachments: Vec<crate::api::Attachment>,
    pub queue: bool,
    pub key: Option<super::IdempotencyKey>,
    pub trace: Option<TraceContext>,
}

/// A person's answer to a request of the agent.
#[derive(Debug)]
pub enum Answer {
    /// Raw, checked against what was asked where the gateway knows the method.
    Result(Box<RawValue>),
    /// A JSON-RPC error object.
    Error(Box<RawValue>),
    /// One of the options of a permission request.
    Option(String),
    /// No option of a permission request.
    Cancelled,
    /// ACP's result of `elicitation/create`.
    Elicitation(Box<RawValue>),
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// What an agent is called for on behalf of a client.
#[derive(Debug)]
pub(super) enum ClientCall {
    Mode(String),
    Config {
        option: String,
        value: Box<RawValue>,
    },
    /// One tool call or terminal shall stop, and nothing else.
    Cancel(CancelTarget),
    Fork,
    /// The fork that the agent has made is to be closed here: its answer to `session/fork`.
    Forked(Box<RawValue>),
    /// A method by its name, with a client's own params.
    Rpc {
        method: String,
        params: Box<RawValue>,
        notify: bool,
    },
}

impl ClientCall {
    pub(super) fn method(&self) -> &str {
        match self {
            Self::Mode(_) => acp::method::SESSION_SET_MODE,
            Self::Config { .. } => acp::method::SESSION_SET_CONFIG_OPTION,
            Self::Cancel(part) => part.cancel_method(),
            Self::Fork => acp::method::SESSION_FORK,
            Self::Forked(_) => acp::method::SESSION_CLOSE,
            Self::Rpc { method, .. } => method,
        }
    }
}

#[derive(Debug)]
pub(super) enum Command {
    /// The first command of a new session: get a process and the agent's session.
    Create(CreateWaiter),
    /// The snapshot, and the seq that must be committed before anybody sees it.
    Snapshot {
        reply: Reply<(Session, u64)>,
    },
    Patch {
        by: Principal,
        patch: SessionPatch,
        if_match: Option<Vec<String>>,
        reply: Reply<(Session, u64)>,
    },
    Attach {
        trace: Option<TraceContext>,
        reply: Reply<u64>,
    },
    Close {
        by: Principal,
        trace: Option<TraceContext>,
        reply: Reply<u64>,
    },
    Delete {
        by: Principal,
        trace: Option<TraceContext>,
        reply: Reply<u64>,
    },
    Prompt {
        by: Principal,
        blocks: Box<RawValue>,
        queue: bool,
        trace: Option<TraceContext>,
        /// The idempotency record, to be written with the turn.
        key: Option<super::idempotency::Claim>,
        reply: Reply<(Prompt, u64)>,
    },
    Cancel {
        prompt: Option<PromptId>,
        trace: Option<TraceContext>,
        reply: Reply<(Vec<PromptId>, u64)>,
    },
    Requests {
        reply: Reply<(Vec<PendingRequest>, u64)>,
    },
    Pending {
        request: RequestId,
        reply: Reply<Arc<PendingRequest>>,
    },
    Answer {
        by: Principal,
        request: RequestId,
        outcome: Outcome,
        reply: Reply<u64>,
    },
    Call {
        by: Principal,
        call: ClientCall,
        trace: Option<TraceContext>,
        reply: Reply<(Box<RawValue>, u64)>,
    },
    KillTerminal {
        terminal: TerminalId,
        reply: Reply<u64>,
    },
    Stderr {
        reply: Reply<String>,
    },
}
