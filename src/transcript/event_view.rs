//! The members of a log event that the folds read.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::Resolution;
use crate::types::{PromptId, RequestId, Timestamp};

/// The members of an event. Absent members are `None`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventView<'a> {
    pub(super) time: Option<Timestamp>,
    pub(super) prompt_id: Option<PromptId>,
    #[serde(borrow)]
    pub(super) by: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) session: Option<&'a RawValue>,
    /// The session from which this session was forked.
    #[serde(borrow)]
    pub(super) forked_from: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) context: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) update: Option<&'a RawValue>,
    /// The child session to which the update belongs.
    #[serde(borrow)]
    pub(super) subagent: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) late: bool,
    #[serde(borrow)]
    pub(super) stop_reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) problem: Option<&'a RawValue>,
    pub(super) request_id: Option<RequestId>,
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
    pub(super) resolution: Option<Resolution>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl<'a> EventView<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}
