//! Events about the output of the agent and the end of its process.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::framer::{Event, Members};
use super::members::EventMembers;
use crate::api::schema::AcpUpdate;
use crate::types::PromptId;

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
    /// Why the connection ended, if the agent runs on another host.
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
