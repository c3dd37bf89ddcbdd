//! The state of the translation, and the messages of the client.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::bounds::{MAX_CONTROLS, MAX_NAME};
use super::permission::{Answered, Permissions};
use super::settings::{MODEL, Settings, selected_option};
use super::streamed::{Streamed, Subagents};
use super::tool::{OpenTools, Tasks};
use super::turn::Turn;
use crate::translate::message::{
    LineError, Object, invalid_params, invalid_request, missing, response, text_block, update,
};
use crate::translate::protocol::Output;
use wire::acp::{self, RawObject, error_code, method, object, to_raw};
use wire::jsonrpc::{self, CallId, RpcError};

#[derive(Debug, Default)]
pub(super) struct Translator {
    pub(super) session: StartedSession,
    /// The version of the CLI, if its command prints one. The CLI reports it only with its first turn.
    pub(super) version: Option<String>,
    pub(super) has_begun: bool,
    pub(super) set_up: Option<SetUp>,
    pub(super) last_control: u64,
    pub(super) controls: HashMap<String, Purpose>,
    pub(super) permissions: Permissions,
    /// The running turn, with the call of its prompt.
    pub(super) turn: Option<(CallId, Turn)>,
    pub(super) conversation: Conversation,
    pub(super) settings: Settings,
    pub(super) out: Vec<Output>,
}

/// The parts of the conversation that later lines refer to.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) streamed: Streamed,
    pub(super) tools: OpenTools,
    pub(super) tasks: Tasks,
    pub(super) subagents: Subagents,
}

/// Lines for the CLI, or the immediate answer to a call.
type Step = Result<String, RpcError>;

impl Translator {
    pub(super) fn session_id(&self) -> &str {
        &self.session.id
    }

    pub(super) fn call(&mut self, id: CallId, method: &str, params: &RawValue) {
        match self.request(id, method, params) {
            Ok(lines) => self.send(lines),
            Err(error) => self.out.push(response(id, Err(error))),
        }
    }

    fn send(&mut self, lines: String) {
        if !lines.is_empty() {
            self.out.push(Output::ToAgent(lines.into()));
        }
    }

    fn request(&mut self, id: CallId, method: &str, params: &RawValue) -> Step {
        match method {
            method::INITIALIZE => self.control(
                Purpose::Initialize(id),
                &json!({ "subtype": "initialize", "hooks": null }),
            ),
            method::SESSION_NEW => self.begin(id, true, params),
            method::SESSION_RESUME => self.begin(id, false, params),
            method::SESSION_PROMPT => self.prompt(id, params),
            method::SESSION_SET_MODE => self.select_mode(id, params),
            method::SESSION_SET_CONFIG_OPTION => self.select_option(id, params),
            _ => Err(jsonrpc::parse_error(&acp::method_not_found(method))),
        }
    }

    fn control(&mut self, purpose: Purpose, request: &Value) -> Step {
        if self.controls.len() >= MAX_CONTROLS {
            let detail = "the agent does not answer; stop its process";
            return Err(RpcError::new(error_code::INTERNAL, detail));
        }
        self.last_control += 1;
        let id = format!("gateway-{}", self.last_control);
        let line = object(&[
            ("type", to_raw("control_request")),
            ("request_id", to_raw(&id)),
            ("request", to_raw(request)),
        ]);
        self.controls.insert(id, purpose);
        Ok(format!("{line}\n"))
    }

    /// The call `initialize`, if the CLI has not answered it.
    pub(super) fn take_initialize(&mut self) -> Option<CallId> {
        let is_initialize = |purpose: &Purpose| matches!(purpose, Purpose::Initialize(_));
        let controls = &mut self.controls;
        let mut open = controls.extract_if(|_, purpose| is_initialize(purpose));
        match open.next()? {
            (_, Purpose::Initialize(call)) => Some(call),
            _ => None,
        }
    }

    /// Creates or restores the session. Without control requests the answer needs no line of the CLI, which reports a
    /// session only with its first turn.
    fn begin(&mut self, call: CallId, is_new: bool, params: &RawValue) -> Step {
        let requests = set_up_requests(params).map_err(invalid_params)?;
        if requests.is_empty() {
            self.session_ready(call, is_new);
            return Ok(String::new());
        }
        let mut lines = String::new();
        for request in &requests {
            lines += &self.control(Purpose::SetUp, request)?;
        }
        self.set_up = Some(SetUp {
            call,
            is_new,
            missing: requests.len(),
            failed: None,
        });
        Ok(lines)
    }

    /// Answers the set-up of the session, and reports the commands of the agent.
    pub(super) fn session_ready(&mut self, call: CallId, is_new: bool) {
        self.has_begun = true;
        let (modes, options) = self.settings.offered();
        let mut result = json!({ "modes": modes, "configOptions": options });
        if is_new {
            result["sessionId"] = json!(self.session_id());
        }
        self.out.push(response(call, Ok(to_raw(&result))));
        if let Some(commands) = self.settings.commands() {
            self.out.push(update(self.session_id(), &commands));
        }
    }

    fn prompt(&mut self, id: CallId, params: &RawValue) -> Step {
        if self.turn.is_some() {
            return Err(invalid_request("a turn of this session is running"));
        }
        let line = user_message(params).map_err(invalid_params)?;
        self.turn = Some((id, Turn::default()));
        Ok(format!("{line}\n"))
    }

    pub(super) fn cancel(&mut self) {
        let Some((_, turn)) = &mut self.turn else {
            return;
        };
        turn.cancelled = true;
        // The CLI withdraws its open requests, so it does not expect their answers.
        self.permissions.clear();
        let interrupt = self.control(Purpose::Interrupt, &json!({ "subtype": "interrupt" }));
        self.send(interrupt.unwrap_or_default());
    }

    fn select_mode(&mut self, id: CallId, params: &RawValue) -> Step {
        let mode = RawObject::parse(params).and_then(|params| params.text("modeId"));
        let mode = mode.ok_or_else(|| invalid_params(missing("params", "modeId")))?;
        if mode.len() > MAX_NAME {
            let detail = format!("`modeId` is longer than {MAX_NAME} bytes");
            return Err(invalid_params(detail));
        }
        let request = json!({ "subtype": "set_permission_mode", "mode": mode });
        self.control(Purpose::Mode(id, mode.into_owned()), &request)
    }

    fn select_option(&mut self, id: CallId, params: &RawValue) -> Step {
        let (option, value) =
            selected_option(params).ok_or_else(|| invalid_params(missing("params", "value")))?;
        if option != MODEL || !self.settings.has_model(&value) {
            return Err(invalid_params(format_args!(
                "the agent does not offer the value {value:?} of {option:?}"
            )));
        }
        let request = json!({ "subtype": "set_model", "model": value });
        self.control(Purpose::Model(id, value), &request)
    }

    /// Answers a control request of the CLI, unless the CLI has withdrawn it.
    pub(super) fn answer(&mut self, id: &RawValue, outcome: Result<Box<RawValue>, RpcError>) {
        let answered = self.permissions.answer(id, outcome.as_deref().ok());
        let (response, error) = match (answered, outcome) {
            (Answered::Permission(answer), _) => (Some(answer), None),
            (Answered::Withdrawn, _) => return,
            (Answered::Other, Ok(result)) => (Some(result), None),
            (Answered::Other, Err(failed)) => (None, Some(failed.message)),
        };
        self.send(control_response(id, response.as_deref(), error));
    }
}

/// The session that the process was started for.
#[derive(Debug, Clone, Default)]
pub(super) struct StartedSession {
    pub(super) id: String,
    pub(super) cwd: PathBuf,
    /// The process continues the session with this id.
    pub(super) restores: bool,
}

#[derive(Debug)]
pub(super) struct SetUp {
    pub(super) call: CallId,
    pub(super) is_new: bool,
    /// The number of answers that are missing.
    pub(super) missing: usize,
    pub(super) failed: Option<RpcError>,
}

/// The control requests that set up a session with these params: MCP servers, and further folders.
fn set_up_requests(params: &RawValue) -> Result<Vec<Value>, LineError> {
    let params = Object::parse("params", params)?;
    let mut servers = Map::new();
    for server in params.array("mcpServers").into_iter().flatten() {
        let server = Object::parse("mcpServers", server)?;
        let name = server.required_text("name")?.into_owned();
        servers.insert(name, mcp_server(&server)?);
    }
    let directories = params.array("additionalDirectories").unwrap_or_default();
    let mut requests = Vec::new();
    if !servers.is_empty() {
        requests.push(json!({ "subtype": "mcp_set_servers", "servers": servers }));
    }
    if !directories.is_empty() {
        let permissions = json!({ "additionalDirectories": directories });
        requests.push(
            json!({ "subtype": "apply_flag_settings", "settings": { "permissions": permissions } }),
        );
    }
    Ok(requests)
}

fn mcp_server(server: &Object<'_>) -> Result<Value, LineError> {
    let pairs = |member| -> Result<Map<String, Value>, LineError> {
        let pairs = server.array(member).into_iter().flatten();
        let pair = |pair| {
            let pair = Object::parse(member, pair)?;
            Ok((
                pair.required_text("name")?.into_owned(),
                json!(pair.required_text("value")?),
            ))
        };
        pairs.map(pair).collect()
    };
    Ok(match server.text("type").as_deref() {
        Some(kind @ ("http" | "sse")) => {
            json!({ "type": kind, "url": server.required_text("url")?, "headers": pairs("headers")? })
        }
        _ => json!({
            "type": "stdio", "command": server.required_text("command")?,
            "args": server.array("args").unwrap_or_default(), "env": pairs("env")?,
        }),
    })
}

pub(super) fn control_response(
    id: &RawValue,
    response: Option<&RawValue>,
    error: Option<String>,
) -> String {
    let subtype = if error.is_none() { "success" } else { "error" };
    let mut outcome = vec![("subtype", to_raw(subtype)), ("request_id", id.to_owned())];
    outcome.extend(response.map(|response| ("response", response.to_owned())));
    outcome.extend(error.map(|error| ("error", to_raw(&error))));
    let line = object(&[
        ("type", to_raw("control_response")),
        ("response", object(&outcome)),
    ]);
    format!("{line}\n")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    Initialize(CallId),
    SetUp,
    Mode(CallId, String),
    Model(CallId, String),
    Interrupt,
}

/// The user message for the params of `session/prompt`.
fn user_message(params: &RawValue) -> Result<Box<RawValue>, LineError> {
    let params = Object::parse("params", params)?;
    let mut content = Vec::new();
    let mut embedded = Vec::new();
    for block in params.required_array("prompt")? {
        let block = Object::parse("prompt", block)?;
        match &*block.required_text("type")? {
            "text" => content.push(text_block(block.required("text")?)),
            "image" => content.push(to_raw(&image(&block)?)),
            "resource_link" => {
                let uri = block.required_text("uri")?;
                content.push(text(&link(&uri, block.text("name").as_deref())));
            }
            "resource" => resource(
                &block.required_object("resource")?,
                &mut content,
                &mut embedded,
            )?,
            _ => {
                return Err(missing("prompt", "type"));
            }
        }
    }
    // The model reads the context better after the question.
    content.append(&mut embedded);
    let message = object(&[("role", to_raw("user")), ("content", to_raw(&content))]);
    Ok(object(&[
        ("type", to_raw("user")),
        ("message", message),
        ("parent_tool_use_id", RawValue::NULL.to_owned()),
        ("session_id", to_raw("")),
    ]))
}

fn text(text: &str) -> Box<RawValue> {
    text_block(&to_raw(text))
}

fn link(uri: &str, name: Option<&str>) -> String {
    let name = name.or_else(|| uri.rsplit('/').next());
    let name = name.filter(|name| !name.is_empty()).unwrap_or(uri);
    format!("[@{name}]({uri})")
}

fn image(block: &Object<'_>) -> Result<Value, LineError> {
    let remote = block.text("uri");
    let remote = remote.filter(|uri| uri.starts_with("https://") || uri.starts_with("http://"));
    let data = block.text("data").filter(|data| !data.is_empty());
    Ok(match (data, remote) {
        (None, Some(url)) => json!({ "type": "image", "source": { "type": "url", "url": url } }),
        _ => base64(
            "image",
            &block.required_text("mimeType")?,
            &block.required_text("data")?,
        ),
    })
}

fn base64(kind: &str, mime: &str, data: &str) -> Value {
    json!({ "type": kind, "source": { "type": "base64", "media_type": mime, "data": data } })
}

/// An embedded resource: a text, an image or a PDF.
fn resource(
    resource: &Object<'_>,
    content: &mut Vec<Box<RawValue>>,
    embedded: &mut Vec<Box<RawValue>>,
) -> Result<(), LineError> {
    let uri = resource.required_text("uri")?;
    if let Some(shown) = resource.text("text") {
        content.push(text(&link(&uri, None)));
        embedded.push(text(&format!(
            "\n<context ref=\"{uri}\">\n{shown}\n</context>"
        )));
        return Ok(());
    }
    let data = resource.required_text("blob")?;
    let mime = resource.text("mimeType").unwrap_or_default();
    content.push(match &*mime {
        mime if mime.starts_with("image/") => to_raw(&base64("image", mime, &data)),
        "application/pdf" => to_raw(&base64("document", &mime, &data)),
        _ => text(&link(&uri, None)),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(prompt: &str) -> Result<String, LineError> {
        let params =
            RawValue::from_string(format!(r#"{{"sessionId":"s","prompt":{prompt}}}"#)).unwrap();
        user_message(&params).map(|line| line.get().to_owned())
    }

    fn content(prompt: &str) -> Value {
        let line: Value = serde_json::from_str(&line(prompt).unwrap()).unwrap();
        assert_eq!(
            (&line["type"], &line["message"]["role"]),
            (&json!("user"), &json!("user"))
        );
        line["message"]["content"].clone()
    }

    #[test]
    fn text_passes_unchanged() {
        let line = line(r#"[{"type":"text","text":"a\ud83d\n"}]"#).unwrap();
        assert_eq!(
            line,
            r#"{"type":"user","message":{"role":"user","content":[{"type":"text","text":"a\ud83d\n"}]},"parent_tool_use_id":null,"session_id":""}"#
        );
    }

    #[test]
    fn images_links_and_resources_are_blocks() {
        let blocks = content(
            r#"[{"type":"image","mimeType":"image/png","data":"AA=="},{"type":"image","data":"","mimeType":"x","uri":"https://e/i"},
            {"type":"resource","resource":{"uri":"file:///w/a.txt","text":"in a"}},
            {"type":"resource","resource":{"uri":"file:///w/b.pdf","blob":"BB==","mimeType":"application/pdf"}},
            {"type":"resource","resource":{"uri":"file:///w/c.bin","blob":"CC=="}},
            {"type":"resource_link","uri":"file:///w/d.txt","name":"d"},{"type":"text","text":"last"}]"#,
        );
        let text = |text: &str| json!({ "type": "text", "text": text });
        assert_eq!(
            blocks,
            json!([
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA==" } },
                { "type": "image", "source": { "type": "url", "url": "https://e/i" } },
                text("[@a.txt](file:///w/a.txt)"),
                { "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "BB==" } },
                text("[@c.bin](file:///w/c.bin)"),
                text("[@d](file:///w/d.txt)"),
                text("last"),
                text("\n<context ref=\"file:///w/a.txt\">\nin a\n</context>"),
            ])
        );
    }

    #[test]
    fn missing_members_and_unknown_types_are_typed_errors() {
        for (prompt, object, member) in [
            ("7", "params", "prompt"),
            (r#"[{"type":"text"}]"#, "prompt", "text"),
            (
                r#"[{"type":"image","mimeType":"image/png"}]"#,
                "prompt",
                "data",
            ),
            (
                r#"[{"type":"resource","resource":{"uri":"u"}}]"#,
                "resource",
                "blob",
            ),
            (
                r#"[{"type":"audio","data":"","mimeType":"audio/wav"}]"#,
                "prompt",
                "type",
            ),
        ] {
            assert_eq!(
                line(prompt),
                Err(LineError::Member { object, member }),
                "{prompt}"
            );
        }
    }
}

#[cfg(test)]
mod set_up_tests {
    use super::*;

    fn requests(params: &str) -> Result<Vec<Value>, LineError> {
        set_up_requests(&RawValue::from_string(params.to_owned()).unwrap())
    }

    #[test]
    fn servers_and_folders_are_control_requests() {
        let params = r#"{"cwd":"/w","additionalDirectories":["/x"],"mcpServers":[
            {"name":"a","command":"/bin/a","args":["-x"],"env":[{"name":"K","value":"v"}]},
            {"type":"http","name":"b","url":"https://b","headers":[{"name":"H","value":"v"}]}]}"#;
        let servers = json!({
            "a": { "type": "stdio", "command": "/bin/a", "args": ["-x"], "env": { "K": "v" } },
            "b": { "type": "http", "url": "https://b", "headers": { "H": "v" } },
        });
        assert_eq!(
            requests(params).unwrap(),
            [
                json!({ "subtype": "mcp_set_servers", "servers": servers }),
                json!({ "subtype": "apply_flag_settings", "settings": { "permissions": { "additionalDirectories": ["/x"] } } }),
            ]
        );
        assert!(
            requests(r#"{"cwd":"/w","mcpServers":[]}"#)
                .unwrap()
                .is_empty()
        );
        assert_eq!(
            requests(r#"{"mcpServers":[{"name":"a"}]}"#),
            Err(LineError::Member {
                object: "mcpServers",
                member: "command"
            })
        );
    }
}
