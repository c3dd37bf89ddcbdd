//! Events about the output, the requests, the terminals and the process of the agent.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::frame::{Event, EventMembers, Members};
use crate::api::Resolution;
use crate::api::schema::{AcpUpdate, RequestParams};
use base::types::{PromptId, RequestId, TerminalId, Timestamp};

/// An update of the agent.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionUpdate<'a> {
    /// Raw ACP.
    #[schema(value_type = AcpUpdate)]
    pub update: &'a RawValue,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub meta: Option<&'a RawValue>,
    /// Other members that the agent sent beside `update`, raw. This version of the gateway does not know
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub more: Option<&'a RawValue>,
    /// The agent's id of the child session that sent the update. Absent for the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<&'a str>,
    /// True if the update arrived after the end of its turn.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
    /// True for history that the agent replayed when the session was adopted or forked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub replayed: bool,
    /// True for a message of the user that only repeats the open prompt. The transcript and `/acp` omit it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub echo: bool,
}

impl SessionUpdate<'_> {
    /// The event of an update that has no further members. Its bytes equal those of an encoded
    /// `SessionUpdate`, without a copy.
    pub fn chunk<'a>(
        prompt: Option<PromptId>,
        update: &'a [u8],
        meta: Option<&'a [u8]>,
        late: bool,
    ) -> Event<'a> {
        let late: &[u8] = if late { b",\"late\":true" } else { b"" };
        let members = match meta {
            Some(meta) => [b"\"update\":", update, b",\"_meta\":", meta, late],
            None => [b"\"update\":", update, late, b"", b""],
        };
        Event {
            kind: Self::TYPE,
            prompt,
            members: Members(members),
        }
    }
}

/// The process that held the session ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentExited<'a> {
    #[schema(required)]
    pub exit_code: Option<i32>,
    #[schema(required)]
    pub signal: Option<&'a str>,
    /// The last output of the process to stderr.
    pub stderr_tail: &'a str,
    /// The limit of the agent's entry for which the kernel killed the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceeded_limit: Option<&'a str>,
    /// Why the connection ended, if the agent is not a child process of the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disconnected: Option<&'a str>,
}

/// The agent wrote lines to stdout that are not JSON-RPC.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct AgentInvalidOutput {
    pub lines: u64,
    pub bytes: u64,
    /// The start of the first line, at most 300 bytes, without the secrets that the agent received.
    pub excerpt: Box<str>,
}

/// A notification that the gateway does not know.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Extension<'a> {
    pub method: &'a str,
    #[schema(required, value_type = Option<Value>)]
    pub params: Option<&'a RawValue>,
    /// The agent's id of the child session that sent the notification.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<&'a str>,
}

/// The agent sent a request that clients can answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestCreated<'a> {
    pub request_id: RequestId,
    pub method: &'a str,
    /// Raw ACP, with the gateway's `sessionId`.
    #[schema(value_type = RequestParams)]
    pub params: &'a RawValue,
    /// The agent's id of the child session that sent the request. Absent for the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<&'a str>,
    /// The ACP client that alone can answer: the client of `/acp` that started the turn. Absent if every client can answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_client: Option<&'a str>,
    /// The time at which the gateway answers the request if no client has answered. Absent if it has no
    /// deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub deadline: Option<Timestamp>,
}

/// A request of the agent was answered or ended in another way.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestResolved<'a> {
    pub request_id: RequestId,
    pub method: &'a str,
    /// The tool call of a permission request, if the request names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tool_call_id: Option<&'a str>,
    pub resolution: Resolution,
    /// The ACP client that alone could answer. Absent if every client could answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_client: Option<&'a str>,
    /// The user that answered. Absent unless a client answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub error: Option<&'a RawValue>,
}

/// The agent reported that an elicitation with mode `url` is complete.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationCompleted<'a> {
    pub elicitation_id: &'a str,
    /// Other members that the agent sent, raw.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub more: Option<&'a RawValue>,
}

/// The gateway runs a command for the agent.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalCreated<'a> {
    pub terminal_id: TerminalId,
    pub command: &'a str,
    pub args: &'a [String],
    pub cwd: &'a str,
}

/// A terminal printed output.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalOutput<'a> {
    pub terminal_id: TerminalId,
    /// The number of output bytes before `data`. It counts output that the log omitted, so it may exceed the
    /// logged bytes.
    pub offset: u64,
    /// Output of the command to stdout and stderr, as complete characters.
    pub data: &'a str,
}

/// The last event of a terminal.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalExited<'a> {
    pub terminal_id: TerminalId,
    #[schema(required)]
    pub exit_code: Option<i32>,
    /// A signal name such as `SIGKILL`. If `exitCode` is null too, the cause of the exit is unknown.
    #[schema(required)]
    pub signal: Option<&'a str>,
}
