//! The lines of the CLI as messages of ACP.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounds::MAX_ERROR;
use super::calls::Purpose;
use super::open_tools::OpenTool;
use super::permission::{Asked, NO_SPACE, rejection};
use super::session::SetUp;
use super::tool::{describe, tool_meta};
use super::translator::{Translator, control_response};
use super::turn;
use crate::acp::{AcpVersion, error_code, method, update as kind};
use crate::jsonrpc::{Message, RpcError};
use crate::translate::budget::cut;
use crate::translate::message::{chunk, error, notification, response, to_raw, update};
use crate::translate::object::{LineError, Object};
use crate::translate::protocol::Output;

/// The prefix of the methods that report lines without a meaning in ACP.
const EXTENSION: &str = "_stream_json";

/// The name of the agent in `agentInfo`.
const NAME: &str = "claude-code";

impl Translator {
    /// Translates a line. An error means that the rest of the line is not translated.
    pub(super) fn line(
        &mut self,
        line: &[u8],
        max_depth: usize,
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let (object, raw) = Object::line(line, max_depth)?;
        match &*object.required_text("type")? {
            "control_response" => self.control_response(&object.named("control_response"), out)?,
            "control_request" => self.control_request(&object.named("control_request"), out)?,
            "control_cancel_request" => {
                let id = object
                    .named("control_cancel_request")
                    .required("request_id")?;
                if self.permissions.withdraw(id) {
                    let params = to_raw(&BTreeMap::from([("requestId", id)]));
                    out.push(notification(method::CANCEL_REQUEST, params));
                }
            }
            "stream_event" => self.stream_event(&object.named("stream_event"), out)?,
            "assistant" => self.assistant(&object.named("assistant"), out)?,
            "user" => self.user(&object.named("user"), out)?,
            "result" => self.result(&object.named("result"), out),
            "system" => self.system(&object.named("system"), raw, out)?,
            // Signs of life.
            "keep_alive" | "tool_progress" => {}
            other => out.push(notification(
                &format!("{EXTENSION}/{other}"),
                raw.to_owned(),
            )),
        }
        Ok(())
    }

    fn control_response(
        &mut self,
        line: &Object<'_>,
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let answer = line.required_object("response")?;
        let id = answer.required_text("request_id")?;
        let failed = (answer.required_text("subtype")? != "success").then(|| {
            let detail = answer.text("error").unwrap_or_default();
            error(
                error_code::INTERNAL,
                format!("Internal error: {}", cut(&detail, MAX_ERROR)),
            )
        });
        let Some(purpose) = self.controls.answered(&id) else {
            return Err(LineError::UnknownRequest);
        };
        match (purpose, failed) {
            (Purpose::Initialize(call), None) => {
                let read = answer
                    .object("response")
                    .map_or(Ok(()), |answer| self.settings.initialized(&answer));
                let outcome = read.map(|()| initialize_result(self.version.as_deref()));
                let malformed =
                    |missing| error(error_code::INTERNAL, format!("Internal error: {missing}"));
                out.push(response(call, outcome.map_err(malformed)));
            }
            (Purpose::Mode(call, mode), None) => {
                // The client has selected the mode, so it needs no update.
                self.settings.set_mode(&mode);
                out.push(response(call, Ok(to_raw(&json!({})))));
            }
            (Purpose::Model(call, value), None) => {
                self.settings.set_model(&value);
                let options = json!({ "configOptions": self.settings.options() });
                out.push(response(call, Ok(to_raw(&options))));
            }
            (Purpose::SetUp, failed) => self.set_up_answered(failed, out),
            (
                Purpose::Initialize(call) | Purpose::Mode(call, _) | Purpose::Model(call, _),
                Some(failed),
            ) => {
                out.push(response(call, Err(failed)));
            }
            (Purpose::Interrupt, _) => {}
        }
        Ok(())
    }

    /// Counts an answer to a step of the set-up. The last one ends it.
    fn set_up_answered(&mut self, failed: Option<RpcError>, out: &mut Vec<Output>) {
        let Some(set_up) = &mut self.set_up else {
            return;
        };
        set_up.missing -= 1;
        set_up.failed = set_up.failed.take().or(failed);
        if set_up.missing > 0 {
            return;
        }
        let Some(SetUp {
            call,
            is_new,
            failed,
            ..
        }) = self.set_up.take()
        else {
            return;
        };
        match failed {
            Some(failed) => out.push(response(call, Err(failed))),
            None => self.session_ready(call, is_new, out),
        }
    }

    fn control_request(
        &mut self,
        line: &Object<'_>,
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let (id, request) = (
            line.required("request_id")?,
            line.required_object("request")?,
        );
        let subtype = request.required_text("subtype")?;
        let (method, params) = if subtype == "can_use_tool" {
            let asked = Asked::parse(&request.named("can_use_tool"))?;
            let params = self.permission(&asked);
            if !self.permissions.open(id, asked) {
                out.push(Output::ToAgent(
                    control_response(id, Some(&rejection()), None).into(),
                ));
                return Ok(());
            }
            (method::SESSION_REQUEST_PERMISSION.into(), to_raw(&params))
        } else {
            if !self.permissions.open_other(id) {
                out.push(Output::ToAgent(
                    control_response(id, None, Some(NO_SPACE.to_owned())).into(),
                ));
                return Ok(());
            }
            (
                format!("{EXTENSION}/{subtype}").into(),
                line.required("request")?.to_owned(),
            )
        };
        out.push(Output::ToClient(Message::Request {
            id: id.to_owned(),
            method,
            params,
        }));
        Ok(())
    }

    /// The params of `session/request_permission`.
    fn permission(&self, asked: &Asked) -> Value {
        let input: Value = serde_json::from_str(asked.input.get()).unwrap_or_default();
        let info = describe(&asked.tool, &input, &self.session.cwd);
        let parent = self
            .conversation
            .tools
            .get(&asked.call_id)
            .and_then(OpenTool::parent);
        let mut call = json!({
            "toolCallId": asked.call_id, "title": info.title, "kind": info.kind, "status": "pending",
            "content": info.content, "rawInput": input, "_meta": tool_meta(&asked.tool),
        });
        if !info.locations.is_empty() {
            call["locations"] = Value::Array(info.locations);
        }
        json!({ "sessionId": self.lane_session(parent), "toolCall": call, "options": asked.options() })
    }

    fn system(
        &mut self,
        line: &Object<'_>,
        raw: &RawValue,
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let subtype = line.required_text("subtype")?;
        match &*subtype {
            "init" | "status" => {
                if let Some(model) = line.text("model") {
                    let changed = self.settings.model_used(&model);
                    out.extend(changed.map(|changed| update(self.session_id(), &changed)));
                }
                if let Some(mode) = line.text("permissionMode") {
                    let changed = self.settings.set_mode(&mode);
                    out.extend(changed.map(|changed| update(self.session_id(), &changed)));
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
            other => out.push(notification(
                &format!("{EXTENSION}/system/{other}"),
                raw.to_owned(),
            )),
        }
        Ok(())
    }

    /// Handles the end of a turn.
    fn result(&mut self, result: &Object<'_>, out: &mut Vec<Output>) {
        if let Some(call) = self.controls.take_initialize() {
            // The CLI does not find the session of `--resume`.
            let detail = turn::errors(result)
                .unwrap_or_else(|| "the agent ended during its start".to_owned());
            let failed = error(error_code::RESOURCE_NOT_FOUND, cut(&detail, MAX_ERROR));
            return out.push(response(call, Err(failed)));
        }
        // The CLI continues by itself after a task in the background.
        let origin = result
            .object("origin")
            .and_then(|origin| origin.text("kind"));
        if origin.as_deref() == Some("task-notification") {
            return;
        }
        let Some((call, turn)) = self.turn.take() else {
            return;
        };
        self.permissions.clear();
        let text = result
            .get("result")
            .filter(|_| !turn.has_text && !result.is_true("is_error"));
        if let Some(text) = text.filter(|text| text.get().starts_with('"') && text.get() != "\"\"")
        {
            // A command of the CLI itself writes no message.
            out.push(chunk(
                self.session_id(),
                kind::AGENT_MESSAGE_CHUNK,
                text,
                None,
            ));
        }
        out.extend(
            turn.usage_update(result)
                .map(|usage| update(self.session_id(), &usage)),
        );
        out.push(response(call, turn.outcome(result)));
    }

    /// The id of the session to which a lane belongs: that of the subagent, or that of the session itself.
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
