//! The methods of v2.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::steps::{Prompt, play};
use crate::flags::Flags;
use crate::script;
use crate::session::{Session, Sessions, append};
use crate::wire::{Wire, string};

/// The parts of the work that the client cancelled.
pub(crate) type Cancelled = Arc<Mutex<HashSet<String>>>;

pub(crate) struct Agent {
    flags: Flags,
    wire: Arc<Wire>,
    sessions: Arc<Sessions>,
    cancelled: Cancelled,
    made: u32,
    prompts: u32,
    signed_in: bool,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Code>,
}

#[derive(Deserialize)]
struct Code {
    code: i64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Params<'a> {
    protocol_version: u64,
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    cwd: String,
    #[serde(borrow)]
    prompt: Vec<&'a RawValue>,
    config_id: String,
    value: serde_json::Value,
    #[serde(borrow)]
    replay_from: Option<&'a RawValue>,
    tool_call_id: Option<String>,
    terminal_id: Option<String>,
    method_id: Option<String>,
}

impl Agent {
    pub(crate) fn new(flags: Flags) -> Self {
        let wire = Arc::new(Wire::new(u64::from(!flags.zero_ids), flags.string_ids));
        let sessions = Arc::new(Sessions::new(flags.state.clone()));
        Self {
            flags,
            wire,
            sessions,
            cancelled: Arc::default(),
            made: 0,
            prompts: 0,
            signed_in: false,
        }
    }

    pub(crate) fn receive(&mut self, line: &[u8]) {
        if let Some(log) = &self.flags.log {
            append(log, &[line, b"\n"].concat());
        }
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(line) else {
            return self.wire.fail("null", -32700, "Parse error", None);
        };
        let params: Params<'_> = envelope
            .params
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        match (envelope.id, envelope.method) {
            (Some(id), Some(method)) => self.request(id.get(), &method, &params),
            (None, Some(method)) if method == "session/cancel" => {
                if let Some(session) = self.sessions.get(&params.session_id) {
                    session.cancel();
                }
            }
            (Some(id), None) => {
                let result = envelope.result.map_or("null", RawValue::get).to_owned();
                self.wire.resolve(
                    id.get(),
                    envelope.error.map_or(Ok(result), |error| Err(error.code)),
                );
            }
            _ => {}
        }
    }

    fn request(&mut self, id: &str, method: &str, params: &Params<'_>) {
        match method {
            "initialize" if params.protocol_version < 2 => {
                self.wire.fail(
                    id,
                    -32022,
                    "Unsupported protocol version",
                    Some(r#"{"supported":[2]}"#.into()),
                );
            }
            "initialize" => self.wire.answer(id, self.initialize()),
            "auth/login" if params.method_id.as_deref() == Some("login") => {
                self.signed_in = true;
                self.wire.answer(id, "{}");
            }
            "auth/logout" => {
                self.signed_in = false;
                self.wire.answer(id, "{}");
            }
            "session/new" if self.flags.auth_required && !self.signed_in => {
                self.wire.fail(id, -32000, "Authentication required", None);
            }
            "session/new" => {
                let name = script::session_id(self.flags.collide_ids, self.made);
                self.made += 1;
                let session = self.sessions.create(&name, &params.cwd);
                let name = string(&name);
                let setup = setup(&session);
                self.wire
                    .answer(id, format_args!(r#"{{"sessionId":{name},{setup}}}"#));
            }
            "session/resume" => self.resume(id, params),
            "session/list" => {
                let shown = |(id, cwd): &(String, String)| {
                    format!(r#"{{"sessionId":{},"cwd":{}}}"#, string(id), string(cwd))
                };
                let sessions: Vec<String> = self.sessions.list().iter().map(shown).collect();
                self.wire.answer(
                    id,
                    format_args!(r#"{{"sessions":[{}]}}"#, sessions.join(",")),
                );
            }
            "session/close" => {
                self.sessions.close(&params.session_id);
                self.wire.answer(id, "{}");
            }
            "session/prompt"
            | "session/set_config_option"
            | "tool_call/cancel"
            | "terminal/cancel" => match self.sessions.get(&params.session_id) {
                None => self.wire.fail(id, -32002, "Resource not found", None),
                Some(session) => self.in_session(id, method, &session, params),
            },
            _ => self.wire.fail(id, -32601, "Method not found", None),
        }
    }

    fn in_session(&mut self, id: &str, method: &str, session: &Arc<Session>, params: &Params<'_>) {
        match method {
            "session/prompt" => self.prompt(id, session, &params.prompt),
            "session/set_config_option" => self.set(id, session, params),
            _ => match params.tool_call_id.as_ref().or(params.terminal_id.as_ref()) {
                Some(part) => {
                    self.cancelled
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(part.clone());
                    self.wire.answer(id, "{}");
                }
                None => self.wire.fail(id, -32602, "no such part", None),
            },
        }
    }

    fn initialize(&self) -> String {
        let methods = if self.flags.auth_required {
            r#"{"type":"agent","methodId":"login","name":"Log in"}"#
        } else {
            ""
        };
        format!(
            r#"{{"protocolVersion":2,"info":{{"name":"fake-agent","title":"Fake agent","version":"0.2.0"}},"capabilities":{{"session":{{"prompt":{{"embeddedContext":{{}}}},"mcp":{{"stdio":{{}}}}}}}},"authMethods":[{methods}]}}"#
        )
    }

    fn resume(&self, id: &str, params: &Params<'_>) {
        let history = if self.flags.fail_resume {
            None
        } else {
            self.sessions.history(&params.session_id)
        };
        let Some(history) = history else {
            return self.wire.fail(id, -32002, "Resource not found", None);
        };
        let session = self.sessions.open(&params.session_id);
        if params.replay_from.is_some() {
            for update in history {
                self.wire.update(&session.id, update);
            }
        }
        self.wire.update(
            &session.id,
            r#"{"sessionUpdate":"state_update","state":"idle"}"#,
        );
        self.wire
            .answer(id, format_args!("{{{}}}", setup(&session)));
    }

    fn set(&self, id: &str, session: &Session, params: &Params<'_>) {
        let kept = match params.config_id.as_str() {
            "how" => &session.mode,
            "model" => &session.model,
            _ => return self.wire.fail(id, -32602, "no such option", None),
        };
        let Some(value) = params.value.as_str() else {
            return self.wire.fail(id, -32602, "no such value", None);
        };
        value.clone_into(&mut kept.lock().unwrap_or_else(PoisonError::into_inner));
        self.wire.answer(
            id,
            format_args!(r#"{{"configOptions":{}}}"#, options(session)),
        );
    }

    fn prompt(&mut self, id: &str, session: &Arc<Session>, blocks: &[&RawValue]) {
        // A message may arrive while the agent works. It then has a separate cancel.
        session.end();
        let Some(cancel) = session.begin() else {
            return self.wire.fail(id, -32603, "no room", None);
        };
        self.prompts += 1;
        let prompt = Prompt {
            wire: Arc::clone(&self.wire),
            sessions: Arc::clone(&self.sessions),
            session: Arc::clone(session),
            cancelled: Arc::clone(&self.cancelled),
            cancel,
            id: id.to_owned(),
            number: self.prompts,
            text: serde_json::from_str(&script::text(blocks)).unwrap_or_default(),
        };
        std::thread::Builder::new()
            .spawn(move || play(&prompt))
            .expect("the machine has room for a thread");
    }
}

fn setup(session: &Session) -> String {
    format!(
        r#""configOptions":{},"availableCommands":[{{"type":"command","name":"plan","description":"Makes a plan"}}]"#,
        options(session)
    )
}

pub(crate) fn options(session: &Session) -> String {
    let of = |kept: &Mutex<String>| string(&kept.lock().unwrap_or_else(PoisonError::into_inner));
    let mode = of(&session.mode);
    let model = of(&session.model);
    format!(
        r#"[{{"configId":"how","name":"Mode","category":"mode","type":"select","currentValue":{mode},"options":[{{"value":"ask","name":"Ask"}},{{"value":"code","name":"Code"}}]}},{{"configId":"model","name":"Model","category":"model","type":"select","currentValue":{model},"options":[{{"value":"small","name":"Small"}},{{"value":"large","name":"Large"}}]}}]"#
    )
}
