//! The lines of the CLI as messages of ACP.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounds::MAX_ERROR;
use super::permission::{Asked, NO_SPACE, rejection};
use super::tool::{OpenTool, describe, tool_meta};
use super::translator::{Purpose, SetUp, Translator, control_response};
use super::turn::errors;
use crate::translate::message::{
    LineError, Object, chunk, cut, internal, notification, response, update,
};
use crate::translate::protocol::Output;
use wire::acp::{AcpVersion, error_code, method, object, to_raw, update as kind};
use wire::jsonrpc::{Message, RpcError};

/// The prefix of the methods that report lines without a meaning in ACP.
const EXTENSION: &str = "_stream_json";

/// The name of the agent in `agentInfo`.
const NAME: &str = "claude-code";

impl Translator {
    /// Translates a line. An error means that the rest of the line is not translated.
    pub(super) fn line(&mut self, line: &[u8], max_depth: usize) -> Result<(), LineError> {
        let (parsed, raw) = Object::line(line, max_depth)?;
        match &*parsed.required_text("type")? {
            "control_response" => self.control_response(&parsed.named("control_response"))?,
            "control_request" => self.control_request(&parsed.named("control_request"))?,
            "control_cancel_request" => {
                let parsed = parsed.named("control_cancel_request");
                let id = parsed.required("request_id")?;
                if self.permissions.withdraw(id) {
                    let params = object(&[("requestId", id.to_owned())]);
                    self.out.push(notification(method::CANCEL_REQUEST, params));
                }
            }
            "stream_event" => self.stream_event(&parsed.named("stream_event"))?,
            "assistant" => self.assistant(&parsed.named("assistant"))?,
            "user" => self.user(&parsed.named("user"))?,
            "result" => self.result(&parsed.named("result")),
            "system" => self.system(&parsed.named("system"), raw)?,
            // Signs of life.
            "keep_alive" | "tool_progress" => {}
            other => self.out.push(notification(
                &format!("{EXTENSION}/{other}"),
                raw.to_owned(),
            )),
        }
        Ok(())
    }

    fn control_response(&mut self, line: &Object<'_>) -> Result<(), LineError> {
        let answer = line.required_object("response")?;
        let id = answer.required_text("request_id")?;
        let failed = (answer.required_text("subtype")? != "success").then(|| {
            let detail = answer.text("error").unwrap_or_default();
            internal(cut(&detail, MAX_ERROR))
        });
        let purpose = self.controls.remove(&*id);
        let purpose = purpose.ok_or(LineError::UnknownRequest)?;
        match (purpose, failed) {
            (Purpose::Initialize(call), None) => {
                let read = answer.object("response");
                let read = read.map_or(Ok(()), |answer| self.settings.initialized(&answer));
                let outcome = read.map(|()| initialize_result(self.version.as_deref()));
                self.out.push(response(call, outcome.map_err(internal)));
            }
            (Purpose::Mode(call, mode), None) => {
                // The client has selected the mode, so it needs no update.
                self.settings.set_mode(&mode);
                self.out.push(response(call, Ok(to_raw(&json!({})))));
            }
            (Purpose::Model(call, value), None) => {
                self.settings.model = Some(value);
                let options = json!({ "configOptions": self.settings.options() });
                self.out.push(response(call, Ok(to_raw(&options))));
            }
            (Purpose::SetUp, failed) => self.set_up_answered(failed),
            (
                Purpose::Initialize(call) | Purpose::Mode(call, _) | Purpose::Model(call, _),
                Some(failed),
            ) => {
                self.out.push(response(call, Err(failed)));
            }
            (Purpose::Interrupt, _) => {}
        }
        Ok(())
    }

    /// Counts an answer to a step of the set-up. The last one ends it.
    fn set_up_answered(&mut self, failed: Option<RpcError>) {
        let Some(mut set_up) = self.set_up.take() else {
            return;
        };
        set_up.missing -= 1;
        set_up.failed = set_up.failed.or(failed);
        match set_up {
            SetUp { missing: 1.., .. } => self.set_up = Some(set_up),
            SetUp {
                call,
                failed: Some(failed),
                ..
            } => self.out.push(response(call, Err(failed))),
            SetUp { call, is_new, .. } => self.session_ready(call, is_new),
        }
    }

    fn control_request(&mut self, line: &Object<'_>) -> Result<(), LineError> {
        let id = line.required("request_id")?;
        let request = line.required_object("request")?;
        let subtype = request.required_text("subtype")?;
        let request = if subtype == "can_use_tool" {
            let asked = Asked::parse(&request.named("can_use_tool"))?;
            let params = to_raw(&self.permission(&asked));
            let method = method::SESSION_REQUEST_PERMISSION.into();
            let is_open = self.permissions.open(id, Some(asked));
            is_open
                .then_some((method, params))
                .ok_or_else(|| control_response(id, Some(&rejection()), None))
        } else {
            let method = format!("{EXTENSION}/{subtype}").into();
            let params = line.required("request")?.to_owned();
            let is_open = self.permissions.open(id, None);
            is_open
                .then_some((method, params))
                .ok_or_else(|| control_response(id, None, Some(NO_SPACE.to_owned())))
        };
        self.out.push(match request {
            Ok((method, params)) => Output::ToClient(Message::Request {
                id: id.to_owned(),
                method,
                params,
            }),
            Err(rejected) => Output::ToAgent(rejected.into()),
        });
        Ok(())
    }

    fn permission(&self, asked: &Asked) -> Value {
        let input: Value = serde_json::from_str(asked.input.get()).unwrap_or_default();
        let info = describe(&asked.tool, &input, &self.session.cwd);
        let tool = self.conversation.tools.get(&asked.call_id);
        let parent = tool.and_then(OpenTool::parent);
        let mut call = json!({
            "toolCallId": asked.call_id, "title": info.title, "kind": info.kind, "status": "pending",
            "content": info.content, "rawInput": input, "_meta": tool_meta(&asked.tool),
        });
        if !info.locations.is_empty() {
            call["locations"] = Value::Array(info.locations);
        }
        json!({ "sessionId": self.lane_session(parent), "toolCall": call, "options": asked.options() })
    }

    fn system(&mut self, line: &Object<'_>, raw: &RawValue) -> Result<(), LineError> {
        let subtype = line.required_text("subtype")?;
        match &*subtype {
            "init" | "status" => {
                let model = line.text("model");
                let model = model.and_then(|model| self.settings.model_used(&model));
                let mode = line.text("permissionMode");
                let mode = mode.and_then(|mode| self.settings.set_mode(&mode));
                for changed in model.iter().chain(&mode) {
                    self.out.push(update(&self.session.id, changed));
                }
            }
            // Progress without content.
            "thinking_tokens"
            | "session_state_changed"
            | "hook_started"
            | "hook_progress"
            | "hook_response"
            | "files_persisted"
            | "task_started"
            | "task_progress" => {}
            other => self.out.push(notification(
                &format!("{EXTENSION}/system/{other}"),
                raw.to_owned(),
            )),
        }
        Ok(())
    }

    fn result(&mut self, result: &Object<'_>) {
        if let Some(call) = self.take_initialize() {
            // The CLI does not find the session of `--resume`.
            let detail =
                errors(result).unwrap_or_else(|| "the agent ended during its start".to_owned());
            let failed = RpcError::new(error_code::RESOURCE_NOT_FOUND, cut(&detail, MAX_ERROR));
            return self.out.push(response(call, Err(failed)));
        }
        // The CLI continues by itself after a task in the background.
        let origin = result.object("origin");
        let origin = origin.and_then(|origin| origin.text("kind"));
        if origin.as_deref() == Some("task-notification") {
            return;
        }
        let Some((call, turn)) = self.turn.take() else {
            return;
        };
        self.permissions.clear();
        // A command of the CLI itself writes no message.
        if !turn.has_text
            && !result.is_true("is_error")
            && let Some(text) = result.get("result")
            && text.get().starts_with('"')
            && text.get() != "\"\""
        {
            self.out.push(chunk(
                &self.session.id,
                kind::AGENT_MESSAGE_CHUNK,
                text,
                None,
            ));
        }
        if let Some(usage) = turn.usage_update(result) {
            self.out.push(update(&self.session.id, &usage));
        }
        self.out.push(response(call, turn.outcome(result)));
    }

    pub(super) fn lane_session<'a>(&'a self, parent: Option<&'a str>) -> &'a str {
        let known = parent.filter(|parent| self.conversation.subagents.contains(parent));
        known.unwrap_or_else(|| self.session_id())
    }
}

/// The answer to `initialize`. ACP requires a version in `agentInfo`.
fn initialize_result(version: Option<&str>) -> Box<RawValue> {
    let version = version.unwrap_or("unknown");
    to_raw(&json!({
        "protocolVersion": AcpVersion::V1.number(),
        "agentInfo": { "name": NAME, "title": "Claude Code", "version": version },
        "agentCapabilities": {
            "loadSession": false,
            "promptCapabilities": { "image": true, "embeddedContext": true },
            "mcpCapabilities": { "http": true, "sse": true },
            "sessionCapabilities": { "resume": {}, "additionalDirectories": {} },
        },
        "authMethods": [],
    }))
}
