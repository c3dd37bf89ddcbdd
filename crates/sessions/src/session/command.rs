//! The commands of clients to a session.

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;
use uuid::Uuid;

use super::error::CreateError;
use super::idempotency::{Claim, IdempotencyKey};
use super::requests::client_tools::ToolClient;
use super::validation::Origin;
use base::types::Access;
use events::api::{AcpRequest, Attachment, Session};
use wire::acp::{self, CancelTarget, McpServer, RequestKind, TraceContext};

/// A prompt of a client: an array of content blocks whose shape was checked.
#[derive(Debug)]
pub struct PromptRequest {
    pub blocks: Box<RawValue>,
    /// Files of the session that are appended to the blocks.
    pub attachments: Vec<Attachment>,
    pub queue: bool,
    pub key: Option<IdempotencyKey>,
    pub trace: Option<TraceContext>,
    pub acp_request: Option<AcpRequest>,
    pub broadcast: Option<Uuid>,
    /// The ACP client, if it serves files or terminals for the turn.
    pub tool_client: Option<ToolClient>,
    /// The span of the request that sends the prompt. The log lines of the turn contain its fields.
    pub span: Span,
}

impl PromptRequest {
    pub fn new(blocks: Box<RawValue>) -> Self {
        Self {
            blocks,
            attachments: Vec::new(),
            queue: false,
            key: None,
            trace: None,
            acp_request: None,
            broadcast: None,
            tool_client: None,
            span: Span::current(),
        }
    }
}

#[derive(Debug)]
pub enum Answer {
    /// The raw result. It is checked against the request if the gateway knows the method.
    Result(Box<RawValue>),
    Error(Box<RawValue>),
    /// The id of one of the options of a permission request.
    Option(String),
    /// Cancels a permission request: none of its options was chosen.
    Cancelled,
    Elicitation(Box<RawValue>),
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

/// The access that a user needs to answer a request of this kind. The files and terminals of a turn are those of the client
/// that began it. Everything else is a decision.
pub const fn access_to_answer(kind: RequestKind) -> Access {
    match kind {
        RequestKind::Permission | RequestKind::Elicitation | RequestKind::Extension => {
            Access::Approve
        }
        _ => Access::Prompt,
    }
}

impl ClientCall {
    pub(super) fn needed_access(&self) -> Access {
        match self {
            Self::Cancel(_) => Access::Prompt,
            Self::Fork | Self::Forked(_) => Access::Own,
            Self::Mode(_) | Self::Config { .. } | Self::Rpc { .. } => Access::Approve,
        }
    }
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
pub(super) struct CreateWaiter {
    pub(super) origin: Origin,
    pub(super) servers: Vec<McpServer>,
    pub(super) claim: Option<Claim>,
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<(Session, u64), CreateError>,
    /// Until when the session waits for a process while all processes are busy.
    pub(super) deadline: Instant,
}
