//! The members of an event that the gateway reads back from the log.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::api::Resolution;
use crate::types::{RequestId, TerminalId};

/// The members after the head. Members that the event does not have are `None`. Payloads of agents stay raw.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload<'a> {
    #[serde(borrow)]
    pub by: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub session: Option<&'a RawValue>,
    /// The session that this session was forked from.
    #[serde(borrow)]
    pub forked_from: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub context: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    pub update: Option<&'a RawValue>,
    /// The child session that sent the update or the request.
    #[serde(borrow)]
    pub subagent: Option<Cow<'a, str>>,
    #[serde(default)]
    pub late: bool,
    #[serde(borrow)]
    pub stop_reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub problem: Option<&'a RawValue>,
    pub request_id: Option<RequestId>,
    #[serde(borrow)]
    pub method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub params: Option<&'a RawValue>,
    pub resolution: Option<Resolution>,
    #[serde(borrow)]
    pub result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
    pub terminal_id: Option<TerminalId>,
    /// The number of output bytes before `data`.
    pub offset: Option<u64>,
    #[serde(borrow)]
    pub data: Option<Cow<'a, str>>,
}

impl<'a> Payload<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

/// The changed members of `session.changed`. A member that is null is `Some`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChangedMembers<'a> {
    #[serde(borrow, deserialize_with = "present")]
    pub title: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub metadata: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub current_mode_id: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub config_options: Option<&'a RawValue>,
}

impl<'a> ChangedMembers<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
