//! A prompt on its way: queued, or the running turn.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::work::PromptWork;
use crate::acp::TraceContext;
use crate::jsonrpc::CallId;
use crate::session::record::PromptRecord;

/// A prompt that waits for the end of the turn before it.
#[derive(Debug)]
pub(in crate::session) struct Queued {
    pub(in crate::session) record: PromptRecord,
    pub(in crate::session) blocks: Box<RawValue>,
    pub(in crate::session) trace: Option<TraceContext>,
    /// Whether an earlier actor of the session accepted the prompt.
    pub(in crate::session) restored: bool,
}

/// The running turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) record: PromptRecord,
    pub(super) blocks: Box<RawValue>,
    pub(super) trace: Option<TraceContext>,
    /// The sequence number of the event that must be durable before the prompt is sent to the agent.
    pub(super) started_seq: u64,
    /// The call of `session/prompt`, after it was sent.
    pub(super) call: Option<CallId>,
    pub(super) work: PromptWork,
    pub(super) cancel: Cancel,
    /// When the agent last sent a message.
    pub(super) last_activity: Instant,
}

/// The progress of the cancellation of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancel {
    None,
    /// The agent was asked to cancel.
    Requested {
        at: Instant,
    },
    /// The agent ignored the cancel, and the graceful stop of its process has begun.
    Stopping {
        at: Instant,
    },
}

impl Turn {
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel != Cancel::None
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.cancel, Cancel::Stopping { .. })
    }
}
