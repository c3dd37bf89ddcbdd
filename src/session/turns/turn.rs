//! A prompt on its way, queued or the running turn, and the effects of its inputs, which the actor applies.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::calls::RunningCalls;
use super::echo::Echo;
use super::work::PromptWork;
use crate::acp::{TraceContext, stop_reason};
use crate::agent::AgentSpec;
use crate::jsonrpc::{CallId, RpcError};
use crate::session::record::PromptRecord;
use crate::session::serving_clients::ServingClient;
use crate::types::{CancelCause, Limits, PromptId};

/// A prompt that waits for the end of the turn before it.
#[derive(Debug)]
pub(in crate::session) struct Queued {
    pub(in crate::session) record: PromptRecord,
    pub(in crate::session) blocks: Box<RawValue>,
    pub(in crate::session) trace: Option<TraceContext>,
    /// Whether an earlier actor of the session accepted the prompt.
    pub(in crate::session) restored: bool,
    /// The entry whose denied modes the prompt was checked against. `None` if an earlier actor checked it.
    pub(in crate::session) checked: Option<Arc<AgentSpec>>,
    /// The ACP client that sent the prompt, if it serves files or terminals.
    pub(in crate::session) serving: Option<Arc<ServingClient>>,
}

/// The running turn.
#[derive(Debug)]
pub(super) struct Turn {
    /// The start of the turn takes its serving client.
    pub(super) prompt: Queued,
    /// The sequence number of the event that must be durable before the prompt is sent to the agent, or [`NOT_YET`].
    pub(super) started_seq: u64,
    /// The call of `session/prompt`, after it was sent.
    pub(super) call: Option<CallId>,
    /// Whether the prompt was withdrawn and is sent again.
    pub(super) resent: bool,
    pub(super) work: PromptWork,
    pub(super) cancel: Cancel,
    /// When the agent last sent a message.
    pub(super) last_activity: Instant,
    pub(super) calls: RunningCalls,
    /// The content that the agent may send back. `None` before the first message that may be such an echo.
    pub(super) echo: Option<Echo>,
}

/// In place of the sequence number of an event that is not appended yet: the turn waits for a process.
pub(in crate::session) const NOT_YET: u64 = u64::MAX;

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

    /// How long the agent may be silent.
    pub(super) fn max_silence(&self, limits: &Limits, clock: TurnClock) -> Duration {
        if self.waits_for_call(limits, clock) {
            limits.tool_call_idle_timeout
        } else {
            clock.idle_timeout
        }
    }

    /// The cause of a cancel for silence.
    pub(super) fn silence_cause(&self, limits: &Limits, clock: TurnClock) -> CancelCause {
        if self.waits_for_call(limits, clock) {
            CancelCause::ToolCallSilence
        } else {
            CancelCause::Silence
        }
    }

    /// Whether a tool call in progress permits a longer silence.
    fn waits_for_call(&self, limits: &Limits, clock: TurnClock) -> bool {
        !self.calls.is_empty() && limits.tool_call_idle_timeout > clock.idle_timeout
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.cancel, Cancel::Stopping { .. })
    }
}

/// The place of a new prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Admission {
    /// It runs now.
    Run,
    /// It waits at this position of the queue, counted from 1.
    Queue { position: usize },
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

/// A step of the cancellation of the running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum CancelStep {
    /// The turn ends at once: its prompt was not sent to the agent, or the agent is idle.
    Complete,
    /// The agent must be asked to cancel.
    Send(PromptId),
    /// The agent ignores the cancel: begin to stop its process.
    StopProcess,
    /// The stop of the process takes too long.
    AbandonProcess,
}

/// The circumstances of a turn that its deadline depends on.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct TurnClock {
    /// How long the agent may be silent while no tool call is in progress.
    pub(in crate::session) idle_timeout: Duration,
    /// Whether the agent waits for the gateway or a client. The idle time of the turn does not count then.
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
