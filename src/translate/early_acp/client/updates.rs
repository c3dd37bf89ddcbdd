//! Notifications of the agent: texts, thoughts and tool calls.
//!
//! A tool call and its result are sent twice, with the same id: as `agent/update`, and with a method of their own. Clients
//! read one of both.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::state::{EarlyClient, MAX_TOOLS, Tool, notify};
use crate::acp::{RawObject, method, update as kind};
use crate::translate::early_acp::names::{self, update_type};
use crate::translate::message::{object, to_raw};
use crate::translate::protocol::Served;

/// Sends an update to the client.
fn update(session: &str, kind: &str, members: &[(&str, Box<RawValue>)], served: &mut Served) {
    let first = [("sessionId", to_raw(session)), ("updateType", to_raw(kind))];
    notify(
        names::UPDATE,
        object(&[&first[..], members].concat()),
        served,
    );
}

/// Sends a message about a tool in both forms.
fn about_tool(
    session: &str,
    (kind, method): (&str, &str),
    members: &[(&str, Box<RawValue>)],
    served: &mut Served,
) {
    update(session, kind, members, served);
    notify(
        method,
        object(&[&[("sessionId", to_raw(session))][..], members].concat()),
        served,
    );
}

impl EarlyClient {
    pub(super) fn notified(&mut self, method: &str, params: &RawValue, served: &mut Served) {
        let params = RawObject::parse(params).unwrap_or_else(RawObject::empty);
        if method == method::CANCEL_REQUEST {
            if let Some(id) = params.get("requestId") {
                self.permissions.withdraw(id);
            }
            return;
        }
        let (Some(session), Some(changed)) = (params.text("sessionId"), params.object("update"))
        else {
            return;
        };
        let update_kind = changed.text("sessionUpdate");
        match update_kind.as_deref().unwrap_or_default() {
            kind::AGENT_MESSAGE_CHUNK => {
                self.chunk(&session, update_type::RESPONSE, &changed, served);
            }
            kind::AGENT_THOUGHT_CHUNK => {
                self.chunk(&session, update_type::THINKING, &changed, served);
            }
            kind::TOOL_CALL | kind::TOOL_CALL_UPDATE => self.tool(&session, &changed, served),
            other => tracing::debug!(
                kind = other,
                "skipped an update without a meaning in early-acp"
            ),
        }
    }

    fn chunk(&mut self, session: &str, kind: &str, changed: &RawObject<'_>, served: &mut Served) {
        let Some(content) = changed.object("content") else {
            return;
        };
        let text = content
            .get("text")
            .filter(|text| text.get().starts_with('"'))
            .map(ToOwned::to_owned);
        let text = text.unwrap_or_else(|| {
            let uri = content.text("uri").unwrap_or_default();
            to_raw(&format!(
                "[{}]({uri})",
                content.text("type").unwrap_or_default()
            ))
        });
        if let Some(turn) = self
            .turns
            .get_mut(session)
            .filter(|_| kind == update_type::RESPONSE)
        {
            turn.add(&text);
        }
        update(session, kind, &[("content", text)], served);
    }

    /// Announces a tool call as soon as its input is known, and its result.
    fn tool(&mut self, session: &str, changed: &RawObject<'_>, served: &mut Served) {
        let Some(id) = changed.text("toolCallId") else {
            return;
        };
        let turn = self.turns.get_mut(session);
        let mut none = HashMap::new();
        let tools = turn.map_or(&mut none, |turn| &mut turn.tools);
        let status = changed.text("status");
        let ended = matches!(status.as_deref(), Some("completed" | "failed"));
        let input = changed
            .get("rawInput")
            .filter(|input| input.get() != "null");
        let known = tools.remove(&*id);
        let mut unknown = known.unwrap_or_else(|| Some(Tool::of(changed)));
        if let Some(tool) = unknown.as_ref().filter(|_| ended || input.is_some()) {
            let members = tool.members(&id, input);
            about_tool(
                session,
                (update_type::TOOL_CALL, names::TOOL_CALL),
                &members,
                served,
            );
            unknown = None;
        }
        if !ended {
            if tools.len() < MAX_TOOLS {
                tools.insert(id.into_owned(), unknown);
            }
            return;
        }
        let failed = status.as_deref() == Some("failed");
        let members = [
            ("toolCallId", to_raw(&id)),
            ("content", result_of(changed)),
            ("isError", to_raw(&failed)),
        ];
        about_tool(
            session,
            (update_type::TOOL_RESULT, names::TOOL_RESULT),
            &members,
            served,
        );
    }
}

/// The result of a tool: as the tool returned it, or as the agent shows it.
fn result_of(changed: &RawObject<'_>) -> Box<RawValue> {
    if let Some(output) = changed
        .get("rawOutput")
        .filter(|output| output.get() != "null")
    {
        return output.to_owned();
    }
    to_raw(&text_of(&contents(changed)))
}

/// The contents of a tool call.
pub(super) fn contents(call: &RawObject<'_>) -> Vec<Value> {
    call.get("content")
        .and_then(|content| serde_json::from_str(content.get()).ok())
        .unwrap_or_default()
}

/// The texts of contents, each on a line of its own.
pub(super) fn text_of(contents: &[Value]) -> String {
    let texts = contents
        .iter()
        .filter_map(|part| part["content"]["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}
