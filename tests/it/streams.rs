//! Streams, NDJSON and pages of the log: one truth in three forms, from any cursor.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Event, Gateway, Setup};

/// A gateway with a session that has had one turn.
async fn with_a_turn() -> (Gateway, String) {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "hello").await;
    (gateway, session)
}

/// The seq of a `position` event, which has nothing but its cursor.
fn position(event: &Event) -> u64 {
    assert!(
        event.of("position") && event.kind.as_deref() == Some("position"),
        "{event:?}"
    );
    assert_eq!(event.data["id"].as_str(), event.id.as_deref());
    let members: Vec<&str> = event
        .data
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(members, ["id", "type", "time"]);
    let id = event
        .id
        .as_deref()
        .and_then(|id| id.rsplit_once('-'))
        .expect("<epoch>-<seq>");
    id.1.parse().expect("a number")
}

fn of_the_log(events: &[Event]) -> Vec<Value> {
    events
        .iter()
        .filter(|event| event.data["seq"].is_u64())
        .map(|event| event.data.clone())
        .collect()
}

#[tokio::test]
async fn three_forms_tell_the_same() {
    let (gateway, session) = with_a_turn().await;
    let path = format!("/v1/sessions/{session}/events");
    let pages = gateway.all_events(&session).await;
    assert!(pages.len() > 4);
    for (at, event) in pages.iter().enumerate() {
        assert_eq!(event["seq"], at + 1, "seq has no hole");
        assert!(
            event["id"]
                .as_str()
                .is_some_and(|id| id.ends_with(&format!("-{}", at + 1)))
        );
    }
    let mut stream = gateway.events(&path).await;
    let events = stream.until("ready").await;
    assert!(
        stream
            .retry
            .is_some_and(|retry| (1000..2000).contains(&retry))
    );
    assert_eq!(of_the_log(&events), pages);
    for event in &events {
        assert_eq!(event.kind.as_deref(), event.data["type"].as_str());
        assert_eq!(event.id.as_deref(), event.data["id"].as_str());
    }
    let request = gateway
        .request(Method::GET, &format!("{path}?follow=false"))
        .header("accept", "application/x-ndjson");
    let lines = request
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("a body");
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines[..pages.len()], pages);
    assert_eq!(lines[pages.len()]["type"], "ready");
    let small = gateway.get(&format!("{path}?limit=2")).await;
    assert_eq!(
        (small["events"].as_array().map(Vec::len), &small["more"]),
        (Some(2), &json!(true))
    );
}

#[tokio::test]
async fn headers_of_a_stream_keep_it_flowing() {
    let (gateway, session) = with_a_turn().await;
    let request = gateway.request(
        Method::GET,
        &format!("/v1/sessions/{session}/events?follow=false"),
    );
    let response = request
        .header("accept", "text/event-stream")
        .header("accept-encoding", "gzip")
        .send()
        .await;
    let response = response.expect("an answer");
    assert_eq!(
        response.headers()["cache-control"],
        "no-store, no-transform"
    );
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    assert!(!response.headers().contains_key("content-encoding"));
    assert!(
        response
            .text()
            .await
            .expect("a body")
            .starts_with("retry: 1")
    );
}

#[tokio::test]
async fn stream_resumes_from_any_cursor() {
    let (gateway, session) = with_a_turn().await;
    let path = format!("/v1/sessions/{session}/events");
    let all = gateway.all_events(&session).await;
    for (at, event) in all.iter().enumerate() {
        let id = event["id"].as_str().expect("an id");
        // The header wins over the URL, which an EventSource repeats.
        let url = format!("{path}?after={}", all[0]["id"].as_str().expect("an id"));
        let mut stream = gateway.events_after(&url, Some(id)).await;
        assert_eq!(of_the_log(&stream.until("ready").await), all[at + 1..]);
        let page = gateway.get(&format!("{path}?limit=1000&after={id}")).await;
        assert_eq!(
            page["events"].as_array().map(Vec::as_slice),
            Some(&all[at + 1..])
        );
    }
    let mut tail = gateway.events(&format!("{path}?after=tail")).await;
    let ready = tail.next().await.expect("a frame");
    let last = all.last().expect("events")["id"].as_str();
    assert_eq!(
        (ready.kind.as_deref(), ready.id.as_deref()),
        (Some("ready"), last)
    );
    assert_eq!(ready.data["lastEventId"].as_str(), last);
}

#[tokio::test]
async fn invalid_cursor_starts_with_a_reset() {
    let (gateway, session) = with_a_turn().await;
    let path = format!("/v1/sessions/{session}/events");
    let all = gateway.all_events(&session).await;
    let epoch = all[0]["id"]
        .as_str()
        .and_then(|id| id.split_once('-'))
        .expect("an id")
        .0
        .to_owned();
    let other = gateway.session("fake").await;
    let of_other = gateway.all_events(&other).await[0]["id"].clone();
    let of_other = of_other.as_str().expect("an id").to_owned();
    let selected = format!("/v1/events?follow=false&session={session}@{of_other}");
    let frames = gateway.events(&selected).await.rest().await;
    assert_eq!(frames[0].data["reason"], "new_epoch", "{frames:?}");
    for (cursor, reason) in [
        (of_other, "new_epoch"),
        ("nonsense".to_owned(), "unknown_cursor"),
        (format!("{epoch}-99999"), "unknown_cursor"),
        ("zzzz-3".to_owned(), "new_epoch"),
    ] {
        let mut stream = gateway.events_after(&path, Some(&cursor)).await;
        let events = stream.until("ready").await;
        let reset = &events[0];
        assert_eq!(
            (&reset.data["type"], &reset.data["reason"]),
            (&json!("reset"), &json!(reason)),
            "{cursor}"
        );
        assert_eq!(reset.id, Some(format!("{epoch}-0")), "{cursor}");
        assert_eq!(reset.data["session"]["sessionId"], session);
        assert_eq!(of_the_log(&events), all, "{cursor}");
        let page = gateway
            .request(Method::GET, &path)
            .header("last-event-id", &cursor)
            .send()
            .await;
        let page: Value = page.expect("an answer").json().await.expect("JSON");
        assert_eq!(page["events"][0]["type"], "reset", "{cursor}");
        assert_eq!(page["events"][1], all[0], "{cursor}");
    }
    for query in [
        "after=nonsense",
        "after=",
        "types=A",
        "named=maybe",
        "limit=1001",
    ] {
        let response = gateway.request(Method::GET, &format!("{path}?{query}"));
        let response = response
            .header("accept", "text/event-stream")
            .send()
            .await
            .expect("an answer");
        assert_eq!(
            response.status(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "{query}"
        );
    }
}

#[tokio::test]
async fn types_and_names_are_the_clients_choice() {
    let (gateway, session) = with_a_turn().await;
    let path = format!("/v1/sessions/{session}/events?types=prompt.,session.created");
    let mut stream = gateway.events(&path).await;
    let events = stream.until("ready").await;
    let kinds: Vec<_> = events
        .iter()
        .filter_map(|event| event.kind.as_deref())
        .collect();
    assert_eq!(
        kinds,
        [
            "session.created",
            "prompt.started",
            "prompt.completed",
            "ready"
        ]
    );
    let mut unnamed = gateway.events(&format!("{path}&named=false")).await;
    let unnamed = unnamed.until("ready").await;
    assert!(unnamed.iter().all(|event| event.kind.is_none()));
    assert_eq!(of_the_log(&unnamed), of_the_log(&events));
    let page = gateway.get(&path).await;
    assert_eq!(page["events"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn filtered_stream_of_a_busy_log_sends_keep_alives() {
    let gateway = Setup::fake(&[])
        .settings("timeouts.keep_alive_interval = \"100ms\"")
        .start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/events");
    let mut stream = gateway
        .events(&format!("{path}?types=prompt.completed"))
        .await;
    stream.until("ready").await;
    gateway.prompt(&session, "flood n=3000 rate=400").await;
    let mut events = stream.until("prompt.completed").await;
    assert_eq!(
        events.pop().and_then(|event| event.id),
        gateway
            .all_events(&session)
            .await
            .last()
            .map(|last| last["id"].as_str().expect("an id").to_owned())
    );
    let signs = events.len() + stream.comments;
    assert!(signs >= 10, "{signs} in seven seconds");
    // The log grows, so each keep-alive contains the current position.
    let seqs: Vec<u64> = events.iter().map(position).collect();
    assert!(
        seqs.len() >= 5 && seqs.is_sorted_by(|a, b| a < b),
        "{seqs:?}"
    );
}

#[tokio::test]
async fn busy_stream_receives_no_keep_alives() {
    let gateway = Setup::fake(&[])
        .settings("timeouts.keep_alive_interval = \"5s\"")
        .start();
    let session = gateway.session("fake").await;
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    stream.until("ready").await;
    gateway.prompt(&session, "flood n=3000 rate=500").await;
    // An agent may start slowly.
    stream.until("session.update").await;
    let before = stream.comments;
    assert!(stream.until("prompt.completed").await.len() >= 3000);
    assert_eq!(stream.comments, before, "in six seconds");
    let comment = async {
        while stream.comments == before {
            drop(tokio::time::timeout(Duration::from_millis(50), stream.next()).await);
        }
    };
    tokio::time::timeout(Duration::from_mins(1), comment)
        .await
        .expect("a comment in the silence");
    gateway.turn(&session, "hello").await;
    stream.until("prompt.completed").await;
}

#[tokio::test]
async fn disconnect_between_two_resets_repeats_both() {
    let gateway = Setup::fake(&[]).start();
    let sessions = [gateway.session("fake").await, gateway.session("fake").await];
    let path = format!("/v1/events?session={}&session={}", sessions[0], sessions[1]);
    let mut stream = gateway.events_after(&path, Some("zzzz-g3")).await;
    let resets = [
        stream.next().await.expect("a frame"),
        stream.next().await.expect("a frame"),
    ];
    for (reset, session) in resets.iter().zip(&sessions) {
        assert!(
            reset.of("reset") && reset.data["session"]["sessionId"] == *session,
            "{reset:?}"
        );
    }
    // An EventSource that received only the first event still has its old id, which begins with a reset again.
    assert_eq!(resets[0].id, None);
    let id = resets[1]
        .id
        .as_deref()
        .expect("a client with the last event has all");
    assert!(id.ends_with("-g0"), "{id}");
    let mut stream = gateway.events_after(&path, Some(id)).await;
    assert!(!stream.next().await.expect("a frame").of("reset"));
}

#[tokio::test]
async fn reconnect_at_the_end_of_a_finite_stream_is_204() {
    let (gateway, session) = with_a_turn().await;
    let all = gateway.all_events(&session).await;
    let last = all.last().expect("events")["id"].as_str().expect("an id");
    let status = async |path: String, last: &str| {
        let request = gateway
            .request(Method::GET, &path)
            .header("accept", "text/event-stream");
        request
            .header("last-event-id", last)
            .send()
            .await
            .expect("an answer")
            .status()
    };
    let of_log = format!("/v1/sessions/{session}/events?follow=false");
    let events = gateway.events(&of_log).await.rest().await;
    assert_eq!(of_the_log(&events), all);
    assert_eq!(status(of_log, last).await, StatusCode::NO_CONTENT);

    let of_turn = format!("/v1/sessions/{session}/prompts/p1/events");
    let events = of_the_log(&gateway.events(&of_turn).await.rest().await);
    assert_eq!(events[0]["type"], "prompt.started");
    let end = events.last().expect("events");
    assert_eq!(end["type"], "prompt.completed");
    assert!(events.iter().all(|event| event["promptId"] == "p1"));
    assert_eq!(
        status(of_turn, end["id"].as_str().expect("an id")).await,
        StatusCode::NO_CONTENT
    );
}

#[tokio::test]
async fn prompt_response_can_be_a_stream() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let request = gateway.request(Method::POST, &format!("/v1/sessions/{session}/prompts"));
    let request = request
        .header("accept", "text/event-stream")
        .json(&json!({ "prompt": "hello" }));
    let response = request.send().await.expect("an answer");
    assert_eq!(
        response.headers()["location"],
        format!("/v1/sessions/{session}/prompts/p1").as_str()
    );
    let events = of_the_log(&crate::support::Events::new(response).rest().await);
    assert_eq!(events.first().expect("events")["type"], "prompt.started");
    assert_eq!(events.last().expect("events")["type"], "prompt.completed");
    // A turn that runs or has run is a conflict for a stream as for anyone else.
    let request = gateway.request(Method::POST, &format!("/v1/sessions/{session}/prompts"));
    let response = request
        .header("accept", "text/html")
        .json(&json!({ "prompt": "x" }))
        .send()
        .await;
    assert_eq!(
        response.expect("an answer").status(),
        StatusCode::NOT_ACCEPTABLE
    );
    assert_eq!(
        gateway
            .get(&format!("/v1/sessions/{session}/prompts"))
            .await["prompts"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn empty_page_waits_for_events() {
    let (gateway, session) = with_a_turn().await;
    let all = gateway.all_events(&session).await;
    let last = all.last().expect("events")["id"].as_str().expect("an id");
    let path = format!("/v1/sessions/{session}/events?after={last}");
    let held = gateway
        .request(Method::GET, &path)
        .header("prefer", "wait=30")
        .send();
    let (held, _) = tokio::join!(held, gateway.turn(&session, "again"));
    let held = held.expect("an answer");
    assert_eq!(held.headers()["preference-applied"], "wait=30");
    let page: Value = held.json().await.expect("JSON");
    assert_eq!(page["events"][0]["seq"], all.len() + 1);
    let empty = gateway
        .request(Method::GET, "/v1/events")
        .send()
        .await
        .expect("an answer");
    let empty: Value = empty.json().await.expect("JSON");
    assert_eq!(empty["events"], json!([]));
    assert!(
        empty["lastEventId"]
            .as_str()
            .is_some_and(|id| id.contains("-g"))
    );
}

#[tokio::test]
async fn one_stream_over_many_sessions_in_commit_order() {
    let gateway = Setup::fake(&[]).start();
    let one = gateway.session("fake").await;
    let two = gateway.session("fake").await;
    gateway.turn(&one, "hello").await;
    gateway.turn(&two, "hello").await;
    gateway.turn(&one, "again").await;
    let of_one = gateway.all_events(&one).await;
    let of_two = gateway.all_events(&two).await;
    let path = format!("/v1/events?session={one}&session={two}");
    let events = gateway.events(&path).await.until("ready").await;
    let log: Vec<&Event> = events
        .iter()
        .filter(|event| event.data["seq"].is_u64())
        .collect();
    let of = |session: &str| -> Vec<Value> {
        log.iter()
            .filter(|event| event.data["sessionId"] == session)
            .map(|event| event.data.clone())
            .collect()
    };
    assert_eq!((of(&one), of(&two)), (of_one.clone(), of_two.clone()));
    let position = |event: &Event| -> u64 {
        let id = event
            .id
            .as_deref()
            .and_then(|id| id.split_once("-g"))
            .expect("a position");
        id.1.parse().expect("a number")
    };
    assert!(
        log.windows(2)
            .all(|pair| position(pair[0]) < position(pair[1]))
    );
    for at in [0, log.len() / 2, log.len() - 1] {
        let rest = gateway
            .events_after(&path, log[at].id.as_deref())
            .await
            .until("ready")
            .await;
        assert_eq!(
            of_the_log(&rest),
            log[at + 1..]
                .iter()
                .map(|event| event.data.clone())
                .collect::<Vec<_>>()
        );
    }
    let start = of_two[of_two.len() - 2]["id"].as_str().expect("an id");
    let events = gateway
        .events(&format!("/v1/events?session={two}@{start}"))
        .await
        .until("ready")
        .await;
    assert_eq!(of_the_log(&events), of_two[of_two.len() - 1..]);
}

#[tokio::test]
async fn stream_of_all_sessions_reports_new_sessions_without_chunks() {
    let gateway = Setup::fake(&[]).start();
    let mut stream = gateway.events("/v1/events").await;
    let ready = stream.next().await.expect("a frame");
    assert!(ready.of("ready") && ready.id.is_some());
    let session = gateway.session("fake").await;
    gateway.turn(&session, "hello").await;
    let events = stream.until("prompt.completed").await;
    assert!(events[0].of("session.created"));
    assert!(
        events
            .iter()
            .all(|event| !event.of("session.update") && event.data["sessionId"] == session)
    );
}

#[tokio::test]
async fn a_ticket_opens_the_streams_that_it_names() {
    let (gateway, session) = with_a_turn().await;
    let path = format!("/v1/sessions/{session}/events");
    let (status, ticket) = gateway
        .post("/v1/tickets", &json!({ "paths": [path] }))
        .await;
    assert_eq!(status, StatusCode::CREATED);
    let ticket = ticket["ticket"].as_str().expect("a ticket");
    let get = async |path: &str| {
        let url = format!("{}{path}?ticket={ticket}", gateway.url);
        gateway
            .http
            .get(url)
            .header("accept", "text/event-stream")
            .send()
            .await
            .expect("an answer")
    };
    let mut stream = crate::support::Events::new(get(&path).await);
    stream.until("prompt.completed").await;
    assert_eq!(get("/v1/events").await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(get("/v1").await.status(), StatusCode::UNAUTHORIZED);
    for paths in [
        json!([]),
        json!(["/"]),
        json!(["v1/events"]),
        json!(["/v1/events?x=1"]),
        json!(["/v1/sessions"]),
    ] {
        let (status, _) = gateway
            .post("/v1/tickets", &json!({ "paths": paths }))
            .await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{paths}");
    }
}

#[tokio::test]
async fn stop_sends_streams_a_reconnect_delay() {
    let (mut gateway, session) = with_a_turn().await;
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events?after=tail"))
        .await;
    stream.until("ready").await;
    let lines = gateway.request(
        Method::GET,
        &format!("/v1/sessions/{session}/events?after=tail"),
    );
    let lines = lines
        .header("accept", "application/x-ndjson")
        .send()
        .await
        .expect("an answer");
    assert_eq!(gateway.stop(), Some(0));
    let events = stream.rest().await;
    let last = events.last().expect("a frame");
    assert!(last.of("shutdown"), "{events:?}");
    let retry = last.data["retryMs"].as_u64().expect("a number");
    assert!((1000..4000).contains(&retry));
    let lines = lines.text().await.expect("a body");
    assert!(
        lines
            .trim_end()
            .lines()
            .last()
            .is_some_and(|line| line.contains("\"shutdown\"")),
        "{lines}"
    );
}

#[tokio::test]
async fn a_page_of_an_origin_that_is_listed_may_read_and_no_other() {
    let gateway = Setup::fake(&[])
        .settings("auth.allowed_origins = [\"https://app.example\"]")
        .start();
    let url = format!("{}/v1/sessions", gateway.url);
    let preflight = |origin: &'static str| {
        let request = gateway
            .http
            .request(Method::OPTIONS, &url)
            .header("origin", origin);
        request
            .header("access-control-request-method", "POST")
            .send()
    };
    let response = preflight("https://app.example").await.expect("an answer");
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    let header = |name: &str| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    assert_eq!(header("access-control-allow-origin"), "https://app.example");
    assert!(header("access-control-allow-headers").contains("last-event-id"));
    assert_eq!(header("access-control-allow-credentials"), "");
    let refused = preflight("https://other.example").await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert!(
        !refused
            .headers()
            .contains_key("access-control-allow-origin")
    );

    let read = gateway
        .request(Method::GET, "/v1/nothing")
        .header("origin", "https://app.example");
    let read = read.send().await.expect("an answer");
    assert_eq!(
        read.headers()["access-control-allow-origin"],
        "https://app.example"
    );
    assert_eq!(read.headers()["vary"], "Origin");
    let exposed = read.headers()["access-control-expose-headers"]
        .to_str()
        .expect("text")
        .to_owned();
    for name in [
        "location",
        "etag",
        "retry-after",
        "preference-applied",
        "idempotency-replayed",
        "x-request-id",
    ] {
        assert!(exposed.contains(name), "{exposed}");
    }
}
