//! One turn: the steps of the scenes.
//!
//! Every step fails after a cancel. Every update that is history is stored in the session.

use std::sync::MutexGuard;
use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::sessions::{MODE, Options, Record, Running, Session};
use super::text::{fenced, one_line, pieces};
use super::v2;
use base::types::Ids;

const CONTEXT: u64 = 128_000;
const TITLE_MAX: usize = 60;
/// The timeout of the release of a terminal of the client when a turn ends early.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a scene ends early.
#[derive(Debug, derive_more::From)]
pub(super) enum Stop {
    #[from(ignore)]
    Reason(&'static str),
    Failed(Error),
}

impl Stop {
    pub(super) const CANCELLED: Self = Self::Reason("cancelled");
}

pub(super) type Step<T = ()> = Result<T, Stop>;

#[derive(Debug)]
pub(super) struct Turn {
    running: Running,
    pub(super) client: Client,
    ids: Ids,
    /// The current message or thought. Any other step ends it.
    message: Option<String>,
    open_calls: Vec<String>,
    pub(super) terminals: Vec<String>,
    pub(super) displays: Vec<String>,
    /// The tokens of the session up to and including this turn's prompt.
    tokens_read: u64,
    pub(super) late_updates: Vec<Value>,
    /// The delay after the turn before the agent works without a prompt.
    pub(super) background_work_after: Option<Duration>,
}

impl Turn {
    pub(super) fn new(running: Running, client: Client, ids: Ids) -> Self {
        Self {
            running,
            client,
            ids,
            message: None,
            open_calls: Vec::new(),
            terminals: Vec::new(),
            displays: Vec::new(),
            tokens_read: 0,
            late_updates: Vec::new(),
            background_work_after: None,
        }
    }

    /// Stores the prompt before the work starts, so that it survives a kill of the process. Returns the
    /// number of the turn, from 1, and the id of the prompt's message.
    pub(super) fn begin(&mut self, prompt: &[Value]) -> Result<(u64, String), Error> {
        let (turns, message, tokens) = self.change(|record| {
            record.turns += 1;
            let message = format!("m{}", record.number());
            record.history.prompt(prompt, &message);
            (record.turns, message, record.history.tokens())
        })?;
        self.tokens_read = tokens;
        Ok((turns, message))
    }

    /// Ends open steps, reports the usage, and sets a title if the session has none. Returns the stop reason
    /// and the tokens of the turn.
    pub(super) async fn end(
        &mut self,
        played: Step,
        prompt: &str,
    ) -> Result<(&'static str, Value), Error> {
        for terminal in std::mem::take(&mut self.terminals) {
            let params = json!({ "sessionId": self.session().id, "terminalId": terminal });
            // A client that does not answer keeps the terminal until the session ends.
            let released = self.client.request("terminal/release", params);
            let _ = tokio::time::timeout(RELEASE_TIMEOUT, released).await;
        }
        for terminal in std::mem::take(&mut self.displays) {
            self.end_display(&terminal, json!({ "signal": "SIGTERM" }))
                .await;
        }
        for call in std::mem::take(&mut self.open_calls) {
            self.call_cancelled(&call).await;
        }
        let (used, info) = self.change(|record| {
            let name = one_line(prompt, TITLE_MAX);
            if record.entry.title.is_none() && !name.is_empty() {
                record.entry.title = Some(name);
            }
            (
                record.history.tokens().min(CONTEXT),
                record.entry.info_update(),
            )
        })?;
        let cost = json!({ "amount": 0.0, "currency": "USD" });
        let usage =
            json!({ "sessionUpdate": "usage_update", "used": used, "size": CONTEXT, "cost": cost });
        self.show(usage).await;
        self.show(info).await;
        let reason = match played {
            Ok(()) => "end_turn",
            Err(Stop::Reason(reason)) => reason,
            Err(Stop::Failed(error)) => return Err(error),
        };
        let input = self.tokens_read;
        let total = self.record().history.tokens().max(input);
        let usage =
            json!({ "inputTokens": input, "outputTokens": total - input, "totalTokens": total });
        Ok((reason, usage))
    }

    pub(super) fn session(&self) -> &Session {
        &self.running.session
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        self.session().record()
    }

    pub(super) fn options(&self) -> Options {
        self.record().options.clone()
    }

    /// A path in the session's directory. An absolute path stays unchanged.
    pub(super) fn path(&self, name: &str) -> String {
        let path = self.record().entry.workspace.cwd.join(name);
        path.to_string_lossy().into_owned()
    }

    pub(super) fn new_id(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.record().number())
    }

    /// Waits for a number of beats. A beat is the time between two chunks of text.
    pub(super) async fn pause(&self, beats: u32) -> Step {
        let beat = match self.record().options.selected("pace") {
            "instant" => 0,
            "brisk" => 8,
            "leisurely" => 80,
            _ => 24,
        };
        self.wait(Duration::from_millis(beat) * beats).await
    }

    pub(super) async fn wait(&self, time: Duration) -> Step {
        self.unless_cancelled(sleep_or_yield(time)).await
    }

    /// Waits. Returns true if the part was cancelled meanwhile.
    pub(super) async fn wait_for_part(
        &self,
        part: &CancellationToken,
        time: Duration,
    ) -> Step<bool> {
        tokio::select! {
            biased;
            () = part.cancelled() => Ok(true),
            waited = self.wait(time) => waited.map(|()| false),
        }
    }

    async fn unless_cancelled<T>(&self, work: impl Future<Output = T>) -> Step<T> {
        tokio::select! {
            biased;
            () = self.running.cancel.cancelled() => Err(Stop::CANCELLED),
            done = work => Ok(done),
        }
    }

    pub(super) async fn think(&mut self, text: &str) -> Step {
        if self.options().is_on("thoughts") {
            self.message = None;
            self.stream(text, "agent_thought_chunk").await?;
            self.message = None;
        }
        Ok(())
    }

    /// Streams markdown. Consecutive calls form one message.
    pub(super) async fn say(&mut self, text: &str) -> Step {
        self.stream(text, "agent_message_chunk").await
    }

    async fn stream(&mut self, text: &str, kind: &str) -> Step {
        for piece in pieces(text) {
            let id = self.message();
            self.pause(1).await?;
            self.chunk(kind, &id, json!({ "type": "text", "text": piece }))
                .await;
        }
        Ok(())
    }

    pub(super) async fn say_block(&mut self, block: Value) -> Step {
        let id = self.message();
        self.check()?;
        self.chunk("agent_message_chunk", &id, block).await;
        Ok(())
    }

    async fn chunk(&self, kind: &str, message: &str, content: Value) {
        let update = json!({ "sessionUpdate": kind, "messageId": message, "content": content });
        self.send(update).await;
    }

    fn message(&mut self) -> String {
        let session = &self.running.session;
        self.message
            .get_or_insert_with(|| format!("m{}", session.record().number()))
            .clone()
    }

    /// Begins a message and returns its id, for a later replacement.
    pub(super) fn new_message(&mut self) -> String {
        self.message = None;
        self.message()
    }

    pub(super) async fn call(&mut self, call: &Value) -> Step<String> {
        let id = self.new_id("call_");
        let mut update = call.clone();
        update["sessionUpdate"] = json!("tool_call");
        update["toolCallId"] = json!(id);
        self.open_calls.push(id.clone());
        self.act(update).await?;
        Ok(id)
    }

    pub(super) async fn progress(&mut self, call: &str, members: Value) -> Step {
        if members["status"] == "completed" || members["status"] == "failed" {
            self.open_calls.retain(|open| open != call);
        }
        self.act(tool_call_update(call, members)).await
    }

    pub(super) async fn set_status(&mut self, call: &str, status: &str) -> Step {
        self.progress(call, json!({ "status": status })).await
    }

    pub(super) async fn end_call(&mut self, call: &str, status: &str, text: &str) -> Step {
        let members = json!({ "status": status, "content": text_content(text) });
        self.progress(call, members).await
    }

    pub(super) async fn set_option(&mut self, option: &str, value: &Value) -> Step {
        self.session().set_option(option, value)?;
        let update = self.options().update(option, &self.client);
        self.act(update).await
    }

    /// Sends a request about the session to the client. A cancel ends the wait.
    pub(super) async fn request(
        &self,
        method: &str,
        mut params: Value,
    ) -> Step<Result<Value, Error>> {
        params["sessionId"] = json!(self.session().id);
        self.show_state("requires_action").await;
        let answer = self.client.request(method, params);
        let answer = self.unless_cancelled(answer).await?;
        self.show_state("running").await;
        Ok(answer)
    }

    /// Reports that the turn runs or waits for a person. v1 has no such update.
    pub(super) async fn show_state(&self, state: &str) {
        if self.client.is_v2() {
            self.show(json!({ "sessionUpdate": "state_update", "state": state }))
                .await;
        }
    }

    /// Ends the current message and sends an update that is not text. Fails if the turn is cancelled.
    pub(super) async fn act(&mut self, update: Value) -> Step {
        self.message = None;
        self.check()?;
        self.send(update).await;
        Ok(())
    }

    pub(super) async fn send(&self, update: Value) {
        self.record().history.push(&update);
        self.show(update).await;
    }

    pub(super) async fn show(&self, update: Value) {
        self.client.update(&self.session().id, update).await;
    }

    pub(super) fn check(&self) -> Step {
        if self.running.cancel.is_cancelled() {
            Err(Stop::CANCELLED)
        } else {
            Ok(())
        }
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> Result<T, Error> {
        let now = self.ids.now();
        self.session().change(|record| {
            record.entry.updated_at = now;
            change(record)
        })
    }
}

pub(super) fn tool_call_update(call: &str, mut members: Value) -> Value {
    members["sessionUpdate"] = json!("tool_call_update");
    members["toolCallId"] = json!(call);
    members
}

pub(super) fn text_content(text: &str) -> Value {
    json!([{ "type": "content", "content": { "type": "text", "text": text } }])
}

/// At the instant pace, yields to other turns and to the reader.
async fn sleep_or_yield(time: Duration) {
    if time.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Permission {
    pub(super) granted: bool,
    /// The decision applies to later calls of the same kind.
    pub(super) always: bool,
}

impl Turn {
    /// Announces a tool call. Asks the user, unless the mode or an earlier answer decides.
    pub(super) async fn call_if_permitted(&mut self, call: &Value) -> Step<(String, Permission)> {
        let id = self.call(call).await?;
        let kind = call["kind"].as_str().unwrap_or_default();
        let known = self.record().grants.get(kind).copied();
        let decided = match (self.options().selected(MODE), known) {
            ("auto", _) => Some(true),
            ("plan", _) => Some(false),
            (_, known) => known,
        };
        if let Some(granted) = decided {
            let always = false;
            return Ok((id, Permission { granted, always }));
        }
        let permission = self.ask(&id, call).await?;
        if permission.always {
            self.change(|record| record.grants.insert(kind.to_owned(), permission.granted))?;
        }
        Ok((id, permission))
    }

    pub(super) async fn ask(&mut self, id: &str, call: &Value) -> Step<Permission> {
        let options = json!([
            { "optionId": "allow_once", "name": "Allow once", "kind": "allow_once" },
            { "optionId": "allow_always", "name": "Always allow in this session", "kind": "allow_always" },
            { "optionId": "reject_once", "name": "Reject", "kind": "reject_once" },
            { "optionId": "reject_always", "name": "Always reject in this session", "kind": "reject_always" },
        ]);
        let mut call = call.clone();
        call["toolCallId"] = json!(id);
        let params = if self.client.is_v2() {
            v2::permission_params(call, &self.record().cwd(), &options)
        } else {
            json!({ "toolCall": call, "options": options })
        };
        // An error of the client does not allow anything.
        let answer = self.request("session/request_permission", params).await?;
        let answer = answer.unwrap_or_default();
        let outcome = &answer["outcome"];
        if outcome["outcome"] == "cancelled" {
            return Err(Stop::CANCELLED);
        }
        let option = outcome["optionId"].as_str().unwrap_or_default();
        Ok(Permission {
            granted: option.starts_with("allow_"),
            always: option.ends_with("_always"),
        })
    }

    /// The reason for a denial, for the begin of a sentence.
    pub(super) fn denial(&self) -> &'static str {
        if self.options().selected(MODE) == "plan" {
            "This session is in the mode *Plan only*"
        } else {
            "You said no"
        }
    }
}

impl Turn {
    /// Displays a command line by line, and completes its tool call.
    pub(super) async fn simulate(
        &mut self,
        call: &str,
        command: &str,
        lines: &[String],
        beats: u32,
    ) -> Step {
        let terminal = if self.client.is_v2() {
            let terminal = self.begin_display(command, false).await?;
            let content = json!({ "type": "terminal", "terminalId": terminal });
            let mut chunk = tool_call_update(call, json!({ "content": content }));
            chunk["sessionUpdate"] = json!("tool_call_content_chunk");
            self.show(chunk).await;
            Some(terminal)
        } else {
            None
        };
        let mut output = String::new();
        for line in lines {
            self.pause(beats).await?;
            output.push_str(line);
            let content = text_content(&fenced("console", &output));
            let update = tool_call_update(call, json!({ "content": content }));
            match &terminal {
                None => self.act(update).await?,
                Some(terminal) => {
                    self.record().history.push(&update);
                    self.grow_display(terminal, line).await?;
                }
            }
        }
        if let Some(terminal) = terminal {
            self.end_display(&terminal, json!({ "exitCode": 0 })).await;
        }
        let members = json!({ "status": "completed", "rawOutput": { "exitCode": 0 } });
        self.progress(call, members).await
    }

    /// Displays a terminal of the agent. The end of the turn ends it, if the scene has not done so.
    pub(super) async fn begin_display(&mut self, command: &str, cancels: bool) -> Step<String> {
        let id = self.new_id("term_");
        self.displays.push(id.clone());
        let cwd = self.record().cwd();
        let mut update = json!({
            "sessionUpdate": "terminal_update", "terminalId": id, "command": command, "cwd": cwd,
        });
        if cancels {
            update["capabilities"] = json!({ "cancel": {} });
        }
        self.act(update).await?;
        Ok(id)
    }

    pub(super) async fn grow_display(&mut self, terminal: &str, text: &str) -> Step {
        let data = STANDARD.encode(text);
        self.act(json!({ "sessionUpdate": "terminal_output_chunk", "terminalId": terminal, "data": data }))
            .await
    }

    pub(super) async fn end_display(&mut self, terminal: &str, status: Value) {
        self.displays.retain(|open| open != terminal);
        self.show(json!({
            "sessionUpdate": "terminal_update", "terminalId": terminal, "exitStatus": status, "capabilities": null,
        }))
        .await;
    }

    /// Reports that a tool call was cancelled, with its turn or by itself. v1 and the history have no such status.
    pub(super) async fn call_cancelled(&mut self, call: &str) {
        self.open_calls.retain(|open| open != call);
        let members = json!({ "status": "failed", "content": text_content("Cancelled.") });
        let update = tool_call_update(call, members);
        self.record().history.push(&update);
        let update = if self.client.is_v2() {
            tool_call_update(call, json!({ "status": "cancelled", "capabilities": null }))
        } else {
            update
        };
        self.show(update).await;
    }
}
