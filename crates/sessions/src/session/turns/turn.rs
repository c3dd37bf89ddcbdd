//! A prompt on its way, queued or the running turn: its tool calls, and the work that an agent of ACP v2 reports for it.
//!
//! In v1 the response to `session/prompt` ends the turn, and the reported work does not change.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::Span;

use crate::limits::Limits;
use crate::session::command::PromptRequest;
use crate::session::journal::Journal;
use crate::session::record::PromptRecord;
use crate::session::turns::echo::Echo;
use crate::session::turns::trace::PromptTrace;
use agents::agent::AgentSpec;
use base::types::PromptId;
use events::api::{CancelCause, Problem};
use wire::acp::{
    self, CancelTarget, PromptResult, RawObject, WorkEnd, error_code, stop_reason, update,
};
use wire::jsonrpc::{CallId, RpcError};

/// The number of cancellable tool calls and terminals that the gateway remembers for a session. Beyond it,
/// the least recently updated one can no longer be cancelled by itself.
pub(super) const CANCEL_TARGETS: usize = 256;

/// A prompt that waits for the end of the turn before it.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) record: PromptRecord,
    pub(crate) request: PromptRequest,
    /// Whether an earlier actor of the session accepted the prompt.
    pub(crate) restored: bool,
    /// The entry whose denied modes the prompt was checked against. `None` if an earlier actor checked it.
    pub(crate) checked: Option<Arc<AgentSpec>>,
    /// The span of log lines.
    pub(crate) span: Arc<Span>,
    pub(crate) trace: Option<Box<PromptTrace>>,
}

/// The span of log lines about a prompt.
pub(super) fn prompt_span(journal: &Journal, prompt: PromptId, request: &Span) -> Arc<Span> {
    let session = journal.session();
    let agent = &journal.record().agent;
    Arc::new(tracing::error_span!(parent: request, "prompt", %session, %agent, %prompt))
}

impl Queued {
    /// A prompt that an earlier actor of the session accepted.
    pub(crate) fn restored(journal: &Journal, record: PromptRecord, blocks: Box<RawValue>) -> Self {
        Self {
            span: prompt_span(journal, record.prompt_id, &Span::none()),
            record,
            request: PromptRequest::new(blocks),
            restored: true,
            checked: None,
            trace: None,
        }
    }
}

pub(super) struct Turn {
    /// The start of the turn moves the client that provides the client tools out of this value.
    pub(super) prompt: Queued,
    /// The sequence number of the event that must be durable before the prompt is sent to the agent, or [`NOT_YET`].
    pub(super) started_seq: u64,
    pub(super) call: Option<CallId>,
    /// When an agent first got the prompt. `None` also if an earlier gateway process sent it.
    pub(super) sent_at: Option<Instant>,
    /// The same until the first update of the agent.
    pub(super) awaits_update_since: Option<Instant>,
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
    /// The agent ignored the cancel of this time, and the graceful stop of its process has begun.
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

#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) stop_reason: String,
    /// The agent's result, or the `state_update` that ended the work.
    pub(crate) result: Box<RawValue>,
    pub(crate) usage: Option<Box<RawValue>>,
}

pub(crate) type TurnEnd = Result<Completion, Problem>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnClock {
    /// How long the agent may be silent while no tool call is in progress.
    pub(crate) idle_timeout: Duration,
    /// Whether the agent waits for the gateway or a client. The idle time of the turn does not count then.
    pub(crate) agent_waits: bool,
    pub(crate) drain_at: Option<Instant>,
}

impl Completion {
    /// The completion of a turn from the agent's result of `session/prompt`.
    pub(super) fn parse(result: Box<RawValue>) -> Result<Self, RpcError> {
        let end: PromptResult<'_> = acp::parse(&result).map_err(|error| RpcError {
            code: error_code::INTERNAL,
            message: format!("invalid result of session/prompt: {error}"),
            data: None,
        })?;
        Ok(Self {
            stop_reason: end.stop_reason.into_owned(),
            usage: end.usage.map(ToOwned::to_owned),
            result,
        })
    }

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

    /// Notes the status in an update of a tool call, also in the spans of the prompt. A new call without a status is pending
    /// (ACP, Tool Calls).
    pub(super) fn track(
        &mut self,
        kind: &str,
        raw: &RawValue,
        subagent: Option<&str>,
        trace: Option<&mut PromptTrace>,
    ) {
        if !matches!(kind, update::TOOL_CALL | update::TOOL_CALL_UPDATE) {
            return;
        }
        let Some(call) = RawObject::parse(raw) else {
            return;
        };
        let id = call.text("toolCallId");
        let Some(id) = id.filter(|id| id.len() <= MAX_ID_BYTES) else {
            return;
        };
        let status = call.text("status");
        let runs = match status.as_deref() {
            Some(status) => matches!(status, "pending" | "in_progress"),
            None if kind == update::TOOL_CALL => true,
            None => return,
        };
        if let Some(trace) = trace {
            if runs || kind == update::TOOL_CALL {
                trace.call_began(&id, &call);
            }
            if !runs {
                trace.call_ended(&id, status.as_deref() == Some("failed"));
            }
        }
        let key = (subagent.map(Into::into), Box::from(&*id));
        if !runs {
            self.0.remove(&key);
        } else if self.0.len() < MAX_CALLS {
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
