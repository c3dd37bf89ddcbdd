//! The states and the policy of a session, and the states of an agent's process. Stored records contain them too.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use strum::VariantArray;
use utoipa::ToSchema;

use base::types::ToolProvider;

/// The current activity of a session.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// No turn is running.
    Idle,
    /// A turn is running.
    Running,
    /// A turn is running, and a request of the agent waits for an answer.
    Waiting,
    /// The session is closed. Clients can read its log. Prompts are rejected until `attach`.
    Closed,
}

/// The state of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PromptStatus {
    /// The prompt waits for the end of the running turn.
    Queued,
    /// The turn is running.
    Running,
    /// The agent ended the turn. A cancelled turn is also completed, with `stopReason: "cancelled"`.
    Completed,
    /// The turn failed; `error` contains the problem.
    Failed,
}

impl PromptStatus {
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// The outcome of a turn that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TurnOutcome {
    /// The agent ended the turn.
    Completed,
    /// The turn was cancelled.
    Cancelled,
    /// The turn failed.
    Failed,
}

/// Why the gateway asked the agent to end a turn, or ended a turn that was not sent.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr, Serialize, Deserialize, ToSchema,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum CancelCause {
    /// A client cancelled the turn, or closed or deleted the session.
    Person,
    /// The client of a chat protocol disconnected and did not return.
    Disconnect,
    /// The agent sent nothing for `turn_idle_timeout`.
    Silence,
    /// The agent sent nothing for `timeouts.tool_call_idle_timeout` while a tool call was in progress.
    ToolCallSilence,
    /// The deadline of the task passed.
    Deadline,
    /// The task used more tokens than its budget.
    Budget,
    /// The gateway stopped, and the turn did not end within `timeouts.drain_timeout`.
    Drain,
}

impl CancelCause {
    /// The value in events and in the API.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub const fn words(self) -> &'static str {
        match self {
            Self::Person => "a client cancelled the turn",
            Self::Disconnect => "the client disconnected",
            Self::Silence => "the agent sent nothing for turn_idle_timeout",
            Self::ToolCallSilence => {
                "the agent sent nothing for timeouts.tool_call_idle_timeout during a tool call"
            }
            Self::Deadline => "the deadline of the task passed",
            Self::Budget => "the task used more tokens than its budget",
            Self::Drain => "the gateway stopped before the turn ended",
        }
    }
}

/// The way in which a request was resolved.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Resolution {
    /// A client answered.
    Answered,
    /// The policy answered.
    Policy,
    /// The turn of the request was cancelled.
    Cancelled,
    /// The agent withdrew the request, or its process ended.
    Withdrawn,
    /// The request expired without an answer.
    Expired,
    /// The only ACP client that could answer has disconnected.
    Disconnected,
}

/// The policy for permission requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionPolicy {
    /// The action after the timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// The time in seconds that a request waits for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86_400)]
    pub timeout_seconds: Option<u64>,
    /// Kinds of tool calls that the gateway allows without a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
}

/// The permissions of a session's agent. A client can only restrict the values of the agent's entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionPolicy {
    /// The policy for permission requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<PermissionPolicy>,
    /// The provider of the `fs/*` methods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<ToolProvider>,
    /// The provider of the `terminal/*` methods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminals: Option<ToolProvider>,
}

/// The action for a permission request that is not answered in time.
#[derive(Serialize, Deserialize, ToSchema, VariantArray)]
#[serde(rename_all = "lowercase")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnTimeout {
    /// Rejects the request with the agent's own option.
    Reject,
    /// Waits until the turn ends.
    Wait,
}

/// How the gateway reaches an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// A child process of the gateway.
    Local,
    /// An agent to whose URL the gateway connects.
    Remote,
    /// A member of the fleet, which connects to the gateway.
    Fleet,
}

/// The current activity of an agent's process.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    strum::IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// The process starts, and has not answered `initialize`.
    Starting,
    /// The process has no turn, request or call. It can hold a session.
    Idle,
    /// A turn, a request or a call is open, or a session is being attached.
    Busy,
    /// The process releases its session, and can serve another one later.
    Releasing,
    /// The process is being stopped, or has ended.
    Stopping,
}

/// The request `session/prompt` of a client of `/acp`. The client gets its response at the end of the turn.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AcpRequest {
    /// The client, which keeps its name when it reconnects.
    #[schema(value_type = String)]
    pub client: Box<str>,
    /// The JSON-RPC id of the request, as the client sent it.
    #[schema(value_type = Value)]
    pub id: Box<RawValue>,
}
