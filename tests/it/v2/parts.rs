//! One tool call or one terminal of the agent is cancelled, and nothing else.

use reqwest::Method;
use serde_json::json;

use super::fake;
use crate::support::Setup;

#[tokio::test]
async fn cancellable_tool_call_can_be_cancelled() {
    let (gateway, session) = fake().await;
    let path = format!("/v1/sessions/{session}/tool-calls/call%3A1/cancel");
    gateway
        .call(Method::POST, &path)
        .await
        .problem(404, "not_found");
    gateway.prompt(&session, "tool-hang").await;
    gateway
        .log_until(&session, |event| event["update"]["toolCallId"] == "call:1")
        .await;
    let other = format!("/v1/sessions/{session}/tool-calls/other/cancel");
    gateway
        .call(Method::POST, &other)
        .await
        .problem(404, "not_found");
    assert_eq!(gateway.call(Method::POST, &path).await.status, 202);
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(
        events.last().expect("its end")["stopReason"],
        "end_turn",
        "the turn itself goes on"
    );
    assert!(
        events
            .iter()
            .any(|event| event["update"]["status"] == "cancelled")
    );
    gateway
        .call(Method::POST, &path)
        .await
        .problem(404, "not_found");
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn cancellable_terminal_of_the_agent_can_be_cancelled() {
    let (gateway, session) = fake().await;
    gateway.prompt(&session, "terminal-hang").await;
    gateway
        .log_until(&session, |event| event["update"]["terminalId"] == "term 1")
        .await;
    let path = format!("/v1/sessions/{session}/agent-terminals/term%201/cancel");
    assert_eq!(gateway.call(Method::POST, &path).await.status, 202);
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert!(
        events
            .iter()
            .any(|event| event["update"]["exitStatus"] == json!({ "signal": "SIGTERM" }))
    );
    gateway
        .call(Method::POST, &path)
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn an_agent_of_v1_has_no_such_methods() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    for part in ["tool-calls", "agent-terminals"] {
        let path = format!("/v1/sessions/{session}/{part}/x/cancel");
        gateway
            .call(Method::POST, &path)
            .await
            .problem(501, "agent_unsupported");
    }
}
