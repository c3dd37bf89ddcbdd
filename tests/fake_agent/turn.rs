//! One turn of a session: its output and its end.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::session::{Cancel, Session, Sessions};
use super::wire::{Reply, Wire, chunk, string};

/// The interval of the check for a cancel during a wait for an answer.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The maximum wait for an answer of the client.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);

pub(crate) struct Turn {
    pub(crate) wire: Arc<Wire>,
    pub(crate) session: Arc<Session>,
    sessions: Arc<Sessions>,
    pub(crate) cancel: Arc<Cancel>,
    /// The id of the prompt in its original spelling.
    pub(crate) id: String,
    pub(crate) id_last: bool,
}

/// The reason for the end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Stop(String),
    Error(i64, String),
    /// A complete result or error as raw JSON.
    Result(String),
    Failure(String),
    /// The prompt gets no answer.
    NoAnswer,
}

pub(crate) type Step = Result<(), End>;

impl End {
    pub(crate) fn cancelled() -> Self {
        Self::Stop("cancelled".to_owned())
    }
}

impl Turn {
    pub(crate) fn new(
        wire: Arc<Wire>,
        session: Arc<Session>,
        sessions: Arc<Sessions>,
        cancel: Arc<Cancel>,
        id: &str,
    ) -> Self {
        Self {
            wire,
            session,
            sessions,
            cancel,
            id: id.to_owned(),
            id_last: false,
        }
    }

    /// Sends text, and stores it for `session/load`.
    pub(crate) fn say(&self, text: &str) {
        self.say_raw(&string(text));
    }

    /// The same with a raw JSON string.
    pub(crate) fn say_raw(&self, text: &str) {
        let update = chunk(text);
        self.sessions.record(&self.session.id, &update);
        self.update(&update);
    }

    /// The prompts of this session that began with `remember`, including earlier processes.
    pub(crate) fn recall(&self) -> String {
        let history = self.sessions.history(&self.session.id).unwrap_or_default();
        let texts = history.iter().filter_map(|update| {
            let update: serde_json::Value = serde_json::from_str(update).ok()?;
            if update["sessionUpdate"] != "user_message_chunk" {
                return None;
            }
            let text = update["content"]["text"].as_str()?;
            text.strip_prefix("remember ").map(str::to_owned)
        });
        texts.collect::<Vec<_>>().join(",")
    }

    pub(crate) fn update(&self, update: &str) {
        self.wire.update(&self.session.id, update);
    }

    /// Waits, unless the turn is cancelled.
    pub(crate) fn pause(&self, millis: u64) -> Step {
        if self.cancel.wait(Duration::from_millis(millis)) {
            Err(End::cancelled())
        } else {
            Ok(())
        }
    }

    /// Waits for the client's answer. Fails if the turn is cancelled. With `wait`, checks for the cancel only
    /// after the answer.
    pub(crate) fn reply(&self, receiver: &Receiver<Reply>, wait: bool) -> Result<Reply, End> {
        let end = Instant::now() + ANSWER_TIMEOUT;
        while Instant::now() < end {
            match receiver.recv_timeout(CANCEL_POLL_INTERVAL) {
                Ok(_) if self.cancel.is_cancelled() => return Err(End::cancelled()),
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if self.cancel.is_cancelled() && !wait => {
                    return Err(End::cancelled());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Err(End::Error(-32603, "no answer came".to_owned()))
    }

    /// Answers the prompt. Ends the turn first, so that the next prompt may follow at once.
    pub(crate) fn end(&self, end: &End) {
        self.session.end();
        match end {
            End::NoAnswer => {}
            End::Error(code, message) => self.wire.fail(&self.id, *code, message, None),
            End::Result(result) => self.wire.answer(&self.id, result),
            End::Failure(error) => {
                self.wire.line(format_args!(
                    r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
                    self.id
                ));
            }
            End::Stop(reason) if self.id_last => {
                let id = &self.id;
                let reason = string(reason);
                self.wire.line(format_args!(
                    r#"{{"result":{{"stopReason":{reason}}},"jsonrpc":"2.0","id":{id}}}"#
                ));
            }
            End::Stop(reason) => {
                self.wire.answer(
                    &self.id,
                    format_args!(r#"{{"stopReason":{}}}"#, string(reason)),
                );
            }
        }
    }
}
