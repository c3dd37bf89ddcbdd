//! The methods of ACP v1 and v2.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{Error, PromptRequest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use super::client::Client;
use super::sessions::{MODE, Running, Session, Sessions, Store, Workspace};
use super::sign_in::SignIn;
use super::turn::Turn;
use super::{player, v2};
use base::shutdown::Shutdown;
use base::types::Ids;
use wire::acp::AcpVersion::{V1, V2};
use wire::acp::null_to_empty;

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) client: Client,
    ids: Ids,
    shutdown: Shutdown,
    sessions: Sessions,
    sign_in: SignIn,
}

/// The params of most methods. A method rejects the absence of a member that it needs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    session_id: Option<String>,
    cwd: Option<PathBuf>,
    cursor: Option<String>,
    mode_id: Option<Value>,
    config_id: Option<String>,
    value: Option<Value>,
    method_id: Option<String>,
    /// A tool call or a terminal.
    #[serde(rename = "toolCallId", alias = "terminalId")]
    part_id: Option<String>,
    replay_from: Option<Value>,
    #[serde(default)]
    request_id: Value,
    #[serde(default)]
    prompt: Vec<Value>,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

fn required<T>(member: Option<T>, name: &str) -> Result<T, Error> {
    member.ok_or_else(|| Error::invalid_params().data(format!("missing field `{name}`")))
}

impl Agent {
    pub(super) fn new(client: Client, store: Store, sign_in: SignIn, shutdown: Shutdown) -> Self {
        let ids = Ids::system();
        Self {
            client,
            sessions: Sessions::new(store, ids.clone()),
            ids,
            shutdown,
            sign_in,
        }
    }

    pub(super) async fn request(&mut self, id: &RawValue, method: &str, params: &RawValue) {
        let outcome = match method {
            "session/prompt" => self.prompt(id, params).map(|()| None),
            "session/new" | "session/load" | "session/resume" | "session/fork" => {
                self.set_up(id, method, params).await.map(|()| None)
            }
            _ => self.call(method, params).await.map(Some),
        };
        if let Some(outcome) = outcome.transpose() {
            self.client.answer(id, outcome).await;
        }
    }

    /// Handles a notification. Unknown and malformed ones are ignored. Both versions use the same notifications.
    pub(super) fn notification(&self, method: &str, params: &RawValue) {
        let Ok(params) = parse::<Params>(params) else {
            return;
        };
        let session = match method {
            "session/cancel" => params.session_id.and_then(|id| self.sessions.get(&id).ok()),
            "$/cancel_request" => self.sessions.with_turn_for(&params.request_id.to_string()),
            _ => None,
        };
        if let Some(session) = session {
            session.cancel();
        }
    }

    /// The client has disconnected: cancels the running turns.
    pub(super) fn end(self) {
        self.sessions.end_all();
    }

    async fn call(&mut self, method: &str, raw_params: &RawValue) -> Result<Value, Error> {
        if method == "initialize" {
            return self.initialize(&parse(raw_params)?);
        }
        let params: Params = parse(raw_params)?;
        let session = || required(params.session_id.as_deref(), "sessionId");
        match (method, self.client.version) {
            ("authenticate", V1) | ("auth/login", V2) => {
                self.sign_in
                    .authenticate(&required(params.method_id, "methodId")?)?;
            }
            ("logout", V1) | ("auth/logout", V2) => self.sign_in.logout()?,
            ("session/list", _) => {
                let (sessions, next) = self
                    .sessions
                    .page(params.cwd.as_deref(), params.cursor.as_deref())?;
                return Ok(json!({ "sessions": sessions, "nextCursor": next }));
            }
            ("session/close", _) => self.sessions.close(session()?).await?,
            ("session/delete", _) => self.sessions.delete(session()?).await?,
            ("session/set_mode", V1) => {
                let session = self.sessions.get(session()?)?;
                session.set_option(MODE, &required(params.mode_id, "modeId")?)?;
                let update = session.record().options.update(MODE, &self.client);
                self.client.update(&session.id, update).await;
            }
            ("session/set_config_option", _) => {
                let session = self.sessions.get(session()?)?;
                let option = required(params.config_id, "configId")?;
                session.set_option(&option, &required(params.value, "value")?)?;
                let options = session.record().options.list(&self.client);
                return Ok(json!({ "configOptions": options }));
            }
            ("tool_call/cancel" | "terminal/cancel", V2) => {
                self.sessions
                    .get(session()?)?
                    .cancel_part(&required(params.part_id, "toolCallId")?)?;
            }
            _ => return Err(Error::method_not_found().data(json!({ "method": method }))),
        }
        Ok(json!({}))
    }

    fn initialize(&mut self, params: &Value) -> Result<Value, Error> {
        required(params.get("protocolVersion"), "protocolVersion")?;
        self.client.initialize(params);
        let capabilities = serde_json::from_str(include_str!("capabilities.json"));
        let mut capabilities: Value = capabilities.expect("the file is JSON: each test reads it");
        let is_v2 = self.client.is_v2();
        let mut capabilities = capabilities[if is_v2 { "v2" } else { "v1" }].take();
        if self.sign_in.required {
            let auth = if is_v2 {
                json!({})
            } else {
                json!({ "logout": {} })
            };
            capabilities["auth"] = auth;
        }
        Ok(json!({
            "protocolVersion": self.client.version.number(),
            (if is_v2 { "info" } else { "agentInfo" }): {
                "name": "acp-gateway-demo", "title": "Demo agent", "version": env!("CARGO_PKG_VERSION"),
            },
            (if is_v2 { "capabilities" } else { "agentCapabilities" }): capabilities,
            "authMethods": self.sign_in.methods(&self.client),
        }))
    }

    async fn set_up(
        &mut self,
        id: &RawValue,
        method: &str,
        params: &RawValue,
    ) -> Result<(), Error> {
        let session = self.open(method, params).await?;
        let options = session.record().options.clone();
        let mut response = json!({ "configOptions": options.list(&self.client) });
        if matches!(method, "session/new" | "session/fork") {
            response["sessionId"] = json!(session.id);
        }
        let commands = player::available_commands();
        if self.client.is_v2() {
            response["availableCommands"] = v2::commands(commands).into();
            self.client.answer(id, Ok(response)).await;
        } else {
            response["modes"] = options.modes();
            self.client.answer(id, Ok(response)).await;
            let update = json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands });
            self.client.update(&session.id, update).await;
        }
        Ok(())
    }

    async fn open(&mut self, method: &str, raw_params: &RawValue) -> Result<Arc<Session>, Error> {
        let workspace: Workspace = parse(raw_params)?;
        workspace.check()?;
        let params: Params = parse(raw_params)?;
        self.sign_in.check()?;
        let id = || required(params.session_id.as_deref(), "sessionId");
        match (method, self.client.version) {
            ("session/new", _) => self.sessions.create(workspace),
            ("session/fork", _) => self.sessions.fork(id()?, workspace),
            ("session/load", V1) | ("session/resume", _) => {
                let replays = match &params.replay_from {
                    None => method == "session/load",
                    Some(from) if from["type"] == "start" => true,
                    Some(_) => {
                        let reason = "the demo replays from the start or not at all";
                        return Err(Error::invalid_params().data(reason));
                    }
                };
                let session = self.sessions.reopen(id()?, workspace)?;
                self.replay(&session, replays).await;
                Ok(session)
            }
            _ => Err(Error::method_not_found().data(json!({ "method": method }))),
        }
    }

    /// Sends the history if requested. In v2, sends the current state too.
    async fn replay(&self, session: &Session, history: bool) {
        let record = session.record().clone();
        let mut updates = match (history, self.client.version) {
            (false, _) => Vec::new(),
            (true, V1) => record.history.updates().to_vec(),
            (true, V2) => v2::replay(record.history.updates()),
        };
        if self.client.is_v2() {
            let idle = json!({ "sessionUpdate": "state_update", "state": "idle" });
            updates.extend([record.entry.info_update(), idle]);
        }
        for update in updates {
            self.client.update(&session.id, update).await;
        }
    }

    fn prompt(&mut self, id: &RawValue, params: &RawValue) -> Result<(), Error> {
        // The request's type checks the content blocks.
        parse::<PromptRequest>(params)?;
        let Params {
            session_id,
            prompt,
            meta,
            ..
        } = parse(params)?;
        self.sign_in.check()?;
        let session = self.sessions.get(&required(session_id, "sessionId")?)?;
        let begun = session.begin(Some(id));
        let task = PromptTask {
            client: self.client.clone(),
            ids: self.ids.clone(),
            session,
        };
        let id = id.to_owned();
        let playing = async move { task.play(begun, &id, &prompt, &meta).await };
        self.shutdown.spawn(playing);
        Ok(())
    }
}

/// Parses params. Absent params are an empty object, because `session/list` needs none.
fn parse<T: DeserializeOwned>(params: &RawValue) -> Result<T, Error> {
    serde_json::from_str(null_to_empty(params).get())
        .map_err(|error| Error::invalid_params().data(error.to_string()))
}

pub(super) struct PromptTask {
    pub(super) client: Client,
    pub(super) ids: Ids,
    pub(super) session: Arc<Session>,
}

impl PromptTask {
    /// Plays a prompt and answers its request. Without a begun turn, waits for the end of the agent's own work.
    pub(super) async fn play(
        self,
        begun: Option<(Running, DropGuard)>,
        id: &RawValue,
        prompt: &[Value],
        meta: &Value,
    ) {
        let mut begun = begun;
        if begun.is_none() {
            self.session.background_work_ended().await;
            begun = self.session.begin(Some(id));
        }
        let Some((running, answered)) = begun else {
            let error = Error::invalid_request().data("a turn is already running in this session");
            return self.client.answer(id, Err(error)).await;
        };
        let mut turn = self.turn(running);
        let (number, message) = match turn.begin(prompt) {
            Ok(begun) => begun,
            Err(error) => return self.client.answer(id, Err(error)).await,
        };
        if self.client.is_v2() {
            let result = json!({ "messageId": message });
            self.client.answer(id, Ok(result)).await;
            let user =
                json!({ "sessionUpdate": "user_message", "messageId": message, "content": prompt });
            turn.show(user).await;
            turn.show_state("running").await;
        }
        let outcome = player::play(&mut turn, prompt, number, meta).await;
        let late_updates = std::mem::take(&mut turn.late_updates);
        let wake_after = turn.background_work_after;
        // The turn ends before the client reads so, because the client may send the next prompt at once.
        drop(turn);
        if self.client.is_v2() {
            self.report_idle(outcome).await;
        } else {
            let result =
                outcome.map(|(reason, usage)| json!({ "stopReason": reason, "usage": usage }));
            self.client.answer(id, result).await;
        }
        for update in late_updates {
            self.client.update(&self.session.id, update).await;
        }
        drop(answered);
        if let Some(time) = wake_after {
            self.work_without_prompt(time).await;
        }
    }

    /// Works after a time, unless a client has sent a prompt meanwhile.
    async fn work_without_prompt(&self, time: Duration) {
        tokio::select! {
            () = self.session.retired.cancelled() => return,
            () = tokio::time::sleep(time) => {}
        }
        let Some((running, answered)) = self.session.begin(None) else {
            return;
        };
        let mut turn = self.turn(running);
        turn.show_state("running").await;
        let played = turn.say("I am working again, without a prompt.").await;
        let outcome = turn.end(played, "").await;
        self.report_idle(outcome).await;
        // Dropped only now, so that the end of this work is not mistaken for the end of the next prompt.
        drop(turn);
        drop(answered);
    }

    fn turn(&self, running: Running) -> Turn {
        Turn::new(running, self.client.clone(), self.ids.clone())
    }

    async fn report_idle(&self, outcome: Result<(&'static str, Value), Error>) {
        let mut update = match outcome {
            Ok((reason, usage)) => json!({ "stopReason": reason, "usage": usage }),
            Err(error) => json!({ "stopReason": "error", "error": error }),
        };
        update["sessionUpdate"] = json!("state_update");
        update["state"] = json!("idle");
        self.client.update(&self.session.id, update).await;
    }
}
