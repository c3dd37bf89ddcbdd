//! Recordings of Claude Code 2.1.197, replayed through the translation.

use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::StartedSession;
use super::translator::Translator;
use crate::translate::protocol::Output;
use wire::acp::to_raw;
use wire::jsonrpc::{CallId, Message, PendingTables};

mod bounds;
mod lines;
mod recordings;
mod starts;

const SESSION: &str = "11111111-1111-4111-8111-111111111111";

/// A translator between a test client and a recorded or scripted CLI.
struct Fixture {
    translator: Translator,
    tables: PendingTables,
    /// The ids of control requests in a recording, with the ids of the translator.
    ids: HashMap<String, String>,
    /// The messages for the client.
    messages: Vec<Output>,
}

impl Fixture {
    fn new() -> Self {
        let session = StartedSession {
            id: SESSION.to_owned(),
            cwd: "/project".into(),
            restores: false,
        };
        Self {
            translator: Translator {
                session,
                ..Translator::default()
            },
            tables: PendingTables::default(),
            ids: HashMap::new(),
            messages: Vec::new(),
        }
    }

    /// The lines for the CLI since the last call.
    fn sent(&mut self) -> Vec<Value> {
        let mut sent = Vec::new();
        for output in std::mem::take(&mut self.translator.out) {
            match output {
                Output::ToAgent(lines) => {
                    assert!(lines.ends_with(b"\n"));
                    let lines = std::str::from_utf8(&lines).unwrap().lines();
                    sent.extend(lines.map(|line| serde_json::from_str(line).unwrap()));
                }
                output => self.messages.push(output),
            }
        }
        sent
    }

    /// Sends a request to the agent. Returns its id, and the lines for the CLI.
    fn call(&mut self, method: &str, params: &Value) -> (CallId, Vec<Value>) {
        let id = self.tables.register_call();
        self.translator.call(id, method, &to_raw(params));
        (id, self.sent())
    }

    fn prompt(&mut self, text: &str) -> CallId {
        let prompt = json!([{ "type": "text", "text": text }]);
        let (id, lines) = self.call(
            "session/prompt",
            &json!({ "sessionId": SESSION, "prompt": prompt }),
        );
        assert_eq!((lines.len(), &lines[0]["message"]["content"]), (1, &prompt));
        id
    }

    fn cancel(&mut self) -> Vec<Value> {
        self.translator.cancel();
        self.sent()
    }

    fn answer(&mut self, id: &str, option: &str) -> Vec<Value> {
        let id = RawValue::from_string(id.to_owned()).unwrap();
        let outcome = to_raw(&json!({ "outcome": { "outcome": "selected", "optionId": option } }));
        self.translator.answer(&id, Ok(outcome));
        self.sent()
    }

    /// Receives a line of the CLI.
    fn line(&mut self, line: &str) {
        if let Err(error) = self.translator.line(line.as_bytes(), 64) {
            panic!("{error}: {line}");
        }
        self.messages.append(&mut self.translator.out);
    }

    fn receive(&mut self, line: &Value) {
        self.line(&line.to_string());
    }

    /// The messages since the last call, each as one line of text.
    fn shown(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
            .iter()
            .map(show)
            .collect()
    }

    /// The updates since the last call, with their sessions.
    fn updates(&mut self) -> Vec<(String, Value)> {
        let params = std::mem::take(&mut self.messages)
            .into_iter()
            .filter_map(|message| match message {
                Output::ToClient(Message::Notification { method, params })
                    if &*method == "session/update" =>
                {
                    Some(serde_json::from_str::<Value>(params.get()).unwrap())
                }
                _ => None,
            });
        params
            .map(|params| {
                (
                    params["sessionId"].as_str().unwrap().to_owned(),
                    params["update"].clone(),
                )
            })
            .collect()
    }
}

/// A message as one line of text.
fn show(message: &Output) -> String {
    match message {
        Output::ToClient(Message::Notification { method, params })
            if &**method == "session/update" =>
        {
            let params: Value = serde_json::from_str(params.get()).unwrap();
            let update = &params["update"];
            let kind = update["sessionUpdate"].as_str().unwrap();
            match kind {
                "agent_message_chunk" | "agent_thought_chunk" => {
                    format!(
                        "{kind} {}",
                        update["content"]["text"].as_str().unwrap_or("[image]")
                    )
                }
                "tool_call" | "tool_call_update" => {
                    format!("{kind} {} {}", update["title"], update["status"]).replace('"', "")
                }
                _ => kind.to_owned(),
            }
        }
        Output::ToClient(Message::Notification { method, .. }) => format!("notification {method}"),
        Output::ToClient(Message::Request { method, .. }) => format!("request {method}"),
        Output::ToClient(Message::Response {
            outcome: Ok(result),
            ..
        }) => {
            let result: Value = serde_json::from_str(result.get()).unwrap();
            format!("result {}", result["stopReason"].as_str().unwrap_or("ok"))
        }
        Output::ToClient(Message::Response {
            outcome: Err(error),
            ..
        }) => format!("error {}", error.message),
        Output::Launch(_) => panic!("a translator starts no process"),
        Output::ToAgent(line) => format!("send {}", String::from_utf8_lossy(line).trim_end()),
    }
}
