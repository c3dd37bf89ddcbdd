//! Scopes, the rate, repeated requests, invalid bodies, and the audit log.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{Log, PATH, announce, reached, send};
use crate::key_life::{by, key, user_key};
use crate::route_walk::operations::UNKNOWN;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Setup};

fn body(to: &Value) -> Value {
    json!({ "type": "announcement", "content": "hello", "to": to })
}

#[tokio::test]
async fn prompts_need_the_scope_admin() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let to = json!({ "sessions": [session] });
    let mut prompt = body(&to);
    prompt["as"] = json!("prompt");
    let writer = key(&gateway, "writer", "prompt").await;
    let post = |key: &str, body: &Value| by(&gateway, key, Method::POST, PATH).json(body);
    let problem = Answer::of(post(&writer, &prompt))
        .await
        .problem(403, "forbidden");
    assert!(
        problem["detail"].as_str().expect("text").contains("admin"),
        "{problem}"
    );
    let answer = Answer::of(post(&writer, &body(&to))).await;
    assert_eq!(
        (answer.status.as_u16(), reached(&answer.body).len()),
        (200, 1),
        "{}",
        answer.body
    );
    let reader = key(&gateway, "reader", "read,approve,files").await;
    Answer::of(post(&reader, &body(&to)))
        .await
        .problem(403, "forbidden");
    assert_eq!(
        gateway
            .get(&format!("/v1/sessions/{session}/prompts"))
            .await["prompts"],
        json!([])
    );
}

#[tokio::test]
async fn seventh_broadcast_in_a_minute_is_rejected() {
    let gateway = Setup::fake(&[]).start();
    let request = || gateway.request(Method::POST, PATH);
    // An invalid request is not counted.
    for _ in 0..7 {
        Answer::of(request().json(&body(&json!({}))))
            .await
            .problem(422, "invalid");
    }
    for _ in 0..6 {
        announce(&gateway, &json!("all")).await;
    }
    let answer = Answer::of(request().json(&body(&json!("all")))).await;
    let seconds: u64 = answer
        .header("retry-after")
        .expect("a time")
        .parse()
        .expect("a number");
    assert!((1..=60).contains(&seconds), "{seconds}");
    let problem = answer.problem(429, "rate_limited");
    assert_eq!(
        (&problem["retryable"], &problem["retryAfterSeconds"]),
        (&json!(true), &json!(seconds))
    );
    // The limit is that of a principal.
    let writer = user_key(&gateway, "writer", "prompt").await;
    let answer =
        Answer::of(by(&gateway, &writer, Method::POST, PATH).json(&body(&json!("all")))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn repeated_request_returns_the_first_report() {
    let log = Log::new();
    let mut gateway = Setup::fake(&["--log", log.path(), "--resume"]).start();
    let session = gateway.session("fake").await;
    let headers = [("Idempotency-Key", "k")];
    let body = body(&json!({ "sessions": [session] }));
    let first = gateway.posted(PATH, &headers, &body).await;
    assert_eq!(
        (first.status.as_u16(), first.header("idempotency-replayed")),
        (200, None),
        "{}",
        first.body
    );
    gateway
        .turn(&session, "echo the line before was read")
        .await;
    gateway.kill();
    gateway.start();
    for _ in 0..7 {
        let again = gateway.posted(PATH, &headers, &body).await;
        assert_eq!(
            (&again.body, again.header("idempotency-replayed")),
            (&first.body, Some("true"))
        );
    }
    let mut other = body.clone();
    other["content"] = json!("other");
    gateway
        .posted(PATH, &headers, &other)
        .await
        .problem(422, "idempotency_mismatch");
    assert_eq!(log.broadcasts().len(), 1);

    let mut prompt = body;
    prompt["as"] = json!("prompt");
    let headers = [("Idempotency-Key", "prompt")];
    let first = gateway.posted(PATH, &headers, &prompt).await;
    let again = gateway.posted(PATH, &headers, &prompt).await;
    assert_eq!(reached(&first.body).len(), 1, "{}", first.body);
    assert_eq!(again.body, first.body);
    let prompts = gateway
        .get(&format!("/v1/sessions/{session}/prompts"))
        .await;
    assert_eq!(
        prompts["prompts"].as_array().expect("a list").len(),
        2,
        "{prompts}"
    );
}

#[tokio::test]
async fn invalid_bodies_are_rejected() {
    let gateway = Setup::fake(&[]).start();
    let change = |member: &str, value: Value| {
        let mut body = body(&json!("all"));
        body[member] = value;
        body
    };
    let long = "x".repeat((64 << 10) + 1);
    let sessions = vec![UNKNOWN; 1001];
    for (body, pointer) in [
        (json!({}), "/type"),
        (json!([]), ""),
        (json!({ "type": "custom", "content": "x" }), "/to"),
        (change("type", json!("other")), "/type"),
        (change("content", json!("")), "/content"),
        (change("content", json!(long)), "/content"),
        (change("content", json!({ "a": 1 })), "/content"),
        (change("to", json!("some")), "/to"),
        (change("to", json!(["fake"])), "/to"),
        (change("to", json!({})), "/to"),
        (change("to", json!({ "agents": [] })), "/to"),
        (change("to", json!({ "agent": ["fake"] })), "/to"),
        (change("to", json!({ "sessions": ["x"] })), "/to"),
        (change("to", json!({ "sessions": sessions })), "/to"),
        (change("as", json!("mail")), "/as"),
        (change("more", json!(1)), "/more"),
    ] {
        let problem = Answer::of(gateway.request(Method::POST, PATH).json(&body))
            .await
            .problem(422, "invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    let request: RequestBuilder = gateway
        .request(Method::POST, PATH)
        .header("content-type", "application/json");
    Answer::of(request.body("{"))
        .await
        .problem(400, "malformed");
    gateway
        .call(Method::GET, PATH)
        .await
        .problem(405, "method_not_allowed");
}

#[tokio::test]
async fn every_broadcast_is_in_the_audit_log() {
    let gateway = Setup::fake(&[]).start();
    gateway.session("fake").await;
    let report = announce(
        &gateway,
        &json!({ "agents": ["fake"], "sessions": [UNKNOWN] }),
    )
    .await;
    let secret = json!({ "type": "custom", "content": "secret text", "to": "all", "as": "prompt" });
    send(&gateway, &secret).await;
    let events = eventually("both events", LONGEST, || async {
        let page = gateway.get("/v1/audit?types=broadcast.sent").await;
        Some(page["events"].as_array()?.clone()).filter(|events| events.len() == 2)
    })
    .await;
    let event = &events[0];
    assert_eq!(
        (&event["actor"]["kind"], &event["actor"]["name"]),
        (&json!("key"), &json!("owner"))
    );
    assert_eq!(
        (
            &event["broadcastId"],
            &event["broadcastType"],
            &event["form"]
        ),
        (
            &report["id"],
            &json!("announcement"),
            &json!("notification")
        )
    );
    assert_eq!(
        (&event["reached"], &event["notReached"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        (&events[1]["form"], &events[1]["reached"]),
        (&json!("prompt"), &json!(1))
    );
    assert!(
        !events[1].to_string().contains("secret text"),
        "{}",
        events[1]
    );
}
