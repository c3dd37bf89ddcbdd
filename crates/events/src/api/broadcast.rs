//! Broadcasts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use base::types::{AgentName, PromptId, SessionId};

/// The purpose of a broadcast, for its receivers. The gateway treats all of them alike.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum BroadcastType {
    Announcement,
    HealthCheck,
    ContextUpdate,
    PatternLearned,
    Custom,
}

/// The form in which the targets get the message.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    ToSchema,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum BroadcastForm {
    /// The notification `_acp-gateway/broadcast` to each process, or the message `broadcast` to a member of the dialect `cca`.
    #[default]
    Notification,
    /// A prompt in the queue of each session. It requires the scope `admin`.
    Prompt,
}

/// A message to many targets.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateBroadcast {
    #[serde(rename = "type")]
    pub kind: BroadcastType,
    /// The text of the message. At most 64 KiB in UTF-8.
    #[schema(min_length = 1, max_length = 65536)]
    pub content: String,
    pub to: BroadcastTo,
    #[serde(rename = "as", default)]
    #[schema(default = "notification")]
    pub form: BroadcastForm,
}

/// The targets: `"all"`, or lists of agents, sessions and members.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "expected \"all\", or an object with `agents`, `sessions` or `members`"
)]
pub enum BroadcastTo {
    All(AllTargets),
    Selected(SelectedTargets),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllTargets {
    /// All processes of the user's own sessions, unused processes, and all connected members. For a prompt: the sessions of
    /// these processes.
    All,
}

/// The selected targets, at most 1,000. A target that occurs twice gets the message once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SelectedTargets {
    /// Agents: all of their processes, or the sessions of these processes.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub agents: Vec<AgentName>,
    /// Sessions: their processes, or their queues.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub sessions: Vec<SessionId>,
    /// Members of the fleet: all of their processes, or the sessions of these processes.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub members: Vec<AgentName>,
}

impl SelectedTargets {
    pub fn count(&self) -> usize {
        self.agents.len() + self.sessions.len() + self.members.len()
    }
}

/// The kind of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BroadcastTargetKind {
    Agent,
    Session,
    Member,
}

/// How a target got the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BroadcastDelivery {
    /// The whole line is in the stdin of the process.
    Written,
    /// The message was sent on the connection of the agent on another host, or of the member of the dialect `cca`.
    Sent,
    /// `acp-gateway connect` has received the line, and writes it to the stdin of the process.
    Received,
    /// The prompt is durable, and runs or waits in the queue of the session.
    Queued,
}

/// Why a target did not get the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BroadcastReason {
    /// There is no such target for the user.
    #[error("there is no such target")]
    Unknown,
    /// The target has no process.
    #[error("the target has no process; attach the session, or send a prompt first")]
    NoProcess,
    /// No process of the target has a session.
    #[error("no process of the target has a session; name a session instead")]
    NoSession,
    /// The process has not completed its start.
    #[error("the process is starting; repeat the broadcast later")]
    Starting,
    /// The process is being stopped, or has ended.
    #[error("the process is being stopped, or has ended")]
    Ended,
    /// The member of the fleet is not connected.
    #[error("the member of the fleet is not connected; repeat the broadcast when it has returned")]
    Disconnected,
    /// The protocol of the agent has no extension notifications.
    #[error("the protocol of the agent has no extension notifications; send a prompt instead")]
    Unsupported,
    /// Too many messages wait for the target.
    #[error("too many messages wait for the target; repeat the broadcast later")]
    QueueFull,
    /// The target did not read the message within 5 seconds. It may still get the message later.
    #[error(
        "the target did not read the message within 5 seconds; it may still get the message later"
    )]
    Timeout,
    /// The session rejected the prompt. `detail` begins with the problem code.
    #[error("the session rejected the prompt")]
    Rejected,
}

/// A target that got the message.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BroadcastReached {
    pub kind: BroadcastTargetKind,
    /// The name of the agent or of the member. Absent for a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub name: Option<AgentName>,
    /// The process that got the notification, as in `GET /v1/agents/{agent}/status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub agent_id: Option<Uuid>,
    /// The session, or the session of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session_id: Option<SessionId>,
    /// The turn of a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub prompt_id: Option<PromptId>,
    pub delivery: BroadcastDelivery,
}

/// A target that did not get the message.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BroadcastNotReached {
    pub kind: BroadcastTargetKind,
    /// The name of the agent or of the member. Absent for a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub name: Option<AgentName>,
    /// The process that did not get the notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub agent_id: Option<Uuid>,
    /// The session, or the session of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session_id: Option<SessionId>,
    pub reason: BroadcastReason,
    /// An explanation for a person.
    pub detail: String,
}

/// The result of a broadcast for each target.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BroadcastReport {
    /// The id of the broadcast, also in each message.
    pub id: Uuid,
    #[serde(rename = "type")]
    pub kind: BroadcastType,
    pub reached: Vec<BroadcastReached>,
    pub not_reached: Vec<BroadcastNotReached>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_serde() {
        for kind in [
            BroadcastType::Announcement,
            BroadcastType::HealthCheck,
            BroadcastType::ContextUpdate,
            BroadcastType::PatternLearned,
            BroadcastType::Custom,
        ] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.into_str());
        }
        for form in [BroadcastForm::Notification, BroadcastForm::Prompt] {
            assert_eq!(serde_json::to_value(form).unwrap(), form.into_str());
        }
    }
}
