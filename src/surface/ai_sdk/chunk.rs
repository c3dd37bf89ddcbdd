//! The frames of the UI message stream. Version 5, 6 and 7 of the AI SDK accept all of them, except approvals.

use serde::Serialize;
use serde_json::value::RawValue;

/// A frame. A member that is null would end the stream in some versions, so absent members are left out.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Chunk<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Output<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error_text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dynamic: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provider_executed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preliminary: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval_descriptor: Option<Descriptor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) media_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) transient: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_metadata: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finish_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
}

/// The output of a tool call: the content of ACP and its status.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Output<'a> {
    pub(super) status: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) content: &'a [Box<RawValue>],
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "rawOutput")]
    pub(super) raw: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) locations: Option<&'a RawValue>,
}

/// The choices of a permission request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) options: Option<&'a RawValue>,
    /// The time at which the gateway answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<String>,
}
