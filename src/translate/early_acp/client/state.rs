//! The state for one client.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use serde_json::value::RawValue;

use super::permission::Permissions;
use crate::acp::{RawObject, error_code};
use crate::jsonrpc::{Message, RpcError};
use crate::translate::message::{error, to_raw};
use crate::translate::protocol::Served;

/// The maximum number of requests of the client without an answer.
const MAX_CALLS: usize = 256;

/// The purpose of a call to the agent, for the request of the client with this id.
#[derive(Debug)]
pub(super) enum Call {
    Initialize(Box<RawValue>),
    CreateSession(Box<RawValue>),
    Prompt(Box<RawValue>, String),
}

/// The maximum size of the text in the answer to a prompt. The updates contain the rest.
const MAX_TEXT_BYTES: usize = 8 << 20;
/// The maximum number of tool calls of a turn without a result.
pub(super) const MAX_TOOLS: usize = 1024;

/// A running turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The text of the agent, as the inner part of a JSON string.
    text: String,
    /// The tool calls without a result. `None`: the client knows the call.
    pub(super) tools: HashMap<String, Option<Tool>>,
}

/// A tool call that the client does not know yet.
#[derive(Debug, Clone)]
pub(super) struct Tool {
    name: String,
    title: String,
    kind: String,
}

impl Tool {
    pub(super) fn of(call: &RawObject<'_>) -> Self {
        let text = |name| call.text(name).unwrap_or_default().into_owned();
        let title = text("title");
        let own = call
            .object("_meta")
            .and_then(|meta| meta.object("claudeCode")?.text("toolName"));
        let name = own.map_or_else(|| title.clone(), std::borrow::Cow::into_owned);
        let kind = call.text("kind").unwrap_or("other".into()).into_owned();
        Self { name, title, kind }
    }

    pub(super) fn members(
        &self,
        id: &str,
        input: Option<&RawValue>,
    ) -> Vec<(&'static str, Box<RawValue>)> {
        let mut members = vec![
            ("toolCallId", to_raw(id)),
            ("name", to_raw(&self.name)),
            ("title", to_raw(&self.title)),
            ("kind", to_raw(&self.kind)),
        ];
        members.extend(input.map(|input| ("input", input.to_owned())));
        members
    }
}

impl Turn {
    /// The text of the agent as a JSON string.
    pub(super) fn text(self) -> Box<RawValue> {
        RawValue::from_string(format!("\"{}\"", self.text))
            .expect("the parts of strings form a string")
    }

    pub(super) fn add(&mut self, text: &RawValue) {
        let inner = text
            .get()
            .strip_prefix('"')
            .and_then(|inner| inner.strip_suffix('"'))
            .unwrap_or_default();
        if self.text.len() + inner.len() <= MAX_TEXT_BYTES {
            self.text.push_str(inner);
        }
    }
}

/// The state for one client.
#[derive(Debug)]
pub(in crate::translate) struct EarlyClient {
    /// The folder of sessions for which the client names none.
    pub(super) cwd: PathBuf,
    /// The version of this program.
    pub(super) version: &'static str,
    /// The id of the last call to the agent.
    last_call: u64,
    pub(super) calls: HashMap<u64, Call>,
    /// The running turns, by their sessions.
    pub(super) turns: HashMap<String, Turn>,
    pub(super) permissions: Permissions,
    /// The folders of sessions whose variables were not used, so that each is reported once.
    pub(super) warned: HashSet<String>,
    pub(super) has_shut_down: bool,
}

impl EarlyClient {
    pub(in crate::translate) fn new(cwd: PathBuf, version: &'static str) -> Self {
        Self {
            cwd,
            version,
            last_call: 0,
            calls: HashMap::new(),
            turns: HashMap::new(),
            permissions: Permissions::default(),
            warned: HashSet::new(),
            has_shut_down: false,
        }
    }

    /// Sends a call to the agent.
    pub(super) fn call(
        &mut self,
        call: Call,
        method: &str,
        params: Box<RawValue>,
        served: &mut Served,
    ) -> Result<(), RpcError> {
        if self.calls.len() >= MAX_CALLS {
            return Err(error(
                error_code::INTERNAL,
                "too many requests have no answer",
            ));
        }
        self.last_call += 1;
        self.calls.insert(self.last_call, call);
        let id = to_raw(&self.last_call);
        served.to_agent.push(Message::Request {
            id,
            method: method.into(),
            params,
        });
        Ok(())
    }
}

/// Answers a request of the client.
pub(super) fn respond(
    id: Box<RawValue>,
    outcome: Result<Box<RawValue>, RpcError>,
    served: &mut Served,
) {
    served
        .to_client
        .push(Message::Response { id, outcome }.line());
}

/// Sends a notification to the client.
pub(super) fn notify(method: &str, params: Box<RawValue>, served: &mut Served) {
    served.to_client.push(
        Message::Notification {
            method: method.into(),
            params,
        }
        .line(),
    );
}
