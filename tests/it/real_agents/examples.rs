//! The examples of the TypeScript and of the Python SDK.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::file;
use crate::support::{Events, Gateway, Setup, figure};

const TYPESCRIPT: &str = "node_modules/@agentclientprotocol/sdk/dist/examples/agent.js";
const PYTHON: &str = ".venv/bin/python";
const ECHO: &str = ".cache/agent-client-protocol-0.12.1/examples/echo_agent.py";
const COLLIDING: &str = ".cache/agent-client-protocol-0.12.1/examples/agent.py";

fn typescript() -> Gateway {
    Setup::default()
        .agent("ts", "node", &[&file(TYPESCRIPT)], "")
        .start()
}

/// Starts a turn that waits for its permission. The stream has delivered the events up to `request.created`.
async fn asked(gateway: &Gateway) -> (String, Events, Value) {
    let session = gateway.session("ts").await;
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    gateway
        .prompt(&session, "Please change the configuration.")
        .await;
    let request = stream
        .until("request.created")
        .await
        .pop()
        .expect("until gives it")
        .data;
    (session, stream, request)
}

async fn end(stream: &mut Events) -> (Vec<Value>, Value) {
    let mut events = Vec::new();
    loop {
        let event = stream.next().await.expect("the stream goes on").data;
        if event["type"] == "prompt.completed" || event["type"] == "prompt.failed" {
            return (events, event);
        }
        events.push(event);
    }
}

async fn answered(option: &str, expected: &str) {
    let gateway = typescript();
    let (session, mut stream, request) = asked(&gateway).await;
    assert_eq!(request["method"], "session/request_permission");
    assert_eq!(
        request["params"]["sessionId"],
        session.as_str(),
        "agents' ids are not shown"
    );
    let path = format!("/v1/sessions/{session}");
    assert_eq!(gateway.get(&path).await["state"], "waiting");
    let id = request["requestId"].as_str().expect("an id");
    let answer = format!("{path}/permissions/{id}");
    let (status, wrong) = gateway
        .post(&answer, &json!({ "optionId": "no such option" }))
        .await;
    assert_eq!(status, 422, "{wrong}");
    assert_eq!(
        gateway
            .post(&answer, &json!({ "optionId": option }))
            .await
            .0,
        204
    );
    let (status, second) = gateway.post(&answer, &json!({ "optionId": option })).await;
    assert_eq!(
        (status.as_u16(), &second["code"]),
        (409, &json!("request_resolved")),
        "{second}"
    );

    let (events, end) = end(&mut stream).await;
    let resolved = events
        .iter()
        .find(|event| event["type"] == "request.resolved")
        .expect("it is resolved");
    assert_eq!(resolved["resolution"], "answered");
    assert_eq!(
        resolved["result"],
        json!({ "outcome": { "outcome": "selected", "optionId": option } })
    );
    assert_eq!(
        (&end["type"], &end["stopReason"]),
        (&json!("prompt.completed"), &json!("end_turn")),
        "{end}"
    );
    let prompt = gateway.get(&format!("{path}/prompts/p1")).await;
    let text = prompt["text"].as_str().expect("text");
    assert!(
        text.starts_with("I'll help you with that.") && text.contains(expected),
        "{text}"
    );
    let kept = gateway.get(&format!("{path}/transcript")).await;
    let tools = |item: &&Value| item["type"] == "tool_call";
    let items = kept["turns"][0]["items"]
        .as_array()
        .expect("items of a turn");
    assert_eq!(items.iter().filter(tools).count(), 2, "{kept}");
}

#[tokio::test]
async fn the_typescript_agent_is_allowed() {
    answered(
        "allow",
        "Perfect! I've successfully updated the configuration.",
    )
    .await;
}

#[tokio::test]
async fn the_typescript_agent_is_refused() {
    answered("reject", "I understand you prefer not to make that change.").await;
}

#[tokio::test]
async fn typescript_agent_is_cancelled_before_and_during_a_request() {
    let gateway = typescript();
    let session = gateway.session("ts").await;
    let path = format!("/v1/sessions/{session}");
    let mut stream = gateway.events(&format!("{path}/events")).await;
    gateway.prompt(&session, "Begin.").await;
    stream.until("session.update").await;
    let began = Instant::now();
    let (status, cancelled) = gateway.post(&format!("{path}/cancel"), &json!({})).await;
    assert_eq!(
        (status.as_u16(), &cancelled["promptIds"]),
        (202, &json!(["p1"]))
    );
    let (_, first) = end(&mut stream).await;
    figure(&format!(
        "cancelled in its work after {:?}: {}",
        began.elapsed(),
        first["stopReason"]
    ));
    assert_eq!(first["type"], "prompt.completed", "{first}");
    assert!(began.elapsed() < Duration::from_secs(10));

    // The session is good for another turn.
    gateway.prompt(&session, "Again.").await;
    stream.until("request.created").await;
    let began = Instant::now();
    assert_eq!(
        gateway.post(&format!("{path}/cancel"), &json!({})).await.0,
        202
    );
    let (events, second) = end(&mut stream).await;
    figure(&format!(
        "cancelled in its question after {:?}: {}",
        began.elapsed(),
        second["stopReason"]
    ));
    let resolved = events
        .iter()
        .find(|event| event["type"] == "request.resolved")
        .expect("it is resolved");
    assert_eq!(resolved["resolution"], "cancelled");
    // The agent answers `end_turn` after a cancel. The gateway reports the agent's answer.
    assert_eq!(
        (&second["type"], &second["promptId"]),
        (&json!("prompt.completed"), &json!("p2")),
        "{second}"
    );
    assert_eq!(gateway.get(&path).await["state"], "idle");
}

#[tokio::test]
async fn the_python_agents_echo() {
    let python = file(PYTHON);
    let gateway = Setup::default()
        .agent("echo", &python, &[&file(ECHO)], "")
        .agent("colliding", &python, &[&file(COLLIDING)], "")
        .start();
    let session = gateway.session("echo").await;
    for words in ["Grüße 漢字 😀", "and a second turn"] {
        let prompt = gateway.turn(&session, words).await;
        assert_eq!(
            (&prompt["text"], &prompt["stopReason"]),
            (&json!(words), &json!("end_turn")),
            "{prompt}"
        );
    }
    let events = gateway.all_events(&session).await;
    let update = events
        .iter()
        .find(|event| event["type"] == "session.update")
        .expect("it says something");
    assert_eq!(
        update["update"]["_meta"]["echo"], true,
        "its own members are passed on: {update}"
    );

    // Both processes call their session "0".
    let one = gateway.session("colliding").await;
    let two = gateway.session("colliding").await;
    let (first, second) = tokio::join!(gateway.turn(&one, "of one"), gateway.turn(&two, "of two"));
    assert_eq!(first["text"], "Client sent:of one");
    assert_eq!(second["text"], "Client sent:of two");
    assert_eq!(
        gateway
            .post(&format!("/v1/sessions/{one}/cancel"), &json!({}))
            .await
            .0,
        204,
        "nothing runs"
    );
}

#[tokio::test]
async fn a_python_agent_without_a_cancel_of_its_own_still_ends_its_turn() {
    let gateway = Setup::default()
        .agent("echo", &file(PYTHON), &[&file(ECHO)], "")
        .start();
    let session = gateway.session("echo").await;
    let path = format!("/v1/sessions/{session}");
    // Many blocks, so that the cancel arrives during the turn or directly after it.
    let blocks: Vec<Value> = (0..2000)
        .map(|n| json!({ "type": "text", "text": format!("{n} ") }))
        .collect();
    let mut stream = gateway.events(&format!("{path}/events")).await;
    let (status, prompt) = gateway
        .post(&format!("{path}/prompts"), &json!({ "prompt": blocks }))
        .await;
    assert_eq!(status, 202, "{prompt}");
    stream.until("session.update").await;
    let (status, _) = gateway.post(&format!("{path}/cancel"), &json!({})).await;
    let (_, end) = end(&mut stream).await;
    figure(&format!(
        "cancel: {status}, the turn ended with {}",
        end["stopReason"]
    ));
    assert_eq!(end["type"], "prompt.completed", "{end}");
    assert_eq!(gateway.turn(&session, "next").await["text"], "next");
}
