//! The limitations of the reference server that this one does not have. Others have tests in `streams` and `shared`.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::raw::{Acp, initialize, request};
use super::socket::Socket;
use crate::support::Setup;
use crate::support::gateway::KEY;

#[tokio::test]
async fn abandoned_initializes_share_one_start_and_leave_no_process() {
    let gateway = Setup::fake_with(
        &["--slow-start", "5000"],
        "pool = { max_size = 8, min_idle = 0, idle_timeout = \"6s\" }",
    )
    .start();
    let abandoned = (0..20).map(|_| {
        let post = request(&gateway, Method::POST, KEY).json(&initialize(0, &json!({})));
        tokio::time::timeout(Duration::from_millis(100), post.send())
    });
    let abandoned = futures_util::future::join_all(abandoned).await;
    assert!(
        abandoned.iter().all(Result::is_err),
        "no client waits for the answer"
    );
    Acp::open(&gateway).await;
    let agent = gateway.get("/v1/agents").await["agents"][0].clone();
    assert_eq!(agent["pool"]["processes"], 1, "{agent}");
    gateway.none_alive().await;
}

#[tokio::test]
async fn dropped_websocket_ends_no_turn() {
    let gateway = Setup::fake(&[]).start();
    let mut socket = Socket::open(&gateway, "/acp", &[]).await;
    let session = socket.session().await;
    socket.send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "session/prompt",
        "params": { "sessionId": session, "prompt": [{ "type": "text", "text": "slow chunks=10 ms=100" }] } })).await;
    socket
        .until(|message| message["method"] == "session/update")
        .await;
    drop(socket);
    let wait = gateway
        .http
        .get(format!("{}/v1/sessions/{session}/prompts/p1", gateway.url))
        .bearer_auth(KEY);
    let prompt: Value = wait
        .header("prefer", "wait=20")
        .send()
        .await
        .expect("it")
        .json()
        .await
        .expect("JSON");
    assert_eq!(prompt["stopReason"], "end_turn");
}

#[tokio::test]
async fn malformed_messages_and_wrong_answers_do_not_reach_the_agent() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("received");
    let gateway = Setup::fake(&["--log", log.to_str().expect("UTF-8")]).start();
    let mut acp = Acp::open(&gateway).await;
    let (session, mut messages) = acp.session().await;
    let post = |body: &'static str| {
        acp.head(Method::POST)
            .header("content-type", "application/json")
            .body(body)
            .send()
    };
    post("{\"jsonrpc\":\"2.0\",\"method\":\"evil\"")
        .await
        .expect("a response");
    post(r#"{"jsonrpc":"2.0","id":77,"result":{"evil":1}}"#)
        .await
        .expect("a response");
    post(r#"{"jsonrpc":"2.0","id":"a:b","result":{"evil":1}}"#)
        .await
        .expect("a response");
    let foreign = format!(r#"{{"jsonrpc":"2.0","id":"{session}:r7","result":{{"evil":1}}}}"#);
    acp.head(Method::POST)
        .header("content-type", "application/json")
        .body(foreign)
        .send()
        .await
        .expect("a response");
    let prompt = acp.prompt(&session, "echo fine").await;
    messages.response(prompt).await;
    assert!(
        !std::fs::read_to_string(log)
            .expect("the log")
            .contains("evil")
    );
}

#[tokio::test]
async fn agents_that_fail_report_the_reason_to_clients() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open(&gateway).await;
    let (session, mut messages) = acp.session().await;
    let prompt = acp.prompt(&session, "crash code=42").await;
    let error = messages.response(prompt).await["error"].clone();
    assert_eq!(
        (&error["data"]["code"], &error["data"]["exitCode"]),
        (&json!("agent_exited"), &json!(42)),
        "{error}"
    );
    let prompt = acp.prompt(&session, "error code=-32050 message=mine").await;
    let error = messages.response(prompt).await["error"].clone();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32050), &json!("mine")),
        "{error}"
    );
    let prompt = acp.prompt(&session, "echo works").await;
    assert_eq!(
        messages.response(prompt).await["result"]["stopReason"],
        "end_turn"
    );
}

#[tokio::test]
async fn initialize_fails_in_time_if_the_agent_hangs() {
    let gateway = Setup::fake_with(&["--hang-initialize"], "start_timeout = \"1s\"").start();
    let post = request(&gateway, Method::POST, KEY).json(&initialize(0, &json!({})));
    let response = post.send().await.expect("a response");
    assert!(
        response.status().is_success() && !response.headers().contains_key("acp-connection-id")
    );
    let error: Value = response.json().await.expect("JSON");
    assert_eq!(error["error"]["data"]["code"], "agent_timeout", "{error}");
}

#[tokio::test]
async fn pages_of_listed_origins_may_use_every_header() {
    let gateway = Setup::fake(&[])
        .settings("auth.allowed_origins = [\"https://app.example\"]")
        .start();
    let preflight = gateway
        .http
        .request(Method::OPTIONS, format!("{}/acp", gateway.url));
    let preflight = preflight
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "acp-connection-id");
    let response = preflight.send().await.expect("a response");
    let allowed = response.headers()["access-control-allow-headers"]
        .to_str()
        .expect("ASCII");
    for header in [
        "authorization",
        "acp-connection-id",
        "acp-session-id",
        "last-event-id",
        "content-type",
    ] {
        assert!(allowed.contains(header), "{header}: {allowed}");
    }
    let foreign = request(&gateway, Method::POST, KEY).header("origin", "https://evil.example");
    let foreign = foreign
        .json(&initialize(0, &json!({})))
        .send()
        .await
        .expect("a response");
    assert_eq!(foreign.status().as_u16(), 403);
}
