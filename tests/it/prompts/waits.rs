//! The ways to wait for a turn, and the list of turns.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::log::{agent_text, kinds, logged, one};
use crate::support::{Answer, Events, Gateway, Setup};

async fn fake() -> (Gateway, String) {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    (gateway, session)
}

fn prompts(session: &str) -> String {
    format!("/v1/sessions/{session}/prompts")
}

#[tokio::test]
async fn prompt_returns_at_once_with_an_id_to_follow_from() {
    let (gateway, session) = fake().await;
    let answer = gateway
        .posted(
            &prompts(&session),
            &[],
            &json!({ "prompt": "slow chunks=5 ms=20" }),
        )
        .await;
    assert_eq!(answer.status, 202);
    assert_eq!(answer.header("preference-applied"), None);
    assert_eq!(
        answer.header("location"),
        Some(&*format!("/v1/sessions/{session}/prompts/p1"))
    );
    let prompt = answer.body;
    assert_eq!(
        (&prompt["promptId"], &prompt["sessionId"]),
        (&json!("p1"), &json!(session))
    );
    assert_eq!(
        (&prompt["status"], &prompt["text"]),
        (&json!("running"), &json!(""))
    );
    assert_eq!(prompt["by"], gateway.get("/v1").await["principal"]["id"]);

    let first = prompt["lastEventId"].as_str().expect("an id");
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events?after={first}"))
        .await;
    let events = logged(stream.until("prompt.completed").await);
    let whole = gateway.lawful(&session).await;
    assert_eq!(one(&whole, "prompt.started")["id"], first);
    let started = one(&whole, "prompt.started")["seq"]
        .as_u64()
        .expect("a seq");
    assert_eq!(events, whole[usize::try_from(started).expect("small")..]);
    assert_eq!(
        agent_text(&events),
        "chunk 0 chunk 1 chunk 2 chunk 3 chunk 4 "
    );
}

#[tokio::test]
async fn a_prompt_as_a_stream_is_its_turn_from_the_first_event_to_the_last() {
    let (gateway, session) = fake().await;
    gateway.turn(&session, "the turn before").await;
    let request = gateway
        .request(Method::POST, &prompts(&session))
        .header("Accept", "text/event-stream");
    let response = request
        .json(&json!({ "prompt": "stream n=3; plan" }))
        .send()
        .await
        .expect("an answer");
    for (name, value) in [
        ("location", format!("/v1/sessions/{session}/prompts/p2")),
        ("cache-control", "no-store, no-transform".to_owned()),
        ("x-accel-buffering", "no".to_owned()),
    ] {
        assert_eq!(response.headers()[name], value, "{name}");
    }
    let frames = Events::new(response).rest().await;
    let events = logged(frames);
    assert_eq!(events.first().expect("events")["type"], "prompt.started");
    assert_eq!(events.last().expect("events")["type"], "prompt.completed");
    assert_eq!(events.len(), 6);
    assert!(events.iter().all(|event| event["promptId"] == "p2"));
}

#[tokio::test]
async fn prefer_wait_returns_the_end_of_the_turn() {
    let (gateway, session) = fake().await;
    let wait = [("Prefer", "wait=60")];
    let answer = gateway
        .posted(&prompts(&session), &wait, &json!({ "prompt": "hello" }))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("preference-applied")),
        (200, Some("wait=60"))
    );
    let turn = &answer.body;
    assert_eq!(
        (&turn["status"], &turn["stopReason"]),
        (&json!("completed"), &json!("end_turn"))
    );
    assert_eq!(
        (&turn["text"], &turn["error"]),
        (&json!("hello"), &Value::Null)
    );
    assert!(turn["endedAt"].as_str() >= turn["createdAt"].as_str());
    let events = gateway.lawful(&session).await;
    assert_eq!(turn["lastEventId"], one(&events, "prompt.completed")["id"]);
    assert_eq!(
        gateway.get(&format!("{}/p1", prompts(&session))).await,
        *turn
    );
}

#[tokio::test]
async fn prefer_wait_timeout_returns_the_running_turn() {
    let (gateway, session) = fake().await;
    let began = Instant::now();
    let wait = [("Prefer", "wait=1")];
    let answer = gateway
        .posted(
            &prompts(&session),
            &wait,
            &json!({ "prompt": "slow chunks=70 ms=100" }),
        )
        .await;
    assert!(began.elapsed() >= Duration::from_millis(900));
    assert_eq!(
        (answer.status.as_u16(), answer.header("preference-applied")),
        (202, Some("wait=1"))
    );
    assert_eq!(answer.body["status"], "running");
    let request = gateway.request(Method::GET, &format!("{}/p1", prompts(&session)));
    let ended = Answer::of(request.header("Prefer", "wait=60")).await;
    assert_eq!(
        (ended.status.as_u16(), ended.header("preference-applied")),
        (200, Some("wait=60"))
    );
    assert_eq!(ended.body["stopReason"], "end_turn");
}

#[tokio::test]
async fn a_turn_that_failed_is_an_answer_and_no_error() {
    let (gateway, session) = fake().await;
    let wait = [("Prefer", "wait=60")];
    let answer = gateway
        .posted(
            &prompts(&session),
            &wait,
            &json!({ "prompt": "error message=broken" }),
        )
        .await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["status"]),
        (200, &json!("failed"))
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let error = &answer.body["error"];
    assert_eq!(
        (&error["code"], &error["acp"]["message"]),
        (&json!("agent_error"), &json!("broken"))
    );
    assert_eq!(
        one(&gateway.lawful(&session).await, "prompt.failed")["problem"],
        *error
    );
}

#[tokio::test]
async fn a_dropped_connection_does_not_cancel() {
    let (gateway, session) = fake().await;
    let request = gateway
        .request(Method::POST, &prompts(&session))
        .header("Accept", "text/event-stream");
    let response = request
        .json(&json!({ "prompt": "slow chunks=10 ms=50" }))
        .send()
        .await
        .expect("an answer");
    let mut stream = Events::new(response);
    stream.until("session.update").await;
    drop(stream);
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;

    let request = gateway
        .request(Method::POST, &prompts(&session))
        .header("Prefer", "wait=60");
    let request = request.json(&json!({ "prompt": "slow chunks=10 ms=800" }));
    let begun = gateway.log_until(&session, |e| {
        e["type"] == "session.update" && e["promptId"] == "p2"
    });
    tokio::select! {
        biased;
        _ = begun => {}
        answer = request.send() => panic!("the turn takes longer: {answer:?}"),
    }
    gateway
        .log_until(&session, |e| {
            e["type"] == "prompt.completed" && e["promptId"] == "p2"
        })
        .await;
    let events = gateway.lawful(&session).await;
    assert_eq!(agent_text(&events).matches("chunk 9").count(), 2);
    assert!(
        !events
            .iter()
            .any(|event| event["stopReason"] == "cancelled")
    );
}

#[tokio::test]
async fn turns_are_listed_newest_first_by_pages() {
    let (gateway, session) = fake().await;
    for number in 1..=5 {
        gateway.turn(&session, &format!("echo {number}")).await;
    }
    let mut texts = Vec::new();
    let mut cursor = String::new();
    let mut pages = 0;
    loop {
        let page = gateway
            .get(&format!("{}?limit=2{cursor}", prompts(&session)))
            .await;
        let turns = page["prompts"].as_array().expect("a list").clone();
        texts.extend(
            turns
                .iter()
                .map(|turn| (turn["promptId"].clone(), turn["text"].clone())),
        );
        pages += 1;
        let Some(next) = page["nextCursor"].as_str() else {
            break;
        };
        assert_eq!(turns.len(), 2);
        cursor = format!("&cursor={next}");
    }
    let expected: Vec<(Value, Value)> = (1..=5)
        .rev()
        .map(|n| (json!(format!("p{n}")), json!(n.to_string())))
        .collect();
    assert_eq!((texts, pages), (expected, 3));
    for wrong in [
        "limit=0",
        "limit=201",
        "limit=x",
        "cursor=p0",
        "cursor=x",
        "unknown=1",
    ] {
        let answer = gateway
            .call(Method::GET, &format!("{}?{wrong}", prompts(&session)))
            .await;
        answer.problem(422, "invalid");
    }
}

#[tokio::test]
async fn page_of_long_turns_is_short_and_complete() {
    let gateway = Setup::fake(&[])
        .settings("testing.max_page_bytes = \"8KiB\"")
        .start();
    let session = gateway.session("fake").await;
    for _ in 0..4 {
        gateway.turn(&session, "flood n=100 size=200").await;
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    for turns_left in (0..4).rev() {
        let page = gateway
            .get(&format!("{}?limit=200{cursor}", prompts(&session)))
            .await;
        let turns = page["prompts"].as_array().expect("a list");
        assert_eq!(turns.len(), 1, "one turn is as much as is read for a page");
        assert!(
            turns[0]["text"]
                .as_str()
                .is_some_and(|text| text.len() > 10_000)
        );
        seen.push(turns[0]["promptId"].clone());
        let next = page["nextCursor"].as_str();
        assert_eq!(next.is_some(), turns_left > 0);
        cursor = format!("&cursor={}", next.unwrap_or_default());
    }
    assert_eq!(seen, [json!("p4"), json!("p3"), json!("p2"), json!("p1")]);
}

#[tokio::test]
async fn unsupported_content_is_rejected_before_the_turn() {
    let (gateway, session) = fake().await;
    let before = gateway.all_events(&session).await;
    let text = json!({ "type": "text", "text": "look" });
    for (block, code) in [
        (
            json!({ "type": "image", "data": "AA==", "mimeType": "image/png" }),
            "content_unsupported",
        ),
        (
            json!({ "type": "audio", "data": "AA==", "mimeType": "audio/wav" }),
            "content_unsupported",
        ),
        (json!({ "type": "text" }), "invalid"),
        (json!({ "text": "no type" }), "invalid"),
        (json!("a text"), "invalid"),
    ] {
        let body = json!({ "prompt": [text, block] });
        let problem = gateway
            .posted(&prompts(&session), &[], &body)
            .await
            .problem(422, code);
        let pointer = problem["errors"][0]["pointer"].as_str().expect("a pointer");
        assert!(pointer.starts_with("/prompt/1"), "{problem}");
    }
    for body in [
        json!({}),
        json!({ "prompt": [] }),
        json!({ "prompt": "" }),
        json!({ "prompt": 7 }),
    ] {
        gateway
            .posted(&prompts(&session), &[], &body)
            .await
            .problem(422, "invalid");
    }
    let unknown = json!({ "prompt": "hello", "quue": true });
    gateway
        .posted(&prompts(&session), &[], &unknown)
        .await
        .problem(422, "invalid");
    assert_eq!(gateway.all_events(&session).await, before);

    let resource = json!({ "type": "resource", "resource": { "uri": "file:///a", "text": "b" } });
    let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a" });
    let blocks = json!([text, resource, link]);
    let answer = gateway
        .posted(
            &prompts(&session),
            &[("Prefer", "wait=60")],
            &json!({ "prompt": blocks }),
        )
        .await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["text"]),
        (200, &json!("look"))
    );
    assert_eq!(
        one(&gateway.lawful(&session).await, "prompt.started")["prompt"],
        blocks
    );
}

#[tokio::test]
async fn a_turn_has_a_stream_of_its_own_that_ends_and_is_204_after_its_end() {
    let (gateway, session) = fake().await;
    let first = gateway
        .streamed(&session, "stream n=4; late n=1 ms=20")
        .await;
    gateway
        .log_until(&session, |event| event["late"] == true)
        .await;
    let second = gateway.streamed(&session, "hello").await;
    for (prompt, expected) in [("p1", &first), ("p2", &second)] {
        let path = format!("{}/{prompt}/events", prompts(&session));
        let again = logged(gateway.events(&path).await.rest().await);
        assert_eq!(again, *expected, "late updates are not in a turn's stream");
        let page = gateway.get(&path).await;
        assert_eq!(
            (&page["events"], &page["more"]),
            (&json!(expected), &json!(false))
        );

        let last = expected.last().expect("events")["id"]
            .as_str()
            .expect("an id");
        for accept in ["text/event-stream", "application/x-ndjson"] {
            let request = gateway.request(Method::GET, &path).header("Accept", accept);
            let response = request
                .header("Last-Event-ID", last)
                .send()
                .await
                .expect("an answer");
            assert_eq!(response.status(), 204, "an EventSource stops");
        }
        let middle = expected[1]["id"].as_str().expect("an id");
        let rest = logged(gateway.events_after(&path, Some(middle)).await.rest().await);
        assert_eq!(rest, expected[2..]);
    }
    assert_eq!(
        kinds(&second),
        ["prompt.started", "session.update", "prompt.completed"]
    );
    for missing in ["p3", "p0", "1", "px"] {
        let path = format!("{}/{missing}", prompts(&session));
        gateway
            .call(Method::GET, &path)
            .await
            .problem(404, "not_found");
        gateway
            .call(Method::GET, &format!("{path}/events"))
            .await
            .problem(404, "not_found");
    }
}
