//! A session's log as it is read: pages, NDJSON, SSE, filters, cursors.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::log::{kinds, logged};
use crate::support::{Answer, Event, Gateway, Setup};

/// A session with a turn of many events, the path of its log, and the whole of it.
async fn talked() -> (Gateway, String, Vec<Value>) {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "stream n=25; ext").await;
    let events = gateway.lawful(&session).await;
    assert_eq!(events.len(), 30);
    (gateway, format!("/v1/sessions/{session}/events"), events)
}

fn id(event: &Value) -> &str {
    event["id"].as_str().expect("an id")
}

#[tokio::test]
async fn pages_follow_each_other_without_a_gap() {
    let (gateway, path, whole) = talked().await;
    let mut all = Vec::new();
    let mut after = String::new();
    let mut pages = 0;
    loop {
        let page = gateway.get(&format!("{path}?limit=7{after}")).await;
        let events = page["events"].as_array().expect("a list");
        all.extend(events.iter().cloned());
        pages += 1;
        assert_eq!(page["lastEventId"], all.last().expect("events")["id"]);
        if page["more"] == false {
            break;
        }
        assert_eq!(events.len(), 7);
        after = format!("&after={}", page["lastEventId"].as_str().expect("a cursor"));
    }
    assert_eq!((all, pages), (whole.clone(), 5));
    let tail = id(whole.last().expect("events"));
    for end in [tail, "tail"] {
        let page = gateway.get(&format!("{path}?after={end}")).await;
        assert_eq!(
            page,
            json!({ "events": [], "lastEventId": tail, "more": false })
        );
    }
    for wrong in [
        "limit=0",
        "limit=1001",
        "after=x",
        "after=",
        "types=",
        "named=2",
        "unknown=1",
    ] {
        gateway
            .call(Method::GET, &format!("{path}?{wrong}"))
            .await
            .problem(422, "invalid");
    }
}

#[tokio::test]
async fn long_poll_waits_for_the_first_event() {
    let (gateway, path, whole) = talked().await;
    let session = whole[0]["sessionId"].as_str().expect("an id");
    let after = id(whole.last().expect("events"));
    let held = gateway
        .request(Method::GET, &format!("{path}?after={after}"))
        .header("Prefer", "wait=60");
    let began = Instant::now();
    let prompted = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        gateway.prompt(session, "hello").await
    };
    let (page, prompt) = tokio::join!(Answer::of(held), prompted);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(
        (page.status.as_u16(), page.header("preference-applied")),
        (200, Some("wait=60"))
    );
    assert_eq!(page.body["events"][0]["id"], prompt["lastEventId"]);

    gateway
        .log_until(session, |e| {
            e["type"] == "prompt.completed" && e["promptId"] == "p2"
        })
        .await;
    let held = gateway
        .request(Method::GET, &format!("{path}?after=tail"))
        .header("Prefer", "wait=1");
    let began = Instant::now();
    let page = Answer::of(held).await;
    assert!(
        began.elapsed() >= Duration::from_millis(900),
        "nothing came"
    );
    assert_eq!(
        (&page.body["events"], &page.body["more"]),
        (&json!([]), &json!(false))
    );
}

#[tokio::test]
async fn ndjson_is_the_same_events_a_line_each() {
    let (gateway, path, whole) = talked().await;
    let request = gateway.request(Method::GET, &format!("{path}?follow=false"));
    let response = request
        .header("Accept", "application/x-ndjson")
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let text = response.text().await.expect("a body");
    let lines: Vec<Value> = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let [events @ .., ready, end] = &*lines else {
        panic!("two lines at least")
    };
    assert_eq!(events, whole);
    assert_eq!(
        (&end["type"], &end["reason"]),
        (&json!("end"), &json!("caught_up"))
    );
    assert_eq!(
        (&ready["type"], &ready["lastEventId"]),
        (&json!("ready"), &whole[29]["id"])
    );
}

#[tokio::test]
async fn a_stream_is_framed_for_an_event_source_and_follows() {
    let (gateway, path, whole) = talked().await;
    let session = whole[0]["sessionId"].as_str().expect("an id");
    let mut stream = gateway.events(&path).await;
    let replay = stream.until("ready").await;
    assert!(
        stream
            .retry
            .is_some_and(|retry| (1000..2000).contains(&retry)),
        "{:?}",
        stream.retry
    );
    let (ready, events) = replay.split_last().expect("frames");
    assert_eq!((&ready.id, &ready.kind), (&None, &Some("ready".to_owned())));
    assert_eq!(ready.data["lastEventId"], whole[29]["id"]);
    for (frame, event) in events.iter().zip(&whole) {
        assert_eq!(frame.data, *event);
        assert_eq!(frame.id.as_deref(), event["id"].as_str());
        assert_eq!(frame.kind.as_deref(), event["type"].as_str());
    }
    assert_eq!(events.len(), whole.len());
    gateway.prompt(session, "hello").await;
    let live = stream.until("prompt.completed").await;
    assert_eq!(
        live.iter().map(Event::seq).collect::<Vec<_>>(),
        [31, 32, 33]
    );
}

#[tokio::test]
async fn types_are_chosen_by_name_or_prefix() {
    let (gateway, path, whole) = talked().await;
    for (types, expected) in [
        ("prompt.", &["prompt.started", "prompt.completed"][..]),
        ("prompt.started,extension", &["prompt.started", "extension"]),
        ("session.", &[]),
        ("nothing.like.that", &[]),
    ] {
        let expected: Vec<&Value> = match types {
            "session." => whole
                .iter()
                .filter(|e| e["type"].as_str().is_some_and(|t| t.starts_with(types)))
                .collect(),
            _ => whole
                .iter()
                .filter(|e| expected.contains(&e["type"].as_str().expect("a type")))
                .collect(),
        };
        let page = gateway.get(&format!("{path}?types={types}")).await;
        assert_eq!(page["events"], json!(expected), "{types}");
        assert_eq!(
            page["lastEventId"], whole[29]["id"],
            "a page says how far it looked"
        );
        let stream = gateway
            .events(&format!("{path}?types={types}&follow=false"))
            .await
            .rest()
            .await;
        let [.., ready, end] = &*stream else {
            panic!("two frames at least")
        };
        assert!(
            ready.of("ready") && end.of("end"),
            "the stream has events that the log does not have: {stream:?}"
        );
        assert_eq!(json!(logged(stream)), json!(expected), "{types}");
    }
}

#[tokio::test]
async fn unnamed_frames_reach_one_handler() {
    let (gateway, path, whole) = talked().await;
    let frames = gateway
        .events(&format!("{path}?named=false&follow=false"))
        .await
        .rest()
        .await;
    assert!(frames.iter().all(|frame| frame.kind.is_none()));
    assert_eq!(logged(frames), whole);
}

#[tokio::test]
async fn reconnect_resumes_after_the_last_received_event() {
    let (gateway, path, whole) = talked().await;
    for seen in [1, 13, 29] {
        let query = format!("{path}?follow=false&after={}", id(&whole[seen - 1]));
        assert_eq!(
            logged(gateway.events(&query).await.rest().await),
            whole[seen..]
        );
        // An EventSource repeats the address that it began with.
        let query = format!("{path}?follow=false&after={}", id(&whole[0]));
        let last = id(&whole[seen - 1]);
        assert_eq!(
            logged(gateway.events_after(&query, Some(last)).await.rest().await),
            whole[seen..]
        );
    }
    let request = gateway.request(Method::GET, &format!("{path}?follow=false"));
    let request = request
        .header("Accept", "text/event-stream")
        .header("Last-Event-ID", id(&whole[29]));
    assert_eq!(
        request.send().await.expect("an answer").status(),
        204,
        "at its end it stops"
    );
}

#[tokio::test]
async fn unknown_cursor_starts_with_a_reset() {
    let (gateway, path, whole) = talked().await;
    let epoch = id(&whole[0]).split_once('-').expect("an id").0;
    let session = gateway.get(path.trim_end_matches("/events")).await;
    for (cursor, reason) in [
        ("zz9-3", "new_epoch"),
        (&*format!("{epoch}-31"), "unknown_cursor"),
        (&*format!("{epoch}-99999999"), "unknown_cursor"),
        ("nonsense", "unknown_cursor"),
        (&*format!("{epoch}-g3"), "unknown_cursor"),
    ] {
        let frames = gateway
            .events_after(&format!("{path}?follow=false"), Some(cursor))
            .await
            .rest()
            .await;
        let reset = frames.first().expect("a frame");
        assert_eq!(
            (&reset.data["type"], &reset.data["reason"]),
            (&json!("reset"), &json!(reason)),
            "{cursor}"
        );
        assert_eq!(
            reset.id,
            Some(format!("{epoch}-0")),
            "the cursor before the following events"
        );
        assert_eq!(reset.data["session"], session);
        assert_eq!(logged(frames), whole, "the log from its first event");
    }
    let page = gateway
        .get(&format!("{path}?after={epoch}-31&limit=1000"))
        .await;
    let events = page["events"].as_array().expect("a list");
    assert_eq!(
        (&events[0]["type"], &events[0]["reason"]),
        (&json!("reset"), &json!("unknown_cursor"))
    );
    assert_eq!(events[1..], whole);
}

#[tokio::test]
async fn stream_from_the_tail_delivers_only_new_events_also_after_a_reconnect() {
    let (gateway, path, whole) = talked().await;
    let session = whole[0]["sessionId"].as_str().expect("an id");
    let mut stream = gateway.events(&format!("{path}?after=tail")).await;
    let ready = stream.next().await.expect("a frame");
    assert_eq!(
        (&ready.data["type"], ready.id.as_deref()),
        (&json!("ready"), whole[29]["id"].as_str())
    );
    drop(stream);
    gateway.turn(session, "hello").await;
    let mut stream = gateway
        .events_after(&format!("{path}?after=tail"), ready.id.as_deref())
        .await;
    let events = logged(stream.until("prompt.completed").await);
    assert_eq!(
        kinds(&events),
        ["prompt.started", "session.update", "prompt.completed"]
    );
}

#[tokio::test]
async fn readers_at_any_pace_see_the_same_log() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/events");
    let done = |event: &Value| event["type"] == "prompt.completed";
    let ndjson = async {
        let request = gateway
            .request(Method::GET, &path)
            .header("Accept", "application/x-ndjson");
        let mut response = request.send().await.expect("an answer");
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains("prompt.completed") {
            text.extend_from_slice(
                &response
                    .chunk()
                    .await
                    .expect("a piece")
                    .expect("it follows"),
            );
        }
        let text = String::from_utf8(text).expect("UTF-8");
        let lines = text.lines().filter(|line| !line.is_empty());
        let events = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        events
            .filter(|event| event["seq"].is_u64())
            .collect::<Vec<Value>>()
    };
    let polled = async {
        let mut events = Vec::<Value>::new();
        let mut after = String::new();
        while !events.last().is_some_and(done) {
            let request = gateway.request(Method::GET, &format!("{path}?limit=100{after}"));
            let page = Answer::of(request.header("Prefer", "wait=30")).await.body;
            events.extend(page["events"].as_array().expect("a list").iter().cloned());
            after = format!("&after={}", page["lastEventId"].as_str().expect("a cursor"));
        }
        events
    };
    let (turn, sse, ndjson, polled) = tokio::join!(
        gateway.streamed(&session, "stream n=2000 rate=4000"),
        gateway.log_until(&session, done),
        ndjson,
        polled,
    );
    let whole = gateway.lawful(&session).await;
    assert_eq!(turn.len(), 2002);
    assert_eq!(turn, whole[whole.len() - 2002..]);
    assert_eq!(sse, whole);
    assert_eq!(ndjson, whole);
    assert_eq!(polled, whole);
}
