//! An id reveals nothing: neither the answer nor its time depends on the object that a key may not see.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::matrix::comparable;
use super::operations::{Operation, UNKNOWN, operations, operations_on};
use super::principals::foreign_key;
use crate::support::{Answer, Events, Gateway, Setup, figure};

#[tokio::test]
async fn missing_object_is_not_found_on_every_route() {
    let gateway = Setup::fake(&[]).start();
    for operation in operations().iter().filter(|operation| operation.named()) {
        let request = operation
            .request(&gateway)
            .bearer_auth(crate::support::gateway::KEY);
        operation
            .refused(request, StatusCode::NOT_FOUND, "not_found")
            .await;
    }
}

/// The session of another tenant, with a turn that waits for an answer.
async fn foreign_session(gateway: &Gateway) -> (String, Events) {
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "permission wait=yes").await;
    let mut events = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    events.until("request.created").await;
    (session, events)
}

/// A session that the key has deleted.
async fn deleted_session(gateway: &Gateway, key: &str) -> String {
    let request = |method, path: &str| {
        gateway
            .http
            .request(method, format!("{}{path}", gateway.url))
            .bearer_auth(key)
    };
    let made =
        Answer::of(request(Method::POST, "/v1/sessions").json(&json!({ "agent": "fake" }))).await;
    let session = made.body["sessionId"].as_str().expect("an id").to_owned();
    let path = format!("/v1/sessions/{session}");
    let turn = request(Method::POST, &format!("{path}/prompts")).header("prefer", "wait=60");
    assert_eq!(
        Answer::of(turn.json(&json!({ "prompt": "hello" })))
            .await
            .status,
        StatusCode::OK
    );
    let deleted = Answer::of(request(Method::DELETE, &path)).await.status;
    assert_eq!(deleted, StatusCode::NO_CONTENT);
    session
}

fn on_a_session(session: &str) -> Vec<Operation> {
    let mut found = operations_on(session, "fake");
    found.retain(|operation| operation.template.contains("{session}"));
    found
}

#[tokio::test]
async fn foreign_deleted_and_random_ids_have_identical_answers() {
    let gateway = Setup::fake(&[]).start();
    let (foreign, mut events) = foreign_session(&gateway).await;
    let key = foreign_key(&gateway).await;
    let deleted = deleted_session(&gateway, &key).await;
    let before = gateway.last_seq(&foreign).await;
    let random = on_a_session(UNKNOWN);
    for id in [&foreign, &deleted] {
        for (operation, random) in on_a_session(id).iter().zip(&random) {
            let ask = async |operation: &Operation| {
                let request = operation.request(&gateway).bearer_auth(&key);
                comparable(
                    &operation
                        .refused(request, StatusCode::NOT_FOUND, "not_found")
                        .await,
                )
            };
            assert_eq!(
                ask(operation).await,
                ask(random).await,
                "{} {}",
                operation.method,
                operation.path
            );
        }
        let merged = format!("{}/v1/events?session={id}", gateway.url);
        let answer = Answer::of(gateway.http.get(merged).bearer_auth(&key)).await;
        answer.problem(404, "not_found");
    }
    assert_eq!(
        gateway.last_seq(&foreign).await,
        before,
        "the foreign session has not changed"
    );
    gateway
        .post(&format!("/v1/sessions/{foreign}/cancel"), &json!({}))
        .await;
    events.until("prompt.completed").await;
}

#[tokio::test]
async fn the_time_of_a_404_does_not_reveal_the_object() {
    /// The difference of the times that the network hides.
    const NOTICEABLE: Duration = Duration::from_millis(2);
    const ROUNDS: usize = 200;
    const TRIES: usize = 3;
    let gateway = Setup::fake(&[]).start();
    let (foreign, _events) = foreign_session(&gateway).await;
    let key = foreign_key(&gateway).await;
    let deleted = deleted_session(&gateway, &key).await;
    let ids = [&*foreign, &*deleted, UNKNOWN];
    // Other tests delay some requests, so the comparison uses the fast ones. An oracle delays all requests of an id.
    for left in (0..TRIES).rev() {
        let mut times = ids.map(|_| Vec::with_capacity(ROUNDS));
        for _ in 0..ROUNDS {
            for (id, times) in ids.iter().zip(&mut times) {
                let request = gateway
                    .http
                    .get(format!("{}/v1/sessions/{id}", gateway.url))
                    .bearer_auth(&key);
                let began = Instant::now();
                assert_eq!(
                    request.send().await.expect("an answer").status(),
                    StatusCode::NOT_FOUND
                );
                times.push(began.elapsed());
            }
        }
        let fast = times.map(|mut times| {
            times.sort_unstable();
            times[ROUNDS / 10]
        });
        figure(&format!(
            "time of a 404, 10th percentile (foreign, deleted, random): {fast:?}"
        ));
        let [least, most] =
            [fast.iter().min(), fast.iter().max()].map(|time| *time.expect("three"));
        if most < least + NOTICEABLE {
            return;
        }
        assert!(left > 0, "the times differ: {fast:?}");
    }
}

#[tokio::test]
async fn key_of_another_tenant_finds_nothing() {
    let gateway = Setup::fake(&[]).start();
    let (session, mut ours) = foreign_session(&gateway).await;
    let key = foreign_key(&gateway).await;
    let as_other = |method: Method, path: &str| {
        gateway
            .http
            .request(method, format!("{}{path}", gateway.url))
            .bearer_auth(&key)
    };
    let list: Value = as_other(Method::GET, "/v1/sessions")
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    assert_eq!(list["sessions"], json!([]));
    let stream = as_other(Method::GET, "/v1/events").header("accept", "text/event-stream");
    let mut theirs = Events::new(stream.send().await.expect("an answer"));
    theirs.until("ready").await;
    gateway
        .post(&format!("/v1/sessions/{session}/cancel"), &json!({}))
        .await;
    ours.until("prompt.completed").await;
    let made = as_other(Method::POST, "/v1/sessions").json(&json!({ "agent": "fake" }));
    let made: Value = made
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    let first = theirs.next().await.expect("the stream goes on");
    assert_eq!(
        first.data["sessionId"], made["sessionId"],
        "its first event is of its own session"
    );
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}
