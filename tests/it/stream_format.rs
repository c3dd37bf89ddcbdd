//! The wire format of streams for generic clients: every block has data, keep-alives complete no event, and a
//! complete stream has an explicit end.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Event, Gateway, Setup};

const SSE: &str = "text/event-stream";
const NDJSON: &str = "application/x-ndjson";

async fn open(
    gateway: &Gateway,
    path: &str,
    accept: &str,
    last: Option<&str>,
) -> reqwest::Response {
    let mut request = gateway.request(Method::GET, path).header("Accept", accept);
    if let Some(id) = last {
        request = request.header("Last-Event-ID", id);
    }
    request.send().await.expect("an answer")
}

/// The body up to the first match of `is_enough`, or to its end.
async fn body(response: &mut reqwest::Response, is_enough: impl Fn(&str) -> bool) -> String {
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.expect("it is not cut") {
        text.extend_from_slice(&chunk);
        if is_enough(&String::from_utf8_lossy(&text)) {
            break;
        }
    }
    String::from_utf8(text).expect("UTF-8")
}

/// The objects of an NDJSON body, parsed line by line without a filter for empty lines.
fn objects(text: &str) -> Vec<Value> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .split('\n')
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}")))
        .collect()
}

async fn with_a_turn() -> (Gateway, String) {
    let gateway = Setup::fake(&[])
        .settings("timeouts.keep_alive_interval = \"100ms\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "hello").await;
    (gateway, session)
}

#[tokio::test]
async fn every_block_has_data_and_a_keep_alive_is_one_comment_line() {
    let (gateway, session) = with_a_turn().await;
    for query in [
        "",
        "?after=tail",
        "?named=false",
        "?types=session.created",
        "?types=nothing",
    ] {
        for path in [
            format!("/v1/sessions/{session}/events{query}"),
            format!("/v1/events{query}"),
        ] {
            let mut response = open(&gateway, &path, SSE, None).await;
            let text = body(&mut response, |text| text.matches("\n:").count() >= 3).await;
            let blocks: Vec<&str> = text.split("\n\n").collect();
            let (silence, blocks) = blocks.split_last().expect("one at least");
            assert!(!blocks.is_empty(), "{path}: {text}");
            for (number, block) in blocks.iter().enumerate() {
                let data: Vec<&str> = block
                    .lines()
                    .filter(|line| line.starts_with("data: {"))
                    .collect();
                assert_eq!(data.len(), 1, "{path}: {block:?}");
                let retries = block
                    .lines()
                    .filter(|line| line.starts_with("retry: "))
                    .count();
                assert_eq!(retries, usize::from(number == 0), "{path}: {block:?}");
            }
            assert!(
                silence.starts_with(":\n:\n") && silence.lines().all(|line| line == ":"),
                "{silence:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_keep_alive_of_ndjson_is_no_line() {
    let (gateway, session) = with_a_turn().await;
    let path = format!("/v1/sessions/{session}/events");
    let mut response = open(&gateway, &path, NDJSON, None).await;
    let mut text = body(&mut response, |text| text.ends_with("   ")).await;
    let reads = body(&mut response, |text| text.contains("hello again"));
    let (more, _) = tokio::join!(reads, gateway.turn(&session, "echo hello again"));
    text.push_str(&more);
    let events: Vec<Value> = objects(&text)
        .into_iter()
        .filter(|event| event["seq"].is_u64())
        .collect();
    assert_eq!(events, gateway.all_events(&session).await[..events.len()]);
}

#[tokio::test]
async fn a_position_moves_the_cursor_of_a_client_with_filters() {
    let (gateway, session) = with_a_turn().await;
    let path = format!("/v1/sessions/{session}/events?types=session.created");
    let mut stream = gateway.events(&path).await;
    stream.until("ready").await;
    let mut lines = open(&gateway, &path, NDJSON, None).await;
    gateway.turn(&session, "hello").await;
    let last = gateway.last_seq(&session).await;
    let reached = |event: &Event| {
        assert!(
            event.of("position") && event.kind.as_deref() == Some("position"),
            "{event:?}"
        );
        assert_eq!(event.data["id"].as_str(), event.id.as_deref());
        event
            .id
            .as_deref()
            .is_some_and(|id| id.ends_with(&format!("-{last}")))
    };
    let positions = stream
        .up_to("the position of the last event", reached)
        .await;
    let id = positions
        .last()
        .and_then(|event| event.id.clone())
        .expect("an id");
    let end = format!("\"id\":\"{id}\",\"type\":\"position\"");
    let text = body(&mut lines, |text| text.contains(&end)).await;
    assert!(
        objects(&text).iter().all(|event| event["seq"] != 3),
        "{text}"
    );
    // The client has missed nothing, so it gets nothing again.
    let mut again = gateway.events_after(&path, Some(&id)).await;
    assert!(again.next().await.expect("a frame").of("ready"));
}

/// The `end` of a complete stream in both forms, and the cursor that an EventSource holds then.
async fn ended(gateway: &Gateway, path: &str, reason: &str) -> String {
    let mut frames = gateway.events(path).await.rest().await;
    let end = frames.pop().expect("a frame");
    assert_eq!(
        (end.kind.as_deref(), &end.data["reason"]),
        (Some("end"), &json!(reason)),
        "{path}"
    );
    let id = end.id.expect("an end has an id");
    assert_eq!(
        (&end.data["lastEventId"], &end.data["id"]),
        (&json!(id), &json!(id)),
        "{path}"
    );
    assert!(frames.iter().all(|frame| !frame.of("end")), "{path}");
    let text = open(gateway, path, NDJSON, None)
        .await
        .text()
        .await
        .expect("a body");
    let mut line = objects(&text).pop().expect("a line");
    for (name, value) in end.data.as_object().expect("an object") {
        let same = line.as_object_mut().expect("an object").remove(name);
        assert!(
            name == "time" || same.as_ref() == Some(value),
            "{path}: {name}"
        );
    }
    assert_eq!(line, json!({}), "{path}");
    id
}

#[tokio::test]
async fn every_finite_stream_ends_with_an_end_and_is_204_from_there() {
    let (gateway, session) = with_a_turn().await;
    gateway.turn(&session, "hello").await;
    let all = gateway.all_events(&session).await;
    let seq_of = |id: &str| {
        id.rsplit_once('-')
            .and_then(|(_, seq)| seq.parse::<u64>().ok())
            .expect("a seq")
    };
    let of_turn = format!("/v1/sessions/{session}/prompts/p1/events");
    let of_log = format!("/v1/sessions/{session}/events?follow=false");
    let turn_end = all
        .iter()
        .find(|event| event["type"] == "prompt.completed")
        .expect("the turn ended");
    for (path, reason) in [
        (of_turn.clone(), "turn_ended"),
        (format!("{of_turn}?types=prompt.started"), "turn_ended"),
        (format!("{of_turn}?after=tail"), "turn_ended"),
        (of_log.clone(), "caught_up"),
        (format!("{of_log}&types=session.created"), "caught_up"),
        (format!("{of_log}&after=tail"), "caught_up"),
    ] {
        let id = ended(&gateway, &path, reason).await;
        let last = if path.starts_with(&of_turn) && !path.contains("tail") {
            turn_end
        } else {
            &all[all.len() - 1]
        };
        assert_eq!(seq_of(&id), last["seq"].as_u64().expect("a seq"), "{path}");
        let again = open(&gateway, &path, SSE, Some(&id)).await;
        assert_eq!(again.status(), StatusCode::NO_CONTENT, "{path}");
    }
    let of_all = format!("/v1/events?session={session}&follow=false&types=prompt.");
    let mut frames = gateway.events(&of_all).await.rest().await;
    let end = frames.pop().expect("a frame");
    assert_eq!(
        (end.kind.as_deref(), &end.data["reason"]),
        (Some("end"), &json!("caught_up"))
    );
    let again = open(&gateway, &of_all, SSE, end.id.as_deref()).await;
    assert_eq!(again.status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn the_stream_of_a_posted_turn_and_that_of_a_deleted_session_end_with_an_end() {
    let (gateway, session) = with_a_turn().await;
    let request = gateway.request(Method::POST, &format!("/v1/sessions/{session}/prompts"));
    let request = request
        .header("Accept", SSE)
        .json(&json!({ "prompt": "hello" }));
    let frames = crate::support::Events::new(request.send().await.expect("an answer"))
        .rest()
        .await;
    let [.., completed, end] = &*frames else {
        panic!("{frames:?}")
    };
    assert!(
        completed.of("prompt.completed") && end.data["reason"] == "turn_ended",
        "{frames:?}"
    );
    assert_eq!(end.id, completed.id);

    let path = format!("/v1/sessions/{session}/events");
    let mut stream = gateway.events(&path).await;
    stream.until("ready").await;
    let mut lines = open(&gateway, &path, NDJSON, None).await;
    let deleted = gateway
        .request(Method::DELETE, &format!("/v1/sessions/{session}"))
        .send()
        .await;
    assert!(deleted.expect("an answer").status().is_success());
    let frames = stream.rest().await;
    let [.., deleted, end] = &*frames else {
        panic!("{frames:?}")
    };
    assert!(
        deleted.of("session.deleted") && end.data["reason"] == "session_deleted",
        "{frames:?}"
    );
    let text = body(&mut lines, |_| false).await;
    assert_eq!(
        objects(&text).last().map(|line| line["reason"].clone()),
        Some(json!("session_deleted"))
    );
}

#[tokio::test]
async fn a_shutdown_and_a_refusal_have_their_retry_in_the_same_block() {
    let (mut gateway, session) = with_a_turn().await;
    let mut response = open(
        &gateway,
        &format!("/v1/sessions/{session}/events?after=tail"),
        SSE,
        None,
    )
    .await;
    body(&mut response, |text| text.contains("event: ready")).await;
    assert_eq!(gateway.stop(), Some(0));
    let text = body(&mut response, |_| false).await;
    // The session may lose its process to the drain first.
    let block = text
        .split_terminator("\n\n")
        .last()
        .expect("a block")
        .trim_start_matches(":\n");
    let (retry, rest) = block.split_once('\n').expect("two lines");
    let delay = retry.strip_prefix("retry: ").expect("a delay");
    assert!(
        rest.starts_with("event: shutdown\ndata: {")
            && rest.contains(&format!("\"retryMs\":{delay}")),
        "{text}"
    );

    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_streams = 1")
        .start();
    let first = gateway.events("/v1/events").await;
    let text = open(&gateway, "/v1/events", SSE, None)
        .await
        .text()
        .await
        .expect("a body");
    assert!(
        text.starts_with("retry: ") && text.matches("\n\n").count() == 1,
        "{text}"
    );
    assert!(text.contains("\nevent: problem\ndata: {"), "{text}");
    drop(first);
}
