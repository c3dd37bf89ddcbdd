//! The trace context of an HTTP request is part of every agent call that the request causes.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Setup, eventually};

/// A context of its own for each request.
fn parent(number: u32) -> String {
    format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{number:016x}-01")
}

async fn traced(
    gateway: &Gateway,
    number: u32,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Answer {
    let request = gateway
        .request(method, path)
        .header("traceparent", parent(number))
        .header("tracestate", "v=1");
    let answer = Answer::of(match body {
        Some(body) => request.header("Prefer", "wait=60").json(&body),
        None => request,
    })
    .await;
    assert!(answer.status.is_success(), "{path}: {answer:?}");
    answer
}

/// `_meta` of the latest message with this method that the agent received.
async fn meta_of(gateway: &Gateway, method: &str) -> Value {
    let part = format!("\"method\":\"{method}\"");
    let line = eventually(method, Duration::from_secs(10), || async {
        let lines =
            std::fs::read_to_string(gateway.path("data/homes/default/fake/received")).ok()?;
        lines
            .lines()
            .rfind(|line| line.contains(&part))
            .map(str::to_owned)
    })
    .await;
    serde_json::from_str::<Value>(&line).expect("JSON")["params"]["_meta"].clone()
}

#[tokio::test]
async fn every_call_to_the_agent_carries_the_context_of_its_request() {
    let args = [
        "--log", "received", "--state", "state", "--close", "--delete", "--fork",
    ];
    let gateway = Setup::fake_with(&args, "rpc = [\"_vendor/*\"]").start();
    let context = |number: u32| json!({ "traceparent": parent(number), "tracestate": "v=1" });
    let session = traced(
        &gateway,
        1,
        Method::POST,
        "/v1/sessions",
        Some(json!({ "agent": "fake" })),
    )
    .await;
    assert_eq!(meta_of(&gateway, "session/new").await, context(1));
    let path = format!(
        "/v1/sessions/{}",
        session.body["sessionId"].as_str().expect("an id")
    );
    let prompt = json!({ "prompt": "echo hello" });
    traced(
        &gateway,
        2,
        Method::POST,
        &format!("{path}/prompts"),
        Some(prompt),
    )
    .await;
    assert_eq!(meta_of(&gateway, "session/prompt").await, context(2));
    traced(
        &gateway,
        3,
        Method::PUT,
        &format!("{path}/mode"),
        Some(json!({ "modeId": "code" })),
    )
    .await;
    assert_eq!(meta_of(&gateway, "session/set_mode").await, context(3));
    traced(
        &gateway,
        4,
        Method::PUT,
        &format!("{path}/config/model"),
        Some(json!({ "value": "large" })),
    )
    .await;
    assert_eq!(
        meta_of(&gateway, "session/set_config_option").await,
        context(4)
    );
    traced(
        &gateway,
        5,
        Method::POST,
        &format!("{path}/rpc"),
        Some(json!({ "method": "_vendor/echo" })),
    )
    .await;
    assert_eq!(meta_of(&gateway, "_vendor/echo").await, context(5));
    traced(&gateway, 6, Method::POST, &format!("{path}/fork"), None).await;
    assert_eq!(meta_of(&gateway, "session/fork").await, context(6));
    assert_eq!(
        meta_of(&gateway, "session/close").await,
        context(6),
        "the fork is closed where it was made"
    );
    assert_eq!(
        meta_of(&gateway, "session/load").await,
        context(6),
        "and loaded where it lives"
    );
    traced(&gateway, 7, Method::POST, &format!("{path}/close"), None).await;
    eventually("the close", Duration::from_secs(30), || async {
        (meta_of(&gateway, "session/close").await == context(7)).then_some(())
    })
    .await;
    traced(&gateway, 8, Method::POST, &format!("{path}/attach"), None).await;
    assert_eq!(meta_of(&gateway, "session/load").await, context(8));
    let hang = json!({ "prompt": "stream n=1; hang" });
    let begun = gateway.posted(&format!("{path}/prompts"), &[], &hang).await;
    assert_eq!(begun.status, StatusCode::ACCEPTED);
    gateway
        .log_until(path.rsplit('/').next().expect("an id"), |event| {
            event["type"] == "session.update" && event["promptId"] == "p2"
        })
        .await;
    traced(&gateway, 9, Method::POST, &format!("{path}/cancel"), None).await;
    assert_eq!(meta_of(&gateway, "session/cancel").await, context(9));
    traced(&gateway, 10, Method::DELETE, &path, None).await;
    assert_eq!(meta_of(&gateway, "session/delete").await, context(10));
}
