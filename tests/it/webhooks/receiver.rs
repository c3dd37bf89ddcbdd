//! A receiver over TLS, in its own process.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::attach::tls::certificate;
use crate::support::Gateway;
use crate::support::places::project;
use crate::support::wait::LONGEST;

pub(crate) struct Receiver {
    folder: TempDir,
    key: PathBuf,
    pub(crate) certificate: PathBuf,
    port: u16,
    process: Option<(Child, Lines<BufReader<ChildStdout>>)>,
}

impl Receiver {
    /// A certificate for `localhost`, without a process.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (key, certificate) = certificate(folder.path());
        Self {
            folder,
            key,
            certificate,
            port: 0,
            process: None,
        }
    }

    /// Starts the process with the secret of the gateway. Port 0 selects a free port.
    #[expect(clippy::disallowed_methods, reason = "the test starts the receiver")]
    pub(crate) async fn start(&mut self, gateway: &Gateway, port: u16) {
        let secret = gateway.get("/v1/webhooks/secret").await;
        let script = project().join("tests/agents/clients/webhook_receiver.mjs");
        let mut node = Command::new("node");
        node.arg(script)
            .args([&self.key, &self.certificate])
            .arg(port.to_string());
        node.arg(secret["secret"].as_str().expect("a secret"))
            .current_dir(self.folder.path());
        let mut child = node
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node is there");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = timeout(LONGEST, lines.next_line())
            .await
            .expect("in time")
            .expect("a line");
        self.port = line.expect("a line").parse().expect("a port");
        self.process = Some((child, lines));
    }

    /// Ends the process. Returns its port.
    pub(crate) fn stop(&mut self) -> u16 {
        self.process = None;
        self.port
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Value {
        let (_, lines) = self.process.as_mut().expect("it runs");
        let line = timeout(LONGEST, lines.next_line())
            .await
            .expect("a request in time")
            .expect("a line");
        serde_json::from_str(&line.expect("a line")).expect("JSON")
    }

    pub(crate) async fn take(&mut self, count: usize) -> Vec<Value> {
        let mut taken = Vec::new();
        for _ in 0..count {
            taken.push(self.next().await);
        }
        taken
    }

    /// Whether no request arrives for this time.
    pub(crate) async fn is_silent(&mut self, time: Duration) -> bool {
        let (_, lines) = self.process.as_mut().expect("it runs");
        timeout(time, lines.next_line()).await.is_err()
    }
}
