//! Streams under paths of their own: Server-Sent Events for any `Accept`.

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::support::{Event, Events, Gateway, Setup};

async fn asked(gateway: &Gateway, path: &str, accept: Option<&str>) -> Response {
    let request = gateway.request(Method::GET, path);
    let request = accept
        .into_iter()
        .fold(request, |request, accept| request.header("accept", accept));
    request.send().await.expect("an answer")
}

/// Events of the log, without the frames of the stream itself.
fn logged(frames: &[Event]) -> Vec<&Value> {
    frames
        .iter()
        .map(|frame| &frame.data)
        .filter(|data| data["seq"].is_u64())
        .collect()
}

#[tokio::test]
async fn stream_paths_serve_sse_for_any_accept_header() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo hello").await;
    for base in [
        format!("/v1/sessions/{session}/events"),
        format!("/v1/sessions/{session}/prompts/p1/events"),
        "/v1/events".to_owned(),
    ] {
        let query = if base == "/v1/events" {
            format!("&session={session}")
        } else {
            String::new()
        };
        let negotiated = asked(
            &gateway,
            &format!("{base}?follow=false{query}"),
            Some("text/event-stream"),
        )
        .await;
        let negotiated = Events::new(negotiated).rest().await;
        assert!(!logged(&negotiated).is_empty(), "{base}");
        for accept in [
            None,
            Some("*/*"),
            Some("application/json"),
            Some("text/event-stream"),
            Some("text/html"),
        ] {
            let own = asked(
                &gateway,
                &format!("{base}/stream?follow=false{query}"),
                accept,
            )
            .await;
            let own = Events::new(own).rest().await;
            assert_eq!(logged(&own), logged(&negotiated), "{base} {accept:?}");
        }
        let unknown = asked(&gateway, &format!("{base}/stream?bogus=1"), None).await;
        assert_eq!(unknown.status(), StatusCode::UNPROCESSABLE_ENTITY, "{base}");
    }
}

#[tokio::test]
async fn one_request_starts_and_streams_a_turn_exactly_once() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/prompts");
    let begin = |path: &str| {
        let request = gateway
            .request(Method::POST, path)
            .json(&json!({ "prompt": "echo hello" }));
        request
            .header("idempotency-key", "once")
            .header("prefer", "wait=30")
    };
    let first = begin(&format!("{path}/stream"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(first.headers()["location"], format!("{path}/p1"));
    let frames = Events::new(first).rest().await;
    let events = logged(&frames);
    assert_eq!(
        events.first().map(|event| &event["type"]),
        Some(&json!("prompt.started"))
    );
    assert_eq!(
        events.last().map(|event| &event["type"]),
        Some(&json!("prompt.completed"))
    );
    // The same request in either form is the same turn.
    let again = begin(&format!("{path}/stream"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(logged(&Events::new(again).rest().await), events);
    let plain = begin(&path).send().await.expect("an answer");
    assert_eq!(
        (
            plain.status(),
            &plain.headers()["idempotency-replayed"] == "true"
        ),
        (StatusCode::OK, true)
    );
    assert_eq!(
        gateway.get(&path).await["prompts"].as_array().map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn ticket_opens_a_stream_path_and_errors_arrive_in_the_stream() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_streams = 1")
        .start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/events/stream");
    let (status, ticket) = gateway
        .post("/v1/tickets", &json!({ "paths": [path] }))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{ticket}");
    let ticket = ticket["ticket"].as_str().expect("a text");
    let open = || async {
        let request = gateway
            .http
            .get(format!("{}{path}?ticket={ticket}", gateway.url));
        Events::new(request.send().await.expect("an answer"))
    };
    let mut held = open().await;
    held.until("session.created").await;
    let refused = open().await.rest().await;
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0].data["problem"]["code"], "rate_limited");
    let other = gateway
        .http
        .get(format!("{}/v1/events/stream?ticket={ticket}", gateway.url));
    assert_eq!(
        other.send().await.expect("an answer").status(),
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn a_transcript_is_markdown_under_a_path_of_its_own() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo hello").await;
    let path = format!("/v1/sessions/{session}/transcript");
    let markdown = asked(
        &gateway,
        &format!("{path}/markdown"),
        Some("application/json"),
    )
    .await;
    assert_eq!(
        markdown.headers()["content-type"],
        "text/markdown; charset=utf-8"
    );
    let markdown = markdown.text().await.expect("a text");
    let negotiated = asked(&gateway, &path, Some("text/markdown"))
        .await
        .text()
        .await
        .expect("a text");
    assert!(
        markdown.contains("hello") && markdown == negotiated,
        "{markdown}"
    );
}
