//! A prompt on its way, queued or the running turn: its tool calls, and the work that an agent of ACP v2 reports for it.
//!
//! In v1 the response to `session/prompt` ends the turn, and the reported work does not change.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::session::command::PromptRequest;
use crate::session::record::PromptRecord;
use crate::session::turns::echo::Echo;
use agents::agent::AgentSpec;
use base::types::limits::CANCEL_TARGETS;
use base::types::{CancelCause, Limits, PromptId};
use events::api::Problem;
use wire::acp::{CancelTarget, RawObject, WorkEnd, stop_reason, update};
use wire::jsonrpc::{CallId, RpcError};

/// A prompt that waits for the end of the turn before it.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) record: PromptRecord,
    pub(crate) request: PromptRequest,
    /// Whether an earlier actor of the session accepted the prompt.
    pub(crate) restored: bool,
    /// The entry whose denied modes the prompt was checked against. `None` if an earlier actor checked it.
    pub(crate) checked: Option<Arc<AgentSpec>>,
}

pub(super) struct Turn {
    /// The start of the turn takes its serving client.
    pub(super) prompt: Queued,
    /// The sequence number of the event that must be durable before the prompt is sent to the agent, or [`NOT_YET`].
    pub(super) started_seq: u64,
    pub(super) call: Option<CallId>,
    /// Whether the prompt was withdrawn and is sent again.
    pub(super) resent: bool,
    pub(super) work: PromptWork,
    pub(super) cancel: Cancel,
    pub(super) last_activity: Instant,
    pub(super) calls: RunningCalls,
    /// The content that the agent may send back. `None` before the first message that may be such an echo.
    pub(super) echo: Option<Echo>,
}

/// In place of the sequence number of an event that is not appended yet: the turn waits for a process.
pub(crate) const NOT_YET: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancel {
    None,
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

    pub(super) fn max_silence(&self, limits: &Limits, clock: TurnClock) -> Duration {
        if self.waits_for_call(limits, clock) {
            limits.tool_call_idle_timeout
        } else {
            clock.idle_timeout
        }
    }

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Run,
    /// It waits at this position of the queue, counted from 1.
    Queue {
        position: usize,
    },
}

#[derive(Debug)]
pub(crate) enum Answered {
    /// The end of the turn follows in a `state_update`.
    Acknowledged,
    Completed(Completion),
    /// The agent confirms the cancel with an error.
    Cancelled,
    /// The agent does not have the restored session.
    SessionRejected(RpcError),
    Failed(RpcError),
    Invalid(RpcError),
}

#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) stop_reason: String,
    /// The agent's result, or the `state_update` that ended the work.
    pub(crate) result: Box<RawValue>,
    pub(crate) usage: Option<Box<RawValue>>,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the end of a turn is moved once, and not stored"
)]
pub(crate) enum TurnEnd {
    Completed(Completion),
    Failed(Problem),
}

impl TurnEnd {
    pub(crate) fn cancelled() -> Self {
        Self::Completed(Completion::cancelled())
    }
}

/// A step of the cancellation of the running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelStep {
    /// The turn ends at once: its prompt was not sent to the agent, or the agent is idle.
    Complete,
    /// The agent must be asked to cancel.
    Send(PromptId),
    /// The agent ignores the cancel: begin to stop its process.
    StopProcess,
    /// The stop of the process takes too long.
    AbandonProcess,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnClock {
    /// How long the agent may be silent while no tool call is in progress.
    pub(crate) idle_timeout: Duration,
    /// Whether the agent waits for the gateway or a client. The idle time of the turn does not count then.
    pub(crate) agent_waits: bool,
    pub(crate) drain_at: Option<Instant>,
}

impl Completion {
    pub(crate) fn cancelled() -> Self {
        let result = format!(r#"{{"stopReason":"{}"}}"#, stop_reason::CANCELLED);
        Self {
            stop_reason: stop_reason::CANCELLED.to_owned(),
            result: RawValue::from_string(result).expect("valid JSON"),
            usage: None,
        }
    }
}

/// The number of tool calls in progress that a turn tracks. Later ones have no effect on the limit of silence.
const MAX_CALLS: usize = 1000;
/// The length of a tracked id in bytes.
const MAX_ID_BYTES: usize = 1024;

/// The tool calls in progress: their ids, with the child session that runs them.
#[derive(Default)]
pub(super) struct RunningCalls(HashSet<(Option<Box<str>>, Box<str>)>);

impl RunningCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes the status in an update of a tool call. A new call without a status is pending (ACP, Tool Calls).
    pub(super) fn track(&mut self, kind: &str, raw: &RawValue, subagent: Option<&str>) {
        if !matches!(kind, update::TOOL_CALL | update::TOOL_CALL_UPDATE) {
            return;
        }
        let Some(call) = RawObject::parse(raw) else {
            return;
        };
        let Some(id) = call.text("toolCallId") else {
            return;
        };
        let status = call.text("status");
        let runs = match status.as_deref() {
            Some(status) => matches!(status, "pending" | "in_progress"),
            None if kind == update::TOOL_CALL => true,
            None => return,
        };
        let key = (subagent.map(Into::into), Box::from(&*id));
        if !runs {
            self.0.remove(&key);
        } else if self.0.len() < MAX_CALLS && id.len() <= MAX_ID_BYTES {
            self.0.insert(key);
        }
    }
}

pub(super) struct ReportedWork {
    /// Whether the agent reported work that has not ended.
    pub(super) busy: bool,
    pub(super) last_update: Instant,
    cancellable: Vec<CancelTarget>,
}

impl ReportedWork {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            busy: false,
            last_update: now,
            cancellable: Vec::new(),
        }
    }

    pub(super) fn track_cancellable(&mut self, part: CancelTarget, can: bool) {
        self.cancellable.retain(|known| *known != part);
        if can {
            if self.cancellable.len() >= CANCEL_TARGETS {
                self.cancellable.remove(0);
            }
            self.cancellable.push(part);
        }
    }

    pub(super) fn can_cancel(&self, part: &CancelTarget) -> bool {
        self.cancellable.contains(part)
    }
}

#[derive(Default)]
pub(super) struct PromptWork {
    /// Whether background work ran when the prompt was sent. The end of that work does not end the turn.
    pub(super) predates_prompt: bool,
    /// Whether the agent has responded to the prompt: the message is part of the conversation.
    pub(super) acknowledged: bool,
    /// The `state_update` that ended the work, and when it arrived. It may arrive before the response.
    pub(super) ended: Option<(Instant, Box<RawValue>)>,
}

impl PromptWork {
    /// Notes the end of work. `was_busy`: the agent had reported that work began.
    pub(super) fn note_end(
        &mut self,
        was_busy: bool,
        end: &WorkEnd<'_>,
        raw: &RawValue,
        now: Instant,
    ) {
        if self.predates_prompt && !self.acknowledged {
            self.predates_prompt = false;
            return;
        }
        // A repeated idle state ends nothing. Some agents report no start of their work, only a stop reason.
        if was_busy || (self.acknowledged && end.stop_reason.is_some()) {
            self.ended = Some((now, raw.to_owned()));
        }
    }
}
