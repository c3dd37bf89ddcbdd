//! Events of a run.

use bytes::BytesMut;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::acp::{RawObject, to_raw, update};
use crate::event::write_json;

/// An event. Absent members are left out, because clients reject null.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Frame<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) activity_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replace: Option<bool>,
}

pub(super) fn reasoning_start(out: &mut BytesMut, id: &str) {
    write_json(
        out,
        &Frame {
            kind: "REASONING_START",
            message_id: Some(id),
            ..Frame::default()
        },
    );
    let (kind, role) = ("REASONING_MESSAGE_START", Some("reasoning"));
    write_json(
        out,
        &Frame {
            kind,
            message_id: Some(id),
            role,
            ..Frame::default()
        },
    );
}

pub(super) fn reasoning_end(out: &mut BytesMut, id: &str) {
    write_json(
        out,
        &Frame {
            kind: "REASONING_MESSAGE_END",
            message_id: Some(id),
            ..Frame::default()
        },
    );
    write_json(
        out,
        &Frame {
            kind: "REASONING_END",
            message_id: Some(id),
            ..Frame::default()
        },
    );
}

/// An activity. One with the same id replaces it.
pub(super) fn activity(out: &mut BytesMut, id: &str, kind: &str, content: &RawValue) {
    let frame = Frame {
        kind: "ACTIVITY_SNAPSHOT",
        message_id: Some(id),
        activity_type: Some(kind),
        content: Some(content),
        replace: Some(true),
        ..Frame::default()
    };
    write_json(out, &frame);
}

/// An event of the gateway's own.
pub(super) fn custom(out: &mut BytesMut, name: &str, value: &RawValue) {
    #[derive(Serialize)]
    struct Custom<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        name: &'a str,
        value: &'a RawValue,
    }
    write_json(
        out,
        &Custom {
            kind: "CUSTOM",
            name,
            value,
        },
    );
}

/// A change of the state: a JSON Patch.
pub(super) fn state_delta(out: &mut BytesMut, kind: &str, update: &RawValue) {
    #[derive(Serialize)]
    struct Change<'a> {
        op: &'a str,
        path: &'a str,
        value: &'a RawValue,
    }
    #[derive(Serialize)]
    struct Delta<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        delta: [Change<'a>; 1],
    }
    let (path, member) = match kind {
        update::CURRENT_MODE => ("/mode", "currentModeId"),
        update::CONFIG_OPTION => ("/options", "configOptions"),
        update::SESSION_INFO => ("/title", "title"),
        _ => ("/commands", "availableCommands"),
    };
    if let Some(value) = RawObject::parse(update).and_then(|update| update.get(member)) {
        write_json(
            out,
            &Delta {
                kind: "STATE_DELTA",
                delta: [Change {
                    op: "add",
                    path,
                    value,
                }],
            },
        );
    }
}

/// The tokens of a turn. `None` unless the agent reports them.
pub(super) fn usage_of(raw: &RawValue) -> Option<Box<RawValue>> {
    let usage = RawObject::parse(raw)?;
    let tokens = |key| usage.get(key).and_then(|raw| raw.get().parse::<u64>().ok());
    let (input, output) = (tokens("inputTokens")?, tokens("outputTokens")?);
    Some(to_raw(
        &json!([{ "inputTokens": input, "outputTokens": output }]),
    ))
}
