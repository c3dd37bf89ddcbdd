//! Notifications of the agent as lines for the client.

use serde_json::json;
use serde_json::value::RawValue;

use super::state::{Context, StreamJson};
use super::writer::{TextKind, bare};
use crate::acp::{RawObject, method, update as kind};
use crate::served::dialect::Served;
use crate::served::message::{object, raw};

/// The prefix of methods that carry lines of a CLI without a meaning in ACP.
pub(super) const EXTENSION: &str = "_stream_json/";

impl StreamJson {
    pub(super) fn notified(&mut self, method: &str, params: &RawValue, served: &mut Served) {
        if method == method::SESSION_UPDATE {
            let Some(members) = RawObject::parse(params) else {
                return;
            };
            let Some(update) = members.object("update") else {
                return;
            };
            let session = members.text("sessionId").unwrap_or_default();
            // A subagent has the id of its tool call as its session.
            let lane = (session != self.writer.session).then_some(&*session);
            self.update(lane, &update, served);
        } else if method == method::CANCEL_REQUEST {
            let id = RawObject::parse(params).and_then(|params| params.get("requestId"));
            if let Some(request) = id.and_then(|id| self.permissions.withdraw(id)) {
                served
                    .to_client
                    .push(super::permission::withdrawal(&request));
            }
        } else if method.starts_with(EXTENSION) && RawObject::parse(params).is_some() {
            served.to_client.push(bare(params.to_owned()));
        } else {
            tracing::debug!(
                method,
                "skipped a notification without a meaning in stream-json"
            );
        }
    }

    fn update(&mut self, lane: Option<&str>, update: &RawObject<'_>, served: &mut Served) {
        let out = &mut served.to_client;
        match update.text("sessionUpdate").as_deref().unwrap_or_default() {
            kind::AGENT_MESSAGE_CHUNK => self.chunk(lane, TextKind::Text, update, served),
            kind::AGENT_THOUGHT_CHUNK => self.chunk(lane, TextKind::Thinking, update, served),
            kind::USER_MESSAGE_CHUNK => {
                if let Some(content) = update.get("content") {
                    self.writer.user(lane, raw(&[content]), out);
                }
            }
            kind::TOOL_CALL | kind::TOOL_CALL_UPDATE => {
                self.tools.update(lane, update, &mut self.writer, out);
            }
            kind::PLAN => self.plan(lane, update, served),
            kind::AVAILABLE_COMMANDS => self.settings.set_commands(update),
            kind::CURRENT_MODE => {
                if let Some(mode) = update.text("currentModeId") {
                    self.mode_changed(&mode, served);
                }
            }
            kind::CONFIG_OPTION => {
                if let Some(options) = update.get("configOptions")
                    && self.settings.set_options(options)
                {
                    self.writer.model = self.settings.model().to_owned();
                }
            }
            kind::USAGE => {
                if let (Some(turn), Some(context)) = (&mut self.turn, Context::parse(update)) {
                    turn.context = Some(context);
                }
            }
            other => tracing::debug!(
                kind = other,
                "skipped an update without a meaning in stream-json"
            ),
        }
    }

    fn chunk(
        &mut self,
        lane: Option<&str>,
        kind: TextKind,
        update: &RawObject<'_>,
        served: &mut Served,
    ) {
        let out = &mut served.to_client;
        let Some(content) = update.object("content") else {
            return;
        };
        let message = update.text("messageId");
        match content.text("type").as_deref() {
            Some("text") => {
                if let Some(text) = content.get("text") {
                    self.writer.text(lane, kind, text, message.as_deref(), out);
                }
            }
            Some("image") => {
                let member = |name| content.get(name).unwrap_or(RawValue::NULL).to_owned();
                let source = object(&[
                    ("type", raw("base64")),
                    ("media_type", member("mimeType")),
                    ("data", member("data")),
                ]);
                self.writer.block(
                    lane,
                    object(&[("type", raw("image")), ("source", source)]),
                    out,
                );
            }
            _ => {
                let resource = content.object("resource");
                let uri = resource
                    .as_ref()
                    .unwrap_or(&content)
                    .text("uri")
                    .unwrap_or_default();
                let name = content.text("name").unwrap_or_else(|| uri.clone());
                let text = raw(&format!("[@{name}]({uri})"));
                self.writer.text(lane, kind, &text, message.as_deref(), out);
            }
        }
    }

    /// Writes a plan as a call of the tool `TodoWrite`.
    fn plan(&mut self, lane: Option<&str>, update: &RawObject<'_>, served: &mut Served) {
        let entries: Vec<serde_json::Value> = update
            .get("entries")
            .and_then(|entries| serde_json::from_str(entries.get()).ok())
            .unwrap_or_default();
        let todo = |entry: &serde_json::Value| json!({ "content": entry["content"], "status": entry["status"], "activeForm": entry["content"] });
        let todos: Vec<_> = entries.iter().map(todo).collect();
        let id = self.tools.next_plan();
        let input = json!({ "todos": todos });
        let call = json!({ "type": "tool_use", "id": id, "name": "TodoWrite", "input": input });
        let out = &mut served.to_client;
        self.writer.block(lane, raw(&call), out);
        let result = json!([{
            "tool_use_id": id, "type": "tool_result", "content": "The todo list was changed.", "is_error": false,
        }]);
        self.writer.user(lane, raw(&result), out);
    }
}
