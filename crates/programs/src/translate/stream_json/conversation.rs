//! Messages, tool calls and subagents of the CLI as updates of ACP.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounds::MAX_NAME;
use super::streamed::TextKind;
use super::tool::{
    OpenTool, describe, image, is_plan_tool, result_content, starts_subagent, todo_plan, tool_meta,
};
use super::translator::Translator;
use super::turn::total_tokens;
use crate::translate::message::{
    LineError, Object, ToolUpdate, chunk, cut, missing, notification, update,
};
use wire::acp::{object, to_raw, update as kind};

/// Before and after the output of a command of the CLI itself.
const LOCAL_OUTPUT: (&str, &str) = ("<local-command-stdout>", "</local-command-stdout>");

/// The kind of a text block, or of its delta, with the name of its member.
fn text_kind(block: &str) -> Option<(TextKind, &'static str)> {
    match block {
        "text" | "text_delta" => Some((TextKind::Message, "text")),
        "thinking" | "thinking_delta" => Some((TextKind::Thought, "thinking")),
        _ => None,
    }
}

impl Translator {
    /// The subagent that wrote a line. Announces it with its first line.
    fn parent(&mut self, line: &Object<'_>) -> Option<String> {
        let parent = line.text("parent_tool_use_id")?.into_owned();
        self.announce_subagent(&parent);
        Some(parent)
    }

    fn announce_subagent(&mut self, id: &str) {
        if !self.conversation.subagents.add(id) {
            return;
        }
        let tool = self.conversation.tools.get(id);
        let title = tool.and_then(|tool| tool.input["description"].as_str());
        let title = title.unwrap_or("Task");
        let announced = json!({ "sessionUpdate": kind::SUBAGENT, "sessionId": id, "title": title, "state": { "state": "running" } });
        let session = self.lane_session(tool.and_then(OpenTool::parent));
        self.out.push(update(session, &announced));
    }

    pub(super) fn stream_event(&mut self, line: &Object<'_>) -> Result<(), LineError> {
        let event = line.required_object("event")?;
        let name = event.required_text("type")?;
        if !matches!(
            &*name,
            "message_start" | "content_block_start" | "content_block_delta"
        ) {
            return Ok(());
        }
        let parent = self.parent(line);
        let parent = parent.as_deref();
        match &*name {
            "message_start" => {
                let message = event.required_object("message")?.required_text("id")?;
                self.conversation.streamed.begin_message(parent, &message);
            }
            "content_block_start" => {
                let index = event.required_number("index")?;
                let block = event.required_object("content_block")?;
                let block_type = block.required_text("type")?;
                if let Some((text, _)) = text_kind(&block_type) {
                    self.conversation.streamed.begin_block(parent, index, text);
                } else if block_type == "tool_use" {
                    self.tool_use(parent, &block, false)?;
                }
            }
            _ => {
                let index = event.required_number("index")?;
                let delta = event.required_object("delta")?;
                let Some((text_kind, member)) = text_kind(&delta.required_text("type")?) else {
                    return Ok(());
                };
                let text = delta.required(member)?;
                if text.get() == "\"\"" {
                    return Ok(());
                }
                self.wrote_text(parent, text_kind);
                let session = self.lane_session(parent).to_owned();
                let streamed = &mut self.conversation.streamed;
                let message = streamed.add(parent, index, text_kind, text);
                self.out
                    .push(chunk(&session, text_kind.chunk(), text, message));
            }
        }
        Ok(())
    }

    fn wrote_text(&mut self, parent: Option<&str>, text: TextKind) {
        if let (Some((_, turn)), None, TextKind::Message) = (&mut self.turn, parent, text) {
            turn.has_text = true;
        }
    }

    pub(super) fn assistant(&mut self, line: &Object<'_>) -> Result<(), LineError> {
        let message = line.required_object("message")?;
        let id = message.required_text("id")?;
        let mut blocks = Vec::new();
        for block in message.required_array("content")? {
            blocks.push((block, Object::parse("content", block)?));
        }
        let parent = self.parent(line);
        let parent = parent.as_deref();
        let failed = line.text("error");
        if let (Some((_, turn)), None) = (&mut self.turn, parent) {
            match (&failed, message.object("usage")) {
                (Some(kind), _) => turn.api_error = Some(cut(kind, MAX_NAME).to_owned()),
                (None, Some(usage)) => turn.context_tokens = Some(total_tokens(&usage)),
                (None, None) => {}
            }
        }
        for (raw, block) in blocks {
            let block_type = block.required_text("type")?;
            match &*block_type {
                // The result of the turn reports the error of the model API.
                "text" if failed.is_some() && self.turn.is_some() => {}
                "text" | "thinking" => self.text_block(parent, &id, &block_type, &block)?,
                "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                    self.tool_use(parent, &block, true)?;
                }
                "image" => {
                    let block = serde_json::from_str(raw.get()).unwrap_or_default();
                    if let Some(content) = image(&block) {
                        let chunk = json!({ "sessionUpdate": kind::AGENT_MESSAGE_CHUNK, "content": content, "messageId": id });
                        self.out.push(update(self.lane_session(parent), &chunk));
                    }
                }
                // Its content is encrypted.
                "redacted_thinking" => {}
                _ if block.get("tool_use_id").is_some() => self.tool_result(&block, None)?,
                other => {
                    // The value keeps its bytes: a second parse could reject it.
                    let params = object(&[
                        ("block", raw.to_owned()),
                        ("sessionId", to_raw(self.lane_session(parent))),
                    ]);
                    let method = format!("_stream_json/content_block/{other}");
                    self.out.push(notification(&method, params));
                }
            }
        }
        Ok(())
    }

    fn text_block(
        &mut self,
        parent: Option<&str>,
        message: &str,
        block_type: &str,
        block: &Object<'_>,
    ) -> Result<(), LineError> {
        let Some((text_kind, member)) = text_kind(block_type) else {
            return Ok(());
        };
        let text = block.required(member)?;
        let streamed = &mut self.conversation.streamed;
        if let Some(rest) = streamed.remainder(parent, message, text_kind, text) {
            self.wrote_text(parent, text_kind);
            let session = self.lane_session(parent);
            self.out
                .push(chunk(session, text_kind.chunk(), &rest, Some(message)));
        }
        Ok(())
    }

    /// Translates a tool call. `complete`: the input is complete. A call that was begun before is updated.
    fn tool_use(
        &mut self,
        parent: Option<&str>,
        block: &Object<'_>,
        complete: bool,
    ) -> Result<(), LineError> {
        let id = block.required_text("id")?;
        let name = block.required_text("name")?;
        let input = block.get("input").map_or("null", RawValue::get);
        let input: Value = serde_json::from_str(input).unwrap_or_default();
        let begun = self.conversation.tools.get(&id).is_some();
        let session = self.lane_session(parent).to_owned();
        if complete && let Some(plan) = todo_plan(&name, &input) {
            self.out.push(update(&session, &plan));
        }
        if !is_plan_tool(&name) {
            let info = describe(&name, &input, &self.session.cwd);
            let call = ToolUpdate {
                session_update: if begun {
                    kind::TOOL_CALL_UPDATE
                } else {
                    kind::TOOL_CALL
                },
                tool_call_id: &id,
                title: Some(&info.title),
                kind: Some(info.kind),
                status: (!begun).then_some("pending"),
                content: Some(Cow::Owned(to_raw(&info.content))),
                locations: info.locations,
                raw_input: if complete { block.get("input") } else { None },
                raw_output: None,
                meta: (!begun).then(|| tool_meta(&name)),
            };
            self.out.push(update(&session, &call));
        }
        let tool = OpenTool::new(&id, &name, &input, parent);
        self.conversation.tools.insert(tool);
        if complete && starts_subagent(&name) {
            self.announce_subagent(&id);
        }
        Ok(())
    }

    /// Translates a line `user`: results of tools, and notes of the CLI. The notes and the copies of prompts are no part
    /// of the conversation.
    pub(super) fn user(&mut self, line: &Object<'_>) -> Result<(), LineError> {
        let content = line.required_object("message")?.required("content")?;
        let parent = self.parent(line);
        if let Ok(text) = serde_json::from_str::<Cow<'_, str>>(content.get()) {
            let output = text.strip_prefix(LOCAL_OUTPUT.0);
            let output = output.and_then(|text| text.strip_suffix(LOCAL_OUTPUT.1));
            if self.turn.is_some()
                && let Some(output) = output.filter(|output| !output.is_empty())
            {
                self.wrote_text(parent.as_deref(), TextKind::Message);
                let kind = kind::AGENT_MESSAGE_CHUNK;
                self.out
                    .push(chunk(&self.session.id, kind, &to_raw(output), None));
            }
            return Ok(());
        }
        let blocks: Vec<&RawValue> =
            serde_json::from_str(content.get()).map_err(|_| missing("message", "content"))?;
        for block in blocks {
            let block = Object::parse("content", block)?;
            if block.required_text("type")?.ends_with("tool_result") {
                self.tool_result(&block, line.get("tool_use_result"))?;
            }
        }
        Ok(())
    }

    fn tool_result(
        &mut self,
        block: &Object<'_>,
        structured: Option<&RawValue>,
    ) -> Result<(), LineError> {
        let id = block.required_text("tool_use_id")?;
        let raw = block.get("content");
        let value = |raw: Option<&RawValue>| -> Value {
            raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
                .unwrap_or_default()
        };
        let content = value(raw);
        let structured = value(structured);
        let is_error = block.is_true("is_error");
        let tool = self.conversation.tools.remove(&id);
        let name = tool.as_ref().map_or("", |tool| &tool.name);
        let parent = tool.as_ref().and_then(OpenTool::parent);
        let session = self.lane_session(parent).to_owned();
        if let Some(tool) = tool.as_ref().filter(|tool| is_plan_tool(&tool.name)) {
            let tasks = &mut self.conversation.tasks;
            let plan = tasks.apply(&tool.name, &tool.input, &structured, &content);
            if let (Some(plan), false) = (plan, is_error) {
                self.out.push(update(&session, &plan));
            }
            return Ok(());
        }
        let overwritten = structured["originalFile"].as_str();
        let content = match (overwritten, &tool) {
            // A forgotten input has no text. The call then keeps the content that it began with.
            (Some(old), Some(OpenTool { input, .. }))
                if name == "Write" && !is_error && input["content"].is_string() =>
            {
                Some(vec![json!({
                    "type": "diff", "path": input["file_path"], "oldText": old, "newText": input["content"],
                })])
            }
            _ => result_content(name, &content, is_error),
        };
        let result = ToolUpdate {
            session_update: kind::TOOL_CALL_UPDATE,
            tool_call_id: &id,
            status: Some(if is_error { "failed" } else { "completed" }),
            content: content.map(|content| Cow::Owned(to_raw(&content))),
            raw_output: raw,
            ..ToolUpdate::default()
        };
        self.out.push(update(&session, &result));
        if self.conversation.subagents.contains(&id) {
            let ended = json!({ "sessionUpdate": kind::SUBAGENT, "sessionId": id, "state": { "state": "idle" } });
            self.out.push(update(&session, &ended));
        }
        Ok(())
    }
}
