//! One-shot tasks.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::{CancelCause, PermissionPolicy};
use base::types::{AgentName, PromptId, SessionId, Timestamp};

use super::problem::Problem;
use super::schema::PromptContent;

/// A new task.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTask {
    pub agent: AgentName,
    /// The name of the task in lists. It is also the prompt if there is no `prompt`.
    #[schema(min_length = 1, max_length = 65_536, nullable = false)]
    pub description: Option<String>,
    /// The prompt for the agent.
    #[schema(value_type = Option<PromptContent>, nullable = false)]
    pub prompt: Option<Box<RawValue>>,
    #[serde(default)]
    #[schema(required = false)]
    pub priority: TaskPriority,
    /// The task that needs this one. A chain of tasks has at most four levels.
    #[schema(nullable = false)]
    pub parent_task: Option<Uuid>,
    /// The number of tokens after which the gateway cancels the task.
    #[schema(minimum = 1, nullable = false)]
    pub token_budget: Option<u64>,
    /// Arbitrary data of the client.
    #[schema(value_type = Option<Object>, nullable = false)]
    pub metadata: Option<Map<String, Value>>,
    /// The time at which the gateway cancels the task, also if it is queued.
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    pub deadline: Option<Timestamp>,
    /// An `https` URL of a host in `webhooks.allowed_hosts`. It gets the task when the task ends, as a webhook.
    #[schema(max_length = 2048, format = "uri", nullable = false)]
    pub callback_url: Option<String>,
    /// The policy for permission requests. By default, requests that the policy of the agent's entry does not allow
    /// are rejected after 5 seconds.
    #[schema(nullable = false)]
    pub permissions: Option<PermissionPolicy>,
    /// The working directory, as of a session.
    #[schema(max_length = 4096, nullable = false)]
    pub cwd: Option<String>,
}

/// The order of tasks. A task precedes later tasks of the same priority. A low task precedes normal tasks that are 10
/// minutes younger, and a normal task precedes high tasks that are an hour younger.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum TaskPriority {
    Low,
    #[default]
    Normal,
    High,
    /// Precedes all others.
    Critical,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskStatus {
    /// The task waits for a process.
    Queued,
    /// The task has a process or begins to get one.
    Running,
    /// The agent ended the turn.
    Completed,
    /// The task failed; `result.error` is the problem.
    Failed,
    /// A client cancelled the task.
    Cancelled,
    /// The gateway restarted while the task ran. The task does not run again.
    Interrupted,
}

impl TaskStatus {
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// A task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub task_id: Uuid,
    pub agent: AgentName,
    #[schema(required)]
    pub description: Option<String>,
    pub priority: TaskPriority,
    pub status: TaskStatus,
    #[schema(required)]
    pub parent_task: Option<Uuid>,
    /// The tasks whose parent this task is, newest first. At most 1,000. Absent in lists and in deliveries of webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub children: Option<Vec<Uuid>>,
    /// The session of the task. Its events and its transcript are those of any session.
    #[schema(required)]
    pub session_id: Option<SessionId>,
    #[schema(required)]
    pub prompt_id: Option<PromptId>,
    #[schema(required)]
    pub token_budget: Option<u64>,
    /// Whether the agent has reported its usage of tokens, so that the gateway can enforce the budget. Null without a
    /// budget, and until the task runs.
    #[schema(required)]
    pub budget_enforced: Option<bool>,
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    /// The scheme and the host of the URL. The rest can have a secret.
    #[schema(required)]
    pub callback_url: Option<String>,
    pub permissions: PermissionPolicy,
    /// The user that created the task.
    pub by: String,
    pub created_at: Timestamp,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Null until the task ends.
    #[schema(required)]
    pub result: Option<TaskResult>,
}

/// The result of a task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskResult {
    /// True if the agent ended the turn with `end_turn`.
    pub success: bool,
    /// The agent's messages, joined. At most 64 KiB; the transcript of the session has all messages.
    pub output: String,
    /// True if `output` omits a part of the messages.
    pub truncated: bool,
    /// The agent's stop reason, a value of ACP.
    #[schema(required)]
    pub stop_reason: Option<String>,
    /// Why the gateway cancelled the turn of the task. Absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cancel_cause: Option<CancelCause>,
    /// The tokens that the agent reported. Null if it reports none.
    #[schema(required)]
    pub tokens_used: Option<u64>,
    /// The time from the start to the end of the task in milliseconds.
    pub duration_ms: u64,
    /// The problem of a task that failed or was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Problem>, nullable = false)]
    pub error: Option<Box<RawValue>>,
    /// The `metadata` of the task.
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
}

/// A page of tasks, newest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskList {
    pub tasks: Vec<Task>,
    /// The cursor of the next page. Null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}
