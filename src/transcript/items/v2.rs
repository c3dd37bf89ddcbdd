//! The updates that only ACP v2 has: complete messages, and growing tool calls and terminals.

use super::{Body, Items, Kind, Source};
use crate::acp::{RawObject, update};
use crate::api::Role;
use crate::transcript::members::Null;

impl Items {
    /// Folds an update of a kind that only v2 has.
    pub(super) fn update_v2(&mut self, kind: &str, object: &RawObject<'_>, source: Source<'_>) {
        // In a v2 turn, `state_update` precedes all other updates, so null has the meaning of v2 from here
        // on.
        self.null = Null::Clears;
        match kind {
            update::USER_MESSAGE => self.message(Role::User, object, source),
            update::AGENT_MESSAGE => self.message(Role::Agent, object, source),
            update::AGENT_THOUGHT => self.message(Role::Thought, object, source),
            update::TOOL_CALL_CONTENT_CHUNK => self.tool_content(object, source),
            update::TERMINAL_UPDATE | update::TERMINAL_OUTPUT_CHUNK => {
                self.terminal(object, source);
            }
            // `state_update` is not an item. The status and the end of the turn show the state.
            _ => {}
        }
    }

    /// Folds a complete message. Without `content`, the existing content stays.
    fn message(&mut self, role: Role, object: &RawObject<'_>, source: Source<'_>) {
        let item = self.item(Kind::Message(role), object.text("messageId"), source);
        if let (Some((Body::Message { content, .. }, bytes)), Some(blocks)) =
            (item, object.get("content"))
        {
            content.replace(blocks, bytes.of(role, source));
        }
    }

    /// Appends an item to the content of a tool call.
    fn tool_content(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let item = self.item(Kind::ToolCall, object.text("toolCallId"), source);
        if let Some((Body::ToolCall(call), bytes)) = item {
            call.content_chunk(object, &mut bytes.rest);
        }
    }

    /// Folds an update or output of an agent's terminal.
    fn terminal(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let item = self.item(Kind::Terminal, object.text("terminalId"), source);
        let Some((Body::Terminal(members, output), bytes)) = item else {
            return;
        };
        if let Some(data) = object.get("data") {
            output.push(data, &mut bytes.rest);
            return members.merge(object, &["data", "_meta"], Null::Keeps, &mut bytes.rest);
        }
        if let Some(whole) = object.get("output") {
            output.replace(whole, &mut bytes.rest);
        }
        members.merge(object, &["output"], Null::Clears, &mut bytes.rest);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::acp::update::kind_of;

    fn items(updates: &[&str]) -> Vec<String> {
        let mut items = Items::default();
        let source = Source::default();
        for update in updates {
            let raw: &RawValue = serde_json::from_str(update).unwrap();
            items.update(&kind_of(raw).unwrap(), raw, source);
        }
        let (items, truncated) = items.finish(None);
        assert!(!truncated);
        items
            .iter()
            .map(|item| serde_json::to_string(item).unwrap())
            .collect()
    }

    const RUNNING: &str = r#"{"sessionUpdate":"state_update","state":"running"}"#;

    #[test]
    fn message_replaces_and_chunk_appends() {
        let shown = items(&[
            r#"{"sessionUpdate":"agent_message","messageId":"a"}"#,
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"b","content":{"type":"text","text":"x"}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"1"}}"#,
            r#"{"sessionUpdate":"agent_message","messageId":"a","content":[{"type":"text","text":"2"}]}"#,
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"3"}}"#,
            r#"{"sessionUpdate":"user_message","messageId":"a","content":[{"type":"text","text":"mine"}]}"#,
            r#"{"sessionUpdate":"agent_message","messageId":"b","content":[]}"#,
        ]);
        assert_eq!(
            shown,
            [
                r#"{"type":"message","role":"agent","messageId":"a","content":[{"type":"text","text":"23"}]}"#,
                r#"{"type":"message","role":"user","messageId":"a","content":[{"type":"text","text":"mine"}]}"#,
            ]
        );
    }

    #[test]
    fn v2_tool_call_is_patched() {
        let call = |members: &str| {
            format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"c",{members}}}"#)
        };
        let chunk = |n: u32| {
            format!(
                r#"{{"sessionUpdate":"tool_call_content_chunk","toolCallId":"c","content":{{"n":{n}}},"_meta":{{"x":1}}}}"#
            )
        };
        let null = call(r#""title":null,"content":null"#);
        let whole = call(r#""title":"T","content":[{"n":0}],"_meta":{"a":1}"#);
        let patch = call(r#""_meta":{"b":1.10,"a":null},"status":"paused""#);
        assert_eq!(
            items(&[RUNNING, &whole, &chunk(1), &patch, &chunk(2)]),
            [
                r#"{"type":"tool_call","toolCall":{"toolCallId":"c","title":"T","content":[{"n":0},{"n":1},{"n":2}],"_meta":{"b":1.10},"status":"paused"}}"#
            ]
        );
        assert_eq!(
            items(&[RUNNING, &whole, &chunk(1), &null, &chunk(2)]),
            [
                r#"{"type":"tool_call","toolCall":{"toolCallId":"c","_meta":{"a":1},"content":[{"n":2}]}}"#
            ]
        );
        assert_eq!(
            items(&[&whole, &null]),
            [
                r#"{"type":"tool_call","toolCall":{"toolCallId":"c","title":"T","content":[{"n":0}],"_meta":{"a":1}}}"#
            ],
            "in v1 null keeps the member"
        );
    }

    #[test]
    fn state_update_is_not_an_item() {
        assert!(
            items(&[
                RUNNING,
                r#"{"sessionUpdate":"state_update","state":"idle"}"#
            ])
            .is_empty()
        );
    }
}
