//! The effects of the inputs of a turn, which the actor applies.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::acp::stop_reason;
use crate::jsonrpc::RpcError;
use crate::session::record::PromptRecord;
use crate::types::PromptId;

/// The place of a new prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Admission {
    /// It runs now.
    Run,
    /// It waits at this position of the queue, counted from 1.
    Queue { position: usize },
}

/// Why a prompt is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum NotAdmitted {
    Behind(PromptId),
    QueueFull,
}

/// The effect of the agent's response to `session/prompt`.
#[derive(Debug)]
pub(in crate::session) enum Answered {
    /// The end of the turn follows in a `state_update`.
    Acknowledged,
    Completed(Completion),
    /// The agent confirms the cancel with an error.
    Cancelled,
    /// The agent does not have the restored session.
    SessionRejected(RpcError),
    Failed(RpcError),
    /// The agent's result does not match ACP.
    Invalid(RpcError),
}

/// The data of a completed turn.
#[derive(Debug)]
pub(in crate::session) struct Completion {
    pub(in crate::session) stop_reason: String,
    /// The agent's result, or the `state_update` that ended the work.
    pub(in crate::session) result: Box<RawValue>,
    pub(in crate::session) usage: Option<Box<RawValue>>,
}

/// A turn that was removed because it ends.
#[derive(Debug)]
pub(in crate::session) struct EndedTurn {
    pub(in crate::session) record: PromptRecord,
    /// Whether the process is being stopped because the agent ignored the cancel.
    pub(in crate::session) stopping: bool,
}

/// The effect of a cancel on the running turn.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) enum CancelEffect {
    /// The prompt was not sent to the agent, so the turn ends at once.
    Complete,
    /// The agent must be asked to cancel.
    Send(PromptId),
    /// The agent was asked before, or nothing runs.
    None,
}

/// The effect of a deadline of the running turn.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) enum Overdue {
    /// The agent is silent, or a drain ends the turn.
    Cancel,
    /// The agent is idle, so the cancelled turn is complete.
    Complete,
    /// The agent ignores the cancel: begin to stop its process.
    StopProcess,
    /// The stop of the process takes too long.
    AbandonProcess,
}

/// The circumstances of a turn that its deadline depends on.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct TurnClock {
    /// How long the agent may be silent.
    pub(in crate::session) idle_timeout: Duration,
    /// Whether the agent waits for the gateway or a client. Its silence does not count then.
    pub(in crate::session) agent_waits: bool,
    pub(in crate::session) drain_at: Option<Instant>,
}

impl Completion {
    /// The end of a turn that was cancelled.
    pub(in crate::session) fn cancelled() -> Self {
        let result = format!(r#"{{"stopReason":"{}"}}"#, stop_reason::CANCELLED);
        Self {
            stop_reason: stop_reason::CANCELLED.to_owned(),
            result: RawValue::from_string(result).expect("valid JSON"),
            usage: None,
        }
    }
}
