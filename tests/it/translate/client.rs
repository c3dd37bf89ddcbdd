//! A client: the process `acp-gateway translate`, or another one, on pipes.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::support::gateway::command;
use crate::support::places::gateway_program;

/// The maximum wait for the next line.
const PATIENCE: Duration = Duration::from_mins(1);

/// A request of ACP.
pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// `acp-gateway translate` with these arguments.
pub(super) fn translate(args: &[impl AsRef<std::ffi::OsStr>]) -> Command {
    let mut command = command(gateway_program());
    command.arg("translate").args(args);
    command
}

pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    seen: Vec<Value>,
}

impl Client {
    pub(crate) fn start(mut command: Command) -> Self {
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

    pub(crate) async fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .await
            .expect("the process reads");
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.write(&message.to_string()).await;
    }

    /// Reads until a line holds. Every line is one JSON object.
    pub(crate) async fn until(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = timeout(PATIENCE, self.lines.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no line after {:?}", self.seen.last()));
            let line = line
                .expect("a pipe")
                .unwrap_or_else(|| panic!("the end after {:?}", self.seen.last()));
            let message: Value =
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
            assert!(message.is_object(), "{line}");
            self.seen.push(message.clone());
            if holds(&message) {
                return message;
            }
        }
    }

    /// The response to the request with this id.
    pub(crate) async fn response(&mut self, id: u64) -> Value {
        self.until(|line| line["id"] == id && line["method"].is_null())
            .await
    }

    pub(crate) fn seen(&self) -> &[Value] {
        &self.seen
    }

    /// The text of the agent in ACP.
    pub(super) fn text(&self) -> String {
        let updates = self.seen.iter().map(|line| &line["params"]["update"]);
        let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
        chunks
            .map(|update| update["content"]["text"].as_str().expect("a text"))
            .collect()
    }

    /// Sends messages, and closes stdin. The future does not borrow the client, which can read at the same time.
    pub(super) fn send_all(&mut self, messages: Vec<Value>) -> impl Future<Output = ()> + use<> {
        let mut stdin = self.stdin.take().expect("it is open");
        async move {
            for message in messages {
                let line = format!("{message}\n");
                let written = stdin.write_all(line.as_bytes()).await;
                written.expect("the process reads");
            }
        }
    }

    pub(super) fn close(&mut self) {
        drop(self.stdin.take());
    }

    /// Closes stdin. Returns the exit code and the text on stderr.
    pub(crate) async fn end(mut self) -> (Option<i32>, String) {
        self.close();
        self.ended().await
    }

    /// The next line, which may not be JSON.
    pub(super) async fn next_line(&mut self) -> String {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        line.expect("a line in time")
            .expect("a pipe")
            .expect("a line")
    }

    pub(super) async fn initialize(&mut self) {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        self.send(&request(0, "initialize", &params)).await;
        let answer = self.response(0).await;
        assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
    }

    /// Creates a session of ACP. Returns its id.
    pub(super) async fn create_session(&mut self) -> String {
        self.initialize().await;
        let params = json!({ "cwd": std::env::temp_dir(), "mcpServers": [] });
        self.send(&request(1, "session/new", &params)).await;
        let created = self.response(1).await;
        let session = created["result"]["sessionId"].as_str();
        session.unwrap_or_else(|| panic!("{created}")).to_owned()
    }

    /// Waits for the end of the process.
    pub(super) async fn status(mut self) -> std::process::ExitStatus {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        ended.expect("it ends").expect("it is our child")
    }

    /// Waits for the end of the process. Returns the exit code and the text on stderr.
    pub(crate) async fn ended(mut self) -> (Option<i32>, String) {
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
