//! A broadcast, and its text in each form.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use crate::acp::{TraceContext, with_trace};
use crate::api::BroadcastType;
use crate::cca::BroadcastMessage;
use crate::types::Timestamp;

/// The method of the notification. Methods of extensions begin with `_` (ACP, Extensibility).
pub(super) const METHOD: &str = "_acp-gateway/broadcast";

/// A message to many targets.
#[derive(Debug, Clone)]
pub struct Broadcast {
    pub id: Uuid,
    pub kind: BroadcastType,
    pub content: String,
    /// The principal that sends the broadcast.
    pub from: Arc<str>,
    pub at: Timestamp,
}

/// The params of the notification.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    broadcast_id: Uuid,
    #[serde(rename = "type")]
    kind: BroadcastType,
    content: &'a str,
    from: &'a str,
    at: Timestamp,
    #[serde(rename = "_meta")]
    meta: serde_json::Value,
}

impl Broadcast {
    /// The mark in `_meta` of a notification and of a content block.
    fn mark(&self) -> serde_json::Value {
        json!({ "acp-gateway": { "broadcast": { "id": self.id, "type": self.kind, "from": &*self.from } } })
    }

    pub(super) fn params(&self, trace: Option<&TraceContext>) -> Box<RawValue> {
        let params = Params {
            broadcast_id: self.id,
            kind: self.kind,
            content: &self.content,
            from: &self.from,
            at: self.at,
            meta: self.mark(),
        };
        with_trace(
            &to_raw_value(&params).expect("params have string keys and serialize"),
            trace,
        )
    }

    /// The message for a member of the dialect `cca`.
    pub(super) fn cca_message(&self) -> String {
        BroadcastMessage {
            broadcast_id: self.id,
            broadcast_type: self.kind.as_str(),
            content: &self.content,
            from: &self.from,
            at: self.at,
        }
        .text()
    }

    /// The content blocks of a prompt. Its first line marks the text as a broadcast.
    pub(super) fn blocks(&self) -> Box<RawValue> {
        let text = format!(
            "[broadcast {} from {}]\n\n{}",
            self.kind.as_str(),
            self.from,
            self.content
        );
        let blocks = json!([{ "type": "text", "text": text, "_meta": self.mark() }]);
        to_raw_value(&blocks).expect("a value serializes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_marked_as_a_broadcast() {
        let broadcast = Broadcast {
            id: Uuid::from_u128(7),
            kind: BroadcastType::HealthCheck,
            content: "are you \"well\"?".to_owned(),
            from: "alice".into(),
            at: Timestamp::from_millis(0),
        };
        let params: serde_json::Value = serde_json::from_str(broadcast.params(None).get()).unwrap();
        let mark = json!({ "acp-gateway": { "broadcast": {
            "id": broadcast.id, "type": "health_check", "from": "alice"
        } } });
        assert_eq!(
            params,
            json!({
                "broadcastId": broadcast.id,
                "type": "health_check",
                "content": "are you \"well\"?",
                "from": "alice",
                "at": "1970-01-01T00:00:00.000Z",
                "_meta": mark,
            })
        );
        let blocks: serde_json::Value = serde_json::from_str(broadcast.blocks().get()).unwrap();
        let text = "[broadcast health_check from alice]\n\nare you \"well\"?";
        assert_eq!(
            blocks,
            json!([{ "type": "text", "text": text, "_meta": mark }])
        );
        let message: serde_json::Value = serde_json::from_str(&broadcast.cca_message()).unwrap();
        assert_eq!(
            (&message["type"], &message["broadcast_type"]),
            (&json!("broadcast"), &json!("health_check"))
        );
    }
}
