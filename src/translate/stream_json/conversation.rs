//! Messages, tool calls and subagents of the CLI as updates of ACP.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounds::MAX_NAME;
use super::open_tools::OpenTool;
use super::plan::{is_plan_tool, todo_plan};
use super::streamed::TextKind;
use super::tool::{describe, image, result_content, starts_subagent, tool_meta};
use super::translator::Translator;
use super::turn::total_tokens;
use crate::acp::update as kind;
use crate::translate::budget::cut;
use crate::translate::message::{chunk, notification, to_raw, update};
use crate::translate::object::{LineError, Object};
use crate::translate::protocol::Output;

/// Before and after the output of a command of the CLI itself.
const LOCAL_OUTPUT: (&str, &str) = ("<local-command-stdout>", "</local-command-stdout>");

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolCall<'a> {
    session_update: &'static str,
    #[serde(rename = "toolCallId")]
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locations: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_input: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_output: Option<&'a RawValue>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<Value>,
}

const fn chunk_kind(text: TextKind) -> &'static str {
    match text {
        TextKind::Message => kind::AGENT_MESSAGE_CHUNK,
        TextKind::Thought => kind::AGENT_THOUGHT_CHUNK,
    }
}

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
    fn parent(&mut self, line: &Object<'_>, out: &mut Vec<Output>) -> Option<String> {
        let parent = line.text("parent_tool_use_id")?.into_owned();
        self.announce_subagent(&parent, out);
        Some(parent)
    }

    fn announce_subagent(&mut self, id: &str, out: &mut Vec<Output>) {
        if !self.conversation.subagents.add(id) {
            return;
        }
        let tool = self.conversation.tools.get(id);
        let title = tool
            .and_then(|tool| tool.input()["description"].as_str())
            .unwrap_or("Task");
        let announced = json!({ "sessionUpdate": kind::SUBAGENT, "sessionId": id, "title": title, "state": { "state": "running" } });
        out.push(update(
            self.lane_session(tool.and_then(OpenTool::parent)),
            &announced,
        ));
    }

    /// Translates an event of the model API (partial messages).
    pub(super) fn stream_event(
        &mut self,
        line: &Object<'_>,
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let event = line.required_object("event")?;
        let name = event.required_text("type")?;
        if !matches!(
            &*name,
            "message_start" | "content_block_start" | "content_block_delta"
        ) {
            return Ok(());
        }
        let parent = self.parent(line, out);
        let parent = parent.as_deref();
        match &*name {
            "message_start" => {
                let message = event.required_object("message")?.required_text("id")?;
                self.conversation.streamed.begin_message(parent, &message);
            }
            "content_block_start" => {
                let (index, block) = (
                    event.required_number("index")?,
                    event.required_object("content_block")?,
                );
                let block_type = block.required_text("type")?;
                if let Some((text, _)) = text_kind(&block_type) {
                    self.conversation.streamed.begin_block(parent, index, text);
                } else if block_type == "tool_use" {
                    self.tool_use(parent, &block, false, out)?;
                }
            }
            _ => {
                let (index, delta) = (
                    event.required_number("index")?,
                    event.required_object("delta")?,
                );
                let Some((text_kind, member)) = text_kind(&delta.required_text("type")?) else {
                    return Ok(());
                };
                let text = delta.required(member)?;
                if text.get() == "\"\"" {
                    return Ok(());
                }
                self.wrote_text(parent, text_kind);
                let session = self.lane_session(parent).to_owned();
                let message = self
                    .conversation
                    .streamed
                    .add(parent, index, text_kind, text);
                out.push(chunk(&session, chunk_kind(text_kind), text, message));
            }
        }
        Ok(())
    }

    fn wrote_text(&mut self, parent: Option<&str>, text: TextKind) {
        if let (Some((_, turn)), None, TextKind::Message) = (&mut self.turn, parent, text) {
            turn.has_text = true;
        }
    }

    /// Translates a whole message, or one block of it.
    pub(super) fn assistant(
        &mut self,
        line: &Object<'_>,
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let message = line.required_object("message")?;
        let (id, blocks) = (
            message.required_text("id")?,
            message.required_array("content")?,
        );
        let blocks: Vec<_> = blocks
            .into_iter()
            .map(|block| Ok((block, Object::parse("content", block)?)))
            .collect::<Result<_, _>>()?;
        let parent = self.parent(line, out);
        let parent = parent.as_deref();
        let failed = line.text("error");
        if let (Some((_, turn)), None) = (&mut self.turn, parent) {
            let tokens = message.object("usage").filter(|_| failed.is_none());
            turn.context_tokens = tokens
                .map(|usage| total_tokens(&usage))
                .or(turn.context_tokens);
            turn.api_error = failed
                .as_deref()
                .map(|kind| cut(kind, MAX_NAME).to_owned())
                .or_else(|| turn.api_error.take());
        }
        for (raw, block) in blocks {
            let block_type = block.required_text("type")?;
            match &*block_type {
                // The result of the turn reports the error of the model API.
                "text" if failed.is_some() && self.turn.is_some() => {}
                "text" | "thinking" => self.text_block(parent, &id, &block_type, &block, out)?,
                "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                    self.tool_use(parent, &block, true, out)?;
                }
                "image" => {
                    let content = serde_json::from_str(raw.get())
                        .ok()
                        .as_ref()
                        .and_then(image);
                    let content = content.map(|content| json!({ "sessionUpdate": kind::AGENT_MESSAGE_CHUNK, "content": content, "messageId": id }));
                    out.extend(content.map(|content| update(self.lane_session(parent), &content)));
                }
                // Its content is encrypted.
                "redacted_thinking" => {}
                _ if block.get("tool_use_id").is_some() => self.tool_result(&block, None, out)?,
                other => {
                    // The value keeps its bytes: a second parse could reject it.
                    let params = [
                        ("sessionId", to_raw(&self.lane_session(parent))),
                        ("block", raw.to_owned()),
                    ];
                    let params = to_raw(&BTreeMap::from(params));
                    out.push(notification(
                        &format!("_stream_json/content_block/{other}"),
                        params,
                    ));
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
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let Some((text_kind, member)) = text_kind(block_type) else {
            return Ok(());
        };
        let text = block.required(member)?;
        let rest = self
            .conversation
            .streamed
            .remainder(parent, message, text_kind, text);
        if let Some(rest) = rest {
            self.wrote_text(parent, text_kind);
            out.push(chunk(
                self.lane_session(parent),
                chunk_kind(text_kind),
                &rest,
                Some(message),
            ));
        }
        Ok(())
    }

    /// Translates a tool call. `complete`: the input is complete. A call that was begun before is updated.
    fn tool_use(
        &mut self,
        parent: Option<&str>,
        block: &Object<'_>,
        complete: bool,
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let (id, name) = (block.required_text("id")?, block.required_text("name")?);
        let input: Value = block
            .get("input")
            .and_then(|input| serde_json::from_str(input.get()).ok())
            .unwrap_or_default();
        let begun = self.conversation.tools.get(&id).is_some();
        let session = self.lane_session(parent).to_owned();
        if let Some(plan) = todo_plan(&name, &input).filter(|_| complete) {
            out.push(update(&session, &plan));
        }
        if !is_plan_tool(&name) {
            let info = describe(&name, &input, &self.session.cwd);
            let call = ToolCall {
                session_update: if begun {
                    kind::TOOL_CALL_UPDATE
                } else {
                    kind::TOOL_CALL
                },
                id: &id,
                title: Some(info.title),
                kind: Some(info.kind),
                status: (!begun).then_some("pending"),
                content: Some(info.content),
                locations: Some(info.locations).filter(|locations| !locations.is_empty()),
                raw_input: block.get("input").filter(|_| complete),
                raw_output: None,
                meta: (!begun).then(|| tool_meta(&name)),
            };
            out.push(update(&session, &call));
        }
        self.conversation
            .tools
            .insert(OpenTool::new(&id, &name, &input, parent));
        if complete && starts_subagent(&name) {
            self.announce_subagent(&id, out);
        }
        Ok(())
    }

    /// Translates a line `user`: results of tools, and notes of the CLI. The notes and the copies of prompts are no part
    /// of the conversation.
    pub(super) fn user(
        &mut self,
        line: &Object<'_>,
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let content = line.required_object("message")?.required("content")?;
        let parent = self.parent(line, out);
        if let Ok(text) = serde_json::from_str::<Cow<'_, str>>(content.get()) {
            let output = text
                .strip_prefix(LOCAL_OUTPUT.0)
                .and_then(|text| text.strip_suffix(LOCAL_OUTPUT.1));
            if let Some(output) = output.filter(|output| !output.is_empty() && self.turn.is_some())
            {
                self.wrote_text(parent.as_deref(), TextKind::Message);
                let text = to_raw(&output);
                out.push(chunk(
                    self.session_id(),
                    kind::AGENT_MESSAGE_CHUNK,
                    &text,
                    None,
                ));
            }
            return Ok(());
        }
        let blocks: Vec<&RawValue> =
            serde_json::from_str(content.get()).map_err(|_| LineError::Member {
                object: "message",
                member: "content",
            })?;
        for block in blocks {
            let block = Object::parse("content", block)?;
            if block.required_text("type")?.ends_with("tool_result") {
                self.tool_result(&block, line.get("tool_use_result"), out)?;
            }
        }
        Ok(())
    }

    /// Translates the result of a tool. `structured` is the result for people.
    fn tool_result(
        &mut self,
        block: &Object<'_>,
        structured: Option<&RawValue>,
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let (id, raw) = (block.required_text("tool_use_id")?, block.get("content"));
        let value = |raw: Option<&RawValue>| -> Value {
            raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
                .unwrap_or_default()
        };
        let (content, structured) = (value(raw), value(structured));
        let is_error = block.is_true("is_error");
        let tool = self.conversation.tools.remove(&id);
        let name = tool.as_ref().map_or("", OpenTool::name);
        let session = self
            .lane_session(tool.as_ref().and_then(OpenTool::parent))
            .to_owned();
        if let Some(tool) = tool.as_ref().filter(|tool| is_plan_tool(tool.name())) {
            let plan =
                self.conversation
                    .tasks
                    .apply(tool.name(), tool.input(), &structured, &content);
            out.extend(
                plan.filter(|_| !is_error)
                    .map(|plan| update(&session, &plan)),
            );
            return Ok(());
        }
        let overwritten = structured["originalFile"]
            .as_str()
            .filter(|_| name == "Write" && !is_error);
        // A forgotten input has no text. The call then keeps the content that it began with.
        let written = tool
            .as_ref()
            .map(OpenTool::input)
            .filter(|input| input["content"].is_string());
        let content = match (overwritten, written) {
            (Some(old), Some(input)) => Some(vec![json!({
                "type": "diff", "path": input["file_path"], "oldText": old, "newText": input["content"],
            })]),
            _ => result_content(name, &content, is_error),
        };
        let result = ToolCall {
            session_update: kind::TOOL_CALL_UPDATE,
            id: &id,
            status: Some(if is_error { "failed" } else { "completed" }),
            content,
            raw_output: raw,
            ..ToolCall::default()
        };
        out.push(update(&session, &result));
        if self.conversation.subagents.contains(&id) {
            let ended = json!({ "sessionUpdate": kind::SUBAGENT, "sessionId": id, "state": { "state": "idle" } });
            out.push(update(&session, &ended));
        }
        Ok(())
    }
}
