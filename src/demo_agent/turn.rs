//! One turn: the steps of the scenes.
//!
//! Every step fails after a cancel. Every update that is history is stored in the session.

use std::sync::MutexGuard;
use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::types::Ids;

use super::client::Client;
use super::options::Options;
use super::record::Record;
use super::session::{Running, Session};
use super::text::{one_line, pieces};

/// The size of the simulated context window.
const CONTEXT: u64 = 128_000;
/// The maximum number of characters of a title made from a prompt.
const TITLE_MAX: usize = 60;
/// The timeout of the release of a terminal of the client when a turn ends early.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a scene ends early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The turn ends with this stop reason.
    Reason(&'static str),
    Failed(Error),
}

impl Stop {
    pub(super) const CANCELLED: Self = Self::Reason("cancelled");
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) type Step<T = ()> = Result<T, Stop>;

#[derive(Debug)]
pub(super) struct Turn {
    running: Running,
    pub(super) client: Client,
    ids: Ids,
    /// The current message or thought. Any other step ends it.
    message: Option<String>,
    /// Tool calls that have not ended.
    open_calls: Vec<String>,
    /// Terminals of the client that were not released.
    pub(super) terminals: Vec<String>,
    /// Displayed terminals that have not ended.
    pub(super) displays: Vec<String>,
    /// The tokens of the session up to and including this turn's prompt.
    tokens_read: u64,
    /// The updates to send after the end of the turn.
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
            drop(
                tokio::time::timeout(
                    RELEASE_TIMEOUT,
                    self.client.request("terminal/release", params),
                )
                .await,
            );
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
        self.show(
            json!({ "sessionUpdate": "usage_update", "used": used, "size": CONTEXT, "cost": cost }),
        )
        .await;
        self.show(info).await;
        let reason = match played {
            Ok(()) => "end_turn",
            Err(Stop::Reason(reason)) => reason,
            Err(Stop::Failed(error)) => return Err(error),
        };
        let (input, total) = (
            self.tokens_read,
            self.record().history.tokens().max(self.tokens_read),
        );
        Ok((
            reason,
            json!({ "inputTokens": input, "outputTokens": total - input, "totalTokens": total }),
        ))
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
        self.record()
            .entry
            .workspace
            .cwd
            .join(name)
            .to_string_lossy()
            .into_owned()
    }

    /// An id that is new in the session.
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

    /// Sends a block that is not text, as a part of the message.
    pub(super) async fn say_block(&mut self, block: Value) -> Step {
        let id = self.message();
        self.check()?;
        self.chunk("agent_message_chunk", &id, block).await;
        Ok(())
    }

    async fn chunk(&self, kind: &str, message: &str, content: Value) {
        self.send(json!({ "sessionUpdate": kind, "messageId": message, "content": content }))
            .await;
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

    /// Announces a tool call with these members. Returns its id.
    pub(super) async fn call(&mut self, call: &Value) -> Step<String> {
        let id = self.new_id("call_");
        let mut update = call.clone();
        update["sessionUpdate"] = json!("tool_call");
        update["toolCallId"] = json!(id);
        self.open_calls.push(id.clone());
        self.act(update).await?;
        Ok(id)
    }

    /// Changes members of a tool call.
    pub(super) async fn progress(&mut self, call: &str, members: Value) -> Step {
        if members["status"] == "completed" || members["status"] == "failed" {
            self.call_ended(call);
        }
        self.act(tool_call_update(call, members)).await
    }

    /// Ends a tool call with a status and a text.
    pub(super) async fn end_call(&mut self, call: &str, status: &str, text: &str) -> Step {
        self.progress(
            call,
            json!({ "status": status, "content": text_content(text) }),
        )
        .await
    }

    /// Records that the call has ended.
    pub(super) fn call_ended(&mut self, call: &str) {
        self.open_calls.retain(|open| open != call);
    }

    /// Changes an option of the session, and notifies the client.
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
        let answer = self
            .unless_cancelled(self.client.request(method, params))
            .await?;
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

    /// Sends an update and stores it in the history.
    pub(super) async fn send(&self, update: Value) {
        self.record().history.push(&update);
        self.show(update).await;
    }

    /// Sends an update that is not history.
    pub(super) async fn show(&self, update: Value) {
        self.client.update(&self.session().id, update).await;
    }

    /// Fails if the turn is cancelled.
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

/// A text as the content of a tool call.
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
