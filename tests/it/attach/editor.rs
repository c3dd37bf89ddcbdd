//! An editor: the process `acp-gateway attach` on pipes.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::support::gateway::{KEY, command};
use crate::support::places::gateway_program;

/// The maximum wait for the next line.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) fn initialize() -> Value {
    let capabilities =
        json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true });
    let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

/// `acp-gateway attach` with the admin key and nothing else in its environment.
pub(super) fn attach() -> Command {
    let mut command = command(gateway_program());
    command
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("ACP_GATEWAY_KEY", KEY)
        .arg("attach");
    command
}

pub(super) struct Editor {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    seen: Vec<Value>,
}

impl Editor {
    pub(super) fn start(url: &str, args: &[&str]) -> Self {
        let mut command = attach();
        command.args(["--url", url]).args(args);
        Self::of(command)
    }

    pub(super) fn of(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .expect("the binary was built");
        let stdout = child.stdout.take().expect("it is piped");
        Self {
            stdin: child.stdin.take(),
            lines: BufReader::new(stdout).lines(),
            child,
            seen: Vec::new(),
        }
    }

    pub(super) async fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .await
            .expect("the bridge reads");
    }

    pub(super) async fn send(&mut self, message: &Value) {
        self.write(&message.to_string()).await;
    }

    /// The next line. Every line is one JSON-RPC message.
    async fn next(&mut self) -> Value {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("no line after {:?}", self.seen.last()));
        let line = line
            .expect("a pipe")
            .unwrap_or_else(|| panic!("the end after {:?}", self.seen.last()));
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        self.seen.push(message.clone());
        message
    }

    pub(super) async fn until(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.next().await;
            if holds(&line) {
                return line;
            }
        }
    }

    /// The response to the request with this id, which may have arrived before.
    pub(super) async fn response(&mut self, id: u64) -> Value {
        let is_response = |line: &Value| line["id"] == id && line["method"].is_null();
        match self.seen.iter().find(|line| is_response(line)) {
            Some(found) => found.clone(),
            None => self.until(is_response).await,
        }
    }

    pub(super) async fn initialize(&mut self) {
        self.send(&initialize()).await;
        let response = self.response(0).await;
        assert_eq!(response["result"]["protocolVersion"], 1, "{response}");
    }

    pub(super) async fn new_session(&mut self, cwd: &str) -> String {
        self.initialize().await;
        let params = json!({ "cwd": cwd, "mcpServers": [] });
        self.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": params }))
            .await;
        let response = self.response(1).await;
        response["result"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{response}"))
            .to_owned()
    }

    pub(super) async fn prompt(&mut self, id: u64, session: &str, text: &str) {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        self.send(
            &json!({ "jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params }),
        )
        .await;
    }

    pub(super) fn seen(&self) -> &[Value] {
        &self.seen
    }

    /// The texts of the updates of this kind.
    pub(super) fn updates(&self, kind: &str) -> Vec<String> {
        let updates = self.seen.iter().map(|line| &line["params"]["update"]);
        let chunks = updates.filter(|update| update["sessionUpdate"] == kind);
        chunks
            .map(|update| {
                update["content"]["text"]
                    .as_str()
                    .expect("a text")
                    .to_owned()
            })
            .collect()
    }

    /// The texts of the agent.
    pub(super) fn texts(&self) -> Vec<String> {
        self.updates("agent_message_chunk")
    }

    /// Reads until there are so many texts of the agent.
    pub(super) async fn until_texts(&mut self, count: usize) {
        let mut found = self.texts().len();
        while found < count {
            let line = self.next().await;
            found +=
                usize::from(line["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
        }
    }

    pub(super) fn assert_answered_once(&self) {
        let mut ids: Vec<_> = self
            .seen
            .iter()
            .filter(|line| line["method"].is_null())
            .collect();
        let count = ids.len();
        ids.sort_by_key(|line| line["id"].to_string());
        ids.dedup_by_key(|line| line["id"].clone());
        assert_eq!(ids.len(), count, "a request was answered twice: {ids:?}");
    }

    pub(super) async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Reads stderr until it contains this.
    pub(super) async fn until_logged(&mut self, words: &str) {
        let stderr = self.child.stderr.as_mut().expect("it is piped");
        let mut log = Vec::new();
        while !String::from_utf8_lossy(&log).contains(words) {
            let read = timeout(PATIENCE, stderr.read_buf(&mut log)).await;
            let read = read.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&log)));
            assert_ne!(
                read.expect("a pipe"),
                0,
                "{}",
                String::from_utf8_lossy(&log)
            );
        }
    }

    /// Closes stdin. Returns the exit code and the text on stderr.
    pub(super) async fn end(mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        self.ended().await
    }

    /// Waits for the end of the process. Returns the exit code and the text on stderr.
    pub(super) async fn ended(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().expect("it is piped");
        let ended = async {
            stderr.read_to_string(&mut log).await.expect("text");
            self.child.wait().await.expect("it is our child").code()
        };
        let code = timeout(PATIENCE, ended).await.expect("it ends");
        (code, log)
    }
}
