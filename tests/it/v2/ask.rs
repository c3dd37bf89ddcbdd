//! Permission requests of v2: about a subject, answered as ever.

use reqwest::Method;
use serde_json::{Value, json};

use super::{fake, setup};
use crate::support::log::one;

#[tokio::test]
async fn a_request_is_shown_raw_and_its_answer_reaches_the_agent() {
    let (gateway, session) = fake().await;
    gateway.prompt(&session, "permission").await;
    let events = gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    let params = &events.last().expect("the request")["params"];
    assert_eq!(
        (&params["sessionId"], &params["title"]),
        (&json!(session), &json!("May I?"))
    );
    assert_eq!(params["subject"]["toolCall"]["toolCallId"], "call:1");
    gateway
        .log_until(&session, |event| {
            event["update"]["state"] == "requires_action"
        })
        .await;
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        (&shown["state"], &shown["promptId"]),
        (&json!("waiting"), &json!("p1"))
    );
    let answer = format!("/v1/sessions/{session}/requests/r1");
    // An outcome that the protocol does not define is rejected, and approves nothing.
    let unknown = json!({ "result": { "outcome": { "outcome": "_maybe", "optionId": "allow" } } });
    gateway
        .posted(&answer, &[], &unknown)
        .await
        .problem(422, "invalid");
    let allow = json!({ "result": { "outcome": { "outcome": "selected", "optionId": "allow" } } });
    assert_eq!(gateway.posted(&answer, &[], &allow).await.status, 204);
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(one(&events, "request.resolved")["resolution"], "answered");
    assert_eq!(
        crate::support::log::agent_text(&events),
        "permission: allow"
    );
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn policy_uses_only_the_kind_of_the_subject() {
    let gateway = setup(
        &[],
        "permissions = { allow = [\"edit\", \"execute\"], timeout = \"1s\" }",
    )
    .start();
    let session = gateway.session("fake").await;
    assert_eq!(
        gateway.turn(&session, "permission").await["text"],
        "permission: allow"
    );
    // A command request has no option kinds. The policy cannot allow it, and no client answers.
    assert_eq!(
        gateway.turn(&session, "command-permission").await["text"],
        "permission: reject"
    );
    let events = gateway.lawful(&session).await;
    let how: Vec<&Value> = crate::support::log::all(&events, "request.resolved")
        .iter()
        .map(|e| &e["resolution"])
        .collect();
    assert_eq!(how, ["policy", "expired"]);
}

#[tokio::test]
async fn withdrawn_or_cancelled_requests_are_answered_cancelled() {
    let (gateway, session) = fake().await;
    assert_eq!(
        gateway.turn(&session, "withdrawn").await["text"],
        "permission: cancelled"
    );
    gateway.prompt(&session, "permission").await;
    gateway
        .log_until(&session, |event| event["requestId"] == "r2")
        .await;
    gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    gateway
        .log_until(&session, |event| {
            event["type"] == "prompt.completed" && event["promptId"] == "p2"
        })
        .await;
    let events = gateway.lawful(&session).await;
    let how: Vec<&Value> = crate::support::log::all(&events, "request.resolved")
        .iter()
        .map(|e| &e["resolution"])
        .collect();
    assert_eq!(how, ["withdrawn", "cancelled"]);
}
