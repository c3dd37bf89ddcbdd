//! The commands that handles send to a session's actor. Every command has one reply.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use super::error::{
    AnswerError, AttachError, CallError, CreateError, DeleteError, PartError, PatchError,
    PromptError, QueueError, SessionError,
};
use super::idempotency::{Claim, IdempotencyKey};
use super::origin::Origin;
use super::serving_clients::ServingClient;
use crate::acp::{self, CancelTarget, McpServer, Outcome, TraceContext};
use crate::api::{Attachment, PendingRequest, Prompt, RequestedContext, Session, SessionPatch};
use crate::types::{AcpRequest, Author, CancelCause, Principal, PromptId, RequestId, TerminalId};

/// A prompt of a client: an array of content blocks whose shape was checked.
#[derive(Debug)]
pub struct PromptRequest {
    pub blocks: Box<RawValue>,
    /// Files of the session that are appended to the blocks.
    pub attachments: Vec<Attachment>,
    pub queue: bool,
    pub key: Option<IdempotencyKey>,
    pub trace: Option<TraceContext>,
    /// The request of the ACP client that sends the prompt.
    pub acp_request: Option<AcpRequest>,
    /// The id of the broadcast that sends the prompt.
    pub broadcast: Option<Uuid>,
    /// The ACP client, if it serves files or terminals for the turn.
    pub serving: Option<ServingClient>,
}

/// A client's answer to a request of the agent.
#[derive(Debug)]
pub enum Answer {
    /// The raw result. It is checked against the request if the gateway knows the method.
    Result(Box<RawValue>),
    /// A JSON-RPC error object.
    Error(Box<RawValue>),
    /// The id of one of the options of a permission request.
    Option(String),
    /// Cancels a permission request: none of its options was chosen.
    Cancelled,
    /// The ACP result of `elicitation/create`.
    Elicitation(Box<RawValue>),
}

/// A change of a queued prompt.
#[derive(Debug)]
#[expect(
    clippy::option_option,
    reason = "a place that is absent stays, and one that is null is the end of the queue"
)]
pub(super) struct PromptChange {
    pub(super) by: Principal,
    pub(super) prompt: PromptId,
    /// The new content, with its attachments in the blocks.
    pub(super) blocks: Option<Box<RawValue>>,
    /// The queued prompt before which the prompt moves; `Some(None)`: to the end.
    pub(super) before: Option<Option<PromptId>>,
}

pub(super) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// A client-initiated call to the agent, outside a turn.
#[derive(Debug)]
pub enum ClientCall {
    Mode(String),
    Config {
        option: String,
        value: Box<RawValue>,
    },
    /// Cancels one tool call or one terminal. The turn continues.
    Cancel(CancelTarget),
    Fork,
    /// Closes a fork at the agent that created it. The value is the agent's result of `session/fork`.
    Forked(Box<RawValue>),
    /// Calls a method by name with the client's own params.
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

/// The client that waits for a new session, and the data that is written with the session.
#[derive(Debug)]
pub(super) struct CreateWaiter {
    pub(super) origin: Origin,
    /// The MCP servers that the client brings.
    pub(super) servers: Vec<McpServer>,
    pub(super) claim: Option<Claim>,
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<(Session, u64), CreateError>,
    /// Until when the session waits for a process while all processes are busy.
    pub(super) deadline: Instant,
}

#[derive(Debug)]
pub(super) enum Command {
    /// The first command of a new session: acquires a process and creates the agent's session.
    Create(CreateWaiter),
    /// Returns the snapshot and the sequence number that must be committed before the snapshot is shown.
    Snapshot {
        reply: Reply<(Session, u64), SessionError>,
    },
    Patch {
        by: Principal,
        patch: SessionPatch,
        if_match: Option<Vec<String>>,
        reply: Reply<(Session, u64), PatchError>,
    },
    Attach {
        context: RequestedContext,
        trace: Option<TraceContext>,
        reply: Reply<u64, AttachError>,
    },
    /// Replaces the MCP servers that clients bring.
    BringServers {
        servers: Vec<McpServer>,
        reply: Reply<(), SessionError>,
    },
    Close {
        by: Principal,
        trace: Option<TraceContext>,
        reply: Reply<u64, SessionError>,
    },
    Delete {
        by: Principal,
        if_match: Option<Vec<String>>,
        trace: Option<TraceContext>,
        reply: Reply<u64, DeleteError>,
    },
    Prompt {
        by: Principal,
        /// Its attachments are in the blocks.
        request: Box<PromptRequest>,
        /// The idempotency record to be written in the commit of the turn.
        claim: Option<Claim>,
        reply: Reply<(Prompt, u64), PromptError>,
    },
    ChangePrompt {
        change: Box<PromptChange>,
        reply: Reply<u64, QueueError>,
    },
    Cancel {
        prompt: Option<PromptId>,
        cause: CancelCause,
        trace: Option<TraceContext>,
        reply: Reply<(Vec<PromptId>, u64), PartError>,
    },
    Pending {
        request: RequestId,
        reply: Reply<Arc<PendingRequest>, AnswerError>,
    },
    Answer {
        by: Author,
        request: RequestId,
        outcome: Outcome,
        reply: Reply<u64, AnswerError>,
    },
    Call {
        by: Principal,
        call: ClientCall,
        trace: Option<TraceContext>,
        reply: Reply<(Box<RawValue>, u64), CallError>,
    },
    KillTerminal {
        terminal: TerminalId,
        reply: Reply<u64, PartError>,
    },
    Stderr {
        reply: Reply<String, SessionError>,
    },
}
