//! The methods of ACP, modified by the flags.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::auth::{self, Auth};
use super::flags::Flags;
use super::session::{Session, Sessions, append};
use super::turn::Turn;
use super::wire::{Wire, string};
use super::{client_requests, faults, handover, script};

pub(crate) struct Agent {
    pub(crate) flags: Flags,
    pub(crate) wire: Arc<Wire>,
    sessions: Arc<Sessions>,
    made: u32,
    auth: Auth,
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

/// The params that the agent reads. It ignores all others.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Params<'a> {
    /// The raw params.
    #[serde(skip)]
    all: Option<&'a RawValue>,
    cwd: String,
    protocol_version: u64,
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    #[serde(borrow)]
    prompt: Vec<&'a RawValue>,
    mode_id: String,
    config_id: String,
    value: Value,
}

impl Agent {
    pub(crate) fn new(flags: Flags) -> Self {
        let wire = Arc::new(Wire::new(u64::from(!flags.zero_ids), flags.string_ids));
        wire.write("npm warn deprecated\n".repeat(flags.plain_lines).as_bytes());
        if flags.noise_at_start {
            wire.write(b"fake-agent 0.1.0\nloading {configuration} ...\n");
        }
        let sessions = Arc::new(Sessions::new(flags.state.clone()));
        let auth = Auth::new(flags.auth_file.clone());
        Self {
            flags,
            wire,
            sessions,
            made: 0,
            auth,
        }
    }

    pub(crate) fn receive(&mut self, line: &[u8]) {
        if let Some(log) = &self.flags.log {
            append(log, &[line, b"\n"].concat());
        }
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(line) else {
            return self.wire.fail("null", -32700, "Parse error", None);
        };
        let mut params: Params<'_> = envelope
            .params
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        params.all = envelope.params;
        match (envelope.id, envelope.method) {
            (Some(id), Some(method)) => self.request(id.get(), &method, &params),
            (None, Some(method)) if method == "session/cancel" => {
                if let Some(session) = self.sessions.get(&params.session_id) {
                    session.cancel();
                }
            }
            (None, Some(method)) if method == "_vendor/note" => {
                super::process::stderr(params.all.map_or("", RawValue::get).as_bytes());
            }
            // A response with the id `null` answers a request that this agent sent with the id `null`.
            (id, None) => {
                let id = id.map_or("null", RawValue::get);
                let result = envelope.result.map_or("null", RawValue::get).to_owned();
                self.wire.resolve(
                    id,
                    envelope.error.map_or(Ok(result), |error| Err(error.code)),
                );
            }
            _ => {}
        }
    }

    fn request(&mut self, id: &str, method: &str, params: &Params<'_>) {
        if method != "session/new"
            && let Some(result) = self.flags.answers.to(method, &params.session_id)
        {
            return self.wire.answer(id, result);
        }
        match method {
            "initialize" if self.flags.hang_initialize => {}
            "initialize" if params.protocol_version > 1 && self.flags.refuse_version.is_some() => {
                let code = self.flags.refuse_version.unwrap_or_default();
                self.wire.fail(
                    id,
                    code,
                    "another version",
                    Some(r#"{"supported":[1]}"#.to_owned()),
                );
            }
            "initialize" => {
                if let Some(start) = self.flags.exclusive_start {
                    super::process::set_up_home(start);
                }
                self.wire.answer(id, self.initialize());
                if let Some(life) = self.flags.short_life {
                    super::process::exit_after(life);
                }
            }
            "authenticate" if self.flags.auth_once && self.was_called_before("authenticate") => {}
            "authenticate" => {
                std::thread::sleep(self.flags.slow_auth);
                self.auth.set(true);
                self.wire.answer(id, "{}");
            }
            "logout" if self.flags.logout => {
                self.auth.set(false);
                self.wire.answer(id, "{}");
            }
            "auth/status" if self.flags.auth_status => {
                let state = if self.auth.is_signed_in() {
                    "authenticated"
                } else {
                    "unauthenticated"
                };
                self.wire
                    .answer(id, format_args!(r#"{{"state":"{state}","accounts":[]}}"#));
            }
            _ if method.starts_with("_vendor/") => auth::vendor(&self.wire, id, method, params.all),
            "session/new" => self.create(id, &params.cwd),
            "session/load" | "session/resume" if self.flags.no_methods => {
                self.wire.fail(id, -32601, "Method not found", None);
            }
            "session/load" | "session/resume"
                if handover::answer_by_flag(&self.wire, &self.flags, id, &params.session_id) => {}
            "session/load" if self.load_needs_sign_in() => {
                self.wire.fail(id, -32000, "Authentication required", None);
            }
            "session/load" if !self.flags.no_load => self.load(id, params),
            "session/resume" if self.flags.resume || self.flags.resume_any => {
                self.resume(id, params);
            }
            "session/fork" if self.flags.fork => self.fork(id, params),
            "session/set_model" if self.flags.models => self.wire.answer(id, "{}"),
            "session/list" if self.flags.list => self.list(id),
            "session/delete" if self.flags.delete => {
                self.sessions.delete(&params.session_id);
                self.wire.answer(id, "{}");
            }
            "session/close" if self.flags.close => {
                self.sessions.close(&params.session_id);
                self.wire.answer(id, "{}");
            }
            "session/prompt" | "session/set_mode" | "session/set_config_option" => {
                match self.sessions.get(&params.session_id) {
                    None => self.unknown_session_in_prompt(id, &params.session_id),
                    Some(session) if method == "session/prompt" => {
                        self.prompt(id, &session, &params.prompt);
                    }
                    Some(session) => self.set(id, &session, params),
                }
            }
            _ => self.wire.fail(id, -32601, "Method not found", None),
        }
    }

    /// Whether the log contains this method more than once, from any process.
    fn was_called_before(&self, method: &str) -> bool {
        let log = self
            .flags
            .log
            .as_ref()
            .and_then(|log| std::fs::read_to_string(log).ok());
        log.unwrap_or_default()
            .matches(&format!(r#""method":"{method}""#))
            .count()
            > 1
    }

    fn initialize(&self) -> String {
        let version = self.flags.protocol.unwrap_or(1);
        if self.flags.no_capabilities {
            return format!(r#"{{"protocolVersion":{version}}}"#);
        }
        let media = self.flags.media;
        let offered = [
            (
                self.flags.resume || self.flags.resume_any || self.flags.fail_resume,
                "resume",
            ),
            (self.flags.close, "close"),
            (self.flags.list, "list"),
            (self.flags.delete, "delete"),
            (self.flags.fork, "fork"),
            (self.flags.directories, "additionalDirectories"),
        ];
        let auth = [
            (self.flags.logout, "logout"),
            (self.flags.auth_status, "status"),
        ];
        let auth: Vec<String> = auth
            .iter()
            .filter(|offer| offer.0)
            .map(|offer| format!(r#""{}":{{}}"#, offer.1))
            .collect();
        let offered: Vec<String> = offered
            .iter()
            .filter(|offer| offer.0)
            .map(|offer| format!(r#""{}":{{}}"#, offer.1))
            .collect();
        let methods = if let Some(methods) = &self.flags.auth_methods {
            methods
        } else if self.flags.auth_required {
            r#"{"id":"login","name":"Log in"},{"type":"terminal","id":"shell","name":"Log in here","args":["login"],"env":{"SIGN_IN":"yes"},"command":"/bin/false"}"#
        } else {
            ""
        };
        format!(
            r#"{{"protocolVersion":{version},"agentCapabilities":{{"loadSession":{},"promptCapabilities":{{"image":{media},"audio":{media},"embeddedContext":true}},"mcpCapabilities":{{"http":{},"sse":false}},"auth":{{{}}},"sessionCapabilities":{{{}}}}},"authMethods":[{methods}],"agentInfo":{{"name":"fake-agent","title":"Fake agent","version":"0.1.0"}}}}"#,
            !self.flags.no_load,
            self.flags.mcp,
            auth.join(","),
            offered.join(","),
        )
    }

    fn create(&mut self, id: &str, cwd: &str) {
        if self.flags.auth_required && !self.auth.is_signed_in() {
            return self.wire.fail(id, -32000, "Authentication required", None);
        }
        if self.flags.hang_new {
            return;
        }
        let name = script::session_id(self.flags.collide_ids, self.made);
        self.made += 1;
        let session = self.sessions.create(&name, cwd);
        handover::session_created(&self.flags, &name);
        if self.flags.early_updates {
            faults::early_updates(&self.wire, &name, 2);
        }
        if let Some(result) = self.flags.answers.to("session/new", &name) {
            return self.wire.answer(id, result);
        }
        let name = string(&name);
        let setup = self.setup(&session);
        let answer = format!(r#"{{"sessionId":{name},{setup}}}"#);
        if !self.flags.ask_at_new {
            return self.wire.answer(id, answer);
        }
        let wire = Arc::clone(&self.wire);
        let id = id.to_owned();
        std::thread::Builder::new()
            .spawn(move || {
                client_requests::request_during_new(&wire, &id);
                wire.answer(&id, answer);
            })
            .expect("the machine has room for a thread");
    }

    fn load_needs_sign_in(&self) -> bool {
        !self.auth.is_signed_in()
            && self
                .flags
                .auth_at_load
                .as_deref()
                .is_some_and(handover::should_refuse)
    }

    fn load(&self, id: &str, params: &Params<'_>) {
        if self.flags.hang_load {
            return;
        }
        let history = if self.flags.fail_load {
            None
        } else {
            self.sessions.history(&params.session_id)
        };
        let Some(history) = history else {
            return self.unknown_session(id, &params.session_id);
        };
        let session = self.sessions.open(&params.session_id);
        if self.flags.late_history {
            let result = format!("{{{}}}", self.setup(&session));
            return handover::load_late(&self.wire, id, &session.id, history, &result);
        }
        for update in history {
            self.wire.update(&session.id, update);
            if self.flags.break_load {
                std::process::exit(1);
            }
            if self.flags.stall_load {
                return;
            }
        }
        self.wire
            .answer(id, format_args!("{{{}}}", self.setup(&session)));
    }

    /// The members of every response that sets a session up.
    fn setup(&self, session: &Session) -> String {
        let models = r#","models":{"currentModelId":"small","availableModels":[]}"#;
        format!(
            "{}{}",
            session.setup(),
            if self.flags.models { models } else { "" }
        )
    }

    /// Creates a session with the history of another one.
    fn fork(&mut self, id: &str, params: &Params<'_>) {
        let Some(history) = self.sessions.history(&params.session_id) else {
            return self.unknown_session(id, &params.session_id);
        };
        let name = script::session_id(self.flags.collide_ids, self.made);
        self.made += 1;
        let session = self.sessions.create(&name, &params.cwd);
        handover::session_created(&self.flags, &name);
        for update in history {
            self.sessions.record(&name, &update);
        }
        let name = string(&name);
        let setup = self.setup(&session);
        self.wire
            .answer(id, format_args!(r#"{{"sessionId":{name},{setup}}}"#));
    }

    fn resume(&self, id: &str, params: &Params<'_>) {
        if !self.flags.resume_any && self.sessions.history(&params.session_id).is_none() {
            return self.unknown_session(id, &params.session_id);
        }
        let session = self.sessions.open(&params.session_id);
        self.wire
            .answer(id, format_args!("{{{}}}", self.setup(&session)));
    }

    fn list(&self, id: &str) {
        let sessions: Vec<String> = self
            .sessions
            .list()
            .iter()
            .map(|(session, cwd)| {
                let session = string(session);
                let cwd = string(cwd);
                format!(r#"{{"sessionId":{session},"cwd":{cwd},"title":"Fake","_meta":{{"x":1.10}},"agentSessionId":0}}"#)
            })
            .collect();
        self.wire.answer(
            id,
            format_args!(r#"{{"sessions":[{}]}}"#, sessions.join(",")),
        );
    }

    fn set(&self, id: &str, session: &Session, params: &Params<'_>) {
        let value = |kept: &std::sync::Mutex<String>, value: &str| {
            value.clone_into(&mut kept.lock().unwrap_or_else(PoisonError::into_inner));
        };
        if !params.mode_id.is_empty() {
            if !["ask", "code"].contains(&params.mode_id.as_str()) {
                return self.wire.fail(id, -32602, "no such mode", None);
            }
            value(&session.mode, &params.mode_id);
            let mode = string(&params.mode_id);
            self.wire.update(
                &session.id,
                format_args!(r#"{{"sessionUpdate":"current_mode_update","currentModeId":{mode}}}"#),
            );
            return self.wire.answer(id, "{}");
        }
        match (params.config_id.as_str(), params.value.as_str()) {
            ("model", Some(model @ ("small" | "large"))) => {
                value(&session.model, model);
                self.wire.answer(
                    id,
                    format_args!(r#"{{"configOptions":{}}}"#, session.options()),
                );
            }
            _ => self.wire.fail(id, -32602, "no such option or value", None),
        }
    }

    /// Runs each turn in a thread, so that the main thread still reads cancels and answers.
    fn prompt(&self, id: &str, session: &Arc<Session>, blocks: &[&RawValue]) {
        if self.flags.auth_at_prompt && !self.auth.is_signed_in() {
            return self.wire.fail(id, -32000, "Authentication required", None);
        }
        let Some(cancel) = session.begin() else {
            return self.wire.fail(id, -32600, "a turn is running", None);
        };
        for block in blocks {
            let update = format!(
                r#"{{"sessionUpdate":"user_message_chunk","content":{}}}"#,
                block.get()
            );
            self.sessions.record(&session.id, &update);
        }
        let turn = Turn::new(
            Arc::clone(&self.wire),
            Arc::clone(session),
            Arc::clone(&self.sessions),
            cancel,
            id,
        );
        let next = script::session_id(self.flags.collide_ids, self.made);
        let text = script::text(blocks);
        std::thread::Builder::new()
            .spawn(move || script::play(turn, &text, &next))
            .expect("the machine has room for a thread");
    }

    pub(crate) fn unknown_session(&self, id: &str, session: &str) {
        let data = format!(r#"{{"sessionId":{}}}"#, string(session));
        self.wire.fail(id, -32002, "Resource not found", Some(data));
    }
}
