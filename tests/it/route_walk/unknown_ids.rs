//! An id reveals nothing: neither the answer nor its time depends on the object that a key may not see.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::matrix::comparable;
use super::operations::{Operation, UNKNOWN, operations, operations_on};
use super::principals::{foreign_key, stranger_key};
use crate::key_life::created;
use crate::support::gateway::KEY;
use crate::support::wait::LONGEST;
use crate::support::{Answer, Events, Gateway, Setup, eventually, figure};

/// The host does not exist, so deliveries stay pending.
const WEBHOOKS: &str = "webhooks.allowed_hosts = [\"hooks.example\"]";

/// A key of another tenant, and one of another user of the same tenant, both with all scopes.
async fn other_keys(gateway: &Gateway) -> [String; 2] {
    [foreign_key(gateway).await, stranger_key(gateway).await]
}

#[tokio::test]
async fn missing_object_is_not_found_on_every_route() {
    let gateway = Setup::fake(&[]).start();
    for operation in operations().iter().filter(|operation| operation.named()) {
        let request = operation.request(&gateway).bearer_auth(KEY);
        operation
            .refused(request, StatusCode::NOT_FOUND, "not_found")
            .await;
    }
}

/// A session of the admin key, with a turn that waits for an answer.
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

/// Checks that the key gets the same answer to both operations.
async fn assert_unknown(gateway: &Gateway, key: &str, operation: &Operation, random: &Operation) {
    let ask = async |operation: &Operation| {
        let request = operation.request(gateway).bearer_auth(key);
        let refused = operation.refused(request, StatusCode::NOT_FOUND, "not_found");
        comparable(&refused.await)
    };
    assert_eq!(
        ask(operation).await,
        ask(random).await,
        "{} {}",
        operation.method,
        operation.path
    );
}

#[tokio::test]
async fn foreign_deleted_and_random_ids_have_identical_answers() {
    let gateway = Setup::fake(&[]).start();
    let (foreign, mut events) = foreign_session(&gateway).await;
    let before = gateway.last_seq(&foreign).await;
    let random = on_a_session(UNKNOWN);
    for key in &other_keys(&gateway).await {
        let deleted = deleted_session(&gateway, key).await;
        for id in [&foreign, &deleted] {
            for (operation, random) in on_a_session(id).iter().zip(&random) {
                assert_unknown(&gateway, key, operation, random).await;
            }
            let merged = format!("{}/v1/events?session={id}", gateway.url);
            let answer = Answer::of(gateway.http.get(merged).bearer_auth(key)).await;
            answer.problem(404, "not_found");
        }
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

/// A session of the user alice, with a turn that waits for an answer.
async fn session_of_alice(gateway: &Gateway) -> (String, String) {
    let alice = created(gateway, &["create", "alice", "--scopes", "admin"]).await;
    let request = |method, path: &str| {
        let url = format!("{}{path}", gateway.url);
        gateway.http.request(method, url).bearer_auth(&alice)
    };
    let body = json!({ "agent": "fake", "prompt": "permission wait=yes" });
    let made = Answer::of(request(Method::POST, "/v1/sessions").json(&body)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
    let session = made.body["sessionId"].as_str().expect("an id").to_owned();
    let path = format!("/v1/sessions/{session}");
    eventually("a request", LONGEST, || async {
        let asked = Answer::of(request(Method::GET, &path)).await;
        (asked.body["state"] == "waiting").then_some(())
    })
    .await;
    (session, alice)
}

/// The requests of one operation: alone, as `HEAD`, with each form of a stream, and with each condition.
fn variants(operation: &Operation, gateway: &Gateway, key: &str) -> Vec<RequestBuilder> {
    let request = || operation.request(gateway).bearer_auth(key);
    let mut variants = vec![request()];
    for (name, value) in [
        ("accept", "text/event-stream"),
        ("accept", "application/x-ndjson"),
        ("prefer", "wait=1"),
        ("idempotency-key", "once"),
        ("if-match", "*"),
        ("if-none-match", "*"),
        ("last-event-id", "0-1"),
        ("range", "bytes=0-1"),
    ] {
        variants.push(request().header(name, value));
    }
    if operation.method == Method::GET {
        let url = format!("{}{}", gateway.url, operation.path);
        variants.push(gateway.http.head(url).bearer_auth(key));
    }
    variants
}

#[tokio::test]
async fn session_of_a_user_is_unknown_to_the_operator_and_to_its_name_in_another_tenant() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_requests_per_minute = 100000")
        .start();
    let (session, alice) = session_of_alice(&gateway).await;
    let snapshot = async || {
        let url = format!("{}/v1/sessions/{session}", gateway.url);
        Answer::of(gateway.http.get(url).bearer_auth(&alice))
            .await
            .body
    };
    let before = snapshot().await;
    let words = ["create", "twin", "--tenant", "other", "--user", "alice"];
    let words = [&words[..], &["--scopes", "admin"]].concat();
    let twin = created(&gateway, &words).await;
    let link = created(&gateway, &["create", "phone", "--user", "owner"]).await;
    let bob = created(&gateway, &["create", "bob", "--scopes", "admin"]).await;
    let unknown = on_a_session(UNKNOWN);
    for key in [KEY, &twin, &link, &bob] {
        for (foreign, unknown) in on_a_session(&session).iter().zip(&unknown) {
            let foreign = variants(foreign, &gateway, key).into_iter();
            for (foreign, random) in foreign.zip(variants(unknown, &gateway, key)) {
                let foreign = comparable(&Answer::of(foreign).await);
                let random = comparable(&Answer::of(random).await);
                let what = format!("{} {}", unknown.method, unknown.path);
                let is_rejected = matches!(foreign.0.as_u16(), 400 | 403 | 404 | 406);
                assert!(is_rejected, "{what}: {foreign:?}");
                assert_eq!(foreign, random, "{what}");
            }
        }
        // A ticket opens only what its key may see.
        for route in ["events", "events/stream", "prompts/p1/events"] {
            let read = async |session: &str| {
                let path = format!("/v1/sessions/{session}/{route}");
                let tickets = gateway.http.post(format!("{}/v1/tickets", gateway.url));
                let body = json!({ "paths": [path] });
                let ticket = Answer::of(tickets.bearer_auth(key).json(&body)).await;
                assert_eq!(ticket.status, StatusCode::CREATED, "{ticket:?}");
                let ticket = ticket.body["ticket"].as_str().expect("a ticket").to_owned();
                let url = format!("{}{path}?ticket={ticket}", gateway.url);
                let answer = Answer::of(gateway.http.get(url)).await;
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{answer:?}");
                comparable(&answer)
            };
            assert_eq!(read(&session).await, read(UNKNOWN).await, "{route}");
        }
    }
    assert_eq!(snapshot().await, before, "the session has not changed");
}

/// The operations on the object of this path parameter.
fn on_an_object(parameter: &str, id: &str) -> Vec<Operation> {
    let mut found = operations();
    found.retain(|operation| operation.template.contains(parameter));
    for operation in &mut found {
        operation.path = operation.path.replace(UNKNOWN, id);
    }
    found
}

#[tokio::test]
async fn foreign_tasks_webhooks_and_deliveries_have_the_answers_of_random_ids() {
    let gateway = Setup::fake(&[]).settings(WEBHOOKS).start();
    let created = async |path: &str, body: Value, member: &str| {
        let answer = gateway.posted(path, &[], &body).await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer.body[member].as_str().expect("an id").to_owned()
    };
    let webhook = json!({ "url": "https://hooks.example/", "events": ["prompt.completed"] });
    let webhook = created("/v1/webhooks", webhook, "webhookId").await;
    let session = gateway.session("fake").await;
    gateway.turn(&session, "hello").await;
    let delivery = eventually("a delivery", LONGEST, || async {
        let listed = gateway.get("/v1/webhooks/deliveries").await;
        listed["deliveries"][0]["deliveryId"]
            .as_str()
            .map(str::to_owned)
    })
    .await;
    let task = json!({ "agent": "fake", "description": "hang" });
    let task = created("/v1/tasks", task, "taskId").await;
    let task_path = format!("/v1/tasks/{task}");
    eventually("the task runs", LONGEST, || async {
        (gateway.get(&task_path).await["status"] == "running").then_some(())
    })
    .await;

    for key in &other_keys(&gateway).await {
        for (parameter, id) in [
            ("{task}", &task),
            ("{webhook}", &webhook),
            ("{delivery}", &delivery),
        ] {
            let own = on_an_object(parameter, id);
            assert!(!own.is_empty(), "{parameter}");
            for (own, random) in own.iter().zip(&on_an_object(parameter, UNKNOWN)) {
                assert_unknown(&gateway, key, own, random).await;
            }
        }
        // The ids in bodies and queries too.
        let child = async |parent: &str| {
            let body = json!({ "agent": "fake", "description": "x", "parentTask": parent });
            let request = gateway.http.post(format!("{}/v1/tasks", gateway.url));
            let answer = Answer::of(request.bearer_auth(key).json(&body)).await;
            assert_eq!(
                answer.status,
                StatusCode::UNPROCESSABLE_ENTITY,
                "{answer:?}"
            );
            comparable(&answer)
        };
        assert_eq!(child(&task).await, child(UNKNOWN).await);
        let children = async |parent: &str| {
            let url = format!("{}/v1/tasks?parent={parent}", gateway.url);
            comparable(&Answer::of(gateway.http.get(url).bearer_auth(key)).await)
        };
        assert_eq!(children(&task).await, children(UNKNOWN).await);
    }
    assert_eq!(gateway.get(&task_path).await["status"], "running");
    gateway.get(&format!("/v1/webhooks/{webhook}")).await;
}

#[tokio::test]
async fn the_time_of_a_404_does_not_reveal_the_object() {
    let gateway = Setup::fake(&[]).start();
    let (foreign, _events) = foreign_session(&gateway).await;
    for key in &other_keys(&gateway).await {
        let deleted = deleted_session(&gateway, key).await;
        assert_equal_times(&gateway, key, [&*foreign, &*deleted, UNKNOWN]).await;
    }
}

/// Compares the times of the answers for a foreign, a deleted and a random id.
async fn assert_equal_times(gateway: &Gateway, key: &str, ids: [&str; 3]) {
    /// The difference of the times that the network hides.
    const NOTICEABLE: Duration = Duration::from_millis(2);
    const ROUNDS: usize = 200;
    const TRIES: usize = 3;
    // Other tests delay some requests, so the comparison uses the fast ones. An oracle delays all requests of an id.
    for left in (0..TRIES).rev() {
        let mut times = ids.map(|_| Vec::with_capacity(ROUNDS));
        for _ in 0..ROUNDS {
            for (id, times) in ids.iter().zip(&mut times) {
                let request = gateway
                    .http
                    .get(format!("{}/v1/sessions/{id}", gateway.url))
                    .bearer_auth(key);
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
    let key = foreign_key(&gateway).await;
    assert_finds_nothing(&gateway, &key).await;
}

#[tokio::test]
async fn key_of_another_user_finds_nothing() {
    let gateway = Setup::fake(&[]).start();
    let key = stranger_key(&gateway).await;
    assert_finds_nothing(&gateway, &key).await;
}

/// Checks that lists and streams of the key have nothing of the sessions of the admin key.
async fn assert_finds_nothing(gateway: &Gateway, key: &str) {
    let (session, mut ours) = foreign_session(gateway).await;
    let as_other = |method: Method, path: &str| {
        gateway
            .http
            .request(method, format!("{}{path}", gateway.url))
            .bearer_auth(key)
    };
    let list = Answer::of(as_other(Method::GET, "/v1/sessions")).await;
    assert_eq!(list.body["sessions"], json!([]));
    let stream = as_other(Method::GET, "/v1/events").header("accept", "text/event-stream");
    let mut theirs = Events::new(stream.send().await.expect("an answer"));
    theirs.until("ready").await;
    gateway
        .post(&format!("/v1/sessions/{session}/cancel"), &json!({}))
        .await;
    ours.until("prompt.completed").await;
    let made = as_other(Method::POST, "/v1/sessions").json(&json!({ "agent": "fake" }));
    let made = Answer::of(made).await.body;
    let first = theirs.next().await.expect("the stream goes on");
    assert_eq!(
        first.data["sessionId"], made["sessionId"],
        "its first event is of its own session"
    );
    assert!(made["sessionId"].is_string(), "{made}");
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}
