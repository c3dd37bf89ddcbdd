//! The steps of a prompt.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::agent::Cancelled;
use super::updates;
use crate::script::Command;
use crate::session::{Cancel, Session, Sessions};
use crate::wire::{Reply, Wire, string};

pub(crate) struct Prompt {
    pub(crate) wire: Arc<Wire>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) session: Arc<Session>,
    pub(crate) cancelled: Cancelled,
    pub(crate) cancel: Arc<Cancel>,
    /// The id of the request in its original spelling.
    pub(crate) id: String,
    /// The number of the prompt in this process.
    pub(crate) number: u32,
    pub(crate) text: String,
}

/// The work was cancelled.
pub(crate) struct Stop;

pub(crate) fn play(prompt: &Prompt) {
    let raw = prompt.text.trim_start().starts_with("raw");
    let steps = if raw {
        prompt.text.clone()
    } else {
        format!("answer;user;running;{};idle", prompt.text)
    };
    for part in steps.split(';') {
        if prompt.step(part).is_err() {
            prompt.state(r#""idle","stopReason":"cancelled""#);
            break;
        }
    }
}

impl Prompt {
    pub(crate) fn update(&self, update: &str) {
        self.wire.update(&self.session.id, update);
    }

    /// The same for an update that belongs to the history.
    pub(crate) fn record(&self, update: &str) {
        self.sessions.record(&self.session.id, update);
        self.update(update);
    }

    pub(crate) fn state(&self, rest: &str) {
        self.update(&format!(
            r#"{{"sessionUpdate":"state_update","state":{rest}}}"#
        ));
    }

    pub(crate) fn say(&self, text: &str) {
        self.record(&format!(
            r#"{{"sessionUpdate":"agent_message_chunk","messageId":"a{}","content":{{"type":"text","text":{}}}}}"#,
            self.number,
            string(text)
        ));
    }

    fn message_id(&self) -> String {
        format!("u{}", self.number)
    }

    pub(crate) fn pause(&self, millis: u64) -> Result<(), Stop> {
        if self.cancel.wait(Duration::from_millis(millis)) {
            Err(Stop)
        } else {
            Ok(())
        }
    }

    fn step(&self, part: &str) -> Result<(), Stop> {
        let command = Command::parse(part);
        match command.name {
            "" | "raw" => {}
            "answer" => self.wire.answer(&self.id, format_args!(r#"{{"messageId":"{}"}}"#, self.message_id())),
            "refuse" => self.wire.fail(&self.id, command.number("code", -32603), "not taken", None),
            "user" => self.record(&format!(
                r#"{{"sessionUpdate":"user_message","messageId":"{}","content":[{{"type":"text","text":{}}}]}}"#,
                self.message_id(),
                string(&self.text)
            )),
            "running" => self.state(r#""running""#),
            "requires-action" => self.state(r#""requires_action""#),
            "state" => self.state(&string(command.text("name", "open"))),
            "idle" => match command.text("reason", "end_turn") {
                "none" => self.state(r#""idle","background":[]"#),
                reason => self.state(&format!(r#""idle","stopReason":{}"#, string(reason))),
            },
            "usage" => self.state(r#""idle","stopReason":"end_turn","usage":{"totalTokens":3,"inputTokens":1,"outputTokens":2}"#),
            "error" => match command.number("code", -32603) {
                0 => self.state(r#""idle","stopReason":"error""#),
                code => self.state(&format!(
                    r#""idle","stopReason":"error","error":{{"code":{code},"message":{}}}"#,
                    string(command.text("message", "failed"))
                )),
            },
            "say" => self.say(command.text("text", "")),
            "pause" => return self.pause(command.number("ms", 100)),
            "hang" => {
                self.cancel.wait_for_ever();
                return Err(Stop);
            }
            "hold" => {
                self.cancel.wait_for_ever();
                self.wire.fail(&self.id, -32800, "Request cancelled", None);
                return Err(Stop);
            }
            "deaf" => loop {
                std::thread::sleep(Duration::from_millis(100));
                self.say("still here ");
            },
            "permission" => return self.ask(updates::TOOL_SUBJECT, false),
            "command-permission" => return self.ask(updates::COMMAND_SUBJECT, false),
            "withdrawn" => return self.ask(updates::TOOL_SUBJECT, true),
            "unserved" => return self.unserved(),
            "tool-hang" | "terminal-hang" => return self.wait_for_part(&command),
            "crash" => std::process::exit(command.number("code", 42)),
            _ if updates::play(self, command.name) => {}
            _ => self.say(&self.text),
        }
        Ok(())
    }

    fn ask(&self, subject: &str, withdraw: bool) -> Result<(), Stop> {
        let session = string(&self.session.id);
        let (id, answer) = self.wire.request(
            "session/request_permission",
            format_args!(
                r#"{{"sessionId":{session},"title":"May I?","description":"It writes.","subject":{subject},"options":[{{"optionId":"allow","name":"Allow","kind":"allow_once"}},{{"optionId":"reject","name":"Reject","kind":"reject_once"}}]}}"#
            ),
        );
        self.state(r#""requires_action""#);
        if withdraw {
            self.pause(50)?;
            self.wire.line(format_args!(
                r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#
            ));
        }
        let reply = loop {
            match answer.recv_timeout(Duration::from_millis(5)) {
                Ok(reply) => break reply,
                Err(RecvTimeoutError::Timeout) => self.pause(0)?,
                Err(RecvTimeoutError::Disconnected) => return Err(Stop),
            }
        };
        // A cancel arrives before the answer that follows from it.
        self.pause(0)?;
        self.state(r#""running""#);
        self.say(&format!("permission: {}", outcome(&reply)));
        Ok(())
    }

    /// Sends requests with methods that v2 does not have.
    fn unserved(&self) -> Result<(), Stop> {
        let session = string(&self.session.id);
        for (method, member) in [
            ("fs/read_text_file", "path"),
            ("terminal/create", "command"),
        ] {
            let params = format!(r#"{{"sessionId":{session},"{member}":"/bin/true"}}"#);
            let (_, answer) = self.wire.request(method, params);
            let code = answer.recv().map_err(|_| Stop)?.err().unwrap_or_default();
            self.say(&code.to_string());
        }
        Ok(())
    }

    /// Runs a part of the work until the client cancels it.
    fn wait_for_part(&self, command: &Command<'_>) -> Result<(), Stop> {
        let terminal = command.name == "terminal-hang";
        self.update(if terminal {
            updates::TERMINAL_BEGUN
        } else {
            updates::TOOL_BEGUN
        });
        let part = if terminal { "term 1" } else { "call:1" };
        while !self
            .cancelled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(part)
        {
            self.pause(5)?;
        }
        self.update(if terminal {
            updates::TERMINAL_OVER
        } else {
            updates::TOOL_OVER
        });
        self.say("stopped");
        Ok(())
    }
}

fn outcome(reply: &Reply) -> String {
    let Ok(result) = reply else {
        return "error".to_owned();
    };
    let result: serde_json::Value = serde_json::from_str(result).unwrap_or_default();
    let outcome = &result["outcome"];
    outcome["optionId"]
        .as_str()
        .or(outcome["outcome"].as_str())
        .unwrap_or("malformed")
        .to_owned()
}
