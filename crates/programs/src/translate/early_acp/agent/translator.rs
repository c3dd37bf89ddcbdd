//! The state of the translation, and the messages of the client.

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;

use super::content::Streamed;
use super::tools::Tools;
use crate::translate::early_acp::names;
use crate::translate::message::{
    LineError, Members, Object, invalid_params, invalid_request, missing, response,
};
use crate::translate::protocol::Output;
use wire::acp::{self, AcpVersion, error_code, method, to_raw};
use wire::jsonrpc::{self, CallId, Message, RpcError};

/// The version in `initialize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::translate) enum Opening {
    /// The text "1.0".
    Text,
    /// The number 1, as in ACP.
    Number,
}

impl Opening {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Text => Self::Number,
            Self::Number => Self::Text,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    Early,
    Modern,
}

impl Names {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Early => Self::Modern,
            Self::Modern => Self::Early,
        }
    }
}

/// The method and the members of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptForm {
    /// `agent/prompt` with the text in `prompt`.
    Text,
    /// `session/prompt` with the blocks in `prompt` and in `content`, because an agent can treat a missing member as an
    /// empty prompt.
    Both,
    /// `session/prompt` with the blocks in `content`.
    Content,
    /// `session/prompt` as in ACP.
    Blocks,
}

impl PromptForm {
    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Text => names::PROMPT,
            Self::Both | Self::Content | Self::Blocks => method::SESSION_PROMPT,
        }
    }

    /// The forms in the order of the attempts.
    const fn attempts(names: Names) -> [Self; 4] {
        match names {
            Names::Early => [Self::Text, Self::Both, Self::Content, Self::Blocks],
            Names::Modern => [Self::Both, Self::Content, Self::Blocks, Self::Text],
        }
    }

    /// The next attempt after an error with this code to a prompt in this form. An unknown method rules out all forms with
    /// the method.
    pub(super) fn next(self, names: Names, code: i64) -> Option<Self> {
        let attempts = Self::attempts(names).into_iter();
        let mut later = attempts.skip_while(|form| *form != self).skip(1);
        match code {
            error_code::METHOD_NOT_FOUND => later.find(|form| form.method() != self.method()),
            error_code::INVALID_PARAMS => later.find(|form| form.method() == self.method()),
            _ => None,
        }
    }
}

/// The ids of the translation's own requests begin here. The calls of the client are counted from 1.
pub(super) const FIRST_OWN_ID: u64 = 1_000_000_000;

/// The maximum size of the params that are kept for another attempt. Larger ones have only one attempt.
const MAX_RETAINED: usize = 1 << 20;

/// Methods that only agents with modern names can have.
const MODERN_METHODS: [&str; 11] = [
    method::AUTHENTICATE,
    method::LOGOUT,
    method::SESSION_LOAD,
    method::SESSION_RESUME,
    method::SESSION_FORK,
    method::SESSION_LIST,
    method::SESSION_CLOSE,
    method::SESSION_DELETE,
    method::SESSION_SET_MODE,
    method::SESSION_SET_MODEL,
    method::SESSION_SET_CONFIG_OPTION,
];

/// Translates between the messages of ACP and the lines of one agent.
#[derive(Debug)]
pub(super) struct Translator {
    pub(super) opening: Opening,
    pub(super) names: Names,
    /// The form of prompts that the agent accepted.
    pub(super) form: Option<PromptForm>,
    pub(super) initialize: Option<Attempt>,
    pub(super) set_up: Option<SetUp>,
    pub(super) session: Option<Box<str>>,
    pub(super) turn: Option<Turn>,
    pub(super) tools: Tools,
    pub(super) initialized: Notice,
    /// The agent has answered `initialize`.
    pub(super) is_open: bool,
    said_farewell: bool,
    own_requests: u64,
    pub(super) out: Vec<Output>,
}

/// Whether the notification `initialized` is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    Unknown,
    /// The translation sends it before its next line.
    Due,
    /// One side has sent it.
    Sent,
}

/// A call with its params, for another attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) call: CallId,
    /// The params of ACP. `None` if there is no further attempt.
    pub(super) params: Option<Box<RawValue>>,
    /// The error of the first attempt.
    pub(super) first_error: Option<RpcError>,
}

impl Attempt {
    fn new(call: CallId, params: &RawValue, may_repeat: bool) -> Self {
        let kept = may_repeat && params.get().len() <= MAX_RETAINED;
        Self {
            call,
            params: kept.then(|| params.to_owned()),
            first_error: None,
        }
    }
}

/// A call that creates or restores the session.
#[derive(Debug)]
pub(super) struct SetUp {
    pub(super) attempt: Attempt,
    /// The session to restore. `None` for a new one.
    pub(super) restores: Option<Box<str>>,
}

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) attempt: Attempt,
    pub(super) form: PromptForm,
    pub(super) is_cancelled: bool,
    pub(super) has_output: bool,
    /// A text of the agent has a lone surrogate, so that it cannot be compared.
    pub(super) has_undecoded: bool,
    pub(super) streamed: Streamed,
}

/// A line for the agent, or the immediate answer to a call.
pub(super) type Step = Result<Bytes, RpcError>;

impl Translator {
    pub(super) fn new(opening: Opening, prefix: String) -> Self {
        Self {
            opening,
            names: Names::Early,
            form: None,
            initialize: None,
            set_up: None,
            session: None,
            turn: None,
            tools: Tools::new(prefix),
            initialized: Notice::Unknown,
            is_open: false,
            said_farewell: false,
            own_requests: 0,
            out: Vec::new(),
        }
    }

    pub(super) fn encode(&mut self, message: &Message) {
        let lines = match message {
            Message::Request { id, method, params } => {
                let Some(id) = CallId::parse(id) else { return };
                match self.request(id, method, params) {
                    Ok(lines) => lines,
                    Err(error) => return self.out.push(response(id, Err(error))),
                }
            }
            Message::Notification { method, params } if **method == *method::SESSION_CANCEL => {
                self.cancel(params)
            }
            Message::Notification { .. } if self.names == Names::Early => return,
            Message::Notification { .. } | Message::Response { .. } => message.line(),
        };
        if !lines.is_empty() {
            let lines = self.after_initialized(lines);
            self.out.push(Output::ToAgent(lines));
        }
    }

    /// Adds the notification `initialized` before the first line after `initialize`.
    fn after_initialized(&mut self, line: Bytes) -> Bytes {
        if self.initialized != Notice::Due {
            return line;
        }
        self.initialized = Notice::Sent;
        let first = jsonrpc::notification(names::INITIALIZED, &to_raw(&json!({})));
        [first, line].concat().into()
    }

    fn request(&mut self, id: CallId, method: &str, params: &RawValue) -> Step {
        match method {
            method::INITIALIZE => {
                self.initialize = Some(Attempt::new(id, params, true));
                self.send_initialize(id, params)
            }
            method::SESSION_NEW => self.set_up(id, params),
            method::SESSION_LOAD | method::SESSION_RESUME if self.names == Names::Modern => {
                let restores = acp::session_id_of(params).ok().flatten().map(Into::into);
                self.set_up = Some(SetUp {
                    attempt: Attempt::new(id, params, false),
                    restores,
                });
                Ok(jsonrpc::request(id, method, params))
            }
            method::SESSION_PROMPT => self.prompt(id, params),
            _ if self.names == Names::Early && MODERN_METHODS.contains(&method) => {
                let detail = format!(
                    "\"Method not found\": {method}: the early protocol of this agent does not have it"
                );
                Err(RpcError::new(error_code::METHOD_NOT_FOUND, detail))
            }
            _ => Ok(jsonrpc::request(id, method, params)),
        }
    }

    pub(super) fn send_initialize(&self, id: CallId, params: &RawValue) -> Step {
        let params = initialize(self.opening, params).map_err(invalid_params)?;
        Ok(jsonrpc::request(id, method::INITIALIZE, &params))
    }

    fn set_up(&mut self, id: CallId, params: &RawValue) -> Step {
        if self.session.is_some() {
            return Err(invalid_request(
                "a process of this agent serves one session",
            ));
        }
        let line = self.send_set_up(id, params)?;
        self.set_up = Some(SetUp {
            attempt: Attempt::new(id, params, true),
            restores: None,
        });
        Ok(line)
    }

    pub(super) fn send_set_up(&self, id: CallId, params: &RawValue) -> Step {
        if self.names == Names::Modern {
            return Ok(jsonrpc::request(id, method::SESSION_NEW, params));
        }
        let object = Object::parse("params", params).map_err(invalid_params)?;
        let servers = object.array("mcpServers");
        if servers.is_some_and(|servers| !servers.is_empty()) {
            let detail = "the early protocol of this agent has no MCP servers; remove `mcpServers`";
            return Err(invalid_params(detail));
        }
        let cwd = object.required_text("cwd").map_err(invalid_params)?;
        let params = to_raw(&json!({ "workspaceDir": cwd }));
        Ok(jsonrpc::request(id, names::CREATE_SESSION, &params))
    }

    fn prompt(&mut self, id: CallId, params: &RawValue) -> Step {
        if self.turn.is_some() {
            return Err(invalid_request("a turn of this session is running"));
        }
        let first = PromptForm::attempts(self.names)[0];
        let form = self.form.unwrap_or(first);
        let line = self.send_prompt(form, id, params)?;
        self.turn = Some(Turn {
            attempt: Attempt::new(id, params, self.form.is_none()),
            form,
            is_cancelled: false,
            has_output: false,
            has_undecoded: false,
            streamed: Streamed::default(),
        });
        Ok(line)
    }

    pub(super) fn send_prompt(&self, form: PromptForm, id: CallId, params: &RawValue) -> Step {
        let named = acp::session_id_of(params).ok().flatten();
        let session = named.as_deref().or(self.session.as_deref());
        let session = session.unwrap_or_default();
        let params = prompt(form, session, params).map_err(invalid_params)?;
        Ok(jsonrpc::request(id, form.method(), &params))
    }

    /// The line that cancels the turn. Agents with early names answer it; some read it only after the turn.
    fn cancel(&mut self, params: &RawValue) -> Bytes {
        let form = self.turn.as_mut().map(|turn| {
            turn.is_cancelled = true;
            // The agent must not begin again.
            turn.attempt.params = None;
            turn.form
        });
        match form {
            Some(PromptForm::Text) => {
                let session = self.session.as_deref().unwrap_or_default();
                let params = to_raw(&json!({ "sessionId": session }));
                self.own_request(names::CANCEL_SESSION, &params)
            }
            None if self.names == Names::Early => Bytes::new(),
            _ => jsonrpc::notification(method::SESSION_CANCEL, params),
        }
    }

    fn own_request(&mut self, method: &'static str, params: &RawValue) -> Bytes {
        let id = FIRST_OWN_ID + self.own_requests;
        self.own_requests += 1;
        jsonrpc::request(id, method, params)
    }

    pub(super) fn farewell(&mut self) -> Bytes {
        let is_known = self.is_open && self.names == Names::Early;
        if !is_known || std::mem::replace(&mut self.said_farewell, true) {
            return Bytes::new();
        }
        self.own_request(names::SHUTDOWN, &to_raw(&json!({})))
    }

    /// The result of a step after a line of the agent.
    pub(super) fn send(&mut self, call: CallId, step: Step) {
        self.out.push(match step {
            Ok(line) => Output::ToAgent(line),
            Err(error) => response(call, Err(error)),
        });
    }
}

/// Converts the ACP params of `initialize`. The result contains the members of early agents and of ACP.
fn initialize(opening: Opening, params: &RawValue) -> Result<Box<RawValue>, LineError> {
    let params = Object::parse("params", params)?;
    let version = match opening {
        Opening::Text => to_raw(&names::PROTOCOL_VERSION),
        Opening::Number => to_raw(&AcpVersion::V1.number()),
    };
    let offered = params.required_object("clientCapabilities")?;
    let files = offered.object("fs");
    // Some agents read these members without `fs`.
    let flat = ["readTextFile", "writeTextFile"];
    let flat = flat.iter();
    let flat = flat.filter_map(|name| Some((*name, files.as_ref()?.get(name)?)));
    let capabilities: Members<'_> = offered.iter().chain(flat).collect();
    let mut members: Members<'_> = params.iter().collect();
    members.set("protocolVersion", version);
    members.set("clientCapabilities", to_raw(&capabilities));
    members.set("capabilities", acp::empty_result());
    Ok(to_raw(&members))
}

/// The params of a prompt for the agent. `params` are those of `session/prompt`.
fn prompt(
    form: PromptForm,
    session_id: &str,
    params: &RawValue,
) -> Result<Box<RawValue>, LineError> {
    let params = Object::parse("params", params)?;
    let blocks = params.required("prompt")?;
    let mut members = Members::default();
    members.set("sessionId", to_raw(session_id));
    match form {
        PromptForm::Text => members.set("prompt", text(&params)?),
        PromptForm::Both | PromptForm::Blocks => members.set("prompt", blocks.to_owned()),
        PromptForm::Content => {}
    }
    if matches!(form, PromptForm::Both | PromptForm::Content) {
        members.set("content", blocks.to_owned());
    }
    Ok(to_raw(&members))
}

/// The text of the blocks. It keeps the spelling of the client, also a lone surrogate.
fn text(params: &Object<'_>) -> Result<Box<RawValue>, LineError> {
    let mut literals = Vec::new();
    for block in params.required_array("prompt")? {
        let block = Object::parse("prompt", block)?;
        match &*block.required_text("type")? {
            "text" => literals.push(block.required("text")?.get().to_owned()),
            "resource_link" => {
                let uri = block.required_text("uri")?;
                let name = block.text("name");
                let name = name.filter(|name| !name.is_empty() && *name != uri);
                let link = name.map_or_else(|| uri.to_string(), |name| format!("[@{name}]({uri})"));
                literals.push(to_raw(&link).get().to_owned());
            }
            // The agent advertises no other content.
            _ => {
                return Err(missing("prompt", "type"));
            }
        }
    }
    let bodies: Option<Vec<&str>> = literals
        .iter()
        .map(|literal| {
            literal
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'))
        })
        .collect();
    let joined = bodies.map(|bodies| format!("\"{}\"", bodies.join("\\n")));
    let joined = joined.and_then(|literal| RawValue::from_string(literal).ok());
    joined.ok_or(missing("prompt", "text"))
}

#[cfg(test)]
mod variation_tests {
    use super::*;

    #[test]
    fn every_form_of_a_prompt_follows_from_the_errors_of_the_agent() {
        let attempts = |names, code| {
            let first = PromptForm::attempts(names)[0];
            std::iter::successors(Some(first), |form| form.next(names, code)).collect::<Vec<_>>()
        };
        assert_eq!(
            attempts(Names::Early, -32601),
            [PromptForm::Text, PromptForm::Both]
        );
        assert_eq!(attempts(Names::Early, -32602), [PromptForm::Text]);
        assert_eq!(
            attempts(Names::Modern, -32602),
            [PromptForm::Both, PromptForm::Content, PromptForm::Blocks]
        );
        assert_eq!(
            attempts(Names::Modern, -32601),
            [PromptForm::Both, PromptForm::Text]
        );
        assert_eq!(attempts(Names::Modern, -32603), [PromptForm::Both]);
        assert_eq!(
            PromptForm::Both.next(Names::Early, -32602),
            Some(PromptForm::Content)
        );
    }
}

#[cfg(test)]
mod prompt_tests {
    use super::*;

    fn encoded(form: PromptForm, blocks: &str) -> Result<String, LineError> {
        let params =
            RawValue::from_string(format!(r#"{{"sessionId":"ours","prompt":{blocks}}}"#)).unwrap();
        prompt(form, "s", &params).map(|params| params.get().to_owned())
    }

    #[test]
    fn blocks_are_one_text_or_members_of_both_spellings() {
        let blocks = concat!(
            r#"[{"type":"text","text":"a\ud83d \"b\""},"#,
            r#"{"type":"resource_link","uri":"file:///x","name":"x"},{"type":"resource_link","uri":"u","name":"u"}]"#
        );
        let text = r#"{"sessionId":"s","prompt":"a\ud83d \"b\"\n[@x](file:///x)\nu"}"#;
        assert_eq!(encoded(PromptForm::Text, blocks).unwrap(), text);
        let of = |members: &str| format!(r#"{{"sessionId":"s",{members}}}"#);
        assert_eq!(
            encoded(PromptForm::Content, blocks).unwrap(),
            of(&format!("\"content\":{blocks}"))
        );
        assert_eq!(
            encoded(PromptForm::Blocks, blocks).unwrap(),
            of(&format!("\"prompt\":{blocks}"))
        );
        assert_eq!(
            encoded(PromptForm::Both, blocks).unwrap(),
            of(&format!("\"prompt\":{blocks},\"content\":{blocks}"))
        );
    }

    #[test]
    fn prompt_without_a_text_is_a_typed_error() {
        let wrong = |member| {
            Err(LineError::Member {
                object: "prompt",
                member,
            })
        };
        assert_eq!(
            encoded(PromptForm::Text, r#"[{"type":"image","data":""}]"#),
            wrong("type")
        );
        assert_eq!(
            encoded(PromptForm::Text, r#"[{"type":"text"}]"#),
            wrong("text")
        );
        assert_eq!(
            encoded(PromptForm::Text, r#"[{"type":"text","text":7}]"#),
            wrong("text")
        );
    }
}
