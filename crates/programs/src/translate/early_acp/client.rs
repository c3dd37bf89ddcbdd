//! A client with the early protocol: JSON-RPC with other methods, and prompts that are texts.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::names;
use crate::stdio::parse;
use crate::translate::message::{invalid_params, invalid_request, text_block};
use crate::translate::protocol::{ClientProtocol, Translated};
use wire::acp::{
    AcpVersion, RawObject, error_code, method, method_not_found, object, to_raw, update as kind,
};
use wire::jsonrpc::{self, Message, RpcError, parse_error};

const MAX_CALLS: usize = 256;
const MAX_PERMISSIONS: usize = 256;
/// The maximum size of the text in the answer to a prompt. The updates contain the rest.
const MAX_TEXT_BYTES: usize = 8 << 20;
const MAX_TOOLS: usize = 1024;
const MAX_WARNED: usize = 64;

type Outcome = Result<Box<RawValue>, RpcError>;
type Members = [(&'static str, Box<RawValue>)];

#[derive(Debug)]
enum Purpose {
    Initialize,
    CreateSession,
    Prompt(String),
}

#[derive(Debug, Default)]
struct Turn {
    text: String,
    /// The tool calls without a result. `None`: the client knows the call.
    tools: HashMap<String, Option<Tool>>,
}

impl Turn {
    fn add_text(&mut self, text: &RawValue) {
        let inner = text.get().strip_prefix('"');
        let inner = inner.and_then(|inner| inner.strip_suffix('"'));
        let inner = inner.unwrap_or_default();
        if self.text.len() + inner.len() <= MAX_TEXT_BYTES {
            self.text.push_str(inner);
        }
    }
}

/// A tool call that the client does not know yet.
#[derive(Debug, Clone)]
struct Tool {
    name: String,
    title: String,
    kind: String,
}

impl Tool {
    fn of(call: &RawObject<'_>) -> Self {
        let title = call.text("title").unwrap_or_default().into_owned();
        let meta = call.object("_meta");
        let own = meta.and_then(|meta| meta.object("claudeCode")?.text("toolName"));
        Self {
            name: own.map_or_else(|| title.clone(), Cow::into_owned),
            title,
            kind: call.text("kind").unwrap_or("other".into()).into_owned(),
        }
    }
}

#[derive(Debug)]
pub(in crate::translate) struct EarlyClient {
    /// The folder of sessions for which the client names none.
    cwd: PathBuf,
    last_call: u64,
    /// The calls to the agent without an answer, with the ids of the client.
    calls: HashMap<u64, (Box<RawValue>, Purpose)>,
    turns: HashMap<String, Turn>,
    /// The permission requests without an answer, by the ids of the agent, with their sessions.
    permissions: HashMap<String, (Box<RawValue>, String)>,
    /// The folders of sessions whose variables were not used, so that each is reported once.
    warned: HashSet<String>,
    has_shut_down: bool,
    translated: Translated,
}

impl EarlyClient {
    /// `cwd` is the folder of sessions for which the client names none.
    pub(in crate::translate) fn new(cwd: PathBuf) -> Self {
        Self {
            cwd,
            last_call: 0,
            calls: HashMap::new(),
            turns: HashMap::new(),
            permissions: HashMap::new(),
            warned: HashSet::new(),
            has_shut_down: false,
            translated: Translated::default(),
        }
    }
}

impl ClientProtocol for EarlyClient {
    fn client_line(&mut self, line: &[u8]) -> Translated {
        match parse(line) {
            Ok(Message::Request { id, method, params }) => {
                if let Err(error) = self.requested(&id, &method, &params) {
                    self.respond(&id, &Err(error));
                }
            }
            // `initialized` needs no answer.
            Ok(Message::Notification { method, .. }) => {
                tracing::debug!(%method, "notification of the client");
            }
            Ok(Message::Response { id, outcome }) => self.permission_answered(&id, outcome),
            Err(error) => return Translated::invalid_line(&error),
        }
        std::mem::take(&mut self.translated)
    }

    fn agent_message(&mut self, message: Message) -> Translated {
        match message {
            Message::Response { id, outcome } => self.answered(&id, outcome),
            Message::Notification { method, params } => self.notified(&method, &params),
            Message::Request { id, method, params }
                if &*method == method::SESSION_REQUEST_PERMISSION =>
            {
                self.permission_requested(id, &params);
            }
            Message::Request { id, method, .. } => {
                self.answer_agent(id, Err(parse_error(&method_not_found(&method))));
            }
        }
        std::mem::take(&mut self.translated)
    }

    fn has_ended(&self) -> bool {
        self.has_shut_down
    }
}

impl EarlyClient {
    fn respond(&mut self, id: &RawValue, outcome: &Outcome) {
        let line = jsonrpc::response(id, outcome.as_deref());
        self.translated.to_client.push(line);
    }

    fn requested(
        &mut self,
        id: &RawValue,
        method: &str,
        params: &RawValue,
    ) -> Result<(), RpcError> {
        let params = RawObject::parse(params).unwrap_or_else(RawObject::empty);
        match method {
            method::INITIALIZE => self.initialize(id, &params),
            names::CREATE_SESSION => self.create_session(id, &params),
            names::PROMPT => self.prompt(id, &params),
            names::CANCEL_SESSION => self.cancel(id, &params),
            names::SHUTDOWN => {
                self.has_shut_down = true;
                self.respond(id, &Ok(RawValue::NULL.to_owned()));
                Ok(())
            }
            _ => Err(parse_error(&method_not_found(method))),
        }
    }

    fn call(
        &mut self,
        id: &RawValue,
        purpose: Purpose,
        method: &str,
        params: Box<RawValue>,
    ) -> Result<(), RpcError> {
        if self.calls.len() >= MAX_CALLS {
            let detail = "too many requests have no answer";
            return Err(RpcError::new(error_code::INTERNAL, detail));
        }
        self.last_call += 1;
        self.calls.insert(self.last_call, (id.to_owned(), purpose));
        self.translated.to_agent.push(Message::Request {
            id: to_raw(&self.last_call),
            method: method.into(),
            params,
        });
        Ok(())
    }

    fn initialize(&mut self, id: &RawValue, params: &RawObject<'_>) -> Result<(), RpcError> {
        let version = params.get("protocolVersion");
        if version.is_none_or(|version| !version.get().trim_matches('"').starts_with(['0', '1'])) {
            let detail = format!("protocolVersion must be {:?}", names::PROTOCOL_VERSION);
            return Err(invalid_params(detail));
        }
        let capabilities =
            json!({ "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false });
        let mut members = vec![
            ("protocolVersion", to_raw(&AcpVersion::V1.number())),
            ("clientCapabilities", to_raw(&capabilities)),
        ];
        if let Some(info) = params.get("clientInfo") {
            members.push(("clientInfo", info.to_owned()));
        }
        self.call(
            id,
            Purpose::Initialize,
            method::INITIALIZE,
            object(&members),
        )
    }

    fn create_session(&mut self, id: &RawValue, params: &RawObject<'_>) -> Result<(), RpcError> {
        let cwd = match params.get("workspaceDir") {
            None => self.cwd.to_string_lossy().into_owned(),
            Some(_) => params
                .text("workspaceDir")
                .ok_or_else(|| invalid_params("workspaceDir must be a text"))?
                .into_owned(),
        };
        let variables = params.object("environmentVars");
        let has_variables = variables.is_some_and(|variables| variables.iter().next().is_some());
        if has_variables && self.warned.len() < MAX_WARNED && self.warned.insert(cwd.clone()) {
            tracing::warn!(%cwd, "environmentVars are not used: ACP has no variables of a session");
        }
        let params = to_raw(&json!({ "cwd": cwd, "mcpServers": [] }));
        self.call(id, Purpose::CreateSession, method::SESSION_NEW, params)
    }

    fn prompt(&mut self, id: &RawValue, params: &RawObject<'_>) -> Result<(), RpcError> {
        let session = session_id(params)?;
        let text = params.starting("prompt", '"');
        let text = text.ok_or_else(|| invalid_params("prompt must be a text"))?;
        if self.turns.contains_key(&session) {
            return Err(invalid_request("a turn of this session is running"));
        }
        let params = object(&[
            ("sessionId", to_raw(&session)),
            ("prompt", to_raw(&[text_block(text)])),
        ]);
        let purpose = Purpose::Prompt(session.clone());
        self.call(id, purpose, method::SESSION_PROMPT, params)?;
        self.turns.insert(session, Turn::default());
        Ok(())
    }

    /// Cancels the turn of a session. `cancelled` of the answer is true if a turn was running.
    fn cancel(&mut self, id: &RawValue, params: &RawObject<'_>) -> Result<(), RpcError> {
        let session = session_id(params)?;
        let is_running = self.turns.contains_key(&session);
        if is_running {
            self.translated.to_agent.push(Message::Notification {
                method: method::SESSION_CANCEL.into(),
                params: to_raw(&json!({ "sessionId": session })),
            });
            self.cancel_permissions(&session);
        }
        let result = to_raw(&json!({ "cancelled": is_running }));
        self.respond(id, &Ok(result));
        Ok(())
    }
}

fn session_id(params: &RawObject<'_>) -> Result<String, RpcError> {
    let id = params.text("sessionId");
    let id = id.ok_or_else(|| invalid_params("sessionId must be a text"))?;
    Ok(id.into_owned())
}

impl EarlyClient {
    fn answered(&mut self, id: &RawValue, outcome: Outcome) {
        let number = id.get().parse().ok();
        let Some((id, purpose)) = number.and_then(|number: u64| self.calls.remove(&number)) else {
            return tracing::debug!("the agent answered an unknown call");
        };
        if let Purpose::Prompt(session) = &purpose {
            self.cancel_permissions(session);
        }
        let outcome = outcome.map(|result| {
            let result = RawObject::parse(&result).unwrap_or_else(RawObject::empty);
            match purpose {
                Purpose::Initialize => Self::initialize_result(&result),
                Purpose::CreateSession => {
                    let session = result.get("sessionId").unwrap_or(RawValue::NULL);
                    object(&[("sessionId", session.to_owned())])
                }
                Purpose::Prompt(ref session) => self.prompt_result(&result, session),
            }
        });
        if let Purpose::Prompt(session) = &purpose {
            self.turns.remove(session);
        }
        self.respond(&id, &outcome);
    }

    fn initialize_result(result: &RawObject<'_>) -> Box<RawValue> {
        let own =
            || to_raw(&json!({ "name": "acp-gateway", "version": env!("CARGO_PKG_VERSION") }));
        let info = result.value("agentInfo");
        object(&[
            ("protocolVersion", to_raw(names::PROTOCOL_VERSION)),
            ("serverInfo", info.map_or_else(own, ToOwned::to_owned)),
            ("capabilities", to_raw(&json!({}))),
        ])
    }

    /// The text of the turn, with the members of ACP that a client may know.
    fn prompt_result(&self, result: &RawObject<'_>, session: &str) -> Box<RawValue> {
        let text = self.turns.get(session).map_or("", |turn| &turn.text);
        let text = RawValue::from_string(format!("\"{text}\""));
        let mut members = vec![("content", text.expect("the parts of strings form a string"))];
        for name in ["stopReason", "usage"] {
            members.extend(result.get(name).map(|value| (name, value.to_owned())));
        }
        object(&members)
    }
}

impl EarlyClient {
    fn answer_agent(&mut self, id: Box<RawValue>, outcome: Outcome) {
        let answer = Message::Response { id, outcome };
        self.translated.to_agent.push(answer);
    }

    fn permission_requested(&mut self, id: Box<RawValue>, params: &RawValue) {
        let params = RawObject::parse(params).unwrap_or_else(RawObject::empty);
        let session = params.text("sessionId").unwrap_or_default().into_owned();
        if self.permissions.len() >= MAX_PERMISSIONS {
            let detail = "too many requests have no answer";
            return self.answer_agent(id, Err(RpcError::new(error_code::INTERNAL, detail)));
        }
        let call = params.object("toolCall").unwrap_or_else(RawObject::empty);
        let options = params.get("options").map_or("[]", RawValue::get);
        let options: Vec<Value> = serde_json::from_str(options).unwrap_or_default();
        let option = |option: &Value| json!({ "optionId": option["optionId"], "label": option["name"], "kind": option["kind"] });
        let options: Vec<_> = options.iter().map(option).collect();
        let shown = contents(&call);
        let title = call.text("title").unwrap_or("Permission".into());
        let mut message = text_of(&shown);
        if message.is_empty() {
            message = title.clone().into_owned();
        }
        // The early protocol has no member for the input, and a title may omit a part of the action. A diff shows its input.
        let is_diff = shown.iter().any(|part| part["type"] == "diff");
        let input = call.value("rawInput");
        if let (Some(input), false) = (input, is_diff) {
            message = format!("{message}\n{input}");
        }
        let params = object(&[
            ("sessionId", to_raw(&session)),
            ("title", to_raw(&title)),
            ("message", to_raw(&message)),
            ("toolCallId", to_raw(&call.text("toolCallId"))),
            ("options", to_raw(&options)),
        ]);
        let line = jsonrpc::request(&id, method::SESSION_REQUEST_PERMISSION, &params);
        self.permissions.insert(id.get().to_owned(), (id, session));
        self.translated.to_client.push(line);
    }

    /// The client answers a request. An answer without a known option cancels it.
    fn permission_answered(&mut self, id: &RawValue, outcome: Outcome) {
        let Some((id, _)) = self.permissions.remove(id.get()) else {
            return;
        };
        let answer = outcome.ok();
        let answer = answer.as_deref().and_then(RawObject::parse);
        let outcome = match answer.as_ref().and_then(selected) {
            Some(option) => json!({ "outcome": "selected", "optionId": option }),
            None => json!({ "outcome": "cancelled" }),
        };
        self.answer_agent(id, Ok(to_raw(&json!({ "outcome": outcome }))));
    }

    fn cancel_permissions(&mut self, session: &str) {
        let open = self.permissions.extract_if(|_, (_, of)| of == session);
        for (id, _) in open.map(|(_, request)| request).collect::<Vec<_>>() {
            let cancelled = json!({ "outcome": { "outcome": "cancelled" } });
            self.answer_agent(id, Ok(to_raw(&cancelled)));
        }
    }
}

/// The id of the selected option, in each form: in `outcome` as in ACP, or as a member of the answer.
fn selected(answer: &RawObject<'_>) -> Option<String> {
    let outcome = answer.object("outcome");
    let objects = [outcome.as_ref(), Some(answer)].into_iter().flatten();
    let names = ["optionId", "option", "selected"];
    let found = objects.flat_map(|object| names.map(|name| object.text(name)));
    found.flatten().next().map(String::from)
}

/// Notifications of the agent: texts, thoughts and tool calls.
///
/// A tool call and its result are sent twice, with the same id: as `agent/update`, and with a method of their own. Clients
/// read one of both.
impl EarlyClient {
    fn update(&mut self, session: &str, kind: &str, members: &Members) {
        let first = [("sessionId", to_raw(session)), ("updateType", to_raw(kind))];
        let params = object(&[&first[..], members].concat());
        let line = jsonrpc::notification(names::UPDATE, &params);
        self.translated.to_client.push(line);
    }

    /// Sends a message about a tool in both forms.
    fn about_tool(&mut self, session: &str, kind: &str, method: &str, members: &Members) {
        self.update(session, kind, members);
        let first = [("sessionId", to_raw(session))];
        let params = object(&[&first[..], members].concat());
        let line = jsonrpc::notification(method, &params);
        self.translated.to_client.push(line);
    }

    fn notified(&mut self, method: &str, params: &RawValue) {
        let params = RawObject::parse(params).unwrap_or_else(RawObject::empty);
        if method == method::CANCEL_REQUEST {
            // The agent withdraws a request. A late answer is dropped.
            if let Some(id) = params.get("requestId") {
                self.permissions.remove(id.get());
            }
            return;
        }
        let (Some(session), Some(changed)) = (params.text("sessionId"), params.object("update"))
        else {
            return;
        };
        match &*changed.text("sessionUpdate").unwrap_or_default() {
            kind::AGENT_MESSAGE_CHUNK => self.chunk(&session, "response", &changed),
            kind::AGENT_THOUGHT_CHUNK => self.chunk(&session, "thinking", &changed),
            kind::TOOL_CALL | kind::TOOL_CALL_UPDATE => self.tool(&session, &changed),
            other => tracing::debug!(
                kind = other,
                "skipped an update without a meaning in early-acp"
            ),
        }
    }

    fn chunk(&mut self, session: &str, kind: &str, changed: &RawObject<'_>) {
        let Some(content) = changed.object("content") else {
            return;
        };
        let text = match content.get("text") {
            Some(text) if text.get().starts_with('"') => text.to_owned(),
            _ => {
                let kind = content.text("type").unwrap_or_default();
                let uri = content.text("uri").unwrap_or_default();
                to_raw(&format!("[{kind}]({uri})"))
            }
        };
        if kind == "response"
            && let Some(turn) = self.turns.get_mut(session)
        {
            turn.add_text(&text);
        }
        self.update(session, kind, &[("content", text)]);
    }

    /// Announces a tool call as soon as its input is known, and its result.
    fn tool(&mut self, session: &str, changed: &RawObject<'_>) {
        let Some(id) = changed.text("toolCallId") else {
            return;
        };
        let status = changed.text("status");
        let has_ended = matches!(status.as_deref(), Some("completed" | "failed"));
        let input = changed.get("rawInput");
        let input = input.filter(|input| input.get() != "null");
        let turn = self.turns.get_mut(session);
        let known = turn.and_then(|turn| turn.tools.remove(&*id));
        let mut unknown = known.unwrap_or_else(|| Some(Tool::of(changed)));
        if (has_ended || input.is_some())
            && let Some(tool) = unknown.take()
        {
            let mut members = vec![
                ("toolCallId", to_raw(&id)),
                ("name", to_raw(&tool.name)),
                ("title", to_raw(&tool.title)),
                ("kind", to_raw(&tool.kind)),
            ];
            members.extend(input.map(|input| ("input", input.to_owned())));
            self.about_tool(session, "tool_call", names::TOOL_CALL, &members);
        }
        if !has_ended {
            if let Some(turn) = self.turns.get_mut(session)
                && turn.tools.len() < MAX_TOOLS
            {
                turn.tools.insert(id.into_owned(), unknown);
            }
            return;
        }
        // The result as the tool returned it, or as the agent shows it.
        let output = changed.get("rawOutput");
        let content = match output.filter(|output| output.get() != "null") {
            Some(output) => output.to_owned(),
            None => to_raw(&text_of(&contents(changed))),
        };
        let members = [
            ("toolCallId", to_raw(&id)),
            ("content", content),
            ("isError", to_raw(&(status.as_deref() == Some("failed")))),
        ];
        self.about_tool(session, "tool_result", names::TOOL_RESULT, &members);
    }
}

fn contents(call: &RawObject<'_>) -> Vec<Value> {
    let content = call.get("content").map_or("[]", RawValue::get);
    serde_json::from_str(content).unwrap_or_default()
}

/// The texts of contents, each on a line of its own.
fn text_of(contents: &[Value]) -> String {
    let contents = contents.iter();
    let texts = contents.filter_map(|part| part["content"]["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}
