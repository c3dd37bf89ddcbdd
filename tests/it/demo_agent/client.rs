//! A client of the demo agent: it starts the real binary and speaks ACP with it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use agent_client_protocol_schema::v1;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::places::gateway_program;

/// The longest wait for an expected line.
const SOON: Duration = Duration::from_secs(20);

/// A demo agent's process. It keeps its sessions below `home`, and ends with this.
pub(super) struct Demo {
    child: Child,
    pub(super) stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Updates and requests of the agent in order of arrival, received during other waits.
    pub(super) seen: Vec<Value>,
    last_id: u64,
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Demo {
    /// With a client that offers all that there is.
    pub(super) fn start(home: &Path) -> Self {
        let mut demo = Self::spawn(home, &[]);
        let info = demo.initialize(&everything());
        assert_eq!(info["result"]["protocolVersion"], 1);
        assert_eq!(info["result"]["agentCapabilities"]["loadSession"], true);
        demo
    }

    /// A process that has received no message.
    #[expect(
        clippy::disallowed_methods,
        reason = "the test is the agent's client and starts it itself"
    )]
    pub(super) fn spawn(home: &Path, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(gateway_program())
            .arg("demo-agent")
            .env_clear()
            .env("HOME", home)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = sync_channel(10_000);
        std::thread::Builder::new()
            .spawn(move || {
                for line in stdout.lines().map_while(Result::ok) {
                    let message =
                        serde_json::from_str(&line).expect("each line is one JSON message");
                    if sender.send(message).is_err() {
                        break;
                    }
                }
            })
            .unwrap();
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            lines,
            seen: Vec::new(),
            last_id: 0,
        }
    }

    pub(super) fn initialize(&mut self, capabilities: &Value) -> Value {
        self.call(
            "initialize",
            &json!({ "protocolVersion": 1, "clientCapabilities": capabilities }),
        )
    }

    pub(super) fn line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin
            .write_all(line.as_bytes())
            .and_then(|()| stdin.write_all(b"\n"))
            .unwrap();
    }

    pub(super) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.line(&message.to_string());
        id
    }

    pub(super) fn notify(&mut self, method: &str, params: &Value) {
        self.line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    pub(super) fn next(&self) -> Value {
        match self.lines.recv_timeout(SOON) {
            Ok(message) => {
                check(&message);
                message
            }
            Err(RecvTimeoutError::Timeout) => panic!("no line came in {SOON:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the agent ended"),
        }
    }

    /// The next message for which `wanted` is true. Earlier messages are stored in `seen`.
    pub(super) fn until(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next();
            if matches(&message) {
                return message;
            }
            self.seen.push(message);
        }
    }

    pub(super) fn response(&mut self, id: u64) -> Value {
        self.until(|message| message["id"] == id && message.get("method").is_none())
    }

    pub(super) fn question(&mut self) -> Value {
        self.until(|message| message["method"] == "session/request_permission")
    }

    pub(super) fn answer(&mut self, question: &Value, outcome: &Value) {
        let answer =
            json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": outcome } });
        self.line(&answer.to_string());
    }

    pub(super) fn choose(&mut self, question: &Value, option: &str) {
        self.answer(
            question,
            &json!({ "outcome": "selected", "optionId": option }),
        );
    }

    pub(super) fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.response(id)
    }

    /// A new session without pauses.
    pub(super) fn session(&mut self, cwd: &str) -> String {
        let made = self.call("session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
        let value = json!({ "sessionId": session, "configId": "pace", "value": "instant" });
        let options = self.call("session/set_config_option", &value);
        assert_eq!(
            options["result"]["configOptions"][0]["currentValue"],
            "instant"
        );
        session
    }

    pub(super) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        self.seen.clear();
        self.send(
            "session/prompt",
            &json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] }),
        )
    }

    /// A turn without questions; its stop reason.
    pub(super) fn turn(&mut self, session: &str, text: &str) -> String {
        let id = self.prompt(session, text);
        let response = self.response(id);
        response["result"]["stopReason"]
            .as_str()
            .unwrap_or_else(|| panic!("{response}"))
            .to_owned()
    }

    /// Runs a turn and answers its requests with `serve`, which receives the method and the params. Returns the
    /// turn's result and the requests.
    pub(super) fn played(
        &mut self,
        session: &str,
        text: &str,
        mut serve: impl FnMut(&str, &Value) -> Result<Value, Value>,
    ) -> (Value, Vec<(String, Value)>) {
        let id = self.prompt(session, text);
        let mut asked = Vec::new();
        loop {
            let message = self.until(|message| message.get("id").is_some());
            let Some(method) = message["method"].as_str() else {
                assert_eq!(message["id"], id, "{message}");
                return (message["result"].clone(), asked);
            };
            let answer = match serve(method, &message["params"]) {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }),
                Err(error) => json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }),
            };
            asked.push((method.to_owned(), message["params"].clone()));
            self.line(&answer.to_string());
        }
    }

    pub(super) fn updates(&self, kind: &str) -> Vec<&Value> {
        self.seen
            .iter()
            .map(|message| &message["params"]["update"])
            .filter(|update| update["sessionUpdate"] == kind)
            .collect()
    }

    /// The text of the agent since the last prompt.
    pub(super) fn agent_text(&self) -> String {
        self.updates("agent_message_chunk")
            .iter()
            .filter_map(|chunk| chunk["content"]["text"].as_str())
            .collect()
    }

    pub(super) fn wait_for_exit(&mut self, limit: Duration) -> Option<i32> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the agent did not end in {limit:?}");
    }
}

pub(super) fn code(response: &Value) -> i64 {
    response["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("no error: {response}"))
}

/// All capabilities that a client of version 1 can have.
pub(super) fn everything() -> Value {
    json!({
        "fs": { "readTextFile": true, "writeTextFile": true },
        "terminal": true,
        "session": { "configOptions": { "boolean": {} }, "notices": {}, "compaction": {} },
        "elicitation": { "form": {}, "url": {} },
        "auth": { "terminal": true },
        "plan": {},
        "subagents": {},
    })
}

/// Checks that a message of the agent has exactly the members of the protocol's type.
fn check(message: &Value) {
    let params = &message["params"];
    match message["method"].as_str() {
        Some("session/update") => same::<v1::SessionNotification>(params),
        Some("session/request_permission") => same::<v1::RequestPermissionRequest>(params),
        Some("elicitation/create") => same::<v1::CreateElicitationRequest>(params),
        Some("elicitation/complete") => same::<v1::CompleteElicitationNotification>(params),
        Some("fs/read_text_file") => same::<v1::ReadTextFileRequest>(params),
        Some("fs/write_text_file") => same::<v1::WriteTextFileRequest>(params),
        Some("terminal/create") => same::<v1::CreateTerminalRequest>(params),
        Some("terminal/output") => same::<v1::TerminalOutputRequest>(params),
        Some("terminal/wait_for_exit") => same::<v1::WaitForTerminalExitRequest>(params),
        Some("terminal/kill") => same::<v1::KillTerminalRequest>(params),
        Some("terminal/release") => same::<v1::ReleaseTerminalRequest>(params),
        Some("$/cancel_request") => same::<v1::CancelRequestNotification>(params),
        Some(other) => assert!(other.starts_with('_'), "{message}"),
        None => assert!(
            message.get("result").is_some() != message.get("error").is_some(),
            "{message}"
        ),
    }
}

fn same<T: DeserializeOwned + Serialize>(params: &Value) {
    let typed: T = T::deserialize(params).unwrap_or_else(|error| panic!("{error}: {params}"));
    assert_eq!(serde_json::to_value(typed).unwrap(), *params);
}
