//! The messages of the dialect. Each WebSocket text message is one JSON object with `type`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use base::types::Timestamp;

pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// A message of a member. `None` members were not sent.
#[derive(Debug)]
pub(super) enum FromMember {
    /// With `id`: the gateway answers with the same `reply_to`. With `reply_to`: the answer to a heartbeat of the gateway.
    Heartbeat(Heartbeat),
    Progress(Progress),
    Result(TaskResult),
    Response(Response),
    /// A request for the state of the member at the gateway.
    GetStatus(Request),
    /// A broadcast of a member, or an unknown type: without effect.
    Ignored(String),
}

#[derive(Debug, Deserialize)]
pub(super) struct Heartbeat {
    pub(super) id: Option<Box<RawValue>>,
    pub(super) reply_to: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Progress {
    pub(super) task_id: String,
    pub(super) output: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct TaskResult {
    pub(super) task_id: String,
    pub(super) success: bool,
    /// The output that `task_progress` has not sent.
    pub(super) output: Option<String>,
    pub(super) error: Option<String>,
    pub(super) tokens_used: Option<TokensUsed>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct TokensUsed {
    pub(super) input: u64,
    pub(super) output: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Response {
    pub(super) reply_to: u64,
    pub(super) result: Option<Box<RawValue>>,
    pub(super) error: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pub(super) id: Box<RawValue>,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

pub(super) fn parse(text: &str) -> Result<FromMember, serde_json::Error> {
    let Kind { kind } = serde_json::from_str(text)?;
    Ok(match &*kind {
        "heartbeat" => FromMember::Heartbeat(serde_json::from_str(text)?),
        "task_progress" => FromMember::Progress(serde_json::from_str(text)?),
        "task_result" => FromMember::Result(serde_json::from_str(text)?),
        "response" => FromMember::Response(serde_json::from_str(text)?),
        "get_status" => FromMember::GetStatus(serde_json::from_str(text)?),
        _ => FromMember::Ignored(kind),
    })
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ToMember<'a> {
    Heartbeat {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reply_to: Option<&'a RawValue>,
    },
    TaskAssign {
        task_id: &'a str,
        session_id: &'a str,
        cwd: &'a str,
        description: &'a str,
    },
    TaskCancel {
        task_id: &'a str,
    },
    Response {
        reply_to: &'a RawValue,
        result: &'a Status,
    },
}

/// A broadcast of a client. It has no `id`, so the member does not answer it.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "broadcast")]
pub struct BroadcastMessage<'a> {
    pub broadcast_id: Uuid,
    pub broadcast_type: &'a str,
    pub content: &'a str,
    pub from: &'a str,
    pub at: Timestamp,
}

impl BroadcastMessage<'_> {
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a message has string keys and serializes")
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Status {
    pub(super) name: String,
    /// The tasks that have no result.
    pub(super) tasks: Vec<String>,
}

impl ToMember<'_> {
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("a message has string keys and serializes")
    }
}

/// A request of any method. The method is the type of the message. Returns `None` for the type of another message of the
/// gateway.
pub(super) fn request(method: &str, id: u64, params: &RawValue) -> Option<String> {
    let own = ["heartbeat", "task_assign", "task_cancel", "response"];
    let method = method.strip_prefix('_').unwrap_or(method);
    let message = OutgoingRequest {
        kind: method,
        id,
        params,
    };
    (!own.contains(&method)).then(|| serde_json::to_string(&message).expect("a message serializes"))
}

#[derive(Serialize)]
struct OutgoingRequest<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    id: u64,
    params: &'a RawValue,
}
