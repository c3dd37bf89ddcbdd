//! Updates of the agent as updates of ACP: `agent/update`, `agent/toolCall`, `agent/toolResult` and the early shapes of
//! `session/update`.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::content::{Part, parts, snake_case, text_content, text_of, tool_content};
use super::tools::{Found, Source, ToolFields};
use super::translator::Translator;
use crate::translate::early_acp::names;
use crate::translate::message::{
    LineError, Members, Object, ToolUpdate, chunk, missing, notification, update,
};
use wire::acp::{method, object, to_raw, update as kind};

/// The members that contain the text of a chunk.
const TEXTS: [&str; 6] = ["content", "delta", "text", "chunk", "message", "appendText"];

impl Translator {
    /// The session of a message. A message without an id belongs to the session of the process.
    fn session_of(&self, params: &Object<'_>) -> Result<String, LineError> {
        let named = params.text("sessionId").map(Cow::into_owned);
        let own = || self.session.as_deref().map(ToOwned::to_owned);
        let session = named.or_else(own);
        session.ok_or(missing("params", "sessionId"))
    }

    pub(super) fn early_update(&mut self, raw: &RawValue) -> Result<(), LineError> {
        let params = Object::parse(names::UPDATE, raw)?;
        let session = self.session_of(&params)?;
        let data = params.object("data");
        let objects: Vec<&Object<'_>> = data.iter().chain([&params]).collect();
        match &*params.required_text("updateType")? {
            "thinking" => {
                self.early_text(&session, kind::AGENT_THOUGHT_CHUNK, &objects)?;
            }
            "response" => {
                self.early_text(&session, kind::AGENT_MESSAGE_CHUNK, &objects)?;
            }
            "tool_call" => {
                let mut fields = ToolFields::read(&objects);
                // In an announcement the content is a text for people.
                fields.title = fields.title.or_else(|| params.text("content"));
                self.tool_call(&session, &fields, Source::Update);
            }
            "tool_result" => {
                self.tool_result(&session, &ToolFields::read(&objects), Source::Update);
            }
            _ => self.out.push(notification(names::UPDATE, raw.to_owned())),
        }
        Ok(())
    }

    fn early_text(
        &mut self,
        session: &str,
        kind: &'static str,
        objects: &[&Object<'_>],
    ) -> Result<(), LineError> {
        let mut last_first = objects.iter().rev();
        let content = last_first.find_map(|object| TEXTS.iter().find_map(|name| object.get(name)));
        let content = content.ok_or(missing(names::UPDATE, "content"))?;
        self.message(session, kind, content);
        Ok(())
    }

    pub(super) fn early_tool(
        &mut self,
        name: &'static str,
        raw: &RawValue,
    ) -> Result<(), LineError> {
        let params = Object::parse(name, raw)?;
        let session = self.session_of(&params)?;
        let nested = ["data", "toolCall", "toolResult", "tool"].into_iter();
        let nested = nested.filter_map(|name| params.object(name));
        let nested: Vec<Object<'_>> = nested.collect();
        let objects: Vec<&Object<'_>> = nested.iter().chain([&params]).collect();
        let fields = ToolFields::read(&objects);
        if name == names::TOOL_CALL {
            self.tool_call(&session, &fields, Source::Method);
        } else {
            self.tool_result(&session, &fields, Source::Method);
        }
        Ok(())
    }

    /// Translates `session/update`. An update that ACP has too passes unchanged.
    pub(super) fn session_update(&mut self, raw: &RawValue) -> Result<(), LineError> {
        let params = Object::parse(method::SESSION_UPDATE, raw)?;
        let session = self.session_of(&params)?;
        let nested = params.object("update");
        let content = nested.as_ref().unwrap_or(&params);
        let named = content.text("sessionUpdate");
        let kind = match &named {
            Some(kind) => kind.clone(),
            None => content.required_text("type")?,
        };
        let kind = snake_case(&kind);
        let is_modern = named.is_some() && nested.is_some() && params.text("sessionId").is_some();
        let modern = is_modern.then_some(raw);
        match &*kind {
            kind::AGENT_MESSAGE_CHUNK | "message_delta" | "message_chunk" | "agent_message" => {
                self.session_text(&session, kind::AGENT_MESSAGE_CHUNK, content, modern)?;
            }
            kind::AGENT_THOUGHT_CHUNK
            | "thought_delta"
            | "thinking_delta"
            | "thinking"
            | "agent_thought" => {
                self.session_text(&session, kind::AGENT_THOUGHT_CHUNK, content, modern)?;
            }
            kind::TOOL_CALL | kind::TOOL_CALL_UPDATE => {
                self.streamed_other();
                self.session_tool(&session, &kind, content, modern)?;
            }
            "tool_use" => {
                self.tool_call(&session, &ToolFields::read(&[content]), Source::Update);
            }
            "tool_result" => {
                self.tool_result(&session, &ToolFields::read(&[content]), Source::Update);
            }
            _ if is_modern => self.pass(raw),
            _ => {
                let mut members: Members<'_> =
                    content.iter().filter(|(name, _)| *name != "type").collect();
                members.remove("sessionId");
                members.set("sessionUpdate", to_raw(&kind));
                self.out.push(update(&session, &members));
            }
        }
        Ok(())
    }

    fn pass(&mut self, params: &RawValue) {
        let unchanged = notification(method::SESSION_UPDATE, params.to_owned());
        self.out.push(unchanged);
    }

    /// A chunk of `session/update`. `modern` are the params if their only possible difference is the content.
    fn session_text(
        &mut self,
        session: &str,
        kind: &'static str,
        object: &Object<'_>,
        modern: Option<&RawValue>,
    ) -> Result<(), LineError> {
        let content = TEXTS.iter().find_map(|name| object.get(name));
        let content = content.ok_or(missing("update", "content"))?;
        let is_block = object.text("sessionUpdate").as_deref() == Some(kind)
            && Object::parse("content", content).is_ok_and(|block| block.get("type").is_some());
        if let Some(params) = modern
            && is_block
            && matches!(parts(content)[..], [Part::Text(_) | Part::Block(_)])
        {
            self.streamed_text(kind, content);
            self.pass(params);
        } else {
            self.message(session, kind, content);
        }
        Ok(())
    }

    /// The content of a message: texts, thoughts and tools.
    fn message(&mut self, session: &str, kind: &'static str, content: &RawValue) {
        for part in parts(content) {
            match part {
                Part::Text(text) if text.get() == "\"\"" => {}
                Part::Text(text) => {
                    self.streamed_text(kind, text);
                    self.out.push(chunk(session, kind, text, None));
                }
                Part::Thought(text) => {
                    self.streamed_text(kind::AGENT_THOUGHT_CHUNK, text);
                    self.out
                        .push(chunk(session, kind::AGENT_THOUGHT_CHUNK, text, None));
                }
                Part::ToolUse(tool) => {
                    self.tool_call(session, &ToolFields::read(&[&tool]), Source::Update);
                }
                Part::ToolResult(tool) => {
                    self.tool_result(session, &ToolFields::read(&[&tool]), Source::Update);
                }
                Part::Block(block) => {
                    self.streamed_other();
                    let members = [
                        ("sessionUpdate", to_raw(kind)),
                        ("content", block.to_owned()),
                    ];
                    self.out.push(update(session, &object(&members)));
                }
            }
        }
    }

    fn session_tool(
        &mut self,
        session: &str,
        kind: &str,
        object: &Object<'_>,
        modern: Option<&RawValue>,
    ) -> Result<(), LineError> {
        let fields = ToolFields::read(&[object]);
        let is_new = kind == kind::TOOL_CALL;
        let found = if is_new {
            self.tools.call(&fields, Source::Update)
        } else {
            Found::Repeated
        };
        if let Some("completed" | "failed") = object.text("status").as_deref() {
            self.tools.result(&fields, Source::Update);
        }
        let wrapped = object.get("content").and_then(tool_content);
        let complete =
            object.text("toolCallId").is_some() && (!is_new || object.text("title").is_some());
        if let (Some(params), true, None) = (modern, complete, &wrapped) {
            self.pass(params);
            return Ok(());
        }
        let id = match (&fields.id, found) {
            (Some(id), _) => id.to_string(),
            (None, Found::New(id) | Found::Known(id)) => id,
            (None, Found::Repeated) => {
                let only = self.tools.only_open().map(ToOwned::to_owned);
                only.ok_or(missing("update", "toolCallId"))?
            }
        };
        let early = ["type", "id", "name", "toolName", "input", "sessionId"];
        let kept = object.iter().filter(|(name, _)| !early.contains(name));
        let mut members: Members<'_> = kept.collect();
        members.set("sessionUpdate", to_raw(&kind));
        members.set("toolCallId", to_raw(&id));
        if is_new && object.text("title").is_none() {
            members.set("title", to_raw(&fields.name.as_deref().unwrap_or("tool")));
        }
        if object.get("rawInput").is_none() {
            members.set_some("rawInput", object.get("input").map(ToOwned::to_owned));
        }
        members.set_some("content", wrapped);
        self.out.push(update(session, &members));
        Ok(())
    }

    fn tool_call(&mut self, session: &str, fields: &ToolFields<'_>, source: Source) {
        self.streamed_other();
        let Some((id, session_update)) = self.tools.call(fields, source).update() else {
            return;
        };
        let title = fields.title.as_deref().or(fields.name.as_deref());
        let title = title.or_else(|| (session_update == kind::TOOL_CALL).then_some("tool"));
        let call = ToolUpdate {
            session_update,
            tool_call_id: &id,
            title,
            kind: fields.kind.as_deref(),
            status: Some("in_progress"),
            raw_input: fields.input,
            ..ToolUpdate::default()
        };
        self.out.push(update(session, &call));
    }

    fn tool_result(&mut self, session: &str, fields: &ToolFields<'_>, source: Source) {
        self.streamed_other();
        let Some((id, session_update)) = self.tools.result(fields, source).update() else {
            return;
        };
        let content = fields.output.map(|output| match text_of(output) {
            Some(text) => Cow::Owned(text_content(&text)),
            None => tool_content(output).map_or(Cow::Borrowed(output), Cow::Owned),
        });
        let title = fields.title.as_deref().or(fields.name.as_deref());
        let result = ToolUpdate {
            session_update,
            tool_call_id: &id,
            title: (session_update == kind::TOOL_CALL).then_some(title.unwrap_or("tool")),
            status: Some(if fields.failed { "failed" } else { "completed" }),
            content,
            raw_output: fields.output,
            ..ToolUpdate::default()
        };
        self.out.push(update(session, &result));
    }

    fn streamed_text(&mut self, kind: &str, content: &RawValue) {
        let Some(turn) = &mut self.turn else { return };
        turn.has_output = true;
        if kind != kind::AGENT_MESSAGE_CHUNK {
            turn.streamed.separate();
        } else if let Some(text) = text_of(content) {
            turn.streamed.add(&text);
        } else {
            turn.has_undecoded = true;
        }
    }

    /// Notes output of the turn that is no text.
    pub(super) fn streamed_other(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.has_output = true;
            turn.streamed.separate();
        }
    }
}
