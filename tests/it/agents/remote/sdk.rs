//! The server of the official TypeScript SDK as the host of a remote agent, over both forms of the transport.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::json;

use crate::support::gateway::command;
use crate::support::log::{agent_text, all};
use crate::support::places::project;
use crate::support::{Gateway, Setup};

const TOKEN: &str = "sdk-token-0123456789";

/// The server, which ends with the test.
struct SdkServer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl Drop for SdkServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl SdkServer {
    fn start() -> Self {
        let script = project().join("tests/agents/clients/acp_server.mjs");
        let mut node = command("node");
        let mut child = node
            .arg(script)
            .arg(TOKEN)
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is there");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let port = lines
            .next()
            .expect("a line")
            .expect("a pipe")
            .parse()
            .expect("a port");
        Self { child, lines, port }
    }

    fn near(&self, scheme: &str, token: &str) -> Gateway {
        let url = format!("{scheme}://127.0.0.1:{}/acp", self.port);
        let entry = format!("url = {url:?}\nremote_folders = [\"/srv\"]\ntoken = {token:?}\n");
        Setup::default()
            .table(&format!("[agents.far]\npool = {{ min_idle = 0 }}\n{entry}"))
            .start()
    }
}

async fn run_over(scheme: &str) {
    let mut sdk = SdkServer::start();
    let mut near = sdk.near(scheme, TOKEN);
    let session = near.session("far").await;
    let turn = near.turn(&session, "hello").await;
    assert_eq!(
        (&turn["status"], &turn["text"]),
        (&json!("completed"), &json!("hello")),
        "{turn}"
    );

    let asks = near.prompt(&session, "permission").await;
    near.log_until(&session, |event| event["type"] == "request.created")
        .await;
    let path = format!("/v1/sessions/{session}/permissions/r1");
    let answered = near
        .posted(&path, &[], &json!({ "optionId": "reject" }))
        .await;
    assert!(
        answered.status.is_success(),
        "{} {}",
        answered.status,
        answered.body
    );
    let events = near
        .log_until(&session, |event| {
            event["type"] == "prompt.completed" && event["promptId"] == asks["promptId"]
        })
        .await;
    assert!(
        agent_text(&events).ends_with("permission: reject"),
        "{}",
        agent_text(&events)
    );

    let prompt = near.prompt(&session, "slow").await;
    near.log_until(&session, |event| {
        event["update"]["content"]["text"] == "chunk 1 "
    })
    .await;
    let cancelled = near
        .posted(&format!("/v1/sessions/{session}/cancel"), &[], &json!({}))
        .await;
    assert!(cancelled.status.is_success(), "{}", cancelled.body);
    let events = near
        .log_until(&session, |event| {
            event["type"] == "prompt.completed" && event["promptId"] == prompt["promptId"]
        })
        .await;
    let completed = all(&events, "prompt.completed").pop().expect("the end");
    assert_eq!(completed["stopReason"], "cancelled", "{completed}");

    // Another connection loads the session.
    assert_eq!(near.stop(), Some(0));
    assert_eq!(sdk.lines.next().expect("a line").expect("a pipe"), "closed");
    near.start();
    assert_eq!(near.turn(&session, "again").await["text"], "again");
    let events = near.lawful(&session).await;
    assert!(
        agent_text(&events).starts_with("hello"),
        "{}",
        agent_text(&events)
    );
    assert_eq!(
        all(&events, "session.attached").last().expect("an event")["by"],
        "load"
    );
}

#[tokio::test]
async fn server_of_the_typescript_sdk_is_a_remote_agent_over_http() {
    run_over("http").await;
}

#[tokio::test]
async fn server_of_the_typescript_sdk_is_a_remote_agent_over_a_websocket() {
    run_over("ws").await;
}

#[tokio::test]
async fn server_of_the_typescript_sdk_rejects_a_wrong_token() {
    let sdk = SdkServer::start();
    for scheme in ["http", "ws"] {
        let near = sdk.near(scheme, "another-token");
        let failed = near
            .posted("/v1/sessions", &[], &json!({ "agent": "far" }))
            .await;
        let problem = failed.problem(502, "agent_start_failed");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|text| text.contains("401")),
            "{problem}"
        );
        assert!(!near.log().contains("another-token"));
    }
}
