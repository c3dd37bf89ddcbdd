//! The members of an event that the gateway reads back from the log.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::api::Resolution;
use base::types::{AcpRequest, CancelCause, RequestId, TerminalId, Timestamp};

/// The members after the head. Members that the event does not have are `None`. Payloads of agents stay raw.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload<'a> {
    // This attribute lets all members borrow.
    #[serde(borrow)]
    pub by: Option<Cow<'a, str>>,
    pub session: Option<&'a RawValue>,
    /// The session that this session was forked from.
    pub forked_from: Option<Cow<'a, str>>,
    pub context: Option<Cow<'a, str>>,
    pub prompt: Option<&'a RawValue>,
    /// The request of the ACP client that sent the prompt.
    pub acp_request: Option<AcpRequest>,
    /// The ACP client that alone can answer a request.
    pub acp_client: Option<Cow<'a, str>>,
    pub update: Option<&'a RawValue>,
    #[serde(rename = "_meta")]
    pub meta: Option<&'a RawValue>,
    /// Other members beside `update`.
    pub more: Option<&'a RawValue>,
    /// The child session that sent the update or the request.
    pub subagent: Option<Cow<'a, str>>,
    #[serde(default)]
    pub late: bool,
    /// Whether the update only repeats the open prompt.
    #[serde(default)]
    pub echo: bool,
    pub stop_reason: Option<Cow<'a, str>>,
    /// Why the gateway cancelled the turn.
    pub cancel_cause: Option<CancelCause>,
    pub usage: Option<&'a RawValue>,
    pub problem: Option<&'a RawValue>,
    pub request_id: Option<RequestId>,
    pub method: Option<Cow<'a, str>>,
    pub params: Option<&'a RawValue>,
    /// The tool call of a permission request that was resolved.
    pub tool_call_id: Option<Cow<'a, str>>,
    pub resolution: Option<Resolution>,
    /// The time at which the gateway answers a request itself.
    pub deadline: Option<Timestamp>,
    pub result: Option<&'a RawValue>,
    pub error: Option<&'a RawValue>,
    pub elicitation_id: Option<Cow<'a, str>>,
    pub terminal_id: Option<TerminalId>,
    /// The number of output bytes before `data`.
    pub offset: Option<u64>,
    pub data: Option<Cow<'a, str>>,
}

/// The changed members of `session.changed`. A member that is null is `Some`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChangedMembers<'a> {
    #[serde(borrow, deserialize_with = "present")]
    pub title: Option<&'a RawValue>,
    #[serde(deserialize_with = "present")]
    pub metadata: Option<&'a RawValue>,
    #[serde(deserialize_with = "present")]
    pub current_mode_id: Option<&'a RawValue>,
    #[serde(deserialize_with = "present")]
    pub config_options: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
