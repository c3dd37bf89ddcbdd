//! The end of a task.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::api::{Problem, ProblemCode, Prompt, PromptStatus, TaskResult, TaskStatus};
use crate::types::{CancelCause, Timestamp};

/// The size of the output in a record, in bytes. The transcript of the session has the whole text.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// The end of a task, as its record has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    pub(super) status: TaskStatus,
    pub(super) ended_at: Timestamp,
    output: String,
    truncated: bool,
    stop_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel_cause: Option<CancelCause>,
    tokens_used: Option<u64>,
    error: Option<Box<RawValue>>,
}

/// Why the gateway cancels a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelReason {
    Client,
    Deadline,
    Budget,
}

impl CancelReason {
    fn status(self) -> TaskStatus {
        match self {
            Self::Client => TaskStatus::Cancelled,
            Self::Deadline | Self::Budget => TaskStatus::Failed,
        }
    }

    /// The cause in the events of the turn.
    pub(super) fn of_turn(self) -> CancelCause {
        match self {
            Self::Client => CancelCause::Person,
            Self::Deadline => CancelCause::Deadline,
            Self::Budget => CancelCause::Budget,
        }
    }

    fn problem(self) -> Option<Problem> {
        match self {
            Self::Client => None,
            Self::Deadline => Some((
                ProblemCode::DeadlineExceeded,
                "the deadline of the task has passed",
            )),
            Self::Budget => Some((
                ProblemCode::BudgetExceeded,
                "the task used more tokens than its budget",
            )),
        }
        .map(|(code, detail)| Problem::new(code, detail))
    }
}

impl Outcome {
    /// The end of a task without a turn.
    fn without_turn(status: TaskStatus, problem: Option<&Problem>, ended_at: Timestamp) -> Self {
        let (output, truncated, stop_reason, tokens_used) = (String::new(), false, None, None);
        Self {
            status,
            ended_at,
            output,
            truncated,
            stop_reason,
            cancel_cause: None,
            tokens_used,
            error: problem.map(raw),
        }
    }

    /// The end of a task that could not begin.
    pub(super) fn failed(problem: &Problem, now: Timestamp) -> Self {
        let interrupted = problem.code == ProblemCode::Interrupted;
        let status = if interrupted {
            TaskStatus::Interrupted
        } else {
            TaskStatus::Failed
        };
        Self::without_turn(status, Some(problem), now)
    }

    /// The end of a task that was cancelled before its turn.
    pub(super) fn cancelled(reason: CancelReason, now: Timestamp) -> Self {
        Self::without_turn(reason.status(), reason.problem().as_ref(), now)
    }

    /// The end of the turn of a task. `reported`: the last usage that the agent reported during the turn.
    pub(super) fn of_turn(
        turn: Prompt,
        reason: Option<CancelReason>,
        reported: Option<u64>,
        now: Timestamp,
    ) -> Self {
        let cancelled =
            turn.status == PromptStatus::Failed || turn.stop_reason.as_deref() == Some("cancelled");
        let (status, error) = match reason.filter(|_| cancelled) {
            Some(reason) => (reason.status(), reason.problem().as_ref().map(raw)),
            None if turn.status == PromptStatus::Failed => {
                (failed_status(turn.error.as_deref()), turn.error)
            }
            // Somebody else has cancelled the turn of the session.
            None if cancelled => (TaskStatus::Cancelled, None),
            None => (TaskStatus::Completed, None),
        };
        let (mut output, mut truncated) = (turn.text, turn.truncated);
        if output.len() > MAX_OUTPUT_BYTES {
            output.truncate(output.floor_char_boundary(MAX_OUTPUT_BYTES));
            truncated = true;
        }
        let tokens_used = turn.usage.as_deref().and_then(total_tokens).or(reported);
        let cancel_cause = turn.cancel_cause;
        let (stop_reason, ended_at) = (turn.stop_reason, turn.ended_at.unwrap_or(now));
        Self {
            status,
            ended_at,
            output,
            truncated,
            stop_reason,
            cancel_cause,
            tokens_used,
            error,
        }
    }

    pub(super) fn result(&self, duration_ms: u64, metadata: Map<String, Value>) -> TaskResult {
        TaskResult {
            success: self.status == TaskStatus::Completed
                && self.stop_reason.as_deref() == Some("end_turn"),
            output: self.output.clone(),
            truncated: self.truncated,
            stop_reason: self.stop_reason.clone(),
            cancel_cause: self.cancel_cause,
            tokens_used: self.tokens_used,
            duration_ms,
            error: self.error.clone(),
            metadata,
        }
    }
}

fn raw(problem: &Problem) -> Box<RawValue> {
    serde_json::value::to_raw_value(problem).expect("a problem has string keys and serializes")
}

/// The state of a task whose turn failed with this problem.
fn failed_status(problem: Option<&RawValue>) -> TaskStatus {
    let code = problem.and_then(|problem| serde_json::from_str::<Problem>(problem.get()).ok());
    if code.is_some_and(|problem| problem.code == ProblemCode::Interrupted) {
        TaskStatus::Interrupted
    } else {
        TaskStatus::Failed
    }
}

/// The `totalTokens` of the usage in a result of `session/prompt`.
fn total_tokens(usage: &RawValue) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Usage {
        total_tokens: u64,
    }
    Some(
        serde_json::from_str::<Usage>(usage.get())
            .ok()?
            .total_tokens,
    )
}
